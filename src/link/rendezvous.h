/* A rendezvous: processes that know one address, their rank and their number find each other by
 * TCP. Rank 0 listens there; the others connect, and all have an allgather by a star.
 *
 * A greeting shows the version, the number of ranks and the rank; whoever shows something else is
 * dropped, and told why where it can understand it. No rank waits for ever. */
#ifndef RILL_LINK_RENDEZVOUS_H
#define RILL_LINK_RENDEZVOUS_H

#include "link/tcp.h"

typedef struct rill__rendezvous rill__rendezvous;

/* address: HOST:PORT or [IPV6]:PORT. until: rill__tcp_clock. All ranks call it. */
rill_status rill__rendezvous_open(const char *address, int rank, int ranks, double patience,
                                  rill__rendezvous **out);
rill_status rill__rendezvous_allgather(rill__rendezvous *, const void *mine, size_t bytes,
                                       void *all);
void rill__rendezvous_close(rill__rendezvous *);

#endif
