/* The planner: what is known of past calls, and which algorithm the next one takes.
 *
 * Every rank must choose alike, so it sees only agreed values. Statistics of a call (entries of all
 * ranks, of the result) travel with its messages and are the same everywhere when it completes; but
 * non-blocking calls complete on different ranks at different times. So a call goes by the newest
 * one of its kind that ended well, among the blocking ones before it and those whose number, in the
 * order of all calls, is RILL__PLAN_LAG lower or more; it waits until none of these is under way.
 *
 * A call that failed leaves nothing: ranks may not even know that it was of this kind, and hear of
 * its failure before or after they planned it. For the same reason a choice is a function of what
 * the call goes by, and not of choices before it.
 *
 * A kind is forgotten after RILL__PLAN_MEMORY calls that were of others. This goes by numbers, too:
 * which kinds a rank has seen the end of when a call begins is its own affair. */
#ifndef RILL_PLAN_PLAN_H
#define RILL_PLAN_PLAN_H

#include "coll/rooms.h"
#include "plan/profile.h"

/* The first non-blocking calls of a kind end with an agreement (call/commit.c). */
enum { RILL__PLAN_LISTS = 64, RILL__PLAN_LAG = 8, RILL__PLAN_FIRST = 2, RILL__PLAN_MEMORY = 4096 };

/* Resolved options of one call. */
typedef struct rill__settings {
    const rill__algorithm *algorithm; /* NULL: the planner chooses */
    const rill__index_codec *codec;   /* NULL: the planner chooses */
    int value_bits;
    int allow_bits;  /* the fewest value bits that the planner may choose; 0: none */
    bool all_values; /* value_bits is for every message, not for the phase alone that it suits */
    rill__partition partition;
    uint64_t expected_nnz;
    uint64_t block;  /* 0: unset */
    bool on_devices; /* inputs and results lie there, on all ranks */
    /* What estimates go by; NULL: the planner's. The planner sets it for a call. */
    const rill__profile *profile;
} rill__settings;

/* Calls that ended with an agreement (call/commit.c), and the largest that all ranks had room for.
 */
typedef struct rill__sizes {
    uint64_t result, pairs; /* entries of the result; and where it is not dense */
    uint64_t sum, most;     /* of all inputs, of one */
} rill__sizes;
typedef struct rill__commits {
    uint64_t once, twice; /* ways to send that so many calls went, a bit each */
    rill__sizes sizes;
    rill__rooms rooms; /* what calls up to these sizes need when they end */
} rill__commits;

typedef struct rill__observed {
    bool known;
    bool ended, blocking; /* there was a call, which ended well; and its caller waited in it */
    int before;           /* non-blocking ones that ended well up to it, as far as it could see; not
                             over 2 */
    uint64_t seq;         /* its number */
    uint64_t nnz_sum, nnz_max;
    uint64_t result; /* 0: not known (dense, or on some ranks only) */
    double skew;     /* of equal ranges of the result; 0: not known */
} rill__observed;

/* One that was considered, and its time. */
typedef struct rill__candidate {
    const rill__algorithm *algorithm; /* NULL: none */
    double time;
    rill__problem problem; /* in the best way to send */
} rill__candidate;
/* A way that calls of a kind may go, and what is known of it (plan/learn.h). */
enum { RILL__RIVALS = 4 };
typedef struct rill__rival {
    rill__candidate way; /* and its time by the model alone */
    uint32_t times;      /* that it was measured; 0: the ratios are guessed from other calls */
    /* measured to model: what the next call is likely to have, and quartiles */
    double usual, low, high;
    double lately;   /* the middle one of the last three, */
    double least;    /* the least of them, */
    double last_two; /* and the larger one of two */
    uint32_t before; /* times when the trial began */
    int place;       /* where what is known of it is kept; negative: nowhere */
    bool tried, won; /* there was a trial; and it took the place of another by one */
} rill__rival;

