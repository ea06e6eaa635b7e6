/* One group: all cases of one (dim, density), timed as the NCCL tests do. Verify, warm up, then
 * for each repetition a barrier and one call of each case, in changing order, so that noise hits
 * all alike; the time of a repetition is that of its slowest rank. The last results are verified
 * again: algorithms may use what they learned in earlier calls.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"
#include "launch.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void bench_progress(const bench_config *config, const char *format, ...) {
    static double last;
    if (!tool_speaks() || config->quiet || !launch_progress()) return;
    double now = world_clock();
    if (format && now - last < 0.1) return;
    last = now;
    if (!format) { /* wipe it off */
        fputs("\r\033[K", stderr);
        return;
    }
    va_list args;
    va_start(args, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, args);
    fflush(stderr);
    va_end(args);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(double *values, int n, double q) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    double place = q * (n - 1);
    int below = (int)place;
    if (below + 1 >= n) return values[n - 1];
    return values[below] + (place - below) * (values[below + 1] - values[below]);
}

/* Runs once on all ranks and agrees on how it went; a case that failed is not run again, for its
 * communicator is of no further use. */
static void run(const bench_config *config, const bench_world *world, const bench_input *input,
                bench_case *c, double *seconds) {
    rill_status status = bench_case_run(config, world, input, c, seconds);
    int worst = world_int(world->all, status, WORLD_MIN);
    if (worst == RILL_OK) return;
    char text[sizeof c->detail] = "";
    if (status != RILL_OK)
        snprintf(text, sizeof text, "%s",
                 *rill_last_error() ? rill_last_error() : rill_strerror(status));
    bench_agree(world, status == RILL_OK, text, sizeof text);
    memcpy(c->detail, text, sizeof text);
    int least = world_int(world->all, status, WORLD_MAX);
    /* Unsupported or too large must be what every rank says. */
    bool unsupported = worst == least &&
                       (worst == RILL_ERR_UNSUPPORTED || worst == RILL_ERR_MEMORY);
    c->state = unsupported && c->may_be_unsupported ? CASE_UNSUPPORTED : CASE_FAILED;
}

static void check(const bench_config *config, const bench_world *world, const bench_input *input,
                  bench_case *cases, int n, bool *going) {
    bench_progress(config, "checking");
    *going = bench_oracle(config, world, input, cases, n);
}

/* What the ranks measured and counted, put together. */
static void gather(const bench_config *config, const bench_world *world, bench_case *c) {
    world_f64(world->all, c->times, config->reps, WORLD_MAX);
    double *sorted = malloc((size_t)config->reps * sizeof *sorted);
    if (sorted) {
        memcpy(sorted, c->times, (size_t)config->reps * sizeof *sorted);
        c->median = bench_quantile(sorted, config->reps, 0.5);
        c->p25 = bench_quantile(sorted, config->reps, 0.25);
        c->p75 = bench_quantile(sorted, config->reps, 0.75);
        free(sorted);
    }
    uint64_t counts[8] = {c->stats.sent_bytes,
                          c->stats.recv_bytes,
                          c->stats.messages,
                          c->stats.rounds,
                          c->stats.nnz_in,
                          c->stats.nnz_out,
                          c->is_mpi || (c->out && rill_stream_is_dense(c->out)),
                          c->out && rill_stream_block(c->out)};
    world_u64(world->all, counts, 8, WORLD_MAX);
    c->sent = counts[0];
    c->received = counts[1];
    c->messages = counts[2];
    c->rounds = counts[3];
    c->nnz_in = counts[4];
    c->nnz_out = counts[5];
    c->out_form = counts[6] ? FORM_DENSE : counts[7] ? FORM_BLOCK : FORM_SPARSE;
    c->predicted = c->is_mpi || c->stats.predicted_s == 0 ? -1 : c->stats.predicted_s;
}

static void turn(const bench_config *config, const bench_world *world, const bench_input *input,
                 bench_case *c, int repetition) {
    double seconds = 0;
    if (c->state != CASE_READY) return;
    run(config, world, input, c, &seconds);
    if (repetition >= 0) c->times[repetition] = seconds;
}

/* The case that has turn k of round r. Who comes after whom decides what is still in the caches, so
 * that each must follow every other equally often: Williams' square (1949), whose n rounds have
 * every pair of neighbours once; of an odd n in 2 n rounds, twice. */
static int case_in_turn(int n, int r, int k) {
    if (n % 2 && r / n % 2) k = n - 1 - k;
    return ((k % 2 ? n - 1 - k / 2 : k / 2) + r) % n;
}

bool bench_group_run(const bench_config *config, const bench_world *world, const bench_input *input,
                     bench_case *cases, int n, const char *label) {
    bool going = true;
    for (int i = 0; i < n; i++) {
        bench_progress(config, "%s: first run of %s", label, cases[i].requested);
        turn(config, world, input, &cases[i], -1);
    }
    check(config, world, input, cases, n, &going);
    if (!going) return false;
    int rounds = config->warmup + config->reps, total = rounds * n;
    for (int k = 0; k < total; k++) {
        int r = config->interleave ? k / n : k % rounds,
            i = config->interleave ? case_in_turn(n, r, k % n) : k / rounds;
        if (r < config->warmup)
            bench_progress(config, "%s: warm-up, %s", label, cases[i].requested);
        else
            bench_progress(config, "%s: repetition %d of %d, %s", label, r - config->warmup + 1,
                           config->reps, cases[i].requested);
        turn(config, world, input, &cases[i], r - config->warmup);
    }
    check(config, world, input, cases, n, &going);
    if (!going) return false;
    for (int i = 0; i < n; i++)
        if (cases[i].state == CASE_READY) gather(config, world, &cases[i]);
    bench_progress(config, NULL);
    return true;
}
