/* The dense oracle: every result is compared with a reduction of the inputs that shares no code
 * with the library.
 *
 * In chunks of 2^20 indices, so that memory stays bounded for any dimension, each rank spreads
 * its contributions over the neutral element in double precision, and they are reduced (world.h).
 * The values are such that every order of reduction is exact in the type (bench_values.c), so the
 * comparison is exact. All cases of a group are checked in one pass. If all results are sparse,
 * the pass jumps from entry to entry of any rank, and only looks at small chunks: what lies
 * between is absent on all ranks, in inputs and results alike. Also checked: the invariants of
 * the result (rill_stream_validate), its fill, that all ranks have the same bits, and for
 * reduce_scatter that the ranges tile the dimension and nothing lies outside of them.
 *
 * Lossy values (value_bits): one rounding moves a value by at most q times the largest magnitude in
 * its bucket; q = 2^-8 for 16 bits (bf16's spacing) and 1/(2^(b-1) - 1) for b-bit QSGD levels. The
 * partial sums that are rounded in one round and end in the same result are of different ranks, so
 * their magnitudes add up to at most A, the bound of a result. With rounds + 1 places of rounding
 * the error is at most ((1 + q)^(rounds + 1) - 1) A. The errors of the factors of a product do not
 * add up like that: ranks times as much.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((uint64_t)1 << 20)
#define SMALL_CHUNK ((uint64_t)1 << 12)

bool bench_agree(const bench_world *world, bool ok, char *text, size_t size) {
    int lowest = world_int(world->all, ok ? world->size : world->rank, WORLD_MIN);
    if (lowest == world->size) return true;
    world_bcast(world->all, text, size, lowest);
    return false;
}

/* A result as a dense vector that is read from front to back. */
typedef struct view {
    const uint32_t *index32;
    const uint64_t *index64;
    const uint64_t *numbers; /* of blocks */
    uint64_t block;
    const char *values; /* NULL: this rank has no result to show */
    uint64_t entries, cursor;
    uint64_t first, count; /* the range that this rank has */
    uint8_t fill[8];
    bool dense;
    double tolerance;
    uint64_t hash;
    bool ok;
} view;

static uint64_t index_at(const view *v, uint64_t i) {
    if (v->block) return v->numbers[i / v->block] * v->block + i % v->block;
    return v->index32 ? v->index32[i] : v->index64[i];
}

/* Only allreduce, allgather and bcast give every rank the whole result. */
static bool same_everywhere(rill_collective collective) {
    return collective == RILL_ALLREDUCE || collective == RILL_ALLGATHER || collective == RILL_BCAST;
}

static double tolerance(const bench_config *config, const bench_world *world, const bench_case *c) {
    if (!c->value_bits || (size_t)c->value_bits >= 8 * rill_type_size(config->type)) return 0;
    double q = c->value_bits == 16 ? 0x1p-8 : 1 / (ldexp(1, c->value_bits - 1) - 1);
    double bound = bench_value_bound(config->type, config->operation, world->size);
    if (config->operation == OPERATION_PROD) bound *= world->size;
    return (pow(1 + q, (double)c->stats.rounds + 1) - 1) * bound;
}

static void open_mpi(const bench_config *config, const bench_world *world, const bench_input *input,
                     const bench_case *c, view *v) {
    bench_store(config->type, v->fill, 0, bench_neutral(config->operation));
    v->dense = true;
    v->values = c->receive;
    v->entries = input->dim;
    v->count = input->dim;
    if (config->collective == RILL_REDUCE && world->rank != ROOT) v->values = NULL;
    if (config->collective != RILL_REDUCE_SCATTER) return;
    v->first = c->first;
    v->count = v->entries = c->count;
}

