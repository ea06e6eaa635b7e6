/* Errands: what the owner of a call does for it where the owner's vectors lie.
 *
 * A reducer in a device's memory can code its selection, and decode and sum messages, on the
 * device, so that only messages cross the bus. Algorithms ask for it by rill__run_encode_input and
 * rill__run_sum_away, and do not know who does it or where; whether it is done is in the problem
 * (away), which all ranks have alike. Messages are the same in either way, so that a rank whose
 * owner does no errands can take part.
 *
 * An errand is done at once; or, where the owner has a thread for it (apart), while the call waits:
 * nobody then holds the lock while a device works, and the engine leaves the call alone, as the
 * owner reads and writes its messages. */
#ifndef RILL_COLL_AWAY_H
#define RILL_COLL_AWAY_H

#include "coll/run.h"

#include <stdatomic.h>

typedef enum rill__errand_kind {
    RILL__ERRAND_FETCH,  /* the input is to be on the host after all */
    RILL__ERRAND_ENCODE, /* the input as a message's payload */
    RILL__ERRAND_SUM     /* the result is the sum of the messages, where they suit */
} rill__errand_kind;

typedef struct rill__errand {
    rill__errand_kind kind;
    rill__shape shape;
    uint64_t dim;
    /* ENCODE */
    rill__coding coding;
    const rill__part *part; /* its pairs lie with the owner */
    rill__parcel *parcel;
    char *payload;
    uint64_t index_size, value_size; /* results: bytes of it */
    /* SUM */
    int n;
    const rill__message *messages;
    bool suits;       /* result */
    uint64_t entries; /* the same: of the result, which lies with the owner */
} rill__errand;

typedef enum rill__errand_state {
    RILL__ERRAND_NONE,
    RILL__ERRAND_GIVEN,
    RILL__ERRAND_DONE
} rill__errand_state;

typedef struct rill__away {
    rill_status (*run)(void *whom, rill__errand *);
    void (*given)(void *whom); /* there is an errand; lock held */
    void *whom;
    bool apart;       /* else run is called by whoever advances the call, with the lock */
    bool lacks_input; /* the input's entries are not on the host */
    bool summed;      /* the result lies with the owner; the call's output only counts it */
    _Atomic(rill__errand_state) state;
    rill__errand errand;
    rill_status status; /* of what was done, with its detail */
    char error[200];
} rill__away;

/* For the owner: does what was given. False: nothing was. */
bool rill__away_work(rill__away *);
static inline bool rill__away_waits(const rill__away *away) {
    return atomic_load_explicit(&away->state, memory_order_acquire) == RILL__ERRAND_GIVEN;
}

/* Before the algorithm begins. RILL_OK: the input can be read, or nobody will; *changed: its
 * entries have come, or, in a failed call, will not: it is to be empty then. */
rill_status rill__run_fetch_input(rill__run *, bool *changed);

#endif
