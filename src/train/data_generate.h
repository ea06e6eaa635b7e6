/* The generator of data in the shape of published sets, inside. */
#ifndef RILL_TRAIN_DATA_GENERATE_H
#define RILL_TRAIN_DATA_GENERATE_H

#include "train/data_internal.h"

enum { RILL__OCTAVES = 24, RILL__SLOTS = 1024, RILL__PILOT = 2048 };

typedef struct rill__shape {
    const char *name, *description;
    uint64_t dim;
    uint64_t head;         /* features 0 to head - 1 are in most rows */
    double length, spread; /* median entries of a row; of their normal, or of their logarithm's */
    bool lognormal;
    uint64_t least, most;         /* entries of a row */
    int octaves, knee;            /* of the tail's ranks; where the slope changes */
    double ratio_low, ratio_high; /* probability of an octave over that of the one before */
    uint64_t scatter;             /* rank to feature by a multiplication; 0: in order */
    bool counts;                  /* values are counts of a row of norm 1, else 1 */
    uint64_t learnable;           /* ranks below have a weight in the hidden model */
    double relevant;              /* or so many of them */
    double positive;              /* share of label +1 */
    uint64_t batch;               /* rows generated at a time */
} rill__shape;

extern const rill__shape rill__shapes[];
extern const int rill__shape_count;

typedef struct rill__generator {
    const rill__shape *shape;
    uint64_t seed;
    uint32_t limit[RILL__OCTAVES]; /* upper ends of the octaves' share of 2^32 */
    uint8_t slot[RILL__SLOTS];     /* octave at the start of each slot of 2^32 / RILL__SLOTS */
    uint64_t tail;                 /* features of the tail */
    uint64_t last_rank;            /* whose feature is dim - 1: in the first row */
    double bias, noise;            /* of labels, found from the first RILL__PILOT rows */
} rill__generator;

/* Scratch of one thread. */
typedef struct rill__row_maker {
    uint64_t *set, *rank; /* hash set, then the ranks in it */
    size_t room, used;
    rill__rows rows;
} rill__row_maker;

rill_status rill__generator_init(rill__generator *, const rill__shape *, uint64_t seed);
rill_status rill__row_maker_init(rill__row_maker *, const rill__shape *);
void rill__row_maker_free(rill__row_maker *);
/* Appends the rows to maker->rows, with indices from 1. */
rill_status rill__generate_rows(const rill__generator *, rill__row_maker *, uint64_t first,
                                uint64_t count);

#endif
