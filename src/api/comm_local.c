/* Communicators of ranks in one process: rill_comm_create_local. */
#include "api/comm.h"
#include "link/fiber.h"
#include "link/local.h"

#include <stdlib.h>

enum { MOST_RANKS = 1 << 20 };

/* A rank on its way to a communicator. Creation is collective: each rank is a fiber here, which
 * gives way where it would wait for the others. */
typedef struct newcomer {
    rill__fiber *fiber;
    rill__link *link;
    const rill_config *config;
    rill_comm *comm;
    rill_status status;
} newcomer;

static void open_comm(void *argument) {
    newcomer *one = argument;
    one->status = rill__comm_open(one->link, one->config, NULL, &one->comm);
}

static void pause_newcomer(void *argument) { rill__fiber_yield(((newcomer *)argument)->fiber); }

/* In turn, until all are through. */
static void run_all(newcomer *all, int n) {
    for (int i = 0; i < n; i++)
        rill__fiber_start(all[i].fiber, open_comm, &all[i]);
    for (int left = n; left;)
        for (int i = 0; i < n; i++) {
            if (!all[i].fiber || !rill__fiber_resume(all[i].fiber)) continue;
            rill__fiber_free(all[i].fiber);
            all[i].fiber = NULL;
            left--;
        }
}

static rill_status create(newcomer *all, int n, const rill_config *config, rill__link **links) {
    rill_status status = RILL_OK;
    for (int i = 0; i < n && status == RILL_OK; i++)
        status = rill__fiber_create(RILL__FIBER_STACK, &all[i].fiber);
    if (status == RILL_OK) status = rill__local_create(n, NULL, links);
    if (status != RILL_OK) {
        for (int i = 0; i < n; i++)
            rill__fiber_free(all[i].fiber);
        return status;
    }
    for (int i = 0; i < n; i++) {
        all[i].link = links[i];
        all[i].config = config;
        rill__local_set_pause(links[i], pause_newcomer, &all[i]);
    }
    run_all(all, n);
    return all[0].status; /* the same on all */
}

/* For a thread that waits for another of its ranks. */
static void advance(void *argument) {
    rill__engine *engine = argument;
    if (!rill__trylock(engine)) return; /* its own thread is at it */
    engine->peers.helped = true;
    rill__engine_progress(engine);
    engine->peers.helped = false;
    rill__unlock(engine);
}

rill_status rill_comm_create_local(int n, const rill_config *config, rill_comm **comms) {
    if (!comms) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_create_local: comms is NULL");
    if (n < 1 || n > MOST_RANKS)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_create_local: n = %d is not from 1 to %d",
                          n, MOST_RANKS);
    newcomer *all = rill__calloc((size_t)n, sizeof *all);
    rill__link **links = rill__calloc((size_t)n, sizeof *links);
    rill_status status = all && links
                             ? create(all, n, config, links)
                             : rill__fail(RILL_ERR_MEMORY, "rill_comm_create_local: out of memory");
    for (int i = 0; i < n; i++) {
        comms[i] = all ? all[i].comm : NULL;
        if (status != RILL_OK) continue;
        rill__local_set_pause(links[i], NULL, NULL);
        rill__local_set_helper(links[i], advance, &comms[i]->engine);
    }
    free(links);
    free(all);
    return status;
}
