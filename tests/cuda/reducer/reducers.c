/* Reducers in device memory against reducers of the host, to the bit. */
#include "device.h"

/* TURNED: tensors that do not lie in their order. */
typedef enum way { STEP, START, STREAM, TENSORS, TURNED, START_TURNED, WAYS } way;

typedef struct plan {
    rill_reducer_options options;
    rill_type type;
    uint64_t dim;
    way how;
    bool wild; /* a NaN in a step */
} plan;

typedef struct both {
    rill_reducer *reducer[2];
    const plan *plan;
    size_t bytes;
} both;

static uint64_t cut_of(const plan *p) { return p->dim / 3; } /* a tensor starts at any address */

static void take_step(const both *b, int which, const void *gradient, void *update,
                      rill_stream *stream) {
    rill_reducer *r = b->reducer[which];
    const plan *p = b->plan;
    size_t size = value_size(p->type);
    uint64_t cut = cut_of(p), rest = p->dim - cut;
    rill_tensor tensors[3] = {{gradient, update, cut},
                              {NULL, NULL, 0},
                              {(const char *)gradient + cut * size, (char *)update + cut * size,
                               rest}};
    rill_tensor turns[2] = {{(const char *)gradient + rest * size, (char *)update + rest * size,
                             cut},
                            {gradient, update, rest}};
    switch (p->how) {
    case START:
        CHECK_OK(rill_reducer_start(r, gradient, update));
        CHECK_OK(rill_reducer_wait(r));
        break;
    case STREAM: CHECK_OK(rill_reducer_step_stream(r, gradient, stream)); break;
    case TENSORS: CHECK_OK(rill_reducer_step_tensors(r, 3, tensors)); break;
    case TURNED: CHECK_OK(rill_reducer_step_tensors(r, 2, turns)); break;
    case START_TURNED:
        CHECK_OK(rill_reducer_start_tensors(r, 2, turns));
        CHECK_OK(rill_reducer_wait(r));
        break;
    default: CHECK_OK(rill_reducer_step(r, gradient, update));
    }
}

static void compare_streams(const rill_stream *host, const rill_stream *there) {
    rill_stream *copy;
    rill_type type = rill_stream_type(host);
    CHECK_OK(rill_stream_validate(there, NULL));
    CHECK_OK(rill_stream_create(type, rill_stream_dim(there), &copy));
    CHECK_OK(rill_stream_copy(copy, there));
    uint64_t n = rill_stream_nnz(host);
    if (CHECK(rill_stream_nnz(copy) == n) && n) {
        CHECK(same_values(type, rill_stream_values(host), rill_stream_values(copy), n));
        const uint32_t *a = rill_stream_indices32(host), *b = rill_stream_indices32(copy);
        CHECK(!a == !b && (!a || memcmp(a, b, n * sizeof *a) == 0));
    }
    CHECK_OK(rill_stream_free(&copy));
}

/* Both take tensors alike; but the host's reducer, with one vector, says what they give. */
static void compare_step(const both *b, const void *given) {
    const plan *p = b->plan;
    bool turns = p->how >= TURNED;
    void *gradient = turned(p->type, given, p->dim, turns ? cut_of(p) : 0);
    void *update = calloc(p->dim + 1, value_size(p->type));
    void *there = device_new(gradient, b->bytes), *update_there = device_new(NULL, b->bytes);
    rill_stream *stream, *stream_there;
    CHECK_OK(rill_stream_create(p->type, p->dim, &stream));
    CHECK_OK(rill_stream_create_in(RILL_CUDA, -1, p->type, p->dim, &stream_there));
    plan whole = *p; /* calls that do not block may be planned in another way */
    whole.how = p->how == START_TURNED ? START : STEP;
    const both alone = {.reducer = {b->reducer[0], NULL}, .plan = &whole, .bytes = b->bytes};
    take_step(turns ? &alone : b, 0, turns ? given : gradient, update, stream);
    take_step(b, 1, there, update_there, stream_there);
    void *expected = turned(p->type, update, p->dim, turns ? cut_of(p) : 0);
    rill_stats stats[2] = {RILL_STATS_INIT, RILL_STATS_INIT};
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_reducer_stats(b->reducer[i], &stats[i]));
    /* The planner counts what copies to a device take: it may choose another algorithm there. */
    bool alike = strcmp(stats[0].algorithm, stats[1].algorithm) == 0;
    CHECK(alike || strcmp(p->options.algorithm, "auto") == 0);
    if (!alike) {
    } else if (p->how == STREAM) {
        compare_streams(stream, stream_there);
    } else {
        CHECK(same_there(p->type, expected, update_there, p->dim));
    }
    CHECK(!alike || same_there(p->type, rill_reducer_residual(b->reducer[0]),
                               rill_reducer_residual(b->reducer[1]), p->dim));
    CHECK(!alike || stats[0].selected_k == stats[1].selected_k);
    CHECK(stats[0].voided == stats[1].voided);
    CHECK_OK(rill_stream_free(&stream));
    CHECK_OK(rill_stream_free(&stream_there));
    device_free(there);
    device_free(update_there);
    free(update);
    free(expected);
    free(gradient);
}

