#include "req/mail.h"
#include "req/request.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, PREFETCHED = 4 };

/* Of each rank's segment: with many ranks on a host a pair has fewer boxes, then none. */
#define MOST_BYTES ((size_t)1 << 19)

typedef struct box {
    _Alignas(LINE) _Atomic uint64_t stamp; /* the call; 0: it was never used */
    uint64_t done;                         /* of the sender: rill__mail_pair */
    uint64_t bytes;
    char message[];
} box;

/* Bytes of a message in the line of the stamp. */
enum { FIRST = LINE - offsetof(box, message) };

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
static void put(box *b, const char *message, size_t bytes, uint64_t done, uint64_t call) {
    if (bytes > FIRST) memcpy(b->message + FIRST, message + FIRST, bytes - FIRST);
    memcpy(b->message, message, bytes < FIRST ? bytes : FIRST);
    b->bytes = bytes;
    b->done = done;
    atomic_store_explicit(&b->stamp, call, memory_order_release);
}

bool rill__mail_send(rill__task *task, int to, const rill__parcel *parcel) {
    rill__engine *engine = task->engine;
    const rill__mail *m = &engine->shared.mail;
    if (!m->pairs || parcel->bytes > m->limit) return false;
    rill__mail_pair *pair = &m->pairs[to];
    uint64_t *sent = &pair->sent[task->seq & m->mask];
    if (!pair->out || *sent > pair->done) return false;
    *sent = task->seq + 1;
    put(box_at(m, pair->out, task->seq), rill__parcel_message(parcel), parcel->bytes,
        engine->active->seq, *sent);
    task->messages++;
    task->sent_bytes += parcel->bytes;
    task->moved = true;
    return true;
}

static inline void rest_a_moment(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* The partner has read the box of the next message some calls ago: who writes to it soon should not
 * wait for its lines then. */
static void fetch_next(const rill__mail *m, const rill__mail_pair *pair, uint64_t seq) {
    const char *next = (const char *)box_at(m, pair->out, seq + 1);
    for (int i = 0; i < PREFETCHED; i++)
        __builtin_prefetch(next + (size_t)i * LINE, 1);
}

rill_status rill__mail_receive(rill__task *task, int source, int looks, rill__transfer *t) {
    const rill__mail *m = &task->engine->shared.mail;
    rill__mail_pair *pair = &m->pairs[source];
    const box *b = box_at(m, pair->in, task->seq);
    const uint64_t mine = task->seq + 1;
    uint64_t *taken = &pair->taken[task->seq & m->mask];
    if (*taken == mine) return RILL_IN_PROGRESS; /* there is no second one */
    for (; atomic_load_explicit(&b->stamp, memory_order_acquire) != mine; looks--) {
        if (looks <= 1) return RILL_IN_PROGRESS;
        rest_a_moment();
    }
    size_t bytes = (size_t)rill__min_u64(b->bytes, m->limit);
    /* As a receive that is posted takes it: calls of a kind keep parcels of one size. */
    t->parcel = rill__parcel_take(task, bytes < RILL__SHORT ? RILL__SHORT : bytes);
    if (!t->parcel) return RILL_ERR_MEMORY;
    memcpy(t->parcel->buffer.data, b->message, bytes);
    *taken = mine;
    pair->done = rill__max_u64(pair->done, b->done);
    fetch_next(m, pair, task->seq);
    t->wire.word = 0;
    t->parcel->bytes = bytes;
    t->peer = source;
    t->lane = RILL__LANE_SHORT;
    t->rest = false;
    return RILL_OK;
}
