/* Allreduce: every algorithm x operation x type with forms, supports, dimensions, partitions and
 * codecs, against MPI's dense reduction, exactly. A seeded sample of the product by default;
 *   --rounds N   samples of each (algorithm, operation, type)
 *   --full       every support, form and dimension with each of them
 *   --only N     that case alone */
#include "runs.h"

static rill_comm *comm;
static long number, only = -1;

static void renew(void) {
    CHECK_OK(rill_comm_free(&comm));
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
}

static void one_case(const test_case *c) {
    if (only >= 0 && number++ != only) return;
    case_announce(c, only >= 0 ? only : number++);
    test_run run = run_make(c);
    uint64_t nnz_in = rill_stream_nnz(run.in);
    uint64_t before = stream_hash(run.in);
    if (run_is_unsupported(c)) {
        CHECK_STATUS(run_call(&run, comm, RUN_BLOCKING), RILL_ERR_UNSUPPORTED);
        CHECK_DETAIL("dense");
        renew();
    } else if (check_all_ok(run_call(&run, comm, RUN_BLOCKING))) {
        run_verify(&run);
        if (!c->in_place) CHECK(stream_hash(run.in) == before);
        rill_stats stats = RILL_STATS_INIT;
        CHECK_OK(rill_comm_stats(comm, &stats));
        run_check_stats(c, &stats, nnz_in, run.out);
    } else {
        renew();
    }
    run_free(&run);
}

static void product(uint64_t rounds, int full) {
    uint64_t draw = 0;
    for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++)
        for (int op = 0; op < OP_COUNT; op++)
            for (int t = 0; t < TYPE_COUNT; t++) {
                uint64_t inner = full ? SUPPORT_COUNT * FORM_COUNT * 8 : rounds;
                for (uint64_t i = 0; i < inner; i++) {
                    test_case c = run_random_case(RILL_ALLREDUCE, check.seed, draw++, 65539);
                    c.algorithm = case_algorithm(RILL_ALLREDUCE, a);
                    c.op = (test_op)op;
                    c.type = test_types[t];
                    if (full) {
                        uint64_t size = (uint64_t)check.size;
                        uint64_t dims[] = {1,    2,    7,    size > 1 ? size - 1 : 3,
                                           size, 1000, 4099, 65539};
                        c.support = (support)(i % SUPPORT_COUNT);
                        c.form = (form)(i / SUPPORT_COUNT % FORM_COUNT);
                        c.dim = dims[i / (SUPPORT_COUNT * FORM_COUNT)];
                    }
                    one_case(&c);
                }
            }
    /* Indices over 2^24, which no f32 holds; with more ranks see huge. */
    for (int a = 0; check.size <= 2 && case_algorithm(RILL_ALLREDUCE, a); a++) {
        test_case c = run_random_case(RILL_ALLREDUCE, check.seed, draw++, 65539);
        c.algorithm = case_algorithm(RILL_ALLREDUCE, a);
        c.type = RILL_F32;
        c.op = OP_SUM;
        c.dim = (1 << 24) + 5;
        c.gap = 5000;
        c.form = FORM_SPARSE;
        c.support = SUPPORT_UNIFORM;
        one_case(&c);
    }
}

/* Values whose sums round: the same bits on all ranks and in every run, close to doubles. */
static void rounding(uint64_t rounds) {
    for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++)
        for (uint64_t i = 0; i < rounds * TYPE_COUNT; i++) {
            test_case c = run_random_case(RILL_ALLREDUCE, check.seed + 77, i, 65539);
            c.algorithm = case_algorithm(RILL_ALLREDUCE, a);
            c.op = OP_SUM;
            c.type = test_types[i % TYPE_COUNT];
            c.inexact = 1;
            c.in_place = 0;
            if (only >= 0 && number++ != only) continue;
            case_announce(&c, only >= 0 ? only : number++);
            test_run run = run_make(&c);
            /* Sum of magnitudes: what rounding errors are relative to. */
            contribution k = case_contribution(&c, check.rank, check.size);
            for (uint64_t j = 0; j < k.n; j++)
                k.val[j] = fabs(k.val[j]);
            double *scale = case_expected(&c, &k);
            contribution_free(&k);
            uint64_t hashes[2] = {0, 0};
            for (int again = 0; again < 2; again++) {
                /* What auto chooses depends on the calls before: none, both times. */
                if (a == 0) renew();
                if (!check_all_ok(run_call(&run, comm, RUN_BLOCKING))) break;
                hashes[again] = stream_hash(run.out);
                check_same_on_all_ranks("the stored result", hashes[again]);
                /* At most one rounding a contribution, each of a partial sum. */
                check_values(run.out, run.want, 0, c.dim, 0, scale,
                             (check.size + 1) * value_epsilon(c.type));
            }
            CHECK(hashes[0] == hashes[1]);
            free(scale);
            run_free(&run);
        }
}

