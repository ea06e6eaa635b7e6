/* oktopk: about k entries of the sum, with a volume that does not grow with P.
 *
 * Idea. The index space is split in P regions, one for each rank, so that every rank has about as
 * many entries in each (balanced split): their bounds are the averages over the ranks of each
 * rank's own quantiles, found anew every tau steps. Every rank sends each owner its entries of that
 * region; owners sum and keep what passes a global threshold, which is found from histograms every
 * tau' steps and steered in between (topk_oktopk_level.c). The shares that passed, 4/3 k in all,
 * are gathered by all, who keep the k largest. Where one share is over 4 times the mean, entries
 * are moved first, so that shares are equal (topk_oktopk_balance.c). No round tells sizes. Whether
 * to balance is decided from the last step's shares, which everybody knows; where there is no last
 * step, or it was skewed, sizes are agreed on, and decide.
 * Source. Ok-Topk (Li and Hoefler, PPoPP 2022). Different here: bounds are averages over ranks that
 * have entries; the threshold comes from histograms of fixed size and not from a gathered union;
 * sizes are not exchanged in each step; Bruck's allgather is recursive doubling for any P.
 * Order of sums. Contributions are taken as they come, and summed in groups of about 8 ranks as
 * soon as a group is there, while others are under way; the order of summation is that of the
 * ranks, in every run.
 * Restriction. P times the dimension is below 2^64.
 * Memory. The messages received: k entries, then the result. From step to step: bounds, threshold.
 * Cost, for n entries that a rank selects:
 *        (P-1) latency + n (P-1)/P pair (byte + 2 copy)       split
 *      + n sum (P = 2: merge) + K/P pair 2 copy               sum and cut; K: of the union
 *      + ceil(log2 P) latency + a (P-1)/P pair (byte + copy)  allgather; a: 4/3 k, or k where moved
 *      + a select + k pair 2 copy                             cut, concatenation
 *      + agreements: 2 of 1024 words every tau' steps, one of P words every tau
 * Volume. Words per rank, P large: 2k split + 8/3 k allgather, or 2k + 2k + 2k where shares are
 * moved; of 6k(P-1)/P. */
#include "coll/topk/topk_oktopk.h"
#include "coll/cost.h"
#include "coll/patterns/gather.h"
#include "coll/patterns/split.h"

#include <string.h>

enum { GROUP = 8 };                /* ranks whose contributions are summed at once */
enum { TAU = 64, TAU_LEVEL = 32 }; /* defaults, for the estimate */

/* From step to step; all zero is a fresh one. The same on all ranks. */
typedef struct memory {
    uint64_t open;       /* a step has begun; still set in the next: it failed, and nothing holds */
    uint64_t k;          /* that the threshold was made for */
    rill__level level;   /* threshold */
    uint64_t level_due;  /* to be found in the next step */
    uint64_t level_age;  /* steps since it was found, */
    uint64_t bounds_age; /* and since the bounds were */
    uint64_t bounded, known, skewed; /* bounds hold; a step has ended; its shares were unequal */
    uint64_t bounds[];               /* P + 1 */
} memory;

enum { START, PARTITIONING, SPLITTING, RECEIVING, FINDING, CUTTING, BALANCING, GATHERING, STOPPED };

typedef struct state {
    int stage, sent;
    bool finds; /* the threshold, in this step */
    rill__collect collect;
    rill__agree agree;
    uint64_t *sums;    /* of bounds, then ranks that have any */
    rill__part *parts; /* of rank i for my region */
    rill__part *group; /* sums of groups */
    int groups, *missing;
    rill__share share;
    uint64_t counts[RILL__LEVEL_MARKS];
    rill__level_search search;
    rill__balance balance;
    rill__gather gather;
} state;

static size_t memory_size(int ranks) {
    return sizeof(memory) + ((size_t)ranks + 1) * sizeof(uint64_t);
}

static const char *supports(const rill__problem *p) {
    return p->dim > UINT64_MAX / (unsigned)p->ranks
               ? "adds up bounds of all ranks in 64 bit, and the dimension is too large for that"
               : NULL;
}

static double agree_estimate(const rill__problem *p, double words) {
    double time = 0;
    for (int reach = 1; reach < p->ranks; reach *= 2)
        time += p->c->latency + RILL__SHORT_BYTES * p->c->byte +
                words * 8 * (p->c->byte + p->transcode);
    return time;
}

