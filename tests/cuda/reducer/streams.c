/* Steps behind the work of a device's stream: many started at once, without a wait of the host, and
 * in the order of the stream, against blocking steps of the host. */
#include "reduce/reducer.h" /* before names that it uses itself */

#include "device.h"

enum { STEPS = 6, MOST_REDUCERS = 3 };

typedef struct queue_plan {
    rill_reducer_options options;
    rill_type type;
    uint64_t dim;
    int reducers;
    bool tensors, turns, wild, one_stream; /* turns: the tensors do not lie in their order */
    bool starts;                           /* start_on, else step_on */
    bool mailed; /* the device is given all of such a step (reduce/reducer_mail.c) */
} queue_plan;

/* One reducer of each kind, and the buffers of all steps. */
typedef struct lane {
    rill_reducer *host, *there;
    void *stream;
    char *gradients[STEPS], *expected[STEPS]; /* on the host */
    void *page_locked[STEPS];
    char *input[STEPS], *update[STEPS], *copy[STEPS]; /* on the device */
} lane;

static uint64_t cut_of(const queue_plan *p) { return p->dim / 3; }
static uint64_t turn_of(const queue_plan *p) { return p->turns ? cut_of(p) : 0; }

/* What the host's reducer has written, against what lies there. */
static bool same_update(const queue_plan *p, const void *expected, const void *there) {
    void *as_it_lies = turned(p->type, expected, p->dim, turn_of(p));
    bool same = same_there(p->type, as_it_lies, there, p->dim);
    free(as_it_lies);
    return same;
}

static void make_lane(rank *r, const queue_plan *p, lane *l, int number, rng *random) {
    rill_reducer_options o = p->options;
    size_t bytes = p->dim * value_size(p->type);
    CHECK_OK(rill_reducer_create(r->comm[0], p->type, p->dim, &o, &l->host));
    o.memory = RILL_CUDA;
    CHECK_OK(rill_reducer_create(r->comm[1], p->type, p->dim, &o, &l->there));
    CHECK((rill__reducer_mails(l->there) != RILL__NO_MAIL) == p->mailed);
    if (p->one_stream) l->stream = r->stream;
    else CHECK(cuda->stream_create(&l->stream) == 0);
    for (int i = 0; i < STEPS; i++) {
        l->gradients[i] = gradient_of(p->type, p->dim, random, false);
        if (p->wild && i == 2 && r->rank == number % r->size)
            value_store(p->type, l->gradients[i], 7, (double)NAN);
        l->expected[i] = calloc(p->dim + 1, value_size(p->type));
        CHECK(cuda->allocate_host(bytes, &l->page_locked[i]) == 0);
        void *as_it_lies = turned(p->type, l->gradients[i], p->dim, turn_of(p));
        memcpy(l->page_locked[i], as_it_lies, bytes);
        free(as_it_lies);
        l->input[i] = device_new(NULL, bytes);
        l->update[i] = device_new(NULL, bytes);
        l->copy[i] = device_new(NULL, bytes);
    }
}

static void free_lane(const queue_plan *p, lane *l) {
    CHECK_OK(rill_reducer_free(&l->host));
    CHECK_OK(rill_reducer_free(&l->there));
    if (!p->one_stream) CHECK(cuda->stream_free(l->stream) == 0);
    for (int i = 0; i < STEPS; i++) {
        free(l->gradients[i]);
        free(l->expected[i]);
        CHECK(cuda->release_host(l->page_locked[i]) == 0);
        device_free(l->input[i]);
        device_free(l->update[i]);
        device_free(l->copy[i]);
    }
}

/* The gradient comes by the stream's own work before, and the update goes on by its work after. */
static void queue_step(const queue_plan *p, lane *l, int i) {
    size_t size = value_size(p->type), bytes = p->dim * size;
    uint64_t cut = cut_of(p), rest = p->dim - cut;
    CHECK(cuda->copy(l->input[i], l->page_locked[i], bytes, l->stream) == 0);
    size_t first = p->turns ? rest * size : 0, second = p->turns ? 0 : cut * size;
    rill_tensor tensors[2] = {{l->input[i] + first, l->update[i] + first, cut},
                              {l->input[i] + second, l->update[i] + second, rest}};
    if (p->starts && p->tensors)
        CHECK_OK(rill_reducer_start_tensors_on(l->there, 2, tensors, l->stream));
    else if (p->starts)
        CHECK_OK(rill_reducer_start_on(l->there, l->input[i], l->update[i], l->stream));
    else if (p->tensors) CHECK_OK(rill_reducer_step_tensors_on(l->there, 2, tensors, l->stream));
    else CHECK_OK(rill_reducer_step_on(l->there, l->input[i], l->update[i], l->stream));
    if (!p->starts) CHECK(cuda->copy(l->copy[i], l->update[i], bytes, l->stream) == 0);
}

