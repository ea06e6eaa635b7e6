/* Processes that no launcher knows: rill_bootstrap_create. */
#include "core/core.h"
#include "link/rendezvous.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define CREATE "rill_bootstrap_create: "

/* Seconds that ranks wait for each other: batch systems start them late. */
#define PATIENCE 120.0

/* What launchers tell their processes. */
static const struct {
    const char *rank, *ranks;
} launchers[] = {
    {"RANK", "WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static rill_status read_number(const char *name, int least, int *to) {
    const char *text = getenv(name);
    char *end;
    long value = strtol(text, &end, 10);
    if (!*text || *end || value < least || value > INT_MAX)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "%s = '%s' is not a number of at least %d",
                          name, text, least);
    *to = (int)value;
    return RILL_OK;
}

/* rank, ranks < 0: of the environment. */
static rill_status find_rank(int *rank, int *ranks) {
    if (*rank >= 0 && *ranks >= 0) return RILL_OK;
    for (int i = 0; i < LAUNCHERS; i++) {
        if (!getenv(launchers[i].rank) || !getenv(launchers[i].ranks)) continue;
        if (*rank < 0) RILL_TRY(read_number(launchers[i].rank, 0, rank));
        if (*ranks < 0) RILL_TRY(read_number(launchers[i].ranks, 1, ranks));
        return RILL_OK;
    }
    return rill__fail(RILL_ERR_ARGUMENT,
                      CREATE "the environment has no rank and number of ranks (RANK and "
                             "WORLD_SIZE, or Slurm's, Open MPI's, PMI's)");
}

static int allgather(const void *mine, size_t bytes, void *all, void *context) {
    return rill__rendezvous_allgather(context, mine, bytes, all) == RILL_OK ? 0 : -1;
}

rill_status rill_bootstrap_create(const char *address, int rank, int ranks, rill_bootstrap *out) {
    if (!out) return rill__fail(RILL_ERR_ARGUMENT, CREATE "out is NULL");
    *out = (rill_bootstrap)RILL_BOOTSTRAP_INIT;
    RILL_TRY(find_rank(&rank, &ranks));
    if (ranks < 1 || rank >= ranks)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "rank %d of %d is none", rank, ranks);
    if (!address) address = getenv("RILL_RENDEZVOUS");
    if (!address && ranks > 1)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "address is NULL, and RILL_RENDEZVOUS is not "
                                                    "set: it is HOST:PORT, where rank 0 listens");
    rill__rendezvous *meeting = NULL;
    rill_status status = rill__rendezvous_open(address, rank, ranks, PATIENCE, &meeting);
    if (status != RILL_OK) {
        char detail[450];
        snprintf(detail, sizeof detail, "%s", rill_last_error());
        return rill__fail(status, CREATE "%s", detail);
    }
    out->rank = rank;
    out->ranks = ranks;
    out->allgather = allgather;
    out->context = meeting;
    return RILL_OK;
}

void rill_bootstrap_free(rill_bootstrap *bootstrap) {
    if (!bootstrap || bootstrap->allgather != allgather) return;
    rill__rendezvous_close(bootstrap->context);
    *bootstrap = (rill_bootstrap)RILL_BOOTSTRAP_INIT;
}