static double estimate(const rill__problem *p) {
    double nnz = p->nnz > 1 ? p->nnz : 1, others = (p->ranks - 1.0) / p->ranks;
    double pair = rill__pairs_bytes(p, nnz, (double)p->dim) / nnz;
    double passed = (double)rill__level_aim((uint64_t)p->k, false);
    double owned = passed / p->ranks * pair + RILL__SHORT_BYTES;
    double split = (p->ranks - 1) * p->c->latency +
                   p->nnz_max * others * pair * (p->c->byte + p->transcode);
    double sum = p->nnz * (p->ranks == 2 ? p->c->merge : p->c->sum) +
                 p->result / p->ranks * pair * p->transcode;
    return p->c->overhead + split + sum + rill__gather_estimate(p, RILL__BRUCK, owned) +
           passed * RILL__SELECT_MERGES * p->c->merge + p->k * pair * p->transcode +
           2 * agree_estimate(p, RILL__LEVEL_BINS) / TAU_LEVEL + agree_estimate(p, p->ranks) / TAU;
}

/* ---- regions -------------------------------------------------------------------------------- */

static memory *memory_of(const rill__run *run) { return run->feedback->memory.data; }
static uint64_t wanted(const rill__run *run) { return rill__max_u64(1, run->feedback->k); }

static void uniform_bounds(const rill__run *run, uint64_t *bounds) {
    int size = run->size;
    for (int i = 0; i <= size; i++)
        bounds[i] = rill__uniform_bound(run->dim, i, size);
}

/* sums = this rank's quantiles, and 1; a rank without entries has no say. */
static rill_status start_partition(rill__run *run, state *s) {
    int size = run->size;
    s->sums = rill__run_alloc(run, (size_t)size, sizeof *s->sums);
    if (!s->sums) return RILL_ERR_MEMORY;
    const rill__part *in = run->input;
    for (int i = 1; in->n && i < size; i++)
        s->sums[i - 1] = rill__part_index(run->shape, in, rill__uniform_bound(in->n, i, size));
    s->sums[size - 1] = in->n ? 1 : 0;
    rill__agree_start(&s->agree, 0, s->sums, (uint64_t)size);
    return RILL_OK;
}

static void end_partition(rill__run *run, const state *s) {
    memory *m = memory_of(run);
    int size = run->size;
    uint64_t voters = s->sums[size - 1];
    for (int i = 1; voters && i < size; i++)
        m->bounds[i] = s->sums[i - 1] / voters;
    m->bounded = voters != 0; /* else uniform for this step */
    m->bounds_age = 0;
}

/* Where the largest possible share is not over the trigger, nobody needs to know sizes. */
static bool may_balance(const rill__run *run) {
    const memory *m = memory_of(run);
    return (!m->known || m->skewed) && run->feedback->options.balance_trigger < run->size;
}

static rill_status start(rill__run *run, state *s) {
    memory *m = memory_of(run);
    const rill__topk_options *o = &run->feedback->options;
    if (m->open) memset(m, 0, run->feedback->memory_size);
    rill__run_remembers(run, m, run->feedback->memory_size);
    m->open = 1;
    s->finds = m->level.value == 0 || m->level_due || m->level_age >= o->threshold_interval ||
               m->k != wanted(run);
    bool balanced = run->problem->partition == RILL__BALANCED;
    bool due = !m->bounded || m->bounds_age >= o->repartition_interval;
    if (!balanced || due) uniform_bounds(run, m->bounds);
    run->more_memory = s->finds || (balanced && due) || may_balance(run);
    s->stage = balanced && due ? PARTITIONING : SPLITTING;
    return balanced && due ? start_partition(run, s) : RILL_OK;
}

/* ---- split and reduce ----------------------------------------------------------------------- */

static int group_first(const rill__run *run, const state *s, int group) {
    return (int)rill__uniform_bound((uint64_t)run->size, group, s->groups);
}

static int group_of(const rill__run *run, const state *s, int rank) {
    int group = 0;
    while (group_first(run, s, group + 1) <= rank)
        group++;
    return group;
}

static void my_region(const rill__run *run, uint64_t *first, uint64_t *range) {
    const memory *m = memory_of(run);
    int me = run->rank;
    *first = m->bounds[me];
    *range = m->bounds[me + 1] - m->bounds[me];
}

static rill_status split(rill__run *run, state *s) {
    int size = run->size, me = run->rank;
    /* 16-bit sums are made in f32 and rounded once: all ranks in one group. */
    bool rounds = rill__type_size(run->shape.type) == 2;
    s->groups = rounds ? 1 : (size + GROUP - 1) / GROUP;
    s->parts = rill__run_alloc(run, (size_t)size, sizeof *s->parts);
    s->group = rill__run_alloc(run, (size_t)s->groups, sizeof *s->group);
    s->missing = rill__run_alloc(run, (size_t)s->groups, sizeof *s->missing);
    if (!s->parts || !s->group || !s->missing) return RILL_ERR_MEMORY;
    for (int i = 0; i < s->groups; i++)
        s->missing[i] = group_first(run, s, i + 1) - group_first(run, s, i);
    uint64_t first, range;
    my_region(run, &first, &range);
    s->parts[me] = rill__part_slice(run->shape, run->input, first, range);
    RILL_TRY(rill__collect_start(run, &s->collect, &(rill__group){0}, RILL__LANE_A));
    s->missing[group_of(run, s, me)]--;
    rill__run_round(run);
    return RILL_OK;
}

