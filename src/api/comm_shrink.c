/* After a rank is gone: rill_comm_failed, rill_comm_shrink.
 *
 * The new communicator needs no message of its own: what ranks must have alike (settings, profile,
 * hosts) is the old one's. Its memory is there before the ranks agree to go on, so that who lacks
 * it says so in the agreement. */
#include "api/comm.h"
#include "call/comm.h"
#include "link/subset.h"

#include <stdlib.h>
#include <string.h>

static rill_status check(const rill_comm *comm, const char *call) {
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, "%s: comm is NULL", call);
    if (!comm->engine.table->failed)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "%s: a communicator over %s cannot tell which ranks are gone", call,
                          comm->engine.table->name);
    return RILL_OK;
}

rill_status rill_comm_failed(const rill_comm *given, int capacity, int *ranks, int *n) {
    RILL_TRY(check(given, "rill_comm_failed"));
    if (!n) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_failed: n is NULL");
    if (capacity < 0 || (capacity && !ranks))
        return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_failed: no room for %d ranks", capacity);
    union {
        const rill_comm *given;
        rill_comm *comm;
    } whose = {.given = given}; /* only what it knows grows */
    rill__engine *engine = &whose.comm->engine;
    *n = 0;
    rill__lock(engine);
    rill__receive_notes(engine);
    rill__peers_poll(engine);
    for (int i = 0; i < engine->size; i++) {
        if (!engine->peers.fate[i]) continue;
        if (*n < capacity) ranks[*n] = i;
        ++*n;
    }
    rill__unlock(engine);
    return RILL_OK;
}

/* ---- shrink ---------------------------------------------------------------------------------- */

/* What goes on, before it is known with whom. */
typedef struct heir {
    rill_comm *comm;
    rill__link *link;
    int *ranks;
} heir;

static rill_status prepare(rill_comm *comm, heir *h) {
    h->ranks = rill__calloc((size_t)comm->engine.size, sizeof *h->ranks);
    h->comm = rill__calloc(1, sizeof *h->comm);
    if (!h->ranks || !h->comm)
        return rill__fail(RILL_ERR_MEMORY, "rill_comm_shrink: out of memory");
    RILL_TRY(rill__subset_reserve(comm->engine.link, &h->link));
    RILL_TRY(rill__engine_init(&h->comm->engine, h->link));
    RILL_TRY(rill_stream_create(RILL_F32, 1, &h->comm->nothing));
    return rill__hosts_reserve(&h->comm->engine.hosts, comm->engine.size);
}

static void forget(heir *h) {
    if (h->comm && h->comm->engine.link) rill__engine_free(&h->comm->engine);
    if (h->comm) rill_stream_free(&h->comm->nothing);
    free(h->comm);
    rill__subset_cancel(h->link);
    free(h->ranks);
}

static void settle(const rill_comm *comm, heir *h, int n, unsigned epoch) {
    rill_comm *fresh = h->comm;
    rill__link *link = h->link;
    rill__engine *engine = &fresh->engine;
    const rill__engine *old = &comm->engine;
    rill__subset_open(link, old->link, h->ranks, n, epoch);
    engine->rank = link->rank;
    engine->size = n;
    engine->split_limit = old->split_limit;
    engine->host_limit = old->host_limit;
    engine->crowded = old->crowded;
    engine->peers.timeout = old->peers.timeout;
    rill__hosts_subset(&engine->hosts, &old->hosts, h->ranks, n, engine->rank);
    link->hosts = engine->hosts.n;
    fresh->defaults = comm->defaults;
    fresh->planner.profile = comm->planner.profile;
    fresh->planner.device = comm->planner.device;
    fresh->planner.sums_bits = comm->planner.sums_bits;
    fresh->planner.memory = comm->planner.memory;
    fresh->planner.hosts = engine->hosts.n;
    fresh->planner.most_per_host = engine->hosts.most;
    int most = engine->hosts.most; /* all ranks know this one alike */
    fresh->planner.together = most < comm->planner.together ? most : comm->planner.together;
    fresh->last = (rill_stats)RILL_STATS_INIT;
    fresh->clock = rill__clock_start(link);
}

/* Requests that nobody waits for end here; who waits for one ends it by itself. */
static void end_requests(rill__engine *engine) {
    for (const rill__task *oldest = NULL; engine->active && engine->active != oldest;) {
        oldest = engine->active;
        rill__engine_progress(engine);
    }
}

static rill_status shrink(rill_comm *comm, rill_comm **out) {
    rill__engine *engine = &comm->engine;
    if (engine->peers.shrunk)
        return rill__fail(RILL_ERR_STATE,
                          "rill_comm_shrink: this communicator has been shrunk; it is the one that "
                          "came of it that can be");
    heir h = {.comm = NULL};
    RILL_TRY(rill__subset_wrap(&engine->link));
    engine->table = engine->link->table;
    rill__peers_revoke(engine, true);
    end_requests(engine);
    rill_status status = prepare(comm, &h);
    int n = 0;
    unsigned epoch = 0;
    if (h.ranks)
        status = rill__shrink_agree(engine, status, comm->defaults.minority != 0, h.ranks, &n,
                                    &epoch);
    else rill__peers_leave(engine);
    if (status != RILL_OK || !h.comm || !h.link) {
        forget(&h);
        return status;
    }
    settle(comm, &h, n, epoch);
    engine->peers.shrunk = true;
    free(h.ranks);
    *out = h.comm;
    return RILL_OK;
}

rill_status rill_comm_shrink(rill_comm *comm, rill_comm **out) {
    if (out) *out = NULL;
    RILL_TRY(check(comm, "rill_comm_shrink"));
    if (!out) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_shrink: out is NULL");
    rill__lock(&comm->engine);
    rill_status status = shrink(comm, out);
    bool thread = comm->engine.progress.on || comm->defaults.progress_thread;
    rill__unlock(&comm->engine);
    if (status != RILL_OK || !*out) return status;
    /* It is a help, and no reason to lose the communicator, if it cannot be had. */
    if (thread && (*out)->engine.threaded) rill__progress_start(&(*out)->engine, true);
    return RILL_OK;
}
