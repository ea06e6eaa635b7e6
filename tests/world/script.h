/* What the ranks of a world do in a schedule: made from a seed alone, so that any rank knows what
 * any other has. */
#ifndef RILL_TESTS_WORLD_SCRIPT_H
#define RILL_TESTS_WORLD_SCRIPT_H

#include "support/model.h"

#include <stdio.h>

enum { MOST_CALLS = 6, MOST_RANKS = 64, MOST_STEPS = 5 };

typedef enum call_mode { MODE_BLOCKING, MODE_NONBLOCKING, MODE_PERSISTENT, MODES } call_mode;
static const char *const mode_names[MODES] = {"blocking", "nonblocking", "persistent"};

/* A collective, or the life of a reducer. */
typedef struct script_call {
    rill_collective collective;
    const char *algorithm, *codec, *partition, *select;
    int bits;
    rill_type type;
    test_op op;
    call_mode mode;
    uint64_t dim, seed;
    double density;
    int dense, in_place, root, overlap;
    int batch;              /* non-blocking: it is waited for together with the one after it */
    int steps, persistents; /* of a reducer; starts of a persistent request */
    int average;
    double momentum;
} script_call;

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_MEMORY,      /* an allocation fails */
    FAULT_MEMORY_FROM, /* and all after it, until the call has ended */
    FAULT_ARGUMENT,    /* a rank has NULL for a stream */
    FAULT_MISMATCH,    /* a rank has another dimension */
    FAULT_OPTIONS,     /* a rank has another codec, or other value bits */
    FAULT_ABSENT       /* a rank does not make the call, and frees the communicator */
} fault_kind;
static const char *const fault_names[] = {"none",     "memory",   "memory from there on",
                                          "argument", "mismatch", "options",
                                          "absent"};

typedef struct script {
    uint64_t seed;
    int ranks, calls;
    int check, hosts;
    uint64_t split_limit;
    uint64_t memory; /* calls after which a kind is forgotten; 0: as ever */
    script_call call[MOST_CALLS];
    fault_kind fault;
    int fault_rank, fault_call; /* call -1: the creation of the communicator */
    long fault_at;
} script;

static inline const char *random_row(rng *r, const char *(*at)(int, const char **)) {
    int n = 0;
    while (at(n, NULL))
        n++;
    return at((int)rng_below(r, (uint64_t)n), NULL);
}

/* A row of the table, or NULL for "auto". */
static inline const char *random_algorithm(rng *r, rill_collective c) {
    int n = 0;
    while (rill_algorithm_at(c, n, NULL))
        n++;
    int i = (int)rng_below(r, (uint64_t)n + 1);
    return i < n ? rill_algorithm_at(c, i, NULL) : NULL;
}

static inline script_call script_collective(rng *r, int ranks) {
    static const int bits[] = {0, 0, 0, 0, 16, 8, 4, 2};
    static const double densities[] = {0, 0.02, 0.1, 0.3, 0.7, 1};
    script_call c = {.collective = (rill_collective)rng_below(r, RILL_COLLECTIVES),
                     .mode = (call_mode)rng_below(r, MODES),
                     .type = test_types[rng_below(r, TYPE_COUNT)],
                     .dim = 8 + rng_below(r, rng_below(r, 8) ? 60 : 400),
                     .density = densities[rng_below(r, 6)],
                     .root = (int)rng_below(r, (uint64_t)ranks),
                     .seed = rng_next(r),
                     .persistents = 1 + (int)rng_below(r, 3)};
    if (rng_below(r, 2)) c.collective = RILL_ALLREDUCE;
    c.algorithm = random_algorithm(r, c.collective);
    if (rng_below(r, 3) == 0) c.codec = random_row(r, rill_codec_at);
    if (rng_below(r, 3) == 0) c.partition = rng_below(r, 2) ? "balanced" : "uniform";
    c.op = rng_below(r, 3) ? OP_SUM : (test_op)rng_below(r, OP_USER);
    c.bits = bits[rng_below(r, 8)];
    if (c.op != OP_SUM || c.type == RILL_F64) c.bits = 0;
    c.dense = rng_below(r, 4) == 0;
    c.in_place = rng_below(r, 4) == 0;
    c.overlap = rng_below(r, 16) == 0;
    c.batch = c.mode == MODE_NONBLOCKING && rng_below(r, 2);
    return c;
}

