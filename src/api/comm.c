/* Communicators: create, free, statistics. */
#include "api/comm.h"
#include "api/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of each rank's shared memory, where there are several hosts: half a million pairs. On one host only by
 * request, as no algorithm that "auto" chooses there uses it. */
#define DEFAULT_SHARED_BYTES (UINT64_C(4) << 20)

static rill_status find_hosts(rill__engine *engine, const rill__defaults *d) {
    RILL_TRY(rill__hosts_find(&engine->hosts, engine->mpi, d->hosts_of));
    uint64_t bytes = d->shared_bytes;
    if (bytes == UINT64_MAX) bytes = engine->hosts.n > 1 ? DEFAULT_SHARED_BYTES : 0;
    return rill__shared_create(&engine->shared, engine->mpi, &engine->hosts, bytes);
}

/* Where the setting asks for a thread all ranks have one, or all have the error. */
static rill_status start_thread(rill_comm *comm, int ranks_here) {
    rill__engine *engine = &comm->engine;
    if (!comm->defaults.progress_thread) return RILL_OK;
    rill_status status = rill__progress_start(engine,
                                              2 * ranks_here > sysconf(_SC_NPROCESSORS_ONLN));
    int mine = status, worst = RILL_OK;
    int code = MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MIN, engine->mpi);
    if (code == MPI_SUCCESS && worst == RILL_OK) return RILL_OK;
    rill__progress_stop(engine);
    if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Allreduce");
    char detail[200];
    snprintf(detail, sizeof detail, "%s",
             status == RILL_OK ? "setting progress_thread = 1: another rank cannot have a thread"
                               : rill_last_error());
    return rill__fail((rill_status)worst, "rill_comm_create: %s", detail);
}

/* All that this rank does alone, and may lack the memory for: what follows is with the others. */
static rill_status prepare(rill_comm *comm, MPI_Comm dup, const rill_config *config) {
    RILL_TRY(rill__engine_init(&comm->engine, dup));
    if (config && config->size < offsetof(rill_config, progress_thread))
        return rill__fail(RILL_ERR_ARGUMENT,
                          "rill_comm_create: config.size is %zu: use RILL_CONFIG_INIT",
                          config->size);
    RILL_TRY(rill__hosts_reserve(&comm->engine.hosts, comm->engine.size));
    return rill__mpi_ops_create(&comm->mpi_ops);
}

static rill_status set_up(rill_comm *comm, MPI_Comm user, MPI_Comm dup, const rill_config *config) {
    RILL_TRY(rill__defaults_agree(config, user, dup, &comm->defaults));
    comm->engine.split_limit = comm->engine.host_limit = comm->defaults.split_limit;
    RILL_TRY(find_hosts(&comm->engine, &comm->defaults));
    int ranks_here = comm->engine.hosts.together, hosts = comm->engine.hosts.n;
    comm->engine.crowded = ranks_here > sysconf(_SC_NPROCESSORS_ONLN);
    double crowding = (double)ranks_here / (double)sysconf(_SC_NPROCESSORS_ONLN), most = 1;
    int code = MPI_Allreduce(&crowding, &most, 1, MPI_DOUBLE, MPI_MAX, dup);
    int news[2] = {ranks_here, !rill__kernels_get()->add_bits};
    if (code == MPI_SUCCESS) code = MPI_Allreduce(MPI_IN_PLACE, news, 2, MPI_INT, MPI_MAX, dup);
    if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Allreduce");
    ranks_here = news[0];
    comm->planner.sums_bits = !news[1];
    comm->planner.hosts = hosts;
    comm->planner.most_per_host = comm->engine.hosts.most;
    RILL_TRY(rill__comm_profile(comm, most));
    comm->last = (rill_stats)RILL_STATS_INIT;
    comm->clock = rill__clock_start();
    return start_thread(comm, ranks_here);
}

static void destroy(rill_comm *comm) {
    rill__mpi_ops_free(&comm->mpi_ops);
    rill__shared_free(&comm->engine.shared);
    rill__engine_free(&comm->engine);
    free(comm);
}

/* MPI would end the program at the first call. */
static rill_status check_mpi(MPI_Comm user) {
    int up = 0, down = 0, inter = 0;
    MPI_Initialized(&up);
    if (!up) return rill__fail(RILL_ERR_STATE, "rill_comm_create: MPI is not initialised");
    MPI_Finalized(&down);
    if (down) return rill__fail(RILL_ERR_STATE, "rill_comm_create: MPI has been finalised");
    if (user == MPI_COMM_NULL)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_create: the communicator is MPI_COMM_NULL");
    MPI_Comm_test_inter(user, &inter);
    if (inter)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_create: this is an intercommunicator: "
                                             "MPI_Intercomm_merge makes one communicator of it");
    return RILL_OK;
}

