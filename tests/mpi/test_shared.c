/* Parts in memory that ranks of a host share (req/shared.h), by hier on one host and by "shared"
 * of the other collectives: segments grow with what calls ask for, and where they can't, because
 * there is none, too little, or no more on one rank, parts go by message, with the same bits.
 *   --full  there is no room in /dev/shm: tests/tool/full_shm.sh, which compares the last line */
#include "check.h"

#include <stdbool.h>
#include <sys/resource.h>

enum { DIM = 200000, CALLS = 6, REPEATED = 4 };

#ifdef SMPI_H
enum { SHARES = 0 };
#else
enum { SHARES = 1 };
#endif

static const int entries_of[CALLS] = {3, 40, 5000, 900, 60000, 0};

static rill_comm *create(const char *bytes) {
    rill_comm *comm = NULL;
    if (bytes) setenv("RILL_SHARED_BYTES", bytes, 1);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    if (bytes) unsetenv("RILL_SHARED_BYTES");
    return comm;
}

/* Values whose sums depend on the order. */
static float value_at(int rank, uint32_t index) {
    uint32_t x = (index * 2654435761u) ^ ((uint32_t)rank * 40503u);
    return (float)(x % 1000003) * 1e-3f + 1e-4f / (float)(1 + x % 7);
}

static rill_stream *input(int n) {
    rill_stream *in = NULL;
    uint32_t *index = malloc(((size_t)n + 1) * sizeof *index);
    float *value = malloc(((size_t)n + 1) * sizeof *value);
    for (int i = 0; i < n; i++) {
        index[i] = (uint32_t)((uint64_t)i * DIM / (unsigned)n) + (uint32_t)(check.rank % 3);
        value[i] = value_at(check.rank, index[i]);
    }
    CHECK_OK(rill_stream_create(RILL_F32, DIM + 3, &in));
    CHECK_OK(rill_stream_set_pairs(in, (uint64_t)n, index, value));
    free(index);
    free(value);
    return in;
}

