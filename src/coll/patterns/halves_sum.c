#include "coll/patterns/halves_sum.h"
#include "coll/cost.h"

#include <math.h>

/* The sum of a section of so many entries of each contribution, n contributions having been
 * united: the own entries, and what each round has brought. */
static double sum_estimate(const rill__problem *p, int n, double part) {
    double in = p->nnz, limit = (double)rill__dense_switch(p->type, p->dim);
    for (int i = 1; i < n; i *= 2)
        in += rill__expected_union(p, i);
    double time = in * part * (n == 2 ? p->c->merge : p->c->sum);
    if (n == 1) time = 0;
    if (n > 1 && rill__expected_union(p, n) > limit)
        time += (double)p->dim * part * (double)rill__type_size(p->type) * p->c->dense_add;
    return time;
}

/* A message speaks for the ranks that it has come through. Where P is no power of two, some of
 * them reach a rank twice; then all agree on the statistics, unless the bounds were agreed on. */
static bool agrees(int ranks, rill__partition partition) {
    return partition != RILL__BALANCED && ranks & (ranks - 1);
}

double rill__halves_sum_estimate(const rill__problem *p, bool counts) {
    int rounds = 0, held = p->ranks, n = 1;
    for (int d = rill__halves_distance(p->ranks); d; d /= 2)
        rounds++;
    double byte = rill__byte_of_rounds(p, rounds) + p->transcode;
    double time = rill__bounds_estimate(p), share = rill__owner_share(p);
    for (int d = rill__halves_distance(p->ranks); d; held = d, d /= 2, n *= 2) {
        double part = (double)(held - d) / p->ranks;
        double entries = rill__expected_union(p, n) * fmin(1, part * share);
        double range = (double)p->dim * part;
        double bytes = n == 1 ? rill__input_bytes(p, entries, range)
                              : rill__form_bytes(p, entries, range);
        time += p->c->latency + (bytes + RILL__SHORT_BYTES) * byte + sum_estimate(p, n, part);
    }
    if (counts && agrees(p->ranks, p->partition)) time += (rounds + 1) * p->c->latency;
    return time + sum_estimate(p, n, fmin(1, share / p->ranks));
}

static rill_status begin(rill__run *run, rill__halves_sum *s, const rill__split *split) {
    rill__halves_start(run, &s->halves, split->bounds);
    size_t rounds = 0;
    for (int d = s->halves.distance; d; d /= 2)
        rounds++;
    s->parts = rill__run_alloc(run, 1 + 2 * rounds, sizeof *s->parts);
    if (!s->parts) return RILL_ERR_MEMORY;
    s->parts[0] = *run->input;
    s->n = 1;
    /* Bits could not be cut at a share's bound: above the switch the sum of a section is dense. */
    s->coding = run->coding;
    s->coding.turns_dense = false;
    rill__agree_start(&s->agree, 0, NULL, 0);
    s->begun = true;
    return RILL_OK;
}

/* A dense part of less than a section, for sums of sections. */
static rill__part as_pairs(rill__run *run, const rill__part *dense) {
    rill__shape shape = run->shape;
    rill__part pairs = rill__part_empty(dense->first, dense->range);
    void *idx = rill__run_memory(run, dense->range * shape.index_bytes);
    void *val = rill__run_memory(run, dense->range * rill__type_size(shape.type));
    if (!idx || !val) return pairs;
    unsigned char neutral[8];
    rill__neutral(run->op, shape.type, neutral);
    pairs.n = rill__part_compact_to(shape, dense, neutral, idx, val);
    pairs.idx = idx;
    pairs.val = val;
    return pairs;
}

/* What lies in the section of the input and of what came, in that order. */
static int parts_of(rill__run *run, const rill__halves_sum *s, const rill__section *c,
                    rill__part *out) {
    int n = 0;
    uint64_t end = c->first + c->range;
    for (int i = 0; i < s->n; i++) {
        const rill__part *part = &s->parts[i];
        uint64_t from = rill__max_u64(part->first, c->first);
        uint64_t to = rill__min_u64(part->first + part->range, end);
        if (i && from >= to) continue;
        rill__part slice = rill__part_slice(run->shape, part, from, to - from);
        if (slice.form == RILL__DENSE && slice.range < c->range) slice = as_pairs(run, &slice);
        if (!i || slice.n) out[n++] = slice;
    }
    return n;
}

/* in: at most 1 + 2 rounds. */
enum { MOST_PARTS = 1 + 2 * 31 };

static rill_status encode(rill__run *run, const rill__halves_sum *s, const rill__section *c,
                          rill__parcel **out) {
    rill__part in[MOST_PARTS];
    int n = parts_of(run, s, c, in);
    /* A forced codec is kept, but where receivers would leave its bits as they lie. */
    bool dense = in[0].form == RILL__SPARSE &&
                 in[0].n > rill__dense_switch(run->shape.type, c->range);
    if (n == 1 && !run->coding.turns_dense && !dense)
        return rill__run_encode(run, &s->coding, &in[0], out);
    rill__run_sum(run, c->first, c->range, n, in, false, &run->piece[0]);
    return rill__run_encode(run, &s->coding, &run->piece[0].part, out);
}

static rill_status send(rill__run *run, rill__halves_sum *s) {
    rill__section c[2];
    rill__parcel *parcels[2];
    int n = rill__halves_leaving(run, &s->halves, c);
    for (int i = 0; i < n; i++)
        RILL_TRY(encode(run, s, &c[i], &parcels[i]));
    return rill__halves_send(run, &s->halves, n, parcels);
}

static void take(rill__run *run, rill__halves_sum *s, const rill__halves_came *came) {
    for (int i = 0; i < came->n; i++) {
        const rill__section *c = &came->section[i];
        rill__part part = rill__run_part(run, &came->message[i]);
        bool fits = part.first == c->first && part.range == c->range;
        if (fits && (part.form == RILL__SPARSE || part.form == RILL__DENSE))
            s->parts[s->n++] = part;
        else if (!rill__run_failed(run))
            rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE,
                                           "rank %d sent other indices than the %llu from %llu on",
                                           came->from, (unsigned long long)c->range,
                                           (unsigned long long)c->first));
    }
}

static bool adds_statistics(const rill__run *run, const rill__halves_sum *s) {
    rill__partition partition = run->problem->partition;
    return s->counts && partition != RILL__BALANCED && !agrees(run->size, partition);
}

static void sum_own(rill__run *run, const rill__halves_sum *s) {
    rill__section own[2];
    rill__part in[MOST_PARTS];
    rill__halves_sections(run, &s->halves, 0, 1, own);
    int n = parts_of(run, s, &own[0], in);
    rill__run_sum(run, own[0].first, own[0].range, n, in, false, &run->piece[0]);
}

rill_status rill__halves_sum_step(rill__run *run, rill__halves_sum *s, rill__split *split) {
    rill_status status;
    if (!s->begun) {
        status = rill__split_bounds(run, split);
        if (status != RILL_OK) return status;
        RILL_TRY(begin(run, s, split));
    }
    while (s->halves.distance) {
        rill__halves_came came;
        if (!s->halves.sent) RILL_TRY(send(run, s));
        status = rill__halves_receive(run, &s->halves, &came);
        if (status != RILL_OK) return status;
        take(run, s, &came);
        if (adds_statistics(run, s) && came.n) rill__run_count(run, &came.message[0].header);
    }
    if (!s->summed) {
        sum_own(run, s);
        s->summed = true;
    }
    bool agree = s->counts && agrees(run->size, run->problem->partition);
    return agree ? rill__run_agree(run, &s->agree) : RILL_OK;
}
