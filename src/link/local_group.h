/* The inside of a local link: what link_local.c and local_group.c share. */
#ifndef RILL_LINK_LOCAL_GROUP_H
#define RILL_LINK_LOCAL_GROUP_H

#include "link/local_mailbox.h"

enum { RILL__RESERVED = 512 }; /* bytes of a message of the reserve: a note fits in */

typedef struct rill__local_link {
    rill__link link; /* first */
    rill__local_group *group;
    size_t copied;
    rill__local_message *lent; /* that this rank has sent, and whose wires are not through */
    void (*pause)(void *);
    void *pause_context;
    bool left;
    uint8_t *fate; /* of each rank, as far as this one knows */
    bool lost;     /* one of them at least is gone */
    _Atomic unsigned next_helped;
} rill__local_link;

typedef struct rill__local_helper {
    pthread_mutex_t lock;
    void (*advance)(void *);
    void *context;
} rill__local_helper;

struct rill__local_group {
    int ranks;
    bool in_world;
    rill__local_world world;
    rill__mailbox *boxes;
    rill__local_helper *helpers;
    char **segments; /* shared memory of each rank */
    /* Of collectives: what each rank brings, who has come, and how often all have. */
    pthread_mutex_t lock;
    const void **brought;
    int arrived, open;
    uint64_t turns;
    rill__local_message *reserve;
    char *reserve_memory;
};

static inline rill__local_link *rill__local_of(rill__link *link) {
    return (rill__local_link *)link;
}

/* Local. Without the links. NULL: out of memory. */
rill__local_group *rill__local_group_new(int ranks, const rill__local_world *);
void rill__local_group_free(rill__local_group *);

/* ---- local_gone.c: ranks that are gone, for the table ---- */
bool rill__local_failed(rill__link *, uint8_t *fate);
void rill__local_give_up(rill__link *, int rank);
rill_status rill__local_gone(int rank); /* the error */

/* ---- collectives of the link, for its table ---- */
rill_status rill__local_allgather(rill__link *, const void *mine, size_t bytes, void *all);
rill_status rill__local_bcast(rill__link *, void *, size_t bytes, int root);
rill_status rill__local_another(rill__link *, rill__link *together, rill__link **out);
rill_status rill__local_share(rill__link *, const struct rill__hosts *, rill__share_bytes,
                              char **segment, size_t *sizes, bool *shared);
void rill__local_unshare(rill__link *);

#endif
