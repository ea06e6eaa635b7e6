/* dense: densify and let MPI do it; where ranks of one host can read each other's memory, and on
 * links without MPI, a dense sum of our own. The fallback, and what the others must beat.
 *
 * Idea. MPI_Allreduce on a dense vector whose absent entries are the operation's neutral element.
 * Source. MPI. Min and max, which must keep a NaN, and 16-bit types, which MPI has not, go through
 *   operations of ours. Long vectors on one host: patterns/host_sum.h. Without
 *   MPI: patterns/dense_sum.h.
 * Restriction. A dense vector must fit. By MPI no user-made operation: MPI gives it no context.
 * Memory. Two dense vectors, and what MPI takes, or the messages.
 * Cost.  agreement (MPI cannot carry a status, and everybody must have come before anybody blocks)
 *      + k scatter + N size dense_add                      densify
 *      + 2 ceil(log2 P) mpi_latency + 2 (P-1)/P N size mpi_byte  (about half, if short, on a host)
 *      + 2 N size copy                      of a short vector, from a parcel to the result
 * Else: densify + the sum of N size bytes (patterns/host_sum.h, patterns/dense_sum.h). There is no
 * agreement: messages carry a status. */
#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "coll/patterns/dense_sum.h"
#include "coll/patterns/host_sum.h"
#include "coll/patterns/mpi_allreduce.h"

typedef struct state {
    int stage;
    rill__agree agree;
    rill__mpi_allreduce sum;
    rill__dense_sum own; /* where there is no MPI */
    rill__host_sum here; /* on one host */
} state;

/* Up to here the vectors are in parcels, whose pages the kernel copies from faster (req/parcels.c),
 * and the result is copied out; larger ones have such pages anyhow, and change hands. */
enum { SMALL = RILL__HUGE - 4096 }; /* bytes */

/* Share of the time that MPI takes for a byte of short vectors on one host: 2^16 on 4 and 8 ranks
 * (bench/results/grid-16-cores.jsonl), half of 16,384 and 393,216 on 8 and 16 (learn.jsonl). Two
 * ranks take all of it. */
#define IN_CACHES 0.55

enum { DENSIFYING, AGREEING, SUMMING, SUMMING_OWN, SUMMING_HERE };

static const char *supports(const rill__problem *p) {
    bool by_mpi = p->mpi_sums && !rill__host_sum_serves_dense(p);
    if (by_mpi && p->op->kind == RILL__USER)
        return "hands the sum to MPI, which cannot call a user-made op";
    if (p->value_bits)
        return by_mpi ? "hands the sum to MPI, which sends values as they are: value_bits must be 0"
                      : "sends values as they are: value_bits must be 0";
    return p->dim > (UINT64_MAX >> 4)
               ? "needs a dense vector, and the dimension is too large for one"
               : NULL;
}

static double estimate(const rill__problem *p) {
    double bytes = (double)p->dim * (double)rill__type_size(p->type), agree = 0;
    if (rill__host_sum_serves(p, bytes))
        return p->c->overhead + rill__densify_estimate(p, p->nnz_max) +
               rill__host_sum_estimate(p, bytes);
    if (!p->mpi_sums)
        return p->c->overhead + rill__densify_estimate(p, p->nnz_max) +
               rill__dense_sum_estimate(p, bytes);
    for (int reach = 1; reach < p->ranks; reach *= 2)
        agree += p->c->latency + 2 * p->c->mpi_latency;
    double out = bytes < SMALL ? 2 * bytes * p->c->copy : 0;
    double cached = p->hosts == 1 && p->ranks > 2 && bytes < SMALL ? IN_CACHES : 1;
    return p->c->overhead + agree + rill__densify_estimate(p, p->nnz_max) + out +
           2.0 * (p->ranks - 1) / p->ranks * bytes * cached * p->c->mpi_byte;
}

static bool in_parcels(const rill__run *run) {
    return run->dim < SMALL / rill__type_size(run->shape.type);
}

/* Room for a dense vector: a parcel's, or the piece's. NULL: out of memory. */
static void *room(rill__run *run, rill__mpi_allreduce *sum, int i, size_t bytes) {
    rill__buffer *kept = &run->piece[i].val;
    if (in_parcels(run)) return rill__mpi_room(run, sum, i, bytes);
    return rill__buffer_reserve(kept, bytes) == RILL_OK ? kept->data : NULL;
}

static rill_status densify(rill__run *run, rill__mpi_allreduce *sum) {
    uint64_t dim = run->dim;
    rill_type type = run->shape.type;
    size_t bytes = dim * rill__type_size(type);
    sum->type = type;
    sum->op = run->op->kind;
    sum->size = rill__type_size(type);
    sum->count = dim;
    sum->last = sum->lends = true;
    sum->to = room(run, sum, 1, bytes);
    if (!sum->to) return RILL_ERR_MEMORY;
    if (run->input->form == RILL__DENSE && !run->in_place) {
        sum->from = run->input->val;
    } else if (run->input->form == RILL__SPARSE) {
        void *from = room(run, sum, 0, bytes);
        if (!from) return RILL_ERR_MEMORY;
        rill__part_fill_to(run->shape, run->input, run->fill, from);
        sum->from = from;
    } else {
        rill__run_sum(run, 0, dim, 1, run->input, true, &run->piece[0]);
        sum->from = run->piece[0].val.data;
    }
    return RILL_OK;
}

