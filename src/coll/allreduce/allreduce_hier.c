/* hier: the ranks of a host combine, and one leader per host talks to the others.
 *
 * Idea. Each rank of a host puts its contribution where the others of the host can read it: into
 * shared memory (req/shared.h). Up to SUMMERS of them, the leader first, each sum one range of the
 * indices over all contributions, in place; the leader puts the sums together. The leaders exchange
 * the sums of their hosts, and hand the result to the ranks of their host. What several ranks of a
 * host have in common crosses the network once, and once for all of them it comes back. Two
 * leaders, or leaders of short vectors, send each other all they have; more split it by ranges, as
 * split_allgather does. Which, and how many ranges a host has, depends on the hosts and the
 * dimension alone, and all sums are in the order of hosts: the bits are the same whatever was
 * called before. On one host there is no leader: each range goes to all ranks of it, and each puts
 * them together for itself.
 * Source. Beyond the papers of the project; as MPI's hierarchical collectives for dense vectors.
 * Restriction. None. The order of sums is that of ranks within a host, then that of hosts: where
 * the ranks of a host do not follow each other, it is not that of all ranks.
 * Memory. Of shared memory, the contribution, and on the leader the result, on one host a sum of a
 * range; where there is too little the parts go by message. Leaders: the sums of the host and the
 * exchange.
 * Cost, for H hosts of n ranks, m = min(n, SUMMERS) ranges, K(n) entries in the sum of n
 * contributions and within a host h latency of a message (all but the exchange is only on hosts of
 * several ranks):
 *        (n + m) h + k pair copy + n k/m sum + K(n)/m pair copy      contributions, sums of ranges
 *      + K(n) pair 2 copy                                            put together
 *      + gather of K(n) pairs + H K(n) sum                           two leaders, or short vectors
 *        or split_allgather's cost for H ranks with K(n) pairs       more
 *      + n h + K pair 2 copy                                         result
 * and on one host, with m = n ranges,
 *        2 h + 2 (n - 2) messages + k pair copy + n k/m sum + K/m pair copy + K pair 2 copy,
 * where all pairs cost their message, too, if its ranks share no memory. */
#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "coll/patterns/host_ranges.h"
#include "coll/patterns/split_gather.h"

#include <math.h>

/* Ranks of a host that sum: more would wait for the same memory. */
enum { SUMMERS = 8 };
/* Dimension up to which leaders send each other all they have, in few rounds. */
enum { SHORT_VECTOR = 2048 };

typedef struct state {
    int stage;
    rill__host_ranges here; /* among the ranks of this host */
    rill__part sum;         /* of the host, on its leader */
    bool started;
    union {
        rill__gather gather;
        rill__split_gather split;
    } leaders;
} state;

enum { WITHIN_HOST = 1, AMONG_HOSTS, RECEIVING };

static int ranges_of(uint64_t dim, int ranks, int hosts) {
    return rill__host_ranges_of(dim, hosts > 1 && ranks > SUMMERS ? SUMMERS : ranks);
}
static bool sends_all(uint64_t dim, int hosts) { return hosts == 2 || dim <= SHORT_VECTOR; }

/* ---- cost ------------------------------------------------------------------------------------ */

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

/* The problem of the leaders. */
static rill__problem among_hosts(const rill__problem *p, int hosts, int ranks) {
    rill__problem q = *p;
    q.ranks = q.hosts = hosts;
    q.most_per_host = 1;
    q.takes_sums = ranks > 1;
    q.nnz = rill__expected_union(p, ranks);
    q.nnz_max = fmin(q.nnz * (p->nnz > 0 ? p->nnz_max / p->nnz : 1), (double)p->dim);
    q.result = fmax(p->result, q.nnz);
    return q;
}

static double sum_bytes(const rill__problem *q) {
    return rill__form_bytes(q, q->nnz_max, (double)q->dim) + RILL__SHORT_BYTES;
}

static double estimate_leaders(const rill__problem *q) {
    if (q->ranks == 1) return 0;
    double sum = q->ranks == 2 ? q->c->merge : q->c->sum;
    if (sends_all(q->dim, q->ranks)) {
        double bytes = sum_bytes(q);
        return rill__gather_estimate(q, rill__gather_choose(q, bytes), bytes) +
               q->ranks * q->nnz * sum + (q->ranks + 1) * bytes * q->transcode / 2;
    }
    return rill__split_estimate(q) + q->nnz * rill__owner_share(q) * sum +
           rill__owners_gather_estimate(q, false);
}

static double estimate(const rill__problem *p) {
    int hosts = p->hosts, ranks = p->most_per_host, ranges = ranges_of(p->dim, ranks, hosts);
    const rill__constants *c = p->c;
    if (hosts == 1) return rill__host_ranges_estimate(p, ranges, RILL__READ_BY_ALL);
    rill__host_way w = rill__host_way_of(p, RILL__THIS_HOST);
    rill__problem q = among_hosts(p, hosts, ranks);
    double turn = rill__turn_estimate(p) / (sends_all(p->dim, hosts) ? 1 : hosts);
    double time = c->overhead + rill__prepare_estimate(p) + turn + estimate_leaders(&q);
    if (ranks > 1) {
        double own = rill__host_bytes(p, p->nnz_max), host = rill__host_bytes(p, q.nnz);
        double all = rill__host_bytes(p, p->result);
        time += (2 * ranks + ranges) * w.latency + own * (c->copy + w.byte) +
                ranks * p->nnz / ranges * c->sum + host / ranges * (c->copy + w.byte);
        time += host * (2 * c->copy + w.byte) + all * 2 * c->copy + (ranks - 1) * all * w.byte;
    }
    /* With a rank a host it is what the leaders do, which the table has: rounding must not choose
     * it. */
    return ranks > 1 ? time : time * (1 + 1e-9);
}

