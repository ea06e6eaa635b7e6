/* A call: arguments checked, settings resolved, planned, run. */
#ifndef RILL_CALL_CALL_H
#define RILL_CALL_CALL_H

#include "call/comm.h"
#include "coll/outside.h"
#include "plan/learn.h"

typedef enum rill__mode { RILL__BLOCKING, RILL__NONBLOCKING, RILL__PERSISTENT } rill__mode;

/* What is left to do when a call has ended, on whatever thread and with the lock held: the last
 * stage of a reducer's step. Takes the status of the call and gives that of the whole. */
typedef rill_status rill__sequel_complete(void *whom, rill_status);
typedef struct rill__sequel {
    rill__sequel_complete *complete; /* NULL: there is no sequel */
    void *whom;
    const rill_stats *stats; /* of the whole */
    /* Memory for the sequel, when the result is there and before ranks agree that all have got what
     * they need; NULL: none. */
    rill_status (*reserve)(void *whom);
    /* A call whose input is not there when it is started, and whose sequel is not run here
     * (rill__request_reserve); else NULL. Lock held, once the gate is open: gives the request its
     * input, and the failure of this rank, if any, with its detail. */
    rill_status (*enter)(void *whom, uint8_t *flags);
    void (*ended)(void *whom); /* of such a call: RILL__CALL_ENDED is set; lock held */
} rill__sequel;

/* What has become of the sequel of such a call. */
typedef enum rill__ended {
    RILL__NOT_ENDED,
    RILL__CALL_ENDED, /* its turn */
    RILL__ALL_ENDED
} rill__ended;

typedef struct rill__arguments {
    rill_collective collective;
    const rill_stream *in;
    rill_stream *out;
    const rill_op *op; /* NULL: the collective has none */
    int root;          /* -1: the collective has none */
    uint64_t *first, *count;
    struct rill__feedback *feedback; /* reducers only */
    const rill__sequel *sequel;      /* the same; NULL: none */
    rill__commits *commits; /* of several persistent requests that run one after the other, and of
                               which another may serve a call on each rank; NULL: its own */
    const rill_options *options;
} rill__arguments;

typedef enum rill__phase {
    RILL__P_GATE,
    RILL__P_CHECK,
    RILL__P_PLAN,
    RILL__P_AGREE,
    RILL__P_RUN,
    RILL__P_COMMIT
} rill__phase;

/* What a task has counted. */
typedef struct rill__traffic {
    uint64_t nnz_sum, nnz_max, sent_bytes, recv_bytes, messages, rounds;
} rill__traffic;

/* A call: what the user gave and what the planner made of it; the room that its algorithm works
 * in; and its messages. */
struct rill_request {
    rill__task task; /* first */
    rill__run run;
    rill__outside outside; /* of the run */
    rill__planned plan;
    rill_comm *comm;
    rill_collective collective;
    const rill_stream *in;
    rill_stream *out; /* may be in; reduce: NULL except on the root */
    const rill_op *op;
    int root;
    uint64_t *first, *count;
    bool blocking, persistent;
    const char *only_agrees;         /* on this, outside of a call; else NULL */
    bool takes_most;                 /* and words may differ */
    struct rill__feedback *feedback; /* of the reducer whose call it is; else NULL */
    rill__sequel sequel;             /* the same */
    atomic_bool told;                /* the user knows that it has ended */
    atomic_bool open;                /* the gate, where there is one */
    _Atomic(rill__ended) ended;      /* the same */

    rill__phase phase;
    const char *hashed[2]; /* names of an operation and an algorithm, which are constants, */
    uint32_t hash[2];      /* and their hashes */
    rill__agree agree;
    bool stats_known;        /* task.nnz_sum and nnz_max are those of all ranks when it completes */
    rill__commits commits;   /* of a persistent request */
    rill__commits *joint;    /* instead, where it shares them; else NULL */
    rill__traffic at_commit; /* while it commits */

