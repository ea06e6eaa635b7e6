/* s2: where something is as a bitmap, what it is as a count-sketch, both summed by MPI; on
 * links without MPI, by dense sums of our own. On one host long sketches are summed as long dense
 * vectors are: ranks read each other's memory.
 *
 * Idea. Bitmaps of the non-zero entries, or blocks of entries, are combined by OR; all ranks then
 * know the union. Its U entries are numbered, the selected values added to a count-sketch of r rows
 * with lambda U cells in all (sketch.h), the sketches summed, and each entry of the union estimated
 * by the median over the rows. Hashes are new in each step, so that the errors of steps are
 * independent.
 * Source. S2 Reducer (Ge et al., ICASSP 2022).
 * Feedback. Without it the update is the estimate as published: unbiased, off by collisions. With
 * it that would diverge, as the error is larger than what was sent when lambda is small; so
 * lambda/(1+lambda) = c times the estimate is delivered. Of that a rank's part is c times the mean
 * over the rows of what its own sketch says, which is linear and adds up to the mean of the sum,
 * plus 1/P of where the median is other than the mean. It keeps its values less its part: nothing
 * is lost, and the squared residual of each rank by itself shrinks to 1/(1+lambda). (Were each to
 * answer for 1/P of the result, the differences between the ranks would stay with them and add up
 * for ever.) Where lambda is at least the number of rows, each entry has a cell of its own, and all
 * of it is delivered.
 * Restriction. The sketch is summed as it is: no coding of values. With nonfinite "pass", a NaN or
 * an infinity spoils the entries that share a cell with it, with feedback also in the residuals.
 * Memory. Two bitmaps, two sketches, the result.
 * Cost, for k values of this rank and cells of s bytes (4; f64: 8):
 *        agreement: ceil(log2 P) latency, twice when buffers have to grow
 *      + 4 ceil(log2 P) mpi_latency + 2 (P-1)/P (N / 8 / block + lambda U s) mpi_byte
 *      + r (k + 2 U) scatter
 *        without MPI: two agreements, and the sums of patterns/dense_sum.h; of a sketch that ranks
 *        read from each other, that of patterns/host_sum.h */
#include "coll/patterns/dense_sum.h"
#include "coll/patterns/host_sum.h"
#include "coll/patterns/mpi_allreduce.h"
#include "coll/topk/sketch.h"
#include "coll/topk/topk.h"

#include <math.h>
#include <string.h>

enum {
    MARKING,
    AGREEING,
    JOINING,
    SIZING,
    AGREEING_ROOM,
    FILLING,
    SUMMING,
    SUMMING_HERE,
    DECODING,
    LEAVING
};
enum { BATCH = 256 };

typedef struct state {
    int stage;
    rill__agree agree;
    rill__mpi_allreduce sum; /* of bitmaps, then of sketches */
    rill__dense_sum own_sum; /* the same where there is no MPI */
    rill__host_sum here;     /* of sketches on one host */
    uint64_t block;          /* entries that a bit stands for */
    uint64_t words;          /* of a bitmap */
    uint64_t *own, *joint;
    uint64_t entries; /* of the union */
    rill__sketch sketch;
} state;

static const char *supports(const rill__problem *p) {
    return p->value_bits ? "sends the cells of its sketch as they are: value_bits must be 0" : NULL;
}

static double estimate(const rill__problem *p) {
    static const double lambda = 0.5,
                        rows = 3; /* the defaults; options are not part of a problem */
    double rounds = ceil(log2(p->ranks)), cell = p->type == RILL_F64 ? 8 : 4;
    double bitmap = (double)p->dim / 8 / (double)rill__max_u64(1, p->block);
    double sketch = lambda * p->result * cell, work = rows * (p->nnz_max + 2 * p->result);
    double local = p->c->overhead + work * p->c->scatter;
    double mpi = rounds * 2 * p->c->mpi_latency, ring = 2.0 * (p->ranks - 1) / p->ranks;
    local += rounds * p->c->latency;
    if (p->mpi_sums) local += mpi + ring * bitmap * p->c->mpi_byte;
    else local += rounds * p->c->latency + rill__dense_sum_estimate(p, bitmap);
    if (rill__host_sum_serves(p, sketch)) return local + rill__host_sum_estimate(p, sketch);
    if (!p->mpi_sums) return local + rill__dense_sum_estimate(p, sketch);
    return local + mpi + ring * sketch * p->c->mpi_byte;
}

