/* The link over UCX: ranks that find each other by any means, without MPI.
 *
 * Messages are UCX's tagged ones, on workers of the link's own. Endpoints are connected when the
 * link is opened. Those to ranks of one host have no handling of errors, which UCX's shared memory
 * lacks; who is dead is known by the watch (link/watch.h). Survivors speak over endpoints without
 * shared memory (link_ucx_own.h has the reason). */
#ifndef RILL_LINK_LINK_UCX_H
#define RILL_LINK_LINK_UCX_H

#include "link/link.h"

enum { RILL__UCX_MOST_RANKS = 4096 };

/* Collective; a failure of one rank is one of all. */
rill_status rill__link_ucx_open(const rill_bootstrap *, rill__link **out);
/* Messages without the key of the job that were dropped so far. */
uint64_t rill__link_ucx_strangers(const rill__link *);

#endif
