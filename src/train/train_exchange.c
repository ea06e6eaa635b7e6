/* Sums of the ranks' gradients: at once, or some steps later.
 *
 * Idea: a ring of staleness + 1 slots, each with its streams and its request. put() starts a sum,
 * take() waits for the oldest one when more than so many are under way. With staleness s the sum of
 * step t is applied in step t + s, never earlier: the order of updates does not depend on the
 * network, so that runs repeat to the bit, while s sums travel as the next batches are computed.
 * An exchange lives for one epoch, and its planner knows nothing of earlier ones (rill__team_comm).
 * The algorithm "dense" at staleness 0 is the program that knows no sparse sums: MPI_Allreduce of
 * whole vectors, and nothing of ours around it. Where there is no MPI it is rill's own.
 * Memory: 2 (staleness + 1) streams, each as large as a sum; dense 2 n floats. On one rank nothing
 * is sent or copied.
 */
#include "train/train_exchange.h"

#include <stdlib.h>
#include <string.h>

typedef struct exchange_slot {
    rill_stream *in, *out;
    rill_request *request;
} exchange_slot;

struct rill__exchange {
    rill__team *team;
    uint64_t n;
    rill_comm *comm; /* the team's */
    rill_options options;
    int slots, busy, first; /* first: the oldest of busy slots */
    exchange_slot *slot;
    uint64_t bytes;
    rill__sum_view alone; /* one rank: what was put */
    float *dense;         /* by MPI_Allreduce: n of this rank, 0 between calls, and n of the sum */
};

static bool is_by_mpi(const rill__team *t, const rill_train_options *o) {
    return t->mpi && o->algorithm && !strcmp(o->algorithm, "dense") && !o->staleness &&
           !o->value_bits;
}

rill_status rill__exchange_prepare(rill__team *t, const rill_train_options *o) {
    bool alone = t->ranks == 1 && !o->staleness;
    return alone || is_by_mpi(t, o) ? RILL_OK : rill__team_comm(t);
}

/* Once the team has its communicator. */
static rill_status open_alone(rill__team *t, const rill_train_options *o, uint64_t n,
                              rill__exchange **out) {
    rill__exchange *x = calloc(1, sizeof *x);
    *out = x;
    if (!x) return rill__data_memory("the exchange");
    x->team = t;
    x->n = n;
    if (t->ranks == 1 && !o->staleness) return RILL_OK;
    if (is_by_mpi(t, o)) {
        x->dense = calloc(2 * (size_t)n + 2, sizeof *x->dense);
        return x->dense ? RILL_OK : rill__data_memory("the exchange");
    }
    x->options = (rill_options)RILL_OPTIONS_INIT;
    x->options.algorithm = o->algorithm;
    x->options.codec = o->codec;
    x->options.value_bits = o->value_bits;
    /* Frequent features have low numbers in most data, so that equal ranges are uneven parts; the
     * planner would find out in the first exchange of each epoch, which then is as slow as its
     * largest part. */
    x->options.partition = "balanced";
    x->comm = t->comm;
    x->slot = calloc((size_t)o->staleness + 1, sizeof *x->slot);
    if (!x->slot) return rill__data_memory("the exchange");
    x->slots = o->staleness + 1;
    for (int i = 0; i < x->slots; i++) {
        RILL_TRY_DATA(rill_stream_create(RILL_F32, n, &x->slot[i].in));
        RILL_TRY_DATA(rill_stream_create(RILL_F32, n, &x->slot[i].out));
    }
    return RILL_OK;
}

rill_status rill__exchange_open(rill__team *t, const rill_train_options *o, uint64_t n,
                                rill__exchange **out) {
    RILL_TRY_DATA(rill__exchange_prepare(t, o));
    return rill__team_agree(t, open_alone(t, o, n, out));
}

void rill__exchange_close(rill__exchange **exchange) {
    rill__exchange *x = *exchange;
    if (!x) return;
    for (int i = 0; i < x->slots; i++) {
        rill_request_free(&x->slot[i].request);
        rill_stream_free(&x->slot[i].in);
        rill_stream_free(&x->slot[i].out);
    }
    free(x->slot);
    free(x->dense);
    free(x);
    *exchange = NULL;
}

uint64_t rill__exchange_bytes(const rill__exchange *x) { return x ? x->bytes : 0; }

/* Whole vectors by MPI. One more value tells how many ranks
 * have failed. */