/* ---- the sums ------------------------------------------------------------------------------- */

static void sum_words(state *s, const uint64_t *from, uint64_t *to, uint64_t n) {
    s->sum = (rill__mpi_allreduce){
        .words = true, .size = sizeof *from, .from = from, .to = to, .count = n};
    s->own_sum = (rill__dense_sum){.words = true, .from = from, .to = to, .count = n};
}

static void sum_cells(state *s, const void *from, void *to, uint64_t n) {
    rill_type type = s->sketch.cell;
    s->sum = (rill__mpi_allreduce){.type = type,
                                   .op = RILL__SUM,
                                   .size = rill__type_size(type),
                                   .from = from,
                                   .to = to,
                                   .count = n,
                                   .last = true};
    s->own_sum =
        (rill__dense_sum){.type = type, .op = RILL_SUM, .from = from, .to = to, .count = n};
    s->here = (rill__host_sum){.type = type, .op = RILL_SUM, .from = from, .to = to, .count = n};
}

static bool sums_here(const rill__run *run, const state *s) {
    double cell = (double)rill__type_size(s->sketch.cell);
    return rill__host_sum_serves(run->problem, (double)rill__sketch_cells(&s->sketch) * cell);
}

/* MPI's sum is for calls that have not failed; our own goes on, as the others wait for messages. */
static rill_status step_sum(rill__run *run, state *s) {
    return run->problem->mpi_sums ? rill__mpi_allreduce_step(run, &s->sum)
                                  : rill__dense_sum_step(run, &s->own_sum);
}

/* ---- the union ------------------------------------------------------------------------------ */

static rill_status mark(rill__run *run, state *s) {
    s->block = rill__max_u64(1, run->feedback->options.block);
    s->words = rill__blocks_in(rill__blocks_in(run->dim, s->block), 64);
    RILL_TRY(rill__buffer_reserve(&run->scratch, 2 * s->words * sizeof *s->own));
    s->own = run->scratch.data;
    s->joint = s->own + s->words;
    memset(s->own, 0, s->words * sizeof *s->own);
    rill__part_mark(run->shape, run->input, s->block, s->own);
    sum_words(s, s->own, s->joint, s->words);
    return RILL_OK;
}

static uint64_t count_entries(const rill__run *run, const state *s) {
    uint64_t units = 0, last = 0;
    for (uint64_t w = 0; w < s->words; w++) {
        if (!s->joint[w]) continue;
        units += (unsigned)__builtin_popcountll(s->joint[w]);
        last = w * 64 + 63 - (unsigned)__builtin_clzll(s->joint[w]);
    }
    return rill__block_entries(s->block, units, last, run->dim);
}

/* Entries for which all buffers that are sized by the union have room. */
static uint64_t room(const rill__run *run) {
    const rill__topk_options *o = &run->feedback->options;
    rill_type type = run->shape.type;
    size_t cell = rill__type_size(rill__sketch_cell_type(type));
    uint64_t cells = rill__min_u64(run->piece[0].idx.capacity, run->piece[0].val.capacity) / cell;
    uint64_t pairs = rill__min_u64(run->piece[1].idx.capacity / run->shape.index_bytes,
                                   run->piece[1].val.capacity / rill__type_size(type));
    uint64_t rounding = (uint64_t)o->sketch_rows + 1; /* a row is rounded up to whole cells */
    if (cells <= rounding) return 0;
    double sketched = (double)(cells - rounding) / fmin(o->lambda, o->sketch_rows);
    return sketched < (double)pairs ? (uint64_t)sketched : pairs;
}

