/* Steps in the order of a stream whose calls return while the stream has not come to them yet: a
 * word that the test writes holds it up. */
#include "reduce/reducer.h" /* before names that it uses itself */

#include "device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { DIM = 3001, STEPS = 3, MANY = 12, LONG = 10000, GRAIN = 1 << 20 };

typedef struct held_plan {
    const char *algorithm;
    int reducers, steps;
    uint64_t dim;
    bool released; /* the stream is never held */
    bool starts;   /* start_on */
} held_plan;

typedef struct lane {
    rill_reducer *host, *there;
    void *stream, *input, *update;
    char *gradient, *expected;
} lane;

static void make_lane(rank *r, const held_plan *p, lane *l, rng *random) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    size_t bytes = p->dim * sizeof(float);
    o.algorithm = p->algorithm;
    o.select = "topk";
    o.density = 0.02;
    CHECK_OK(rill_reducer_create(r->comm[0], RILL_F32, p->dim, &o, &l->host));
    o.memory = RILL_CUDA;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, p->dim, &o, &l->there));
    CHECK(rill__reducer_mails(l->there) == RILL__MAIL);
    CHECK(cuda->stream_create(&l->stream) == 0);
    l->gradient = gradient_of(RILL_F32, p->dim, random, false);
    l->expected = calloc(p->dim, sizeof(float));
    l->input = device_new(l->gradient, bytes);
    l->update = device_new(NULL, bytes);
}

static void free_lane(lane *l) {
    CHECK_OK(rill_reducer_free(&l->host));
    CHECK_OK(rill_reducer_free(&l->there));
    CHECK(cuda->stream_free(l->stream) == 0);
    device_free(l->input);
    device_free(l->update);
    free(l->gradient);
    free(l->expected);
}

static bool is_over(void *stream) {
    void *event;
    int done = 0;
    CHECK(cuda->event_create(&event) == 0);
    CHECK(cuda->event_record(event, stream) == 0);
    CHECK(cuda->event_done(event, &done) == 0);
    CHECK(cuda->event_free(event) == 0);
    return done != 0;
}

static void release(uint32_t *word) { __atomic_store_n(word, 1, __ATOMIC_RELEASE); }