static rill_status copy_part(rill__run *run, const rill__part *from, rill__part *to) {
    rill__part_bytes bytes = rill__part_room(run->shape, from);
    void *idx = rill__run_memory(run, bytes.idx), *val = rill__run_memory(run, bytes.val);
    if (!idx || !val) return RILL_ERR_MEMORY;
    rill__part_copy_to(run->shape, from, idx, val, to);
    return RILL_OK;
}

static rill_status sum_group(rill__run *run, state *s, int group) {
    int from = group_first(run, s, group), n = group_first(run, s, group + 1) - from;
    uint64_t first, range;
    my_region(run, &first, &range);
    rill__run_sum(run, first, range, n, s->parts + from, false, &run->piece[0]);
    return s->groups > 1 ? copy_part(run, &run->piece[0].part, &s->group[group]) : RILL_OK;
}

static rill__part take_part(rill__run *run, const rill__received *received) {
    uint64_t first, range;
    my_region(run, &first, &range);
    rill__part part = rill__part_empty(first, range);
    if (rill__received_nothing(received)) return part;
    part = rill__run_part(run, &received->message);
    if (part.first == first && part.range == range) return part;
    rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE, "rank %d sent another range than this rank's",
                                   received->from));
    return rill__part_empty(first, range);
}

static rill_status receive(rill__run *run, state *s) {
    for (;;) {
        rill__received received;
        RILL_TRY(rill__split_send(run, &s->collect, &run->coding, run->input,
                                  memory_of(run)->bounds, &s->sent));
        rill_status status = rill__collect_next(run, &s->collect, &received);
        if (status != RILL_OK || received.place < 0) return status;
        s->parts[received.place] = take_part(run, &received);
        int group = group_of(run, s, received.place);
        if (--s->missing[group] == 0) RILL_TRY(sum_group(run, s, group));
    }
}

/* The sum of my region as pairs, whatever its form. */
static rill_status take_sum(rill__run *run, state *s) {
    uint64_t first, range;
    my_region(run, &first, &range);
    if (s->groups > 1) {
        rill__run_sum(run, first, range, s->groups, s->group, false, &run->piece[0]);
    }
    const rill__part *sum = &run->piece[0].part;
    if (sum->form == RILL__SPARSE) {
        s->share = (rill__share){sum->n, run->piece[0].idx.data, run->piece[0].val.data};
        return RILL_OK;
    }
    void *idx = rill__run_memory(run, range * run->shape.index_bytes);
    void *val = rill__run_memory(run, range * rill__type_size(run->shape.type));
    if (!idx || !val) return RILL_ERR_MEMORY;
    uint64_t n = rill__part_compact_to(run->shape, sum, run->fill, idx, val);
    s->share = (rill__share){n, idx, val};
    return RILL_OK;
}

/* ---- gather --------------------------------------------------------------------------------- */

static rill_status start_gather(rill__run *run, state *s) {
    rill__part part = rill__share_part(&s->share);
    if (s->balance.moving) /* indices of other regions, too */
        part = rill__part_entries(run->shape, &part, 0, part.n);
    else my_region(run, &part.first, &part.range);
    uint64_t words[2];
    rill__level_pack(s->counts, words);
    rill__coding coding = run->coding;
    coding.words = words;
    rill__parcel *mine;
    RILL_TRY(rill__run_encode(run, &coding, &part, &mine));
    return rill__gather_start(run, &s->gather, RILL__BRUCK, mine);
}

/* Shares follow each other; their ranges are made to cover the whole dimension. */
static void join_ranges(rill__run *run, rill__part *parts) {
    int size = run->size;
    uint64_t end = 0;
    for (int i = 0; i < size && !rill__run_failed(run); i++) {
        uint64_t n = parts[i].n, first = end;
        bool sparse = parts[i].form == RILL__SPARSE;
        if (!sparse || (n && rill__part_index(run->shape, &parts[i], 0) < end))
            rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE,
                                           "the share of rank %d is not one that follows", i));
        else if (n) end = rill__part_index(run->shape, &parts[i], n - 1) + 1;
        if (i == size - 1) end = run->dim;
        parts[i].first = first;
        parts[i].range = end - first;
    }
}