/* ---- within the host ------------------------------------------------------------------------- */

/* The leader's input among the hosts is the sum of its own. */
static rill_status put_together(rill__run *run, const rill__host_ranges *x, rill__part *sum) {
    if (rill__run_failed(run)) return RILL_OK;
    if (x->ranges > 1) return rill__run_assemble(run, x->ranges, x->parts, sum);
    *sum = run->piece[1].part;
    return RILL_OK;
}

static void collect(rill__run *run, state *s) {
    s->sum = rill__part_empty(0, run->dim);
    rill_status status = put_together(run, &s->here, &s->sum);
    if (status != RILL_OK) {
        rill__run_fail(run, status);
        s->sum = rill__part_empty(0, run->dim);
    }
    rill__host_ranges_release(run, &s->here);
}

static rill_status receive_result(rill__run *run) {
    rill__host_part result;
    rill__header header;
    rill_status status = rill__host_take(run, RILL__THIS_HOST, 0, RILL__LANE_B, 0, run->dim,
                                         &result, &header);
    if (status != RILL_OK) return status;
    rill__host_check(run, &result);
    if (!rill__run_failed(run)) {
        rill__run_count_anew(run, &header, 0);
        status = rill__finish_copy(run, &result.part);
    }
    rill__host_release(run, &result);
    return status;
}

/* ---- among the hosts ------------------------------------------------------------------------- */

static rill_status gather_sums(rill__run *run, rill__gather *g) {
    rill_status status = rill__gather_step(run, g);
    if (status != RILL_OK) return status;
    int hosts = g->group.n;
    rill__part *parts = rill__run_alloc(run, (size_t)hosts, sizeof *parts);
    if (!parts) return RILL_ERR_MEMORY;
    rill__gather_parts(run, g, parts);
    for (int i = 0; i < hosts; i++)
        if (i != g->group.me) rill__run_count(run, &g->messages[i].header);
    rill__run_sum(run, 0, run->dim, hosts, parts, false, &run->piece[0]);
    return rill__finish_piece(run, &run->piece[0]);
}

/* How uneven the leaders' ranges are the ranks of their hosts do not learn: nobody may go by it. */
static rill_status split_sums(rill__run *run, rill__split_gather *split) {
    rill_status status = rill__split_gather_step(run, split);
    run->skew = 0;
    return status;
}

static rill_status start_leader(rill__run *run, state *s, bool all) {
    const rill__hosts *hosts = run->hosts;
    rill__group leaders = {hosts->n, hosts->mine, hosts->leader};
    rill__problem q = among_hosts(run->problem, hosts->n, hosts->most);
    s->started = true;
    if (!all) {
        rill__split_gather *split = &s->leaders.split;
        split->split.group = leaders;
        split->split.input = &s->sum;
        rill__split_gather_begin(run, split, &q, false);
        return RILL_OK;
    }
    rill__parcel *mine;
    RILL_TRY(rill__run_encode(run, &run->coding, &s->sum, &mine));
    return rill__gather_start_among(run, &s->leaders.gather, &leaders,
                                    rill__gather_choose(&q, sum_bytes(&q)), mine);
}

static rill_status step_leader(rill__run *run, state *s) {
    bool all = sends_all(run->dim, run->hosts->n);
    if (!s->started) RILL_TRY(start_leader(run, s, all));
    return all ? gather_sums(run, &s->leaders.gather) : split_sums(run, &s->leaders.split);
}

static void start(const rill__run *run, state *s) {
    const rill__hosts *hosts = run->hosts;
    bool one_host = hosts->n == 1;
    s->sum = *run->input;
    s->here = (rill__host_ranges){.circle = RILL__THIS_HOST,
                                  .n = hosts->here,
                                  .me = hosts->place,
                                  .ranges = ranges_of(run->dim, hosts->here, hosts->n),
                                  .reader = one_host ? RILL__READ_BY_ALL : 0,
                                  .ends = one_host};
    s->stage = hosts->here == 1 ? AMONG_HOSTS : WITHIN_HOST;
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    const rill__hosts *hosts = run->hosts;
    rill_status status;
    if (!s->stage) start(run, s);
    if (s->stage == WITHIN_HOST) {
        status = rill__host_ranges_step(run, &s->here);
        if (status != RILL_OK) return status;
        if (hosts->n == 1) return rill__host_ranges_finish(run, &s->here);
        if (hosts->place == 0) collect(run, s);
        s->stage = hosts->place ? RECEIVING : AMONG_HOSTS;
    }
    if (s->stage == RECEIVING) return receive_result(run);
    status = step_leader(run, s);
    if (status != RILL_OK)
        return status; /* a leader that cannot go on aborts: others wait for it, too */
    rill__part result = rill__part_empty(0, run->dim);
    if (!rill__run_failed(run)) result = rill__run_result(run);
    return rill__host_give(run, RILL__THIS_HOST, 1, hosts->here, RILL__LANE_B, &result);
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
