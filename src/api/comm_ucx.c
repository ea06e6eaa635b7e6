/* Communicators over UCX: rill_comm_create_ucx. */
#include "api/comm.h"

#ifdef RILL_HAVE_UCX

#include "link/link_ucx.h"

#include <stdio.h>
#include <string.h>

#define CREATE "rill_comm_create_ucx: "

static rill_status check(const rill_bootstrap *b) {
    if (!b) return rill__fail(RILL_ERR_ARGUMENT, CREATE "bootstrap is NULL");
    if (b->size < sizeof *b)
        return rill__fail(RILL_ERR_ARGUMENT,
                          CREATE "bootstrap.size is %zu, not %zu: "
                                 "RILL_BOOTSTRAP_INIT sets it",
                          b->size, sizeof *b);
    if (b->ranks < 1 || b->ranks > RILL__UCX_MOST_RANKS)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "bootstrap.ranks is %d, not from 1 to %d",
                          b->ranks, RILL__UCX_MOST_RANKS);
    if (b->rank < 0 || b->rank >= b->ranks)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "bootstrap.rank is %d, not from 0 to %d",
                          b->rank, b->ranks - 1);
    if (!b->allgather && b->ranks > 1)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "bootstrap.allgather is NULL");
    return RILL_OK;
}

static int gather_alone(const void *mine, size_t bytes, void *all, void *context) {
    (void)context;
    if (bytes) memmove(all, mine, bytes);
    return 0;
}

rill_status rill_comm_create_ucx(const rill_bootstrap *bootstrap, const rill_config *config,
                                 rill_comm **out) {
    if (out) *out = NULL;
    RILL_TRY(check(bootstrap));
    rill__link *link = NULL;
    rill_bootstrap b = *bootstrap;
    if (!b.allgather) b.allgather = gather_alone; /* of one rank */
    rill_status status = rill__link_ucx_open(&b, &link);
    if (status == RILL_OK) return rill__comm_open(link, config, NULL, out);
    char detail[450];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    return rill__fail(status, CREATE "%s", detail);
}

#else

rill_status rill_comm_create_ucx(const rill_bootstrap *bootstrap, const rill_config *config,
                                 rill_comm **out) {
    (void)bootstrap, (void)config;
    if (out) *out = NULL;
    return rill__fail(RILL_ERR_UNSUPPORTED, "rill_comm_create_ucx: this rill was built without "
                                            "UCX (-DRILL_UCX=ON; Debian and Ubuntu: libucx-dev)");
}

#endif
