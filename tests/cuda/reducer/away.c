/* Steps that are coded and summed on the device, against reducers of the host, to the bit; and what
 * a message that is wrong, or a device that fails, makes of them. */
#include "reduce/reducer.h" /* before names that it uses itself */

#include "device.h"

#include "api/tune_device.h"
#include "plan/profile.h"

#include <unistd.h>

enum { STEPS = 2 };

typedef enum way { STEP, START, ON, STREAM, WAYS } way;

typedef struct plan {
    rill_reducer_options options;
    rill_type type;
    uint64_t dim;
    way how;
    bool wild;  /* a NaN in a step */
    bool mixed; /* one rank's reducer is the host's, in the world of the others' */
    bool turns; /* two steps are summed there, the others are too many entries for that */
} plan;

/* ---- a profile in which devices cost nothing, or all ---------------------------------------- */

static char path[] = "/tmp/rill-away-XXXXXX";

static void use_profile(bool devices_are_fast) {
    rill__profile p = {.ranks = 2, .hosts = 1, .crowding = 1};
    rill__device_constants d;
    rill__constants_default(&p.constants, 1, 2, 1);
    for (int i = 0; i < RILL__DEVICE_CONSTANTS; i++)
        *(double *)((char *)&d + rill__device_table[i].offset) = devices_are_fast ? 1e-13 : 1e-3;
    CHECK_OK(rill__profile_write(path, &p, &d));
    setenv("RILL_PROFILE", path, 1);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void step(rank *r, const plan *p, rill_reducer *reducer, const void *gradient, void *update,
                 rill_stream *stream) {
    switch (p->how) {
    case START:
        CHECK_OK(rill_reducer_start(reducer, gradient, update));
        CHECK_OK(rill_reducer_wait(reducer));
        break;
    case ON:
        CHECK_OK(rill_reducer_start_on(reducer, gradient, update, r->stream));
        CHECK_OK(rill_reducer_wait(reducer));
        break;
    case STREAM:
        CHECK_OK(rill_reducer_step_stream(reducer, gradient, stream));
        CHECK_OK(rill_stream_to_dense(stream));
        CHECK_OK(rill_stream_get_dense(stream, update));
        break;
    default: CHECK_OK(rill_reducer_step(reducer, gradient, update));
    }
}

static bool was_summed_there(const rill_reducer *r) { return r->coder.away.summed; }

static void compare(rank *r, const plan *p, rill_reducer *const both[2],
                    rill_stream *const streams[2], int number, const void *gradient) {
    size_t bytes = p->dim * value_size(p->type);
    void *update = calloc(p->dim + 1, value_size(p->type));
    void *there = device_new(gradient, bytes), *update_there = device_new(NULL, bytes);
    plan of_host = *p;
    bool host = p->mixed && r->rank == 1;
    if (p->how == ON) of_host.how = START;
    step(r, &of_host, both[0], gradient, update, streams[0]);
    if (host) {
        void *other = calloc(p->dim + 1, value_size(p->type));
        step(r, &of_host, both[1], gradient, other, streams[0]);
        CHECK(same_values(p->type, update, other, p->dim));
        CHECK(same_values(p->type, rill_reducer_residual(both[0]), rill_reducer_residual(both[1]),
                          p->dim));
        free(other);
    } else {
        step(r, p, both[1], there, update_there, streams[1]);
        CHECK(same_there(p->type, update, update_there, p->dim));
        CHECK(same_there(p->type, rill_reducer_residual(both[0]), rill_reducer_residual(both[1]),
                         p->dim));
        bool there_too = r->size > 1 && !p->mixed && !(p->turns && number > 1);
        CHECK(was_summed_there(both[1]) == there_too);
    }
    rill_stats stats[2] = {RILL_STATS_INIT, RILL_STATS_INIT};
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_reducer_stats(both[i], &stats[i]));
    CHECK(stats[0].nnz_out == stats[1].nnz_out && stats[0].voided == stats[1].voided);
    device_free(there);
    device_free(update_there);
    free(update);
}

