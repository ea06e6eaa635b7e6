/* Golden bits: every named algorithm and reducer gives, on fixed inputs, the bits that it gave when
 * tests/mpi/golden.txt was recorded. Cases come from the public tables, so a new row is covered:
 * what the file does not know is reported as new.
 *   --file FILE    (tests/mpi/golden.txt)
 *   --strict       a new case is a failure
 *   --every N      (1) one case of N
 *   --write FILE   records this number of ranks, and leaves the lines of the others
 * Where bits change on purpose, the CHANGELOG says why, and the file is recorded again:
 *   f=tests/mpi/golden.txt
 *   for p in 1 2 3 4 5 8; do scripts/mpirun-test $p build/tests/test_golden --write $f; done
 *
 * No case depends on the machine: algorithms are named, costs are the built-in ones, hosts are
 * pretended, numbers come from integers, and sums that MPI makes (in an order of its own) are of
 * numbers that sum without rounding. All instruction sets (RILL_ISA) give the same bits. The
 * selections "threshold" and "gaussian" use pow, log and erfc: a last bit of theirs that differs
 * between C libraries moves a threshold, which changes the result only if a value lies there. */
#include "golden.h"

static const char *const input_names[] = {"uniform", "skewed", "dense", "one_empty", "blocks"};
enum { UNIFORM, SKEWED, DENSE, ONE_EMPTY, BLOCKS, INPUTS };
static const uint64_t input_dims[INPUTS] = {6000, 20000, 1000, 3001, 4099};
enum { BLOCK = 16, STEPS = 6, DIM = 2000 };
static const int codings[] = {0, 16, 8, 4, 2};
enum { CODINGS = sizeof codings / sizeof *codings, OPS = OP_USER };

typedef struct setup {
    rill_collective collective;
    const char *algorithm, *codec, *partition, *scope;
    rill_type type;
    test_op op;
    int bits;
} setup;

/* MPI sums in an order of its own. */
static int mpi_sums(const char *algorithm) {
    return !strcmp(algorithm, "dense") || !strcmp(algorithm, "s2");
}
static int has_op(rill_collective c) { return c != RILL_ALLGATHER && c != RILL_BCAST; }

/* ---- collectives --------------------------------------------------------------------------- */

/* Whether a rank has an entry there. */
static int present(const setup *s, int input, uint64_t i) {
    uint64_t rank = (uint64_t)check.rank, size = (uint64_t)check.size;
    uint64_t places = golden_bits(100 + (uint64_t)input, rank, input == BLOCKS ? i / BLOCK : i);
    if (s->collective == RILL_ALLGATHER && golden_bits(7, 0, i / BLOCK) % size != rank) return 0;
    switch (input) {
    case UNIFORM: return places % 20 == 0;
    case SKEWED: return i / 1500 == 3 ? places % 4 != 0 : places % 50 == 0;
    case DENSE: return places % 10 != 0;
    case ONE_EMPTY: return rank != size / 2 && places % 12 == 0;
    default: return places % 8 == 0;
    }
}

static void fill(const setup *s, int input, rill_stream *stream) {
    uint64_t dim = input_dims[input], n = 0, blocks = 0;
    size_t size = value_size(s->type);
    unsigned char *values = calloc(dim + BLOCK, size), *pairs = calloc(dim + BLOCK, size);
    uint32_t *idx = malloc((dim + 1) * sizeof *idx);
    uint64_t *numbers = malloc((dim + 1) * sizeof *numbers);
    for (uint64_t i = 0; i < dim; i++) {
        if (!present(s, input, i)) continue;
        uint64_t bits = golden_bits(200 + (uint64_t)input, (uint64_t)check.rank, i);
        double x = golden_value(s->type, s->op, mpi_sums(s->algorithm), bits, check.rank);
        value_store(s->type, values, i, x);
        value_store(s->type, pairs, n, x);
        if (i % BLOCK == 0) numbers[blocks++] = i / BLOCK;
        idx[n++] = (uint32_t)i;
    }
    if (input == BLOCKS) CHECK_OK(rill_stream_set_blocks(stream, BLOCK, blocks, numbers, pairs));
    else if (input == DENSE) CHECK_OK(rill_stream_set_dense(stream, values));
    else CHECK_OK(rill_stream_set_pairs(stream, n, idx, pairs));
    free(values);
    free(pairs);
    free(idx);
    free(numbers);
}

