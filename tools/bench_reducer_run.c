/* The steps of rill bench reducer: gradients, MPI's dense allreduce beside them, and the audit that
 * nothing was lost.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"
#include "bench_device.h"
#include "bench_memory.h"
#include "bench_mpi.h"
#include "bench_reducer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRADIENTS = 3 }; /* that take turns */
#define CHUNK ((uint64_t)1 << 22)

const char *const reducer_support_names[] = {"uniform", "skewed", "rows", NULL};

typedef struct run {
    const reducer_config *config;
    const tool_world *world;
    int rank, size;
    size_t bytes;
    void *gradient[GRADIENTS], *update;    /* on the host */
    bench_vector input[GRADIENTS], target; /* where the reducer takes and puts them */
    double *balance, *rounding;            /* what came out minus what went in; sum of magnitudes */
} run;

/* ---- gradients ---------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* About Gaussian: a sum of four uniform numbers. */
static double noise(uint64_t x) {
    x = mix(x);
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)((x >> (16 * i)) & 0xffff) / 65536 - 0.5;
    return sum * 1.7320508;
}

/* Skewed: the large entries lie in the first sixteenth. Rows: every 64th block of entries is not 0,
 * others on each rank. */
static double entry(const reducer_config *c, int rank, int which, uint64_t i) {
    uint64_t stream = mix(c->seed * 1000003 + (uint64_t)rank * 101 + (uint64_t)which);
    double x = noise(stream ^ (i * UINT64_C(0x2545f4914f6cdd1d)));
    uint64_t block = c->block ? c->block : 256;
    switch (c->support) {
    case SUPPORT_SKEWED: return i < c->dim / 16 ? 8 * x : x;
    case SUPPORT_ROWS: return mix(stream + i / block) % 64 ? 0 : x;
    default: return x;
    }
}

static bool prepare(run *r, const tool_world *w, const reducer_config *config) {
    *r = (run){.config = config,
               .world = w,
               .rank = w->rank,
               .size = w->size,
               .bytes = config->dim * rill_type_size(config->type)};
    bool ok = (r->update = bench_huge_alloc(r->bytes)) != NULL;
    for (int g = 0; g < GRADIENTS; g++) {
        ok &= (r->gradient[g] = bench_huge_alloc(r->bytes)) != NULL;
        if (!ok) break;
        for (uint64_t i = 0; i < config->dim; i++)
            bench_store(config->type, r->gradient[g], i, entry(config, r->rank, g, i));
    }
    if (ok) memset(r->update, 0, r->bytes);
    for (int g = 0; g <= GRADIENTS && ok; g++) {
        bool last = g == GRADIENTS;
        ok = bench_vector_make(config->memory, config->type, config->dim,
                               last ? r->update : r->gradient[g],
                               last ? &r->target : &r->input[g]) == RILL_OK;
    }
    r->balance = calloc(config->dim + 1, sizeof *r->balance);
    r->rounding = calloc(config->dim + 1, sizeof *r->rounding);
    ok &= r->balance && r->rounding;
    return world_int(w, ok, WORLD_MIN);
}

static void release(run *r) {
    for (int g = 0; g < GRADIENTS; g++) {
        bench_vector_free(&r->input[g]);
        bench_huge_free(r->gradient[g], r->bytes);
    }
    bench_vector_free(&r->target);
    bench_huge_free(r->update, r->bytes);
    free(r->balance);
    free(r->rounding);
}

/* ---- audit -------------------------------------------------------------------------------- */

static void account(run *r, const void *values, double sign) {
    double chunk[1024];
    size_t size = rill_type_size(r->config->type);
    for (uint64_t at = 0; at < r->config->dim; at += 1024) {
        uint64_t n = r->config->dim - at < 1024 ? r->config->dim - at : 1024;
        bench_to_double(r->config->type, (const char *)values + at * size, n, chunk);
        for (uint64_t i = 0; i < n; i++) {
            r->balance[at + i] += sign * chunk[i];
            r->rounding[at + i] += fabs(chunk[i]);
        }
    }
}

