/* s2: where something is as a bitmap, what it is as a count-sketch, both summed by MPI.
 *
 * Idea. Bitmaps of the non-zero entries, or blocks of entries, are combined by OR; all ranks then know the
 *   union. Its U entries are numbered, the selected values added to a count-sketch of r rows with
 *   lambda U cells in all (sketch.h), the sketches summed, and each entry of the union estimated by the
 *   median over the rows. Hashes are new in each step, so that the errors of steps are independent.
 * Source. S2 Reducer (Ge et al., ICASSP 2022).
 * Feedback. Without it the update is the estimate as published: unbiased, off by collisions. With it that
 *   would diverge, as the error is larger than what was sent when lambda is small; so
 *   lambda/(1+lambda) = c times the estimate is delivered. Of that a rank's part is c times the mean over
 *   the rows of what its own sketch says, which is linear and adds up to the mean of the sum, plus 1/P of
 *   where the median is other than the mean. It keeps its values less its part: nothing is lost, and
 *   the squared residual of each rank by itself shrinks to 1/(1+lambda). (Were each to answer for 1/P of
 *   the result, the differences between the ranks would stay with them and add up for ever.)
 *   Where lambda is at least the number of rows, each entry has a cell of its own, and all of it is delivered.
 * Restriction. MPI sums the sketch: no coding of values. A NaN or an infinity spoils the entries
 *   that share a cell with it, with feedback also in the residuals.
 * Memory. Two bitmaps, two sketches, the result.
 * Cost, for k values of this rank and cells of s bytes (4; f64: 8):
 *        agreement: ceil(log2 P) latency, twice when buffers have to grow
 *      + 4 ceil(log2 P) mpi_latency + 2 (P-1)/P (N / 8 / block + lambda U s) mpi_byte
 *      + r (k + 2 U) scatter */
#include "coll/patterns/mpi_allreduce.h"
#include "coll/topk/sketch.h"
#include "coll/topk/topk.h"

#include <math.h>
#include <string.h>

enum { MARKING, AGREEING, JOINING, SIZING, AGREEING_ROOM, FILLING, SUMMING, DECODING };
enum { BATCH = 256 };

typedef struct state {
    int stage;
    rill__agree agree;
    rill__mpi_allreduce sum; /* of bitmaps, then of sketches */
    uint64_t block;          /* entries that a bit stands for */
    uint64_t words;          /* of a bitmap */
    uint64_t *own, *joint;
    uint64_t entries; /* of the union */
    rill__sketch sketch;
} state;

static const char *supports(const rill__problem *p) {
    if (!p->mpi_sums) return "hands its sketch to MPI, and these ranks have none";
    return p->value_bits
               ? "hands its sketch to MPI, which sends values as they are: value_bits must "
                 "be 0"
               : NULL;
}

static double estimate(const rill__problem *p) {
    static const double lambda = 0.5,
                        rows = 3; /* the defaults; options are not part of a problem */
    double rounds = ceil(log2(p->ranks)), cell = p->type == RILL_F64 ? 8 : 4;
    double bitmap = (double)p->dim / 8 / (double)rill__max_u64(1, p->block);
    return p->c->overhead + rounds * (p->c->latency + 4 * p->c->mpi_latency) +
           2.0 * (p->ranks - 1) / p->ranks * (bitmap + lambda * p->result * cell) * p->c->mpi_byte +
           rows * (p->nnz_max + 2 * p->result) * p->c->scatter;
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
    s->sum = (rill__mpi_allreduce){
        .words = true, .size = sizeof *s->own, .from = s->own, .to = s->joint, .count = s->words};
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
    s->sum = (rill__mpi_allreduce){.type = s->sketch.cell,
                                   .op = RILL__SUM,
                                   .size = cell,
                                   .from = own,
                                   .to = run->piece[0].idx.data,
                                   .count = cells,
                                   .last = true};
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

/* Goes on when all ranks have agreed, and none has failed. */
static rill_status agreed(rill__run *run, state *s, int next) {
    rill_status status = rill__run_agree(run, &s->agree);
    if (status == RILL_OK) s->stage = next;
    return status;
}

static void size_sketch(rill__run *run, state *s) {
    const rill__feedback *f = run->feedback;
    s->entries = count_entries(run, s);
    if (!s->entries) {
        s->stage = DECODING;
        return;
    }
    rill__sketch_plan(&s->sketch, run->shape.type, s->entries, f->options.sketch_rows,
                      f->options.lambda, f->seed, f->step);
    s->stage = FILLING;
    if (s->entries <= s->agree.args_min) return;
    /* Memory may be short on one rank alone, and MPI can't tell the others. */
    rill_status status = reserve(run, s);
    if (status == RILL_OK) status = rill__run_agree_reserve(run);
    if (status != RILL_OK) rill__run_fail(run, status);
    rill__agree_start(&s->agree, 0, NULL, 0);
    s->stage = AGREEING_ROOM;
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    rill_status status = RILL_OK;
    if (s->stage == MARKING) {
        status = mark(run, s);
        if (status == RILL_OK)
            status = rill__run_agree_reserve(run); /* then all are in MPI's sum, or none */
        if (status != RILL_OK) rill__run_fail(run, status);
        rill__agree_start(&s->agree, room(run), NULL, 0);
        s->stage = AGREEING;
    }
    if (s->stage == AGREEING) status = agreed(run, s, JOINING);
    if (status == RILL_OK && s->stage == JOINING && !rill__run_failed(run)) {
        status = rill__mpi_allreduce_step(run, &s->sum);
        if (status == RILL_OK) s->stage = SIZING;
    }
    if (status == RILL_OK && s->stage == SIZING) size_sketch(run, s);
    if (status == RILL_OK && s->stage == AGREEING_ROOM) status = agreed(run, s, FILLING);
    if (status != RILL_OK) return status;
    if (rill__run_failed(run)) {
        rill__mpi_allreduce_forgo(run);
        return RILL_OK;
    }
    if (s->stage == FILLING) {
        fill(run, s);
        s->stage = SUMMING;
    }
    if (s->stage == SUMMING) {
        RILL_TRY(status = rill__mpi_allreduce_step(run, &s->sum));
        if (status == RILL_IN_PROGRESS) return status;
        s->stage = DECODING;
    }
    rill__mpi_allreduce_forgo(run);
    return finish(run, s);
}

const rill__algorithm rill__topk_s2 = {
    .name = "s2",
    .description = "S2 Reducer: bitmap by OR and count-sketch by sum, through MPI_Allreduce",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
    .posts_mpi_collective = true,
    .by_request = true,
};
