/* hier: the ranks of a host combine, and one leader per host talks to the others.
 *
 * Idea. Each rank of a host puts its contribution where the others of the host can read it: into shared
 *   memory (req/shared.h). Up to SUMMERS of them, the leader first, each sum one range of the indices over
 *   all contributions, in place; the leader puts the sums together. The leaders exchange the sums of their
 *   hosts, and hand the result to the ranks of their host. What several ranks of a host have in common
 *   crosses the network once, and once for all of them it comes back.
 *   Two leaders, or leaders of short vectors, send each other all they have; more split it by ranges, as
 *   split_allgather does. Which, and how many ranges a host has, depends on the hosts and the dimension
 *   alone, and all sums are in the order of hosts: the bits are the same whatever was called before.
 * Source. Beyond the papers of the project; as MPI's hierarchical collectives for dense vectors.
 * Restriction. None. The order of sums is that of ranks within a host, then that of hosts: where the ranks
 *   of a host do not follow each other, it is not that of all ranks.
 * Memory. Of shared memory, the contribution, and on the leader the result; where that is too small the
 *   parts go by message. Leaders: the sums of the host and the exchange.
 * Cost, for H hosts of n ranks, m = min(n, SUMMERS) ranges, K(n) entries in the sum of n contributions and
 *   within a host h latency of a message (all but the exchange is only on hosts of several ranks):
 *        (n + m) h + k pair copy + n k/m sum + K(n)/m pair copy      contributions, sums of ranges
 *      + K(n) pair 2 copy                                            put together
 *      + gather of K(n) pairs + H K(n) sum                           two leaders, or short vectors
 *        or split_allgather's cost for H ranks with K(n) pairs       more
 *      + n h + K pair 2 copy                                         result
 *   On one host, where there is no shared memory unless asked for, all pairs cost their message. */
#include "coll/allreduce/allreduce.h"
#include "coll/patterns/host_parts.h"
#include "coll/patterns/split_gather.h"

#include <math.h>

/* Ranks of a host that sum: more would wait for the same memory. */
enum { SUMMERS = 8 };
/* Indices of a range, at least. */
enum { LEAST_RANGE = 16384 };
/* Dimension up to which leaders send each other all they have, in few rounds. */
enum { SHORT_VECTOR = 2048 };

typedef struct state {
    int stage;
    int received;           /* parts of this stage */
    rill__host_part *taken; /* of each rank of this host, or of each range */
    rill__part *parts;
    bool started;
    union {
        rill__gather gather;
        rill__split_gather split;
    } leaders;
} state;

enum { GIVING, SUMMING, COLLECTING, AMONG_HOSTS, RECEIVING };

static int ranges_of(uint64_t dim, int ranks) {
    uint64_t most = rill__min_u64((uint64_t)ranks, SUMMERS);
    return (int)rill__max_u64(1, rill__min_u64(dim / LEAST_RANGE, most));
}
static bool sends_all(uint64_t dim, int hosts) { return hosts == 2 || dim <= SHORT_VECTOR; }

/* ---- cost ------------------------------------------------------------------------------------------- */

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

/* The problem of the leaders. */
static rill__problem among_hosts(const rill__problem *p, int hosts, int ranks) {
    rill__problem q = *p;
    q.ranks = q.hosts = hosts;
    q.most_per_host = 1;
    q.sums_bits = p->sums_bits && ranks == 1; /* sums are dense */
    q.nnz = rill__expected_union(p, ranks);
    q.nnz_max = fmin(q.nnz * (p->nnz > 0 ? p->nnz_max / p->nnz : 1), (double)p->dim);
    q.result = fmax(p->result, q.nnz);
    return q;
}

static double sum_bytes(const rill__problem *q) {
    return rill__form_bytes(q, q->nnz_max, (double)q->dim) + RILL__SHORT_BYTES;
}
static double owned_bytes(const rill__problem *q) {
    return rill__form_bytes(q, q->result / q->ranks, (double)q->dim / q->ranks) + RILL__SHORT_BYTES;
}

static double estimate_leaders(const rill__problem *q) {
    if (q->ranks == 1) return 0;
    double sum = q->ranks == 2 ? q->c->merge : q->c->sum;
    if (sends_all(q->dim, q->ranks)) {
        double bytes = sum_bytes(q);
        return rill__gather_estimate(q, rill__gather_choose(q, bytes), bytes) +
               q->ranks * q->nnz * sum + (q->ranks + 1) * bytes * q->handle / 2;
    }
    double bytes = owned_bytes(q);
    return rill__split_estimate(q) + q->nnz * rill__owner_share(q) * sum +
           rill__gather_estimate(q, rill__gather_choose(q, bytes), bytes) +
           (q->ranks + 1) * bytes * q->handle;
}

