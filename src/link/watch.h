/* The watch for death: one idle TCP connection to each peer. A peer whose process ends is known by
 * the end of its connection, after milliseconds; one whose host or network is lost by TCP's
 * keepalive (RILL__WATCH_SILENCE). Who closes says so before, and is not taken for dead.
 *
 * A connection is begun by the lower rank. Both sides show the key of the job before it counts;
 * what others send is dropped. */
#ifndef RILL_LINK_WATCH_H
#define RILL_LINK_WATCH_H

#include "link/tcp.h"

enum { RILL__JOB_KEY = 16 };        /* bytes */
enum { RILL__WATCH_ADDRESSES = 8 }; /* that a rank tells */
enum { RILL__WATCH_SILENCE = 25 };  /* seconds until a host that is lost counts as silent */

/* How others reach this rank's listener. */
typedef struct rill__watch_address {
    uint16_t port;
    uint8_t n;
    rill__tcp_address at[RILL__WATCH_ADDRESSES];
} rill__watch_address;

/* What is known of a peer. Gone: without a word. */
enum { RILL__WATCH_THERE, RILL__WATCH_LEFT, RILL__WATCH_SILENT, RILL__WATCH_GONE };

typedef struct rill__watch rill__watch;

/* Listens; the address goes to the others. */
rill_status rill__watch_create(int rank, int ranks, rill__watch **out, rill__watch_address *);
/* Connects to all, at most until that time (rill__tcp_clock). same_host[i]: loopback is tried
 * first. Collective; a failure names a rank that was not reached. */
rill_status rill__watch_connect(rill__watch *, const rill__watch_address *all, size_t stride,
                                const uint8_t key[RILL__JOB_KEY], const bool *same_host,
                                double until);
/* Looks, without waiting, and returns how many peers are silent or gone. */
int rill__watch_poll(rill__watch *);
int rill__watch_state(const rill__watch *, int rank);
/* Tells all peers that this rank closes; whether all of them have said so, or are gone. */
void rill__watch_leave(rill__watch *);
bool rill__watch_all_left(const rill__watch *);
/* Tells a peer that the others go on without it; whether this rank has been told so. */
void rill__watch_tell_out(rill__watch *, int rank);
bool rill__watch_told_out(const rill__watch *);
void rill__watch_free(rill__watch *); /* without rill__watch_leave the others see a death */

#endif