    rill_stream
        staged[2]; /* of streams in another memory than the host's: in, and out unless it is in */
    rill__part input;          /* in, its absent entries the neutral element */
    rill__buffer state;        /* of the algorithm */
    uint64_t started, elapsed; /* ticks */
    uint64_t quick;            /* the same of the call before, a like one without a request; or 0 */
    uint64_t ran;              /* the same without the agreement at the end; 0: there was none */
    rill__learning learning;   /* what the call is to what the planner learns */
    bool seasoned;             /* calls of this kind have gone this way before */
    uint64_t nnz_in, nnz_out;
    rill_request *next_idle;
};

/* The one way into all collectives. request: NULL when blocking. */
rill_status rill__call(rill_comm *, const rill__arguments *, rill__mode, rill_request **request);
rill_status rill__request_begin(rill_request *); /* start or restart; lock held */
/* The same where the input is not there yet: takes the call's place in the order of calls. The
 * request goes on when it is open, and is complete when ended says so. Lock held. */
void rill__request_reserve(rill_request *);
void rill__request_pass_gate(rill_request *); /* open: takes the input */
/* The planner may choose an algorithm that wants blocks: the form is known only then. */
static inline bool rill__request_takes_input_late(const rill_request *r) {
    return !r->plan.settings.algorithm && r->plan.settings.block;
}
/* All ranks know the entries of all when it has ended. */
static inline bool rill__request_counts(const rill_request *r) {
    enum { COUNTED = 1 << RILL_ALLREDUCE | 1 << RILL_ALLGATHER | 1 << RILL_REDUCE_SCATTER };
    return COUNTED >> r->collective & 1;
}
void rill__request_launch(rill_request *); /* after begin, where nobody waits; lock held */
rill_status rill__request_result(const rill_request *); /* status and detail of a complete one */
/* What every call has, but for the time; other fields stay. */
void rill__request_statistics(const rill_request *, rill_stats *);
/* rill_request_free, of any request: the user may not free a reducer's. */
rill_status rill__request_release(rill_request **);
void rill__request_destroy(rill_request *);
void rill__request_recycle(rill_request *); /* lock held */
void rill__stats_copy(rill_stats *to, const rill_stats *from);
/* A request that agrees on a word and on nothing else, begun; NULL: out of memory. Lock held. */
rill_request *rill__agreement_begin(rill_comm *, const rill_stream *nothing, const char *what,
                                    uint64_t word);

/* ---- input.c ---- */
void rill__request_input(rill_request *); /* in, in the form that the algorithm wants */
rill_stream *rill__request_stage_output(rill_request *); /* what stands for out on the host */
/* Where the algorithm's result goes: out, or what stands for it; NULL: nowhere. */
static inline rill_stream *rill__request_output(rill_request *r) {
    return r->out && rill__stream_is_foreign(r->out) ? rill__request_stage_output(r) : r->out;
}
/* out gets the result that stands for it. */
static inline rill_status rill__request_land(rill_request *r) {
    return r->outside.out == r->out ? RILL_OK : rill_stream_copy(r->out, r->outside.out);
}

/* ---- rooms.c ---- */
void rill__rooms_begin(rill_request *);
rill_status rill__rooms_reserve(rill_request *); /* what a call of its kind needs when it ends */
/* Where the call ends with an agreement, before that: learns what it needed; size: of it. */
rill_status rill__rooms_keep(rill_request *, const rill__sizes *size);

/* ---- commit.c ---- */
/* When the algorithm is through: RILL_OK, or RILL_IN_PROGRESS and the phase RILL__P_COMMIT. */
rill_status rill__commit_start(rill_request *);
rill_status rill__commit_step(rill_request *);
/* Collective, outside of calls: a failure of one rank is the result on all, and so is a word that
 * differs; what: names the thing in the error. */
rill_status rill__agree_all(rill_comm *, const char *what, rill_status, uint64_t word);
/* The same, and the word becomes the largest of all. */
rill_status rill__agree_most(rill_comm *, const char *what, rill_status, uint64_t *word);

#endif
