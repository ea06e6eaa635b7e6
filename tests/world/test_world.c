/* Every collective, algorithm and reducer in worlds of chance (link/world.h): ranks take turns and
 * messages come in orders that a seed chooses; allocations fail, ranks have wrong arguments, or
 * leave. Results are compared with a dense model, statuses with each other. A schedule is known by
 * its number.
 *   --schedules N  --seed S  --ranks P  (at most 64; most schedules have up to 8)
 *   --only NUMBER  one schedule, and what it does
 *   --from I --step K  of the schedules every K-th, from the I-th on: for several processes */
#include "calls.h"

#include "call/call.h"

#include <time.h>

static struct {
    long schedules, stuck, wrong, hits, calls, failed;
    long by_ranks[MOST_RANKS + 1];
    double seconds;
} totals;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t schedule_seed(uint64_t seed, uint64_t number) {
    rng r = rng_make(seed, number);
    return rng_next(&r);
}

static void check_balance(schedule *x) {
    for (int call = 0; call < x->s.calls; call++) {
        const script_call *c = &x->s.call[call];
        bool right = x->balance[call] && !c->momentum;
        for (int rank = 0; rank < x->s.ranks; rank++)
            right &= x->o.status[call + 1][rank] == RILL_OK;
        /* s2 delivers a share of an estimate, and both are rounded. */
        bool rounds = c->algorithm && strcmp(c->algorithm, "s2") == 0;
        double share = c->average || c->bits ? 1e-3 : rounds ? 1e-5 : 0;
        double tolerance = share * x->s.ranks;
        for (uint64_t i = 0; right && i < c->dim; i++)
            if (!(fabs(x->balance[call][i]) <= tolerance))
                wrong(&x->o, "call %d: %g of entry %llu is lost", call, x->balance[call][i],
                      (unsigned long long)i);
        free(x->balance[call]);
    }
}

static void check_cover(schedule *x) {
    for (int call = 0; call < x->s.calls; call++) {
        const script_call *c = &x->s.call[call];
        bool right = c->collective == RILL_REDUCE_SCATTER && !c->bits &&
                     c->mode != MODE_PERSISTENT && !arguments_differ(&x->s);
        for (int rank = 0; rank < x->s.ranks; rank++)
            right &= x->o.status[call + 1][rank] == RILL_OK;
        if (right && x->o.covered[call] != c->dim)
            wrong(&x->o, "call %d: the ranks' ranges have %llu entries", call,
                  (unsigned long long)x->o.covered[call]);
    }
}

/* A rank that waits for ever, and the calls that it is in. */
static void describe(const schedule *x, int rank) {
    fprintf(stderr, "  rank %d waits for ever in call %d", rank, x->o.at[rank]);
    const rill_comm *comm = x->comms[rank];
    for (const rill__task *t = comm ? comm->engine.active : NULL; t; t = t->next) {
        const rill_request *r = (const rill_request *)t;
        fprintf(stderr, "; number %llu: %s, phase %d, %d sends, %d receives, status %d",
                (unsigned long long)t->seq,
                r->plan.algorithm ? r->plan.algorithm->name : "no algorithm", (int)r->phase,
                t->sends.n, t->receives.n, (int)t->status);
    }
    fprintf(stderr, "\n");
}

static void report(const schedule *x, uint64_t number, rill_status ended) {
    fprintf(stderr, "schedule %llu (seed %#llx) is wrong: %s\n", (unsigned long long)number,
            (unsigned long long)x->s.seed, x->o.wrong ? x->o.first : rill_last_error());
    script_print(stderr, &x->s);
    for (int rank = 0; ended != RILL_OK && rank < x->s.ranks; rank++)
        if (rill__world_stuck(x->world, rank)) describe(x, rank);
}

/* Of each number of ranks one world, made anew for each schedule in the same memory. */
static rill__world *worlds[MOST_RANKS + 1];

static rill_status world_for(schedule *x) {
    rill__world **world = &worlds[x->s.ranks];
    rill__world_options options = {.kind = RILL__CHANCE, .ranks = x->s.ranks, .seed = x->s.seed};
    rill_status status = *world ? rill__world_reset(*world, x->s.seed)
                                : rill__world_create(&options, world);
    x->world = *world;
    return status;
}