static rill_status reserve(rill__run *run, const state *s) {
    size_t cells = rill__sketch_cells(&s->sketch) * rill__type_size(s->sketch.cell);
    RILL_TRY(rill__buffer_reserve(&run->piece[0].idx, cells));
    RILL_TRY(rill__buffer_reserve(&run->piece[0].val, cells));
    RILL_TRY(rill__buffer_reserve(&run->piece[1].idx, s->entries * run->shape.index_bytes));
    return rill__buffer_reserve(&run->piece[1].val, s->entries * rill__type_size(run->shape.type));
}

/* ---- sketch --------------------------------------------------------------------------------- */

static void fill(rill__run *run, state *s) {
    const rill__part *in = run->input;
    size_t cell = rill__type_size(s->sketch.cell);
    uint64_t index[BATCH];
    double value[BATCH];
    uint64_t cells = rill__sketch_cells(&s->sketch), word = 0, before = 0;
    void *own = run->piece[0].val.data;
    memset(own, 0, cells * cell);
    for (uint64_t i = 0; i < in->n; i++) {
        uint64_t j = i % BATCH;
        if (!j) rill__part_load(run->shape, in, i, rill__min_u64(BATCH, in->n - i), index, value);
        uint64_t unit = index[j] / s->block;
        for (; word < unit / 64; word++)
            before += (unsigned)__builtin_popcountll(s->joint[word]);
        uint64_t below = s->joint[word] & ((UINT64_C(1) << unit % 64) - 1);
        uint64_t rank = before + (unsigned)__builtin_popcountll(below);
        rill__sketch_add(&s->sketch, own, rank * s->block + index[j] % s->block, value[j]);
    }
    sum_cells(s, own, run->piece[0].idx.data, cells);
}

/* kept = what this rank keeps of the entries [at, at + n) of the union, of which share was
 * delivered, and of whose values the first is number *own of the input. */
static void keep(const rill__run *run, const rill__part *result, uint64_t at, uint64_t n,
                 const double *share, void *kept, uint64_t *own) {
    double value[BATCH];
    rill__part_load_at(run->shape, run->input, own, result, at, n, value);
    for (uint64_t i = 0; i < n; i++)
        value[i] -= share[i];
    rill__values_put(run->shape.type, kept, at, n, value);
}

/* val = the result; kept, unless NULL, what this rank keeps of its values. */
static void decode(rill__run *run, state *s, const rill__part *result, void *val, void *kept) {
    const void *own_cells = run->piece[0].val.data, *cells = run->piece[0].idx.data;
    double lambda = run->feedback->options.lambda, ranks = run->size;
    bool collides = rill__sketch_meeting(&s->sketch) > 0;
    double factor = kept && collides ? lambda / (1 + lambda) : 1, squares = 0;
    double median[BATCH], mean[BATCH], share[BATCH], delivered[BATCH];
    rill_type type = run->shape.type;
    uint64_t own = 0;
    for (uint64_t at = 0; at < s->entries; at += BATCH) {
        uint64_t n = rill__min_u64(BATCH, s->entries - at);
        squares += rill__sketch_estimate(&s->sketch, cells, at, n, median, mean);
        for (uint64_t i = 0; i < n; i++)
            median[i] *= factor;
        rill__values_put(type, val, at, n, median);
        if (!kept) continue;
        rill__sketch_mean(&s->sketch, own_cells, at, n, share);
        rill__values_get(type, val, at, n, delivered);
        for (uint64_t i = 0; i < n; i++)
            share[i] = factor * share[i] + (delivered[i] - factor * mean[i]) / ranks;
        keep(run, result, at, n, share, kept, &own);
    }
    run->feedback->collision_error = rill__sketch_error(&s->sketch, cells, squares);
}

static rill_status finish(rill__run *run, state *s) {
    rill__piece *out = &run->piece[1];
    size_t size = rill__type_size(run->shape.type);
    out->part = rill__part_empty(0, run->dim);
    if (s->entries) {
        void *kept = NULL;
        if (run->feedback->options.keeps) {
            kept = rill__run_memory(run, s->entries * size);
            if (!kept) return RILL_OK;
        }
        rill__indices_of_blocks(run->shape.index_bytes, s->words, s->joint, s->block, run->dim,
                                out->idx.data);
        out->part.n = s->entries;
        out->part.idx = out->idx.data;
        out->part.val = out->val.data;
        decode(run, s, &out->part, out->val.data, kept);
        rill__part back = out->part;
        if (kept) {
            back.val = kept;
            rill__give_back(run, &back);
        }
    }
    return rill__finish_piece(run, out);
}

