/* Block-sparse streams in collectives: the allreduce "block" over block sizes, supports, forms,
 * operations, types, codecs, value_bits and the three ways to call, and block-sparse inputs to
 * every other algorithm and collective; all against MPI's dense reduction.
 *   --rounds N   samples of each (operation, type) */
#include "cases.h"

static rill_comm *comm;
static long number;

static void renew(void) {
    CHECK_OK(rill_comm_free(&comm));
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
}

typedef enum input { IN_BLOCKS, IN_PAIRS, IN_DENSE, IN_MIXED, IN_COUNT } input;
static const char *const input_names[IN_COUNT] = {"blocks", "pairs", "dense", "mixed"};
typedef enum way { BLOCKING, NONBLOCKING, PERSISTENT, WAYS } way;
static const char *const way_names[WAYS] = {"blocking", "nonblocking", "persistent"};

typedef struct block_case {
    rill_collective collective;
    const char *algorithm, *codec, *partition;
    test_op op;
    rill_type type;
    input in;
    support support;
    way way;
    uint64_t dim, block, option; /* option: as in rill_options */
    int value_bits, in_place, root;
    uint64_t seed;
} block_case;

static void announce(const block_case *c) {
    check_case("case %ld: %s %s codec=%s partition=%s bits=%d %s %s %s %s %s dim=%llu block=%llu "
               "option=%llu%s seed=%#llx",
               number++, rill_collective_name(c->collective),
               c->algorithm ? c->algorithm : "(unset)", c->codec ? c->codec : "(unset)",
               c->partition ? c->partition : "(unset)", c->value_bits, test_op_names[c->op],
               rill_type_name(c->type), input_names[c->in], support_names[c->support],
               way_names[c->way], (unsigned long long)c->dim, (unsigned long long)c->block,
               (unsigned long long)c->option, c->in_place ? " in_place" : "",
               (unsigned long long)c->seed);
}

static input input_of(const block_case *c, int rank) {
    return c->in == IN_MIXED ? (input)((c->seed + (uint64_t)rank) % 3) : c->in;
}

static int has_block(const block_case *c, int rank, uint64_t b) {
    uint64_t size = (uint64_t)check.size;
    rng same = rng_make(c->seed, b), own = rng_make(c->seed + 1 + (uint64_t)rank, b);
    switch (c->support) {
    case SUPPORT_EMPTY: return 0;
    case SUPPORT_SOME_EMPTY: return (c->seed + (uint64_t)rank) % 2 && rng_below(&own, 4) == 0;
    case SUPPORT_IDENTICAL: return rng_below(&same, 5) == 0;
    case SUPPORT_DISJOINT: return b % size == (uint64_t)rank && rng_below(&same, 2);
    case SUPPORT_ONE_RANK: return (uint64_t)rank == c->seed % size && rng_below(&same, 3) == 0;
    case SUPPORT_SKEWED: return b < 3 || rng_below(&own, 50) == 0;
    case SUPPORT_FULL: return 1;
    default: return rng_below(&own, 6) == 0;
    }
}

/* What this rank puts in, dense in doubles; 0 is absent. */
static double *contribution_of(const block_case *c, int rank) {
    double *mine = calloc(c->dim + 1, sizeof *mine);
    rng r = rng_make(c->seed, 1000 + (uint64_t)rank);
    for (uint64_t b = 0; b * c->block < c->dim; b++) {
        if (!has_block(c, rank, b)) continue;
        for (uint64_t j = 0; j < c->block && b * c->block + j < c->dim; j++)
            if (rng_below(&r, 5) || c->support == SUPPORT_FULL)
                mine[b * c->block + j] = op_exact_value(c->op, &r, rank);
    }
    return mine;
}

