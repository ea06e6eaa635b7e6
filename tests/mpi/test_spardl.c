/* spardl: against a model of its reduce-scatter, and its volume and rounds. */
#include "topk_model.h"

static topk_run open_plain(rill_comm *comm, uint64_t dim, uint64_t k, const char *select) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "spardl";
    o.select = select;
    o.codec = "raw";
    o.value_bits = 0;
    o.k = k;
    return topk_open(comm, dim, &o);
}

static int distance_at_first(void) {
    int distance = 1;
    while (distance * 2 < check.size)
        distance *= 2;
    return check.size > 1 ? distance : 0;
}

/* ---- model -------------------------------------------------------------------------------- */

/* Block b of a rank's vector is trimmed to what it may have. */
static void trim(const topk_run *t, double *v, int b) {
    uint64_t p = (uint64_t)check.size, i = (uint64_t)b;
    uint64_t quota = model_bound(t->k, i + 1, p) - model_bound(t->k, i, p);
    model_keep(v, model_bound(t->dim, i, p), model_bound(t->dim, i + 1, p), quota ? quota : 1);
}

/* Rank from's block b goes to another rank. */
static void move(const topk_run *t, double *all, int from, int to, int b, double *incoming) {
    double *v = all + (uint64_t)from * t->dim;
    uint64_t p = (uint64_t)check.size;
    trim(t, v, b);
    for (uint64_t i = model_bound(t->dim, (uint64_t)b, p);
         i < model_bound(t->dim, (uint64_t)b + 1, p); i++) {
        incoming[(uint64_t)to * t->dim + i] += v[i];
        v[i] = 0;
    }
}

static double *model(const topk_run *t, int by_range) {
    uint64_t entries = (uint64_t)check.size * t->dim;
    double *all = model_copy(t->fed, entries), *incoming = calloc(entries + 1, sizeof *incoming);
    for (int g = 0; by_range && g < check.size; g++)
        for (int b = 0; b < check.size; b++)
            trim(t, all + (uint64_t)g * t->dim, b);
    int held = check.size;
    for (int d = distance_at_first(); d; held = d, d /= 2) {
        memset(incoming, 0, entries * sizeof *incoming);
        for (int g = 0; g < check.size; g++)
            for (int offset = d; offset < held; offset++)
                move(t, all, g, (g + d) % check.size, (g + offset) % check.size, incoming);
        for (uint64_t i = 0; i < entries; i++)
            all[i] += incoming[i];
    }
    /* Each rank is left with its own block. */
    memset(incoming, 0, entries * sizeof *incoming);
    for (int g = 0; g < check.size; g++)
        move(t, all, g, 0, g, incoming);
    CHECK_NUMBER(mass_of(all, entries), 0);
    free(all);
    return incoming;
}

/* ---- cases -------------------------------------------------------------------------------- */

static void test_model(rill_comm *comm, uint64_t steps) {
    static const struct {
        uint64_t dim, k, gap;
    } cases[] = {{1000, 100, 1}, {1000, 16, 2}, {777, 1, 1}, {777, 776, 3}, {64, 64, 1},  {2, 1, 1},
                 {1, 1, 1},      {500, 50, 40}, {11, 3, 1},  {300, 7, 100}, {997, 250, 1}};
    for (int c = 0; c < 11; c++)
        for (int nonzero = 0; nonzero < 2; nonzero++) {
            topk_run t = open_plain(comm, cases[c].dim, cases[c].k, nonzero ? "nonzero" : "topk");
            rng r = rng_make(check.seed + (uint64_t)c, (uint64_t)check.rank);
            for (uint64_t i = 0; i < steps; i++) {
                check_case("spardl: dim %llu k %llu gap %llu %s step %llu",
                           (unsigned long long)t.dim, (unsigned long long)t.k,
                           (unsigned long long)cases[c].gap, nonzero ? "nonzero" : "topk",
                           (unsigned long long)i);
                gradient_integers(&t, &r, cases[c].gap, (int)(i % 2));
                if (!topk_step(&t)) break;
                if (check.size > 1) { /* alone, what is selected is the result */
                    double *want = model(&t, !nonzero);
                    check_result(&t, want);
                    free(want);
                }
                CHECK_NUMBER(topk_missing(&t, t.kept), 0);
            }
            topk_close(&t);
        }
}

/* Enough room: the exact sum. */
static void test_exact(rill_comm *comm) {
    check_case("spardl is exact where nothing is dropped");
    topk_run t = open_plain(comm, 1009, 1009, "topk");
    rng r = rng_make(check.seed, (uint64_t)check.rank);
    gradient_integers(&t, &r, 5, 1); /* a sum of 0 would count as not delivered */
    topk_step(&t);
    double *sum = calloc(t.dim, sizeof *sum);
    for (uint64_t j = 0; j < (uint64_t)check.size * t.dim; j++)
        sum[j % t.dim] += t.fed[j];
    check_result(&t, sum);
    CHECK_NUMBER(mass_of(t.kept, (uint64_t)check.size * t.dim), 0);
    free(sum);
    topk_close(&t);
}

