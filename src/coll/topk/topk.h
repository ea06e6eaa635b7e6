/* What a call of a reducer has beyond a collective's.
 *
 * The algorithms of this folder give about k entries of the sum of what the ranks selected. An
 * index that is in the result is *delivered*. What is not delivered must stay with somebody:
 *
 *   - an index that is not in the result: each rank keeps the value that it contributed itself;
 *   - an index that is in the result although a rank on the way dropped a partial sum of it, or
 * lost something by coding it: that rank keeps the partial sum, or what was lost.
 *
 * So an algorithm only reports what it drops (rill__give_back); losses by coding are reported
 * where messages are encoded. The reducer does the rest when the result is known
 * (reduce/feedback.c). */
#ifndef RILL_COLL_TOPK_TOPK_H
#define RILL_COLL_TOPK_TOPK_H

#include "coll/run.h"

/* Options that only these algorithms have; see rill_reducer_options. */
typedef struct rill__topk_options {
    uint64_t threshold_interval, repartition_interval;
    double balance_trigger;
    double lambda;
    int sketch_rows;
    uint64_t block; /* 0: entries, not blocks, are what the algorithm works on */
    bool keeps;     /* what is not delivered goes to the residual */
} rill__topk_options;

typedef struct rill__feedback {
    /* given by the reducer; the same on all ranks */
    rill__topk_options options;
    uint64_t k;    /* entries wanted in the result */
    uint64_t step; /* from 0 */
    uint64_t seed;
    rill__buffer
        memory; /* of the algorithm, from step to step; zeroed when fresh, saved to files */
    size_t memory_size;
    bool on_devices;         /* of all ranks: they can do errands */
    struct rill__away *away; /* of this step (coll/away.h); NULL: this rank does none */
    /* given back by the call */
    rill__piece *returned; /* their memory is kept for the next step */
    int returns, returns_capacity;
    double collision_error;
} rill__feedback;

/* Reports values that this rank dropped: copied. */
void rill__give_back(rill__run *, const rill__part *);
/* For task.lost, with the run: fits the values to what they stand for, and reports what is lost all
 * the same. */
void rill__give_back_lost(void *run, const rill__coding *, const rill__part *, void *message,
                          size_t bytes);

/* The k largest magnitudes of a part of pairs; ties go to the lower index. kept and dropped are
 * sorted by index and take their memory from the request; dropped may be NULL. A part of at most k
 * pairs is kept as it is. */
void rill__part_topk(rill__run *, const rill__part *, uint64_t k, rill__part *kept,
                     rill__part *dropped);
/* The same in each of the shares [first, end) of the index space (rill__share_bound): of share i
 * its quota of k, rill__share_quota. The part has entries of those shares only. */
void rill__part_topk_shares(rill__run *, const rill__part *, int first, int end, uint64_t k,
                            rill__part *kept, rill__part *dropped);
/* Time of the selection per pair, in merges of a pair; measured for 1e3 to 1.6e5 pairs: 1.0 ns and
 * 0.57 ns with AVX-512. */
#define RILL__SELECT_MERGES 1.7

/* The pairs of a message that must be of that range; else the failure is recorded, and it is empty.
 */
rill__part rill__received_pairs(rill__run *, const rill__message *, uint64_t first, uint64_t range);
/* into += from, for pairs in the range of into; the sum stays one of pairs however many they are,
 * in memory of the request. */
void rill__part_add_pairs(rill__run *, rill__part *into, const rill__part *from);

/* Entries that share i of the index space, one for each rank, gets of k: at least one. */
static inline uint64_t rill__share_quota(uint64_t k, int ranks, int i) {
    uint64_t share = rill__uniform_bound(k, i + 1, ranks) - rill__uniform_bound(k, i, ranks);
    return rill__max_u64(1, share);
}

/* ---- share_bounds.c: shares of the index space that deliver the same number of entries ---- */
/* Index that share i begins with; i = ranks: the dimension. The memory is that of an algorithm that
 * selects by range. */
uint64_t rill__share_bound(const rill__feedback *, uint64_t dim, int ranks, int i);
size_t rill__share_memory_size(int ranks);
/* At the start of a call; and at its end, with the result of each share: its bounds may move for
 * the next. */
void rill__share_memory_open(rill__run *);
void rill__share_memory_close(rill__run *, const rill__part *shares);

extern const rill__algorithm rill__topk_gtopk, rill__topk_oktopk, rill__topk_spardl, rill__topk_s2;

#endif
