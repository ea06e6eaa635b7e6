#include "link/world_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rounds in which all ranks idle and nothing is sent, after which nothing will be. Ranks look for
 * notes in one of 64 idle polls, and ask the others when their patience has passed. */
enum { QUIET_ROUNDS = 1024 };

static bool timed(const rill__world *world) { return world->options.kind == RILL__TIMED; }

/* ---- turns ----------------------------------------------------------------------------------- */

static bool sooner(const rill__turn *a, const rill__turn *b) {
    return a->time < b->time || (a->time == b->time && a->rank < b->rank);
}

/* Memory of the world itself: who simulates has it, or ends. */
static void *grown(void *at, int *capacity, size_t each) {
    *capacity = *capacity ? 2 * *capacity : 16;
    at = realloc(at, (size_t)*capacity * each);
    if (!at) abort();
    return at;
}

static void push_turn(rill__world *world, rill__node *x, double time) {
    if (world->n_turns == world->turns_capacity)
        world->turns = grown(world->turns, &world->turns_capacity, sizeof *world->turns);
    rill__turn fresh = {time, x->rank, ++x->turn};
    int at = world->n_turns++;
    for (; at && sooner(&fresh, &world->turns[(at - 1) / 2]); at = (at - 1) / 2)
        world->turns[at] = world->turns[(at - 1) / 2];
    world->turns[at] = fresh;
}

static rill__turn pop_turn(rill__world *world) {
    rill__turn first = world->turns[0], last = world->turns[--world->n_turns];
    int at = 0;
    for (int child; (child = 2 * at + 1) < world->n_turns; at = child) {
        if (child + 1 < world->n_turns && sooner(&world->turns[child + 1], &world->turns[child]))
            child++;
        if (!sooner(&world->turns[child], &last)) break;
        world->turns[at] = world->turns[child];
    }
    world->turns[at] = last;
    return first;
}

static void make_ready(rill__world *world, rill__node *x, double time) {
    if (x->state != RILL__NODE_PARKED) return;
    if (timed(world)) { /* it stays parked until then: something sooner may come */
        time = fmax(time, x->clock);
        if (time >= x->wakes) return;
        x->wakes = time;
        push_turn(world, x, time);
        return;
    }
    x->state = RILL__NODE_READY;
    x->place = world->n_ready;
    world->ready[world->n_ready++] = x->rank;
}

