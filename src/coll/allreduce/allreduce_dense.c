/* dense: densify and let MPI do it. The fallback, and what the others must beat.
 *
 * Idea. MPI_Allreduce on a dense vector whose absent entries are the operation's neutral element.
 * Source. MPI. Min and max, which must keep a NaN, and 16-bit types, which MPI has not, go through
 *   operations of ours.
 * Restriction. No user-made operation (MPI's callback has no context); a dense vector must fit.
 * Memory. Two dense vectors, and what MPI takes.
 * Cost.  agreement (MPI cannot carry a status, and everybody must have come before anybody blocks)
 *      + k scatter + N size dense_add                      densify
 *      + 2 ceil(log2 P) mpi_latency + 2 (P-1)/P N size mpi_byte */
#include "coll/allreduce/allreduce.h"

typedef struct state {
    int stage;
    rill__agree agree;
    MPI_Request mpi;
    uint64_t done, posted;
    const char *from;
} state;

enum { DENSIFYING, AGREEING, POSTING, WAITING };

/* MPI counts are ints. */
#define MOST_AT_ONCE (UINT64_C(1) << 30)

static const char *supports(const rill__problem *p) {
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
    return p->c->overhead + agree + rill__densify_estimate(p, p->nnz_max) +
           2.0 * (p->ranks - 1) / p->ranks * bytes * p->c->mpi_byte;
}

static void densify(rill_request *r, state *s) {
    uint64_t dim = r->task.expect.dim;
    if (r->input.form == RILL__DENSE && r->in != r->out) {
        s->from = r->input.val;
    } else {
        rill__request_sum(r, 0, dim, 1, &r->input, true, &r->piece[0]);
        s->from = r->piece[0].val.data;
    }
    rill_status status = rill__buffer_reserve(&r->piece[1].val,
                                              dim * rill__type_size(r->task.shape.type));
    if (status != RILL_OK) rill__task_fail(r, status);
}

/* A blocking call may block in MPI: the agreement has shown that all ranks are in this call, and
 * none has an earlier collective to post. */
static rill_status post(rill_request *r, state *s) {
    MPI_Datatype type;
    MPI_Op op;
    if (!rill__mpi_op(r, &type, &op)) return rill__fail(RILL_ERR_UNSUPPORTED, "MPI has no such op");
    size_t size = rill__type_size(r->task.shape.type);
    s->posted = rill__min_u64(MOST_AT_ONCE, r->task.expect.dim - s->done);
    const char *from = s->from + s->done * size;
    char *to = (char *)r->piece[1].val.data + s->done * size;
    int code;
    if (r->blocking) {
        s->mpi = MPI_REQUEST_NULL;
        code = MPI_Allreduce(from, to, (int)s->posted, type, op, r->task.engine->mpi);
    } else {
        code = MPI_Iallreduce(from, to, (int)s->posted, type, op, r->task.engine->mpi, &s->mpi);
    }
    return code == MPI_SUCCESS ? RILL_OK : rill__mpi_error(code, "MPI_Allreduce");
}

static rill_status step(rill_request *r) {
    state *s = r->state.data;
    uint64_t dim = r->task.expect.dim;
    if (s->stage == DENSIFYING) {
        densify(r, s);
        rill__agree_start(&s->agree, 0, NULL, 0);
        s->stage = AGREEING;
    }
    if (s->stage == AGREEING) {
        rill_status status = rill__agree_step(r, &s->agree);
        if (status != RILL_OK) return status;
        s->stage = POSTING;
    }
    if (rill__task_failed(r)) {
        r->may_post = false;
        return RILL_OK;
    }
    while (s->done < dim) {
        if (s->stage == POSTING) {
            if (!rill__may_post(r)) return RILL_IN_PROGRESS;
            RILL_TRY(post(r, s));
            s->stage = WAITING;
            if (s->done + s->posted == dim) r->may_post = false;
        }
        int over = 0;
        int code = rill__mpi_test(&s->mpi, &over);
        if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Test");
        if (!over) return RILL_IN_PROGRESS;
        s->done += s->posted;
        s->stage = POSTING;
    }
    r->may_post = false;
    int ranks = r->task.engine->size;
    uint64_t bytes = 2 * (dim * rill__type_size(r->task.shape.type) / (unsigned)ranks) *
                     (unsigned)(ranks - 1);
    r->task.sent_bytes += bytes;
    r->task.recv_bytes += bytes;
    r->task.messages += 2 * (unsigned)(ranks - 1);
    r->task.rounds += 2 * (unsigned)(ranks - 1);
    r->piece[1].part = (rill__part){RILL__DENSE, 0, dim, dim, NULL, r->piece[1].val.data, 0};
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
