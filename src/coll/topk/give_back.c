/* What a call of a reducer did not deliver, copied to where the reducer finds it. */
#include "coll/topk/topk.h"

#include <stdlib.h>
#include <string.h>

/* A piece to write to; NULL: out of memory, recorded. */
static rill__piece *next_piece(rill__run *run, const rill__part *part) {
    rill__feedback *f = run->feedback;
    if (f->returns == f->returns_capacity) {
        int capacity = f->returns_capacity ? 2 * f->returns_capacity : 16;
        rill__piece *at = rill__realloc(f->returned, (size_t)capacity * sizeof *at);
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
    rill__part_bytes bytes = rill__part_room(run->shape, part);
    rill_status status = rill__buffer_reserve(&piece->idx, bytes.idx);
    if (status == RILL_OK) status = rill__buffer_reserve(&piece->val, bytes.val);
    if (status != RILL_OK) {
        rill__run_fail(run, status);
        return NULL;
    }
    f->returns++;
    return piece;
}

void rill__give_back(rill__run *run, const rill__part *part) {
    if (!run->feedback->options.keeps || !part->n || rill__run_failed(run)) return;
    rill__piece *piece = next_piece(run, part);
    if (piece) rill__part_copy_to(run->shape, part, piece->idx.data, piece->val.data, &piece->part);
}

/* Unbiased coding alone may add more than it delivers, and what it adds comes back by the feedback:
 * with 2 bits and several hops the residual would grow without bound. */
static void fit(const rill__run *run, const rill__part *part, char *message, size_t bytes) {
    rill__message m;
    if (rill__message_parse(message, bytes, 0, NULL, false, &m) != RILL_OK) return;
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
    rill__part_frame_to(run->shape, part, piece->idx.data, piece->val.data, &piece->part);
    rill__part_subtract_to(run->shape.type, part, &decoded, piece->val.data);
}
