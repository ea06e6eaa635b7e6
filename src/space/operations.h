/* What a space does with the entries that lie in it.
 *
 * An operation is a value: it says what to do, and with which arrays. All arrays lie in the space
 * that runs it; single values (a factor, a fill) travel in the operation itself. A space runs
 * operations in the order given. One that is asked for an answer is over when the call returns;
 * another may run later, and its arrays must stay until then (rill__space_wait).
 *
 * Arrays may be the user's: nothing past their end is touched. */
#ifndef RILL_SPACE_OPERATIONS_H
#define RILL_SPACE_OPERATIONS_H

#include "space/kernels.h"

typedef enum rill__operation_kind {
    /* bytes */
    RILL__DO_COPY,  /* into[0..n) = from */
    RILL__DO_CLEAR, /* into[0..n) = 0 */
    /* dense vectors of n values */
    RILL__DO_FILL,       /* into = value */
    RILL__DO_ADD,        /* into += from */
    RILL__DO_DECAY_ADD,  /* into = factor into + from */
    RILL__DO_ADD_SCALED, /* into += factor from */
    RILL__DO_SCALE,      /* into = factor from */
    RILL__DO_DIVIDE,     /* into = from / factor; into may be from */
    RILL__DO_NORM,       /* answer real: the L2 norm of from */
    /* the same where values may be NaN or infinite */
    RILL__DO_IS_FINITE,        /* answer yes: all of from are */
    RILL__DO_DROP_NONFINITE,   /* they become 0 in into; answer count: how many */
    RILL__DO_ADD_FINITE,       /* from counts as 0 where it is not; answer yes: it was so nowhere */
    RILL__DO_SUBTRACT_FINITE,  /* undoes that, up to rounding */
    RILL__DO_DECAY_ADD_FINITE, /* answer yes: from was finite; else nothing is changed, but for
                                  rounding */
    RILL__DO_UNDECAY,          /* undoes RILL__DO_DECAY_ADD, up to rounding */
    RILL__DO_DIVIDE_FINITE,    /* answer yes: all quotients are */
    /* sparse ones and dense ones */
    RILL__DO_ASSIGN, /* into[idx - first] = val for each of the pairs */
    RILL__DO_WRITE,  /* into[0..n) = the pairs in [first, first + n), from the first pair on, and
                             zeros; answer count: how many pairs that were. end = n: all of
                             the pairs lie in the range */
    RILL__DO_WRITE_BLOCKS, /* the same of blocks; answer count: blocks that end in the range */
    RILL__DO_ADD_PAIRS,    /* into[idx] += val for each of the pairs that mask and where name */
    RILL__DO_ADD_BLOCKS,   /* into += the blocks */
    RILL__DO_CLEAR_PAIRS,  /* into[idx] = 0 for each of the pairs that mask and where name */
    RILL__DO_SHIFT, /* into[i] = first + from[i], n indices; of index_bytes, from from_bytes */
} rill__operation_kind;

/* Which of the pairs: all of them, those in the mask, or those outside. */
typedef enum rill__where { RILL__EVERYWHERE, RILL__INSIDE, RILL__OUTSIDE } rill__where;

typedef struct rill__operation {
    rill__operation_kind kind;
    rill_type type;
    unsigned index_bytes, from_bytes;
    rill__where where;
    void *into;
    const void *from;
    uint64_t n, first;
    double factor;
    unsigned char value[8];
    rill__pairs
        pairs; /* of blocks: the number of entries, the blocks' numbers of 8 bytes, the entries */
    rill__pairs mask;    /* its indices only */
    uint64_t block, end; /* of blocks: entries of one; where the vector ends */
} rill__operation;

typedef union rill__answer {
    bool yes;
    uint64_t count;
    double real;
} rill__answer;

#endif