static uint64_t hash_of(const rill_stream *out) {
    float *dense = malloc((DIM + 3) * sizeof *dense);
    uint64_t hash = 1469598103934665603u;
    CHECK_OK(rill_stream_get_dense(out, dense));
    for (int i = 0; i < DIM + 3; i++) {
        uint32_t bits;
        memcpy(&bits, &dense[i], sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
    }
    free(dense);
    return hash;
}

/* The hash of each call's result; returns the bytes of messages of the last call of the most
 * entries. */
static uint64_t serve(rill_comm *comm, uint64_t hashes[CALLS]) {
    rill_options o = RILL_OPTIONS_INIT;
    uint64_t sent = 0;
    o.algorithm = "hier";
    for (int i = 0; i < CALLS; i++) {
        rill_stream *in = input(entries_of[i]), *out = NULL;
        rill_stats stats = RILL_STATS_INIT;
        CHECK_OK(rill_stream_create(RILL_F32, DIM + 3, &out));
        for (int again = 0; again < REPEATED; again++) {
            CHECK_OK(rill_allreduce(comm, in, out, RILL_SUM, &o));
            uint64_t hash = hash_of(out);
            if (again == 0) hashes[i] = hash;
            CHECK(hash == hashes[i]);
        }
        CHECK_OK(rill_comm_stats(comm, &stats));
        if (entries_of[i] == 60000) sent = stats.sent_bytes;
        rill_stream_free(&in);
        rill_stream_free(&out);
    }
    return sent;
}

/* A call of another collective by "shared", from the last rank where it has a root. Its result, of
 * ranks that have one. */
static uint64_t call_other(rill_comm *comm, rill_collective collective, int n) {
    rill_options o = RILL_OPTIONS_INIT;
    rill_stream *in = input(n), *out = NULL;
    int root = check.size - 1;
    o.algorithm = "shared";
    CHECK_OK(rill_stream_create(RILL_F32, DIM + 3, &out));
    switch (collective) {
    case RILL_REDUCE: CHECK_OK(rill_reduce(comm, in, out, RILL_SUM, root, &o)); break;
    case RILL_REDUCE_SCATTER: {
        uint64_t first, count;
        CHECK_OK(rill_reduce_scatter(comm, in, out, RILL_SUM, &first, &count, &o));
        break;
    }
    case RILL_ALLGATHER: { /* each has the entries of one range */
        uint32_t at = (uint32_t)((uint64_t)DIM * (unsigned)check.rank / (unsigned)check.size);
        uint32_t *index = malloc(((size_t)n + 1) * sizeof *index);
        float *value = malloc(((size_t)n + 1) * sizeof *value);
        int mine = n / check.size;
        for (int i = 0; i < mine; i++) {
            index[i] = at + (uint32_t)i;
            value[i] = value_at(check.rank, index[i]);
        }
        CHECK_OK(rill_stream_set_pairs(in, (uint64_t)mine, index, value));
        CHECK_OK(rill_allgather(comm, in, out, &o));
        free(index);
        free(value);
        break;
    }
    default: CHECK_OK(rill_bcast(comm, in, root, &o)); break;
    }
    bool has = collective != RILL_REDUCE || check.rank == root;
    uint64_t hash = has ? hash_of(collective == RILL_BCAST ? in : out) : 0;
    rill_stream_free(&in);
    rill_stream_free(&out);
    return hash;
}

enum { OTHERS = 4 };
static const rill_collective others[OTHERS] = {RILL_REDUCE, RILL_REDUCE_SCATTER, RILL_ALLGATHER,
                                               RILL_BCAST};

static void serve_others(rill_comm *comm, uint64_t hashes[OTHERS][CALLS]) {
    for (int c = 0; c < OTHERS; c++)
        for (int i = 0; i < CALLS; i++) {
            hashes[c][i] = call_other(comm, others[c], entries_of[i]);
            CHECK(call_other(comm, others[c], entries_of[i]) == hashes[c][i]);
        }
}

static void same(const char *name, const uint64_t *hashes, const uint64_t *want) {
    check_case("%s", name);
    for (int i = 0; i < CALLS; i++)
        CHECK(hashes[i] == want[i]);
}

/* One rank's segment may not grow any more: the others' do. */
static void cannot_grow(const uint64_t *want) {
    struct rlimit old, little;
    uint64_t hashes[CALLS];
    check_case("a rank's memory cannot grow");
    if (test_link_is_ucx()) return; /* UCX writes files, too */
    rill_comm *comm = create(NULL);
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    little = old;
    little.rlim_cur = 1 << 17;
    signal(SIGXFSZ, SIG_IGN);
    if (check.rank == check.size - 1) CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
    serve(comm, hashes);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    same("a rank's memory could not grow", hashes, want);
    CHECK_OK(rill_comm_free(&comm));
}

static bool has_word(int argc, char **argv, const char *word) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], word) == 0) return true;
    return false;
}

static void print_bits(const uint64_t *sums, uint64_t results[OTHERS][CALLS]) {
    uint64_t hash = 0;
    for (int i = 0; i < CALLS; i++) {
        hash = hash * 1099511628211u + sums[i];
        for (int c = 0; c < OTHERS; c++)
            hash = hash * 1099511628211u + results[c][i];
    }
    if (check.rank == 0) printf("bits %016llx\n", (unsigned long long)hash);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    static const char *const sizes[] = {NULL, "0", "1000", "100000", "2000000"};
    uint64_t want[CALLS] = {0}, hashes[CALLS];
    uint64_t want_others[OTHERS][CALLS], hashes_others[OTHERS][CALLS];
    bool one_host = !check_argument(argc, argv, "--hosts"), full = has_word(argc, argv, "--full");
    for (int i = 0; i < 5; i++) {
        rill_comm *comm = create(sizes[i]);
        uint64_t sent = serve(comm, i ? hashes : want);
        same(sizes[i] ? sizes[i] : "as it is", i ? hashes : want, want);
        /* All entries lie in shared memory, or none do. */
        bool none = full || i == 1;
        if (SHARES && check.size > 1 && one_host && i == 0 && !full) CHECK_INT(sent, <, 20000);
        if (check.size > 1 && one_host && none) CHECK_INT(sent, >, 60000);
        serve_others(comm, i ? hashes_others : want_others);
        for (int c = 0; i && c < OTHERS; c++)
            same(rill_collective_name(others[c]), hashes_others[c], want_others[c]);
        CHECK_OK(rill_comm_free(&comm));
    }
    if (check.size > 1 && !full) cannot_grow(want);
    print_bits(want, want_others);
    return check_finish(4);
}
