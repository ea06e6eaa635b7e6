/* How many entries a partial sum has. With uniform supports of k entries in a space of M, n of
 * them unite to M (1 - (1 - k/M)^n) entries (SparCML, section 5). Real supports overlap more, as if
 * the space were smaller: M is the space in which the expected result of all P would come out. */
#include "coll/cost.h"

#include <math.h>

double rill__pairs_bytes(const rill__problem *p, double pairs, double range) {
    if (p->index_cost >= 0) return pairs * (p->index_cost + p->value_cost);
    if (pairs <= 0) return 0;
    double index = p->codec->bits(p->index_bytes, pairs / range) / 8;
    return range * p->codec->range_bits / 8 + pairs * (index + p->value_cost);
}

double rill__estimate(const rill__algorithm *a, const rill__problem *p) {
    if (p->away) return a->estimate_away(p);
    return p->device ? a->estimate(p) + rill__staging_estimate(p) : a->estimate(p);
}

double rill__uniform_union(double space, double k, double n) {
    return k >= space ? space : space * -expm1(n * log1p(-k / space));
}

double rill__effective_space(const rill__problem *p) {
    double dim = (double)p->dim;
    if (p->result >= rill__uniform_union(dim, p->nnz, p->ranks)) return dim;
    if (p->result <= p->nnz * 1.0001) return p->nnz; /* identical supports */
    double low = p->nnz, high = dim;
    for (int i = 0; i < 60 && high - low > 1e-3 * high; i++) {
        double mid = (low + high) / 2;
        if (rill__uniform_union(mid, p->nnz, p->ranks) < p->result) low = mid;
        else high = mid;
    }
    return high;
}

double rill__expected_union(const rill__problem *p, double n) {
    if (p->nnz <= 0) return 0;
    return rill__uniform_union(p->space, p->nnz, n);
}

/* Shares of `sum`: an entry, and an index that is passed over; of `merge`: an entry of two parts
 * that are nearly full. Fitted to the records that the header names. */
#define LEAST 0.5
#define PASS 0.04
#define TWO_FULL 0.35

double rill__sum_estimate(const rill__problem *p, int parts, double entries, double range) {
    double limit = (double)rill__dense_switch(p->type, p->dim) / (double)p->dim * range;
    if (entries <= 0) return 0;
    if (p->hosts > 1) return entries * (p->ranks == 2 ? p->c->merge : p->c->sum);
    if (parts == 2) return entries * p->c->merge * (entries > 2 * limit ? TWO_FULL : 1);
    double sparse = entries * p->c->sum * fmin(1, LEAST + PASS * range / entries);
    if (rill__uniform_union(range, fmin(entries / parts, range), parts) <= limit) return sparse;
    return fmin(sparse, entries * p->c->scatter + range * p->value_cost * p->c->dense_add);
}
