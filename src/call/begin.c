/* The start of a call: its place in the order of calls, what is said of it to others and to the
 * planner, and its input; at once, or (rill__request_reserve) when a gate is opened. */
#include "call/call.h"
#include "coll/topk/topk.h"

#include <math.h>
#include <string.h>

#define DEFAULT_BLOCK 256 /* entries, where neither the options nor the input tell */

/* What all ranks must have alike, in one word. */
static uint64_t arguments_word(const rill_request *r) {
    uint64_t words[] = {(uint64_t)r->collective, r->task.expect.dim, (uint64_t)r->task.shape.type,
                        r->task.expect.op, (uint64_t)(int64_t)r->root};
    uint64_t hash = rill__hash_more(RILL__HASH_START, words, sizeof words);
    rill_options options = rill__settings_options(&r->plan.settings);
    options.block = r->plan.block;
    return rill__settings_hash_options(hash, &options);
}

/* A name that is a constant is mostly that of the last call. */
static inline uint32_t hash_of(rill_request *r, int which, const char *name, bool constant) {
    if (r->hashed[which] != name || !constant) {
        r->hashed[which] = name;
        r->hash[which] = rill__name_hash(name);
    }
    return r->hash[which];
}

/* Options that decide how messages are written, and so which calls end with an agreement. */
static __attribute__((noinline)) uint32_t options_hash(const rill__planned *p) {
    const rill__settings *s = &p->settings;
    uint64_t bits = (uint64_t)s->value_bits | (uint64_t)s->allow_bits << 5;
    uint64_t rest = (uint64_t)s->all_values | (uint64_t)(s->partition == RILL__UNIFORM) << 1;
    uint64_t codec = s->codec ? s->codec->id + UINT64_C(1) : 0;
    uint64_t word = bits ^ rest << 10 ^ codec << 12 ^ s->expected_nnz << 20;
    return (s->partition == RILL__BALANCED) ^
           (uint32_t)(p->block * UINT64_C(0x9e3779b97f4a7c15) >> 32) ^
           (uint32_t)(word * UINT64_C(0xbf58476d1ce4e5b9) >> 32);
}

/* Whether options_hash is 0: small calls do not compute it. */
static inline bool leaves_open(const rill__planned *p) {
    const rill__settings *s = &p->settings;
    int named = s->value_bits | s->allow_bits | s->all_values |
                ((int)s->partition ^ (int)RILL__ANY_PARTITION);
    return !((uint64_t)named | s->expected_nnz | p->block) && !s->codec;
}

/* A forced algorithm is among them, so that one rank's choice shows before the planner's does. */
static uint32_t arguments_hash(rill_request *r) {
    const rill__algorithm *forced = r->plan.settings.algorithm;
    uint32_t rest = (uint32_t)(r->root + 1) << 1;
    if (!leaves_open(&r->plan)) rest ^= options_hash(&r->plan);
    return rest ^ (forced ? hash_of(r, 1, forced->name, true) : 0);
}

/* Bits of what an absent entry of the result stands for. */
static uint64_t fill_of(const rill_request *r) {
    uint64_t bits = 0;
    if (r->op && r->op->neutral == 0 && !signbit(r->op->neutral)) return 0;
    if (r->op) rill__neutral(r->op, r->in->type, &bits);
    else memcpy(&bits, r->in->fill, sizeof bits);
    return bits;
}

/* The room of the algorithm, as far as it is known before the planning. */
static void furnish(rill_request *r) {
    rill__run *run = &r->run;
    run->op = r->op;
    run->shape.type = r->in->type;
    run->shape.index_bytes = r->in->index_bytes;
    run->dim = r->in->dim;
    run->root = r->root;
    run->block = r->plan.settings.block        ? r->plan.settings.block
                 : r->in->form == RILL__BLOCKS ? r->in->block
                                               : DEFAULT_BLOCK;
    run->coding.index = &rill__codec_raw;
    run->coding.value = &rill__value_raw;
    run->coding.turns_dense = false;
    run->entries = r->nnz_in = r->in->nnz;
    run->in_place = r->in == r->out;
    run->feedback = r->feedback;
    run->skew = 0;
    run->more_memory = false;
    run->used_codec = NULL;
    r->outside.out = rill__request_output(r);
    r->outside.first = r->first;
    r->outside.count = r->count;
    r->outside.may_block = r->blocking;
    r->outside.keeps_room = r->collective == RILL_REDUCE;
}

/* What a reducer's calls are planned by, where that is in its memory; zeros after a failure. */
static const rill__profile *kept_profile(const rill__feedback *f, const rill__algorithm *forced) {
    if (forced || f->memory_size != sizeof(rill__profile)) return NULL;
    const rill__profile *kept = f->memory.data;
    return kept->crowding > 0 ? kept : NULL;
}

/* What the planner sees of it. Of the block size: the option; or, where the algorithm needs one,
 * also what the input or the default gives. */
