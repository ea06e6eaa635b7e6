/* Saving and loading reducers: the same bits afterwards under every algorithm, no mass lost when
 * the number of ranks changes, and files that are not what they should be change nothing. */
#include "cases.h"

enum { DIM = 2003, STEPS = 10 };

static rill_comm *comm;
static char path[200];

static uint64_t hash_of(const void *bytes, size_t n) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void make_gradient(rill_type type, int rank, int step, void *gradient) {
    rng g = rng_make(check.seed + (uint64_t)step, (uint64_t)rank);
    for (uint64_t i = 0; i < DIM; i++)
        value_store(type, gradient, i, rng_unit(&g) - 0.5 + (i % 37 == 0));
}

/* Hash of all updates and of the residual after steps from first on. */
static uint64_t run_steps(rill_reducer *r, int first, int steps) {
    rill_type type = rill_reducer_type(r);
    size_t bytes = DIM * rill_type_size(type);
    char *gradient = calloc(1, bytes), *update = calloc(1, bytes);
    uint64_t hash = 0;
    for (int t = first; t < first + steps; t++) {
        make_gradient(type, check.rank, t, gradient);
        CHECK_OK(rill_reducer_step(r, gradient, update));
        hash = hash * 31 + hash_of(update, bytes);
    }
    hash = hash * 31 + hash_of(rill_reducer_residual(r), bytes);
    free(gradient);
    free(update);
    return hash;
}

/* Every process has the folder's name from rank 0. */
static void make_path(void) {
    if (check.rank == 0) {
        const char *folder = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/rill-test-%ld.red", folder && *folder ? folder : "/tmp",
                 (long)getpid());
    }
    MPI_Bcast(path, sizeof path, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void remove_file(const char *name) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) remove(name);
    MPI_Barrier(MPI_COMM_WORLD);
}

static int exists(const char *name) {
    FILE *f = fopen(name, "rb");
    if (f) fclose(f);
    return f != NULL;
}

/* ---- the same bits ------------------------------------------------------------------------ */

static void continues(rill_type type, rill_reducer_options o, int micro) {
    check_case("continues: %s, %s, value_bits %d, select %s, momentum %g, micro-batch %d",
               o.algorithm, rill_type_name(type), o.value_bits, o.select ? o.select : "-",
               o.momentum, micro);
    rill_reducer *a = NULL, *b = NULL;
    rill_status status = rill_reducer_create(comm, type, DIM, &o, &a);
    if (status == RILL_ERR_UNSUPPORTED) return;
    if (!CHECK_STATUS(status, RILL_OK)) return;
    run_steps(a, 0, STEPS);
    char *gradient = calloc(DIM, rill_type_size(type));
    make_gradient(type, check.rank, 1000, gradient);
    if (micro) CHECK_OK(rill_reducer_accumulate(a, gradient));
    CHECK_OK(rill_reducer_save(a, path));
    uint64_t expected = run_steps(a, STEPS, STEPS);
    CHECK_OK(rill_reducer_create(comm, type, DIM, &o, &b));
    run_steps(b, 77, 3); /* what it had before does not matter */
    CHECK_OK(rill_reducer_load(b, path));
    uint64_t got = run_steps(b, STEPS, STEPS);
    CHECK(got == expected);
    CHECK_OK(rill_reducer_load(b, path)); /* loading leaves the file as it is */
    CHECK(run_steps(b, STEPS, STEPS) == expected);
    free(gradient);
    CHECK_OK(rill_reducer_free(&a));
    CHECK_OK(rill_reducer_free(&b));
}

static rill_reducer_options options(const char *algorithm) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.density = 0.05;
    o.seed = 5;
    return o;
}

static void every_algorithm(void) {
    for (int table = 0; table < 2; table++)
        for (int i = 0;; i++) {
            const char *name = rill_algorithm_at(table ? RILL_REDUCER : RILL_ALLREDUCE, i, NULL);
            if (!name) break;
            rill_reducer_options o = options(name);
            continues(RILL_F32, o, 0);
            o.value_bits = 4;
            continues(RILL_F32, o, i % 2);
        }
    static const char *const selects[] = {"topk",   "threshold", "gaussian", "bucket",
                                          "random", "block",     "nonzero"};
    for (size_t i = 0; i < sizeof selects / sizeof *selects; i++) {
        rill_reducer_options o = options(i % 2 ? "split_allgather" : "recursive_double");
        o.select = selects[i];
        o.block = 16;
        if (i % 3 == 0) o.momentum = 0.9;
        if (i % 3 == 1) o.clip = 2.5;
        continues(test_types[i % TYPE_COUNT], o, i % 2);
    }
    static const double stages[] = {0.5, 0.2};
    rill_reducer_options o = options("oktopk");
    o.momentum = 0.5;
    o.warmup = stages;
    o.warmup_stages = 2;
    o.warmup_steps = 7; /* the stage changes at steps 7 and 14 */
    continues(RILL_F32, o, 1);
    o = options("recursive_double");
    o.select = "auto";
    continues(RILL_F32, o, 0);
}