/* ---- without MPI ---------------------------------------------------------------------------- */

/* The input as a dense vector of this call's own. */
static rill_status make_dense(rill__run *run, const void **from) {
    rill__buffer *made = &run->piece[0].val;
    if (run->input->form == RILL__SPARSE) {
        RILL_TRY(rill__buffer_reserve(made, run->dim * rill__type_size(run->shape.type)));
        rill__part_fill_to(run->shape, run->input, run->fill, made->data);
    } else {
        rill__run_sum(run, 0, run->dim, 1, run->input, true, &run->piece[0]);
    }
    *from = made->data;
    return RILL_OK;
}

static rill_status make_room(rill__run *run, void **to) {
    rill__buffer *room = &run->piece[1].val;
    RILL_TRY(rill__buffer_reserve(room, run->dim * rill__type_size(run->shape.type)));
    *to = room->data;
    return RILL_OK;
}

static rill_status densify_own(rill__run *run, rill__dense_sum *sum) {
    RILL_TRY(make_room(run, &sum->to));
    if (run->input->form == RILL__DENSE) {
        sum->from = run->input->val;
        return RILL_OK;
    }
    if (run->input->form == RILL__SPARSE) {
        sum->sparse = run->input;
        sum->fill = run->fill;
        if (rill__dense_sum_in_pieces(run, sum)) return RILL_OK;
        sum->sparse = NULL;
    }
    return make_dense(run, &sum->from);
}

static rill_status finish(rill__run *run, void *sum) {
    run->piece[1].part = (rill__part){RILL__DENSE, 0,   run->dim, run->dim,
                                      NULL,        sum, 0,        run->input->space};
    return rill__finish_piece(run, &run->piece[1]);
}

/* A rank that has no memory for its vectors takes part all the same: its messages say so. */
static rill_status step_own(rill__run *run, state *s) {
    if (s->stage == DENSIFYING) {
        s->own = (rill__dense_sum){.type = run->shape.type, .op = run->op, .count = run->dim};
        rill_status status = densify_own(run, &s->own);
        if (status != RILL_OK) rill__run_fail(run, status);
        s->stage = SUMMING_OWN;
    }
    rill_status status = rill__dense_sum_step(run, &s->own);
    if (status != RILL_OK || rill__run_failed(run)) return status;
    return finish(run, s->own.to);
}

/* ---- on one host ---------------------------------------------------------------------------- */

static rill_status densify_here(rill__run *run, rill__host_sum *sum) {
    size_t bytes = run->dim * rill__type_size(run->shape.type);
    RILL_TRY(make_room(run, &sum->to));
    if (run->input->form != RILL__DENSE || !rill__host_sum_can_lend(run, run->input->val, bytes))
        return make_dense(run, &sum->from);
    sum->from = run->input->val;
    return RILL_OK;
}

static rill_status step_here(rill__run *run, state *s) {
    if (s->stage == DENSIFYING) {
        rill__mpi_allreduce_forgo(run);
        s->here = (rill__host_sum){.type = run->shape.type, .op = run->op, .count = run->dim};
        rill_status status = densify_here(run, &s->here);
        if (status != RILL_OK) rill__run_fail(run, status);
        s->stage = SUMMING_HERE;
    }
    rill_status status = rill__host_sum_step(run, &s->here);
    return status != RILL_OK || rill__run_failed(run) ? status : finish(run, s->here.to);
}

/* ---- the call ------------------------------------------------------------------------------- */

static rill_status step(rill__run *run) {
    state *s = run->state;
    rill_status status;
    if (rill__host_sum_serves_dense(run->problem)) return step_here(run, s);
    if (!run->problem->mpi_sums) return step_own(run, s);
    if (s->stage == DENSIFYING) {
        status = densify(run, &s->sum);
        if (status == RILL_OK)
            status = rill__run_agree_reserve(run); /* then all are in MPI's sum, or none */
        if (status != RILL_OK) rill__run_fail(run, status);
        rill__agree_start(&s->agree, 0, NULL, 0);
        s->stage = AGREEING;
    }
    if (s->stage == AGREEING) {
        status = rill__run_agree(run, &s->agree);
        if (status != RILL_OK) return status;
        s->stage = SUMMING;
    }
    if (rill__run_failed(
            run)) { /* here, or by an abort while MPI has the vectors: nobody waits for it */
        rill__mpi_allreduce_forgo(run);
        return RILL_OK;
    }
    status = rill__mpi_allreduce_step(run, &s->sum);
    if (status != RILL_OK) return status;
    uint64_t dim = run->dim;
    rill__part result = {RILL__DENSE, 0, dim, dim, NULL, s->sum.to, 0, run->input->space};
    if (in_parcels(run)) return rill__finish_parts(run, 1, &result);
    run->piece[1].part = result;
    return rill__finish_piece(run, &run->piece[1]);
}

const rill__algorithm rill__allreduce_dense = {
    .name = "dense",
    .description = "densify, then MPI_Allreduce, or a dense sum of our own: the fallback",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
    .posts_mpi_collective = true,
};