static void introduce(rill_request *r) {
    rill__planned *p = &r->plan;
    const rill__algorithm *forced = p->settings.algorithm;
    p->collective = r->collective;
    p->type = r->in->type;
    p->dim = r->in->dim;
    p->op = r->op;
    p->op_hash = r->op ? hash_of(r, 0, r->op->name, r->op->kind != RILL__USER) : 0;
    p->block = forced && forced->takes_blocks ? r->run.block : p->settings.block;
    p->reducer = r->feedback != NULL;
    p->settings.on_devices = r->feedback && r->feedback->on_devices;
    p->k = r->feedback ? r->feedback->k : 0;
    p->kept = r->feedback ? kept_profile(r->feedback, forced) : NULL;
    p->blocking = r->blocking;
    p->algorithm = forced;
    p->predicted = 0;
}

/* What ranks must have alike, and what the planner is told. The fields are set one by one, here and
 * above: a struct that is put together and then copied is read with wider loads than it was written
 * with, and such a load waits until all stores before it have left the core, those to memory that
 * another rank reads among them. */
static void announce(rill_request *r) {
    rill__task *task = &r->task;
    r->started = rill__ticks(r->comm->engine.link);
    furnish(r);
    introduce(r);
    task->waited_for = r->blocking;
    task->shape.type = r->in->type;
    task->shape.index_bytes = r->in->index_bytes;
    task->expect.collective = (uint8_t)r->collective;
    task->expect.type = (uint8_t)task->shape.type;
    task->expect.algorithm = task->expect.memory = 0;
    task->expect.op = r->plan.op_hash;
    task->expect.arguments = arguments_hash(r);
    task->expect.dim = r->in->dim;
    task->nnz_sum = task->nnz_max = r->nnz_in;
    task->fill = fill_of(r);
    memcpy(r->run.fill, &task->fill, sizeof r->run.fill);
    task->may_post = !r->plan.algorithm || r->plan.algorithm->posts_mpi_collective;
    if (r->feedback) {
        r->feedback->returns = 0;
        r->feedback->collision_error = 0;
    }
}

static void start(rill_request *r) {
    rill__planner *planner = &r->comm->planner;
    const rill__again *again = &r->comm->again;
    uint64_t quick = again->on && again->runs ? r->comm->last_elapsed : 0;
    r->comm->again.on = false;
    rill__task_start(&r->task);
    r->plan.seq = r->task.seq;
    r->task.adds_bits = r->collective <= RILL_REDUCE_SCATTER &&
                        rill__wire_adds_bits(r->in->type, r->op, planner->sums_bits);
    r->ran = 0;
    /* A rank without a key would count calls of this kind differently from then on. */
    rill_status status = r->only_agrees ? RILL_OK : rill__plan_begin(planner, &r->plan);
    r->quick = !r->only_agrees && r->plan.key == again->key ? quick : 0;
    r->learning = RILL__LEARN_SKIPS;
    /* The owner of a range in a reduce_scatter may fail alone: others would learn from the call. */
    if (planner->learner && !r->only_agrees && rill__request_counts(r) &&
        r->collective != RILL_REDUCE_SCATTER)
        r->learning = rill__learn_begins(planner, &r->plan, r,
                                         r->blocking && !r->feedback &&
                                             r->task.engine->active == &r->task);
    if (status != RILL_OK) rill__task_abort(&r->task, status);
}

/* A rank that fails here takes part, and tells the others. */
static void take_input(rill_request *r) {
    rill__rooms_begin(r);
    rill_status status = r->only_agrees || rill__task_failed(&r->task) ? RILL_OK
                                                                       : rill__rooms_reserve(r);
    if (status != RILL_OK) rill__task_fail(&r->task, status);
    r->phase = RILL__P_PLAN;
    if (r->comm->defaults.check) {
        r->phase = RILL__P_CHECK;
        rill__agree_start(&r->agree, arguments_word(r), NULL, 0);
    }
    if (rill__request_takes_input_late(r)) r->input = rill__part_empty(0, r->in->dim);
    else rill__request_input(r);
}

rill_status rill__request_begin(rill_request *r) {
    r->task.ending = NULL;
    announce(r);
    start(r);
    take_input(r);
    return RILL_OK;
}

static rill_status ending(rill__task *task) {
    rill_request *r = (rill_request *)task;
    bool all = atomic_load_explicit(&r->ended, memory_order_acquire) == RILL__ALL_ENDED;
    return all ? RILL_OK : RILL_IN_PROGRESS;
}

void rill__request_reserve(rill_request *r) {
    atomic_store_explicit(&r->open, false, memory_order_relaxed);
    atomic_store_explicit(&r->ended, RILL__NOT_ENDED, memory_order_relaxed);
    atomic_store_explicit(&r->told, false, memory_order_relaxed);
    r->task.ending = ending;
    r->feedback = NULL; /* the step before may still use it */
    announce(r);
    start(r);
    r->phase = RILL__P_GATE;
}

void rill__request_pass_gate(rill_request *r) {
    uint8_t flags = 0;
    rill_status status = r->sequel.enter(r->sequel.whom, &flags);
    announce(r);
    take_input(r);
    if (status != RILL_OK) rill__task_fail(&r->task, status);
    r->task.flags |= flags;
}