static rill_status call(const setup *s, rill_comm *comm, rill_stream *in, rill_stream *out,
                        uint64_t range[2]) {
    static const rill_op *const ops[OPS] = {RILL_SUM, RILL_MIN, RILL_MAX, RILL_PROD};
    int root = check.size - 1;
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = s->algorithm;
    o.codec = s->codec;
    o.value_bits = s->bits;
    o.partition = s->partition;
    o.value_scope = s->scope;
    o.allow_bits = 0;
    switch (s->collective) {
    case RILL_ALLREDUCE: return rill_allreduce(comm, in, out, ops[s->op], &o);
    case RILL_REDUCE: return rill_reduce(comm, in, out, ops[s->op], root, &o);
    case RILL_REDUCE_SCATTER:
        return rill_reduce_scatter(comm, in, out, ops[s->op], &range[0], &range[1], &o);
    case RILL_ALLGATHER: return rill_allgather(comm, in, out, &o);
    case RILL_BCAST: CHECK_OK(rill_stream_copy(out, in)); return rill_bcast(comm, out, root, &o);
    }
    return RILL_ERR_ARGUMENT;
}

/* What is unsupported is recorded too, as its status. */
static uint64_t run_input(const setup *s, rill_comm *comm, int input) {
    rill_stream *in = NULL, *out = NULL;
    uint64_t range[2] = {0, 0}, h = 1;
    CHECK_OK(rill_stream_create(s->type, input_dims[input], &in));
    CHECK_OK(rill_stream_create(s->type, input_dims[input], &out));
    fill(s, input, in);
    CHECK_OK(rill_comm_forget(comm));
    rill_status status = call(s, comm, in, out, range);
    if (status != RILL_ERR_UNSUPPORTED) CHECK_OK(status);
    if (status != RILL_OK) h = golden_hash(h, &status, sizeof status);
    else if (s->collective != RILL_REDUCE || check.rank == check.size - 1)
        h = golden_hash(golden_stream(h, out), range, sizeof range);
    rill_stream_free(&in);
    rill_stream_free(&out);
    return h;
}

static void run(const setup *s, rill_comm *comm, const char *hosts) {
    char name[GOLDEN_LINE];
    uint64_t hashes[INPUTS];
    if (golden_skips()) return;
    snprintf(name, sizeof name, "%s %s %s %s %s %d%s %s hosts=%s",
             rill_collective_name(s->collective), s->algorithm, rill_type_name(s->type),
             has_op(s->collective) ? test_op_names[s->op] : "-", s->codec, s->bits,
             strcmp(s->scope, "all") == 0 ? "all" : "", s->partition, hosts);
    check_case("%s", name);
    for (int i = 0; i < INPUTS; i++)
        hashes[i] = run_input(s, comm, i);
    golden_case(name, INPUTS, hashes);
}

/* Lines with values coded have one of these, and stay what they are when there are more. */
enum { FIRST_CODECS = 4 };

/* All types and operations; then f32 sums with all codings, of indices and of values. */
static void run_algorithm(setup s, rill_comm *comm, const char *hosts) {
    const char *codec;
    for (int t = 0; t < TYPE_COUNT; t++)
        for (int op = 0; op < OPS; op++) {
            if (!has_op(s.collective) && op) continue;
            if (t && op && (t + op) % 3) continue; /* f32: all; the others: sum and one more */
            s.type = test_types[t];
            s.op = (test_op)op;
            run(&s, comm, hosts);
        }
    s.type = RILL_F32;
    s.op = OP_SUM;
    s.partition = "balanced";
    run(&s, comm, hosts);
    s.partition = "uniform";
    for (int i = 0; (codec = rill_codec_at(i, NULL)); i++) {
        s.codec = codec;
        run(&s, comm, hosts);
    }
    for (int b = 1; b < CODINGS; b++) {
        s.bits = codings[b];
        s.codec = b % 2 ? "auto" : rill_codec_at(b % FIRST_CODECS, NULL);
        run(&s, comm, hosts);
        if (strcmp(s.algorithm, "dsar") != 0) continue; /* the only one with a scope */
        s.scope = "all";
        run(&s, comm, hosts);
        s.scope = "auto";
    }
}

/* ---- reducers ------------------------------------------------------------------------------ */