static void open_both(rank *r, const plan *p, both *b) {
    rill_reducer_options o = p->options;
    b->plan = p;
    b->bytes = p->dim * value_size(p->type);
    CHECK_OK(rill_reducer_create(r->comm[0], p->type, p->dim, &o, &b->reducer[0]));
    o.memory = RILL_CUDA;
    CHECK_OK(rill_reducer_create(r->comm[1], p->type, p->dim, &o, &b->reducer[1]));
}
static void close_both(both *b) {
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_reducer_free(&b->reducer[i]));
}

static void between_steps(rank *r, both *b, rng *random, int step) {
    const plan *p = b->plan;
    size_t size = value_size(p->type);
    void *values = gradient_of(p->type, p->dim, random, false);
    void *there = device_new(values, b->bytes);
    if (step == 3) {
        CHECK_OK(rill_reducer_accumulate(b->reducer[0], values));
        CHECK_OK(rill_reducer_accumulate(b->reducer[1], there));
    }
    if (step == 4) {
        uint64_t from = p->dim / 5 + 1, n = p->dim / 3; /* any address */
        CHECK_OK(rill_reducer_give_back(b->reducer[0], from, n, (char *)values + from * size));
        CHECK_OK(rill_reducer_give_back(b->reducer[1], from, n, (char *)there + from * size));
        for (int i = 0; i < 2; i++)
            CHECK_OK(rill_reducer_scale(b->reducer[i], 0.5));
    }
    device_free(there);
    free(values);
    (void)r;
}

static void run_plan(rank *r) {
    const plan *p = r->context;
    both b;
    rng random = rng_make(7, 1000 + (uint64_t)r->rank);
    open_both(r, p, &b);
    for (int step = 0; step < 6; step++) {
        between_steps(r, &b, &random, step);
        bool sparse = p->options.select && strcmp(p->options.select, "nonzero") == 0;
        void *gradient = gradient_of(p->type, p->dim, &random, sparse);
        if (p->wild && step == 2 && r->rank == 0) value_store(p->type, gradient, 5, (double)NAN);
        compare_step(&b, gradient);
        free(gradient);
    }
    close_both(&b);
}

static void test_plan(const plan *p, int ranks) {
    const rill_reducer_options *o = &p->options;
    check_case("%d ranks, %s, select %s, %d bits, %s[%llu], momentum %g, clip %g, %s, way %d%s",
               ranks, o->algorithm, o->select ? o->select : "default", o->value_bits,
               rill_type_name(p->type), (unsigned long long)p->dim, o->momentum, o->clip,
               o->nonfinite ? o->nonfinite : "void", (int)p->how, p->wild ? ", with NaN" : "");
    const char *only = getenv("RILL_TEST_ONLY"); /* a part of the algorithm's name */
    if (!only || strstr(o->algorithm, only)) on_ranks(ranks, run_plan, p);
}

static const struct {
    const char *algorithm, *select;
    int bits;
} cases[] = {
    {"gtopk", "topk", 0},
    {"gtopk", "topk", 4},
    {"oktopk", "threshold", 0},
    {"oktopk", "topk", 4},
    {"spardl", "topk", 0},
    {"spardl", "topk", 4},
    {"split_allgather", "topk", 8},
    {"split_allgather", "threshold", 4},
    {"split_allgather", "bucket", 0},
    {"recursive_double", "random", 0},
    {"dsar", "topk", 4},
    {"ring", "bucket", 16},
    {"allgather", "threshold", 2},
    {"block", "block", 0},
    {"s2", "block", 0},
    {"split_allgather", "nonzero", 0},
    {"dense", NULL, 0},
    {"auto", NULL, 0},
};

void test_reducers(void) {
    static const rill_type types[] = {RILL_F32, RILL_F16, RILL_BF16};
    static const char *const nonfinite[] = {"void", "zero", "pass"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int variant = 0; variant < 7; variant++) {
            bool blocks = !strcmp(cases[i].algorithm, "s2") || !strcmp(cases[i].algorithm, "block");
            plan p = {.options = RILL_REDUCER_OPTIONS_INIT,
                      .type = variant == 1 ? types[1 + i % 2] : types[0],
                      .dim = variant == 2 ? 1237 : 6000,
                      .how = (way)((i + (size_t)variant) % WAYS),
                      .wild = variant >= 2};
            rill_reducer_options *o = &p.options;
            o->algorithm = cases[i].algorithm;
            o->select = cases[i].select;
            o->value_bits = cases[i].bits;
            if (p.type != RILL_F32 && o->value_bits && o->value_bits < 16) continue;
            if (p.type != RILL_F32 && blocks && !strcmp(o->algorithm, "s2")) continue;
            o->density = 0.02;
            o->threshold_interval = 3;
            o->block = blocks ? 64 : 0;
            o->momentum = variant % 2 ? 0.9 : 0;
            o->clip = variant % 2 ? 1 : 0;
            o->warmup_steps = variant == 4 ? 1 : 0;
            o->feedback = variant != 4;
            o->nonfinite = nonfinite[(i + (size_t)variant) % 3];
            test_plan(&p, 1 + (int)((i + (size_t)variant) % 4));
        }
    /* What is sent as it is may be f64. */
    plan wide = {.options = RILL_REDUCER_OPTIONS_INIT, .type = RILL_F64, .dim = 3001, .wild = true};
    wide.options.algorithm = "dense";
    test_plan(&wide, 3);
    wide.options.algorithm = "split_allgather";
    wide.options.select = "nonzero";
    wide.options.momentum = 0.5;
    test_plan(&wide, 2);
}