static void run_plan(rank *r) {
    const plan *p = r->context;
    rill_reducer *both[2];
    rill_stream *streams[2]; /* one for all steps: what a void one leaves must not stay */
    const int void_step = p->how != STREAM;
    rng random = rng_make(17, 500 + (uint64_t)r->rank);
    rill_reducer_options o = p->options;
    CHECK_OK(rill_reducer_create(r->comm[0], p->type, p->dim, &o, &both[0]));
    if (!p->mixed || r->rank != 1) o.memory = RILL_CUDA;
    CHECK_OK(rill_reducer_create(r->comm[1], p->type, p->dim, &o, &both[1]));
    CHECK_OK(rill_stream_create(p->type, p->dim, &streams[0]));
    CHECK_OK(rill_stream_create_in(RILL_CUDA, -1, p->type, p->dim, &streams[1]));
    for (int i = 0; i < (p->turns ? 2 * STEPS : STEPS); i++) {
        void *gradient = gradient_of(p->type, p->dim, &random, false);
        if (p->wild && i == void_step && r->rank == 0)
            value_store(p->type, gradient, 5, (double)NAN);
        compare(r, p, both, streams, i, gradient);
        free(gradient);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_reducer_free(&both[i]));
        CHECK_OK(rill_stream_free(&streams[i]));
    }
}

static plan plan_of(rill_type type, const char *codec, int bits, way how) {
    plan p = {.options = RILL_REDUCER_OPTIONS_INIT,
              .type = type,
              .dim = getenv("RILL_TEST_LONG") ? 40009 : 5003,
              .how = how};
    p.options.algorithm = "allgather";
    p.options.select = "topk";
    p.options.codec = codec;
    p.options.value_bits = bits;
    p.options.density = 0.055;
    return p;
}

static void test_plan(const plan *p, int ranks) {
    check_case("away: %d ranks, %s, %d bits, %s[%llu], density %g, way %d%s%s", ranks,
               p->options.codec ? p->options.codec : "any codec", p->options.value_bits,
               rill_type_name(p->type), (unsigned long long)p->dim, p->options.density, (int)p->how,
               p->wild ? ", with NaN" : "", p->mixed ? ", mixed" : "");
    on_ranks(ranks, run_plan, p);
}

static void test_codes(void) {
    static const char *const codecs[] = {"raw", "bitpack", "elias_fano", "rice"};
    static const int bits[] = {0, 16, 8, 4, 2};
    static const rill_type types[] = {RILL_F32, RILL_F16, RILL_BF16};
    for (size_t c = 0; c < 4; c++)
        for (size_t b = 0; b < 5; b++) {
            plan p = plan_of(RILL_F32, codecs[c], bits[b], (way)((c + b) % WAYS));
            bool all = getenv("RILL_TEST_LONG") != NULL;
            if (all || (c + b) % 2 == 0) test_plan(&p, 1 + (int)((c + 2 * b) % 5));
            if (!all && (c + b) % 3) continue;
            p.type = types[1 + (c + b) % 2];
            p.wild = true;
            p.options.momentum = b % 2 ? 0.9 : 0;
            test_plan(&p, 2 + (int)((c + b) % 4));
        }
}

/* Few entries, which are not coded; unions by tiles and by merges; ranks that select nothing. */
static void test_shapes(void) {
    static const double densities[] = {0.0001, 0.002, 0.02, 0.085};
    for (int ranks = 2; ranks <= 5; ranks += getenv("RILL_TEST_LONG") ? 1 : 3)
        for (size_t d = 0; d < 4; d++) {
            plan p = plan_of(d % 2 ? RILL_F32 : RILL_BF16, NULL, 0, (way)(((int)d + ranks) % WAYS));
            p.options.density = densities[d];
            p.dim = d == 2 || (d == 1 && !getenv("RILL_TEST_LONG")) ? 4099 : 20011;
            p.options.feedback = d != 3;
            test_plan(&p, ranks);
        }
    plan p = plan_of(RILL_F32, "rice", 4, ON);
    p.mixed = true;
    test_plan(&p, 3);
    /* The third step finds its selection still on the device. */
    static const double stages[] = {0.02, 0.3};
    for (way how = STEP; how <= ON; how++) {
        p = plan_of(RILL_F32, "elias_fano", 0, how);
        p.turns = true;
        p.options.density = 0.01;
        p.options.warmup = stages;
        p.options.warmup_stages = 2;
        p.options.warmup_steps = 2;
        test_plan(&p, 2);
    }
}

