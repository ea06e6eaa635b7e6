/* What a call of a reducer did not deliver, copied to where the reducer finds it. */
#include "coll/topk/topk.h"

#include <stdlib.h>
#include <string.h>

/* A piece to write to; NULL: out of memory, recorded. */
static rill__piece *next_piece(rill__run *run, const rill__part *part) {
    rill__feedback *f = run->feedback;
    if (f->returns == f->returns_capacity) {
        int capacity = f->returns_capacity ? 2 * f->returns_capacity : 16;
        rill__piece *at = realloc(f->returned, (size_t)capacity * sizeof *at);
        if (!at) {
            rill__run_fail(run, rill__fail(RILL_ERR_MEMORY, "out of memory for %d returned parts",
                                           capacity));
            return NULL;
        }
        memset(at + f->returns_capacity, 0, (size_t)(capacity - f->returns_capacity) * sizeof *at);
        f->returned = at;
        f->returns_capacity = capacity;
    }
    rill__piece *piece = &f->returned[f->returns];
    size_t indices = 0;
    if (part->form == RILL__SPARSE) indices = part->n * run->shape.index_bytes;
    if (part->form == RILL__BLOCKS) indices = (part->n + part->block - 1) / part->block * 8;
    rill_status status = rill__buffer_reserve(&piece->idx, indices);
    if (status == RILL_OK)
        status = rill__buffer_reserve(&piece->val, part->n * rill__type_size(run->shape.type));
    if (status != RILL_OK) {
        rill__run_fail(run, status);
        return NULL;
    }
    if (indices) memcpy(piece->idx.data, part->idx, indices);
    piece->part = *part;
    piece->part.idx = piece->idx.data;
    piece->part.val = piece->val.data;
    f->returns++;
    return piece;
}

void rill__give_back(rill__run *run, const rill__part *part) {
    if (!run->feedback->options.keeps || !part->n || rill__run_failed(run)) return;
    rill__piece *piece = next_piece(run, part);
    if (piece) memcpy(piece->val.data, part->val, part->n * rill__type_size(run->shape.type));
}

/* Unbiased coding alone may add more than it delivers, and what it adds comes back by the feedback:
 * with 2 bits and several hops the residual would grow without bound. */
static void fit(const rill__run *run, const rill__part *part, char *message, size_t bytes) {
    rill__message m;
    if (rill__message_parse(message, bytes, NULL, false, &m) != RILL_OK) return;
    const rill__value_codec *codec = rill__value_codec_by_id(m.header.value_codec);
    if (!codec || !codec->fit) return;
    size_t values = (size_t)(m.payload - message) + m.header.index_size;
    codec->fit(run->shape.type, part->val, part->n, message + values);
}

void rill__give_back_lost(void *whom, const rill__coding *coding, const rill__part *part,
                          void *message, size_t bytes) {
    rill__run *run = whom;
    if (!run->feedback->options.keeps || !part->n || rill__run_failed(run)) return;
    fit(run, part, message, bytes);
    if (coding->shared) return;
    rill__part decoded = rill__run_decode(run, message, bytes);
    if (rill__run_failed(run)) return;
    rill__piece *piece = next_piece(run, part);
    if (!piece) return;
    rill_type type = run->shape.type;
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
