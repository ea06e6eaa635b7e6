/* A rank of a schedule: makes the calls of the script, and compares what comes out with what
 * should. */
#ifndef RILL_TESTS_WORLD_CALLS_H
#define RILL_TESTS_WORLD_CALLS_H

#include "watch.h"

#include "api/comm.h"
#include "link/world.h"

/* The allocation of one rank that fails. */
typedef struct refusal {
    const rill__world *world;
    int rank, armed, from;
    long count, at, hits;
} refusal;

typedef struct schedule {
    script s;
    outcome o;
    rill__world *world;
    rill_comm *comms[MOST_RANKS]; /* for who looks into a rank that waits for ever */
    model expected[MOST_CALLS];
    double
        *balance[MOST_CALLS]; /* of reducers: what was fed, less what came out and what is kept */
    long calls;               /* that were right, on all ranks together */
} schedule;

typedef struct pending {
    rill_stream *in, *out;
    rill_request *request;
    uint64_t first, count;
    int call;
    rill_status status;
} pending;

/* The hook has no argument of ours. */
static refusal refused;
static schedule *under_way;

static inline bool refuse_memory(size_t bytes) {
    int rank = rill__world_rank(refused.world);
    if (rank >= 0) watch_allocation(under_way->comms[rank], bytes);
    if (!refused.armed || rill__world_rank(refused.world) != refused.rank) return false;
    refused.count++;
    bool now = refused.from ? refused.count >= refused.at : refused.count == refused.at;
    refused.hits += now;
    return now;
}

static inline int is_faulty(const schedule *x, int rank, int call, fault_kind kind) {
    return x->s.fault == kind && x->s.fault_rank == rank && x->s.fault_call == call;
}
static inline void arm(schedule *x, int rank, int call) {
    if (is_faulty(x, rank, call, FAULT_MEMORY) || is_faulty(x, rank, call, FAULT_MEMORY_FROM))
        refused.armed = 1;
}
static inline void disarm(schedule *x, int rank) {
    if (rank == x->s.fault_rank) refused.armed = 0;
}

static inline void must(rill_status status, schedule *x, const char *what) {
    if (status != RILL_OK) wrong(&x->o, "%s: %s", what, rill_last_error());
}

/* ---- collectives ----------------------------------------------------------------------------- */

static inline rill_options options_of(const script_call *c) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = c->algorithm;
    o.codec = c->codec;
    o.partition = c->partition;
    o.value_bits = c->bits ? c->bits : -1;
    return o;
}

/* The call as a rank with other options makes it. */
static inline script_call with_other_options(const script_call *c) {
    script_call other = *c;
    if (c->seed % 2) other.bits = c->bits == 8 ? 0 : 8;
    else other.codec = c->codec && strcmp(c->codec, "raw") == 0 ? "bitpack" : "raw";
    return other;
}
/* What a call gives is not known then. */
static inline bool arguments_differ(const script *s) {
    return s->fault == FAULT_MISMATCH || s->fault == FAULT_OPTIONS;
}

static inline rill_status begin_blocking(const script_call *c, rill_comm *comm, pending *p) {
    rill_options o = options_of(c);
    const rill_op *op = op_rill(c->op, NULL);
    switch ((int)c->collective) {
    case RILL_ALLREDUCE: return rill_allreduce(comm, p->in, p->out, op, &o);
    case RILL_REDUCE: return rill_reduce(comm, p->in, p->out, op, c->root, &o);
    case RILL_REDUCE_SCATTER:
        return rill_reduce_scatter(comm, p->in, p->out, op, &p->first, &p->count, &o);
    case RILL_ALLGATHER: return rill_allgather(comm, p->in, p->out, &o);
    default: return rill_bcast(comm, p->in, c->root, &o);
    }
}

static inline rill_status begin_nonblocking(const script_call *c, rill_comm *comm, pending *p) {
    rill_options o = options_of(c);
    const rill_op *op = op_rill(c->op, NULL);
    rill_request **q = &p->request;
    switch ((int)c->collective) {
    case RILL_ALLREDUCE: return rill_iallreduce(comm, p->in, p->out, op, &o, q);
    case RILL_REDUCE: return rill_ireduce(comm, p->in, p->out, op, c->root, &o, q);
    case RILL_REDUCE_SCATTER:
        return rill_ireduce_scatter(comm, p->in, p->out, op, &p->first, &p->count, &o, q);
    case RILL_ALLGATHER: return rill_iallgather(comm, p->in, p->out, &o, q);
    default: return rill_ibcast(comm, p->in, c->root, &o, q);
    }
}