/* Large entries that differ between ranks and move from step to step; one rank has none at times.
 * All grow and shrink, so that thresholds are steered and miss. */
static void fill_gradient(rill_type type, int exact, int step, void *gradient) {
    static const double scales[STEPS] = {1, 1.25, 0.875, 4, 2, 0.25};
    uint64_t rank = (uint64_t)check.rank, seed = 300 + (uint64_t)step;
    for (uint64_t i = 0; i < DIM; i++) {
        uint64_t bits = golden_bits(seed, rank, i);
        rng r = {bits};
        int large = (i * 31 + rank + (uint64_t)step / 2) % 53 == 0;
        double x = (double)(1 + bits % 2) * (bits & 4 ? 1 : -1);
        if (exact) x *= large ? 2 : 1; /* up to 4: bf16 holds the sum of all steps and 8 ranks */
        else
            x = golden_value(type, OP_SUM, 0, rng_next(&r), check.rank) * (large ? 8 : 0.5) *
                scales[step];
        if (i % 5 == 0 || (rank == 1 && step % 3 == 0)) x = 0;
        value_store(type, gradient, i, x);
    }
}

static void run_reducer(rill_comm *comm, rill_type type, const rill_reducer_options *o,
                        const char *name) {
    static unsigned char gradient[DIM * 8], update[DIM * 8];
    size_t bytes = DIM * value_size(type);
    uint64_t hashes[STEPS] = {0};
    rill_reducer *r = NULL;
    check_case("%s", name);
    CHECK_OK(rill_comm_forget(comm));
    rill_status status = rill_reducer_create(comm, type, DIM, o, &r);
    if (status != RILL_ERR_UNSUPPORTED) CHECK_OK(status);
    for (int step = 0; step < STEPS && status == RILL_OK; step++) {
        fill_gradient(type, mpi_sums(o->algorithm), step, gradient);
        status = rill_reducer_step(r, gradient, update);
        if (!CHECK_OK(status)) break;
        uint64_t h = golden_hash(2, update, bytes);
        hashes[step] = golden_hash(h, rill_reducer_residual(r), bytes);
    }
    CHECK_OK(rill_reducer_free(&r));
    golden_case(name, STEPS, hashes);
}

/* Ways to feed a reducer. */
typedef struct variant {
    const char *name, *partition;
    double momentum, clip;
    int masking, feedback, warmup, average;
} variant;
static const variant variants[] = {
    {"plain", "uniform", 0, 0, 1, 1, 0, 1},     {"balanced", "balanced", 0, 0, 1, 1, 0, 1},
    {"sum", "uniform", 0, 0, 1, 1, 0, 0},       {"momentum", "uniform", 0.5, 0, 0, 1, 0, 1},
    {"masking", "uniform", 0.5, 0, 1, 1, 0, 1}, {"clip", "uniform", 0, 3, 1, 1, 0, 1},
    {"warmup", "uniform", 0, 0, 1, 1, 1, 1},    {"dropped", "uniform", 0, 0, 1, 0, 0, 1},
};
enum { VARIANTS = sizeof variants / sizeof *variants, DROPPED = VARIANTS - 1 };

/* What s2 keeps is without rounding, and so the next sum, if it delivers one half of one row's
 * estimates, or all of it. Nothing is kept: any sketch. */
static void exact_sketch(rill_reducer_options *o, const variant *v) {
    int all = !strcmp(v->name, "balanced");
    o->block = !strcmp(v->name, "sum") ? BLOCK : 0;
    o->lambda = !o->feedback ? 0 : all ? 3 : 1;
    o->sketch_rows = !o->feedback || all ? 3 : 1;
}