static void run_schedule(uint64_t seed, uint64_t number, int most_ranks, bool verbose) {
    static schedule x;
    memset(&x, 0, sizeof x);
    x.s = script_make(schedule_seed(seed, number), most_ranks);
    outcome_begin(&x.o, &x.s);
    if (verbose) script_print(stdout, &x.s);
    if (world_for(&x) != RILL_OK) {
        fprintf(stderr, "no world: %s\n", rill_last_error());
        exit(2);
    }
    setenv("RILL_LEARN", number % 2 ? "on" : "off", 1);
    if (number / 2 % 2) setenv("RILL_READ_BYTES", "1", 1); /* dense sums read other ranks' memory */
    else unsetenv("RILL_READ_BYTES");
    under_way = &x;
    memset(watches, 0, sizeof watches);
    refused = (refusal){.world = x.world,
                        .rank = x.s.fault_rank,
                        .from = x.s.fault == FAULT_MEMORY_FROM,
                        .at = x.s.fault_at};
    rill_status ended = rill__world_run(x.world, run_rank, &x);
    x.o.hits = refused.hits;
    if (ended == RILL_OK) outcome_check(&x.o);
    check_balance(&x);
    if (ended == RILL_OK) check_cover(&x);
    for (int call = 0; call < MOST_CALLS; call++)
        if (x.expected[call].value) model_free(&x.expected[call]);
    totals.schedules++;
    totals.by_ranks[x.s.ranks]++;
    totals.hits += x.o.hits;
    totals.calls += x.calls;
    totals.failed += x.s.fault != FAULT_NONE;
    totals.stuck += ended != RILL_OK;
    totals.wrong += x.o.wrong != 0;
    if (ended != RILL_OK || x.o.wrong) report(&x, number, ended);
    if (ended != RILL_OK) worlds[x.s.ranks] = NULL; /* its ranks stand where they are */
    if (verbose)
        for (int call = -1; call < x.s.calls; call++) {
            printf("  call %d:", call);
            for (int rank = 0; rank < x.s.ranks; rank++)
                printf(" %d", x.o.status[call + 1][rank]);
            printf("\n");
        }
}

static uint64_t argument(int argc, char **argv, const char *name, uint64_t otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return strtoull(argv[i + 1], NULL, 0);
    return otherwise;
}

int main(int argc, char **argv) {
    uint64_t n = argument(argc, argv, "--schedules", 2000);
    uint64_t seed = argument(argc, argv, "--seed", 1);
    int ranks = (int)argument(argc, argv, "--ranks", MOST_RANKS);
    uint64_t only = argument(argc, argv, "--only", UINT64_MAX);
    uint64_t from = argument(argc, argv, "--from", 0), step = argument(argc, argv, "--step", 1);
    if (ranks < 1 || ranks > MOST_RANKS || !step) {
        fprintf(stderr, "--ranks is from 1 to %d, --step from 1\n", MOST_RANKS);
        return 2;
    }
    setenv("RILL_PROFILE", "none", 1);
    rill__memory_refuses = refuse_memory;
    double start = now_s();
    if (only != UINT64_MAX) run_schedule(seed, only, ranks, true);
    for (uint64_t i = from; only == UINT64_MAX && i < n; i += step) {
        run_schedule(seed, i, ranks, false);
        if (totals.stuck + totals.wrong >= 10) break;
    }
    for (int i = 0; i <= MOST_RANKS; i++)
        rill__world_free(worlds[i]);
    double seconds = now_s() - start;
    printf("%ld schedules (seed %llu), %ld calls, %ld with a fault, %ld refused allocations; "
           "%ld wrong, %ld waited for ever; %.1f s, %.0f schedules a second\n",
           totals.schedules, (unsigned long long)seed, totals.calls, totals.failed, totals.hits,
           totals.wrong, totals.stuck, seconds, (double)totals.schedules / seconds);
    bool enough = totals.schedules < 1000 || (totals.calls && totals.hits && totals.failed);
    if (!enough) fprintf(stderr, "the schedules did too little\n");
    return totals.stuck || totals.wrong || !enough;
}
