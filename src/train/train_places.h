/* Where a rank keeps the weights that its rows have a part in. train_places.c. */
#ifndef RILL_TRAIN_TRAIN_PLACES_H
#define RILL_TRAIN_TRAIN_PLACES_H

#include "train/train_team.h"

/* Places of features: those that several ranks have, ascending, with the same places on all ranks;
 * then those that this rank alone has. */
typedef struct rill__places {
    uint64_t features;    /* places */
    uint64_t shared;      /* the first of them */
    uint64_t bias;        /* its place, a shared one; features: there is no bias */
    uint64_t columns;     /* weights of a feature */
    uint32_t *list;       /* the feature at a place; NULL: all are shared, each at its own number */
    uint64_t *apart;      /* bits of features that one rank alone has, whichever */
    uint64_t *absent;     /* bits of features that no rank has */
    uint64_t words;       /* of bits */
    uint64_t first, last; /* shared places that this rank counts where all ranks' are added up */
    uint32_t *own;        /* numbers of the weights that are this rank's alone */
    float *room;          /* as many */
} rill__places;

static inline uint64_t rill__place_feature(const rill__places *p, uint64_t place) {
    return p->list ? p->list[place] : place;
}
/* Weights that are this rank's alone. */
static inline uint64_t rill__places_own(const rill__places *p) {
    return (p->features - p->shared) * p->columns;
}

struct rill__objective;
/* All ranks, once the columns' scale is known. Where there is little to save all places are shared.
 */
rill_status rill__places_open(const struct rill__objective *, rill__team *, rill__places *);
void rill__places_close(rill__places *);
uint64_t rill__places_bytes(const rill__places *);

/* All ranks: the product of two vectors by place, over all features. */
rill_status rill__places_dot(const rill__places *, rill__team *, const float *a, const float *b,
                             double *sum);
/* All ranks: weights by number, n of them, of which each rank has its own and the shared ones, get
 * the others'. stream: of n; room: n and RILL_SLACK. */
rill_status rill__places_spread(const rill__places *, rill__team *, const rill_options *,
                                rill_stream *stream, float *room, float *weights);
/* Weights of features that no rank has become 0. */
void rill__places_clear(const rill__places *, float *weights);

#endif
