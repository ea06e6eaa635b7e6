/* A world: n ranks in one thread, the same course of events for the same seed. For tests, and to
 * look at many ranks.
 *
 * Each rank is a fiber. It runs until it would wait (the link's idle), then another has its turn;
 * so blocking calls run as they are. The world says when messages arrive, and its clock is the
 * link's: no timeout depends on the machine.
 *
 * RILL__CHANCE: a seeded generator chooses whose turn it is, and delivers messages in any order
 * that a network could (those of a pair and tag stay in order). RILL__TIMED: messages take latency
 * and bandwidth, ranks time for what they handle; the rank whose clock is lowest goes on, so that
 * clocks tell what a real network would take.
 *
 * When all ranks idle and nothing is under way, time passes in steps of the ranks' patience; when
 * that changes nothing, they wait for ever, and the run ends. */
#ifndef RILL_LINK_WORLD_H
#define RILL_LINK_WORLD_H

#include "link/link.h"

typedef enum rill__world_kind { RILL__CHANCE, RILL__TIMED } rill__world_kind;

typedef struct rill__world_options {
    rill__world_kind kind;
    int ranks;
    uint64_t seed; /* RILL__CHANCE */
    /* RILL__TIMED, seconds: on the way; of each byte in and out of a rank; of a rank's processor
     * for each message sent or received, each byte sent and each byte received. */
    double latency, byte, message, send_work, receive_work;
    const double
        *slower; /* of each rank: what its bytes take more (1: nothing); NULL: nobody's do */
    /* Sees every message that is sent; may be NULL. */
    void (*spy)(void *context, int from, int to, int tag, const void *message, size_t bytes);
    void *spy_context;
} rill__world_options;

typedef struct rill__world rill__world;

rill_status rill__world_create(const rill__world_options *, rill__world **out);
/* After the links of it were closed, or when a run did not end: then their memory is lost. */
void rill__world_free(rill__world *);
/* The same as free and create, with the memory that is there. After the links were closed. */
rill_status rill__world_reset(rill__world *, uint64_t seed);
rill__link *rill__world_link(rill__world *, int rank);
/* Runs body(rank, context) on every rank. RILL_ERR_STATE: some wait for ever; rill__world_stuck
 * tells who. */
rill_status rill__world_run(rill__world *, void (*body)(int rank, void *context), void *context);
bool rill__world_stuck(const rill__world *, int rank);
/* Of the rank whose turn it is; -1: none's. */
int rill__world_rank(const rill__world *);
/* RILL__CHANCE: the rank dies when it has sent, looked for messages or waited so often, counted
 * from now on. What it had sent and is still under way arrives in part; the others are told of it
 * (the link's failed) at times of their own. hangs: nobody is told, and it goes on after so many
 * seconds without anything else to do (INFINITY: never); else 0. */
void rill__world_doom(rill__world *, int rank, uint64_t events, double hangs);
/* Whether the rank has died, or hangs. */
bool rill__world_dead(const rill__world *, int rank);
/* The rank whose turn it is works for so many seconds. */
void rill__world_work(rill__world *, double seconds);
/* Lets others have their turn, where nothing of the link is waited for. */
void rill__world_yield(rill__world *);
double rill__world_clock(const rill__world *, int rank);
/* Bytes and messages that the rank has sent so far. */
void rill__world_sent(const rill__world *, int rank, uint64_t *bytes, uint64_t *messages);

#endif