/* Ranks x mean updates + residuals = gradients, elementwise. */
static void audit(run *r, const rill_reducer *reducer, reducer_result *out) {
    const reducer_config *c = r->config;
    static const double epsilon[] = {0x1p-23, 0x1p-52, 0x1p-10, 0x1p-7};
    const void *residual = rill_reducer_residual(reducer);
    if (c->memory != RILL_HOST) {
        rill_status status = bench_vector_fetch(c->memory, c->type, c->dim, residual, r->update);
        residual = r->update;
        if (!world_int(r->world, status == RILL_OK, WORLD_MIN)) {
            snprintf(out->detail, sizeof out->detail, "the residual: %s", rill_last_error());
            return;
        }
    }
    account(r, residual, 1);
    /* Every step rounds the whole residual once more. */
    double each_step = 4 + 0.25 * (c->steps + c->warmup);
    out->correct = true;
    for (uint64_t at = 0; at < c->dim; at += CHUNK) {
        int n = (int)(c->dim - at < CHUNK ? c->dim - at : CHUNK);
        world_f64(r->world, r->balance + at, n, WORLD_SUM);
        world_f64(r->world, r->rounding + at, n, WORLD_SUM);
        for (int i = 0; i < n && out->correct; i++) {
            double most = epsilon[c->type] * (each_step * r->rounding[at + (uint64_t)i] + 1e-3);
            if (fabs(r->balance[at + (uint64_t)i]) <= most) continue;
            out->correct = false;
            snprintf(out->detail, sizeof out->detail, "entry %llu: off by %g, rounding gives %g",
                     (unsigned long long)(at + (uint64_t)i), r->balance[at + (uint64_t)i], most);
        }
    }
}

/* ---- measuring ---------------------------------------------------------------------------- */

/* The slowest rank of each step, then quartiles. */
static void summarize(const tool_world *w, const reducer_config *c, reducer_result *out) {
    world_f64(w, out->times, c->steps, WORLD_MAX);
    out->p25 = bench_quantile(out->times, c->steps, 0.25);
    out->median = bench_quantile(out->times, c->steps, 0.5);
    out->p75 = bench_quantile(out->times, c->steps, 0.75);
    double mean[4] = {out->select, out->exchange, out->finish, out->selected};
    world_f64(w, mean, 4, WORLD_MAX);
    out->select = mean[0] / c->steps;
    out->exchange = mean[1] / c->steps;
    out->finish = mean[2] / c->steps;
    out->selected = mean[3] / c->steps;
    uint64_t most[4] = {out->sent, out->received, out->messages, out->rounds};
    world_u64(w, most, 4, WORLD_MAX);
    uint64_t steps = (uint64_t)c->steps;
    out->sent = most[0] / steps;
    out->received = most[1] / steps;
    out->messages = most[2] / steps;
    out->rounds = most[3] / steps;
}

static void add_stats(reducer_result *out, const rill_stats *s) {
    out->select += s->select_s;
    out->finish += s->update_s;
    out->exchange += s->elapsed_s - s->select_s - s->update_s;
    out->selected += (double)s->selected_k;
    out->sent += s->sent_bytes;
    out->received += s->recv_bytes;
    out->messages += s->messages;
    out->rounds += s->rounds;
}

static rill_reducer_options options_of(const reducer_config *c, const char *algorithm) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.select = c->select;
    o.codec = c->codec;
    o.partition = c->partition;
    o.value_bits = c->value_bits;
    o.density = c->density;
    o.k = c->k;
    o.seed = c->seed;
    o.block = c->block;
    o.balance_trigger = c->trigger;
    o.lambda = c->lambda;
    o.feedback = c->feedback;
    o.memory = c->memory;
    return o;
}

static rill_status one_step(run *r, rill_reducer *reducer, rill_stream *stream, int step,
                            double *seconds) {
    void *gradient = r->input[step % GRADIENTS].at;
    world_barrier(r->world);
    double start = world_clock();
    rill_status status = stream ? rill_reducer_step_stream(reducer, gradient, stream)
                                : rill_reducer_step(reducer, gradient, r->target.at);
    *seconds = world_clock() - start;
    return status;
}

/* To the host, where it is not there yet. */
static rill_status fetch_update(run *r, const rill_stream *stream) {
    const reducer_config *c = r->config;
    if (c->memory == RILL_HOST) return stream ? rill_stream_get_dense(stream, r->update) : RILL_OK;
    if (!stream) return bench_vector_fetch(c->memory, c->type, c->dim, r->target.at, r->update);
    rill_stream *host = NULL;
    rill_status status = rill_stream_create(c->type, c->dim, &host);
    if (status == RILL_OK) status = rill_stream_copy(host, stream);
    if (status == RILL_OK) status = rill_stream_get_dense(host, r->update);
    rill_stream_free(&host);
    return status;
}