/* ---- another number of ranks --------------------------------------------------------------- */

static double mass(const rill_reducer *r, uint64_t i) {
    double mine = r ? value_load(rill_reducer_type(r), rill_reducer_residual(r), i) : 0, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Saved by the first `from` ranks, loaded by the first `to`. */
static void moves(int from, int to, double momentum) {
    check_case("moves from %d to %d ranks, momentum %g", from, to, momentum);
    rill_comm *side[2] = {NULL, NULL};
    rill_reducer *r[2] = {NULL, NULL};
    int sizes[2] = {from, to};
    rill_reducer_options o = options("split_allgather");
    o.momentum = momentum;
    for (int i = 0; i < 2; i++) {
        MPI_Comm part;
        int in = check.rank < sizes[i];
        MPI_Comm_split(MPI_COMM_WORLD, in ? 0 : MPI_UNDEFINED, check.rank, &part);
        if (!in) continue;
        CHECK_OK(rill_comm_create(part, NULL, &side[i]));
        CHECK_OK(rill_reducer_create(side[i], RILL_F64, DIM, &o, &r[i]));
        MPI_Comm_free(&part);
    }
    if (r[0]) run_steps(r[0], 0, 5);
    if (r[0]) CHECK_OK(rill_reducer_save(r[0], path));
    MPI_Barrier(MPI_COMM_WORLD);
    if (r[1]) CHECK_OK(rill_reducer_load(r[1], path));
    for (uint64_t i = 0; i < DIM; i += 61)
        CHECK(fabs(mass(r[0], i) - mass(r[1], i)) < 1e-12);
    /* Momentum moved too: a step without a gradient feeds momentum times it, and nothing is lost.
     */
    double *zero = calloc(DIM, sizeof *zero), *update = calloc(2 * DIM, sizeof *update);
    for (int i = 0; i < 2; i++)
        if (r[i]) CHECK_OK(rill_reducer_step(r[i], zero, update + i * DIM));
    MPI_Bcast(update, 2 * DIM, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (uint64_t i = 0; i < DIM; i += 61) {
        double before = mass(r[0], i) + from * update[i];
        double after = mass(r[1], i) + to * update[DIM + i];
        CHECK(fabs(before - after) < 1e-11);
    }
    free(zero);
    free(update);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_reducer_free(&r[i]));
        CHECK_OK(rill_comm_free(&side[i]));
    }
}

/* ---- what must be refused ------------------------------------------------------------------ */

static char *slurp(long *size) {
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL);
    fseek(f, 0, SEEK_END);
    *size = ftell(f);
    char *bytes = malloc((size_t)*size + 1);
    rewind(f);
    CHECK(fread(bytes, 1, (size_t)*size, f) == (size_t)*size);
    fclose(f);
    return bytes;
}

static void spill(const char *bytes, long size) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) {
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite(bytes, 1, (size_t)size, f) == (size_t)size);
        if (f) fclose(f);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static uint64_t residual_hash(const rill_reducer *r) {
    return hash_of(rill_reducer_residual(r), DIM * rill_type_size(rill_reducer_type(r)));
}

/* The same failure on all ranks, that says where; the reducer as it was. */
static void refuses(rill_reducer *r, rill_status expected, const char *detail) {
    uint64_t before = residual_hash(r);
    rill_status status = rill_reducer_load(r, path);
    CHECK_STATUS(status, expected);
    CHECK_DETAIL(detail);
    check_same_on_all_ranks("the status", (uint64_t)(int64_t)status);
    check_same_on_all_ranks("the detail", hash_of(rill_last_error(), strlen(rill_last_error())));
    CHECK(residual_hash(r) == before);
}

static void damaged_files(void) {
    check_case("damaged files");
    rill_reducer_options o = options("recursive_double");
    o.select = "threshold";
    rill_reducer *r = NULL, *twin = NULL;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &r));
    run_steps(r, 0, 5);
    CHECK_OK(rill_reducer_save(r, path));
    long size;
    char *good = slurp(&size), *bad = malloc((size_t)size + 1);
    rng g = rng_make(3, 9); /* alike on all ranks */
    for (int i = 0; i < 40; i++) {
        memcpy(bad, good, (size_t)size);
        long at = i < 20 ? (long)rng_below(&g, 392 + 48) : (long)rng_below(&g, (uint64_t)size);
        bad[at] ^= (char)(1 << rng_below(&g, 8));
        spill(bad, size);
        refuses(r, RILL_ERR_IO, path);
    }
    static const long cuts[] = {0, 1, 100, 391, 392, 420};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        spill(good, cuts[i]);
        refuses(r, RILL_ERR_IO, path);
    }
    spill(good, size - 1);
    refuses(r, RILL_ERR_IO, "bytes instead of");
    bad = realloc(bad, (size_t)size + 1);
    memcpy(bad, good, (size_t)size);
    bad[size] = 0;
    spill(bad, size + 1);
    refuses(r, RILL_ERR_IO, "bytes instead of");
    /* It goes on as one that was never bothered. */
    spill(good, size);
    CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &twin));
    CHECK_OK(rill_reducer_load(twin, path));
    CHECK(run_steps(r, 5, 5) == run_steps(twin, 5, 5));
    free(good);
    free(bad);
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_reducer_free(&twin));
}

