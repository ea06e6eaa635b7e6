#include "req/mail.h"
#include "req/request.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, MOST_BOXES = 4, PREFETCHED = 4 };

/* Of each rank's segment: with many ranks on a host a pair has fewer boxes, then none. */
#define MOST_BYTES ((size_t)1 << 19)

typedef struct box {
    _Alignas(LINE) _Atomic uint64_t stamp; /* the call's number plus 1; 0: empty */
    uint64_t bytes;
    char message[];
} box;

static box *box_at(const rill__mail *m, char *first, uint64_t seq) {
    return (box *)(void *)(first + (seq & m->mask) * m->stride);
}

/* ---- life ------------------------------------------------------------------------------------ */

size_t rill__mail_reserve(rill__mail *m, const rill__link *link, const rill__hosts *hosts,
                          uint64_t limit) {
    *m = (rill__mail){.pairs = NULL};
    if (!limit || !link->has_mail) return 0;
    m->limit = (size_t)limit;
    m->stride = (sizeof(box) + m->limit + LINE - 1) & ~(size_t)(LINE - 1);
    size_t boxes = MOST_BOXES, row = m->stride * (size_t)hosts->here;
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

bool rill__mail_send(rill__task *task, int to, const rill__parcel *parcel) {
    rill__engine *engine = task->engine;
    const rill__mail *m = &engine->shared.mail;
    if (!m->pairs || !m->pairs[to].out || parcel->bytes > m->limit) return false;
    box *b = box_at(m, m->pairs[to].out, task->seq);
    if (atomic_load_explicit(&b->stamp, memory_order_acquire)) return false;
    b->bytes = parcel->bytes;
    memcpy(b->message, rill__parcel_message(parcel), parcel->bytes);
    atomic_store_explicit(&b->stamp, task->seq + 1, memory_order_release);
    engine->sent[to]++;
    task->messages++;
    task->sent_bytes += parcel->bytes;
    task->moved = true;
    return true;
}

static void clear(rill__engine *engine, int source, box *b) {
    atomic_store_explicit(&b->stamp, 0, memory_order_release);
    engine->received[source]++;
}

static inline void rest_a_moment(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* The partner emptied the box of the next message some calls ago: who writes to it soon should not
 * wait for its lines then. */
static void fetch_next(const rill__mail *m, int peer, uint64_t seq) {
    const char *next = (const char *)box_at(m, m->pairs[peer].out, seq + 1);
    for (int i = 0; i < PREFETCHED; i++)
        __builtin_prefetch(next + (size_t)i * LINE, 1);
}

rill_status rill__mail_receive(rill__task *task, int source, int looks, rill__transfer *t) {
    rill__engine *engine = task->engine;
    const rill__mail *m = &engine->shared.mail;
    box *b = box_at(m, m->pairs[source].in, task->seq);
    const uint64_t mine = task->seq + 1;
    uint64_t stamp;
    for (; (stamp = atomic_load_explicit(&b->stamp, memory_order_acquire)) != mine; looks--) {
        if (stamp && stamp <= engine->active->seq)
            clear(engine, source, b); /* of no call any more */
        if (looks <= 1) return RILL_IN_PROGRESS;
        rest_a_moment();
    }
    size_t bytes = (size_t)rill__min_u64(b->bytes, m->limit);
    /* As a receive that is posted takes it: calls of a kind keep parcels of one size. */
    t->parcel = rill__parcel_take(task, bytes < RILL__SHORT ? RILL__SHORT : bytes);
    if (!t->parcel) return RILL_ERR_MEMORY;
    memcpy(t->parcel->buffer.data, b->message, bytes);
    clear(engine, source, b);
    fetch_next(m, source, task->seq);
    t->wire.word = 0;
    t->parcel->bytes = bytes;
    t->peer = source;
    t->lane = RILL__LANE_SHORT;
    t->rest = false;
    return RILL_OK;
}

void rill__mail_discard(rill__engine *engine) {
    const rill__mail *m = &engine->shared.mail;
    for (int i = 0; m->pairs && i < engine->size; i++)
        for (uint64_t seq = 0; m->pairs[i].in && seq <= m->mask; seq++) {
            box *b = box_at(m, m->pairs[i].in, seq);
            if (atomic_load_explicit(&b->stamp, memory_order_acquire)) clear(engine, i, b);
        }
}