/* Pairs of more entries than their dense form would take: they go as bits and values, or dense. */
static void thick(void) {
    static const uint64_t dims[] = {300, 4099, 70001};
    static const support supports[] = {SUPPORT_UNIFORM, SUPPORT_SKEWED, SUPPORT_SOME_EMPTY,
                                       SUPPORT_FULL};
    uint64_t draw = 500000;
    for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++)
        for (int i = 0; i < 24; i++) {
            test_case c = run_random_case(RILL_ALLREDUCE, check.seed, draw++, 65539);
            c.algorithm = case_algorithm(RILL_ALLREDUCE, a);
            c.codec = NULL;
            if (i % 4) c.op = OP_SUM, c.type = RILL_F32;
            c.form = FORM_SPARSE;
            c.support = supports[i % 4];
            c.dim = dims[i % 3];
            c.gap = 1 + (uint64_t)i / 12;
            one_case(&c);
        }
}

/* Dimensions that no dense vector has: indices beyond 2^32, few entries. */
static void huge(void) {
    static const uint64_t dims[] = {(UINT64_C(1) << 24) + 5, UINT64_C(1) << 32,
                                    (UINT64_C(1) << 32) + 1, UINT64_C(1) << 40,
                                    (UINT64_C(1) << 60) + 3, UINT64_MAX};
    for (int d = 0; d < 6; d++)
        for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++)
            for (int s = 0; s < SUPPORT_FULL; s++) {
                test_case c = run_random_case(RILL_ALLREDUCE, check.seed + 99, (uint64_t)s, 65539);
                c.algorithm = case_algorithm(RILL_ALLREDUCE, a);
                c.dim = dims[d];
                c.gap = c.dim / 50;
                c.form = FORM_SPARSE;
                c.support = (support)s;
                c.expected_nnz = 0;
                if (c.codec && strcmp(c.codec, "bitmap") == 0) c.codec = NULL; /* a bit an index */
                int densifies = !strcmp(c.algorithm, "dense") || !strcmp(c.algorithm, "dsar");
                /* A dense vector of 2^32 might just fit into memory: not tried. */
                if (densifies && c.dim < UINT64_C(1) << 60) continue;
                if (densifies && s) continue;
                if (only >= 0 && number++ != only) continue;
                case_announce(&c, only >= 0 ? only : number++);
                rill_stream *in = NULL, *out = NULL;
                CHECK_OK(rill_stream_create(c.type, c.dim, &in));
                CHECK_OK(rill_stream_create(c.type, c.dim, &out));
                contribution k = case_contribution(&c, check.rank, check.size);
                case_fill_stream(&c, check.rank, &k, in);
                contribution_free(&k);
                rill_options o = case_options(&c);
                rill_status status = rill_allreduce(comm, in, out, case_op(&c), &o);
                if (densifies) {
                    CHECK(status == RILL_ERR_MEMORY || status == RILL_ERR_UNSUPPORTED);
                    renew();
                } else if (check_all_ok(status)) {
                    check_valid(out);
                    CHECK(!rill_stream_is_dense(out));
                    check_same_on_all_ranks("the stored result", stream_hash(out));
                    /* Every rank knows what all contribute: for each result, ask each of them. */
                    uint64_t n = rill_stream_nnz(out), seen = 0;
                    uint64_t *idx = stream_indices(out);
                    double *want = malloc((n + 1) * sizeof(double));
                    char *has = calloc(n + 1, 1);
                    for (int p = 0; p < check.size; p++) {
                        contribution q = case_contribution(&c, p, check.size);
                        for (uint64_t j = 0, i = 0; j < q.n; j++) {
                            while (i < n && idx[i] < q.idx[j])
                                i++;
                            if (!CHECK(i < n && idx[i] == q.idx[j])) break;
                            want[i] = has[i] ? op_apply(c.op, want[i], q.val[j]) : q.val[j];
                            has[i] = 1;
                        }
                        contribution_free(&q);
                    }
                    for (uint64_t i = 0; i < n; i++) {
                        seen += (uint64_t)has[i];
                        CHECK_NUMBER(value_load(c.type, rill_stream_values(out), i),
                                     has[i] ? want[i] : op_neutral(c.op));
                    }
                    /* Blocks have entries that nobody gave. */
                    if (!rill_stream_block(out)) CHECK_INT(seen, ==, n);
                    CHECK_NUMBER(stream_fill(out), op_neutral(c.op));
                    free(idx);
                    free(want);
                    free(has);
                } else {
                    renew();
                }
                rill_stream_free(&in);
                rill_stream_free(&out);
            }
}