static inline script_call script_reducer(rng *r) {
    static const int bits[] = {0, 0, 0, 8, 4};
    script_call c = {.collective = RILL_REDUCER,
                     .mode = (call_mode)rng_below(r, 2),
                     .type = RILL_F32,
                     .dim = 16 + rng_below(r, 150),
                     .density = 0.05 + 0.3 * rng_unit(r),
                     .seed = rng_next(r),
                     .steps = 1 + (int)rng_below(r, MOST_STEPS),
                     .bits = bits[rng_below(r, 5)],
                     .average = rng_below(r, 4) == 0,
                     .momentum = rng_below(r, 8) ? 0 : 0.5};
    c.algorithm = random_algorithm(r, rng_below(r, 3) ? RILL_REDUCER : RILL_ALLREDUCE);
    if (rng_below(r, 4) == 0) c.codec = random_row(r, rill_codec_at);
    if (rng_below(r, 4) == 0) c.select = rng_below(r, 2) ? "auto" : "topk";
    return c;
}

/* The same call, now and then with other entries: more or fewer, in other places. What the root of
 * a reduction gets, or the owner of a range, nobody else knows: it may not get more. */
static inline script_call script_again(const script_call *before) {
    script_call c = *before;
    rng r = rng_make(c.seed, 900);
    int same = c.collective == RILL_REDUCE || c.collective == RILL_REDUCE_SCATTER ||
               c.collective == RILL_REDUCER || rng_below(&r, 2);
    if (same) return c;
    c.seed = rng_next(&r);
    if (rng_below(&r, 2)) c.density *= 2 * rng_unit(&r);
    return c;
}

static inline void script_fault(script *s, rng *r) {
    s->fault_rank = (int)rng_below(r, (uint64_t)s->ranks);
    s->fault_call = (int)rng_below(r, (uint64_t)s->calls + 1) - 1;
    s->fault_at = 1 + (long)rng_below(r, rng_below(r, 2) ? 6 : 40);
    switch (rng_below(r, 16)) {
    case 0:
    case 1: s->fault = FAULT_MEMORY; break;
    case 2: s->fault = FAULT_MEMORY_FROM; break;
    case 3: s->fault = FAULT_ARGUMENT; break;
    case 4: s->fault = FAULT_MISMATCH; break;
    case 5: s->fault = FAULT_ABSENT; break;
    case 6: s->fault = FAULT_OPTIONS; break;
    default: s->fault = FAULT_NONE; break;
    }
    if (s->fault >= FAULT_ARGUMENT && s->fault_call < 0) s->fault_call = 0;
}

/* One kind of call, in all modes, with a fault in between: who hears of it early, late or never
 * must plan the others alike. */
static inline void script_one_kind(script *s, rng *r) {
    static const fault_kind faults[] = {FAULT_MEMORY, FAULT_ARGUMENT, FAULT_MISMATCH,
                                        FAULT_OPTIONS};
    s->calls = s->ranks > 8 ? 2 : MOST_CALLS;
    s->call[0] = script_collective(r, s->ranks);
    if (rng_below(r, 4)) s->call[0].algorithm = NULL;
    for (int i = 0; i < s->calls; i++) {
        if (i) s->call[i] = script_again(&s->call[i - 1]);
        s->call[i].mode = (call_mode)rng_below(r, MODES);
        s->call[i].batch = s->call[i].mode == MODE_NONBLOCKING && rng_below(r, 4);
    }
    s->fault_call = (int)rng_below(r, (uint64_t)s->calls - 1);
    s->fault = faults[rng_below(r, 4)];
}

