/* dense: densify and let MPI do it. The fallback, and what the others must beat.
 *
 * Idea. MPI_Allreduce on a dense vector whose absent entries are the operation's neutral element.
 * Source. MPI. Min and max, which must keep a NaN, and 16-bit types, which MPI has not, go through
 *   operations of ours.
 * Restriction. No user-made operation (MPI's callback has no context); a dense vector must fit.
 * Memory. Two dense vectors, and what MPI takes.
 * Cost.  agreement (MPI cannot carry a status, and everybody must have come before anybody blocks)
 *      + k scatter + N size dense_add                      densify
 *      + 2 ceil(log2 P) mpi_latency + 2 (P-1)/P N size mpi_byte
 *      + 2 N size copy                                     of a short vector, from a block to the result */
#include "coll/allreduce/allreduce.h"
#include "coll/patterns/mpi_allreduce.h"

typedef struct state {
    int stage;
    rill__agree agree;
    rill__mpi_allreduce sum;
    rill__block *block[2]; /* of the vectors, where they lie in blocks */
} state;

/* Up to here the vectors are in blocks, whose pages the kernel copies from faster (req/blocks.c), and the result is copied
 * out; larger ones have such pages anyhow, and change hands. */
enum { SMALL = RILL__HUGE - 4096 }; /* bytes */

enum { DENSIFYING, AGREEING, SUMMING };

static const char *supports(const rill__problem *p) {
    if (!p->mpi_sums) return "hands the sum to MPI, and these ranks have none";
    if (p->op->kind == RILL__USER) return "hands the sum to MPI, which cannot call a user-made op";
    if (p->value_bits)
        return "hands the sum to MPI, which sends values as they are: value_bits must be 0";
    return p->dim > (UINT64_MAX >> 4)
               ? "needs a dense vector, and the dimension is too large for one"
               : NULL;
}

static double estimate(const rill__problem *p) {
    double bytes = (double)p->dim * (double)rill__type_size(p->type), agree = 0;
    for (int reach = 1; reach < p->ranks; reach *= 2)
        agree += p->c->latency + 2 * p->c->mpi_latency;
    double out = bytes < SMALL ? 2 * bytes * p->c->copy : 0;
    return p->c->overhead + agree + rill__densify_estimate(p, p->nnz_max) + out +
           2.0 * (p->ranks - 1) / p->ranks * bytes * p->c->mpi_byte;
}

static bool in_blocks(const rill_request *r) {
    return r->task.expect.dim < SMALL / rill__type_size(r->task.shape.type);
}

/* Room for a dense vector: a block's, or the piece's. NULL: out of memory. */
static void *room(rill_request *r, int i, size_t bytes) {
    state *s = r->state.data;
    rill__buffer *own = &r->piece[i].val;
    if (!in_blocks(r)) return rill__buffer_reserve(own, bytes) == RILL_OK ? own->data : NULL;
    s->block[i] = rill__block_take(&r->task, bytes);
    return s->block[i] ? s->block[i]->buffer.data : NULL;
}

/* While MPI has the vectors nobody else may: a call that is aborted leaves them to it. */
static void hold_blocks(rill_request *r, state *s, int more) {
    r->task.engine->lent += more;
    for (int i = 0; i < 2; i++)
        if (s->block[i]) s->block[i]->users += more;
}

static rill_status densify(rill_request *r, rill__mpi_allreduce *sum) {
    uint64_t dim = r->task.expect.dim;
    rill_type type = r->task.shape.type;
    sum->type = type;
    sum->op = r->op->kind;
    sum->size = rill__type_size(type);
    sum->count = dim;
    sum->last = true;
    sum->to = room(r, 1, dim * sum->size);
    if (!sum->to) return RILL_ERR_MEMORY;
    if (r->input.form == RILL__DENSE && r->in != r->out) {
        sum->from = r->input.val;
    } else if (r->input.form == RILL__SPARSE) {
        void *from = room(r, 0, dim * sum->size);
        if (!from) return RILL_ERR_MEMORY;
        rill__assign_fill(rill__part_space(&r->input)->stream, type, from, dim, r->fill);
        rill__assign_pairs(r->task.shape, from, 0, rill__part_pairs(&r->input));
        sum->from = from;
    } else {
        rill__request_sum(r, 0, dim, 1, &r->input, true, &r->piece[0]);
        sum->from = r->piece[0].val.data;
    }
    return RILL_OK;
}

static rill_status step(rill_request *r) {
    state *s = r->state.data;
    rill_status status;
    if (s->stage == DENSIFYING) {
        status = densify(r, &s->sum);
        if (status == RILL_OK)
            status = rill__agree_reserve(&r->task); /* then all are in MPI's sum, or none */
        if (status != RILL_OK) rill__task_fail(&r->task, status);
        rill__agree_start(&s->agree, 0, NULL, 0);
        s->stage = AGREEING;
    }
    if (s->stage == AGREEING) {
        status = rill__agree_step(&r->task, &s->agree);
        if (status != RILL_OK) return status;
        s->stage = SUMMING;
        if (!rill__task_failed(&r->task)) hold_blocks(r, s, 1);
    }
    if (rill__task_failed(
            &r->task)) { /* here, or by an abort while MPI has the vectors: nobody waits for it */
        r->may_post = false;
        return RILL_OK;
    }
    status = rill__mpi_allreduce_step(r, &s->sum);
    if (status != RILL_OK) return status;
    hold_blocks(r, s, -1);
    uint64_t dim = r->task.expect.dim;
    rill__part result = {RILL__DENSE, 0, dim, dim, NULL, s->sum.to, 0, r->input.space};
    if (in_blocks(r)) return rill__finish_parts(r, 1, &result);
    r->piece[1].part = result;
    return rill__finish_piece(r, &r->piece[1]);
}

const rill__algorithm rill__allreduce_dense = {
    .name = "dense",
    .description = "densify, then MPI_Allreduce: the fallback",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
    .posts_mpi_collective = true,
};
