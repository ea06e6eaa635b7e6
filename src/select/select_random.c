/* random: k indices that all ranks draw alike.
 *
 * Idea: the vector is cut into k strata of equal size (to 1), and each gives one index, drawn by a
 * counter-based generator from (seed, call, stratum). Nothing is communicated, the result is sorted
 * as it comes, each entry has the chance k / dim, and any part of it can be computed alone.
 * Source: random-k with a shared seed (e.g. Stich et al., NeurIPS 2018), stratified; Philox4x32-10 of
 * Random123 (Salmon et al., SC 2011), integer arithmetic only, so that all machines agree.
 * Restriction: entries that are 0 are selected like others, as the support must be the same on all
 * ranks; those must make the same calls. Not every k-subset occurs: at most two indices lie within
 * dim / k of each other. Memory: the pairs. Cost: k random reads; fused: also two reads and a write. */
#include "select/select.h"

#include <Random123/philox.h>

static uint64_t draw(const rill_selector *s, uint64_t stratum) {
    philox4x32_ctr_t counter = {{(uint32_t)stratum, (uint32_t)(stratum >> 32), (uint32_t)s->calls,
                                 (uint32_t)(s->calls >> 32)}};
    philox4x32_key_t key = {{(uint32_t)s->seed, (uint32_t)(s->seed >> 32)}};
    philox4x32_ctr_t random = philox4x32(counter, key);
    return (uint64_t)random.v[1] << 32 | random.v[0];
}

/* floor(random * n / 2^64). */
static uint64_t scale(uint64_t random, uint64_t n) {
    return (uint64_t)(((unsigned __int128)random * n) >> 64);
}

static rill_status random_work(rill__part *p, const void *context) {
    const rill__source *source = context;
    const rill_selector *s = p->selector;
    uint64_t size = s->dim / s->k, longer = s->dim % s->k; /* the first are longer by one */
    uint64_t boundary = longer * (size + 1);
    /* The strata that start in this part. */
    uint64_t end = p->first + p->n;
    uint64_t i = p->first <= boundary ? (p->first + size) / (size + 1)
                                      : longer + (p->first - boundary + size - 1) / size;
    RILL_TRY(rill__part_room(p, p->n / size + 2));
    for (;; i++) {
        uint64_t start = i < longer ? i * (size + 1) : boundary + (i - longer) * size;
        if (i >= s->k || start >= end) return RILL_OK;
        uint32_t zero = 0;
        rill__part_take(p, *source, start + scale(draw(s, i), size + (i < longer)), 1, &zero);
    }
}

static rill_status select_random(rill_selector *s, rill__source source, rill_stream *out) {
    RILL_TRY(rill__add_gradient(s, &source, out));
    rill__parts_split(s, RILL__SELECT_CHUNK, out);
    RILL_TRY(rill__parts_run(s, random_work, &source));
    return rill__parts_join(s, out);
}

const rill__select_method rill__select_random = {
    "random", "k indices drawn alike on all ranks", true, select_random};