static inline rill_status begin_persistent(const script_call *c, rill_comm *comm, pending *p) {
    rill_options o = options_of(c);
    const rill_op *op = op_rill(c->op, NULL);
    rill_request **q = &p->request;
    switch ((int)c->collective) {
    case RILL_ALLREDUCE: return rill_allreduce_init(comm, p->in, p->out, op, &o, q);
    case RILL_REDUCE: return rill_reduce_init(comm, p->in, p->out, op, c->root, &o, q);
    case RILL_REDUCE_SCATTER:
        return rill_reduce_scatter_init(comm, p->in, p->out, op, &p->first, &p->count, &o, q);
    case RILL_ALLGATHER: return rill_allgather_init(comm, p->in, p->out, &o, q);
    default: return rill_bcast_init(comm, p->in, c->root, &o, q);
    }
}

/* Who only receives (a leaf of a broadcast, the root of a reduction) tells nobody that it has no
 * memory for its output: it must have it already. */
static inline bool needs_room(const script_call *c) {
    return c->collective == RILL_BCAST || c->collective == RILL_REDUCE;
}
static inline void make_room(schedule *x, const script_call *c, rill_stream *out) {
    model full = model_make(c->dim);
    memset(full.has, 1, c->dim);
    must(model_set_pairs(&full, out), x, "an output");
    must(rill_stream_to_dense(out), x, "an output");
    must(model_set_pairs(&full, out), x, "an output");
    must(rill_stream_clear(out), x, "an output");
    model_free(&full);
}

static inline void make_streams(schedule *x, int rank, int call, pending *p) {
    const script_call *c = &x->s.call[call];
    uint64_t dim = c->dim + (is_faulty(x, rank, call, FAULT_MISMATCH) ? 1 : 0);
    *p = (pending){.call = call};
    must(rill_stream_create(c->type, dim, &p->in), x, "rill_stream_create");
    if (c->in_place) p->out = p->in;
    else must(rill_stream_create(c->type, dim, &p->out), x, "rill_stream_create");
    if (needs_room(c) && dim == c->dim) {
        make_room(x, c, p->out);
        if (!c->in_place) make_room(x, c, p->in);
    }
    if (c->collective == RILL_BCAST && rank != c->root) return;
    model input = script_input(&x->s, c, rank);
    input.dim = c->dim;
    if (dim == c->dim)
        must(c->dense ? model_set_dense(&input, p->in) : model_set_pairs(&input, p->in), x,
             "an input");
    if (c->dense && dim == c->dim) must(rill_stream_to_dense(p->in), x, "rill_stream_to_dense");
    model_free(&input);
}

static inline void free_pending(pending *p) {
    rill_request_free(&p->request);
    if (p->out != p->in) rill_stream_free(&p->out);
    rill_stream_free(&p->in);
}

/* The range of reduce_scatter as expected, and nothing outside of it. */
static inline void check_range(schedule *x, const pending *p, const model *all) {
    model range = model_copy(all);
    for (uint64_t i = 0; i < all->dim; i++)
        if (i < p->first || i >= p->first + p->count) range.has[i] = 0;
    double got = 0;
    uint64_t at = model_compare(&range, p->out, &got);
    if (at < all->dim)
        wrong(&x->o, "call %d: entry %llu is %g, not %g", p->call, (unsigned long long)at, got,
              model_at(&range, at));
    model_free(&range);
    x->o.covered[p->call] += p->count;
}

static inline void check_result(schedule *x, int rank, const pending *p) {
    const script_call *c = &x->s.call[p->call];
    const rill_stream *out = c->collective == RILL_BCAST ? p->in : p->out;
    const char *reason = "";
    if (c->collective == RILL_REDUCE && rank != c->root) return;
    if (rill_stream_validate(out, &reason) != RILL_OK)
        wrong(&x->o, "call %d: invalid stream: %s", p->call, reason);
    if (c->collective != RILL_REDUCE && c->collective != RILL_REDUCE_SCATTER) {
        char dense[512 * 8];
        must(rill_stream_get_dense(out, dense), x, "rill_stream_get_dense");
        x->o.bits[p->call][rank] = hash_of(1, dense, rill_stream_dim(out) * value_size(c->type));
    }
    if (c->bits || arguments_differ(&x->s)) return;
    model *expected = &x->expected[p->call];
    if (!expected->value) *expected = script_expected(&x->s, c);
    if (c->collective == RILL_REDUCE_SCATTER) {
        check_range(x, p, expected);
        return;
    }
    double got = 0;
    uint64_t at = model_compare(expected, out, &got);
    if (at < expected->dim)
        wrong(&x->o, "call %d, rank %d: entry %llu is %g, not %g", p->call, rank,
              (unsigned long long)at, got, model_at(expected, at));
}

