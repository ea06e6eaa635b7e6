/* Inside of the watch: watch.c looks, watch_connect.c connects. */
#ifndef RILL_LINK_WATCH_OWN_H
#define RILL_LINK_WATCH_OWN_H

#include "link/watch.h"

typedef struct rill__watch_connecting rill__watch_connecting;

struct rill__watch {
    int rank, ranks;
    int listener; /* -1: not any more */
    int events;   /* epoll */
    int *fds;     /* of each rank; -1: none */
    uint8_t *states;
    int lost;                           /* silent or gone */
    int there;                          /* neither left nor lost */
    bool said_left;                     /* all have been told */
    bool told_out;                      /* a peer has told this rank so */
    rill__watch_connecting *connecting; /* what rill__watch_connect needs; NULL: it is over */
    rill__watch *next;                  /* of this process: see rill__watch_create */
};

/* Before ranks meet: one that lacks memory later would keep the others waiting. NULL: none. */
rill__watch_connecting *rill__watch_connecting_new(int ranks);
void rill__watch_connecting_free(rill__watch_connecting *);
/* Watches a connection that is made. */
rill_status rill__watch_take(rill__watch *, int rank, int fd);

#endif