/* One agreement before the first call that assumes that everybody has a communicator. */
static rill_status agree(MPI_Comm dup, rill_status mine) {
    int status = mine, worst = RILL_OK;
    int code = MPI_Allreduce(&status, &worst, 1, MPI_INT, MPI_MIN, dup);
    if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Allreduce");
    if (worst != RILL_OK && mine == RILL_OK)
        rill__fail((rill_status)worst, "rill_comm_create: another rank failed: %s",
                   rill_strerror((rill_status)worst));
    return mine != RILL_OK ? mine : (rill_status)worst;
}

rill_status rill_comm_create(MPI_Comm user, const rill_config *config, rill_comm **out) {
    if (out) *out = NULL;
    RILL_TRY(check_mpi(user));
    MPI_Comm dup;
    int code = MPI_Comm_dup(user, &dup);
    if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Comm_dup");
    MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);

    rill_comm *comm = out ? calloc(1, sizeof *comm) : NULL;
    rill_status status = comm  ? prepare(comm, dup, config)
                         : out ? rill__fail(RILL_ERR_MEMORY, "rill_comm_create: out of memory")
                               : rill__fail(RILL_ERR_ARGUMENT, "rill_comm_create: out is NULL");
    status = agree(dup, status);
    if (status == RILL_OK) status = set_up(comm, user, dup, config);
    if (status != RILL_OK) { /* all ranks take the same way here */
        if (comm) destroy(comm);
        MPI_Comm_free(&dup);
        return status;
    }
    *out = comm;
    return RILL_OK;
}

rill_status rill_comm_free(rill_comm **pointer) {
    if (!pointer || !*pointer) return RILL_OK;
    rill_comm *comm = *pointer;
    int down = 0;
    MPI_Finalized(&down);
    if (down) return rill__fail(RILL_ERR_STATE, "rill_comm_free: MPI has been finalised");
    if (comm->requests)
        return rill__fail(RILL_ERR_STATE, "rill_comm_free: %d requests are not freed",
                          comm->requests);
    rill__progress_stop(&comm->engine);
    rill_status status = rill__engine_drain(&comm->engine);
    while (comm->idle) {
        rill_request *r = comm->idle;
        comm->idle = r->next_idle;
        rill__request_destroy(r);
    }
    MPI_Comm mpi = comm->engine.mpi;
    destroy(comm);
    *pointer = NULL;
    int code = MPI_Comm_free(&mpi);
    if (status == RILL_OK && code != MPI_SUCCESS) status = rill__mpi_error(code, "MPI_Comm_free");
    return status;
}

rill_status rill_comm_forget(rill_comm *comm) {
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_forget: comm is NULL");
    rill__engine *engine = &comm->engine;
    rill__lock(engine);
    bool active = engine->active != NULL;
    if (!active) {
        memset(comm->planner.keys, 0, sizeof comm->planner.keys);
        engine->first_seq = engine->seq;
    }
    rill__unlock(engine);
    if (active) return rill__fail(RILL_ERR_STATE, "rill_comm_forget: a request is active");
    return RILL_OK;
}

/* Older programs have a shorter struct: only what fits is written. One that forgot to set the size
 * has at least the first version's fields. */
void rill__stats_copy(rill_stats *to, const rill_stats *from) {
    size_t size = to->size < sizeof *to ? to->size : sizeof *to;
    const size_t first_version = offsetof(rill_stats, elapsed_s) + sizeof(double);
    if (size < first_version) size = first_version;
    memcpy((char *)to + sizeof to->size, (const char *)from + sizeof from->size,
           size - sizeof to->size);
}

rill_status rill_comm_stats(const rill_comm *comm, rill_stats *stats) {
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_stats: comm is NULL");
    if (!stats) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_stats: stats is NULL");
    rill__stats_copy(stats, &comm->last);
    stats->elapsed_s = rill__clock_seconds(&comm->clock, comm->last_elapsed);
    return RILL_OK;
}

int rill_comm_rank(const rill_comm *comm) { return comm ? comm->engine.rank : -1; }
int rill_comm_size(const rill_comm *comm) { return comm ? comm->engine.size : 0; }
const char *rill_isa(void) { return rill__kernels_get()->isa; }
