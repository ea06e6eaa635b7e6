/* The communicator: engine, settings, planner, and requests kept for the next call. */
#ifndef RILL_API_COMM_H
#define RILL_API_COMM_H

#include "link/clock.h"
#include "plan/plan.h"

/* Most bytes of one message that can be set. */
#define RILL__SPLIT_LIMIT (UINT64_C(1) << 30)

/* Settings below the options struct: MPI_Info over rank 0's environment, the same on all ranks. */
typedef struct rill__defaults {
    char algorithm[32]; /* empty: unset */
    char codec[32];
    char partition[32];
    int32_t value_bits; /* -1: unset */
    int32_t check;
    uint64_t expected_nnz;
    uint64_t block; /* 0: unset */
    uint64_t split_limit;
    uint64_t seed; /* of random rounding */
    int32_t allow_bits;
    int32_t progress_thread;
    char profile[1024];              /* a file, or "none"; empty: unset */
    char hosts_of[RILL__HOSTS_TEXT]; /* hosts to pretend; empty: those that there are */
    uint64_t shared_bytes;           /* of each rank's shared memory; UINT64_MAX: unset */
} rill__defaults;

struct rill_comm {
    rill__engine engine; /* first */
    rill__defaults defaults;
    rill__planner planner;
    rill__clock clock;
    rill_stats last; /* of the last blocking call, but for the time */
    uint64_t last_elapsed;
    rill_request *idle; /* complete requests with their memory */
    int requests;       /* that the user holds */
    uint64_t reducers;  /* created so far */
};

/* Where rank 0 looks settings up before its environment. *found is false before, and true if it is there; value stays as
 * it is else. */
typedef struct rill__info {
    rill_status (*look_up)(const void *context, const char *name, char *value, size_t length,
                           bool *found);
    const void *context;
} rill__info;

/* comm.c: a communicator over any link, which is its own from then on; a failure closes it. Collective. */
rill_status rill__comm_open(rill__link *, const rill_config *or_null, const rill__info *or_null_too,
                            rill_comm **out);

/* settings.c: merges info (may be NULL) and environment on rank 0, agrees on them. Collective. */
rill_status rill__defaults_agree(const rill_config *, rill__link *, const rill__info *,
                                 rill__defaults *);
rill_status rill__config_check(const rill_config *or_null);
rill_status rill__setting_too_long(const char *name, size_t length);
/* Resolves the options of a call; an unknown name is an error that says so. */
rill_status rill__settings_resolve(const rill_comm *, rill_collective, const rill_options *,
                                   rill__settings *);

/* comm_profile.c: the constants of the planner, from a profile or the network. Collective. */
rill_status rill__comm_profile(rill_comm *, double crowding);

#endif
