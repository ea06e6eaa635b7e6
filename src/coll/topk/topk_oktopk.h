/* What the files of oktopk share. The algorithm is told at the head of topk_oktopk.c. */
#ifndef RILL_COLL_TOPK_TOPK_OKTOPK_H
#define RILL_COLL_TOPK_TOPK_OKTOPK_H

#include "coll/topk/topk.h"

/* Pairs in memory that the algorithm may write to. */
typedef struct rill__share {
    uint64_t n;
    void *idx, *val;
} rill__share;

static inline rill__part rill__share_part(const rill__share *s) {
    return (rill__part){RILL__SPARSE, 0, 0, s->n, s->idx, s->val, 0, NULL};
}

/* ---- topk_oktopk_level.c: the global threshold ---------------------------------------------- */

enum { RILL__LEVEL_BITS = 10, RILL__LEVEL_BINS = 1 << RILL__LEVEL_BITS };

/* The search for a threshold: histograms of magnitudes, summed over the ranks, each inside one bin
 * of the one before. */
typedef struct rill__level_search {
    rill__agree agree;
    uint64_t *bins;        /* NULL: not begun */
    uint64_t prefix;       /* bits of the keys that are looked at; */
    int shift;             /* those above this one */
    uint64_t above, found; /* keys over them; the result, where shift is 0 and found is not */
} rill__level_search;

/* *key = such that about k entries of all shares have that key or a larger one; 0 where there is
 * no entry at all, and 1 (every entry that is not 0) where there are no more than k. */
rill_status rill__level_find(rill__run *, rill__level_search *, const rill__share *, uint64_t k,
                             uint64_t *key);
/* The magnitude of a key, and the key of a magnitude: at least 1. */
double rill__level_of_key(rill_type, uint64_t key);
uint64_t rill__level_key(rill_type, double level);
void rill__level_cut(rill__shape, rill__share *, uint64_t key); /* keeps that key and larger */

/* The threshold, as a magnitude (0: none yet), and the factor that it grows by from step to step.
 */
typedef struct rill__level {
    double value, trend;
} rill__level;

/* counts = entries of the share that pass certain multiples of the threshold; OWN: the threshold.
 */
enum { RILL__LEVEL_MARKS = 5, RILL__LEVEL_OWN = 2 };
void rill__level_counts(rill_type, const rill__share *, double value, uint64_t *counts);
/* All but OWN, in the two words of a header; unpack adds them. */
void rill__level_pack(const uint64_t *counts, uint64_t words[2]);
void rill__level_unpack(const uint64_t words[2], uint64_t *counts);
/* How many entries the threshold is to let pass. */
uint64_t rill__level_aim(uint64_t k, bool skewed);
/* Of n parts of pairs keeps the k largest, and those equal to the last of them; fewer stay. */
rill_status rill__level_cut_parts(rill__run *, int n, rill__part *parts, uint64_t k);
/* Makes it the threshold of the next step, from the counts of all shares in this one. */
void rill__level_steer(rill__level *, uint64_t aim, const uint64_t *counts);
/* Whether the count is too far from the aim to steer by, and not by chance. */
bool rill__level_is_off(uint64_t k, uint64_t aim, uint64_t count);
/* Another value was found to be right. */
void rill__level_set(rill__level *, double value);

/* ---- topk_oktopk_balance.c: equal shares before the allgather ------------------------------- */

typedef struct rill__balance {
    bool begun, agreed, moving;
    rill__agree agree;
    uint64_t *sizes;  /* of the shares, as they were */
    uint64_t *starts; /* of the shares in the order of the indices: P + 1 */
    int next;         /* rank to receive from */
    rill__share out;
} rill__balance;

/* Whether the largest share is over trigger times the mean. */
bool rill__balance_needed(const uint64_t *sizes, int ranks, double trigger);
/* All ranks learn all sizes; where needed, shares become equal up to one entry, in the order of the
 * indices. */
rill_status rill__balance_step(rill__run *, rill__balance *, rill__share *);

#endif
