/* How many bytes of entries the ranks of a call send: by the formula of the paper, with expected
 * unions, and counted from the inputs themselves (inputs.h). */
#ifndef RILL_LAB_FORMULAS_H
#define RILL_LAB_FORMULAS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct formula_call {
    int ranks, per_host;  /* ranks, and ranks of each host */
    uint64_t dim, k;      /* entries of a rank, or selected by a reducer */
    uint64_t block, seed; /* entries of a block; of the inputs */
    uint64_t result;      /* entries of the result, */
    uint64_t parts;       /* and messages, as they were: for dense sums */
} formula_call;

typedef struct formula {
    const char *words; /* the formula for a rank, in words of 4 bytes */
    double closed;     /* bytes of all ranks, by the formula */
    bool most;         /* it is an upper bound */
    double exact;      /* bytes of all ranks, counted from the inputs; 0: not known */
    double parts;      /* messages of all ranks; 0: not known */
    bool in_words;     /* what is sent are words (counts.h) */
} formula;

/* False: there is none for that algorithm. */
bool formula_of(const char *algorithm, bool reducer, const formula_call *, formula *);

#endif
