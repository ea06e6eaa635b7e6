/* Communicators: create, free, statistics. */
#include "api/comm.h"
#include "call/call.h"
#include "coll/patterns/mpi_allreduce.h"
#include "core/isa.h"
#include "link/subset.h"
#include "plan/learn.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of each rank's shared memory, at most: addresses, of which it takes what calls ask for. Where it
 * can't grow, half a million pairs, and on one host only by request: there messages are in the
 * same memory, or time is pretended. */
#define MOST_SHARED_BYTES (UINT64_C(1) << 28)
#define FIXED_SHARED_BYTES (UINT64_C(4) << 20)

/* Of a message by mail, where the setting says nothing: on one host whose ranks have a processor
 * each. Where they take turns, who looks into a box keeps the sender from its work. */
enum { MAIL_BYTES = 4096 };

static rill_status choose_mail(const rill__engine *engine, const rill__defaults *d,
                               uint64_t *bytes) {
    rill__link *link = engine->link;
    *bytes = d->mail_bytes == UINT64_MAX ? 0 : d->mail_bytes;
    if (d->mail_bytes != UINT64_MAX || !link->has_mail || engine->hosts.n > 1) return RILL_OK;
    double crowded = engine->hosts.together > rill__processors();
    RILL_TRY(rill__link_most(link, &crowded, 1));
    if (crowded == 0) *bytes = MAIL_BYTES;
    return RILL_OK;
}

static rill_status find_hosts(rill__engine *engine, const rill__defaults *d) {
    RILL_TRY(rill__hosts_find(&engine->hosts, engine->link, d->hosts_of));
    uint64_t bytes = d->shared_bytes;
    if (bytes == UINT64_MAX)
        bytes = engine->link->table->grow ? MOST_SHARED_BYTES
                : engine->hosts.n > 1     ? FIXED_SHARED_BYTES
                                          : 0;
    uint64_t mail;
    RILL_TRY(choose_mail(engine, d, &mail));
    return rill__shared_create(&engine->shared, engine->link, &engine->hosts, bytes, mail);
}

/* Of a dense sum where ranks read each other's memory, at least, where the setting says nothing:
 * between processes of one host. Of shorter ones a good part is in the other's caches, where the
 * kernel reads no faster than MPI; more ranks make MPI wait more often. */
uint64_t rill__comm_read_bytes(int ranks) { return (UINT64_C(4) << 20) * (ranks == 2 ? 2 : 1); }

/* 0: they can't, or it is not wanted. As far as this rank can tell. */
static rill_status choose_reading(rill__engine *engine, const rill__defaults *d, double *bytes) {
    rill__link *link = engine->link;
    uint64_t wanted = d->read_bytes;
    bool all = false;
    *bytes = 0;
    if (wanted == UINT64_MAX) wanted = link->copies_pages ? rill__comm_read_bytes(engine->size) : 0;
    if (!wanted || link->simulated || engine->hosts.most == 1 ||
        (engine->hosts.n > 1 && !link->table->lends))
        return RILL_OK;
    RILL_TRY(rill__reach_find(&engine->reach, link, &engine->hosts, &all));
    if (all && (!link->table->lends || link->table->lends(link))) *bytes = (double)wanted;
    return RILL_OK;
}

/* All ranks have said what they chose. */
static void read_others(rill_comm *comm, double bytes) {
    rill__engine *engine = &comm->engine;
    comm->planner.read_bytes = engine->hosts.n == 1 ? (uint64_t)bytes : 0;
    if (bytes > 0 && engine->link->table->lend)
        engine->link->table->lend(engine->link, &engine->reach, &engine->hosts);
}

static bool is_crowded(int ranks_here) { return 2 * ranks_here > rill__processors(); }

/* Where the setting asks for a thread all ranks have one, or all have the error. */
static rill_status start_thread(rill_comm *comm, int ranks_here) {
    rill__engine *engine = &comm->engine;
    if (!comm->defaults.progress_thread) return RILL_OK;
    rill_status status = rill__progress_start(engine, is_crowded(ranks_here));
    char detail[200];
    snprintf(detail, sizeof detail, "%s",
             status == RILL_OK ? "setting progress_thread = 1: another rank cannot have a thread"
                               : rill_last_error());
    rill_status worst, agreed = rill__link_worst(engine->link, status, &worst);
    if (agreed == RILL_OK && worst == RILL_OK) return RILL_OK;
    rill__progress_stop(engine);
    return agreed != RILL_OK ? agreed : rill__fail(worst, "rill_comm_create: %s", detail);
}