/* A choice, and what it was made from: estimates cost more than a small call. */
typedef struct rill__plan_choice {
    rill__observed from;
    rill__settings settings;
    uint64_t k;
    const rill__algorithm *algorithm; /* NULL: there is none */
    uint16_t hash;
    rill__problem problem;
    uint64_t number, way;
    double predicted;
} rill__plan_choice;

/* Calls of one kind. */
typedef struct rill__planned rill__planned;
typedef struct rill__plan_key {
    struct rill__plan_key *other; /* the next in the list */
    rill_collective collective;
    rill_type type;
    uint64_t dim;
    uint32_t op;
    /* One more than the highest number of a non-blocking call that ended well, and of a blocking
     * one; 0: none did */
    uint64_t ended_until, blocked_until;
    rill__planned *first, *newest; /* calls that are not over, in the order of their numbers */
    rill__commits commits;         /* of blocking ones */
    rill__observed last;           /* what all calls to come may go by, */
    int kept;                      /* and newer ones, each in the place of its number */
    rill__observed recent[2 * RILL__PLAN_LAG];
    rill__spread spread; /* of the last result of a blocking call with balanced bounds */
    /* the last ones; where the planner learns, the second is of calls that do not go by it */
    rill__plan_choice choice[2];
    /* what is learned of it (plan/learn.h) */
    int picked; /* the rival that was chosen, */
    /* What calls without a request look at (call/again.c) stands together. */
    bool news;               /* unless more is known since */
    uint64_t ended;          /* blocking calls that ended well */
    struct {                 /* changes only where calls end with all ranks agreed */
        bool tries;          /* calls try another way, to see what it takes */
        uint32_t delays;     /* times in a row that spoke of these only */
        uint32_t gap;        /* calls from one that is measured to the next, */
        uint64_t next;       /* which is this one of those that end well */
        int taken;           /* the rival that calls take, */
        int trial;           /* and that they try */
        uint64_t trial_ends; /* with this one of those that end well */
        uint32_t trials;
        uint64_t ways;  /* that a call went, a bit each */
        double settled; /* the ratio of the one that was taken when all were tried; 0: not yet */
    } lesson;
    int rivals; /* the choice of the model, and what else calls could take */
    rill__rival rival[RILL__RIVALS];
} rill__plan_key;

typedef struct rill__learner rill__learner;

typedef struct rill__planner {
    rill__profile profile; /* of the creation: reducers go by it, so that steps repeat */
    rill__device_constants device;
    rill__learner *learner; /* what other calls go by; NULL: the same */
    int hosts, most_per_host;
    int together;        /* ranks that share the memory of the fullest host (rill__seating) */
    bool shares;         /* the ranks of every host share memory */
    bool sums_bits;      /* every rank has kernels that sum bits and values */
    uint64_t read_bytes; /* see rill__problem */
    bool mpi_sums;       /* the link has MPI's own collectives */
    uint64_t choices;
    uint64_t memory;        /* calls after which a kind is forgotten */
    rill__plan_key *recent; /* of the last call; NULL: none */
    rill__plan_key *lists[RILL__PLAN_LISTS];
} rill__planner;

/* What is known of a call, for the estimates; its indices and values are not coded yet. */
rill__problem rill__plan_problem(const rill__planner *, const rill__settings *, rill_collective,
                                 int ranks, uint64_t dim, rill_type, const rill_op *,
                                 const rill__observed *);
/* The same sent in another way. */
void rill__problem_code(rill__problem *, const rill__index_codec *, int value_bits);
/* The best way to send that the settings leave open, for one algorithm: sets it, and returns the
 * time. */
double rill__plan_way(const rill__planner *, const rill__settings *, const rill__algorithm *,
                      rill__problem *);
