/* What a call of a reducer did not deliver, copied to where the reducer finds it. */
#include "coll/topk/topk.h"

#include <stdlib.h>
#include <string.h>

/* A piece to write to; NULL: out of memory, recorded. */
static rill__piece *next_piece(rill_request *r, const rill__part *part) {
    rill__feedback *f = r->feedback;
    if (f->returns == f->returns_capacity) {
        int capacity = f->returns_capacity ? 2 * f->returns_capacity : 16;
        rill__piece *at = realloc(f->returned, (size_t)capacity * sizeof *at);
        if (!at) {
            rill__task_fail(&r->task, rill__fail(RILL_ERR_MEMORY,
                                                 "out of memory for %d returned parts", capacity));
            return NULL;
        }
        memset(at + f->returns_capacity, 0, (size_t)(capacity - f->returns_capacity) * sizeof *at);
        f->returned = at;
        f->returns_capacity = capacity;
    }
    rill__piece *piece = &f->returned[f->returns];
    size_t indices = 0;
    if (part->form == RILL__SPARSE) indices = part->n * r->task.shape.index_bytes;
    if (part->form == RILL__BLOCKS) indices = (part->n + part->block - 1) / part->block * 8;
    rill_status status = rill__buffer_reserve(&piece->idx, indices);
    if (status == RILL_OK)
        status = rill__buffer_reserve(&piece->val, part->n * rill__type_size(r->task.shape.type));
    if (status != RILL_OK) {
        rill__task_fail(&r->task, status);
        return NULL;
    }
    if (indices) memcpy(piece->idx.data, part->idx, indices);
    piece->part = *part;
    piece->part.idx = piece->idx.data;
    piece->part.val = piece->val.data;
    f->returns++;
    return piece;
}

void rill__give_back(rill_request *r, const rill__part *part) {
    if (!r->feedback->options.keeps || !part->n || rill__task_failed(&r->task)) return;
    rill__piece *piece = next_piece(r, part);
    if (piece) memcpy(piece->val.data, part->val, part->n * rill__type_size(r->task.shape.type));
}

/* Unbiased coding alone may add more than it delivers, and what it adds comes back by the feedback:
 * with 2 bits and several hops the residual would grow without bound. */
static void fit(rill_request *r, const rill__part *part, rill__block *block) {
    rill__message m;
    if (rill__message_parse(rill__block_message(block), block->bytes, NULL, false, &m) != RILL_OK)
        return;
    const rill__value_codec *codec = rill__value_codec_by_id(m.header.value_codec);
    if (!codec || !codec->fit) return;
    size_t values = (size_t)(m.payload - (const char *)block->buffer.data) + m.header.index_size;
    codec->fit(r->task.shape.type, part->val, part->n, (char *)block->buffer.data + values);
}

void rill__give_back_lost(rill__task *task, const rill__part *part, rill__block *block) {
    rill_request *r = (rill_request *)task;
    if (!r->feedback->options.keeps || !part->n || rill__task_failed(&r->task)) return;
    fit(r, part, block);
    if (r->task.shares_errors) return;
    rill__part decoded = rill__own_part(r, block);
    if (rill__task_failed(&r->task)) return;
    rill__piece *piece = next_piece(r, part);
    if (!piece) return;
    rill_type type = r->task.shape.type;
    if (type == RILL_F32) {
        const float *exact = part->val, *sent = decoded.val;
        float *lost = piece->val.data;
        for (uint64_t i = 0; i < part->n; i++)
            lost[i] = exact[i] - sent[i];
        return;
    }
    size_t size = rill__type_size(type);
    for (uint64_t i = 0; i < part->n; i++)
        rill__value_store(type, (char *)piece->val.data + i * size,
                          rill__value_load(type, (const char *)part->val + i * size) -
                              rill__value_load(type, (const char *)decoded.val + i * size));
}
