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

rill_stream *rill__request_output(rill_request *r) {
    if (!r->out || !rill__stream_is_foreign(r->out)) return r->out;
    rill_stream *staged = &r->staged[r->in != r->out];
    empty_like(staged, r->out);
    return staged;
}

rill_status rill__request_land(rill_request *r) {
    return r->outside.out == r->out ? RILL_OK : rill_stream_copy(r->out, r->outside.out);
}

/* in, or what stands for it. */
static rill_status near_input(rill_request *r, const rill_stream **in) {
    *in = r->in;
    if (!rill__stream_is_foreign(r->in)) return RILL_OK;
    *in = &r->staged[0];
    empty_like(&r->staged[0], r->in);
    return rill_stream_copy(&r->staged[0], r->in);
}

/* ---- form --------------------------------------------------------------------------------- */

/* The input in blocks, or in pairs where block is 0; dense where that is cheaper. */
static rill_status prepare_form(rill_request *r, const rill_stream *in, uint64_t block) {
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

/* The input with absent entries as the algorithms want them: neutral, or none at all. */
static rill_status prepare_input(rill_request *r) {
    const rill_stream *in;
    rill_type type = r->task.shape.type;
    RILL_TRY(near_input(r, &in));
    r->input = rill__stream_part(in);
    bool gather = r->collective == RILL_ALLGATHER;
    if (r->collective == RILL_BCAST) return RILL_OK;
    bool to_blocks = r->plan.algorithm && r->plan.algorithm->takes_blocks;
    if (to_blocks || in->form == RILL__BLOCKS)
        return prepare_form(r, in, to_blocks ? r->run.block : 0);
    if (in->form == RILL__SPARSE) {
        /* Pairs that the user gave may be more than the dense form would take. */
        r->run.coding.turns_dense = !gather && r->collective != RILL_REDUCER &&
                                    in->nnz > rill__dense_switch(type, in->dim);
        return RILL_OK;
    }
    if (!gather && rill__value_equal(type, in->fill, r->run.fill)) return RILL_OK;
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

void rill__request_input(rill_request *r) {
    rill_status status = prepare_input(r);
    if (status == RILL_OK) return;
    rill__task_fail(&r->task, status);
    r->input = rill__part_empty(0, r->in->dim);
}