static void run_queues(rank *r) {
    const queue_plan *p = r->context;
    lane lanes[MOST_REDUCERS];
    rng random = rng_make(21, (uint64_t)r->rank);
    for (int j = 0; j < p->reducers; j++)
        make_lane(r, p, &lanes[j], j, &random);
    barrier(r);
    for (int i = 0; i < STEPS; i++)
        for (int j = 0; j < p->reducers; j++)
            queue_step(p, &lanes[j], i);
    for (int i = 0; i < STEPS; i++)
        for (int j = 0; j < p->reducers; j++)
            CHECK_OK(rill_reducer_step(lanes[j].host, lanes[j].gradients[i], lanes[j].expected[i]));
    for (int j = 0; j < p->reducers; j++) {
        lane *l = &lanes[j];
        rill_stats stats = RILL_STATS_INIT;
        CHECK(rill_reducer_stats(l->there, &stats) == RILL_ERR_STATE); /* nobody was told */
        if (!p->starts) device_wait(l->stream);
        else CHECK_OK(rill_reducer_wait(l->there));
        for (int i = 0; i < STEPS; i++)
            CHECK(same_update(p, l->expected[i], p->starts ? l->update[i] : l->copy[i]));
        if (!p->starts) CHECK_OK(rill_reducer_wait(l->there));
        CHECK_OK(rill_reducer_stats(l->there, &stats));
        CHECK(same_there(p->type, rill_reducer_residual(l->host), rill_reducer_residual(l->there),
                         p->dim));
        /* A blocking step may follow. */
        device_put(l->input[0], l->gradients[0], p->dim * value_size(p->type));
        CHECK_OK(rill_reducer_step(l->host, l->gradients[0], l->expected[0]));
        CHECK_OK(rill_reducer_step(l->there, l->input[0], l->update[0]));
        CHECK(same_there(p->type, l->expected[0], l->update[0], p->dim));
        queue_step(p, l, 1);
        int done = 0;
        rill_status status = RILL_OK;
        while (!done && status == RILL_OK)
            status = rill_reducer_test(l->there, &done);
        CHECK_OK(status);
        CHECK_OK(rill_reducer_step(l->host, l->gradients[1], l->expected[1]));
        device_wait(l->stream);
        CHECK(same_update(p, l->expected[1], p->starts ? l->update[1] : l->copy[1]));
    }
    for (int j = 0; j < p->reducers; j++)
        free_lane(p, &lanes[j]);
}