/* All steps of all reducers are queued while the streams are held up. */
static void run_held(rank *r) {
    const held_plan *p = r->context;
    lane lanes[MANY];
    rng random = rng_make(31, (uint64_t)r->rank);
    void *page;
    CHECK(cuda->allocate_host(64, &page) == 0);
    uint32_t *word = page;
    *word = 0;
    for (int j = 0; j < p->reducers; j++)
        make_lane(r, p, &lanes[j], &random);
    barrier(r);
    for (int j = 0; j < p->reducers && !p->released; j++)
        CHECK(cuda->stream_hold(word, 1, lanes[j].stream) == 0);
    for (int i = 0; i < p->steps; i++)
        for (int j = 0; j < p->reducers; j++)
            CHECK_OK(rill_reducer_step_on(lanes[j].there, lanes[j].input, lanes[j].update,
                                          lanes[j].stream));
    barrier(r); /* all calls of all ranks have returned */
    for (int j = 0; j < p->reducers && !p->released; j++) {
        int done = 1;
        CHECK(!is_over(lanes[j].stream));
        CHECK_OK(rill_reducer_test(lanes[j].there, &done));
        CHECK(!done);
    }
    release(word);
    for (int i = 0; i < p->steps; i++)
        for (int j = 0; j < p->reducers; j++)
            CHECK_OK(rill_reducer_step(lanes[j].host, lanes[j].gradient, lanes[j].expected));
    for (int j = 0; j < p->reducers; j++) {
        lane *l = &lanes[j];
        device_wait(l->stream); /* the update is there for whom the stream is */
        CHECK(same_there(RILL_F32, l->expected, l->update, p->dim));
        CHECK_OK(rill_reducer_wait(l->there));
        CHECK(same_there(RILL_F32, rill_reducer_residual(l->host), rill_reducer_residual(l->there),
                         p->dim));
    }
    barrier(r);
    for (int j = 0; j < p->reducers; j++)
        free_lane(&lanes[j]);
    CHECK(cuda->release_host(page) == 0);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void run_many_steps(rank *r) {
    const held_plan *p = r->context;
    lane l;
    rng random = rng_make(32, (uint64_t)r->rank);
    uint64_t live[2] = {0, 0};
    size_t used[2] = {0, 0}; /* by this process alone */
    make_lane(r, p, &l, &random);
    for (int i = 0; i < p->steps; i++) {
        if (p->starts) CHECK_OK(rill_reducer_start_on(l.there, l.input, l.update, l.stream));
        else CHECK_OK(rill_reducer_step_on(l.there, l.input, l.update, l.stream));
        CHECK_OK(rill_reducer_step(l.host, l.gradient, l.expected));
        if (i != 50 && i != p->steps - 1) continue;
        barrier(r);
        if (emulate_control) live[i != 50] = emulate_control("live", 0, 0);
        CHECK(cuda->memory_used(&used[i != 50]) == 0);
        barrier(r);
    }
    CHECK(live[0] == live[1]);
    /* A GPU may count what is freed a little later. */
    CHECK(used[1] <= used[0] + (emulate_control ? 0 : GRAIN));
    CHECK_OK(rill_reducer_wait(l.there));
    CHECK(same_there(RILL_F32, l.expected, l.update, p->dim));
    free_lane(&l);
}

/* ---- what other threads do ------------------------------------------------------------------ */

/* A kernel that CUDA has not loaded yet: its first launch waits for all streams, and holds up what
 * other threads launch. */
static void *launch_first(void *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *stream, *at;
    if (!CHECK(library != NULL)) return NULL;
    const rill__cuda_table *(*get)(void);
    *(void **)&get = dlsym(library, RILL__CUDA_SYMBOL);
    const rill__cuda_table *other = get();
    CHECK(other->stream_create(&stream) == 0);
    CHECK(other->allocate(4096, &at) == 0);
    CHECK(other->fill_value(RILL__CUDA_F32, at, 7, 1000, stream) == 0);
    CHECK(other->stream_wait(stream) == 0);
    CHECK(other->release(at) == 0);
    CHECK(other->stream_free(stream) == 0);
    return NULL;
}

static void test_first_launch(void) {
    char path[64], command[600];
    snprintf(path, sizeof path, "/tmp/rill_cuda_%ld.so", (long)getpid());
    snprintf(command, sizeof command, "cp '%s' '%s'", cuda_path, path);
    if (!CHECK(system(command) == 0)) return;
    pthread_t thread;
    held_plan p = {"gtopk", 1, STEPS, DIM, true, false};
    CHECK(pthread_create(&thread, NULL, launch_first, path) == 0);
    on_ranks(2, run_held, &p);
    pthread_join(thread, NULL);
    unlink(path);
}

/* A lane with a step behind a stream that waits for the word. */
static uint32_t *hold_lane(rank *r, uint64_t seed, lane *l) {
    held_plan p = {"gtopk", 1, 1, DIM, false, false};
    rng random = rng_make(seed, 0);
    void *page;
    CHECK(cuda->allocate_host(64, &page) == 0);
    uint32_t *word = page;
    *word = 0;
    make_lane(r, &p, l, &random);
    CHECK(cuda->stream_hold(word, 1, l->stream) == 0);
    CHECK_OK(rill_reducer_step_on(l->there, l->input, l->update, l->stream));
    return word;
}

static void free_held(lane *l, uint32_t *word) {
    free_lane(l);
    CHECK(cuda->release_host(word) == 0);
}

/* The same while a step waits: the launch can only return when the step has ended. */
static void run_launch_behind(rank *r) {
    char path[64], command[600];
    pthread_t thread;
    lane l;
    snprintf(path, sizeof path, "/tmp/rill_cuda_%ld_2.so", (long)getpid());
    snprintf(command, sizeof command, "cp '%s' '%s'", cuda_path, path);
    if (!CHECK(system(command) == 0)) return;
    uint32_t *word = hold_lane(r, 33, &l);
    CHECK(pthread_create(&thread, NULL, launch_first, path) == 0);
    usleep(200000);
    release(word);
    pthread_join(thread, NULL);
    CHECK_OK(rill_reducer_wait(l.there));
    CHECK_OK(rill_reducer_step(l.host, l.gradient, l.expected));
    CHECK(same_there(RILL_F32, l.expected, l.update, DIM));
    free_held(&l, word);
    unlink(path);
}

/* ---- a device that fails -------------------------------------------------------------------- */

static void run_broken(rank *r) {
    lane l;
    uint32_t *word = hold_lane(r, 34, &l);
    emulate_control("break", 700, 0);
    if (r->context) CHECK(rill_wait(rill_reducer_request(l.there)) == RILL_ERR_IO);
    CHECK(rill_reducer_wait(l.there) == RILL_ERR_IO);
    emulate_control("break", 0, 0);
    release(word);
    free_held(&l, word);
}

/* One rank's device fails: all ranks learn of it, and that one has CUDA's own words. */
static void run_broken_alone(rank *r) {
    bool breaks = r->rank == r->size - 1;
    lane l;
    CHECK(cuda->device_set(breaks) == 0);
    uint32_t *word = hold_lane(r, 35, &l);
    barrier(r);
    if (breaks) emulate_control("break", 700, 1);
    else release(word);
    CHECK(rill_reducer_wait(l.there) == RILL_ERR_IO);
    const char *words = strstr(rill_last_error(), "error of the emulated device");
    CHECK(breaks ? words != NULL : rill_last_error()[0] != '\0');
    barrier(r);
    if (breaks) emulate_control("break", 0, 1);
    release(word);
    free_held(&l, word);
    CHECK(cuda->device_set(0) == 0);
}

/* ---- a rank that is gone -------------------------------------------------------------------- */

enum { TROUPE = 3 };
typedef struct mourner {
    int rank;
    rill_comm *comm;
    pthread_barrier_t *end;
} mourner;

static bool close_to(const float *a, const void *there) {
    float *b = malloc(DIM * sizeof *b);
    device_get(b, there, DIM * sizeof *b);
    bool close = true;
    for (int i = 0; i < DIM; i++)
        close = close && fabsf(a[i] - b[i]) < 1e-5F;
    free(b);
    return close;
}

/* The last rank takes no part in the second step, nor in the third, which is queued behind it: the
 * others undo both, and go on without it. */
static void *mourn(void *argument) {
    mourner *m = argument;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rill_comm *rest = NULL;
    void *stream;
    rng random = rng_make(36, (uint64_t)m->rank);
    float *gradient = gradient_of(RILL_F32, DIM, &random, false), *kept = malloc(DIM * 4);
    void *input = device_new(gradient, DIM * 4), *update = device_new(gradient, DIM * 4);
    int again = 0;
    o.memory = RILL_CUDA;
    o.algorithm = "gtopk";
    o.select = "topk";
    CHECK(cuda->stream_create(&stream) == 0);
    CHECK_OK(rill_reducer_create(m->comm, RILL_F32, DIM, &o, &reducer));
    CHECK_OK(rill_reducer_step_on(reducer, input, update, stream));
    CHECK_OK(rill_reducer_wait(reducer));
    device_get(kept, rill_reducer_residual(reducer), DIM * 4);
    if (m->rank < TROUPE - 1) {
        for (int i = 0; i < 2; i++)
            CHECK_OK(rill_reducer_step_on(reducer, input, update, stream));
        CHECK(rill_reducer_wait(reducer) == RILL_ERR_PEER);
        CHECK(close_to(kept, rill_reducer_residual(reducer)));
        CHECK_OK(rill_comm_shrink(m->comm, &rest));
        CHECK_OK(rill_reducer_move(reducer, rest, &again));
        CHECK(again == 1);
        CHECK_OK(rill_reducer_step_on(reducer, input, update, stream));
        CHECK_OK(rill_reducer_wait(reducer));
    }
    pthread_barrier_wait(m->end);
    CHECK_OK(rill_reducer_free(&reducer));
    CHECK_OK(rill_comm_free(&rest));
    CHECK_OK(rill_comm_free(&m->comm));
    CHECK(cuda->stream_free(stream) == 0);
    device_free(input);
    device_free(update);
    free(gradient);
    free(kept);
    return NULL;
}

static void test_death(void) {
    rill_config config = RILL_CONFIG_INIT;
    rill_comm *comms[TROUPE];
    pthread_t threads[TROUPE];
    pthread_barrier_t end;
    mourner all[TROUPE];
    config.timeout_s = 1;
    pthread_barrier_init(&end, NULL, TROUPE);
    CHECK_OK(rill_comm_create_local(TROUPE, &config, comms));
    for (int i = 0; i < TROUPE; i++) {
        all[i] = (mourner){i, comms[i], &end};
        pthread_create(&threads[i], NULL, mourn, &all[i]);
    }
    for (int i = 0; i < TROUPE; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&end);
}

/* ---- times ---------------------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* RILL_TEST_MEASURE=1: what the call takes, and what a step does, by each of the two ways. */
static void run_measured(rank *r) {
    enum { WARM = 3, MEASURED = 20 };
    const held_plan *p = r->context;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_reducer *reducer;
    rng random = rng_make(35, (uint64_t)r->rank);
    size_t bytes = p->dim * sizeof(float);
    float *gradient = gradient_of(RILL_F32, p->dim, &random, false);
    void *input = device_new(gradient, bytes), *update = device_new(NULL, bytes);
    double in_calls = 0, began = 0;
    o.algorithm = p->algorithm;
    o.select = "topk";
    o.density = 0.01;
    o.memory = RILL_CUDA;
    CHECK_OK(rill_reducer_create(r->comm[1], RILL_F32, p->dim, &o, &reducer));
    for (int i = 0; i < WARM + MEASURED; i++) {
        if (i == WARM) {
            device_wait(r->stream);
            barrier(r);
            in_calls = 0;
            began = seconds();
        }
        double before = seconds();
        if (p->released) CHECK_OK(rill_reducer_step_on(reducer, input, update, r->stream));
        else CHECK_OK(rill_reducer_start_on(reducer, input, update, r->stream));
        in_calls += seconds() - before;
        if (!p->released) CHECK_OK(rill_reducer_wait(reducer));
    }
    device_wait(r->stream);
    double all = seconds() - began;
    if (p->released) CHECK_OK(rill_reducer_wait(reducer));
    if (r->rank == 0)
        printf("%s, %d ranks, %llu values: %s: %.3f ms a step, %.3f ms of it in the call\n",
               p->algorithm, r->size, (unsigned long long)p->dim,
               p->released ? "step_on" : "start_on, wait", 1e3 * all / MEASURED,
               1e3 * in_calls / MEASURED);
    CHECK_OK(rill_reducer_free(&reducer));
    device_free(input);
    device_free(update);
    free(gradient);
}

static void measure(void) {
    static const uint64_t dims[] = {1000000, 44000000};
    for (int i = 0; i < 2; i++)
        for (int ranks = 1; ranks <= 2; ranks++)
            for (int ordered = 0; ordered < 2; ordered++) {
                held_plan p = {"split_allgather", 1, 0, dims[i], ordered != 0, false};
                on_ranks(ranks, run_measured, &p);
            }
}

void test_held(void) {
    static const char *const algorithms[] = {"gtopk", "oktopk", "split_allgather"};
    for (int i = 0; i < 3; i++) {
        held_plan p = {algorithms[i], 1 + i, STEPS, DIM, false, false};
        check_case("%d ranks, %d x %s, steps behind streams that are held", 1 + i, p.reducers,
                   p.algorithm);
        on_ranks(1 + i, run_held, &p);
    }
    held_plan many = {"gtopk", MANY, 2, 500, false, false};
    check_case("%d reducers and streams at once", MANY);
    on_ranks(1, run_held, &many);
    many.reducers = MANY / 2;
    on_ranks(2, run_held, &many);
    int part = getenv("RILL_TEST_FEW")    ? 100
               : !emulate_control         ? 1
               : getenv("RILL_TEST_LONG") ? 10
                                          : 50;
    held_plan flat = {"gtopk", 1, LONG / part, 300, true, false};
    for (int starts = 0; starts < 2; starts++) {
        flat.starts = starts != 0;
        check_case("%d steps %s", flat.steps, starts ? "started" : "queued");
        on_ranks(2, run_many_steps, &flat);
    }
    check_case("first launches in another thread");
    test_first_launch();
    on_ranks(1, run_launch_behind, NULL);
    check_case("a device that fails while a step waits for it");
    for (int i = 0; i < 2 && emulate_control; i++)
        on_ranks(1, run_broken, i ? &many : NULL);
    check_case("a device that fails on one rank of three");
    if (emulate_control) on_ranks(3, run_broken_alone, NULL);
    check_case("a rank that is gone");
    test_death();
    if (getenv("RILL_TEST_MEASURE")) measure();
}
