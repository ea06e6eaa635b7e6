/* Count-sketch of a vector whose support is known: entries are numbered 0, 1, ... within it.
 *
 * Each of a few rows has width cells; an entry goes, with a sign, to one cell of each row, and is
 * estimated by the median over the rows of its cells with that sign. Sketches of the same plan add
 * up.
 *
 * Hashes. Number i has the slot (step i + start) mod slots of a prime number of slots, and the cell
 * that slot falls in when slots are dealt out evenly. Over random step and start, two numbers have
 * any two different slots alike: the hash is pairwise independent, but slots never meet, so that
 * two numbers share a cell with a probability of about 1/width - 1/slots, instead of 1/width. This
 * is why entries are numbered within the support: then slots are hardly more than entries. Signs
 * are one bit of multiply-shift, pairwise independent too, on a number scrambled by a fixed
 * bijection, so that numbers at equal distances, which meet in the same rows, have signs that are
 * not related. */
#ifndef RILL_COLL_TOPK_SKETCH_H
#define RILL_COLL_TOPK_SKETCH_H

#include "core/core.h"

enum { RILL__SKETCH_ROWS = 15 };

typedef struct rill__sketch_row {
    uint64_t step, start;              /* of slots */
    uint64_t sign_factor, sign_offset; /* the sign is bit 63 of factor * scrambled + offset */
} rill__sketch_row;

typedef struct rill__sketch {
    rill_type cell; /* RILL_F32 or RILL_F64 */
    int rows;
    uint64_t entries, width;
    uint64_t slots;
    uint64_t scale; /* cell = slot * scale >> 64; 0: cell = slot */
    rill__sketch_row row[RILL__SKETCH_ROWS];
} rill__sketch;

/* Cells of a row for lambda times the entries in all rows: ceil(lambda * entries / rows), at least
 * 1 and at most one for each entry. */
uint64_t rill__sketch_width(uint64_t entries, int rows, double lambda);
/* Another seed or step is another set of hashes. */
void rill__sketch_plan(rill__sketch *, rill_type, uint64_t entries, int rows, double lambda,
                       uint64_t seed, uint64_t step);
static inline uint64_t rill__sketch_cells(const rill__sketch *s) {
    return s->width * (unsigned)s->rows;
}
/* Values of 16 bit are summed in f32. */
static inline rill_type rill__sketch_cell_type(rill_type type) {
    return type == RILL_F64 ? RILL_F64 : RILL_F32;
}

/* The probability that two entries share the cell of a row: what an even deal leaves of 1/width. */
double rill__sketch_meeting(const rill__sketch *);

/* Adds a value to entry number i in every row. */
void rill__sketch_add(const rill__sketch *, void *cells, uint64_t i, double value);

/* Of the entries first to first + n: median and mean over the rows. Returns the estimated sum of
 * the squared errors of the medians, from how far the rows are apart; 0 for one row. */
double rill__sketch_estimate(const rill__sketch *, const void *cells, uint64_t first, uint64_t n,
                             double *median, double *mean);
void rill__sketch_mean(const rill__sketch *, const void *cells, uint64_t first, uint64_t n,
                       double *mean);

/* Estimated L2 norm of the errors over that of the vector, whose square is that of a row on
 * average. squared_errors: the sum of what rill__sketch_estimate gave for all entries. */
double rill__sketch_error(const rill__sketch *, const void *cells, double squared_errors);

#endif
