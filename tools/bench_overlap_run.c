/* The measurement of rill bench overlap, as the OSU tests of non-blocking collectives do it:
 *
 *   pure     start a non-blocking allreduce and wait for it
 *   compute  arithmetic alone, for about as long: registers only, so that it takes no memory
 * bandwidth both     start, compute, wait
 *
 *   overlap = 1 - (both - compute) / pure, and 0 where that is negative
 *
 * All three in turns, so that noise hits them alike; a repetition takes as long as its slowest
 * rank, and the medians count. The result of the last repetition, made behind the computation, is
 * checked too.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench_overlap.h"

#include <stdlib.h>
#include <string.h>

const char *const overlap_progress_names[] = {"thread", "poll", "none", NULL};

enum { PILOTS = 5, CALIBRATIONS = 5 };
static const uint64_t calibration_steps = 1000000;

/* A chain of multiplications, which neither the compiler nor the processor can shorten. */
static __attribute__((noinline)) uint64_t arithmetic(uint64_t steps, uint64_t x) {
    for (uint64_t i = 0; i < steps; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

typedef struct computation {
    rill_comm *comm; /* to call rill_progress on; NULL: not at all */
    uint64_t steps;
    uint64_t piece; /* steps between two of those calls */
    volatile uint64_t result;
} computation;

static void compute(computation *w) {
    uint64_t x = w->result;
    if (!w->comm) {
        x = arithmetic(w->steps, x);
    } else {
        for (uint64_t left = w->steps; left;) {
            uint64_t n = left < w->piece ? left : w->piece;
            x = arithmetic(n, x);
            left -= n;
            rill_progress(w->comm);
        }
    }
    w->result = x;
}

/* Seconds of one step of the arithmetic, when nothing disturbs. */
static double step_seconds(void) {
    double best = 1;
    uint64_t x = 1;
    for (int i = 0; i < CALIBRATIONS; i++) {
        double start = world_clock();
        x = arithmetic(calibration_steps, x);
        double seconds = world_clock() - start;
        if (seconds < best) best = seconds;
    }
    volatile uint64_t sink = x;
    (void)sink;
    return best / (double)calibration_steps;
}

/* One turn: w NULL: pure; request-less where start is false: compute alone. */
static rill_status turn(const overlap_config *config, const bench_world *world,
                        const bench_input *input, bench_case *c, bool start, computation *w,
                        double *seconds) {
    rill_options o = RILL_OPTIONS_INIT;
    rill_status status = RILL_OK;
    o.algorithm = c->requested;
    o.codec = config->codec;
    o.value_bits = config->value_bits;
    world_barrier(world->all);
    double begin = world_clock();
    if (start) status = rill_iallreduce(c->comm, input->stream, c->out, RILL_SUM, &o, &c->request);
    if (w) compute(w);
    if (start && status == RILL_OK) status = rill_wait(c->request);
    *seconds = world_clock() - begin;
    if (start && status == RILL_OK) status = rill_request_stats(c->request, &c->stats);
    if (c->request) {
        rill_status freed = rill_request_free(&c->request);
        if (status == RILL_OK) status = freed;
    }
    return status;
}

/* The same on all ranks, with the slowest one's time. False: it failed, and the case says why. */
static bool turn_all(const overlap_config *config, const bench_world *world,
                     const bench_input *input, bench_case *c, bool start, computation *w,
                     double *seconds) {
    rill_status status = turn(config, world, input, c, start, w, seconds);
    char text[sizeof c->detail] = "";
    if (status != RILL_OK) snprintf(text, sizeof text, "%s", rill_last_error());
    if (!bench_agree(world, status == RILL_OK, text, sizeof text)) {
        memcpy(c->detail, text, sizeof text);
        c->state = CASE_FAILED;
        return false;
    }
    world_f64(world->all, seconds, 1, WORLD_MAX);
    return true;
}

/* So much arithmetic as the allreduce takes time. */
static bool calibrate(const overlap_config *config, const bench_world *world,
                      const bench_input *input, bench_case *c, computation *w) {
    double pilots[PILOTS], each = step_seconds();
    for (int i = -config->bench.warmup; i < PILOTS; i++)
        if (!turn_all(config, world, input, c, true, NULL, &pilots[i < 0 ? 0 : i])) return false;
    w->steps = (uint64_t)(bench_quantile(pilots, PILOTS, 0.5) / each) + 1;
    w->piece = (uint64_t)(config->poll_us * 1e-6 / each) + 1;
    return true;
}

static void measure(const overlap_config *config, const bench_world *world,
                    const bench_input *input, overlap_result *r) {
    bench_case *c = &r->c;
    int n = config->bench.reps;
    double *pure = c->times, *alone = pure + n, *both = alone + n;
    computation quiet = {.result = 1}, w = {.result = 1};
    if (!calibrate(config, world, input, c, &w)) return;
    quiet.steps = w.steps;
    if (r->progress == PROGRESS_POLL) w.comm = c->comm;
    for (int i = 0; i < n; i++)
        if (!turn_all(config, world, input, c, true, NULL, &pure[i]) ||
            !turn_all(config, world, input, c, false, &quiet, &alone[i]) ||
            !turn_all(config, world, input, c, true, &w, &both[i]))
            return;
    if (!bench_oracle(&config->bench, world, input, c, 1)) {
        snprintf(c->detail, sizeof c->detail, "the check is out of memory");
        c->state = CASE_FAILED;
        return;
    }
    r->pure = bench_quantile(pure, n, 0.5);
    r->compute = bench_quantile(alone, n, 0.5);
    r->both = bench_quantile(both, n, 0.5);
    double share = 1 - (r->both - r->compute) / r->pure;
    r->percent = 100 * (share < 0 ? 0 : share > 1 ? 1 : share);
}

void overlap_measure(const overlap_config *config, const bench_world *world,
                     const bench_input *input, const char *algorithm, overlap_progress progress,
                     overlap_result *r) {
    *r = (overlap_result){.progress = progress,
                          .c = {.requested = algorithm,
                                .codec = config->codec,
                                .value_bits = config->value_bits,
                                .stats = RILL_STATS_INIT}};
    bench_case *c = &r->c;
    rill_config settings = RILL_CONFIG_INIT;
    settings.progress_thread = progress == PROGRESS_THREAD;
    c->times = calloc(3 * (size_t)config->bench.reps, sizeof *c->times);
    rill_status status = world_comm(world->all, &settings, &c->comm);
    if (status == RILL_OK) status = rill_stream_create(config->bench.type, input->dim, &c->out);
    if (status != RILL_OK) snprintf(c->detail, sizeof c->detail, "%s", rill_last_error());
    else if (!c->times) snprintf(c->detail, sizeof c->detail, "out of memory");
    c->state = CASE_READY;
    if (bench_agree(world, status == RILL_OK && c->times, c->detail, sizeof c->detail))
        measure(config, world, input, r);
    else c->state = CASE_FAILED;
    rill_stream_free(&c->out);
    if (c->comm) rill_comm_free(&c->comm);
    free(c->times);
    c->times = NULL;
}