/* As blocks, unsorted on odd ranks, as pairs, or dense. */
static void load(const block_case *c, int rank, const double *mine, rill_stream *s) {
    void *values = calloc(c->dim + c->block + 1, value_size(c->type));
    uint64_t n = 0, have = (c->dim + c->block - 1) / c->block;
    if (input_of(c, rank) == IN_BLOCKS) {
        uint64_t *numbers = malloc((have + 1) * sizeof *numbers);
        for (uint64_t i = 0; i < have; i++) {
            uint64_t b = rank % 2 ? have - 1 - i : i;
            if (!has_block(c, rank, b)) continue;
            for (uint64_t j = 0; j < c->block && b * c->block + j < c->dim; j++)
                value_store(c->type, values, n * c->block + j, mine[b * c->block + j]);
            numbers[n++] = b;
        }
        CHECK_OK(rill_stream_set_blocks(s, c->block, n, numbers, values));
        free(numbers);
    } else if (input_of(c, rank) == IN_PAIRS) {
        uint64_t *idx = malloc((c->dim + 1) * sizeof *idx);
        for (uint64_t i = 0; i < c->dim; i++) {
            if (mine[i] == 0) continue;
            value_store(c->type, values, n, mine[i]);
            idx[n++] = i;
        }
        CHECK_OK(rill_stream_set_pairs64(s, n, idx, values));
        free(idx);
    } else {
        for (uint64_t i = 0; i < c->dim; i++)
            value_store(c->type, values, i, mine[i]);
        CHECK_OK(rill_stream_set_dense(s, values));
        CHECK_OK(rill_stream_to_dense(s));
    }
    free(values);
}

static int reduces(const block_case *c) { return c->collective <= RILL_REDUCE_SCATTER; }

static double *expected(const block_case *c, const double *mine) {
    test_case plain = {.collective = c->collective,
                       .op = reduces(c) ? c->op : OP_SUM,
                       .type = c->type,
                       .dim = c->dim,
                       .root = c->root};
    contribution k = {0, malloc((c->dim + 1) * 8), malloc((c->dim + 1) * 8)};
    for (uint64_t i = 0; i < c->dim; i++) {
        if (mine[i] == 0) continue;
        k.idx[k.n] = i;
        k.val[k.n++] = mine[i];
    }
    double *want = case_expected(&plain, &k);
    contribution_free(&k);
    return want;
}

static rill_options options_of(const block_case *c) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = c->algorithm;
    o.codec = c->codec;
    o.partition = c->partition;
    o.value_bits = c->value_bits;
    o.block = c->option;
    return o;
}

static rill_status start(const block_case *c, rill_stream *in, rill_stream *out, uint64_t *first,
                         uint64_t *count, rill_request **q) {
    rill_options o = options_of(c);
    const rill_op *op = op_rill(c->op, case_user_op);
    switch (c->collective) {
    case RILL_ALLREDUCE:
        return c->way == BLOCKING      ? rill_allreduce(comm, in, out, op, &o)
               : c->way == NONBLOCKING ? rill_iallreduce(comm, in, out, op, &o, q)
                                       : rill_allreduce_init(comm, in, out, op, &o, q);
    case RILL_REDUCE: return rill_reduce(comm, in, out, op, c->root, &o);
    case RILL_REDUCE_SCATTER: return rill_reduce_scatter(comm, in, out, op, first, count, &o);
    case RILL_ALLGATHER: return rill_allgather(comm, in, out, &o);
    default: return rill_bcast(comm, out, c->root, &o);
    }
}

/* Entries are at most 7, or 7 P in a sum; each of two phases may be off by a quantum of that. */
static double tolerance(const block_case *c) {
    if (!c->value_bits) return 0;
    double q = c->value_bits == 16 ? 0x1p-8 : 1 / (ldexp(1, c->value_bits - 1) - 1);
    return 7.0 * check.size * ((1 + q) * (1 + q) - 1 + 4 * value_epsilon(c->type));
}

static void verify(const block_case *c, const rill_stream *out, const double *want, uint64_t first,
                   uint64_t count) {
    double fill = reduces(c) ? op_neutral(c->op) : 0;
    double *ones = malloc((c->dim + 1) * sizeof *ones);
    for (uint64_t i = 0; i < c->dim; i++)
        ones[i] = 1;
    if (c->collective != RILL_REDUCE || check.rank == c->root)
        check_values(out, want, first, count, fill, c->value_bits ? ones : NULL, tolerance(c));
    if (c->collective == RILL_ALLREDUCE || c->collective >= RILL_ALLGATHER)
        check_same_on_all_ranks("the stored result", stream_hash(out));
    free(ones);
}

