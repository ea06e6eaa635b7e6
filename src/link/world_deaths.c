/* Ranks of a world that die or hang. */
#include "link/world_state.h"

#include <math.h>
#include <stdlib.h>

/* Of what it has sent to each rank, a part is lost: all from some message on. */
static void lose_messages(rill__world *world, const rill__node *x) {
    for (int i = 0; i < world->options.ranks; i++) {
        rill__node *to = &world->nodes[i];
        int from = rill__world_below(world, to->n + 1), kept = from;
        if (rill__world_chance(world) & 1) continue; /* all of it arrives */
        for (int at = from; at < to->n; at++) {
            if (to->coming[at]->source != x->rank) to->coming[kept++] = to->coming[at];
            else rill__local_drop(world->group, to->coming[at]), world->under_way--;
        }
        to->n = kept;
    }
}

static void die(rill__world *world, rill__node *x) {
    x->state = x->hangs ? RILL__NODE_HUNG : RILL__NODE_KILLED;
    x->goes_on = world->now + x->hangs;
    if (x->state == RILL__NODE_KILLED || x->hangs == INFINITY) world->live--;
    if (x->state == RILL__NODE_KILLED) {
        x->learns = calloc((size_t)world->options.ranks, sizeof *x->learns);
        if (!x->learns) abort();
        /* At once, or while the others are still busy, or when they have begun to wait. */
        for (int i = 0; i < world->options.ranks; i++) {
            int kind = rill__world_below(world, 3);
            double delay = kind == 0   ? 0
                           : kind == 1 ? rill__world_below(world, 2000) * RILL__TURN
                                       : rill__world_below(world, 8) * RILL__QUIET_STEP;
            x->learns[i] = world->now + delay;
        }
        world->dead++;
        lose_messages(world, x);
    }
    rill__fiber_yield(x->fiber);
}

void rill__world_live_on(rill__world *world, rill__node *x) {
    if (x->doom && --x->doom == 0 && world->running == x->rank) die(world, x);
}

bool rill__world_fates(void *context, int rank, uint8_t *fate) {
    const rill__world *world = context;
    for (int i = 0; world->dead && i < world->options.ranks; i++)
        if (world->nodes[i].learns && world->now >= world->nodes[i].learns[rank])
            fate[i] = RILL__DEAD;
    return world->dead != 0;
}

void rill__world_doom(rill__world *world, int rank, uint64_t events, double hangs) {
    world->nodes[rank].doom = events;
    world->nodes[rank].hangs = hangs;
}

bool rill__world_dead(const rill__world *world, int rank) {
    return world->nodes[rank].state == RILL__NODE_KILLED ||
           world->nodes[rank].state == RILL__NODE_HUNG;
}

void rill__world_wake_hung(rill__world *world, rill__node *x) {
    if (x->state != RILL__NODE_HUNG || world->now < x->goes_on) return;
    x->state = RILL__NODE_PARKED;
    x->hangs = 0;
}