/* Whether "auto" considers the algorithm. */
static inline bool rill__plan_considers(const rill__algorithm *a, const rill__problem *p) {
    if (a->supports(p) || a->by_request) return false;
    return !a->joins_hosts || (p->most_per_host > 1 && (p->hosts > 1 || p->shares));
}
/* What the settings' estimates go by. */
static inline const rill__profile *rill__plan_profile(const rill__planner *planner,
                                                      const rill__settings *settings) {
    return settings->profile ? settings->profile : &planner->profile;
}
/* The next algorithm that "auto" considers for the problem, from row *i on, which goes on; false:
 * there is none. */
bool rill__plan_next(const rill__planner *, const rill__settings *, const rill__problem *, int *i,
                     rill__candidate *);
/* What "auto" takes, in the best way to send (choose.c); no algorithm: none can serve. */
void rill__plan_best(const rill__planner *, const rill__settings *, const rill__problem *,
                     rill__candidate *);

/* A call as the planner sees it. */
struct rill__planned {
    /* told at its start */
    rill__settings settings;
    rill_collective collective;
    rill_type type;
    uint64_t dim;
    const rill_op *op;
    uint32_t op_hash;
    int ranks;
    uint64_t block;            /* entries of a block that all ranks must have alike; 0: none */
    uint64_t k;                /* entries that a reducer wants in the result, */
    bool reducer;              /* where it is one's call */
    const rill__profile *kept; /* of the reducer, from a checkpoint; NULL: the planner's */
    bool blocking;
    uint64_t seq; /* its number among all calls */
    /* where its statistics go, and who is under way there with it */
    rill__plan_key *key; /* from its start to its end; NULL: there was no memory for it */
    rill__planned *previous, *next;
    /* of the call that it goes by */
    int before; /* non-blocking calls that ended well up to there; not over 2 */
    double skew;
    /* what was chosen */
    const rill__algorithm *algorithm;
    uint16_t algorithm_hash;
    rill__problem problem;
    uint64_t choice; /* its number */
    /* A bit for the way to send, which needs memory of its own. Two that share it are taken for
     * one. */
    uint64_t way;
    double predicted;
    const rill__spread *spread; /* of the last result, where the call may go by it; else NULL */
};

/* How a call ended. */
typedef struct rill__outcome {
    bool well;
    bool known; /* nnz_sum and nnz_max are those of all ranks */
    uint64_t nnz_sum, nnz_max;
    double skew;
    const rill_stream *out; /* NULL: this rank has none */
    uint64_t nnz_out;
} rill__outcome;

/* Whether the call with this number still goes by what the one before `until` has left. */
static inline bool rill__plan_remembers(const rill__planner *planner, uint64_t until,
                                        uint64_t seq) {
    return until > 0 && seq < until + planner->memory;
}

/* At the start of a call: its key. RILL_ERR_MEMORY: it has none. */
rill_status rill__plan_begin(rill__planner *, rill__planned *);
void rill__planner_forget(rill__planner *); /* all keys; no call is under way */
/* The choice is this one. */
void rill__plan_take(rill__planner *, rill__planned *, const rill__candidate *);

typedef enum rill__planning {
    RILL__PLAN_READY, /* algorithm, problem and predicted are set */
    RILL__PLAN_WAITS, /* an earlier call must come first */
    RILL__PLAN_ASKS,  /* nothing is known yet: agree on the entries, then rill__plan_choose */
    RILL__PLAN_FAILS  /* with the status: a forced algorithm cannot serve */
} rill__planning;
rill__planning rill__plan(rill__planner *, rill__planned *, rill_status *);
rill_status rill__plan_choose(rill__planner *, rill__planned *, const rill__observed *);
/* When a call is complete. */
void rill__plan_end(rill__planned *, const rill__outcome *);

/* The last call of all was a blocking one of that key, if it is still there. Whether another, with
 * the same options, is planned as it was, and nothing is learned from it. */
bool rill__plan_stands(const rill__planner *, const rill__plan_key *);
/* What rill__plan_end leaves of such a call where it ends well, with pairs. */
void rill__plan_again(rill__plan_key *, uint64_t seq, uint64_t nnz_sum, uint64_t nnz_max,
                      uint64_t result);

#endif