static void check_stats(const block_case *c, const rill_stats *stats, uint64_t nnz_in,
                        const rill_stream *out) {
    CHECK_INT(stats->nnz_in, ==, nnz_in);
    CHECK_INT(stats->nnz_out, ==, rill_stream_nnz(out));
    if (c->algorithm && strcmp(c->algorithm, "auto")) CHECK_STRING(stats->algorithm, c->algorithm);
    else if (!c->option) CHECK(strcmp(stats->algorithm, "block") != 0);
    if (strcmp(stats->algorithm, "block")) return;
    uint64_t block = c->option ? c->option : c->in == IN_BLOCKS ? c->block : 256;
    CHECK(rill_stream_is_dense(out) || rill_stream_block(out) == block);
    if (c->codec && strcmp(c->codec, "auto")) CHECK_STRING(stats->codec, c->codec);
}

static void one_case(const block_case *c) {
    announce(c);
    double *mine = contribution_of(c, check.rank), *want = expected(c, mine);
    rill_stream *in = NULL, *out = NULL;
    rill_request *request = NULL;
    rill_stats stats = RILL_STATS_INIT;
    uint64_t first = 0, count = c->dim;
    int shared = c->in_place || c->collective == RILL_BCAST;
    CHECK_OK(rill_stream_create(c->type, c->dim, &in));
    if (!shared) CHECK_OK(rill_stream_create(c->type, c->dim, &out));
    load(c, check.rank, mine, in);
    uint64_t nnz_in = rill_stream_nnz(in), before = stream_hash(in);
    rill_status status = start(c, in, shared ? in : out, &first, &count, &request);
    for (int turn = 0; check_all_ok(status) && turn < (c->way == PERSISTENT ? 3 : 1); turn++) {
        if (c->way == PERSISTENT) {
            load(c, check.rank, mine, in);
            status = rill_start(request);
        }
        if (c->way != BLOCKING && status == RILL_OK) status = rill_wait(request);
        if (!check_all_ok(status)) break;
        verify(c, shared ? in : out, want, first, count);
        if (!shared) CHECK(stream_hash(in) == before);
        CHECK_OK(request ? rill_request_stats(request, &stats) : rill_comm_stats(comm, &stats));
        if (c->collective == RILL_ALLREDUCE) check_stats(c, &stats, nnz_in, shared ? in : out);
    }
    CHECK_OK(rill_request_free(&request));
    if (status != RILL_OK) renew();
    rill_stream_free(&in);
    rill_stream_free(&out);
    free(mine);
    free(want);
}

static block_case random_case(uint64_t draw) {
    static const uint64_t sizes[] = {1, 3, 16, 64, 300, 256, 9999};
    static const uint64_t dims[] = {1, 5, 64, 300, 1000, 4096, 7001};
    static const int bits[] = {16, 8, 4, 2};
    rng r = rng_make(check.seed, 5000 + draw);
    block_case c = {.collective = RILL_ALLREDUCE, .algorithm = "block", .seed = rng_next(&r) >> 8};
    c.codec = case_random_codec(&r);
    c.partition = case_random_partition(&r);
    c.op = (test_op)rng_below(&r, OP_COUNT);
    c.type = test_types[rng_below(&r, TYPE_COUNT)];
    c.in = (input)rng_below(&r, IN_COUNT);
    c.support = (support)rng_below(&r, SUPPORT_COUNT);
    c.way = (way)rng_below(&r, WAYS);
    c.dim = dims[rng_below(&r, sizeof dims / sizeof *dims)];
    c.block = sizes[rng_below(&r, sizeof sizes / sizeof *sizes)];
    c.in_place = rng_below(&r, 3) == 0;
    c.root = (int)rng_below(&r, (uint64_t)check.size);
    /* Where inputs are not all blocks, what they are in depends on the rank. */
    if (c.in == IN_MIXED || rng_below(&r, 2)) c.option = rng_below(&r, 2) ? c.block : 32;
    if (c.op == OP_SUM && rng_below(&r, 3) == 0) c.value_bits = bits[rng_below(&r, 4)];
    return c;
}

