/* The planner learns while it runs: what blocking calls of a kind took is what the next of the kind
 * are predicted to take, and the ways that they may go are compared by it.
 *
 * Each rank measures its calls. What it has measured of one travels with the next, in the fields
 * above the entries of nnz_max (req/message.h), of which the largest reach everybody: one grows
 * with the time, one falls, so that all know the shortest and the longest. The longest counts,
 * unless they are far apart. A rank for which the call was not alone (another had not ended when it
 * began) puts a veto there.
 *
 * Same knowledge everywhere. It changes only when a call ends that no rank has vetoed. When it
 * began all calls before it were over on all ranks; calls that begin after it are not planned
 * before its end (rill__learn_holds). So each blocking call is planned with the same knowledge on
 * all ranks, whatever threads and non-blocking calls do. These go by what was known at the start:
 * calls of one kind that are under way at once are planned in any order. */
#ifndef RILL_PLAN_LEARN_H
#define RILL_PLAN_LEARN_H

#include "plan/fit.h"

/* Seconds of a call below which its time speaks of caches and of who comes late, not of its
 * algorithm: nothing is tried then. */
#define RILL__BRIEF 10e-6

/* Ways that calls went, and what they took: the last times, in turns, each over the model's. */
enum { RILL__LEARN_PLACES = 128, RILL__LEARN_KEPT = 9, RILL__LEARN_SOLID = 3 };
typedef struct rill__learned {
    rill__sample sample;           /* the last one */
    uint32_t times;                /* that it was measured */
    float ratio[RILL__LEARN_KEPT]; /* the last ones, in turns */
    uint64_t last;                 /* number of the sample that was taken last */
} rill__learned;

struct rill__learner {
    const void *busy;    /* the call under way that may end with other knowledge; NULL: none */
    bool broken;         /* a call has failed: ranks may know different things */
    rill__profile start; /* what was known at the start */
    rill__profile
        model; /* of it, what estimates go by: not what other jobs have learned of calls */
    rill__profile known; /* the model, and what is known of calls as its points, */
    bool news;           /* unless more was learned since */
    bool predicts;       /* calls are chosen by the start: only what they take is learned */
    bool keeps;          /* what is learned goes to the cache */
    int places;
    rill__learned place[RILL__LEARN_PLACES];
    uint64_t samples;    /* taken so far */
    double seconds;      /* of all calls that were agreed on */
    double tried;        /* the same of those that were made to see what they take */
    double tick_seconds; /* of the clock of this rank */
    unsigned calls;      /* measured here */
    struct {             /* the last call that was agreed on, and this rank's time of it */
        bool there;
        rill__sample sample;
        rill__plan_key *key; /* NULL: it is forgotten */
        uint64_t seq;
        unsigned field;
    } pending;
};

/* ---- learn.c: what is known of calls ---- */
void rill__learner_start(rill__learner *, const rill__profile *start);
void rill__learner_restart(rill__learner *);
/* The key goes. */
static inline void rill__learner_forget(rill__learner *l, const rill__plan_key *key) {
    if (l->pending.key == key) l->pending.key = NULL;
}
/* Whether calls with so many entries are about the same. */
static inline bool rill__learn_alike(double a, double b) {
    return a < b * 1.3 + 1 && b < a * 1.3 + 1;
}
/* Takes a sample; those that make no sense change nothing. Needs no memory. r: of the way that it
 * went, which then knows of it; NULL: there is none. */
void rill__learn(rill__learner *, const rill__sample *, rill__rival *r);
/* What is known of a way: the ratios of the rival. */
void rill__learn_recall(const rill__learner *, rill__rival *);
/* What is known by now: the model, and points of calls. */
const rill__profile *rill__learn_look(rill__learner *);

/* ---- learn_calls.c: what calls bring ---- */
/* Seconds in steps of 128 for each power of two, and back. */
unsigned rill__learn_steps(double seconds);
double rill__learn_seconds(unsigned steps);
/* What one rank says of the time of its call. */
static inline unsigned rill__learn_field(double seconds) {
    unsigned steps = rill__learn_steps(seconds);
    return (0xffe - steps) << 12 | (steps + 2);
}
#define RILL__LEARN_VETO 0xfff000u
enum { RILL__LEARN_NOTHING = 1 };
/* What a call is to learning. */
typedef enum rill__learning {
    RILL__LEARN_SKIPS,     /* nothing, on all ranks that do not refuse */
    RILL__LEARN_REFUSES,   /* nothing, and others must not make anything of it */
    RILL__LEARN_TAKES_PART /* it may end with other knowledge: rill__learn_ends must be called */
} rill__learning;
/* A call begins; alone: no other is under way on this rank. */
rill__learning rill__learn_begins(rill__planner *, const rill__planned *, const void *call,
                                  bool alone);
/* For the headers of a call that does not skip. */
static inline uint64_t rill__learn_says(const rill__learner *l, rill__learning part) {
    if (part == RILL__LEARN_REFUSES) return RILL__LEARN_VETO;
    return l->pending.there ? l->pending.field : RILL__LEARN_NOTHING;
}
/* Whether the call must wait with its planning for another that began before it. */
static inline bool rill__learn_holds(const rill__learner *l, const void *call) {
    return l->busy && l->busy != call;
}
/* How a call ended. */
typedef struct rill__lesson {
    bool good;      /* without an error */
    unsigned field; /* of all ranks */
    bool seasoned;  /* its way to send was gone before: it had its memory */
    double seconds; /* of this rank */
} rill__lesson;
void rill__learn_ends(rill__planner *, const rill__planned *, const rill__outcome *,
                      const rill__lesson *);
/* Local, and seldom: the cost of a tick of this rank's clock is asked for. */
static inline bool rill__learn_wants_clock(const rill__learner *l) { return l->calls % 64 == 0; }

/* ---- learn_try.c: what else a call could do ---- */
/* Whether an algorithm has been measured for about such a call. */
bool rill__learn_measured(const rill__profile *, const rill__algorithm *, const rill__problem *);
/* The rivals of calls of a kind, the choice of the model first; only: the algorithm that they must
 * take. False: none can serve. */
bool rill__learn_rivals(const rill__planner *, const rill__planned *, const rill__problem *,
                        const rill__algorithm *only);
/* More is known of calls of a kind: which way they go, and whether the next ones try another. */
void rill__learn_judge(rill__learner *, rill__plan_key *);
/* The rival that goes this way; NULL: none does. */
rill__rival *rill__learn_rival(rill__plan_key *, const rill__algorithm *);
/* The rival that the call takes: in a trial every other one takes the choice. */
static inline int rill__learn_pick(const rill__plan_key *k) {
    bool tries = k->lesson.tries && k->ended < k->lesson.trial_ends;
    bool turn = (k->lesson.trial_ends - k->ended) % 2 == 0;
    return tries && turn ? k->lesson.trial : k->lesson.taken;
}

/* ---- cache.c: from job to job ---- */
/* What tells machines apart. */
typedef struct rill__machine {
    const char *link;  /* its name */
    uint64_t hosts[2]; /* of the names of all hosts */
    rill__seating seating;
    rill__network network; /* as it was measured; of one host there is none */
} rill__machine;
/* The file of this user, or an empty string where there is no home. */
void rill__cache_path(const rill__machine *, char *path, size_t size);
/* Not collective. False: there is nothing of use; why has what is wrong with a file, or is empty.
 */
bool rill__cache_read(const rill__machine *, rill__profile *, char *why, size_t size);
/* What another communicator has left there counts for the less, the more samples this one had. */
rill_status rill__cache_write(const rill__machine *, rill__profile *, uint64_t samples);

#endif