static void unready(rill__world *world, rill__node *x) {
    if (timed(world) || x->state != RILL__NODE_READY) return;
    int last = world->ready[--world->n_ready];
    world->ready[x->place] = last;
    world->nodes[last].place = x->place;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool before(const rill__local_message *a, const rill__local_message *b) {
    return a->arrives < b->arrives || (a->arrives == b->arrives && a->number < b->number);
}

static void push_coming(rill__node *x, rill__local_message *m, bool heap) {
    if (x->n == x->capacity) x->coming = grown(x->coming, &x->capacity, sizeof *x->coming);
    int at = x->n++;
    for (; heap && at && before(m, x->coming[(at - 1) / 2]); at = (at - 1) / 2)
        x->coming[at] = x->coming[(at - 1) / 2];
    x->coming[at] = m;
}

static rill__local_message *pop_coming(rill__node *x) {
    rill__local_message *first = x->coming[0], *last = x->coming[--x->n];
    int at = 0;
    for (int child; (child = 2 * at + 1) < x->n; at = child) {
        if (child + 1 < x->n && before(x->coming[child + 1], x->coming[child])) child++;
        if (!before(x->coming[child], last)) break;
        x->coming[at] = x->coming[child];
    }
    x->coming[at] = last;
    return first;
}

/* Which comes next: any, but none before an older one of its pair and tag. */
static int choose_coming(rill__world *world, rill__node *x) {
    int at = (rill__world_chance(world) & 255) < world->mood.newest
                 ? x->n - 1
                 : rill__world_below(world, x->n);
    for (int i = 0; i < at; i++)
        if (x->coming[i]->source == x->coming[at]->source &&
            x->coming[i]->tag == x->coming[at]->tag)
            return i;
    return at;
}

static void deliver_one(rill__world *world, rill__node *x) {
    rill__local_message *m;
    if (timed(world)) {
        m = pop_coming(x);
    } else {
        int at = choose_coming(world, x);
        m = x->coming[at];
        memmove(&x->coming[at], &x->coming[at + 1], (size_t)(--x->n - at) * sizeof *x->coming);
    }
    world->under_way--;
    rill__local_arrive(world->group, m);
}

static double bytes_take(const rill__world *world, int rank, size_t bytes) {
    const rill__world_options *o = &world->options;
    return (double)bytes * o->byte * (o->slower ? o->slower[rank] : 1);
}

static void sent(void *context, rill__local_message *m) {
    rill__world *world = context;
    rill__node *from = &world->nodes[m->source], *to = &world->nodes[m->to];
    rill__world_live_on(world, from);
    from->sent_bytes += m->bytes;
    from->sent_messages++;
    if (world->options.spy)
        world->options.spy(world->options.spy_context, m->source, m->to, m->tag, m->data, m->bytes);
    m->number = world->number++;
    m->arrives = 0;
    world->quiet = 0;
    world->under_way++;
    if (timed(world)) {
        const rill__world_options *o = &world->options;
        double bytes = (double)m->bytes, out = bytes_take(world, m->source, m->bytes);
        from->clock += o->message + bytes * o->send_work;
        double leaves = fmax(from->clock, from->out_free);
        from->out_free = leaves + out;
        m->arrives = leaves + o->latency + fmax(out, bytes_take(world, m->to, m->bytes));
        m->placed = false;
    }
    push_coming(to, m, timed(world));
    if (timed(world) && to->coming[0] == m) make_ready(world, to, m->arrives);
}

static void taken(void *context, const rill__local_message *m) {
    rill__world *world = context;
    rill__node *x = &world->nodes[m->to];
    world->quiet = 0;
    if (timed(world))
        x->clock += world->options.message + (double)m->bytes * world->options.receive_work;
    else if (m->lent) make_ready(world, &world->nodes[m->source], 0);
}

/* The way into a rank is shared by what arrives, in the order of arrival: senders may be ahead of
 * each other's time. */
static void place(rill__world *world, rill__node *x) {
    rill__local_message *m = pop_coming(x);
    m->arrives = fmax(m->arrives, x->in_free + bytes_take(world, x->rank, m->bytes));
    m->placed = true;
    x->in_free = m->arrives;
    push_coming(x, m, true);
}

static void look(void *context, int rank) {
    rill__world *world = context;
    rill__node *x = &world->nodes[rank];
    rill__world_live_on(world, x);
    if (timed(world)) {
        while (x->n && x->coming[0]->arrives <= x->clock) {
            if (x->coming[0]->placed) deliver_one(world, x);
            else place(world, x);
        }
    } else if (rank != world->mood.slow) {
        while (x->n && (rill__world_chance(world) & 255) < world->mood.eager)
            deliver_one(world, x);
    }
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void idle(void *context, int rank) {
    rill__world *world = context;
    rill__node *x = &world->nodes[rank];
    rill__world_live_on(world, x);
    x->state = RILL__NODE_PARKED;
    if (timed(world) && x->n) make_ready(world, x, x->coming[0]->arrives);
    rill__fiber_yield(x->fiber);
}

/* At the time of the last. */
static void met(void *context) {
    rill__world *world = context;
    double last = 0;
    for (int i = 0; i < world->options.ranks; i++)
        last = fmax(last, world->nodes[i].clock);
    for (int i = 0; i < world->options.ranks; i++) {
        world->nodes[i].clock = last;
        make_ready(world, &world->nodes[i], last);
    }
}

/* The last rank has gone: what is under way has nowhere to go. */
static void closed(void *context) {
    rill__world *world = context;
    for (int i = 0; i < world->options.ranks; i++)
        while (world->nodes[i].n)
            rill__local_drop(world->group, world->nodes[i].coming[--world->nodes[i].n]);
    world->under_way = 0;
}

static double clock_of(void *context, int rank) { return rill__world_clock(context, rank); }

double rill__world_clock(const rill__world *world, int rank) {
    return timed(world) ? world->nodes[rank].clock : world->now;
}

int rill__world_rank(const rill__world *world) { return world->running; }

void rill__world_sent(const rill__world *world, int rank, uint64_t *bytes, uint64_t *messages) {
    *bytes = world->nodes[rank].sent_bytes;
    *messages = world->nodes[rank].sent_messages;
}

void rill__world_work(rill__world *world, double seconds) {
    if (timed(world)) world->nodes[world->running].clock += seconds;
    else world->now += seconds;
}

void rill__world_yield(rill__world *world) {
    rill__node *x = &world->nodes[world->running];
    x->state = RILL__NODE_PARKED;
    make_ready(world, x, x->clock);
    rill__fiber_yield(x->fiber);
}

bool rill__world_stuck(const rill__world *world, int rank) {
    return world->nodes[rank].state == RILL__NODE_PARKED ||
           world->nodes[rank].state == RILL__NODE_READY;
}

static void run_node(void *argument) {
    rill__node *x = argument;
    x->world->body(x->rank, x->world->context);
}

static void resume(rill__world *world, rill__node *x) {
    unready(world, x);
    x->state = RILL__NODE_RUNNING;
    x->turn++; /* what is left of its turns does not count */
    x->wakes = INFINITY;
    world->running = x->rank;
    rill__error *outside = rill__error_use(&x->error);
    bool ended = rill__fiber_resume(x->fiber);
    rill__error_use(outside);
    world->running = -1;
    if (!ended) return;
    x->state = RILL__NODE_FINISHED;
    world->live--;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Everybody idles, and nothing is under way: time passes. */
static bool pass_time(rill__world *world) {
    if (++world->quiet > QUIET_ROUNDS) return false;
    world->now += RILL__QUIET_STEP;
    for (int i = 0; i < world->options.ranks; i++) {
        rill__node *x = &world->nodes[i];
        x->clock += timed(world) ? RILL__QUIET_STEP : 0;
        rill__world_wake_hung(world, x);
        make_ready(world, x, x->clock);
    }
    return true;
}

static rill__node *next_by_chance(rill__world *world) {
    world->now += RILL__TURN;
    if (!world->n_ready && world->under_way) {
        int rank = rill__world_below(world, world->options.ranks);
        while (!world->nodes[rank].n)
            rank = (rank + 1) % world->options.ranks;
        deliver_one(world, &world->nodes[rank]);
        make_ready(world, &world->nodes[rank], 0);
    }
    if (!world->n_ready) return NULL;
    int busy = world->mood.busy;
    if (busy >= 0 && world->nodes[busy].state == RILL__NODE_READY && rill__world_chance(world) & 3)
        return &world->nodes[busy];
    return &world->nodes[world->ready[rill__world_below(world, world->n_ready)]];
}

static rill__node *next_by_time(rill__world *world) {
    while (world->n_turns) {
        rill__turn first = pop_turn(world);
        rill__node *x = &world->nodes[first.rank];
        if (x->state != RILL__NODE_PARKED || first.number != x->turn) continue;
        x->clock = fmax(x->clock, first.time);
        return x;
    }
    return NULL;
}

rill_status rill__world_run(rill__world *world, void (*body)(int rank, void *context),
                            void *context) {
    world->body = body;
    world->context = context;
    world->live = 0;
    world->quiet = 0;
    for (int i = 0; i < world->options.ranks; i++) {
        rill__node *x = &world->nodes[i];
        if (x->state == RILL__NODE_KILLED || x->state == RILL__NODE_HUNG) continue;
        rill__fiber_start(x->fiber, run_node, x);
        x->state = RILL__NODE_PARKED;
        x->wakes = INFINITY;
        world->live++;
        make_ready(world, x, x->clock);
    }
    while (world->live) {
        rill__node *x = timed(world) ? next_by_time(world) : next_by_chance(world);
        if (x) resume(world, x);
        else if (!world->under_way && !pass_time(world))
            return rill__fail(RILL_ERR_STATE, "%d ranks wait for ever", world->live);
    }
    return RILL_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void choose_mood(rill__world *world) {
    static const unsigned eager[] = {0, 16, 128, 256}, newest[] = {0, 0, 128, 256};
    int ranks = world->options.ranks;
    world->mood = (rill__mood){eager[rill__world_chance(world) & 3],
                               newest[rill__world_chance(world) & 3], -1, -1};
    if ((rill__world_chance(world) & 7) == 0) world->mood.slow = rill__world_below(world, ranks);
    if ((rill__world_chance(world) & 7) == 0) world->mood.busy = rill__world_below(world, ranks);
    /* The ranks' links: what is copied or lent, and whether receives are posted, are not seen from
     * outside. */
    static const size_t copied[] = {0, 100, 4096, SIZE_MAX};
    for (int i = 0; i < ranks; i++) {
        rill__local_set_copied(world->nodes[i].link, copied[rill__world_chance(world) & 3]);
        world->nodes[i].link->ordered_posts = rill__world_chance(world) & 1;
    }
}

static rill_status fill(rill__world *world) {
    int ranks = world->options.ranks;
    rill__local_world hooks = {world, sent,  taken, look, idle, clock_of, rill__world_fates,
                               met,   closed};
    rill__link **links = calloc((size_t)ranks, sizeof *links);
    if (!links || !world->ready) {
        free(links);
        return rill__fail(RILL_ERR_MEMORY, "out of memory for a world");
    }
    rill_status status = rill__local_create(ranks, &hooks, links);
    for (int i = 0; i < ranks && status == RILL_OK; i++) {
        rill__node *x = &world->nodes[i];
        x->link = links[i];
        x->world = world;
        x->rank = i;
        if (timed(world)) rill__local_set_copied(x->link, SIZE_MAX);
        if (timed(world)) x->link->patience = INFINITY; /* deadlocks are found by the world */
        if (!x->fiber) status = rill__fiber_create(RILL__FIBER_STACK, &x->fiber);
    }
    if (status == RILL_OK) world->group = rill__local_group_of(links[0]);
    for (int i = 0; i < ranks && status != RILL_OK; i++)
        if (links[i]) links[i]->table->close(links[i]);
    free(links);
    return status;
}

rill_status rill__world_create(const rill__world_options *options, rill__world **out) {
    *out = NULL;
    rill__world *world = calloc(1, sizeof *world);
    if (!world) return rill__fail(RILL_ERR_MEMORY, "out of memory for a world");
    world->options = *options;
    world->random = options->seed;
    world->running = -1;
    world->nodes = calloc((size_t)options->ranks, sizeof *world->nodes);
    world->ready = calloc((size_t)options->ranks, sizeof *world->ready);
    rill_status status = world->nodes ? fill(world)
                                      : rill__fail(RILL_ERR_MEMORY, "out of memory for a world");
    if (status != RILL_OK) {
        rill__world_free(world);
        return status;
    }
    if (!timed(world)) choose_mood(world);
    *out = world;
    return RILL_OK;
}

rill_status rill__world_reset(rill__world *world, uint64_t seed) {
    for (int i = 0; i < world->options.ranks; i++) {
        rill__node *x = &world->nodes[i];
        rill__fiber *fiber = x->fiber;
        rill__local_message **coming = x->coming;
        int capacity = x->capacity;
        free(x->learns);
        *x = (rill__node){.fiber = fiber, .coming = coming, .capacity = capacity};
    }
    world->random = world->options.seed = seed;
    world->n_turns = world->under_way = 0;
    world->number = 0;
    world->now = 0;
    world->dead = 0;
    RILL_TRY(fill(world));
    if (!timed(world)) choose_mood(world);
    return RILL_OK;
}

rill__link *rill__world_link(rill__world *world, int rank) { return world->nodes[rank].link; }

void rill__world_free(rill__world *world) {
    if (!world) return;
    for (int i = 0; world->nodes && i < world->options.ranks; i++) {
        rill__node *x = &world->nodes[i];
        rill__fiber_free(x->fiber);
        free(x->coming);
        free(x->learns);
    }
    free(world->nodes);
    free(world->ready);
    free(world->turns);
    free(world);
}
