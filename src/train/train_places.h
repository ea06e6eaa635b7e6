/* Where a rank keeps the weights that its rows have a part in. train_places.c. */
#ifndef RILL_TRAIN_TRAIN_PLACES_H
#define RILL_TRAIN_TRAIN_PLACES_H

#include "train/train_spread.h"
#include "train/train_swap.h"

/* Places of features that this rank has: those that it alone has; then those that others have, too,
 * in the order of the swap, of which it owns [first, last). */
typedef struct rill__places {
    uint64_t features;    /* places */
    uint64_t alone;       /* the first of them */
    uint64_t first, last; /* it counts these and those alone, where all ranks' are added up */
    uint64_t bias;        /* its place; features: there is no bias */
    uint64_t columns;     /* weights of a feature */
    uint32_t *list;   /* the feature at a place; NULL: all ranks have all, each at its own number */
    rill__swap *swap; /* sums */
    rill__spread *spread; /* of those that some rank has, but not all */
    uint64_t *apart;      /* bits of these */
    uint64_t *absent;     /* bits of features that no rank has */
    uint64_t words;       /* of bits */
} rill__places;

static inline uint64_t rill__place_feature(const rill__places *p, uint64_t place) {
    return p->list ? p->list[place] : place;
}
/* The places that this rank counts: the n-th range of two. */
static inline void rill__places_counted(const rill__places *p, int n, uint64_t *first,
                                        uint64_t *last) {
    *first = n ? p->first : 0;
    *last = n ? p->last : p->alone;
}

struct rill__objective;
/* All ranks, once the columns' scale is known. Where there is little to save, or whole vectors are
 * wanted, all ranks have all places. */
rill_status rill__places_open(const struct rill__objective *, rill__team *, bool whole,
                              rill__places *);
void rill__places_close(rill__places *);
uint64_t rill__places_bytes(const rill__places *);

/* All ranks: the product of two vectors by place, over all features. */
rill_status rill__places_dot(const rill__places *, rill__team *, const float *a, const float *b,
                             double *sum);
/* All ranks: a vector by place becomes its sum over the ranks. stream: of all weights; NULL where
 * there is a list. */
rill_status rill__places_sum(const rill__places *, rill__team *, const rill_options *,
                             rill_stream *stream, float *vector);
/* All ranks: weights by number, of which each rank has those of its places, get the others'. */
rill_status rill__places_spread(const rill__places *, rill__team *, const rill_options *,
                                float *weights);
/* Weights of features that no rank has become 0. */
void rill__places_clear(const rill__places *, float *weights);

#endif
