/* What estimates are made of: bytes and entries of messages and sums. */
#ifndef RILL_COLL_COST_H
#define RILL_COLL_COST_H

#include "codec/wire.h"
#include "coll/problem.h"
#include "coll/run.h"

/* Expected bytes of that many pairs in a range. They lie anywhere in it: with real supports an
 * index takes no more. */
double rill__pairs_bytes(const rill__problem *, double pairs, double range);
/* How that many pairs go; sums: as a part of a sum, which is dense above the switch. */
static inline rill__wire_form rill__expected_form(const rill__problem *p, double pairs,
                                                  double range, bool sums) {
    double limit = (double)rill__dense_switch(p->type, p->dim) / (double)p->dim * range;
    bool bits = !sums && !p->takes_sums && !p->value_bits && p->index_cost < 0 &&
                rill__wire_adds_bits(p->type, p->op, p->sums_bits);
    return rill__wire_form_of(pairs, range, limit, bits);
}
/* Expected bytes of what is sent of a sum: the dense range where pairs are above the switch. */
static inline double rill__form_bytes(const rill__problem *p, double pairs, double range) {
    double sparse = rill__pairs_bytes(p, pairs, range), dense = range * p->value_cost;
    if (p->index_cost >= 0)
        return sparse < dense ? sparse : dense; /* blocks have a switch of their own */
    return rill__expected_form(p, pairs, range, true) == RILL__WIRE_DENSE ? dense : sparse;
}
/* Whether inputs above the switch go as bits and values; sums are dense then. */
static inline bool rill__sends_bits(const rill__problem *p, double pairs, double range) {
    return rill__expected_form(p, pairs, range, false) == RILL__WIRE_BITS;
}
static inline double rill__input_bytes(const rill__problem *p, double pairs, double range) {
    return rill__sends_bits(p, pairs, range) ? pairs * p->value_cost + range / 8
                                             : rill__form_bytes(p, pairs, range);
}

/* What a byte takes where a rank receives from several at once, and where it has one partner in
 * each of so many rounds. Over TCP flows to one link hinder each other; who waits for a partner
 * leaves links idle. */
static inline double rill__byte_of_many(const rill__problem *p) {
    const double hinder = 1.12;
    bool tcp = p->hosts > 1 && p->c->latency >= RILL__TCP_LATENCY;
    return tcp && p->ranks > 2 ? hinder * p->c->byte : p->c->byte;
}
static inline double rill__byte_of_rounds(const rill__problem *p, int rounds) {
    const double idle = 0.04;
    bool tcp = p->hosts > 1 && p->c->latency >= RILL__TCP_LATENCY;
    return tcp ? (1 + idle * (rounds - 1)) * p->c->byte : p->c->byte;
}

/* Time to write that many entries into a fresh dense vector; nothing where it is dense already. */
static inline double rill__densify_estimate(const rill__problem *p, double entries) {
    if (entries >= (double)p->dim) return 0;
    return entries * p->c->scatter +
           (double)p->dim * (double)rill__type_size(p->type) * p->c->dense_add;
}
/* Share of `bits`, which is to pack and to unpack an index, for one that goes to a bitmap which is
 * summed as it is, in a vector that the caches hold (50 % of 2^16, 2 ranks of one host:
 * bench/results/grid.jsonl; of 2^14 to 2^18: learn.jsonl). With it for longer ones two ranks
 * would send half of 2^24 entries in 1.13 times the time of `dense` (docs/results/planner.md). */
#define TO_BITS 0.25

/* The same where a sparse input is above the switch to dense, which is sent in another form. */
static inline double rill__prepare_estimate(const rill__problem *p) {
    bool over = p->nnz_max > (double)rill__dense_switch(p->type, p->dim);
    bool cached = p->hosts == 1 && (double)p->dim * (double)rill__type_size(p->type) < RILL__HUGE;
    if (rill__sends_bits(p, p->nnz_max, (double)p->dim))
        return (cached ? TO_BITS : 1) * p->nnz_max * p->c->bits;
    return over ? rill__densify_estimate(p, p->nnz_max) : 0;
}

/* The same for a sparse sum that turns out to be above the switch. */
static inline double rill__turn_estimate(const rill__problem *p) {
    double limit = (double)rill__dense_switch(p->type, p->dim);
    return p->nnz_max <= limit && p->result > limit ? rill__densify_estimate(p, p->result) : 0;
}

/* What a step of reducers on devices takes besides, where messages are not coded and summed there:
 * pairs to the host, and the result back; or vectors. */
static inline double rill__staging_estimate(const rill__problem *p) {
    const rill__device_constants *d = p->device;
    double value = (double)rill__type_size(p->type),
           limit = (double)rill__dense_switch(p->type, p->dim);
    double all = (double)p->dim * value, pair = value + p->index_bytes;
    double back = p->collective == RILL_REDUCER ? p->k : p->result;
    double to = p->nnz_max >= (double)p->dim ? all : p->nnz_max * pair;
    return 2 * d->wait + to * d->out + (back > limit ? all : back * pair) * d->in;
}
/* The time of an algorithm, in the way that the problem says. */
double rill__estimate(const rill__algorithm *, const rill__problem *);

/* Seconds to sum so many entries of several parts that lie in so many indices. On one host by a
 * pass over these, if they are dense enough; without indices to be written where the sum is
 * dense. As measured: 8 x 160k and 8 x 1M entries of 2^24 take 2.1 and 1.2 ns each
 * (bench/results/kernels.jsonl), half full vectors 0.4 (learn.jsonl, 8 and 16 ranks). Between
 * hosts every entry costs the same: with less for dense parts, 10 % at 1 Gbit/s would go by
 * `allgather`, which takes 1.1 to 1.2 times `recursive_double` there (grid.jsonl). */
double rill__sum_estimate(const rill__problem *, int parts, double entries, double range);

/* Entries in the union of n of the P contributions: K(n), from the expected K(P) of all. */
double rill__expected_union(const rill__problem *, double n);
/* The same in a space of that size. */
double rill__uniform_union(double space, double k, double n);
/* The space in which the expected result would come out: for rill__problem.space. */
double rill__effective_space(const rill__problem *);

#endif