static rill_status steps(run *r, rill_reducer *reducer, rill_stream *stream, reducer_result *out) {
    const reducer_config *c = r->config;
    for (int step = -c->warmup; step < c->steps; step++) {
        double seconds;
        int number = step + c->warmup;
        rill_status status = one_step(r, reducer, stream, number, &seconds);
        if (status != RILL_OK) return status;
        account(r, r->gradient[number % GRADIENTS], -1);
        status = fetch_update(r, stream);
        account(r, r->update, 1); /* the mean: P ranks add it up */
        if (status == RILL_OK) status = rill_reducer_stats(reducer, &out->stats);
        if (status != RILL_OK) return status;
        if (step < 0) continue;
        out->times[step] = seconds;
        add_stats(out, &out->stats);
    }
    return RILL_OK;
}

static rill_status make_stream(const reducer_config *c, rill_stream **out) {
    return rill_stream_create_in(c->memory, -1, c->type, c->dim, out);
}

void reducer_measure(const tool_world *w, const reducer_config *c, const char *algorithm,
                     bool stream, reducer_result *out) {
    *out = (reducer_result){.requested = algorithm,
                            .update = stream ? "stream" : "dense",
                            .stats = RILL_STATS_INIT,
                            .times = calloc((size_t)c->steps, sizeof(double))};
    run r;
    rill_comm *comm = NULL;
    rill_reducer *reducer = NULL;
    rill_stream *update = NULL;
    if (!prepare(&r, w, c) || !out->times) {
        snprintf(out->detail, sizeof out->detail, "out of memory for the vectors");
        release(&r);
        return;
    }
    rill_reducer_options o = options_of(c, algorithm);
    rill_status status = world_comm(w, NULL, &comm);
    if (status == RILL_OK) status = rill_reducer_create(comm, c->type, c->dim, &o, &reducer);
    if (status == RILL_OK && stream) status = make_stream(c, &update);
    if (status == RILL_OK) status = steps(&r, reducer, update, out);
    if (status != RILL_OK) {
        snprintf(out->detail, sizeof out->detail, "%s", rill_last_error());
    } else {
        out->ran = true;
        if (c->feedback) audit(&r, reducer, out);
        else out->correct = true;
        summarize(w, c, out);
    }
    rill_stream_free(&update);
    rill_reducer_free(&reducer);
    rill_comm_free(&comm);
    release(&r);
}

void reducer_measure_mpi(const tool_world *w, const reducer_config *c, reducer_result *out) {
    *out = (reducer_result){.requested = "mpi",
                            .update = "dense",
                            .stats = RILL_STATS_INIT,
                            .times = calloc((size_t)c->steps, sizeof(double))};
    run r;
    bench_mpi *mpi = NULL;
    bool made = bench_mpi_make(c->type, OPERATION_SUM, &mpi);
    bool ok = prepare(&r, w, c) && world_int(w, made && out->times, WORLD_MIN);
    for (int step = -c->warmup; ok && step < c->steps; step++) {
        bench_mpi_call call = {.collective = RILL_ALLREDUCE,
                               .rank = w->rank,
                               .size = w->size,
                               .dim = c->dim,
                               .value_bytes = rill_type_size(c->type),
                               .send = r.gradient[(step + c->warmup) % GRADIENTS],
                               .receive = r.update};
        double seconds;
        bench_mpi_run(mpi, &call, &seconds);
        if (step >= 0) out->times[step] = seconds;
    }
    if (ok) summarize(w, c, out);
    out->sent = out->received = 2 * (r.bytes / (unsigned)r.size) * (unsigned)(r.size - 1);
    out->ran = out->correct = ok;
    out->stats.algorithm = "mpi";
    out->stats.codec = "raw";
    out->exchange = out->median;
    bench_mpi_free(&mpi);
    release(&r);
}

double reducer_traffic(const tool_world *w, const reducer_config *c, bool stream) {
    enum { PASSES = 5 };
    bench_memory memory;
    double times[PASSES] = {0};
    size_t bytes = c->dim * rill_type_size(c->type);
    int all = world_int(w, bench_memory_make(2 * bytes, &memory), WORLD_MIN);
    for (int i = 0; all && i < PASSES; i++) {
        bench_evict(&memory);
        world_barrier(w);
        times[i] = bench_bound_pass(&memory, 2 * bytes, bytes, BOUND_IN_PLACE);
        if (!stream) times[i] += bench_bound_pass(&memory, 0, bytes, BOUND_STREAM);
    }
    bench_memory_free(&memory);
    world_f64(w, times, PASSES, WORLD_MAX);
    return all ? bench_quantile(times, PASSES, 0.5) : 0;
}
