/* The inside of a world: what world.c and world_deaths.c share. */
#ifndef RILL_LINK_WORLD_STATE_H
#define RILL_LINK_WORLD_STATE_H

#include "link/fiber.h"
#include "link/local.h"
#include "link/world.h"

#define RILL__QUIET_STEP 0.02 /* seconds that such a round takes */
#define RILL__TURN 1e-7       /* seconds of a turn, RILL__CHANCE */

typedef enum rill__node_state {
    RILL__NODE_FINISHED,
    RILL__NODE_READY,
    RILL__NODE_PARKED,
    RILL__NODE_RUNNING,
    RILL__NODE_KILLED,
    RILL__NODE_HUNG
} rill__node_state;

typedef struct rill__node {
    rill__link *link;
    rill__fiber *fiber;
    rill__error error;
    struct rill__world *world;
    int rank, state;
    int place; /* among the ready */
    double clock, out_free, in_free;
    rill__local_message **coming; /* CHANCE: in order of sending; TIMED: a heap by arrival */
    int n, capacity;
    int turn;     /* TIMED: number of its entry that counts among the turns, */
    double wakes; /* and when that is; INFINITY: there is none */
    uint64_t sent_bytes, sent_messages;
    uint64_t doom; /* events that it has still to live; 0: nobody counts */
    double hangs, goes_on;
    double *learns; /* when each of the others is told of its death; NULL: it lives */
} rill__node;

typedef struct rill__turn {
    double time;
    int rank, number;
} rill__turn;

/* How the messages of a world behave, by its seed. */
typedef struct rill__mood {
    unsigned eager;  /* of 256: how often a look brings a message */
    unsigned newest; /* of 256: how often the newest comes first */
    int slow;        /* a rank that gets its messages late; -1: none */
    int busy;        /* a rank that is often chosen; -1: none */
} rill__mood;

struct rill__world {
    rill__world_options options;
    rill__local_group *group;
    rill__node *nodes;
    uint64_t random;
    int running; /* -1: nobody */
    int live, *ready, n_ready;
    rill__turn *turns; /* TIMED: a heap */
    int n_turns, turns_capacity;
    int under_way; /* messages */
    uint64_t number, quiet;
    int dead; /* that somebody may be told of */
    double now;
    rill__mood mood;
    void (*body)(int, void *);
    void *context;
};

/* splitmix64 */
static inline uint64_t rill__world_chance(rill__world *world) {
    uint64_t z = world->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline int rill__world_below(rill__world *world, int n) {
    return (int)((rill__world_chance(world) >> 32) * (uint64_t)n >> 32);
}

/* ---- world_deaths.c ---- */
/* An event of the rank, whose turn it is: it may be its last. */
void rill__world_live_on(rill__world *, rill__node *);
bool rill__world_fates(void *world, int rank, uint8_t *fate); /* the link's hook */
void rill__world_wake_hung(rill__world *, rill__node *);

#endif