/* ---- the call ------------------------------------------------------------------------------- */

/* Goes on when all ranks have agreed, and none has failed; else all leave here. */
static rill_status agreed(rill__run *run, state *s, int next) {
    rill_status status = rill__run_agree(run, &s->agree);
    if (status == RILL_OK) s->stage = rill__run_failed(run) ? LEAVING : next;
    return status;
}

/* Nobody waits for this rank any more: all have agreed on a failure, or the call was aborted while
 * MPI has the arrays. In a sum of our own the others do wait. */
static bool leaves(const rill__run *run, const state *s) {
    bool by_mpi = run->problem->mpi_sums && s->stage != SUMMING_HERE;
    return s->stage == LEAVING || (by_mpi && rill__run_failed(run));
}

/* Memory may be short on one rank alone, and MPI can't tell the others. That a sum of our own has
 * failed may be known to some ranks only, too, and the others would wait for their cells. */
static void agree_on_room(rill__run *run, state *s, bool grows) {
    rill_status status = grows ? reserve(run, s) : RILL_OK;
    if (status == RILL_OK) status = rill__run_agree_reserve(run);
    if (status != RILL_OK) rill__run_fail(run, status);
    rill__agree_start(&s->agree, 0, NULL, 0);
    s->stage = AGREEING_ROOM;
}

static void size_sketch(rill__run *run, state *s) {
    const rill__feedback *f = run->feedback;
    s->entries = rill__run_failed(run) ? 0 : count_entries(run, s);
    if (s->entries)
        rill__sketch_plan(&s->sketch, run->shape.type, s->entries, f->options.sketch_rows,
                          f->options.lambda, f->seed, f->step);
    s->stage = s->entries ? FILLING : DECODING;
    bool grows = s->entries > s->agree.args_min;
    if (grows || !run->problem->mpi_sums) agree_on_room(run, s, grows);
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    rill_status status = RILL_OK;
    if (s->stage == MARKING) {
        status = mark(run, s);
        if (status == RILL_OK)
            status = rill__run_agree_reserve(run); /* then all are in the sum, or none */
        if (status != RILL_OK) rill__run_fail(run, status);
        rill__agree_start(&s->agree, room(run), NULL, 0);
        s->stage = AGREEING;
    }
    if (s->stage == AGREEING) status = agreed(run, s, JOINING);
    if (status == RILL_OK && s->stage == JOINING && !leaves(run, s)) {
        status = step_sum(run, s);
        if (status == RILL_OK) s->stage = SIZING;
    }
    if (status == RILL_OK && s->stage == SIZING) size_sketch(run, s);
    if (status == RILL_OK && s->stage == AGREEING_ROOM)
        status = agreed(run, s, s->entries ? FILLING : DECODING);
    if (status != RILL_OK) return status;
    if (leaves(run, s)) {
        rill__mpi_allreduce_forgo(run);
        return RILL_OK;
    }
    if (s->stage == FILLING) {
        fill(run, s);
        s->stage = sums_here(run, s) ? SUMMING_HERE : SUMMING;
        if (s->stage == SUMMING_HERE) rill__mpi_allreduce_forgo(run);
    }
    if (s->stage == SUMMING) {
        RILL_TRY(status = step_sum(run, s));
        if (status == RILL_IN_PROGRESS) return status;
        s->stage = DECODING;
    }
    if (s->stage == SUMMING_HERE) {
        RILL_TRY(status = rill__host_sum_step(run, &s->here));
        if (status == RILL_IN_PROGRESS) return status;
        s->stage = DECODING;
    }
    rill__mpi_allreduce_forgo(run);
    return rill__run_failed(run) ? RILL_OK : finish(run, s);
}

const rill__algorithm rill__topk_s2 = {
    .name = "s2",
    .description = "S2 Reducer: bitmap by OR and count-sketch by sum, as dense sums",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
    .posts_mpi_collective = true,
    .by_request = true,
    .keeps_late = true,
};