/* What a message and a byte cost within a host. */
typedef struct within {
    double latency, byte;
} within;
static within within_host(const rill__constants *c, int hosts) {
    /* In shared memory bytes are copied once, and only the word about them is a message. */
    return (within){c->host_latency, hosts > 1 ? 0 : c->host_byte};
}

static double estimate(const rill__problem *p) {
    int hosts = p->hosts, ranks = p->most_per_host, ranges = ranges_of(p->dim, ranks);
    const rill__constants *c = p->c;
    within w = within_host(c, hosts);
    rill__problem q = among_hosts(p, hosts, ranks);
    double turn = rill__turn_estimate(p) / (sends_all(p->dim, hosts) ? 1 : hosts);
    double time = c->overhead + rill__prepare_estimate(p) + turn + estimate_leaders(&q);
    if (ranks > 1) {
        double pair = p->index_bytes + (double)rill__type_size(p->type);
        double dense = (double)p->dim * (double)rill__type_size(p->type);
        double own = fmin(p->nnz_max * pair, dense), host = fmin(q.nnz * pair, dense);
        double all = fmin(p->result * pair, dense);
        time += (2 * ranks + ranges) * w.latency + own * (c->copy + w.byte) +
                ranks * p->nnz / ranges * c->sum + host / ranges * (c->copy + w.byte);
        time += host * (2 * c->copy + w.byte) + all * 2 * c->copy + (ranks - 1) * all * w.byte;
    }
    /* With a rank a host it is what the leaders do, which the table has: rounding must not choose it. */
    return ranks > 1 ? time : time * (1 + 1e-9);
}

/* ---- within the host ---------------------------------------------------------------------------------- */

static uint64_t range_first(const rill_request *r, int range, int ranges) {
    return rill__uniform_bound(r->task.expect.dim, range, ranges);
}

/* The parts of the n ranks at the first places, this one's being own; each of the range that the place is
 * asked for. statistics: whether they speak for their ranks. */
static rill_status take_parts(rill_request *r, state *s, int n, int lane, const rill__part *own,
                              bool inputs, int ranges) {
    int me = r->task.engine->hosts.place;
    if (!s->taken) {
        s->taken = rill__request_alloc(r, (size_t)n, sizeof *s->taken);
        s->parts = rill__request_alloc(r, (size_t)n, sizeof *s->parts);
        if (!s->taken || !s->parts) return RILL_ERR_MEMORY;
    }
    for (; s->received < n; s->received++) {
        int i = s->received, range = inputs ? me : i;
        uint64_t first = range_first(r, range, ranges);
        if (i == me) {
            s->parts[i] = *own;
            continue;
        }
        rill__header header;
        rill_status status = rill__host_take(r, i, lane, first,
                                             range_first(r, range + 1, ranges) - first,
                                             &s->taken[i], &header);
        if (status != RILL_OK) return status;
        if (inputs && header.form != RILL__M_FAILED) rill__add_nnz(r, &header);
        s->parts[i] = s->taken[i].part;
    }
    return RILL_OK;
}

static void release_parts(rill_request *r, state *s) {
    for (int i = 0; i < s->received; i++)
        rill__host_release(r, &s->taken[i]);
    s->taken = NULL;
    s->received = 0;
}

/* This rank's range of the host's sum, to request->piece[1]. */
static rill_status sum_range(rill_request *r, state *s, int ranges) {
    const rill__hosts *hosts = &r->task.engine->hosts;
    uint64_t first = range_first(r, hosts->place, ranges);
    uint64_t range = range_first(r, hosts->place + 1, ranges) - first;
    rill__part own = rill__part_slice(r->task.shape, &r->input, first, range);
    rill_status status = take_parts(r, s, hosts->here, RILL__LANE_A, &own, true, ranges);
    if (status != RILL_OK) return status;
    rill__request_sum(r, first, range, hosts->here, s->parts, false, &r->piece[1]);
    release_parts(r, s);
    return RILL_OK;
}

/* The leader's input among the hosts is the sum of its own; on a single host it is the result. */
static rill_status put_together(rill_request *r, int ranges, const rill__part *parts) {
    bool last = r->task.engine->hosts.n == 1;
    if (rill__task_failed(&r->task)) {
        r->input = rill__part_empty(0, r->task.expect.dim);
        return RILL_OK;
    }
    if (ranges == 1) {
        r->input = r->piece[1].part;
        return last ? rill__finish_piece(r, &r->piece[1]) : RILL_OK;
    }
    if (last) return rill__finish_parts(r, ranges, parts);
    rill_stream *sum = &r->normal;
    sum->type = r->task.shape.type;
    sum->index_bytes = r->task.shape.index_bytes;
    sum->dim = r->task.expect.dim;
    RILL_TRY(rill__stream_assemble(sum, r->fill, ranges, parts));
    r->input = rill__stream_part(sum);
    return RILL_OK;
}

