/* The planner learns while it runs: constants and points follow what blocking calls took.
 *
 * Each rank measures its calls. What it has measured of one travels with the next, in the fields
 * above the entries of nnz_max (req/message.h), of which the largest reach everybody: one grows
 * with the time, one falls, so that all know the shortest and the longest. Who comes early waits,
 * who comes late finds what others have sent. A rank that is late by less than the call takes
 * gains what another loses: the mean of both counts, unless they are far apart. A rank for which
 * the call was not alone (another had not ended when it began) puts a veto there.
 *
 * Same constants everywhere. They change only when a call ends that no rank has vetoed. When it
 * began all calls before it were over on all ranks; calls that begin after it are not planned
 * before its end (rill__learn_holds). So each call is planned with the same constants on all
 * ranks, whatever threads and non-blocking calls do. */
#ifndef RILL_PLAN_LEARN_H
#define RILL_PLAN_LEARN_H

#include "plan/fit.h"

enum { RILL__LEARN_PLACES = 64 };

/* Seconds of a call below which its time speaks of caches and of who comes late, not of its
 * algorithm. */
#define RILL__BRIEF 10e-6

/* A call that was measured, again and again. */
enum { RILL__LEARN_KEPT = 7, RILL__LEARN_SOLID = 3 };
typedef struct rill__learned {
    rill__sample sample; /* seconds: as they are lately, by those kept */
    uint32_t times;      /* that it was measured; it says something from RILL__LEARN_SOLID on */
    double kept[RILL__LEARN_KEPT]; /* the last ones, in turns */
    uint64_t last;                 /* number of the sample that was taken last */
} rill__learned;

struct rill__learner {
    rill__profile planned; /* what calls are planned with */
    rill__profile profile; /* what is known by now; its points are made for the other */
    rill__profile start;   /* and was at the start */
    bool predicts;         /* calls are chosen by the start: only what they take is learned */
    bool from_cache;       /* the start has been learned, too */
    bool lost;             /* it was far off: its choices are no guide */
    bool keeps;            /* what is learned goes to the cache */
    double information[RILL__FITTED][RILL__FITTED];
    int places;
    rill__learned place[RILL__LEARN_PLACES];
    uint64_t samples; /* taken so far */
    uint64_t version; /* of what calls are planned with: choices of an older one are not good */
    bool news;        /* more is known than that, */
    uint64_t looked;  /* and so many samples, and seconds, had been there then */
    double looked_seconds;
    double seconds;      /* of all calls that were agreed on */
    double tried;        /* the same of those that were made to see what they take */
    bool broken;         /* a call has failed: ranks may know different things */
    const void *busy;    /* the call under way that may end with other constants; NULL: none */
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

/* ---- learn.c: from samples to constants ---- */
/* from_cache: others have learned this start, so it counts for more. */
void rill__learner_start(rill__learner *, const rill__profile *start, bool from_cache);
void rill__learner_restart(rill__learner *);
/* The key goes. */
static inline void rill__learner_forget(rill__learner *l, const rill__plan_key *key) {
    if (l->pending.key == key) l->pending.key = NULL;
}
/* Takes a sample; those that make no sense change nothing. Needs no memory. Calls are planned with
 * what it says when choices are looked at again, now or later. False: of such calls more must be
 * known before they say something. */
bool rill__learn(rill__learner *, const rill__sample *);
/* Choices are looked at again with the next call of each kind. */
void rill__learn_look(rill__learner *);

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
    RILL__LEARN_TAKES_PART /* it may end with other constants: rill__learn_ends must be called */
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
/* A call has ended, and all ranks know it: whether the next ones of its kind try another algorithm.
 */
void rill__learn_try(rill__planner *, const rill__planned *);

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