static void test_queues(const queue_plan *p, int ranks) {
    check_case("%s: %d ranks, %d x %s, select %s, %d bits, %s[%llu]%s%s%s",
               p->starts ? "started" : "queued", ranks, p->reducers, p->options.algorithm,
               p->options.select ? p->options.select : "default", p->options.value_bits,
               rill_type_name(p->type), (unsigned long long)p->dim,
               p->turns     ? ", turned tensors"
               : p->tensors ? ", tensors"
                            : "",
               p->wild ? ", with NaN" : "", p->one_stream ? ", one stream" : "");
    on_ranks(ranks, run_queues, p);
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

static bool all_nan(const void *there, uint64_t n) {
    float *copy = malloc(n * sizeof *copy);
    device_get(copy, there, n * sizeof *copy);
    bool all = true;
    for (uint64_t i = 0; i < n; i++)
        all = all && isnan(copy[i]);
    free(copy);
    return all;
}

/* One rank gives no gradient to the second of three steps. */
typedef struct bad_plan {
    const char *algorithm;
    bool starts;
} bad_plan;

static void run_bad_step(rank *r) {
    enum { DIM = 3000 };
    const bad_plan *plan = r->context;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(5, (uint64_t)r->rank);
    void *gradient = gradient_of(RILL_F32, DIM, &random, false);
    void *there = device_new(gradient, DIM * 4);
    void *update[3];
    for (int i = 0; i < 3; i++)
        update[i] = device_new(gradient, DIM * 4);
    o.memory = RILL_CUDA;
    o.algorithm = plan->algorithm;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, DIM, &o, &reducer));
    bool bad = r->rank == r->size - 1;
    for (int i = 0; i < 3; i++) {
        rill_status (*step)(rill_reducer *, const void *, void *,
                            void *) = plan->starts ? rill_reducer_start_on : rill_reducer_step_on;
        rill_status status = step(reducer, bad && i == 1 ? NULL : there, update[i], r->stream);
        CHECK(status == (bad && i == 1 ? RILL_ERR_ARGUMENT : RILL_OK));
    }
    if (!plan->starts) device_wait(r->stream);
    rill_status status = rill_reducer_wait(reducer);
    CHECK(status == RILL_ERR_ARGUMENT && strstr(rill_last_error(), "gradient is NULL"));
    CHECK(!all_nan(update[0], DIM) && all_nan(update[1], DIM) && !all_nan(update[2], DIM));
    CHECK_OK(rill_reducer_step_on(reducer, there, update[0], r->stream));
    CHECK_OK(rill_reducer_wait(reducer)); /* the failure was told once */
    CHECK_OK(rill_reducer_free(&reducer));
    for (int i = 0; i < 3; i++)
        device_free(update[i]);
    device_free(there);
    free(gradient);
}

static void run_refusals(rank *r) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *host, *there;
    float values[100] = {1};
    void *x = device_new(values, sizeof values);
    CHECK_OK(rill_reducer_create(r->comm[0], RILL_F32, 100, &o, &host));
    o.memory = RILL_CUDA;
    o.algorithm = "gtopk";
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, 100, &o, &there));
    CHECK(rill_reducer_step_on(host, x, x, NULL) == RILL_ERR_UNSUPPORTED);
    CHECK(strstr(rill_last_error(), "host") != NULL);
    CHECK(rill_reducer_step_on(NULL, x, x, NULL) == RILL_ERR_ARGUMENT);
    CHECK(rill_reducer_start_on(host, x, x, NULL) == RILL_ERR_UNSUPPORTED);
    CHECK(rill_reducer_start_on(NULL, x, x, NULL) == RILL_ERR_ARGUMENT);
    if (emulate_control) {
        emulate_control("capture", (uint64_t)(uintptr_t)r->stream, 1);
        CHECK(rill_reducer_step_on(there, x, x, r->stream) == RILL_ERR_UNSUPPORTED);
        CHECK(strstr(rill_last_error(), "captured") != NULL);
        emulate_control("capture", (uint64_t)(uintptr_t)r->stream, 0);
    }
    /* The legacy stream; ranks of one process have it in common, and would wait for each other. */
    if (r->size == 1) CHECK_OK(rill_reducer_step_on(there, x, x, NULL));
    CHECK_OK(rill_reducer_step_on(there, x, x, r->stream));
    CHECK(rill_reducer_step(there, x, x) == RILL_ERR_STATE);
    CHECK(rill_reducer_request(there) != NULL);
    CHECK_OK(rill_wait(rill_reducer_request(there)));
    CHECK_OK(rill_reducer_free(&there));
    CHECK_OK(rill_reducer_free(&host));
    device_free(x);
}