/* ---- the choice ----------------------------------------------------------------------------- */

static void run_choice(rank *r) {
    const bool *there = r->context;
    enum { DIM = 20000 };
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(4, (uint64_t)r->rank);
    float *gradient = gradient_of(RILL_F32, DIM, &random, false);
    void *x = device_new(gradient, DIM * sizeof *gradient);
    o.memory = RILL_CUDA;
    o.algorithm = "allgather";
    o.select = "topk";
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, DIM, &o, &reducer));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rill_reducer_start_on(reducer, x, x, r->stream));
        CHECK_OK(rill_reducer_wait(reducer));
        CHECK(was_summed_there(reducer) == *there);
    }
    CHECK_OK(rill_reducer_free(&reducer));
    device_free(x);
    free(gradient);
}

static void test_choice(void) {
    for (int fast = 0; fast < 2; fast++) {
        bool there = fast != 0;
        use_profile(there);
        check_case("away: chosen by what a device takes (%s)", there ? "little" : "much");
        on_ranks(2, run_choice, &there);
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

typedef struct taken {
    const char *codec;
    int bits;
    double percent; /* of the gradient, beyond the residual */
} taken;

/* Ranks share the emulated device. */
static void run_memory(rank *r) {
    enum { DIM = 1 << 18, STEPS_OF_IT = 3, SLACK = 300 << 10 };
    const taken *z = r->context;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(6, (uint64_t)r->rank);
    size_t used = 0, now = 0;
    void *gradient = gradient_of(RILL_F32, DIM, &random, false);
    void *x = device_new(gradient, DIM * sizeof(float));
    void *update = device_new(NULL, DIM * sizeof(float));
    barrier(r);
    CHECK(cuda->memory_used(&used) == 0);
    barrier(r);
    o.memory = RILL_CUDA;
    o.algorithm = "allgather";
    o.select = "topk";
    o.codec = z->codec;
    o.value_bits = z->bits;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, DIM, &o, &reducer));
    for (int i = 0; i < STEPS_OF_IT; i++) {
        CHECK_OK(rill_reducer_start_on(reducer, x, update, r->stream));
        CHECK_OK(rill_reducer_wait(reducer));
    }
    CHECK(was_summed_there(reducer));
    barrier(r);
    CHECK(cuda->memory_used(&now) == 0);
    barrier(r);
    double bytes = DIM * sizeof(float), more = (double)(now - used) / r->size - bytes;
    CHECK(more <= bytes * z->percent / 100 + SLACK);
    if (getenv("RILL_TEST_MEASURE") && r->rank == 0)
        printf("%d ranks, %s, %d bits: residual + %.1f %% of the gradient\n", r->size, z->codec,
               z->bits, 100 * more / bytes);
    CHECK_OK(rill_reducer_free(&reducer));
    device_free(x);
    device_free(update);
    free(gradient);
}

static void test_memory_of(int ranks, taken z) {
    check_case("away: device memory of %d ranks, %s, %d bits", ranks, z.codec, z.bits);
    on_ranks(ranks, run_memory, &z);
}

/* ---- rill tune ------------------------------------------------------------------------------ */