static rill_status sum_dense(rill__exchange *x, bool failed, uint64_t n, const uint32_t *idx,
                             const float *value) {
    rill__team *t = x->team;
    float *mine = x->dense, *all = x->dense + x->n + 1;
    for (uint64_t i = 0; i < n; i++)
        mine[idx[i]] = value[i];
    mine[x->n] = failed;
    RILL_TRY_DATA(rill__team_meet(t));
    double began = rill__now();
    RILL_TRY_DATA(rill__mpi_sum(t->mpi, mine, all, x->n + 1));
    rill_stats stats = RILL_STATS_INIT; /* what the best algorithms send */
    stats.sent_bytes = 2 * x->n * sizeof(float) / (uint64_t)t->ranks * (uint64_t)(t->ranks - 1);
    stats.algorithm = "dense";
    rill__team_account(t, began, &stats);
    for (uint64_t i = 0; i < n; i++)
        mine[idx[i]] = 0;
    if (all[x->n] > 0) return rill__data_fail(RILL_ERR_MPI, "rank ?: has failed");
    x->alone = (rill__sum_view){x->n, NULL, all};
    x->bytes = 2 * x->n * sizeof(float);
    x->busy = 1;
    return RILL_OK;
}

rill_status rill__exchange_put(rill__exchange *x, uint64_t n, const uint32_t *idx,
                               const float *value) {
    if (x->dense) return sum_dense(x, false, n, idx, value);
    if (!x->slot) {
        x->alone = (rill__sum_view){n, idx, value};
        x->busy = 1;
        return RILL_OK;
    }
    exchange_slot *s = &x->slot[(x->first + x->busy) % x->slots];
    RILL_TRY_DATA(rill_stream_set_pairs(s->in, n, idx, value));
    RILL_TRY_DATA(rill__team_meet(x->team));
    double began = rill__now();
    rill_status status;
    rill_stats stats = RILL_STATS_INIT;
    if (x->slots == 1) {
        status = rill_allreduce(x->comm, s->in, s->out, RILL_SUM, &x->options);
        rill_comm_stats(x->comm, &stats);
        rill__team_account(x->team, began, &stats);
    } else {
        rill_request_free(&s->request);
        status = rill_iallreduce(x->comm, s->in, s->out, RILL_SUM, &x->options, &s->request);
        rill__team_account(x->team, began, NULL);
    }
    x->busy++;
    uint64_t held = 8 * (n + rill_stream_nnz(s->out)) * (uint64_t)x->slots;
    if (held > x->bytes) x->bytes = held;
    return status;
}

/* With a barrier before it nobody comes to MPI's sum: the others learn it there. */
rill_status rill__exchange_refuse(rill__exchange *x, rill_status mine) {
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    if (x->dense && !x->team->profiled) sum_dense(x, true, 0, NULL, NULL);
    return rill_error_set(mine, detail);
}

rill_status rill__exchange_take(rill__exchange *x, int pending, bool *has, rill__sum_view *sum) {
    *has = x->busy > pending;
    if (!*has) {
        if (x->comm && x->busy) return rill_progress(x->comm);
        return RILL_OK;
    }
    x->busy--;
    if (!x->slot) {
        *sum = x->alone;
        return RILL_OK;
    }
    exchange_slot *s = &x->slot[x->first];
    x->first = (x->first + 1) % x->slots;
    if (s->request) {
        double began = rill__now();
        rill_stats stats = RILL_STATS_INIT;
        RILL_TRY_DATA(rill_wait(s->request));
        rill_request_stats(s->request, &stats);
        rill__team_account(x->team, began, &stats);
    }
    *sum = (rill__sum_view){rill_stream_nnz(s->out), rill_stream_indices32(s->out),
                            rill_stream_values(s->out)};
    return RILL_OK;
}

rill_status rill__exchange_dense(rill__team *t, const rill_options *how, rill_stream *stream,
                                 float *vector) {
    if (t->ranks == 1) return RILL_OK;
    rill_stats stats = RILL_STATS_INIT;
    RILL_TRY_DATA(rill_stream_set_dense(stream, vector));
    RILL_TRY_DATA(rill__team_meet(t));
    double began = rill__now();
    RILL_TRY_DATA(rill_allreduce(t->comm, stream, stream, RILL_SUM, how));
    rill_comm_stats(t->comm, &stats);
    rill__team_account(t, began, &stats);
    return rill_stream_get_dense(stream, vector);
}