/* What the next step starts from: made of what all ranks have received, so the same on all. */
static rill_status remember(rill__run *run, const state *s) {
    memory *m = memory_of(run);
    int size = run->size;
    uint64_t k = wanted(run), counts[RILL__LEVEL_MARKS] = {0};
    uint64_t *sizes = rill__run_alloc(run, (size_t)size, sizeof *sizes);
    if (!sizes) return RILL_ERR_MEMORY;
    for (int i = 0; i < size; i++) {
        const rill__header *h = &s->gather.messages[i].header;
        sizes[i] = h->count;
        counts[RILL__LEVEL_OWN] += h->count;
        if (h->tells == RILL__TELLS_WORDS) rill__level_unpack(h->word, counts);
    }
    uint64_t count = counts[RILL__LEVEL_OWN];
    m->known = 1;
    m->skewed = rill__balance_needed(s->balance.sizes ? s->balance.sizes : sizes, size,
                                     run->feedback->options.balance_trigger);
    m->k = k;
    m->level_age++;
    m->bounds_age++;
    if (m->level.value == 0) return RILL_OK;
    /* A threshold that nothing but 0 is under cannot be lowered, nor steered. */
    bool lowest = rill__level_key(run->shape.type, m->level.value) == 1;
    uint64_t aim = rill__level_aim(k, m->skewed != 0);
    m->level_due = lowest ? count > aim + k / 16 : rill__level_is_off(k, aim, count);
    if (!lowest) rill__level_steer(&m->level, aim, counts);
    return RILL_OK;
}

static rill_status finish(rill__run *run, state *s) {
    int size = run->size;
    rill__part *parts = rill__run_alloc(run, (size_t)size, sizeof *parts);
    if (!parts) return RILL_ERR_MEMORY;
    rill__gather_parts(run, &s->gather, parts);
    join_ranges(run, parts);
    if (rill__run_failed(run)) return RILL_OK;
    RILL_TRY(rill__level_cut_parts(run, size, parts, wanted(run)));
    RILL_TRY(rill__finish_parts(run, size, parts));
    RILL_TRY(remember(run, s));
    memory_of(run)->open = 0;
    return RILL_OK;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static rill_status find_level(rill__run *run, state *s) {
    memory *m = memory_of(run);
    uint64_t key = 0;
    uint64_t aim = rill__level_aim(wanted(run), m->skewed != 0);
    rill_status status = rill__level_find(run, &s->search, &s->share, aim, &key);
    if (status != RILL_OK) return status;
    rill__level_set(&m->level, key ? rill__level_of_key(run->shape.type, key) : 0);
    m->level_age = 0;
    return RILL_OK;
}

static rill_status stop(state *s) {
    s->stage = STOPPED;
    return RILL_OK;
}

/* Up to my share of what is delivered. After an agreement all know of a failure, and stop. */
static rill_status reduce_step(rill__run *run, state *s) {
    rill_status status;
    if (s->stage == START) RILL_TRY(start(run, s));
    if (s->stage == PARTITIONING) {
        status = rill__run_agree(run, &s->agree);
        if (status != RILL_OK) return status;
        if (rill__run_failed(run)) return stop(s);
        end_partition(run, s);
        s->stage = SPLITTING;
    }
    if (s->stage == SPLITTING) {
        RILL_TRY(split(run, s));
        s->stage = RECEIVING;
    }
    if (s->stage == RECEIVING) {
        status = receive(run, s);
        if (status != RILL_OK) return status;
        RILL_TRY(take_sum(run, s));
        s->stage = s->finds ? FINDING : CUTTING;
    }
    if (s->stage == FINDING) {
        status = find_level(run, s);
        if (status != RILL_OK) return status;
        if (rill__run_failed(run)) return stop(s);
        s->stage = CUTTING;
    }
    rill_type type = run->shape.type;
    double level = memory_of(run)->level.value;
    rill__level_counts(type, &s->share, level, s->counts);
    rill__level_cut(run->shape, &s->share, rill__level_key(type, level));
    s->stage = BALANCING;
    return RILL_OK;
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    rill_status status = RILL_OK;
    if (s->stage < BALANCING) status = reduce_step(run, s);
    if (status != RILL_OK || s->stage == STOPPED) return status;
    if (s->stage == BALANCING) {
        if (may_balance(run)) {
            status = rill__balance_step(run, &s->balance, &s->share);
            if (status != RILL_OK) return status;
            if (rill__run_failed(run) && !s->balance.moving) return stop(s);
        }
        RILL_TRY(start_gather(run, s));
        s->stage = GATHERING;
    }
    status = rill__gather_step(run, &s->gather);
    return status == RILL_OK ? finish(run, s) : status;
}

const rill__algorithm rill__topk_oktopk = {
    .name = "oktopk",
    .description =
        "Ok-Topk: balanced split, global threshold, balanced allgather; volume free of P",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
    .memory_size = memory_size,
    .selects = "threshold",
    .balances = true,
};