static void run_tune(rank *r) {
    rill__device_constants d;
    bool there = false;
    CHECK_OK(rill__tune_device(r->comm[0], &d, &there));
    CHECK(there);
    for (int i = 0; i < RILL__DEVICE_CONSTANTS && there; i++) {
        double value = *(double *)((char *)&d + rill__device_table[i].offset);
        CHECK(value > 0 && value < 100);
    }
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Allocation `at` fails, and perhaps all after it, on whatever rank: all ranks get the error, and
 * what was fed is in the residuals. */
static void run_without_memory(rank *r) {
    enum { DIM = 5011 };
    const uint64_t *context = r->context;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(3, (uint64_t)r->rank);
    float *gradient = gradient_of(RILL_F32, DIM, &random, false);
    void *x = device_new(gradient, DIM * sizeof *gradient);
    void *update = device_new(NULL, DIM * sizeof *gradient);
    o.memory = RILL_CUDA;
    o.algorithm = "allgather";
    o.select = "topk";
    o.k = 300;
    o.value_bits = 4;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, DIM, &o, &reducer));
    barrier(r);
    if (r->rank == 0) emulate_control("fail", context[0], context[1]);
    barrier(r);
    CHECK_OK(rill_reducer_start_on(reducer, x, update, r->stream));
    rill_status status = rill_reducer_wait(reducer);
    barrier(r);
    if (r->rank == 0) emulate_control("fail", 0, 0);
    barrier(r);
    if (status != RILL_OK) {
        CHECK(status == RILL_ERR_MEMORY);
        CHECK(rill_stream_nnz(reducer->result) == 0); /* it has no arrays for what lies there */
        CHECK(same_there(RILL_F32, gradient, rill_reducer_residual(reducer), DIM));
        CHECK_OK(rill_reducer_start_on(reducer, x, update, r->stream));
        CHECK_OK(rill_reducer_wait(reducer));
        CHECK(was_summed_there(reducer));
    }
    ((uint64_t *)(uintptr_t)context)[2 + r->rank] = (uint64_t)(status != RILL_OK);
    CHECK_OK(rill_reducer_free(&reducer));
    device_free(x);
    device_free(update);
    free(gradient);
}

static void test_no_memory(void) {
    /* A buffer asks twice, at last for no more than it needs. The last are those of sums. */
    for (uint64_t i = 2; i < 54; i += i < 40 ? 4 : 1) {
        uint64_t at = i / 2, context[2 + MOST_RANKS] = {at, i % 2 ? at + 1 : UINT64_MAX};
        check_case("away: no device memory %s allocation %llu", i % 2 ? "for" : "from",
                   (unsigned long long)at);
        on_ranks(2, run_without_memory, context);
        CHECK(context[2] == context[3]);
    }
}

/* The device of rank 1 is lost, before a step or when its message has left: both ranks get the
 * error of the step that finds out. */
static void run_broken(rank *r) {
    enum { DIM = 5011, WHILE = 20000 }; /* microseconds */
    const bool later = *(const bool *)r->context;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(8, (uint64_t)r->rank);
    CHECK(cuda->device_set(r->rank) == 0);
    float *gradient = gradient_of(RILL_F32, DIM, &random, false);
    void *x = device_new(gradient, DIM * sizeof *gradient);
    void *update = device_new(NULL, DIM * sizeof *gradient);
    o.memory = RILL_CUDA;
    o.device = r->rank;
    o.algorithm = "allgather";
    o.select = "topk";
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, DIM, &o, &reducer));
    CHECK_OK(rill_reducer_start_on(reducer, x, update, NULL));
    CHECK_OK(rill_reducer_wait(reducer));
    CHECK(was_summed_there(reducer));
    barrier(r);
    if (r->rank == 1 && !later) emulate_control("break", 700, 1);
    if (!later) barrier(r);
    else if (r->rank == 0) usleep(3 * WHILE);
    rill_status started = rill_reducer_start_on(reducer, x, update, NULL);
    if (r->rank == 1 && later) {
        usleep(WHILE);
        emulate_control("break", 700, 1);
    }
    rill_status waited = rill_reducer_wait(reducer);
    CHECK((started != RILL_OK && r->rank == 1) || waited == RILL_ERR_IO);
    barrier(r);
    if (r->rank == 1) emulate_control("break", 0, 1);
    barrier(r);
    rill_reducer_free(&reducer);
    device_free(x);
    device_free(update);
    CHECK(cuda->device_set(0) == 0);
    free(gradient);
}

/* ---- messages that are wrong ---------------------------------------------------------------- */

