/* What ranks tell each other besides streams, and one more communicator of the same ranks: by the
 * link's own collectives. */
#include "api/comm.h"

/* MPI counts bytes in ints. */
#define MOST_AT_ONCE ((size_t)1 << 30)

/* A request goes on only while its ranks advance the engine, which nobody does in here. */
static rill_status check(rill_comm *comm, const char *call) {
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, "%s: comm is NULL", call);
    rill__link *link = comm->engine.link;
    if (link->table->usable) RILL_TRY(link->table->usable(link));
    rill__lock(&comm->engine);
    bool active = comm->engine.active != NULL;
    rill__unlock(&comm->engine);
    return active ? rill__fail(RILL_ERR_STATE, "%s: a request is active", call) : RILL_OK;
}

rill_status rill_comm_gather_bytes(rill_comm *comm, const void *mine, size_t bytes, void *all) {
    const char *call = "rill_comm_gather_bytes";
    RILL_TRY(check(comm, call));
    if (bytes && (!mine || !all))
        return rill__fail(RILL_ERR_ARGUMENT, "%s: %s is NULL", call, mine ? "all" : "mine");
    if (bytes > MOST_AT_ONCE)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: bytes = %zu is over 2^30", call, bytes);
    rill__engine *engine = &comm->engine;
    rill__lock(engine);
    rill_status status = engine->table->allgather(engine->link, mine, bytes, all);
    rill__unlock(engine);
    return status;
}

rill_status rill_comm_bcast_bytes(rill_comm *comm, void *data, size_t bytes, int root) {
    const char *call = "rill_comm_bcast_bytes";
    RILL_TRY(check(comm, call));
    rill__engine *engine = &comm->engine;
    if (root < 0 || root >= engine->size)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: root = %d is not from 0 to %d", call, root,
                          engine->size - 1);
    if (bytes && !data) return rill__fail(RILL_ERR_ARGUMENT, "%s: data is NULL", call);
    rill_status status = RILL_OK;
    rill__lock(engine);
    for (size_t at = 0; at < bytes && status == RILL_OK; at += MOST_AT_ONCE) {
        size_t n = bytes - at < MOST_AT_ONCE ? bytes - at : MOST_AT_ONCE;
        status = engine->table->bcast(engine->link, (char *)data + at, n, root);
    }
    rill__unlock(engine);
    return status;
}

rill_status rill_comm_dup(rill_comm *comm, const rill_config *config, rill_comm **out) {
    if (out) *out = NULL;
    RILL_TRY(check(comm, "rill_comm_dup"));
    rill__link *link = comm->engine.link, *more = NULL;
    if (!link->table->another)
        return rill__fail(RILL_ERR_UNSUPPORTED, "rill_comm_dup: the link %s has no second one",
                          link->table->name);
    rill__lock(&comm->engine);
    rill_status status = link->table->another(link, link, &more);
    rill__unlock(&comm->engine);
    return status == RILL_OK ? rill__comm_open(more, config, NULL, out) : status;
}
