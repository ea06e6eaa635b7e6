/* Sums of the ranks' gradients: at once, or some steps later. train_exchange.c. */
#ifndef RILL_TRAIN_TRAIN_EXCHANGE_H
#define RILL_TRAIN_TRAIN_EXCHANGE_H

#include "train/train_team.h"

typedef struct rill__exchange rill__exchange;

/* A sum: pairs, or all n values when idx is NULL. */
typedef struct rill__sum_view {
    uint64_t n;
    const uint32_t *idx;
    const float *value;
} rill__sum_view;

/* Exact sums of n, options.staleness of them under way at most. */
rill_status rill__exchange_prepare(rill__team *,
                                   const rill_train_options *); /* once, before the first epoch */
rill_status rill__exchange_open(rill__team *, const rill_train_options *, uint64_t n,
                                rill__exchange **);
void rill__exchange_close(rill__exchange **);
uint64_t rill__exchange_bytes(const rill__exchange *);
rill_status rill__exchange_put(rill__exchange *, uint64_t n, const uint32_t *idx,
                               const float *value);
/* Instead of put, by a rank that has failed: where MPI sums, the sum tells the others. Returns
 * mine. */
rill_status rill__exchange_refuse(rill__exchange *, rill_status mine);
/* The oldest sum, if more than `pending` are under way; it lives until the next call. */
rill_status rill__exchange_take(rill__exchange *, int pending, bool *has, rill__sum_view *);

/* Whole vectors: vector = sum over the ranks, through a stream of its size. */
rill_status rill__exchange_dense(rill__team *, const rill_options *, rill_stream *, float *vector);

#endif
