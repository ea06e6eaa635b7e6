/* Where a communicator has its planner's constants from: a profile that rank 0 reads, or the
 * built-in ones for the class of network that there is. */
#include "api/comm.h"
#include "plan/learn.h"

#include <stdio.h>
#include <string.h>

typedef struct found {
    int32_t status;
    int32_t built_in;
    int32_t learned; /* the profile is what the last job here has learned */
    char error[400];
    rill__profile profile;
    rill__device_constants device;
} found;

/* Once, where there are several hosts. */
static rill_status measure_network(rill_comm *comm) {
    if (comm->planner.hosts == 1 || comm->network.rate > 0) return RILL_OK;
    return rill__probe_network(comm->engine.link, &comm->network);
}

/* Over TCP large messages may be better in parts: the link knows. The latency is measured, and not
 * a profile's constant, which is what fits best and may be far from it. */
static rill_status choose_parts(rill_comm *comm) {
    rill__link *link = comm->engine.link;
    if (!link->network_part) return RILL_OK;
    double latency = comm->planner.profile.constants.latency;
    if (comm->planner.hosts == 1 || comm->defaults.split_limit != RILL__SPLIT_LIMIT)
        return RILL_OK; /* no network, or somebody has set it */
    if (comm->network.rate > 0) latency = comm->network.latency;
    else if (comm->planner.profile.ranks) RILL_TRY(rill__probe_latency(link, &latency));
    if (latency >= RILL__TCP_LATENCY)
        comm->engine.split_limit = link->network_part; /* within a host it stays */
    return RILL_OK;
}

static rill_status build_in(rill_comm *comm, double crowding) {
    static const char none[] = "none";
    rill__planner *planner = &comm->planner;
    rill__constants_default(&planner->profile.constants, planner->hosts, planner->together,
                            crowding);
    comm->planner.profile.crowding = crowding > 1 ? crowding : 1;
    if (comm->planner.hosts == 1 || strcmp(comm->defaults.profile, none) == 0) return RILL_OK;
    RILL_TRY(measure_network(comm));
    rill__constants_network(&comm->planner.profile.constants, &comm->network);
    return RILL_OK;
}

/* What the last job has learned here, where there is no profile. A file of no use is as good as
 * none: rill_last_error tells of it. */
static void look_up_cache(const rill_comm *comm, double crowding, found *f) {
    char why[300];
    rill__machine machine = rill__comm_machine(comm, crowding);
    f->learned = rill__cache_read(&machine, &f->profile, why, sizeof why);
    if (*why) rill__fail(RILL_ERR_IO, "what was learned is not used: %s", why);
    if (!f->learned) memset(&f->profile, 0, sizeof f->profile);
}

static rill_status load(rill_comm *comm, double crowding, bool learns) {
    found f;
    memset(&f, 0, sizeof f);
    if (comm->engine.rank == 0) {
        bool there = false;
        rill__seating seating = rill__comm_seating(comm, crowding);
        f.status = (int32_t)rill__profile_find(comm->defaults.profile, &seating, &f.profile,
                                               &f.device, &there);
        f.built_in = !there;
        if (f.status) snprintf(f.error, sizeof f.error, "%s", rill_last_error());
    }
    RILL_TRY(rill__comm_spread(comm, &f, sizeof f));
    if (f.status) return rill__fail((rill_status)f.status, "rill_comm_create: %s", f.error);
    if (f.built_in && rill__comm_uses_cache(comm)) {
        RILL_TRY(measure_network(comm)); /* the same hosts may have several */
        if (comm->engine.rank == 0) look_up_cache(comm, crowding, &f);
        RILL_TRY(rill__comm_spread(comm, &f, sizeof f));
    }
    comm->planner.profile = f.profile;
    comm->planner.device = f.device;
    if (f.built_in && !f.learned) RILL_TRY(build_in(comm, crowding));
    rill__comm_learn_start(comm, learns, !f.built_in);
    return RILL_OK;
}

rill_status rill__comm_profile(rill_comm *comm, double crowding, bool learns) {
    RILL_TRY(load(comm, crowding, learns));
    return choose_parts(comm);
}

void rill__comm_profile_path(const rill_comm *comm, const char *given, char *path, size_t size) {
    const char *set = comm->defaults.profile;
    if (!given && set[0] && strcmp(set, "none") != 0) given = set;
    if (given) snprintf(path, size, "%s", given);
    else rill__profile_path(path, size);
}
