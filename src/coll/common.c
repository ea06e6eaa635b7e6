/* What algorithms share: sums, endings, memory, and the look-up of algorithms. */
#include "coll/coll.h"

#include <string.h>

void *rill__request_alloc(rill_request *request, size_t n, size_t size) {
    size_t bytes;
    rill__block *block = rill__size_mul(n, size, &bytes) ? rill__block_take(&request->task, bytes)
                                                         : NULL;
    if (!block) {
        rill__task_fail(&request->task,
                        rill__fail(RILL_ERR_MEMORY, "out of memory: %zu times %zu bytes", n, size));
        return NULL;
    }
    return memset(block->buffer.data, 0, bytes);
}

/* An operation of the user's leaves the reason where it could not do its work. */
static rill_status check_op(const rill_op *op) {
    if (!op || op->kind != RILL__USER || !rill__has_reason()) return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT, "op '%s' failed", op->name);
}

void rill__request_sum(rill_request *request, uint64_t first, uint64_t range, int n,
                       const rill__part *parts, bool force_dense, rill__piece *piece) {
    if (!rill__task_failed(&request->task)) {
        rill_status status = rill__sum_parts(request->task.shape, request->op, first, range, n,
                                             parts, force_dense, &request->scratch, piece);
        if (status == RILL_OK) status = check_op(request->op);
        if (status == RILL_OK) return;
        rill__task_fail(&request->task, status);
    }
    piece->part = rill__part_empty(first, range);
}

rill_status rill__finish_piece(rill_request *request, rill__piece *piece) {
    if (rill__task_failed(&request->task)) return RILL_OK;
    rill__stream_adopt(request->out, request->fill, piece);
    return RILL_OK;
}

static bool lies_in(const void *at, const rill__buffer *buffer) {
    uintptr_t start = (uintptr_t)buffer->data;
    return buffer->data && (uintptr_t)at - start < buffer->capacity;
}

/* The parts may lie in the memory of in, which may be out: then the result is put together in the
 * request's own stream and exchanged. */
rill_status rill__finish_parts(rill_request *request, int n, const rill__part *parts) {
    if (rill__task_failed(&request->task)) return RILL_OK;
    rill_stream *out = request->out;
    if (request->in != out) return rill__stream_assemble(out, request->fill, n, parts);
    rill_stream *temp = &request->normal;
    bool borrowed = false;
    for (int i = 0; i < n; i++)
        borrowed |= lies_in(parts[i].val, &temp->val);
    rill_stream fresh;
    if (borrowed) { /* the parts lie in temp: use a third */
        rill__stream_init(&fresh, out->type, out->dim);
        temp = &fresh;
    } else {
        temp->type = out->type;
        temp->dim = out->dim;
        temp->index_bytes = out->index_bytes;
    }
    rill_status status = rill__stream_assemble(temp, request->fill, n, parts);
    if (status == RILL_OK) {
        rill_stream swap = *out;
        *out = *temp;
        *temp = swap;
    }
    if (borrowed) rill__stream_release(&fresh);
    return status;
}

rill__part rill__own_part(rill_request *r, const rill__block *block) {
    rill__message message;
    if (rill__task_failed(&r->task) || rill__message_parse(rill__block_message(block), block->bytes,
                                                           NULL, false, &message) != RILL_OK)
        return rill__part_empty(0, r->task.expect.dim);
    return rill__received_part(&r->task, &message);
}

bool rill__may_post(const rill_request *request) {
    for (const rill__task *t = request->task.engine->active; t && t != &request->task; t = t->next)
        if (((const rill_request *)t)->may_post) return false;
    return true;
}

/* ---- tables --------------------------------------------------------------------------------------- */

const char *rill_collective_name(rill_collective collective) {
    static const char *const names[RILL__TABLES] = {"allreduce", "reduce", "reduce_scatter",
                                                    "allgather", "bcast",  "reducer"};
    return (unsigned)collective < RILL__TABLES ? names[collective] : "unknown";
}

const rill__algorithm *rill__algorithm_at(rill_collective collective, int i) {
    static const rill__algorithm *const *const tables[RILL__TABLES] = {
        rill__allreduce_table, rill__reduce_table, rill__reduce_scatter_table,
        rill__allgather_table, rill__bcast_table,  rill__topk_table};
    if ((unsigned)collective >= RILL__TABLES || i < 0) return NULL;
    const rill__algorithm *const *table = tables[collective];
    while (i > 0 && *table)
        table++, i--;
    return *table;
}

const rill__algorithm *rill__algorithm_named(rill_collective collective, const char *name) {
    for (int i = 0;; i++) {
        const rill__algorithm *a = rill__algorithm_at(collective, i);
        if (!a || strcmp(a->name, name) == 0) return a;
    }
}

const char *rill_algorithm_at(rill_collective collective, int i, const char **description) {
    const rill__algorithm *a = rill__algorithm_at(collective, i);
    if (description) *description = a ? a->description : NULL;
    return a ? a->name : NULL;
}