/* Where no thread may communicate a step cannot be in the order of a stream; one behind it can. */
static void run_without_threads(rank *r) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *host, *there;
    rng random = rng_make(23, 0);
    float *values = gradient_of(RILL_F32, 100, &random, false), expected[100];
    void *x = device_new(values, sizeof expected);
    o.algorithm = "gtopk";
    o.k = 5;
    CHECK_OK(rill_reducer_create(r->comm[0], RILL_F32, 100, &o, &host));
    o.memory = RILL_CUDA;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, 100, &o, &there));
    bool *threaded = &there->comm->engine.threaded, before = *threaded;
    *threaded = false;
    CHECK(rill_reducer_step_on(there, x, x, r->stream) == RILL_ERR_UNSUPPORTED);
    CHECK(strstr(rill_last_error(), "MPI_THREAD_MULTIPLE") != NULL);
    CHECK(strstr(rill_last_error(), "rill_reducer_step_on needs a thread") != NULL);
    CHECK(rill_reducer_step_tensors_on(there, 0, NULL, r->stream) == RILL_ERR_UNSUPPORTED);
    CHECK_OK(rill_reducer_start_on(there, x, x, r->stream));
    CHECK(rill_reducer_start_on(there, x, x, r->stream) == RILL_ERR_STATE); /* nothing queues it */
    CHECK(strstr(rill_last_error(), "a step is under way") != NULL);
    CHECK_OK(rill_reducer_wait(there));
    *threaded = before;
    CHECK_OK(rill_reducer_step(host, values, expected));
    CHECK(same_there(RILL_F32, expected, x, 100));
    CHECK_OK(rill_reducer_free(&there));
    CHECK_OK(rill_reducer_free(&host));
    device_free(x);
    free(values);
}

/* What the ranks have still to decide is not decided ahead. */
static void run_undecided(rank *r) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *there;
    rng random = rng_make(24, (uint64_t)r->rank);
    float *values = gradient_of(RILL_F32, 4000, &random, false);
    void *x = device_new(values, 4000 * sizeof *values);
    o.algorithm = "auto";
    o.select = "auto";
    o.memory = RILL_CUDA;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, 4000, &o, &there));
    CHECK(rill_reducer_step_on(there, x, x, r->stream) == RILL_ERR_UNSUPPORTED);
    CHECK(strstr(rill_last_error(), "select 'auto' decides in the first step") != NULL);
    CHECK_OK(rill_reducer_start_on(there, x, x, r->stream));
    CHECK_OK(rill_reducer_wait(there));
    CHECK_OK(rill_reducer_step_on(there, x, x, r->stream));
    CHECK_OK(rill_reducer_wait(there));
    CHECK_OK(rill_reducer_free(&there));
    device_free(x);
    free(values);
}

/* Steps whose device memory runs out fail on all ranks, and the next ones go on. */
static void run_short_of_memory(rank *r) {
    enum { DIM = 3000 };
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(6, (uint64_t)r->rank);
    void *gradient = gradient_of(RILL_F32, DIM, &random, false);
    void *there = device_new(gradient, DIM * 4), *update = device_new(gradient, DIM * 4);
    o.memory = RILL_CUDA;
    o.algorithm = "split_allgather";
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, DIM, &o, &reducer));
    barrier(r);
    if (r->rank == 0) emulate_control("fail", *(const uint64_t *)r->context, UINT64_MAX);
    barrier(r);
    CHECK_OK(rill_reducer_step_on(reducer, there, update, r->stream));
    device_wait(r->stream);
    rill_status status = rill_reducer_wait(reducer);
    barrier(r);
    if (r->rank == 0) emulate_control("fail", 0, 0);
    barrier(r);
    CHECK(status == RILL_OK || status == RILL_ERR_MEMORY);
    CHECK(all_nan(update, DIM) == (status != RILL_OK));
    CHECK_OK(rill_reducer_step_on(reducer, there, update, r->stream));
    device_wait(r->stream);
    CHECK_OK(rill_reducer_wait(reducer));
    CHECK(!all_nan(update, DIM));
    CHECK_OK(rill_reducer_free(&reducer));
    device_free(there);
    device_free(update);
    free(gradient);
}

/* Neither momentum nor warm-up, where it says so: then steps need not wait for each other. */
typedef struct queue_case {
    const char *algorithm, *select, *nonfinite;
    rill_type type;
    int reducers, bits;
    bool tensors, wild, one_stream, mailed;
} queue_case;