static void open_rill(const bench_config *config, const bench_world *world,
                      const bench_input *input, bench_case *c, view *v) {
    if (config->collective == RILL_REDUCE && world->rank != ROOT) return;
    v->dense = rill_stream_is_dense(c->out);
    v->index32 = rill_stream_indices32(c->out);
    v->index64 = rill_stream_indices64(c->out);
    v->block = rill_stream_block(c->out);
    v->numbers = rill_stream_blocks(c->out, NULL);
    v->values = rill_stream_values(c->out);
    v->entries = rill_stream_nnz(c->out);
    v->count = input->dim;
    if (config->collective == RILL_REDUCE_SCATTER) {
        v->first = c->first;
        v->count = c->count;
    }
    const char *reason = "";
    double fill, neutral = bench_neutral(config->operation);
    rill_status status = rill_stream_validate(c->out, &reason);
    if (status != RILL_OK) {
        snprintf(c->detail, sizeof c->detail, "rank %d: the result is invalid: %s", world->rank,
                 reason);
        v->ok = false;
        v->values = NULL;
        return;
    }
    rill_stream_fill(c->out, v->fill);
    bench_to_double(config->type, v->fill, 1, &fill);
    if (fill != neutral) {
        snprintf(c->detail, sizeof c->detail, "rank %d: the result's fill is %g, not %g",
                 world->rank, fill, neutral);
        v->ok = false;
    }
    if (!v->values) v->values = ""; /* no entries */
}

/* Entries [start, start + n) of the view, in its type. */
static void read_chunk(view *v, size_t size, uint64_t start, uint64_t n, char *raw) {
    /* A dense rill result covers all; MPI's reduce_scatter only its range. */
    uint64_t base = v->dense && v->entries == v->count ? v->first : 0;
    if (v->dense && start >= base && start + n <= base + v->entries) {
        memcpy(raw, v->values + (start - base) * size, n * size);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        memcpy(raw + i * size, v->fill, size);
    if (v->dense) {
        uint64_t from = start > base ? start : base, to = start + n;
        if (to > base + v->entries) to = base + v->entries;
        if (from < to)
            memcpy(raw + (from - start) * size, v->values + (from - base) * size,
                   (to - from) * size);
        return;
    }
    for (; v->cursor < v->entries; v->cursor++) {
        uint64_t index = index_at(v, v->cursor);
        if (index >= start + n) break;
        memcpy(raw + (index - start) * size, v->values + v->cursor * size, size);
    }
}

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) { /* FNV-1a, eight bytes at a time, with the high bits folded in */
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * 0x100000001b3ull;
        hash ^= hash >> 29;
    }
    for (; i < n; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3ull;
    return hash;
}

static void compare(const bench_world *world, const bench_config *config, uint64_t start,
                    uint64_t n, const double *expected, const double *got, view *v, bench_case *c) {
    double neutral = bench_neutral(config->operation);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t index = start + i;
        bool inside = index - v->first < v->count;
        double want = inside ? expected[i] : neutral;
        if (got[i] == want || (inside && fabs(got[i] - want) <= v->tolerance)) continue;
        snprintf(c->detail, sizeof c->detail,
                 "rank %d, index %llu: the result is %.17g, the oracle's %.17g%s", world->rank,
                 (unsigned long long)index, got[i], want, inside ? "" : " (outside of its range)");
        v->ok = false;
        return;
    }
}

/* Whether the ranges of all ranks tile the dimension. */
static bool ranges_tile(const bench_world *world, const view *v, uint64_t dim) {
    uint64_t mine[2] = {v->first, v->count}, covered = 0, total = 0;
    uint64_t(*all)[2] = malloc((size_t)world->size * sizeof *all);
    if (!all) return false;
    world_gather(world->all, mine, sizeof mine, all);
    /* Each turn takes the range that starts where the last ended; empty ranges are anywhere. */
    for (int turn = 0; turn < world->size && covered < dim; turn++)
        for (int r = 0; r < world->size; r++)
            if (all[r][0] == covered && all[r][1]) {
                covered += all[r][1];
                break;
            }
    for (int r = 0; r < world->size; r++)
        total += all[r][1];
    free(all);
    return covered == dim && total == dim;
}

static void conclude(const bench_config *config, const bench_world *world, const bench_input *input,
                     bench_case *c, view *v) {
    bool ok = bench_agree(world, v->ok, c->detail, sizeof c->detail);
    if (same_everywhere(config->collective)) {
        uint64_t least[2] = {v->hash, ~v->hash};
        world_u64(world->all, least, 2, WORLD_MIN);
        if (ok && least[0] != ~least[1]) {
            snprintf(c->detail, sizeof c->detail, "the results of the ranks differ in their bits");
            ok = false;
        }
    }
    if (config->collective == RILL_REDUCE_SCATTER) {
        bool tile = ranges_tile(world, v, input->dim);
        if (ok && !tile) {
            snprintf(c->detail, sizeof c->detail, "the ranges do not tile the dimension");
            ok = false;
        }
    }
    /* A case that was wrong once stays wrong. */
    c->correct = ok && (c->correct || !c->checked);
    c->checked = true;
}

