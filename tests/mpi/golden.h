/* Golden bits: inputs from integer arithmetic, hashes of results over all ranks, and the file of
 * what they were: lines "ranks name of the case = hash hash ...". Rank 0 has the file; the others
 * only give their hashes. */
#ifndef RILL_TESTS_GOLDEN_H
#define RILL_TESTS_GOLDEN_H

#include "check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- numbers ------------------------------------------------------------------------------- */

/* A counter-based generator: a place in an input has the same number whatever came before it. */
static inline uint64_t golden_bits(uint64_t seed, uint64_t rank, uint64_t i) {
    rng r = {seed * UINT64_C(0xD1342543DE82EF95) + rank * UINT64_C(0x2545F4914F6CDD1D) +
             i * UINT64_C(0x9E3779B97F4A7C15)};
    rng_next(&r);
    return rng_next(&r);
}

/* A number that the type holds as it is, of a magnitude that varies, so that sums round and depend
 * on their order; for products of magnitudes from 1/2 to 3/2. exact: of which 30 combine without
 * rounding. */
static inline double golden_value(rill_type type, test_op op, int exact, uint64_t bits, int rank) {
    static const int digits[TYPE_COUNT] = {24, 53, 11, 8}; /* in the order of rill_type */
    rng r = {bits};
    if (exact) return op_exact_value(op, &r, rank);
    uint64_t one = UINT64_C(1) << (digits[type] - 1), fraction = rng_next(&r) % one;
    double sign = rng_next(&r) & 1 ? 1 : -1, unit = 1 / (double)one;
    if (op == OP_PROD) return sign * (0.5 + (double)fraction * unit);
    return sign * (double)(one + fraction) * unit / (double)(1 << rng_below(&r, 6));
}

/* ---- hashes -------------------------------------------------------------------------------- */

static inline uint64_t golden_hash(uint64_t h, const void *data, size_t bytes) {
    return XXH64(data, bytes, h);
}
/* Of a stream: all values, the number of stored entries, the size of its blocks, the fill. */
static inline uint64_t golden_stream(uint64_t h, const rill_stream *s) {
    size_t size = value_size(rill_stream_type(s));
    uint64_t dim = rill_stream_dim(s), about[2] = {rill_stream_nnz(s), rill_stream_block(s)};
    unsigned char fill[8] = {0};
    void *dense = malloc(dim * size + 8);
    CHECK_OK(rill_stream_fill(s, fill));
    CHECK_OK(rill_stream_get_dense(s, dense));
    h = golden_hash(h, dense, dim * size);
    h = golden_hash(h, about, sizeof about);
    free(dense);
    return golden_hash(h, fill, size);
}

/* ---- lines --------------------------------------------------------------------------------- */

enum { GOLDEN_COLUMNS = 6, GOLDEN_LINE = 200, GOLDEN_SHOWN = 12 };

typedef struct golden_line {
    int ranks, seen;
    char name[GOLDEN_LINE], hashes[GOLDEN_LINE];
} golden_line;

static struct {
    const char *path;
    int writes, strict;
    golden_line *known, *got; /* of the file, with all numbers of ranks; of this run */
    size_t knowns, gots;
    long news, differences;
    long every, number;        /* one case of so many runs; cases so far */
    char columns[GOLDEN_LINE]; /* what the hashes of a line are of */
} golden;

static inline golden_line *golden_add(golden_line **lines, size_t *n) {
    if (*n % 256 == 0) *lines = realloc(*lines, (*n + 256) * sizeof **lines);
    if (!*lines) MPI_Abort(MPI_COMM_WORLD, 1);
    golden_line *line = &(*lines)[(*n)++];
    memset(line, 0, sizeof *line);
    return line;
}

static inline void golden_read(void) {
    char text[2 * GOLDEN_LINE];
    FILE *file = fopen(golden.path, "r");
    if (!file && golden.writes) return;
    if (!CHECK(file != NULL)) {
        fprintf(stderr, "  %s cannot be read; --file names it\n", golden.path);
        return;
    }
    while (fgets(text, sizeof text, file)) {
        char *equals = strstr(text, " = "), *rest;
        if (text[0] == '#' || !equals) continue;
        *equals = 0;
        equals[3 + strcspn(equals + 3, "\n")] = 0;
        golden_line *line = golden_add(&golden.known, &golden.knowns);
        line->ranks = (int)strtol(text, &rest, 10);
        snprintf(line->name, sizeof line->name, "%s", rest + (*rest == ' '));
        snprintf(line->hashes, sizeof line->hashes, "%s", equals + 3);
    }
    fclose(file);
}

