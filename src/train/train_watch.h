/* How far an epoch is: told to who asks for it, who may end it. train_watch.c. */
#ifndef RILL_TRAIN_TRAIN_WATCH_H
#define RILL_TRAIN_TRAIN_WATCH_H

#include "train/train_team.h"

#include <math.h>

typedef struct rill__watch {
    rill_data_progress *tell; /* of this rank; may be NULL */
    void *context;
    bool on;         /* some rank has one, as all know */
    bool endless;    /* the total is a bound that is hardly reached: it is not told */
    bool firm;       /* an epoch is not left before its end */
    double pace;     /* share of an epoch between two looks; 0: not known yet */
    double next, at; /* shares of the work: at the next look, and at the last one */
    double before;   /* what the furthest rank had done then */
    double looked;   /* when that was */
    bool stop;       /* some rank wants it to end, as all know */
} rill__watch;

/* An epoch begins, of which that share was done earlier. */
void rill__watch_begin(rill__watch *, double share);
/* Looks while that is due: part of rill__watch_at. */
rill_status rill__watch_look(rill__watch *, rill__team *, uint64_t done, uint64_t total);
/* The units that such a share is. */
static inline uint64_t rill__watch_unit(double share, uint64_t total) {
    return (uint64_t)ceil(share * (double)total);
}
/* Before each unit of an epoch's work, done of this rank's total; at the end with both the same.
 * All ranks, each with units of its own. Where watch->stop is set then the work ends here, on all
 * of them: rill__watch_unit of watch->at is done. */
static inline rill_status rill__watch_at(rill__watch *w, rill__team *team, uint64_t done,
                                         uint64_t total) {
    bool due = w->on && !w->stop && w->next < 1 && (double)done >= w->next * (double)total;
    return due ? rill__watch_look(w, team, done, total) : RILL_OK;
}

#endif
