#include "req/slip.h"
#include "req/mail_box.h"

#include <string.h>

/* Before words, number, count and size: what partners have alike. */
enum { ALIKE = offsetof(rill__short_header, seq) };
_Static_assert(ALIKE == 24, "compared as words");

static size_t index_bytes_of(const rill__slip *s, uint64_t n) {
    return rill__align8(n * s->shape.index_bytes);
}

bool rill__slip_make(rill__slip *s, const rill__task *task, uint64_t most) {
    const rill__mail *m = &task->engine->shared.mail;
    rill__header h;
    s->most = 0;
    if (!m->pairs || m->limit <= RILL__SHORT_BYTES) return false;
    rill__call_header_at(task, &h);
    h.form = RILL__M_SPARSE;
    h.range = h.dim;
    h.nnz_sum = h.nnz_max = 1; /* there are some */
    h.layout = (uint8_t)rill__layout_for(&h, most);
    if (h.layout != RILL__LAYOUT_SHORT || h.flags || task->lost) return false;
    h.seq = h.nnz_sum = h.nnz_max = 0;
    rill__header_write(&h, &s->head);
    s->host = rill__host();
    s->shape = task->shape;
    s->value_bytes = rill__type_size(s->shape.type);
    s->dim = h.dim;
    size_t room = m->limit - RILL__SHORT_BYTES, padding = 8;
    if (room < padding) return false;
    s->most = rill__min_u64(most, (room - padding) / (s->shape.index_bytes + s->value_bytes));
    return s->most > 0;
}

size_t rill__slip_room(const rill__slip *s) {
    return index_bytes_of(s, s->most) + s->most * s->value_bytes;
}

/* The first line is written last, as in mail.c: who waits looks at it. The header lies over the end
 * of that line, so that it is put together behind it first. */
size_t rill__slip_send(rill__engine *e, const rill__slip *s, int to, const rill__pairs *pairs,
                       uint64_t nnz_sum, uint64_t nnz_max) {
    const rill__mail *m = &e->shared.mail;
    rill__mail_pair *pair = &m->pairs[to];
    const uint64_t seq = e->seq;
    uint64_t *sent = &pair->sent[seq & m->mask];
    if (*sent > pair->done) return 0;
    rill__box *b = rill__box_at(m, pair->out, seq);
    const uint64_t n = pairs->n;
    size_t indices = index_bytes_of(s, n), values = n * s->value_bytes;
    char *payload = b->message + sizeof s->head;
    memset(payload + indices - 8, 0, 8); /* padding, if any */
    memcpy(payload, pairs->idx, n * s->shape.index_bytes);
    memcpy(payload + indices, pairs->val, values);
    rill__short_header *head = (rill__short_header *)(void *)b->message;
    head->word[0] = nnz_sum;
    head->word[1] = nnz_max;
    head->range = s->head.range;
    head->count = (uint32_t)n;
    head->size = (uint32_t)indices;
    memcpy(head, &s->head, ALIKE);
    head->seq = (uint32_t)seq;
    head->dim = s->head.dim;
    head->first = 0;
    size_t bytes = sizeof *head + indices + values;
    *sent = seq + 1;
    rill__box_stamp(b, bytes, seq, seq + 1);
    rill__box_fetch_next(m, pair, seq);
    return bytes;
}

/* What a task would find wrong is left to a task. */
static bool is_slip(const rill__slip *s, const rill__short_header *h, uint64_t seq) {
    return memcmp(h, &s->head, ALIKE) == 0 && h->seq == (uint32_t)seq && h->dim == s->head.dim &&
           h->first == 0 && h->range == s->head.range && h->count <= s->most && h->count > 0 &&
           h->word[1] <= RILL__ENTRIES;
}

size_t rill__slip_receive(rill__engine *e, const rill__slip *s, int from, int looks, void *room,
                          rill__pairs *pairs, uint64_t *nnz_sum, uint64_t *nnz_max) {
    const rill__mail *m = &e->shared.mail;
    const rill__mail_pair *pair = &m->pairs[from];
    const uint64_t seq = e->seq;
    const rill__box *b = rill__box_at(m, pair->in, seq);
    while (atomic_load_explicit(&b->stamp, memory_order_acquire) != seq + 1) {
        if (--looks <= 0 || atomic_load_explicit(&e->waiting, memory_order_relaxed)) return 0;
        rill__rest_a_moment();
    }
    rill__box_fetch_rest(b);
    const rill__short_header *h = (const rill__short_header *)(const void *)b->message;
    rill__short_header head;
    memcpy(&head, h, sizeof head);
    if (!is_slip(s, &head, seq)) return 0;
    size_t indices = index_bytes_of(s, head.count), values = head.count * s->value_bytes;
    size_t bytes = sizeof head + indices + values;
    if (head.size != indices || b->bytes != bytes) return 0;
    memcpy(room, b->message + sizeof head, indices + values);
    pairs->n = head.count;
    pairs->idx = room;
    pairs->val = (char *)room + indices;
    uint64_t fine = s->host->stream->check(s->shape.index_bytes, room, head.count, 0, s->dim);
    if (fine < head.count) return 0;
    *nnz_sum = head.word[0];
    *nnz_max = head.word[1];
    return bytes;
}

void rill__slip_taken(rill__engine *e, int from) {
    const rill__mail *m = &e->shared.mail;
    rill__mail_pair *pair = &m->pairs[from];
    pair->taken[e->seq & m->mask] = e->seq + 1;
    pair->done = rill__max_u64(pair->done, rill__box_at(m, pair->in, e->seq)->done);
}
