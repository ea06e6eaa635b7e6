/* The input of a call in the form that its algorithm wants, and in memory that it can touch; the
 * way back of the result. */
#include "call/call.h"
#include "stream/blocks.h"

/* An empty stream of the same kind, with the memory that it has. */
static void empty_like(rill_stream *stream, const rill_stream *in) {
    stream->type = in->type;
    stream->dim = in->dim;
    stream->index_bytes = in->index_bytes;
    stream->form = RILL__SPARSE;
    stream->nnz = 0;
}

/* ---- streams in another memory ------------------------------------------------------------ */

rill_stream *rill__request_stage_output(rill_request *r) {
    rill_stream *staged = &r->staged[r->in != r->out];
    empty_like(staged, r->out);
    return staged;
}

/* What stands for in. */
static __attribute__((noinline)) rill_status stage_input(rill_request *r) {
    empty_like(&r->staged[0], r->in);
    return rill_stream_copy(&r->staged[0], r->in);
}

/* ---- form --------------------------------------------------------------------------------- */

/* The input in blocks, or in pairs where block is 0; dense where that is cheaper. */
static __attribute__((noinline)) rill_status prepare_form(rill_request *r, const rill_stream *in,
                                                          uint64_t block) {
    rill_type type = in->type;
    if (block && in->form == RILL__BLOCKS && in->block == block &&
        rill__value_equal(type, in->fill, r->run.fill))
        return RILL_OK;
    empty_like(&r->outside.spare, in);
    RILL_TRY(rill__stream_convert(&r->outside.spare, in, block, r->run.fill));
    bool reduces = r->collective <= RILL_REDUCE_SCATTER;
    if (reduces && r->outside.spare.nnz > (block ? rill__blocks_switch(type, block, in->dim)
                                                 : rill__dense_switch(type, in->dim)))
        RILL_TRY(rill_stream_to_dense(&r->outside.spare));
    r->input = rill__stream_part(&r->outside.spare);
    return RILL_OK;
}

/* A dense input with absent entries as the algorithms want them: neutral, or none at all. */
static __attribute__((noinline)) rill_status prepare_dense(rill_request *r, const rill_stream *in) {
    bool gather = r->collective == RILL_ALLGATHER;
    if (!gather && rill__value_equal(in->type, in->fill, r->run.fill)) return RILL_OK;
    rill_stream *changed = &r->outside.spare;
    empty_like(changed, in);
    if (gather) {
        RILL_TRY(rill_stream_copy(changed, in));
        RILL_TRY(rill_stream_to_sparse(changed));
    } else {
        RILL_TRY(rill__stream_refill(changed, in, r->run.fill));
    }
    r->input = rill__stream_part(changed);
    return RILL_OK;
}

/* Pairs of an allreduce that lie in the host's memory are what small calls have: nothing else is on
 * their way. */
void rill__request_input(rill_request *r) {
    const rill_stream *in = r->in;
    rill_status status = RILL_OK;
    if (rill__stream_is_foreign(in)) {
        status = stage_input(r);
        in = &r->staged[0];
    }
    r->input = rill__stream_part(in);
    bool to_blocks = r->plan.algorithm && r->plan.algorithm->takes_blocks;
    if (status != RILL_OK || r->collective == RILL_BCAST) {
    } else if (to_blocks || in->form == RILL__BLOCKS) {
        status = prepare_form(r, in, to_blocks ? r->run.block : 0);
    } else if (in->form == RILL__DENSE) {
        status = prepare_dense(r, in);
    } else { /* pairs that the user gave may be more than the dense form would take */
        r->run.coding.turns_dense = r->collective <= RILL_REDUCE_SCATTER &&
                                    in->nnz > rill__dense_switch(in->type, in->dim);
    }
    if (status == RILL_OK) return;
    rill__task_fail(&r->task, status);
    r->input = rill__part_empty(0, r->in->dim);
}