static inline script script_make(uint64_t seed, int most_ranks) {
    rng r = rng_make(seed, 1);
    script s = {.seed = seed};
    s.ranks = 1 + (int)rng_below(&r, most_ranks < 8 ? (uint64_t)most_ranks : 8);
    if (most_ranks > 8 && rng_below(&r, 400) == 0)
        s.ranks = 9 + (int)rng_below(&r, (uint64_t)most_ranks - 8);
    s.calls = 1 + (int)rng_below(&r, s.ranks > 8 ? 2 : MOST_CALLS);
    s.check = rng_below(&r, 4) == 0;
    s.split_limit = rng_below(&r, 4) ? 0 : 1024;
    s.hosts = rng_below(&r, 3) == 0 ? 2 + (int)rng_below(&r, 3) : 0;
    for (int i = 0; i < s.calls; i++) {
        /* Calls that repeat take the ways of the steady state. */
        if (i && rng_below(&r, 3) == 0) s.call[i] = script_again(&s.call[i - 1]);
        else s.call[i] = rng_below(&r, 4) ? script_collective(&r, s.ranks) : script_reducer(&r);
    }
    script_fault(&s, &r);
    if (rng_below(&r, 4) == 0) script_one_kind(&s, &r);
    if (rng_below(&r, 3) == 0) s.memory = 1 + rng_below(&r, 12);
    return s;
}

static inline void script_print(FILE *to, const script *s) {
    fprintf(to,
            "  %d ranks, check %d, hosts of %d, split_limit %llu, memory %llu; fault: %s, rank %d, "
            "call %d, allocation %ld\n",
            s->ranks, s->check, s->hosts, (unsigned long long)s->split_limit,
            (unsigned long long)s->memory, fault_names[s->fault], s->fault_rank, s->fault_call,
            s->fault_at);
    for (int i = 0; i < s->calls; i++) {
        const script_call *c = &s->call[i];
        fprintf(to,
                "  call %d: %s %s codec %s partition %s select %s bits %d %s %s %s dim %llu "
                "density %g root %d%s%s%s%s, %d steps, %d starts\n",
                i, c->collective == RILL_REDUCER ? "reducer" : rill_collective_name(c->collective),
                c->algorithm ? c->algorithm : "auto", c->codec ? c->codec : "-",
                c->partition ? c->partition : "-", c->select ? c->select : "-", c->bits,
                test_op_names[c->op], rill_type_name(c->type), mode_names[c->mode],
                (unsigned long long)c->dim, c->density, c->root, c->dense ? " dense" : "",
                c->in_place ? " in place" : "", c->batch ? " batch" : "",
                c->overlap ? " overlap" : "", c->steps, c->persistents);
    }
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static inline int is_present(const script *s, const script_call *c, int rank, uint64_t i, rng *r) {
    int present = rng_unit(r) < c->density;
    if (c->collective != RILL_ALLGATHER) return present;
    return present &&
           ((i * 7 + c->seed) % (uint64_t)s->ranks == (uint64_t)rank || (c->overlap && i == 0));
}

/* What the rank has for the call: numbers whose sums and products are exact in every type. */
static inline model script_input(const script *s, const script_call *c, int rank) {
    rng r = rng_make(c->seed, 2 + (uint64_t)rank);
    model m = model_make(c->dim);
    for (uint64_t i = 0; i < c->dim; i++) {
        if (!is_present(s, c, rank, i, &r)) continue;
        m.has[i] = 1;
        m.value[i] = s->ranks > 8 && c->op == OP_SUM ? (double)rng_below(&r, 5) - 2
                                                     : op_exact_value(c->op, &r, rank);
        if (rng_below(&r, 8) == 0 && c->op != OP_PROD) m.value[i] = 0;
    }
    if (c->dense) model_forget_fill(&m);
    return m;
}

/* The whole of what the ranks have; bcast: what the root has. */
static inline model script_expected(const script *s, const script_call *c) {
    if (c->collective == RILL_BCAST) return script_input(s, c, c->root);
    model sum = script_input(s, c, 0);
    test_op op = c->collective == RILL_ALLGATHER ? OP_SUM : c->op;
    if (c->collective != RILL_ALLGATHER) sum.fill = op_neutral(op);
    for (int rank = 1; rank < s->ranks; rank++) {
        model other = script_input(s, c, rank);
        model_add(&sum, &other, op);
        model_free(&other);
    }
    return sum;
}

/* The gradient of a step: small integers, and zeros. */
static inline void script_gradient(const script_call *c, int rank, int step, float *gradient) {
    rng r = rng_make(c->seed, 1000 + (uint64_t)rank * 64 + (uint64_t)step);
    for (uint64_t i = 0; i < c->dim; i++)
        gradient[i] = (float)rng_below(&r, 17) - 8;
}

#endif