static rill_status check_environment(void) {
    if (rill__settings_check_own() == RILL_OK) return RILL_OK;
    char detail[200];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    return rill__fail(RILL_ERR_UNKNOWN, "rill_comm_create: %s", detail);
}

/* All that this rank does alone, and may lack the memory for: what follows is with the others. */
static rill_status prepare(rill_comm *comm, rill__link *link, const rill_config *config) {
    RILL_TRY(rill__engine_init(&comm->engine, link));
    RILL_TRY(rill__config_check(config));
    RILL_TRY(check_environment());
    RILL_TRY(rill__hosts_reserve(&comm->engine.hosts, comm->engine.size));
    RILL_TRY(rill_stream_create(RILL_F32, 1, &comm->nothing));
    return link->has_mpi ? rill__mpi_sums_create(&comm->engine.mpi_sums) : RILL_OK;
}

static rill_status set_up(rill_comm *comm, const rill_config *config, const rill__info *info) {
    rill__link *link = comm->engine.link;
    RILL_TRY(rill__defaults_agree(config, link, info, &comm->defaults));
    comm->engine.split_limit = comm->engine.host_limit = rill__min_u64(comm->defaults.split_limit,
                                                                       link->message_limit);
    RILL_TRY(find_hosts(&comm->engine, &comm->defaults));
    int ranks_here = comm->engine.hosts.together;
    double processors = link->yields ? ranks_here : rill__processors();
    comm->engine.crowded = link->yields || ranks_here > processors;
    double reads;
    RILL_TRY(choose_reading(&comm->engine, &comm->defaults, &reads));
    double news[] = {ranks_here / processors,
                     ranks_here,
                     !rill__space_adds_bits(rill__host()),
                     !rill__comm_learn_reserve(comm),
                     0,
                     0,
                     comm->engine.hosts.here > 1 && !rill__shared_has_areas(&comm->engine.shared),
                     reads == 0};
    rill__comm_host_words(&news[4]);
    RILL_TRY(rill__link_most(link, news, 8));
    comm->host_words[0] = (uint64_t)news[4];
    comm->host_words[1] = (uint64_t)news[5];
    comm->planner.sums_bits = news[2] == 0;
    comm->planner.mpi_sums = link->has_mpi;
    comm->planner.memory = RILL__PLAN_MEMORY;
    comm->planner.hosts = comm->engine.hosts.n;
    comm->planner.most_per_host = comm->engine.hosts.most;
    /* Ranks of a world take turns: none moves data while another does. */
    comm->planner.together = link->yields ? 1 : (int)news[1];
    comm->planner.shares = news[6] == 0;
    read_others(comm, news[7] == 0 ? reads : 0);
    RILL_TRY(rill__comm_profile(comm, news[0], news[3] == 0));
    comm->last = (rill_stats)RILL_STATS_INIT;
    comm->clock = rill__clock_start(link);
    comm->engine.peers.timeout = comm->defaults.timeout_s;
    return start_thread(comm, (int)news[1]);
}

static void destroy(rill_comm *comm) {
    rill__mpi_sums_free(comm->engine.mpi_sums);
    rill__shared_free(&comm->engine.shared);
    rill__reach_free(&comm->engine.reach);
    rill__engine_free(&comm->engine);
    rill__planner_forget(&comm->planner);
    rill__comm_learn_stop(comm);
    rill_stream_free(&comm->nothing);
    free(comm);
}

static void destroy_late(void *comm) { destroy(comm); }

/* A rank is gone: messages may be under way that nobody takes in, and the link may read them until
 * it is closed, which may be long after this where a communicator that was made of this one
 * shares it. */
static rill_status free_revoked(rill_comm *comm) {
    rill__engine *engine = &comm->engine;
    rill__link *link = engine->link;
    if (link->table->unhelp) link->table->unhelp(link);
    rill__shared_free(&engine->shared);
    bool shared = rill__is_subset(link) && !rill__orphans_done(engine);
    if (shared && !rill__subset_defer(link, destroy_late, comm))
        rill__fail(RILL_ERR_MEMORY, "rill_comm_free: buffers are lost"); /* and nothing else */
    rill_status closed = link->table->close(link);
    if (!shared) destroy(comm);
    return closed;
}

/* One agreement before the first call that assumes that everybody has a communicator. */
static rill_status agree(rill__link *link, rill_status mine) {
    rill_status worst;
    RILL_TRY(rill__link_worst(link, mine, &worst));
    if (worst != RILL_OK && mine == RILL_OK)
        rill__fail(worst, "rill_comm_create: another rank failed: %s", rill_strerror(worst));
    return mine != RILL_OK ? mine : worst;
}

