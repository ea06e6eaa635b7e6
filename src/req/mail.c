#include "req/mail_box.h"
#include "req/request.h"

#include <stdlib.h>
#include <string.h>

/* Of each rank's segment: with many ranks on a host a pair has fewer boxes, then none. */
#define MOST_BYTES ((size_t)1 << 19)

/* Bytes of a message in the line of the stamp. */
enum { FIRST = RILL__LINE - offsetof(rill__box, message) };

/* ---- life ------------------------------------------------------------------------------------ */

size_t rill__mail_reserve(rill__mail *m, const rill__link *link, const rill__hosts *hosts,
                          uint64_t limit) {
    *m = (rill__mail){.pairs = NULL};
    if (!limit || !link->has_mail) return 0;
    m->limit = (size_t)limit;
    m->stride = (sizeof(rill__box) + m->limit + RILL__LINE - 1) & ~(size_t)(RILL__LINE - 1);
    size_t boxes = RILL__MOST_BOXES, row = m->stride * (size_t)hosts->here;
    while (boxes && boxes * row > MOST_BYTES)
        boxes /= 2;
    if (!boxes) return 0;
    m->mask = (unsigned)boxes - 1;
    m->pairs = rill__calloc((size_t)link->ranks, sizeof *m->pairs);
    return boxes * row;
}

void rill__mail_open(rill__mail *m, const rill__hosts *hosts, char *const *segment) {
    size_t row = m->stride * (m->mask + 1);
    for (int i = 0; i < hosts->here; i++) {
        if (i == hosts->place) continue;
        m->pairs[hosts->ranks[i]].out = segment[i] + row * (size_t)hosts->place;
        m->pairs[hosts->ranks[i]].in = segment[hosts->place] + row * (size_t)i;
    }
}

void rill__mail_close(rill__mail *m) {
    free(m->pairs);
    m->pairs = NULL;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Who waits may be looking at the first line: it is written last, and all at once. */
static void put(rill__box *b, const char *message, size_t bytes, uint64_t done, uint64_t call) {
    if (bytes > FIRST) memcpy(b->message + FIRST, message + FIRST, bytes - FIRST);
    memcpy(b->message, message, bytes < FIRST ? bytes : FIRST);
    rill__box_stamp(b, bytes, done, call);
}

bool rill__mail_send(rill__task *task, int to, const rill__parcel *parcel) {
    rill__engine *engine = task->engine;
    const rill__mail *m = &engine->shared.mail;
    if (!m->pairs) return false;
    rill__mail_pair *pair = &m->pairs[to];
    uint64_t *sent = &pair->sent[task->seq & m->mask];
    if (!pair->out) return false;
    if (*sent != task->seq + 1) { /* else it is there: a slip (req/slip.h) */
        if (parcel->bytes > m->limit || *sent > pair->done) return false;
        *sent = task->seq + 1;
        put(rill__box_at(m, pair->out, task->seq), rill__parcel_message(parcel), parcel->bytes,
            engine->active->seq, *sent);
        rill__box_fetch_next(m, pair, task->seq);
    }
    task->messages++;
    task->sent_bytes += parcel->bytes;
    task->moved = true;
    return true;
}

rill_status rill__mail_receive(rill__task *task, int source, int looks, rill__transfer *t) {
    const rill__mail *m = &task->engine->shared.mail;
    rill__mail_pair *pair = &m->pairs[source];
    const rill__box *b = rill__box_at(m, pair->in, task->seq);
    const uint64_t mine = task->seq + 1;
    uint64_t *taken = &pair->taken[task->seq & m->mask];
    if (*taken == mine) return RILL_IN_PROGRESS; /* there is no second one */
    for (; atomic_load_explicit(&b->stamp, memory_order_acquire) != mine; looks--) {
        if (looks <= 1) return RILL_IN_PROGRESS;
        rill__rest_a_moment();
    }
    rill__box_fetch_rest(b);
    size_t bytes = (size_t)rill__min_u64(b->bytes, m->limit);
    /* As a receive that is posted takes it: calls of a kind keep parcels of one size. */
    t->parcel = rill__parcel_take(task, bytes < RILL__SHORT ? RILL__SHORT : bytes);
    if (!t->parcel) return RILL_ERR_MEMORY;
    memcpy(t->parcel->buffer.data, b->message, bytes);
    *taken = mine;
    pair->done = rill__max_u64(pair->done, b->done);
    t->wire.word = 0;
    t->parcel->bytes = bytes;
    t->peer = source;
    t->lane = RILL__LANE_SHORT;
    t->rest = false;
    return RILL_OK;
}
