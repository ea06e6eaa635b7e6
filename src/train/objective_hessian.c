/* The Hessian of the smooth function as a matrix, where that is cheaper than products with it.
 *
 * Idea: few weights of one problem, on one rank; a sum over rows of products of their entries.
 * Memory: the caller's n * n. Cost: half the square of a row's entries, for each row.
 */
#include "train/objective_smooth.h"

#include <string.h>

enum { MOST_SMALL = 256, PRODUCTS = 12 }; /* products: of conjugate gradients, saved by a matrix */

enum { TOGETHER = 4 }; /* rows without gaps */

static bool has_gaps(const rill_data_view *d, uint64_t row) {
    uint64_t first = d->row[row], count = d->row[row + 1] - first;
    return !count || d->index32[first + count - 1] - d->index32[first] != count - 1;
}

bool rill__smooth_is_small(const rill__smooth *s) {
    const rill__objective *o = s->objective;
    const rill_data_view *d = &o->rows.data;
    if (s->team->ranks > 1 || o->columns > 1 || o->n > MOST_SMALL) return false;
    double matrix = 0, product = 0;
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        double entries = (double)(d->row[row + 1] - d->row[row]) + (o->bias >= 0);
        matrix += entries * entries / (has_gaps(d, row) ? 2 : 2 * TOGETHER);
        product += 2 * entries;
    }
    return matrix <= PRODUCTS * product;
}

/* Rows with the same features, one after the other, taken together: the matrix is read and written
 * once for all of them. */
typedef struct row_block {
    uint64_t first, count; /* features */
    int rows;
    double bend[TOGETHER], x[TOGETHER][MOST_SMALL];
} row_block;

static void add_block(const rill__objective *o, row_block *b, double *hessian) {
    uint64_t n = o->n, count = b->count;
    const double *x0 = b->x[0], *x1 = b->x[1], *x2 = b->x[2], *x3 = b->x[3];
    double last = 0;
    for (int k = b->rows; b->rows && k < TOGETHER; k++) { /* as if of rows that count nothing */
        b->bend[k] = 0;
        memset(b->x[k], 0, (size_t)count * sizeof **b->x);
    }
    for (uint64_t e = 0; b->rows && e < count; e++) {
        double *into = hessian + (b->first + e) * n + b->first;
        double b0 = b->bend[0] * x0[e], b1 = b->bend[1] * x1[e];
        double b2 = b->bend[2] * x2[e], b3 = b->bend[3] * x3[e];
        for (uint64_t f = e; f < count; f++)
            into[f] += (b0 * x0[f] + b1 * x1[f]) + (b2 * x2[f] + b3 * x3[f]);
        if (o->bias >= 0) hessian[(b->first + e) * n + n - 1] += ((b0 + b1) + (b2 + b3)) * o->bias;
    }
    for (int k = 0; k < b->rows; k++)
        last += b->bend[k];
    if (o->bias >= 0) hessian[n * n - 1] += last * o->bias * o->bias;
    b->rows = 0;
}

/* A row whose features have gaps. */
static void add_gaps(const rill__objective *o, uint64_t row, double bend, double *hessian) {
    const rill_data_view *d = &o->rows.data;
    uint64_t n = o->n, end = d->row[row + 1];
    double factor = rill__row_factor(&o->rows, row);
    for (uint64_t e = d->row[row]; e < end; e++) {
        double by = bend * factor * d->value[e], *into = hessian + d->index32[e] * n;
        for (uint64_t f = e; f < end; f++)
            into[d->index32[f]] += by * (factor * d->value[f]);
        if (o->bias >= 0) into[n - 1] += by * o->bias;
    }
    if (o->bias >= 0) hessian[n * n - 1] += bend * o->bias * o->bias;
}

void rill__smooth_hessian(const rill__smooth *s, double *hessian) {
    const rill__objective *o = s->objective;
    const rill_data_view *d = &o->rows.data;
    uint64_t n = o->n;
    row_block block;
    block.first = block.count = 0;
    block.rows = 0;
    memset(hessian, 0, (size_t)(n * n) * sizeof *hessian);
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i), at = d->row[row], count = d->row[row + 1] - at;
        if (s->curvature[i] == 0) continue;
        if (has_gaps(d, row)) {
            add_gaps(o, row, s->curvature[i], hessian);
            continue;
        }
        bool same = block.first == d->index32[at] && block.count == count;
        if (block.rows == TOGETHER || (block.rows && !same)) add_block(o, &block, hessian);
        block.first = d->index32[at];
        block.count = count;
        block.bend[block.rows] = s->curvature[i];
        for (uint64_t e = 0; e < count; e++)
            block.x[block.rows][e] = (double)rill__row_factor(&o->rows, row) * d->value[at + e];
        block.rows++;
    }
    if (block.rows) add_block(o, &block, hessian);
    for (uint64_t j = 0; j < n; j++) {
        for (uint64_t k = j; k < n; k++)
            hessian[j * n + k] *= (double)rill__factor(o, j) * rill__factor(o, k);
        if (j < o->penalised) hessian[j * n + j] += o->l2;
    }
}