static void product(uint64_t rounds) {
    uint64_t draw = 0;
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < TYPE_COUNT; t++)
            for (uint64_t i = 0; i < rounds; i++) {
                block_case c = random_case(draw++);
                c.op = (test_op)op;
                c.type = test_types[t];
                if (op != OP_SUM) c.value_bits = 0;
                one_case(&c);
            }
}

/* Block-sparse inputs elsewhere: all algorithms, all collectives, "auto" with and without the
 * option. */
static void elsewhere(uint64_t rounds) {
    uint64_t draw = 1000;
    for (int collective = 0; collective < RILL_COLLECTIVES; collective++)
        for (int a = 0; case_algorithm((rill_collective)collective, a); a++)
            for (uint64_t i = 0; i < 2 * rounds; i++) {
                block_case c = random_case(draw++);
                c.collective = (rill_collective)collective;
                c.algorithm = case_algorithm(c.collective, a);
                if (c.collective != RILL_ALLREDUCE) c.way = BLOCKING;
                c.value_bits = 0;
                c.in = collective == RILL_BCAST || i % 2 ? IN_BLOCKS : IN_MIXED;
                c.option = i % 3 ? 0 : 32;
                if (!strcmp(c.algorithm, "block")) c.in = IN_BLOCKS;
                if (c.op == OP_USER && !strcmp(c.algorithm, "dense")) c.op = OP_MAX;
                if (c.collective == RILL_ALLGATHER) c.support = SUPPORT_DISJOINT;
                one_case(&c);
            }
}

/* Whole rows of 64 entries, the same on all ranks: how many bytes each rank sends. */
static void volume(void) {
    enum { ROW = 64, ROWS = 4096, STEP = 4 };
    uint64_t sent[2] = {0, 0}, numbers[ROWS / STEP];
    float *values = calloc(ROWS / STEP * ROW, sizeof *values);
    rill_stream *s = NULL, *out = NULL;
    for (uint64_t i = 0; i < ROWS / STEP; i++)
        numbers[i] = STEP * i;
    CHECK_OK(rill_stream_create(RILL_F32, (uint64_t)ROWS * ROW, &s));
    CHECK_OK(rill_stream_create(RILL_F32, (uint64_t)ROWS * ROW, &out));
    CHECK_OK(rill_stream_set_blocks(s, ROW, ROWS / STEP, numbers, values));
    for (int turn = 0; turn < 3; turn++) {
        int raw = turn == 2; /* the first call is planned from less than the others */
        check_case("case %ld: volume, codec %s", number++, raw ? "raw" : "auto");
        rill_options o = RILL_OPTIONS_INIT;
        rill_stats stats = RILL_STATS_INIT;
        o.algorithm = "block";
        o.codec = raw ? "raw" : "auto";
        CHECK_OK(rill_allreduce(comm, s, out, RILL_SUM, &o));
        CHECK_OK(rill_comm_stats(comm, &stats));
        CHECK_INT(rill_stream_block(out), ==, ROW);
        CHECK_INT(rill_stream_nnz(out), ==, ROWS / STEP * ROW);
        sent[raw] = stats.sent_bytes;
    }
    /* Values of the others' rows, and of mine to the others; about as many rows for each. */
    uint64_t p = (uint64_t)check.size, rows = ROWS / STEP / p;
    if (p > 1) {
        uint64_t least = 2 * (p - 1) * rows * ROW * 4, numbers_least = 2 * (p - 1) * rows;
        uint64_t most = 2 * (p - 1) * ((rows + 1) * ROW * 4 + 320 + ROWS / p / 8 + 8);
        CHECK_INT(sent[0], >=, least);
        CHECK_INT(sent[0], <=, most);
        CHECK_INT(sent[1], >=, sent[0] + 7 * numbers_least); /* 8 bytes a row, and not some bits */
    }
    rill_stream_free(&s);
    rill_stream_free(&out);
    free(values);
}

