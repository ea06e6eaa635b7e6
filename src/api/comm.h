/* How communicators are made. */
#ifndef RILL_API_COMM_H
#define RILL_API_COMM_H

#include "call/comm.h"

/* comm.c: a communicator over any link, which is its own from then on; a failure closes it.
 * Collective. */
rill_status rill__comm_open(rill__link *, const rill_config *or_null, const rill__info *or_null_too,
                            rill_comm **out);

/* The shortest dense sum for which ranks of one host read each other's memory, by default. */
uint64_t rill__comm_read_bytes(int ranks);

/* settings.c: merges info (may be NULL) and environment on rank 0, agrees on them. Collective. */
rill_status rill__defaults_agree(const rill_config *, rill__link *, const rill__info *,
                                 rill__defaults *);
rill_status rill__config_check(const rill_config *or_null);

static inline double rill__comm_clock(const rill_comm *comm) {
    return comm->engine.table->clock(comm->engine.link);
}
/* What rank 0 has becomes everybody's. Collective. */
static inline rill_status rill__comm_spread(const rill_comm *comm, void *data, size_t bytes) {
    return comm->engine.table->bcast(comm->engine.link, data, bytes, 0);
}

/* comm_profile.c: the constants of the planner, from a profile, a cache or the network; learns: all
 * ranks can. Collective. */
rill_status rill__comm_profile(rill_comm *, double crowding, bool learns);

/* The file of the profile: given, or NULL, then as the settings name it, else the user's. */
void rill__comm_profile_path(const rill_comm *, const char *given, char *path, size_t size);

/* comm_learn.c: what the planner learns (plan/learn.h). Memory for it; false: there is none. */
bool rill__comm_learn_reserve(rill_comm *);
/* When profile and constants are known; possible: all ranks have the memory; tuned: there is a
 * profile. */
void rill__comm_learn_start(rill_comm *, bool possible, bool tuned);
void rill__comm_learn_stop(rill_comm *);
void rill__comm_learn_keep(const rill_comm *); /* for the next job */
bool rill__comm_uses_cache(const rill_comm *);
rill__seating rill__comm_seating(const rill_comm *, double crowding);
/* Of this host: what the largest of all ranks' make of them tells machines apart. */
void rill__comm_host_words(double words[2]);
struct rill__machine rill__comm_machine(const rill_comm *, double crowding);

#endif