static const queue_case queue_cases[] = {
    {"oktopk", "threshold", NULL, RILL_F32, 1, 0, false, false, true, false},
    {"gtopk", "topk", NULL, RILL_F32, 3, 0, false, true, false, true},
    {"spardl", "topk", NULL, RILL_F32, 2, 0, true, true, true, true},
    {"split_allgather", "bucket", NULL, RILL_BF16, 2, 0, false, true, true, false},
    {"dense", NULL, NULL, RILL_F32, 2, 0, true, true, false, false},
    {"split_allgather", "nonzero", NULL, RILL_F32, 1, 0, false, true, false, false},
    {"auto", NULL, NULL, RILL_F32, 3, 0, false, false, true, false},
};
static const queue_case mailed_cases[] = {
    {"gtopk", "topk", "zero", RILL_F32, 2, 0, false, true, true, true},
    {"gtopk", "topk", NULL, RILL_F32, 1, 4, true, true, true, true},
    {"gtopk", "bucket", NULL, RILL_F16, 2, 0, false, true, false, true},
    {"oktopk", "topk", NULL, RILL_F32, 2, 0, true, true, false, true},
    {"oktopk", "topk", NULL, RILL_F32, 1, 4, false, true, true, true},
    {"oktopk", NULL, NULL, RILL_F32, 2, 0, true, true, true, true},
    {"oktopk", "threshold", NULL, RILL_F16, 1, 0, false, true, true, true},
    {"split_allgather", "threshold", "zero", RILL_F32, 1, 4, false, true, true, true},
    {"spardl", "topk", NULL, RILL_F32, 1, 8, false, true, true, true},
    {"spardl", "topk", NULL, RILL_BF16, 2, 0, true, true, true, true},
    {"split_allgather", "topk", NULL, RILL_F32, 3, 0, false, true, true, true},
    {"split_allgather", "bucket", "pass", RILL_BF16, 2, 0, false, true, true, true},
    {"recursive_double", "random", NULL, RILL_F32, 2, 0, false, true, true, true},
    {"dsar", "topk", NULL, RILL_F32, 1, 4, false, true, true, true},
    {"ring", "bucket", NULL, RILL_F32, 1, 16, false, true, false, true},
    {"allgather", "block", "zero", RILL_F32, 1, 2, false, true, true, true},
    {"auto", "topk", NULL, RILL_F32, 3, 0, true, true, true, true},
};

static queue_plan plan_of(const queue_case *c) {
    queue_plan p = {.options = RILL_REDUCER_OPTIONS_INIT,
                    .type = c->type,
                    .dim = 2503,
                    .reducers = c->reducers,
                    .tensors = c->tensors,
                    .wild = c->wild,
                    .one_stream = c->one_stream,
                    .mailed = c->mailed};
    p.options.algorithm = c->algorithm;
    p.options.select = c->select;
    p.options.nonfinite = c->nonfinite;
    p.options.value_bits = c->bits;
    p.options.threshold_interval = c->mailed ? 4 : 0;
    p.options.density = 0.02;
    return p;
}

void test_streams(void) {
    for (size_t i = 0; i < sizeof queue_cases / sizeof *queue_cases; i++) {
        queue_plan p = plan_of(&queue_cases[i]);
        p.options.warmup_steps = i % 2;
        p.options.momentum = i % 3 || p.mailed ? 0 : 0.9;
        test_queues(&p, 1 + (int)(i % 3));
        p.starts = true;
        test_queues(&p, 4 - (int)(i % 3));
        p.tensors = p.turns = true;
        test_queues(&p, 1 + (int)(i % 4));
    }
    for (size_t i = 0; i < sizeof mailed_cases / sizeof *mailed_cases; i++) {
        queue_plan p = plan_of(&mailed_cases[i]);
        p.options.average = i % 2;
        test_queues(&p, 1 + (int)(i % 4));
        if (i % 4 == 0) test_queues(&p, 3);
        p.tensors = p.turns = true;
        test_queues(&p, 4 - (int)(i % 4));
    }
    check_case("a step without a gradient on one rank");
    static const bad_plan bad[] = {{"oktopk", false},
                                   {"oktopk", true},
                                   {"gtopk", false},
                                   {"spardl", false}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        on_ranks(3, run_bad_step, &bad[i]);
    check_case("refusals");
    on_ranks(2, run_refusals, NULL);
    on_ranks(1, run_refusals, NULL);
    on_ranks(1, run_without_threads, NULL);
    on_ranks(2, run_undecided, NULL);
    for (uint64_t at = 1; emulate_control && at < 10; at++) {
        check_case("queued, no device memory from allocation %llu on", (unsigned long long)at);
        on_ranks(2, run_short_of_memory, &at);
    }
}