/* What a sum of two lists says, of which one was bent. */
static rill_status sum_of(const rill__space *s, rill__coded_pairs *list, uint64_t dim, void *idx,
                          void *val) {
    rill__sum_task task = {.type = RILL_F32, .dim = dim, .n = 2, .list = list};
    rill_status status = s->codes->sum_begin(s, &task);
    if (status == RILL_OK) status = s->codes->sum_end(s, &task, idx, val);
    CHECK_OK(s->wait(s));
    return status;
}

static void bend(const rill__space *s, const rill__index_codec *codec, rng *random) {
    enum { DIM = 5000, N = 700, ROUNDS = 60 };
    uint32_t idx[N];
    float val[N];
    char code[8 * N + 4096] = {0}, bent[sizeof code];
    uint64_t chunk[4], at = 0;
    void *sum_idx = device_new(NULL, 8 * N), *sum_val = device_new(NULL, 8 * N);
    for (int i = 0; i < N; i++) {
        at += 1 + rng_below(random, 6);
        idx[i] = (uint32_t)at;
        val[i] = (float)i;
    }
    size_t used = codec->encode(4, idx, N, 0, DIM, code), size = rill__align8(used);
    memset(code + used, 0, size - used);
    memcpy(code + size, val, sizeof val);
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(bent, code, sizeof code);
        for (int i = 0; i < round % 5; i++)
            bent[rng_below(random, size)] ^= (char)(1 << rng_below(random, 8));
        if (round % 7 == 6) memset(bent + rng_below(random, size), (int)rng_below(random, 256), 9);
        memcpy(bent + size, val, sizeof val);
        rill__coded_pairs list[2] = {{.codes = {.index = codec->code},
                                      .n = N,
                                      .range = DIM,
                                      .bytes = code,
                                      .index_bytes = size,
                                      .value_bytes = sizeof val,
                                      .chunk = chunk,
                                      .n_chunk = codec->find_chunks ? 2 : 0}};
        list[1] = list[0];
        list[1].bytes = bent;
        if (codec->find_chunks &&
            codec->find_chunks(bent, size, N, DIM, chunk) != RILL_OK) /* found without a device */
            continue;
        rill_status status = sum_of(s, list, DIM, sum_idx, sum_val);
        CHECK(status == RILL_OK || status == RILL_ERR_MESSAGE);
        if (round % 5 == 0 && round % 7 != 6) CHECK_OK(status);
    }
    device_free(sum_idx);
    device_free(sum_val);
}

static void test_bent(void) {
    const rill__index_codec *const codecs[] = {&rill__codec_raw, &rill__codec_bitpack,
                                               &rill__codec_elias_fano, &rill__codec_rice};
    const rill__space *s;
    rng random = rng_make(5, 5);
    if (!CHECK(rill__space_open("test", RILL_CUDA, -1, &s) == RILL_OK)) return;
    for (int i = 0; i < 4; i++) {
        check_case("away: malformed messages, %s", codecs[i]->name);
        bend(s, codecs[i], &random);
    }
    rill__space_close(s);
}

void test_away(void) {
    int file = mkstemp(path);
    if (!CHECK(file >= 0)) return;
    close(file);
    use_profile(true);
    test_bent();
    test_codes();
    test_shapes();
    test_joins();
    if (emulate_control) {
        uint64_t live = emulate_control("live", 0, 0);
        test_no_memory();
        for (int later = 0; later < 2; later++) {
            check_case("away: a device that is lost %s", later ? "while it waits" : "before");
            on_ranks(2, run_broken, &(bool){later != 0});
        }
        CHECK(emulate_control("live", 0, 0) == live);
    }
    if (emulate_control) {
        test_memory_of(2, (taken){"rice", 0, 25});
        test_memory_of(4, (taken){"rice", 4, 25});
    }
    test_choice();
    if (!emulate_control || getenv("RILL_TEST_LONG")) {
        check_case("away: what a device takes");
        on_ranks(2, run_tune, NULL);
    }
    setenv("RILL_PROFILE", "none", 1);
    remove(path);
}
