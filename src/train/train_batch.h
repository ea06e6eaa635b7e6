/* The gradient of a mini-batch as pairs: train_batch.c. */
#ifndef RILL_TRAIN_TRAIN_BATCH_H
#define RILL_TRAIN_TRAIN_BATCH_H

#include "train/objective.h"

typedef struct rill__batch_list {
    uint32_t *idx;
    float *value;
    uint64_t n, room;
} rill__batch_list;

typedef struct rill__batch {
    uint64_t n;    /* entries of the gradient that are not 0 */
    uint32_t *idx; /* unsorted, each once */
    float *value;
    float *gradient;        /* dense; 0 outside of the lists */
    bool keep;              /* gradient is left as it is until rill__batch_clear */
    uint64_t *touched;      /* bits; NULL: scaled weights, as is the next */
    float *now;             /* current weights of the batch's entries */
    int lists;              /* one per thread */
    rill__batch_list *list; /* list[0] starts with all of them once the batch is computed */
    double *z, *loss_of;    /* of each row: decision values, then slopes; loss */
    uint64_t rows_room;
    double loss; /* weighted sum */
} rill__batch;

/* keep: the dense gradient is wanted, not the pairs. */
rill_status rill__batch_open(rill__batch *, const rill__objective *, const rill__weights *,
                             bool keep);
void rill__batch_close(rill__batch *);
uint64_t rill__batch_bytes(const rill__batch *, uint64_t n);
/* Gradient of weight * sum over the rows. */
rill_status rill__batch_compute(rill__batch *, const rill__objective *, const rill__weights *,
                                const uint64_t *rows, uint64_t n, double weight);
void rill__batch_clear(rill__batch *);

#endif
