/* The mailbox of a rank: what has come and is not received yet, by source and tag, and by tag alone
 * in order of arrival. */
#ifndef RILL_LINK_LOCAL_MAILBOX_H
#define RILL_LINK_LOCAL_MAILBOX_H

#include "link/local.h"

#include <pthread.h>
#include <stdatomic.h>

/* A receive that waits for its message. Of the receiving rank alone. */
typedef struct rill__posted {
    struct rill__posted *next;
    void *into;
    size_t room, bytes;
    int source, tag;
    bool done;
} rill__posted;

typedef struct rill__mail_list {
    rill__local_message *first, *last;
} rill__mail_list;

enum { RILL__TAG_LISTS = 16, RILL__PAIR_LISTS = 16 };

typedef struct rill__mailbox {
    pthread_mutex_t lock;
    bool gone; /* its rank has left: what comes is dropped */
    _Atomic size_t n;
    size_t lists; /* a power of two */
    rill__mail_list *pairs, own_pairs[RILL__PAIR_LISTS];
    rill__mail_list tags[RILL__TAG_LISTS];
    rill__posted *posted;
} rill__mailbox;

void rill__mailbox_init(rill__mailbox *);
void rill__mailbox_destroy(rill__mailbox *); /* it is empty */
/* False: its rank has left. */
bool rill__mailbox_put(rill__mailbox *, rill__local_message *);
/* Lock held. Source, or source and tag, may be RILL__ANY. NULL: there is none. */
rill__local_message *rill__mailbox_find(rill__mailbox *, int source, int tag);
void rill__mailbox_remove(rill__mailbox *, rill__local_message *);
rill__local_message *rill__mailbox_any(rill__mailbox *); /* whatever there is; NULL: nothing */

static inline void rill__mailbox_lock(rill__mailbox *box) { pthread_mutex_lock(&box->lock); }
static inline void rill__mailbox_unlock(rill__mailbox *box) { pthread_mutex_unlock(&box->lock); }
static inline bool rill__mailbox_empty(rill__mailbox *box) {
    return atomic_load_explicit(&box->n, memory_order_acquire) == 0;
}

#endif