static rill_status collect(rill_request *r, state *s, int ranges) {
    rill_status status = take_parts(r, s, ranges, RILL__LANE_B, &r->piece[1].part, false, ranges);
    if (status != RILL_OK) return status;
    status = put_together(r, ranges, s->parts);
    if (status != RILL_OK) {
        rill__task_fail(&r->task, status);
        r->input = rill__part_empty(0, r->task.expect.dim);
    }
    release_parts(r, s);
    return RILL_OK;
}

static rill_status receive_result(rill_request *r) {
    rill__host_part result;
    rill__header header;
    rill_status status = rill__host_take(r, 0, RILL__LANE_B, 0, r->task.expect.dim, &result,
                                         &header);
    if (status != RILL_OK) return status;
    if (!rill__task_failed(&r->task)) {
        r->task.nnz_sum = header.nnz_sum;
        r->task.nnz_max = header.nnz_max;
        status = rill__stream_set_part(r->out, r->fill, &result.part);
    }
    rill__host_release(r, &result);
    return status;
}

/* ---- among the hosts ---------------------------------------------------------------------------------- */

static rill_status gather_sums(rill_request *r, rill__gather *g) {
    rill_status status = rill__gather_step(r, g);
    if (status != RILL_OK) return status;
    int hosts = g->group.n;
    rill__part *parts = rill__request_alloc(r, (size_t)hosts, sizeof *parts);
    if (!parts) return RILL_ERR_MEMORY;
    rill__gather_parts(r, g, parts);
    for (int i = 0; i < hosts; i++)
        if (i != g->group.me) rill__add_nnz(r, &g->messages[i].header);
    rill__request_sum(r, 0, r->task.expect.dim, hosts, parts, false, &r->piece[0]);
    return rill__finish_piece(r, &r->piece[0]);
}

/* How uneven the leaders' ranges are the ranks of their hosts do not learn: nobody may go by it. */
static rill_status split_sums(rill_request *r, rill__split_gather *split, double bytes) {
    rill_status status = rill__split_gather_step(r, split, false, bytes);
    r->skew = 0;
    return status;
}

static rill_status step_leader(rill_request *r, state *s) {
    const rill__hosts *hosts = &r->task.engine->hosts;
    if (hosts->n == 1) return RILL_OK;
    rill__group leaders = {hosts->n, hosts->mine, hosts->leader};
    bool all = sends_all(r->task.expect.dim, hosts->n);
    rill__problem q = among_hosts(&r->problem, hosts->n, hosts->most);
    if (all && !s->started) {
        rill__block *mine;
        RILL_TRY(rill__encode(&r->task, &r->input, &mine));
        RILL_TRY(rill__gather_start_among(r, &s->leaders.gather, &leaders,
                                          rill__gather_choose(&q, sum_bytes(&q)), mine));
    }
    if (!all) s->leaders.split.split.group = leaders;
    s->started = true;
    return all ? gather_sums(r, &s->leaders.gather)
               : split_sums(r, &s->leaders.split, owned_bytes(&q));
}

static rill_status step(rill_request *r) {
    state *s = r->state.data;
    const rill__hosts *hosts = &r->task.engine->hosts;
    int ranges = ranges_of(r->task.expect.dim, hosts->here), me = hosts->place;
    rill_status status;
    if (s->stage == GIVING) {
        RILL_TRY(rill__host_give_ranges(r, 0, ranges, RILL__LANE_A, &r->input));
        s->stage = hosts->here == 1 ? AMONG_HOSTS : me < ranges ? SUMMING : RECEIVING;
    }
    if (s->stage == SUMMING) {
        status = sum_range(r, s, ranges);
        if (status != RILL_OK) return status;
        if (me) RILL_TRY(rill__host_give(r, 0, 1, RILL__LANE_B, &r->piece[1].part));
        s->stage = me ? RECEIVING : COLLECTING;
    }
    if (s->stage == COLLECTING) {
        status = collect(r, s, ranges);
        if (status != RILL_OK) return status;
        s->stage = AMONG_HOSTS;
    }
    if (s->stage == RECEIVING) return receive_result(r);
    status = step_leader(r, s);
    if (status == RILL_IN_PROGRESS) return status;
    if (status != RILL_OK) rill__task_fail(&r->task, status);
    rill__part result = rill__part_empty(0, r->task.expect.dim);
    if (!rill__task_failed(&r->task)) result = rill__stream_part(r->out);
    return rill__host_give(r, 1, hosts->here, RILL__LANE_B, &result);
}

const rill__algorithm rill__allreduce_hier = {
    .name = "hier",
    .description = "ranks of a host combine in shared memory, one leader per host talks",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
    .joins_hosts = true,
};