/* The end of a call on this rank. True: it was right. */
static inline bool end_call(schedule *x, int rank, const pending *p) {
    x->o.status[p->call + 1][rank] = p->status;
    if (p->status == RILL_OK) {
        check_result(x, rank, p);
        x->calls++;
    } else if (!rill_last_error()[0]) {
        x->o.mute++;
    }
    return p->status == RILL_OK;
}

static inline rill_status run_persistent(schedule *x, const script_call *c, rill_comm *comm,
                                         pending *p) {
    RILL_TRY(begin_persistent(c, comm, p));
    for (int i = 0; i < (c->in_place ? 1 : c->persistents); i++) {
        RILL_TRY(rill_start(p->request));
        RILL_TRY(rill_wait(p->request));
        watch_end(&x->o, p->call, p->request);
    }
    return RILL_OK;
}

/* Waits for all that is pending, and ends it. */
static inline bool wait_pending(schedule *x, int rank, pending *list, int n, uint64_t how) {
    rill_request *requests[MOST_CALLS];
    bool right = true;
    for (int i = 0; i < n; i++)
        requests[i] = list[i].request;
    if (how % 3 == 1) rill_waitall(n, requests);
    int done = -1;
    if (how % 3 == 2) rill_waitany(n, requests, &done);
    for (int i = n - 1; i >= 0; i--)
        if (list[i].request) list[i].status = rill_wait(list[i].request);
    disarm(x, rank);
    for (int i = 0; i < n; i++) {
        if (list[i].request) rill_wait(list[i].request); /* its detail, again */
        right &= end_call(x, rank, &list[i]);
        free_pending(&list[i]);
    }
    return right;
}

/* ---- reducers -------------------------------------------------------------------------------- */

static inline rill_status step(schedule *x, const script_call *c, rill_reducer *reducer, int rank,
                               int number, float *update) {
    float gradient[256];
    script_gradient(c, rank, number, gradient);
    if (c->mode == MODE_BLOCKING) return rill_reducer_step(reducer, gradient, update);
    RILL_TRY(rill_reducer_start(reducer, gradient, update));
    for (int done = 0, polls = 0; !done && polls < 3; polls++) {
        RILL_TRY(rill_reducer_test(reducer, &done));
        if (done) return RILL_OK;
        rill__world_yield(x->world);
    }
    rill_request *request = rill_reducer_request(reducer);
    return number % 2 ? rill_waitall(1, &request) : rill_reducer_wait(reducer);
}

static inline void keep_balance(schedule *x, int call, int rank, int number, const float *update,
                                const float *residual) {
    const script_call *c = &x->s.call[call];
    double *balance = x->balance[call];
    if (!balance) balance = x->balance[call] = calloc(c->dim, sizeof *balance);
    if (!balance) abort();
    float gradient[256];
    script_gradient(c, rank, number, gradient);
    double share = c->average ? x->s.ranks : 1;
    for (uint64_t i = 0; i < c->dim; i++) {
        balance[i] += gradient[i];
        if (rank == 0) balance[i] -= share * update[i];
        if (residual) balance[i] -= residual[i];
    }
}

