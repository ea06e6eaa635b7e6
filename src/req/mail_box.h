/* A box of mail: for those who put messages into one and take them out (mail.c, slip.c). */
#ifndef RILL_REQ_MAIL_BOX_H
#define RILL_REQ_MAIL_BOX_H

#include "req/mail.h"

#include <stdatomic.h>
#include <stddef.h>

enum { RILL__LINE = 64 };

typedef struct rill__box {
    _Alignas(RILL__LINE) _Atomic uint64_t stamp; /* the call; 0: it was never used */
    uint64_t done;                               /* of the sender: rill__mail_pair */
    uint64_t bytes;
    char message[];
} rill__box;

static inline rill__box *rill__box_at(const rill__mail *m, char *first, uint64_t seq) {
    return (rill__box *)(void *)(first + (seq & m->mask) * m->stride);
}

/* The message is there: done is the oldest call that the sender is in. */
static inline void rill__box_stamp(rill__box *b, size_t bytes, uint64_t done, uint64_t call) {
    b->bytes = bytes;
    b->done = done;
    atomic_store_explicit(&b->stamp, call, memory_order_release);
}

/* The box of the next message comes near while this rank waits for its own mail. It is not asked
 * for as one that is written to: the partner may look into it before it is. */
static inline void rill__box_fetch_next(const rill__mail *m, const rill__mail_pair *pair,
                                        uint64_t seq) {
    enum { LINES = 4 };
    const char *next = (const char *)rill__box_at(m, pair->out, seq + 1);
    for (int i = 0; i < LINES; i++)
        __builtin_prefetch(next + (size_t)i * RILL__LINE, 0);
}

/* The first line has come: the others, all at once. */
static inline void rill__box_fetch_rest(const rill__box *b) {
    enum { LINES = 4 };
    for (int i = 1; i < LINES; i++)
        __builtin_prefetch((const char *)b + (size_t)i * RILL__LINE, 0);
}

static inline void rill__rest_a_moment(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