static void try_other(rill_type type, uint64_t dim, rill_reducer_options o, const char *detail) {
    check_case("other: %s", detail);
    rill_reducer *r = NULL;
    CHECK_OK(rill_reducer_create(comm, type, dim, &o, &r));
    CHECK_STATUS(rill_reducer_load(r, path), RILL_ERR_ARGUMENT);
    CHECK_DETAIL(detail);
    CHECK_DETAIL(path);
    CHECK_OK(rill_reducer_free(&r));
}

static void other_reducers(void) {
    check_case("other reducers");
    rill_reducer_options o = options("recursive_double"), p = o;
    rill_reducer *r = NULL;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &r));
    run_steps(r, 0, 2);
    CHECK_OK(rill_reducer_save(r, path));
    try_other(RILL_F32, DIM + 1, o, "dimension 2003, the reducer 2004");
    try_other(RILL_F64, DIM, o, "type 'f32'");
    p.density = 0.06;
    try_other(RILL_F32, DIM, p, "density 0.05");
    p = o;
    p.momentum = 0.5;
    try_other(RILL_F32, DIM, p, "momentum 0, the reducer has 0.5");
    p = o;
    p.algorithm = "ring";
    try_other(RILL_F32, DIM, p, "algorithm 'recursive_double'");
    p = o;
    p.select = "random";
    try_other(RILL_F32, DIM, p, "select ''");
    p = o;
    p.value_bits = 8;
    try_other(RILL_F32, DIM, p, "value_bits -1, the reducer has 8");
    CHECK_OK(rill_reducer_free(&r));
}

static void calls(void) {
    check_case("calls");
    rill_reducer_options o = options("recursive_double");
    rill_reducer *r = NULL;
    static float gradient[DIM], update[DIM];
    CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &r));
    CHECK_STATUS(rill_reducer_save(NULL, path), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_reducer_load(NULL, path), RILL_ERR_ARGUMENT);
    /* Wrong on the last rank alone, and everybody's error. */
    int last = check.rank == check.size - 1;
    CHECK_STATUS(rill_reducer_save(r, last ? NULL : path), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("path is NULL");
    CHECK_STATUS(rill_reducer_load(r, last ? NULL : path), RILL_ERR_ARGUMENT);
    if (check.size > 1) {
        CHECK_STATUS(rill_reducer_save(r, last ? "elsewhere" : path), RILL_ERR_MISMATCH);
        CHECK_DETAIL("path differs");
    }
    remove_file(path);
    CHECK_STATUS(rill_reducer_load(r, path), RILL_ERR_IO);
    CHECK_DETAIL(path);
    CHECK_STATUS(rill_reducer_save(r, "/no/such/folder/file"), RILL_ERR_IO);
    CHECK_DETAIL("/no/such/folder/file");
    CHECK_OK(rill_reducer_start(r, gradient, update));
    CHECK_STATUS(rill_reducer_save(r, path), RILL_ERR_STATE);
    CHECK_STATUS(rill_reducer_load(r, path), RILL_ERR_STATE);
    CHECK_OK(rill_reducer_wait(r));
    CHECK(!exists(path));
    MPI_Barrier(MPI_COMM_WORLD);

    /* While another's step is under way, which posts collectives of MPI's. */
    rill_reducer *other = NULL;
    rill_reducer_options s2 = options("s2");
    CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &s2, &other));
    make_gradient(RILL_F32, check.rank, 1, gradient);
    for (int t = 0; t < 5; t++) {
        CHECK_OK(rill_reducer_start(other, gradient, update));
        CHECK_OK(rill_reducer_save(r, path));
        CHECK_OK(rill_reducer_load(r, path));
        CHECK_OK(rill_reducer_wait(other));
    }
    char partial[220];
    snprintf(partial, sizeof partial, "%s.partial", path);
    CHECK(exists(path) && !exists(partial));
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_reducer_free(&other));
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
#ifdef SMPI_H
    return check_skip("SimGrid's files are simulated too");
#endif
    make_path();
    rill_config config = RILL_CONFIG_INIT;
    config.split_limit = 5000; /* so that parts are written and read in several pieces */
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &comm));
    every_algorithm();
    for (int p = 1; p <= check.size; p++) {
        moves(check.size, p, 0);
        moves(p, check.size, 0.9);
    }
    damaged_files();
    other_reducers();
    calls();
    CHECK_OK(rill_comm_free(&comm));
    remove_file(path);
    return check_finish(20);
}