/* The first index from start on that is in the input or in a result of any rank. Collective. */
static uint64_t next_entry(const bench_world *world, const bench_input *input, uint64_t cursor,
                           const view *views, int n) {
    uint64_t mine = cursor < input->nnz ? input->index[cursor] : UINT64_MAX;
    for (int i = 0; i < n; i++) {
        const view *v = &views[i];
        if (!v->ok || !v->values || v->cursor >= v->entries) continue;
        uint64_t index = index_at(v, v->cursor);
        if (index < mine) mine = index;
    }
    world_u64(world->all, &mine, 1, WORLD_MIN);
    return mine;
}

/* For the test of this very check: RILL_BENCH_FAULT makes the last rank's results wrong. */
static void inject(const bench_world *world, size_t size, char *raw) {
    if (getenv("RILL_BENCH_FAULT") && world->rank == world->size - 1) raw[size - 1] ^= 0x40;
}

/* The pass over the dimension. Buffers are of chunk elements. */
static void pass(const bench_config *config, const bench_world *world, const bench_input *input,
                 bench_case *cases, view *views, int n, uint64_t chunk, bool jump, double *expected,
                 double *got, char *raw) {
    static const world_op ops[] = {WORLD_SUM, WORLD_MIN, WORLD_MAX, WORLD_PROD};
    /* A broadcast is the root's input alone. An allgather by MPI is of dense ranges, not of these
     * inputs: there only the sameness of the bits is checked. */
    bool contributes = config->collective != RILL_BCAST || world->rank == ROOT;
    size_t size = rill_type_size(config->type);
    uint64_t cursor = contributes ? 0 : input->nnz, start = 0;
    double neutral = bench_neutral(config->operation);
    for (bool first = true;; first = false, start += chunk) {
        if (jump) start = next_entry(world, input, cursor, views, n);
        if (start >= input->dim) break;
        uint64_t m = input->dim - start < chunk ? input->dim - start : chunk;
        for (uint64_t i = 0; i < m; i++)
            expected[i] = neutral;
        for (; cursor < input->nnz && input->index[cursor] < start + m; cursor++)
            bench_to_double(config->type, (char *)input->value + cursor * size, 1,
                            &expected[input->index[cursor] - start]);
        world_f64(world->all, expected, (int)m, ops[config->operation]);
        for (int i = 0; i < n; i++) {
            if (!views[i].ok || !views[i].values) continue;
            read_chunk(&views[i], size, start, m, raw);
            if (first) inject(world, size, raw);
            views[i].hash = hash_bytes(views[i].hash, raw, m * size);
            bench_to_double(config->type, raw, m, got);
            if (!(cases[i].is_mpi && config->collective == RILL_ALLGATHER))
                compare(world, config, start, m, expected, got, &views[i], &cases[i]);
        }
    }
}

bool bench_oracle(const bench_config *config, const bench_world *world, const bench_input *input,
                  bench_case *cases, int n) {
    char text[64] = "the oracle is out of memory";
    view *views = calloc((size_t)n, sizeof *views);
    int dense = 0;
    for (int i = 0; views && i < n; i++) {
        if (cases[i].state != CASE_READY) continue;
        views[i].ok = true;
        views[i].tolerance = tolerance(config, world, &cases[i]);
        if (cases[i].is_mpi) open_mpi(config, world, input, &cases[i], &views[i]);
        else open_rill(config, world, input, &cases[i], &views[i]);
        dense |= views[i].dense;
    }
    dense = world_int(world->all, dense, WORLD_MAX);
    uint64_t chunk = dense ? CHUNK : SMALL_CHUNK;
    if (input->dim < chunk) chunk = input->dim;
    double *numbers = malloc(2 * chunk * sizeof *numbers);
    char *raw = malloc(chunk * rill_type_size(config->type));
    bool enough = bench_agree(world, views && numbers && raw, text, sizeof text);
    if (enough && views && numbers) {
        pass(config, world, input, cases, views, n, chunk, !dense, numbers, numbers + chunk, raw);
        for (int i = 0; i < n; i++)
            if (cases[i].state == CASE_READY) conclude(config, world, input, &cases[i], &views[i]);
    } else {
        tool_error("%s", text);
    }
    free(numbers);
    free(raw);
    free(views);
    return enough;
}