static void run_variant(rill_comm *comm, const char *algorithm, const char *hosts, rill_type type,
                        const char *select, int bits, const variant *v) {
    static const double warmup[] = {0.2, 0.1};
    char name[GOLDEN_LINE];
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    /* Clipped gradients and coded values do not sum without rounding. */
    if ((mpi_sums(algorithm) && (v->clip > 0 || bits)) || golden_skips()) return;
    o.algorithm = algorithm;
    o.codec = "auto";
    o.value_bits = bits;
    o.partition = v->partition;
    o.value_scope = "auto";
    o.select = select;
    o.k = 40;
    o.average = v->average;
    o.feedback = v->feedback;
    o.momentum = v->momentum;
    o.masking = v->masking;
    o.clip = v->clip;
    o.warmup = v->warmup ? warmup : NULL;
    o.warmup_stages = v->warmup ? 2 : 0;
    o.warmup_steps = v->warmup ? 2 : 0;
    o.seed = 5;
    o.bucket = 100;
    o.block = BLOCK;
    if (!strcmp(algorithm, "s2")) exact_sketch(&o, v);
    o.threshold_interval = 5;
    o.repartition_interval = 3;
    int n = snprintf(name, sizeof name, "reducer %s %s %s %d %s hosts=%s", algorithm,
                     rill_type_name(type), select ? select : "-", bits, v->name, hosts);
    if (!strcmp(algorithm, "s2"))
        snprintf(name + n, sizeof name - (size_t)n, " lambda=%d rows=%d block=%d", (int)o.lambda,
                 o.sketch_rows, (int)o.block);
    /* Random numbers depend on how many reducers the communicator had before. */
    rill_comm *own = NULL;
    int random = !strcmp(algorithm, "s2") || (bits && !v->feedback);
    if (random) CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &own));
    run_reducer(random ? own : comm, type, &o, name);
    if (random) CHECK_OK(rill_comm_free(&own));
}

/* An exact algorithm sums what was selected, as others do: one selection and two variants of each
 * are enough, others for each. exact: number of it, or -1. */
static void run_reducers(rill_comm *comm, const char *algorithm, const char *hosts, int exact) {
    const char *select;
    int selects = 0;
    for (int t = 0; t < TYPE_COUNT; t++)
        run_variant(comm, algorithm, hosts, test_types[t], NULL, 0, &variants[0]);
    for (int b = 1; b < CODINGS; b++)
        if (exact < 0 || b % 2 == exact % 2)
            run_variant(comm, algorithm, hosts, RILL_F32, NULL, codings[b], &variants[0]);
    for (; (select = rill_selector_at(selects, NULL)); selects++)
        if (exact < 0 || selects % 3 == exact % 3)
            run_variant(comm, algorithm, hosts, RILL_F32, select, 0, &variants[0]);
    run_variant(comm, algorithm, hosts, RILL_F32, "nonzero", 0, &variants[0]);
    for (int v = 1; v < VARIANTS; v++)
        if (exact < 0 || v % 3 == exact % 3)
            run_variant(comm, algorithm, hosts, RILL_F32, NULL, 0, &variants[v]);
    run_variant(comm, algorithm, hosts, RILL_F32, NULL, 4,
                &variants[DROPPED]); /* random rounding */
}

/* ---- all ----------------------------------------------------------------------------------- */

static void columns(int n, const char *const *names) {
    golden.columns[0] = 0;
    for (int i = 0; i < n; i++) {
        char *end = golden.columns + strlen(golden.columns);
        snprintf(end, (size_t)(golden.columns + GOLDEN_LINE - end), "%s ", names[i]);
    }
}

/* only: the algorithm that hosts matter to; NULL: all. */
static void run_all(const char *hosts, const char *only) {
    static const char *const steps[STEPS] = {"step1", "step2", "step3", "step4", "step5", "step6"};
    const char *name;
    rill_comm *comm = NULL;
    setenv("RILL_HOSTS_OF", hosts, 1);
    if (!CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm))) return;
    columns(INPUTS, input_names);
    for (int c = 0; c < RILL_COLLECTIVES; c++)
        for (int i = 0; (name = rill_algorithm_at((rill_collective)c, i, NULL)); i++) {
            setup s = {(rill_collective)c, name, "auto", "uniform", "auto", RILL_F32, OP_SUM, 0};
            if (!only || !strcmp(only, name)) run_algorithm(s, comm, hosts);
        }
    columns(STEPS, steps);
    for (int i = 0; (name = rill_algorithm_at(RILL_ALLREDUCE, i, NULL)); i++)
        if (!only || !strcmp(only, name)) run_reducers(comm, name, hosts, i);
    for (int i = 0; !only && (name = rill_algorithm_at(RILL_REDUCER, i, NULL)); i++)
        run_reducers(comm, name, hosts, -1);
    CHECK_OK(rill_comm_free(&comm));
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    setenv("RILL_PROFILE", "none", 1);
    golden_begin(argc, argv);
    run_all("2", NULL);
    if (check.size > 2) run_all("cyclic:2", "hier");
    golden_end();
    return check_finish(100);
}
