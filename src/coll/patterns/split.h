/* The index space is split in P ranges; each rank gets from all others their entries of its range.
 * One round, P-1 messages of about nnz/P entries. Destinations rotate, so that no rank is
 * everybody's first, and no rank sends more than a window ahead of what came in: else P^2 messages
 * wait somewhere at once (Ok-Topk's rotation and buckets).
 *
 * Bounds are uniform, or balanced: the averages over all ranks of each rank's own quantiles, as
 * Ok-Topk has them, at the price of one agreement. Where the last result is known, they are
 * quantiles of entries and result together (quantiles.h). */
#ifndef RILL_COLL_PATTERNS_SPLIT_H
#define RILL_COLL_PATTERNS_SPLIT_H

#include "coll/patterns/collect.h"

typedef struct rill__split {
    /* given */
    rill__group group;          /* whose ranges they are; unset: all ranks */
    uint64_t unit;              /* bounds are multiples of it (or the dimension); 0: of 1 */
    const rill__part *input;    /* NULL: the run's */
    const rill__coding *coding; /* NULL: the run's */
    /* so far */
    int stage, sent;
    /* Statistics of those who came in. They are the run's only when all has been sent: a message
     * speaks for this rank alone, also where the window lets it out late. */
    rill__header heard;
    rill__agree agree;
    rill__collect collect;
    uint64_t *bounds;  /* P + 1 */
    rill__part *parts; /* of rank (or place) i for my range */
} rill__split;

/* Messages that a rank may be ahead of what came in. Whoever has sent m to its next m neighbours
 * has m to receive from those before it, so that nobody waits for ever. */
enum { RILL__SPLIT_WINDOW = 32 };

/* Sends slices of the part by those bounds to the next ranks (or places) while the window allows;
 * *sent of them have been, the collected came in. */
rill_status rill__split_send(rill__run *, const rill__collect *, const rill__coding *,
                             const rill__part *, const uint64_t *bounds, int *sent);
/* Bounds only (for ring and halves, which send otherwise); then the whole split. */
rill_status rill__split_bounds(rill__run *, rill__split *);
rill_status rill__split_step(rill__run *, rill__split *);
double rill__split_estimate(const rill__problem *);  /* exchange, without the sum */
double rill__bounds_estimate(const rill__problem *); /* the agreement on bounds */
double rill__owner_share(const rill__problem *); /* entries of the fullest range over the mean */

static inline uint64_t rill__split_first(const rill__split *s, int i) { return s->bounds[i]; }
static inline uint64_t rill__split_range(const rill__split *s, int i) {
    return s->bounds[i + 1] - s->bounds[i];
}

#endif
