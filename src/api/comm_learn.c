/* What a communicator learns of its machine: from where it starts, and what becomes of it. */
#include "api/comm.h"
#include "plan/learn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LEAST_SAMPLES = 3 }; /* that are worth a file */

static bool is(const rill_comm *comm, const char *mode) {
    return strcmp(comm->defaults.learn, mode) == 0;
}

/* A profile that is named stands, and so do the built-in constants of "none", unless both are said.
 * What a simulator takes is no news of any machine. Under RILL_CHECK calls take longer. */
static bool may_learn(const rill_comm *comm) {
    bool automatic = (is(comm, "auto") || is(comm, "predict")) && !comm->defaults.profile[0] &&
                     !comm->engine.link->simulated;
    return comm->engine.size > 1 && !comm->defaults.check && (is(comm, "on") || automatic);
}

bool rill__comm_uses_cache(const rill_comm *comm) {
    return comm->defaults.learn[0] && !is(comm, "off") && !is(comm, "predict") &&
           !comm->defaults.profile[0] && !comm->engine.link->simulated && comm->engine.size > 1;
}

bool rill__comm_learn_reserve(rill_comm *comm) {
    if (!may_learn(comm)) return true;
    comm->planner.learner = rill__malloc(sizeof *comm->planner.learner);
    return comm->planner.learner != NULL;
}

/* The names of all hosts as two numbers that the largest of all ranks' have in common. 52 bits of
 * each, as these are compared as doubles. */
void rill__comm_host_words(double words[2]) {
    char name[256] = "";
    if (gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
    for (int i = 0; i < 2; i++)
        words[i] = (double)(XXH64(name, strlen(name), (uint64_t)i) >> 12);
}

rill__seating rill__comm_seating(const rill_comm *comm, double crowding) {
    return (rill__seating){comm->engine.size, comm->planner.hosts, comm->planner.together,
                           crowding};
}

rill__machine rill__comm_machine(const rill_comm *comm, double crowding) {
    return (rill__machine){.link = comm->engine.table->name,
                           .network = comm->network,
                           .hosts = {comm->host_words[0], comm->host_words[1]},
                           .seating = rill__comm_seating(comm, crowding)};
}

void rill__comm_learn_stop(rill_comm *comm) {
    free(comm->planner.learner);
    comm->planner.learner = NULL;
}

/* others: some rank has no memory for it. */
void rill__comm_learn_start(rill_comm *comm, bool possible, bool tuned) {
    bool automatic = !is(comm, "on");
    if (!comm->planner.learner) return;
    if (!possible || (tuned && automatic)) {
        rill__comm_learn_stop(comm);
        return;
    }
    rill__learner_start(comm->planner.learner, &comm->planner.profile);
    comm->planner.learner->predicts = is(comm, "predict");
    comm->planner.learner->keeps = rill__comm_uses_cache(comm) && !tuned;
}

/* Rank 0 writes; where it cannot, the next job learns for itself. */
void rill__comm_learn_keep(const rill_comm *comm) {
    rill__learner *l = comm->planner.learner;
    if (!l || !l->keeps || l->broken || l->samples < LEAST_SAMPLES || comm->engine.rank != 0 ||
        comm->engine.peers.revoked)
        return;
    rill__machine m = rill__comm_machine(comm, l->start.crowding);
    rill__profile *profile = rill__malloc(sizeof *profile);
    if (!profile) return;
    *profile = *rill__learn_look(l);
    profile->ranks = m.seating.ranks;
    profile->hosts = m.seating.hosts;
    rill__cache_write(&m, profile, l->samples);
    free(profile);
}
