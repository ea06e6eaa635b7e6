/* What the ranks of a schedule have seen, and what is wrong with it. */
#ifndef RILL_TESTS_WORLD_OUTCOME_H
#define RILL_TESTS_WORLD_OUTCOME_H

#include "script.h"

#include <stdarg.h>

enum { NOT_MADE = 1000 }; /* a call that a rank did not come to */

typedef struct outcome {
    const script *s;
    int status[MOST_CALLS + 1][MOST_RANKS]; /* [0]: creation */
    uint64_t bits[MOST_CALLS][MOST_RANKS];  /* a hash of what came out; 0: nothing to compare */
    uint64_t covered[MOST_CALLS];           /* reduce_scatter: entries of all ranks */
    int at[MOST_RANKS];                     /* where each rank is */
    int mute;                               /* failures without a text */
    long hits;                              /* of the fault */
    int wrong;
    char first[400]; /* what was wrong first */
    /* Of reducers: sums over all ranks of what went in, came out and is kept. */
    double *fed, *given;
} outcome;

__attribute__((format(printf, 2, 3))) static inline void wrong(outcome *o, const char *format,
                                                               ...) {
    va_list args;
    va_start(args, format);
    if (!o->wrong++) vsnprintf(o->first, sizeof o->first, format, args);
    va_end(args);
}

static inline void outcome_begin(outcome *o, const script *s) {
    memset(o, 0, sizeof *o);
    o->s = s;
    for (int i = 0; i <= MOST_CALLS; i++)
        for (int rank = 0; rank < MOST_RANKS; rank++)
            o->status[i][rank] = NOT_MADE;
}

static inline uint64_t hash_of(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ at[i]) * UINT64_C(0x100000001b3);
    return h ? h : 1;
}

static inline int waits_together(const script_call *c, const script_call *next) {
    return c->batch && c->mode == MODE_NONBLOCKING && c->collective != RILL_REDUCER &&
           next->mode == MODE_NONBLOCKING && next->collective != RILL_REDUCER;
}
/* The first call that the fault may be seen in: memory is refused as long as a batch is waited for.
 */
static inline int first_faulty(const script *s) {
    int call = s->fault_call;
    while (call > 0 && waits_together(&s->call[call - 1], &s->call[call]))
        call--;
    return call;
}

/* Whether ranks may end the call differently: they may have to, or nobody promises more. */
static inline int may_differ(const outcome *o, int call) {
    const script *s = o->s;
    const script_call *c = &s->call[call];
    if (s->fault == FAULT_NONE || call < first_faulty(s)) return 0;
    if (s->fault == FAULT_ABSENT) return 1;
    for (int before = s->fault_call; before < call; before++)
        for (int rank = 0; rank < s->ranks; rank++)
            if (o->status[before + 1][rank] != RILL_OK) return 1;
    if (s->fault >= FAULT_ARGUMENT) return !s->check;
    /* Memory: non-blocking calls that grow are not agreed on (call/commit.c). */
    return c->collective != RILL_REDUCER && c->mode == MODE_NONBLOCKING;
}

static inline void check_statuses(outcome *o, int call, int differ) {
    const script *s = o->s;
    int right = 0, made = 0;
    char list[8 * MOST_RANKS] = "";
    size_t at = 0;
    for (int rank = 0; rank < s->ranks; rank++) {
        int status = o->status[call + 1][rank];
        right += status == RILL_OK;
        made += status != NOT_MADE;
        at += (size_t)snprintf(list + at, sizeof list - at, " %d", status);
    }
    if (!differ && right && right < made) wrong(o, "call %d: statuses differ:%s", call, list);
    if (!differ && made && made < s->ranks)
        wrong(o, "call %d: some ranks had stopped before:%s", call, list);
}

/* A call in a schedule without faults is right, or refused for what it asks. */
static inline void check_reason(outcome *o, int call) {
    const script *s = o->s;
    int status = o->status[call + 1][0];
    if (s->fault != FAULT_NONE && call >= first_faulty(s)) return;
    if (status == RILL_OK || status == NOT_MADE || status == RILL_ERR_UNSUPPORTED) return;
    if (call >= 0 && s->call[call].overlap && status == RILL_ERR_OVERLAP) return;
    wrong(o, "call %d: %s", call, rill_strerror((rill_status)status));
}

static inline void outcome_check(outcome *o) {
    const script *s = o->s;
    for (int call = -1; call < s->calls; call++) {
        check_statuses(o, call, call >= 0 && may_differ(o, call));
        check_reason(o, call);
        if (call < 0) continue;
        uint64_t bits = 0;
        for (int rank = 0; rank < s->ranks; rank++) {
            if (o->status[call + 1][rank] != RILL_OK || !o->bits[call][rank]) continue;
            if (bits && bits != o->bits[call][rank])
                wrong(o, "call %d: results differ in their bits", call);
            bits = o->bits[call][rank];
        }
    }
    if (o->mute) wrong(o, "%d failures without a text", o->mute);
}

#endif