/* Headers of the messages of the reduce-scatter whose first block is (rank + step d) mod P, plus
 * those of Bruck's gather: a bundle has one, and one for each message in it. */
static uint64_t headers(int sends) {
    uint64_t n = 0;
    int held = check.size;
    for (int d = distance_at_first(); d; held = d, d /= 2) {
        int from = (check.rank + (sends ? d : 0)) % check.size;
        n += from + held - d > check.size ? 3 : 1;
    }
    for (int d = 1; d < check.size; d *= 2) {
        int blocks = d < check.size - d ? d : check.size - d;
        n += blocks > 1 ? (uint64_t)blocks + 1 : 1;
    }
    return n;
}

/* P - 1 blocks of k/P pairs leave and reach every rank, twice: 4k(P-1)/P words, in 2 ceil(log2 P)
 * rounds, in as many messages. */
static void test_volume(rill_comm *comm) {
    for (uint64_t share = 2; share <= 200; share *= 10) {
        uint64_t k = share * (uint64_t)check.size, rounds = 2 * (uint64_t)rounds_of(check.size);
        check_case("spardl volume: k %llu", (unsigned long long)k);
        topk_run t = open_plain(comm, 1000 * (uint64_t)check.size, k, "topk");
        rng r = rng_make(check.seed, (uint64_t)check.rank);
        gradient_real(&t, &r);
        topk_step(&t);
        uint64_t words = 4 * share * (uint64_t)(check.size - 1);
        CHECK_INT(t.stats.sent_bytes, ==, 4 * words + HEADER_BYTES * headers(1));
        CHECK_INT(t.stats.recv_bytes, ==, 4 * words + HEADER_BYTES * headers(0));
        CHECK_INT(t.stats.rounds, ==, rounds);
        CHECK_INT(t.stats.messages, ==, rounds);
        CHECK_INT(t.stats.nnz_out, ==, k);
        if (check.rank == 0 && share == 200)
            printf("test_spardl: %d ranks, k %llu: %llu words and %llu headers in %llu rounds; "
                   "formula %llu\n",
                   check.size, (unsigned long long)k,
                   (unsigned long long)((t.stats.sent_bytes - HEADER_BYTES * headers(1)) / 4),
                   (unsigned long long)headers(1), (unsigned long long)t.stats.rounds,
                   (unsigned long long)(4 * k * (uint64_t)(check.size - 1) / (uint64_t)check.size));
        topk_close(&t);
    }
}

/* The large entries are in the first tenth of the indices. How much of a step's result is from
 * there, after as many partitions as are given? */
static double share_of_region(rill_comm *comm, const char *partition, int partitions) {
    enum { DIM = 20000, K = 400, EVERY = 4 };
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = "spardl";
    o.partition = partition;
    o.k = K;
    o.repartition_interval = EVERY;
    topk_run t = topk_open(comm, DIM, &o);
    rng r = rng_make(check.seed, 77 + (uint64_t)check.rank);
    uint64_t inside = 0, all = 0;
    for (int step = 0; step <= EVERY * partitions; step++) {
        for (uint64_t i = 0; i < DIM; i++)
            t.gradient[i] = (float)((rng_unit(&r) - 0.5) * (i < DIM / 10 ? 40 : 1));
        topk_step(&t);
        CHECK(topk_missing(&t, t.kept) < 1e-5);
        CHECK_INT(t.stats.nnz_out, <=, K);
    }
    for (uint64_t i = 0; i < DIM; i++) {
        all += t.update[i] != 0;
        inside += t.update[i] != 0 && i < DIM / 10;
    }
    CHECK_INT(all, >=, K * 9 / 10);
    topk_close(&t);
    return (double)inside / (double)all;
}

/* Blocks of equal length can't give the region more than its length; those that move do. */
static void test_balance(rill_comm *comm) {
    check_case("spardl: blocks move to the large entries");
    double even = share_of_region(comm, "uniform", 12), moved = share_of_region(comm, NULL, 12);
    if (check.rank == 0)
        printf("test_spardl: %d ranks: %.2f of the result from a tenth of the indices, %.2f with "
               "blocks "
               "of equal length\n",
               check.size, moved, even);
    if (check.size == 1) return;
    CHECK(even < 1.02 * (check.size < 10 ? 1.0 : 2.0) / check.size + 0.01);
    CHECK(moved > 0.7 && moved > even);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    rill_comm *comm = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    uint64_t steps = check_number(argc, argv, "--steps", 3);
    test_volume(comm);
    if (!check_argument(argc, argv, "--volume")) {
        test_model(comm, steps);
        test_exact(comm);
        test_balance(comm);
        check_codings("spardl", steps);
        check_failures("spardl");
    }
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(3);
}