/* NaN, infinities and what cancels, through every algorithm. */
static void special_values(void) {
    static const double mine[][6] = {{1, (double)INFINITY, 3, (double)NAN, 0, -2},
                                     {-1, 2, -(double)INFINITY, 1, 5, 2}};
    static const uint32_t idx[6] = {0, 17, 40, 41, 98, 99};
    for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++)
        for (int t = 0; t < TYPE_COUNT; t++)
            for (int op = 0; op < OP_PROD; op++) {
                if (only >= 0 && number++ != only) continue;
                rill_options o = RILL_OPTIONS_INIT;
                o.algorithm = case_algorithm(RILL_ALLREDUCE, a);
                check_case("case %ld: special values, %s %s %s", only >= 0 ? only : number++,
                           o.algorithm, rill_type_name(test_types[t]), test_op_names[op]);
                rill_stream *s = NULL;
                double val[6];
                for (uint64_t i = 0; i < 6; i++)
                    value_store(test_types[t], val, i, mine[check.rank % 2][i]);
                CHECK_OK(rill_stream_create(test_types[t], 100, &s));
                CHECK_OK(rill_stream_set_pairs(s, 6, idx, val));
                if (check_all_ok(rill_allreduce(comm, s, s, op_rill((test_op)op, NULL), &o))) {
                    double want[100];
                    for (int i = 0; i < 100; i++)
                        want[i] = op_neutral((test_op)op);
                    for (int i = 0; i < 6; i++) {
                        want[idx[i]] = mine[0][i];
                        for (int p = 1; p < check.size; p++)
                            want[idx[i]] = op_apply((test_op)op, want[idx[i]], mine[p % 2][i]);
                    }
                    check_values(s, want, 0, 100, op_neutral((test_op)op), NULL, 0);
                    check_same_on_all_ranks("the stored result", stream_hash(s));
                }
                rill_stream_free(&s);
            }
}

/* Takes the lower rank's value: tells whether sums are in the order of ranks. */
static void take_lower(const void *lower, const void *upper, void *result, uint64_t n,
                       rill_type type, void *context) {
    (void)context;
    for (uint64_t i = 0; i < n; i++) {
        double a = value_load(type, lower, i), b = value_load(type, upper, i);
        value_store(type, result, i, a == USER_NEUTRAL ? b : a);
    }
}

/* Where ranks are dealt to hosts in turn, hier sums host by host. */
static int comes_before(const char *algorithm, int p, int q, int dealt_to) {
    if (dealt_to && !strcmp(algorithm, "hier") && p % dealt_to != q % dealt_to)
        return p % dealt_to < q % dealt_to;
    return p < q;
}

/* The lower argument of an operation comes from the lower ranks, in either form. */
static void order_of_ranks(int dealt_to) {
    rill_op *op = NULL;
    CHECK_OK(rill_op_create("lower", take_lower, NULL, USER_NEUTRAL, 0, &op));
    for (int a = 0; case_algorithm(RILL_ALLREDUCE, a); a++)
        for (uint32_t step = 1; step < 40; step += 19) {
            rill_options o = RILL_OPTIONS_INIT;
            o.algorithm = case_algorithm(RILL_ALLREDUCE, a);
            /* Two have the order of a ring; dense has no such operations. */
            if (!strcmp(o.algorithm, "ring") || !strcmp(o.algorithm, "recursive_halving") ||
                !strcmp(o.algorithm, "dense") || a == 0)
                continue;
            if (only >= 0 && number++ != only) continue;
            check_case("case %ld: order of ranks, %s, every %u", only >= 0 ? only : number++,
                       o.algorithm, step);
            rill_stream *s = NULL;
            uint32_t idx[1000], n = 0;
            float val[1000];
            double want[1000];
            for (uint32_t i = 0; i < 1000; i++) {
                int lowest = -1;
                for (int p = 0; i % step == 0 && p < check.size; p++)
                    if ((i + (uint32_t)p) % 3 &&
                        (lowest < 0 || comes_before(o.algorithm, p, lowest, dealt_to)))
                        lowest = p;
                want[i] = lowest < 0 ? USER_NEUTRAL : lowest + 1;
                if (i % step || !((i + (uint32_t)check.rank) % 3)) continue;
                idx[n] = i;
                val[n++] = (float)(check.rank + 1);
            }
            CHECK_OK(rill_stream_create(RILL_F32, 1000, &s));
            CHECK_OK(rill_stream_set_pairs(s, n, idx, val));
            if (check_all_ok(rill_allreduce(comm, s, s, op, &o)))
                check_values(s, want, 0, 1000, USER_NEUTRAL, NULL, 0);
            rill_stream_free(&s);
        }
    rill_op_free(&op);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    const char *one = check_argument(argc, argv, "--only");
    if (one) only = atol(one);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    uint64_t rounds = check_number(argc, argv, "--rounds", 4);
    product(rounds, check_argument(argc, argv, "--full") != NULL);
    rounding(rounds);
    huge();
    thick();
    special_values();
    const char *hosts = check_argument(argc, argv, "--hosts");
    order_of_ranks(hosts && !strncmp(hosts, "cyclic:", 7) ? atoi(hosts + 7) : 0);
    CHECK_OK(rill_comm_free(&comm));
    CHECK(comm == NULL);
    return cases_finish(only >= 0 ? 1 : 8 * OP_COUNT * TYPE_COUNT);
}
