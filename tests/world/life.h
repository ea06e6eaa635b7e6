/* A life of test_deaths.c: who dies when, and what the ranks do until then. */
#ifndef RILL_TESTS_WORLD_LIFE_H
#define RILL_TESTS_WORLD_LIFE_H

#include "support/model.h"

#include "api/comm.h"
#include "link/world.h"
#include "reduce/reducer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, STEPS = 6, DIM = 96 };

typedef struct doom {
    int at;      /* events of the rank; 0: it lives */
    int in_move; /* those events are counted from its first shrink on */
    double hangs;
} doom;

typedef struct survivor {
    rill_comm *comm, *home; /* the newest one, and the reducer's; they may be the same */
    rill_reducer *reducer;
    uint64_t mask;             /* members of comm, by their first numbers */
    int applied;               /* steps */
    int ended;                 /* 1: it has come to the end; 2: it was told to stay out */
    uint64_t tried;            /* members at its last step */
    uint64_t masks[STEPS];     /* of the steps that it has applied, */
    float updates[STEPS][DIM]; /* and these */
    rill_stream *results[STEPS];
    float gradient[DIM], update[DIM], residual[DIM];
    int shrinks, repeats;
} survivor;

typedef struct life {
    uint64_t seed, number;
    rill__world *world;
    int ranks, minority, timeout, hosts, split, check, verbose, brief;
    doom doom[RANKS];
    const char *algorithm, *select;
    int value_bits, average, blocking;
    double momentum;
    survivor of[RANKS];
    uint64_t members;      /* of a brief life, at its end */
    const survivor *judge; /* one that came to the end: its steps count */
    int made, wrong;
    bool unknown; /* what a dead rank keeps */
    char first[300];
} life;

static life x;
static struct {
    long lives, deaths, hangs, shrinks, voids, late, stuck, wrong, excluded, alone;
} totals;

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!x.wrong++) vsnprintf(x.first, sizeof x.first, format, args);
    va_end(args);
}

static void must(int rank, rill_status status, const char *what) {
    if (status == RILL_OK) return;
    wrong("rank %d: %s: %s: %s", rank, what, rill_strerror(status), rill_last_error());
}

__attribute__((format(printf, 2, 3))) static void tell(int rank, const char *format, ...) {
    if (!x.verbose) return;
    va_list args;
    va_start(args, format);
    printf("  %9.6f rank %d: ", rill__world_clock(x.world, rank), rank);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* ---- by its number --------------------------------------------------------------------------- */

static const char *random_algorithm(rng *r, rill_collective c) {
    int n = 0;
    while (rill_algorithm_at(c, n, NULL))
        n++;
    int i = (int)rng_below(r, (uint64_t)n + 1);
    return i < n ? rill_algorithm_at(c, i, NULL) : NULL;
}

static void life_make(uint64_t seed, uint64_t number) {
    rng r = rng_make(seed, number);
    int lives = x.verbose;
    memset(&x, 0, sizeof x);
    x.verbose = lives;
    x.seed = rng_next(&r);
    x.number = number;
    x.ranks = 2 + (int)rng_below(&r, RANKS - 1);
    x.minority = 1;
    x.blocking = (int)rng_below(&r, 2);
    x.hosts = rng_below(&r, 3) ? 0 : 2 + (int)rng_below(&r, 3);
    x.split = rng_below(&r, 4) ? 0 : 1024;
    x.check = rng_below(&r, 8) == 0;
    x.algorithm = random_algorithm(&r, rng_below(&r, 3) ? RILL_REDUCER : RILL_ALLREDUCE);
    x.select = rng_below(&r, 6) == 0 ? "auto" : rng_below(&r, 6) == 0 ? "nonzero" : NULL;
    x.value_bits = rng_below(&r, 4) ? 0 : 8;
    x.average = rng_below(&r, 4) == 0;
    x.momentum = rng_below(&r, 8) ? 0 : 0.5;
    uint64_t kind = rng_below(&r, 8);
    int deaths = kind < 4 ? 1 : kind < 7 ? 2 : 1 + (int)rng_below(&r, (uint64_t)x.ranks - 1);
    if (deaths >= x.ranks) deaths = x.ranks - 1;
    /* Now and then most of them, while the others agree who lives. */
    x.brief = rng_below(&r, 4) != 0;
    bool storm = x.brief || (x.ranks > 4 && rng_below(&r, 4) == 0);
    if (storm) deaths = x.ranks - 1;
    bool hang = !storm && rng_below(&r, 8) == 0;
    x.timeout = hang ? 8 : 0;
    x.minority = !hang; /* one that hangs may go on by itself later */
    for (int i = 0; i < deaths; i++) {
        doom *d = &x.doom[rng_below(&r, (uint64_t)x.ranks)];
        d->at = 1 + (int)pow(2, 12 * rng_unit(&r));
        d->in_move = (i || x.brief) && (storm || rng_below(&r, 2));
        if (d->in_move) d->at = 1 + (int)rng_below(&r, storm ? 50 : 200);
        if (hang) d->hangs = rng_below(&r, 2) ? INFINITY : 18;
    }
}

#endif
