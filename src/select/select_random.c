/* random: k indices that all ranks draw alike.
 *
 * Idea: the vector is cut into k strata of equal size (to 1), and each gives one index, drawn by a
 * counter-based generator from (seed, call, stratum). Nothing is communicated, the result is sorted
 * as it comes, each entry has the chance k / dim, and any part of it can be computed alone.
 * Source: random-k with a shared seed (e.g. Stich et al., NeurIPS 2018), stratified; Philox4x32-10
 * of Random123 (Salmon et al., SC 2011), integer arithmetic only, so that all machines agree.
 * Restriction: entries that are 0 are selected like others, as the support must be the same on all
 * ranks; those must make the same calls. Not every k-subset occurs: no stratum gives two indices.
 * Memory: the pairs. Cost: k random reads; fused: also two reads and a write. */
#include "select/select.h"

#include <Random123/philox.h>

enum { BATCH = 512 }; /* indices drawn before their values are read, so that reads overlap */

typedef struct draws {
    uint64_t pair; /* of strata, which share the 128 bits of a counter */
    philox4x32_ctr_t random;
} draws;

static uint64_t draw(const rill_selector *s, draws *d, uint64_t stratum) {
    if (d->pair != stratum / 2) {
        d->pair = stratum / 2;
        philox4x32_ctr_t counter = {{(uint32_t)d->pair, (uint32_t)(d->pair >> 32),
                                     (uint32_t)s->calls, (uint32_t)(s->calls >> 32)}};
        philox4x32_key_t key = {{(uint32_t)s->seed, (uint32_t)(s->seed >> 32)}};
        d->random = philox4x32(counter, key);
    }
    unsigned half = stratum & 1 ? 2 : 0;
    return (uint64_t)d->random.v[half + 1] << 32 | d->random.v[half];
}

/* floor(random * n / 2^64). */
static uint64_t scale(uint64_t random, uint64_t n) {
    return (uint64_t)(((unsigned __int128)random * n) >> 64);
}

/* The first strata are longer by one: stratum i starts here. */
static uint64_t stratum_start(const rill_selector *s, uint64_t i) {
    return i * (s->dim / s->k) + rill__min_u64(i, s->dim % s->k);
}

static rill_status random_work(rill__slice *p, const void *context) {
    const rill__source *source = context;
    const rill_selector *s = p->selector;
    /* As many strata per part, and not as many entries. */
    uint64_t part = (uint64_t)(p - s->slices), slices = (uint64_t)s->n_slices;
    uint64_t first = s->k / slices * part + rill__min_u64(part, s->k % slices);
    uint64_t end = s->k / slices * (part + 1) + rill__min_u64(part + 1, s->k % slices);
    uint32_t offsets[BATCH];
    draws d = {.pair = UINT64_MAX};
    RILL_TRY(rill__slice_room(p, end - first));
    while (first < end) {
        /* Offsets have 32 bits. */
        uint64_t base = stratum_start(s, first), n = 0;
        for (; n < BATCH && first < end; n++, first++) {
            uint64_t start = stratum_start(s, first), size = stratum_start(s, first + 1) - start;
            uint64_t index = start + scale(draw(s, &d, first), size);
            if (n == 0 && index - base > UINT32_MAX) base = index;
            if (index - base > UINT32_MAX) break;
            offsets[n] = (uint32_t)(index - base);
        }
        rill__slice_take(p, *source, base, n, offsets);
    }
    return RILL_OK;
}

static rill_status select_random(rill_selector *s, rill__source source, rill_stream *out) {
    RILL_TRY(rill__add_gradient(s, &source, out));
    rill__slices_split(s, RILL__SELECT_CHUNK, out);
    RILL_TRY(rill__slices_run(s, random_work, &source));
    return rill__slices_join(s, out);
}

static rill__pick ask_random(const rill_selector *s, uint64_t *room) {
    *room = s->k;
    return (rill__pick){.kind = RILL__PICK_RANDOM, .k = s->k, .seed = s->seed, .call = s->calls};
}

const rill__select_method rill__select_random = {
    .name = "random",
    .description = "k indices drawn alike on all ranks",
    .needs_share = true,
    .select = select_random,
    .ask = ask_random,
    .ahead = RILL__AHEAD_IN_TURN,
};