/* Ranks with different block sizes: an error on all of them. */
static void mismatch(void) {
    for (int how = 0; check.size > 1 && how < 4; how++) {
        check_case("case %ld: other block size, %s", number++,
                   how == 0   ? "option"
                   : how == 1 ? "stream"
                   : how == 2 ? "stream and default"
                              : "checked");
        rill_config config = RILL_CONFIG_INIT;
        config.check = how == 3;
        CHECK_OK(rill_comm_free(&comm));
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &comm));
        int odd = check.rank == check.size - 1;
        rill_options o = RILL_OPTIONS_INIT;
        o.algorithm = "block";
        if (how == 0) o.block = odd ? 65 : 64;
        rill_stream *s = NULL;
        uint64_t zero = 0;
        float values[65] = {1};
        CHECK_OK(rill_stream_create(RILL_F32, 1000, &s));
        if (how != 2 || odd) CHECK_OK(rill_stream_set_blocks(s, odd ? 65 : 64, 1, &zero, values));
        CHECK_STATUS(rill_allreduce(comm, s, s, RILL_SUM, &o), RILL_ERR_MISMATCH);
        CHECK_DETAIL("block size");
        rill_stream_free(&s);
        renew();
    }
}

/* The block size from MPI_Info, for an input that has none. */
static void settings(void) {
    check_case("case %ld: rill_block", number++);
    rill_config config = RILL_CONFIG_INIT;
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    config.info = &info;
    MPI_Info_set(info, "rill_block", "48");
    MPI_Info_set(info, "rill_algorithm", "block");
    rill_comm *with = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &with));
    MPI_Info_free(&info);
    rill_stream *s = NULL;
    uint32_t idx = 500;
    float one = 1, dense[1000];
    CHECK_OK(rill_stream_create(RILL_F32, 1000, &s));
    CHECK_OK(rill_stream_set_pairs(s, 1, &idx, &one));
    CHECK_OK(rill_allreduce(with, s, s, RILL_SUM, NULL));
    CHECK_INT(rill_stream_block(s), ==, 48);
    CHECK_INT(rill_stream_nnz(s), ==, 48);
    CHECK_OK(rill_stream_get_dense(s, dense));
    CHECK_NUMBER((double)dense[500], check.size);
    rill_stream_free(&s);
    CHECK_OK(rill_comm_free(&with));
}

/* Several in flight, of different block sizes. */
static void in_flight(void) {
    enum { N = 6 };
    check_case("case %ld: in flight", number++);
    rill_stream *s[N] = {NULL};
    rill_request *q[N] = {NULL};
    for (uint64_t i = 0; i < N; i++) {
        uint64_t block = 3 + 5 * i, numbers[2] = {7, 2 + i};
        double values[2 * (3 + 5 * N)];
        for (uint64_t j = 0; j < 2 * block; j++)
            values[j] = (double)(i + 1);
        rill_options o = RILL_OPTIONS_INIT;
        o.algorithm = "block";
        CHECK_OK(rill_stream_create(RILL_F64, 8 * block - 1, &s[i]));
        CHECK_OK(rill_stream_set_blocks(s[i], block, 2, numbers, values));
        CHECK_OK(rill_iallreduce(comm, s[i], s[i], RILL_SUM, &o, &q[i]));
    }
    CHECK_OK(rill_waitall(N, q));
    for (uint64_t i = 0; i < N; i++) {
        uint64_t block = 3 + 5 * i, twice = 2 + i == 7 ? 2 : 1;
        CHECK_INT(rill_stream_nnz(s[i]), ==, (i == 5 ? block : 2 * block) - 1);
        for (uint64_t j = 0; j < rill_stream_nnz(s[i]); j++)
            CHECK_NUMBER(((const double *)rill_stream_values(s[i]))[j],
                         (double)((i + 1) * twice) * check.size);
        CHECK_OK(rill_request_free(&q[i]));
        rill_stream_free(&s[i]);
    }
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    uint64_t rounds = check_number(argc, argv, "--rounds", 8);
    product(rounds);
    elsewhere(rounds);
    volume();
    mismatch();
    settings();
    in_flight();
    CHECK_OK(rill_comm_free(&comm));
    return cases_finish(OP_COUNT * TYPE_COUNT);
}
