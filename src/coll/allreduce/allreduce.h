#ifndef RILL_COLL_ALLREDUCE_ALLREDUCE_H
#define RILL_COLL_ALLREDUCE_ALLREDUCE_H

#include "coll/coll.h"

extern const rill__algorithm rill__allreduce_dense, rill__allreduce_recursive_double,
    rill__allreduce_split_allgather, rill__allreduce_dsar, rill__allreduce_ring,
    rill__allreduce_allgather;

/* Bytes of a pair, and of n pairs or the dense range, whichever is less. */
static inline double rill__pair_bytes(const rill__problem *p) {
    return p->index_cost + p->value_cost;
}
static inline double rill__least_bytes(const rill__problem *p, double pairs, double range) {
    double sparse = pairs * rill__pair_bytes(p), dense = range * p->value_cost;
    return sparse < dense ? sparse : dense;
}

/* Entries in the union of n of the P contributions: K(n), from the expected K(P) of all. */
double rill__expected_union(const rill__problem *, double n);
/* The same in a space of that size. */
double rill__uniform_union(double space, double k, double n);

#endif