static inline rill_status run_reducer(schedule *x, int call, int rank, rill_comm *comm) {
    const script_call *c = &x->s.call[call], other = with_other_options(c);
    if (is_faulty(x, rank, call, FAULT_OPTIONS)) c = &other;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = c->algorithm;
    o.codec = c->codec;
    o.select = c->select;
    o.value_bits = c->bits ? c->bits : -1;
    o.density = c->density;
    o.average = c->average;
    o.momentum = c->momentum;
    o.threshold_interval = o.repartition_interval = 2;
    rill_reducer *reducer = NULL;
    uint64_t dim = c->dim + (is_faulty(x, rank, call, FAULT_MISMATCH) ? 1 : 0);
    if (is_faulty(x, rank, call, FAULT_ARGUMENT)) o.algorithm = "no such thing";
    rill_status status = rill_reducer_create(comm, c->type, dim, &o, &reducer);
    float update[256];
    for (int i = 0; i < c->steps && status == RILL_OK; i++) {
        status = step(x, c, reducer, rank, i, update);
        if (status == RILL_OK) watch_end(&x->o, call, rill_reducer_request(reducer));
        if (status != RILL_OK || arguments_differ(&x->s)) continue;
        uint64_t *bits = &x->o.bits[call][rank];
        *bits = hash_of(*bits + 1, update, c->dim * sizeof *update);
        const float *residual = i == c->steps - 1 ? rill_reducer_residual(reducer) : NULL;
        keep_balance(x, call, rank, i, update, residual);
    }
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    disarm(x, rank);
    rill_reducer_free(&reducer);
    rill_error_set(status, detail);
    return status;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

/* True: the rank can make the next call. */
static inline bool make_call(schedule *x, int call, int rank, rill_comm *comm, pending *list,
                             int *n) {
    const script_call *c = &x->s.call[call], *next = call + 1 < x->s.calls ? c + 1 : NULL;
    x->o.at[rank] = call;
    if (is_faulty(x, rank, call, FAULT_ABSENT)) return false;
    if (c->collective == RILL_REDUCER) {
        arm(x, rank, call);
        pending p = {.call = call, .status = run_reducer(x, call, rank, comm)};
        x->o.status[call + 1][rank] = p.status;
        if (p.status != RILL_OK && !rill_last_error()[0]) x->o.mute++;
        x->calls += p.status == RILL_OK;
        return p.status == RILL_OK;
    }
    pending *p = &list[*n];
    int armed = refused.armed;
    disarm(x, rank); /* in a batch: the streams are the test's */
    make_streams(x, rank, call, p);
    refused.armed = armed;
    rill_stream *in = p->in;
    if (is_faulty(x, rank, call, FAULT_ARGUMENT)) p->in = NULL;
    arm(x, rank, call);
    script_call made = is_faulty(x, rank, call, FAULT_OPTIONS) ? with_other_options(c) : *c;
    if (c->mode == MODE_BLOCKING) p->status = begin_blocking(&made, comm, p);
    else if (c->mode == MODE_NONBLOCKING) p->status = begin_nonblocking(&made, comm, p);
    else p->status = run_persistent(x, &made, comm, p);
    if (c->mode == MODE_BLOCKING && p->status == RILL_OK) watch_end(&x->o, call, comm->idle);
    p->in = in;
    if (c->mode == MODE_NONBLOCKING) {
        ++*n;
        bool more = c->batch && next && next->collective != RILL_REDUCER &&
                    next->mode == MODE_NONBLOCKING;
        if (more && p->status == RILL_OK) return true;
        bool right = wait_pending(x, rank, list, *n, c->seed + (uint64_t)rank);
        *n = 0;
        return right;
    }
    disarm(x, rank);
    bool right = end_call(x, rank, p);
    free_pending(p);
    return right;
}

static inline rill_status look_up(const void *context, const char *name, char *value, size_t length,
                                  bool *found) {
    const script *s = context;
    if (!s->hosts || strcmp(name, "hosts_of") != 0) return RILL_OK;
    snprintf(value, length, "%d", s->hosts);
    *found = true;
    return RILL_OK;
}

static inline void run_rank(int rank, void *context) {
    schedule *x = context;
    rill_config config = RILL_CONFIG_INIT;
    config.check = x->s.check;
    config.split_limit = x->s.split_limit;
    rill_comm *comm = NULL;
    pending list[MOST_CALLS + 1];
    int n = 0;
    x->o.at[rank] = -1;
    arm(x, rank, -1);
    rill_status status = rill__comm_open(rill__world_link(x->world, rank), &config,
                                         &(rill__info){look_up, &x->s}, &comm);
    disarm(x, rank);
    x->comms[rank] = comm;
    x->o.status[0][rank] = status;
    if (comm && x->s.memory) comm->planner.memory = x->s.memory;
    for (int call = 0; status == RILL_OK && call < x->s.calls; call++)
        if (!make_call(x, call, rank, comm, list, &n)) break;
    if (n) wait_pending(x, rank, list, n, 0);
    x->o.at[rank] = MOST_CALLS;
    x->comms[rank] = NULL;
    if (status == RILL_OK) must(rill_comm_free(&comm), x, "rill_comm_free");
}

#endif
