/* Groups of ranks, agreements among them, and who talks to whom in recursive doubling. */
#ifndef RILL_REQ_AGREE_H
#define RILL_REQ_AGREE_H

#include "core/core.h"

typedef struct rill__task rill__task;     /* req/request.h */
typedef struct rill__parcel rill__parcel; /* the same */

/* Ranks that talk among themselves, each known by its place. */
typedef struct rill__group {
    int n, me;        /* ranks, and this one's place among them; n 0: all of the communicator */
    const int *ranks; /* ascending; NULL: a rank is its place */
} rill__group;
static inline rill__group rill__group_or_all(const rill__group *g, int rank, int size) {
    return g->n ? *g : (rill__group){size, rank, NULL};
}
static inline int rill__group_rank(const rill__group *g, int place) {
    return g->ranks ? g->ranks[place] : place;
}
/* -1: none of them. */
static inline int rill__group_place(const rill__group *g, int rank) {
    if (!g->ranks) return rank;
    int low = 0, high = g->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (g->ranks[middle] < rank) low = middle + 1;
        else high = middle;
    }
    return low < g->n && g->ranks[low] == rank ? low : -1;
}

/* An allreduce of a few words, by recursive doubling: status, nnz statistics, the smallest and
 * largest args word, and sums. Same result on all ranks. */
typedef struct rill__agree {
    int stage;
    bool sent;
    uint64_t args_min, args_max;
    uint64_t *sums; /* n of them, or NULL; borrowed */
    uint64_t n;
    rill__parcel *words; /* as sent */
    rill__group group;   /* may be set after the start; else all ranks */
} rill__agree;
void rill__agree_start(rill__agree *, uint64_t args, uint64_t *sums, uint64_t n);
/* Memory for an agreement of all ranks without sums: it then ends, and on all ranks alike. */
rill_status rill__agree_reserve(rill__task *);
rill_status rill__agree_step(rill__task *, rill__agree *);

/* ---- pattern.c: who talks to whom in recursive doubling for any number of ranks ---- */
typedef enum rill__round_kind {
    RILL__ROUND_SEND,     /* fold in: my data to peer */
    RILL__ROUND_RECEIVE,  /* fold in: peer's data to me */
    RILL__ROUND_EXCHANGE, /* both ways */
    RILL__ROUND_RESULT_SEND,
    RILL__ROUND_RESULT_RECEIVE, /* fold out: the result */
    RILL__ROUND_END
} rill__round_kind;
rill__round_kind rill__doubling_round(int rank, int size, int round, int *peer);
/* In an exchange: a number that those ranks share who have the same partial sum; and whether this
 * is the first of them. */
uint32_t rill__doubling_group(int rank, int size, int round, bool *leads);

#endif