static inline void golden_write_lines(FILE *file, const golden_line *lines, size_t n, int least,
                                      int most) {
    for (size_t i = 0; i < n; i++)
        if (lines[i].ranks >= least && lines[i].ranks <= most)
            fprintf(file, "%d %s = %s\n", lines[i].ranks, lines[i].name, lines[i].hashes);
}
/* The lines of this number of ranks are replaced, the others stay. */
static inline void golden_write(void) {
    FILE *file = fopen(golden.path, "w");
    if (!CHECK(file != NULL)) return;
    fprintf(file, "# Written by test_golden --write, whose head says how; not edited by hand.\n");
    golden_write_lines(file, golden.known, golden.knowns, 0, check.size - 1);
    golden_write_lines(file, golden.got, golden.gots, check.size, check.size);
    golden_write_lines(file, golden.known, golden.knowns, check.size + 1, 1 << 24);
    CHECK(!ferror(file));
    CHECK(fclose(file) == 0);
}

/* Each hash that differs, with what it is of; a failure is one line of the file. */
static inline void golden_differs(const golden_line *want, const golden_line *got) {
    char which[GOLDEN_LINE] = "", *w = which, copies[3][GOLDEN_LINE], *at[3], *next[3];
    memcpy(copies[0], golden.columns, GOLDEN_LINE);
    memcpy(copies[1], want->hashes, GOLDEN_LINE);
    memcpy(copies[2], got->hashes, GOLDEN_LINE);
    for (int k = 0; k < 3; k++)
        at[k] = strtok_r(copies[k], " ", &next[k]);
    while (at[0] && at[1] && at[2]) {
        if (strcmp(at[1], at[2]) != 0)
            w += snprintf(w, (size_t)(which + sizeof which - w), " %s", at[0]);
        for (int k = 0; k < 3; k++)
            at[k] = strtok_r(NULL, " ", &next[k]);
    }
    if (golden.differences++ >= GOLDEN_SHOWN) return;
    check_failed(__FILE__, __LINE__, "other bits for%s:\n    %s recorded\n    %s now", which,
                 want->hashes, got->hashes);
}

static inline void golden_compare(const golden_line *got) {
    check.checks++;
    for (size_t i = 0; i < golden.knowns; i++) {
        golden_line *want = &golden.known[i];
        if (want->ranks != got->ranks || strcmp(want->name, got->name) != 0) continue;
        want->seen = 1;
        if (strcmp(want->hashes, got->hashes) != 0) golden_differs(want, got);
        return;
    }
    if (golden.news++ < GOLDEN_SHOWN) printf("new: %d %s\n", got->ranks, got->name);
}

/* Ends a case: n hashes of this rank, each of which is combined with those of the other ranks, in
 * the order of ranks. Collective. */
static inline void golden_case(const char *name, int n, const uint64_t *mine) {
    uint64_t *all = malloc((size_t)(check.size * n + 1) * sizeof *all);
    MPI_Gather(mine, n, MPI_UINT64_T, all, n, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (check.rank == 0) {
        golden_line *line = golden_add(&golden.got, &golden.gots);
        line->ranks = check.size;
        snprintf(line->name, sizeof line->name, "%s", name);
        for (int i = 0; i < n; i++) {
            uint64_t h = (uint64_t)n;
            for (int k = 0; k < check.size; k++)
                h = golden_hash(h, &all[k * n + i], sizeof *all);
            char *end = line->hashes + strlen(line->hashes);
            snprintf(end, 8, "%s%06llx", i ? " " : "", (unsigned long long)(h >> 40));
        }
        if (!golden.writes) golden_compare(line);
    }
    free(all);
}

static inline int golden_skips(void) { return golden.number++ % golden.every != 0; }

static inline void golden_begin(int argc, char **argv) {
    const char *to = check_argument(argc, argv, "--write");
    const char *from = check_argument(argc, argv, "--file");
    golden.writes = to != NULL;
    golden.strict = check_argument(argc, argv, "--strict") != NULL;
    golden.every = to ? 1 : (long)check_number(argc, argv, "--every", 1);
    golden.path = to ? to : from ? from : "tests/mpi/golden.txt";
    if (check.rank == 0) golden_read();
}
static inline void golden_end(void) {
    if (check.rank == 0 && golden.writes) golden_write();
    check_case("the file %s", golden.path);
    for (size_t i = 0; i < golden.knowns && !golden.writes && golden.every == 1; i++) {
        if (golden.known[i].ranks != check.size || golden.known[i].seen) continue;
        if (golden.differences++ < GOLDEN_SHOWN)
            check_failed(__FILE__, __LINE__, "nothing gives: %s", golden.known[i].name);
    }
    if (golden.differences || golden.news)
        printf("test_golden: %d ranks: %ld lines differ, %ld are new, of %zu\n", check.size,
               golden.differences, golden.news, golden.gots);
    if (golden.strict && golden.news)
        check_failed(__FILE__, __LINE__, "%ld new cases, and --strict", golden.news);
    free(golden.known);
    free(golden.got);
}

#endif
