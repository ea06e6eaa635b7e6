/* allgather: every rank gathers all contributions and sums them itself.
 *
 * Idea. No reduction on the way, so one pattern of messages and a P-way sum at the end.
 * Source. TopkA; what PyTorch and Horovod do for sparse gradients.
 * Restriction. None. Memory and time grow with P.
 * Memory. All P contributions.
 * Cost.  gather of k pairs (see patterns/gather.h) + P k sum + P k pair copy
 *      + K scatter + N size dense_add                        where the sum turns dense
 * Away: the same gather, and, with b bytes of a message,
 *        2 errands + b (out + copy + P in) + k code + P (k (sum + finding fano) + list) */
#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "coll/patterns/gather.h"

typedef struct state {
    bool started, gathered;
    rill__gather gather;
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double own_bytes(const rill__problem *p) {
    return rill__input_bytes(p, p->nnz_max, (double)p->dim) + RILL__SHORT_BYTES;
}

static double estimate(const rill__problem *p) {
    double bytes = own_bytes(p);
    return p->c->overhead + rill__prepare_estimate(p) +
           rill__gather_estimate(p, rill__gather_choose(p, bytes), bytes) +
           rill__sum_estimate(p, p->ranks, p->ranks * p->nnz, (double)p->dim) +
           (p->ranks + 1) * bytes * p->transcode / 2 + rill__turn_estimate(p);
}

static double estimate_away(const rill__problem *p) {
    const rill__device_constants *d = p->device;
    double bytes = own_bytes(p);
    return p->c->overhead + rill__gather_estimate(p, rill__gather_choose(p, bytes), bytes) +
           2 * d->errand + bytes * (d->out + p->c->copy + p->ranks * d->in) + p->nnz * d->code +
           p->ranks * (p->nnz * (d->sum + p->codec->finding * p->c->fano) + d->list);
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    int size = run->size;
    rill_status status;
    if (!s->started) {
        rill__parcel *mine;
        status = rill__run_encode_input(run, &mine);
        if (status != RILL_OK) return status;
        RILL_TRY(rill__gather_start(run, &s->gather,
                                    rill__gather_choose(run->problem, own_bytes(run->problem)),
                                    mine));
        s->started = true;
    }
    if (!s->gathered) {
        status = rill__gather_step(run, &s->gather);
        if (status != RILL_OK) return status;
        s->gathered = true;
    }
    bool done;
    status = rill__run_sum_away(run, size, s->gather.messages, &done);
    if (status != RILL_OK) return status;
    for (int i = 0; i < size; i++)
        if (i != run->rank) rill__run_count(run, &s->gather.messages[i].header);
    if (done) return RILL_OK;
    rill__part *parts = rill__run_alloc(run, (size_t)size, sizeof *parts);
    if (!parts) return RILL_ERR_MEMORY;
    rill__gather_parts(run, &s->gather, parts);
    rill__run_sum(run, 0, run->dim, size, parts, false, &run->piece[0]);
    return rill__finish_piece(run, &run->piece[0]);
}

const rill__algorithm rill__allreduce_allgather = {
    .name = "allgather",
    .description = "every rank gathers all contributions and sums them (TopkA, PyTorch, Horovod)",
    .supports = supports,
    .estimate = estimate,
    .estimate_away = estimate_away,
    .state_size = sizeof(state),
    .step = step,
};