rill_status rill__comm_open(rill__link *link, const rill_config *config, const rill__info *info,
                            rill_comm **out) {
    rill_comm *comm = out ? rill__calloc(1, sizeof *comm) : NULL;
    rill_status status = comm  ? prepare(comm, link, config)
                         : out ? rill__fail(RILL_ERR_MEMORY, "rill_comm_create: out of memory")
                               : rill__fail(RILL_ERR_ARGUMENT, "rill_comm_create: out is NULL");
    status = agree(link, status);
    if (status == RILL_OK) status = set_up(comm, config, info);
    if (status != RILL_OK) { /* all ranks take the same way here */
        if (comm) destroy(comm);
        link->table->close(link);
        return status;
    }
    *out = comm;
    return RILL_OK;
}

rill_status rill_comm_free(rill_comm **pointer) {
    if (!pointer || !*pointer) return RILL_OK;
    rill_comm *comm = *pointer;
    rill__link *link = comm->engine.link;
    rill_status usable = link->table->usable ? link->table->usable(link) : RILL_OK;
    if (usable != RILL_OK) return usable;
    if (comm->requests)
        return rill__fail(RILL_ERR_STATE, "rill_comm_free: %d requests are not freed",
                          comm->requests);
    rill__progress_stop(&comm->engine);
    rill_status status = rill__engine_drain(&comm->engine);
    rill__again_free(&comm->again);
    while (comm->idle) {
        rill_request *r = comm->idle;
        comm->idle = r->next_idle;
        rill__request_destroy(r);
    }
    *pointer = NULL;
    rill__comm_learn_keep(comm);
    if (comm->engine.peers.revoked) return free_revoked(comm);
    destroy(comm);
    rill_status closed = link->table->close(link);
    return status != RILL_OK ? status : closed;
}

/* The lock is for those who start requests meanwhile, and look whether there is a thread. */
rill_status rill_comm_progress_thread(rill_comm *comm, int on) {
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_progress_thread: comm is NULL");
    rill__engine *engine = &comm->engine;
    rill_status status = RILL_OK;
    if (!on) {
        rill__progress_stop(engine);
    } else {
        rill__lock(engine);
        if (!engine->progress.on)
            status = rill__progress_start(engine, is_crowded(engine->hosts.together));
        rill__unlock(engine);
    }
    return status;
}

rill_status rill_comm_forget(rill_comm *comm) {
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_forget: comm is NULL");
    rill__engine *engine = &comm->engine;
    rill__lock(engine);
    bool active = engine->active != NULL;
    if (!active) {
        rill__planner_forget(&comm->planner);
        if (comm->planner.learner) rill__learner_restart(comm->planner.learner);
        engine->first_seq = engine->seq;
    }
    rill__unlock(engine);
    if (active) return rill__fail(RILL_ERR_STATE, "rill_comm_forget: a request is active");
    return RILL_OK;
}

rill_status rill_comm_stats(const rill_comm *comm, rill_stats *stats) {
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_stats: comm is NULL");
    if (!stats) return rill__fail(RILL_ERR_ARGUMENT, "rill_comm_stats: stats is NULL");
    rill__stats_copy(stats, &comm->last);
    stats->elapsed_s = rill__clock_seconds(&comm->clock, comm->last_elapsed);
    const rill__link *link = comm->engine.link;
    if (link->strangers && stats->size >= offsetof(rill_stats, strangers) + sizeof stats->strangers)
        stats->strangers = atomic_load_explicit(link->strangers, memory_order_relaxed);
    return RILL_OK;
}

int rill_comm_rank(const rill_comm *comm) { return comm ? comm->engine.rank : -1; }
int rill_comm_size(const rill_comm *comm) { return comm ? comm->engine.size : 0; }
const char *rill_isa(void) { return rill__space_isa(rill__host()); }

rill_status rill_device_wait(int device, void *stream) {
    return rill__cuda_await("rill_device_wait", device, stream);
}

rill_status rill_device_at(rill_memory memory, int i, char *text, size_t size) {
    static const char call[] = "rill_device_at";
    if (!text || !size) return rill__fail(RILL_ERR_ARGUMENT, "%s: no room for the text", call);
    text[0] = '\0';
    if (i < 0) return rill__fail(RILL_ERR_ARGUMENT, "%s: i is %d", call, i);
    if (memory == RILL_CUDA) return rill__cuda_describe(call, i, text, size);
    return rill__fail(RILL_ERR_ARGUMENT, "%s: memory %d has no devices", call, (int)memory);
}
