/* The planner learns (plan/learn.h), in worlds with a clock whose constants are not the planner's:
 * after 200 mixed calls predictions are right, `auto` is about as fast as the best algorithm, all
 * ranks know the same, and rill_comm_forget makes them forget. In worlds of chance: non-blocking
 * calls and late ranks in any order, and still all ranks choose alike.
 *   --verbose: what was learned */
#include "../../lab/inputs.h"
#include "api/comm.h"
#include "link/world.h"
#include "plan/learn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 6, CALLS = 200, MOST_RANKS = 8, MOST_ALGORITHMS = 16 };

typedef struct kind {
    uint64_t dim;
    double density;
} kind;
static const kind kinds[KINDS] = {{1 << 10, 0.01},  {1 << 14, 0.01}, {1 << 13, 0.2},
                                  {1 << 17, 0.001}, {100000, 0.01},  {1 << 16, 0.1}};

static bool verbose;
static int wrong;

#define EXPECT(what, ...)                                                                          \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not %s: ", __FILE__, __LINE__, #what);                         \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            wrong++;                                                                               \
        }                                                                                          \
    } while (0)

typedef struct test {
    rill__world_options world_options;
    rill__world *world;
    int ranks;
    uint64_t seed;
    double predicted[CALLS], elapsed[CALLS];  /* this of the slowest rank */
    double times[KINDS][MOST_ALGORITHMS + 1]; /* of each algorithm; the first is auto's */
    uint64_t results[MOST_RANKS], known[MOST_RANKS];
    int statuses;
    char error[200];
} test;

static void must(test *t, rill_status status) {
    if (status == RILL_OK) return;
    if (!t->statuses++) snprintf(t->error, sizeof t->error, "%s", rill_last_error());
}

static uint64_t chance(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 27);
}

static uint64_t hash_of(uint64_t hash, const rill_stream *s, const char *algorithm) {
    uint64_t n = rill_stream_nnz(s);
    hash = rill__hash_more(hash, &n, sizeof n);
    hash = rill__hash_more(hash, algorithm, strlen(algorithm));
    hash = rill__hash_more(hash, s->val.data, n * sizeof(float));
    return hash;
}

/* One blocking call, and its time. */
static double call(test *t, int rank, int number, rill_comm *comm, rill_stream *const in[KINDS],
                   rill_stream *const out[KINDS], int k, const char *algorithm) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = algorithm;
    must(t, rill_allreduce(comm, in[k], out[k], RILL_SUM, &o));
    rill_stats stats = RILL_STATS_INIT;
    must(t, rill_comm_stats(comm, &stats));
    t->results[rank] = hash_of(t->results[rank], out[k], stats.algorithm);
    if (number < CALLS) {
        t->predicted[number] = stats.predicted_s;
        t->elapsed[number] = fmax(t->elapsed[number], stats.elapsed_s);
    }
    return stats.elapsed_s;
}

/* All that was learned. */
static uint64_t hash_of_places(const rill__learner *l) {
    uint64_t hash = l->samples;
    for (int i = 0; i < l->places; i++) {
        const rill__learned *at = &l->place[i];
        hash = rill__hash_more(hash, at->ratio, sizeof at->ratio);
        hash = rill__hash_more(hash, &at->times, sizeof at->times);
        hash = rill__hash_more(hash, &at->last, sizeof at->last);
    }
    return hash;
}

static void meet(test *t, int rank) {
    double start = rill__world_clock(t->world, rank);
    must(t, rill__link_most(rill__world_link(t->world, rank), &start, 1));
    start = floor(start) + 10;
    rill__world_work(t->world, start - rill__world_clock(t->world, rank));
    rill__world_yield(t->world);
}

/* Learning stands still: of each kind all algorithms, and auto. */
static void compare(test *t, int rank, rill_comm *comm, rill_stream *const in[KINDS],
                    rill_stream *const out[KINDS]) {
    for (int k = 0; k < KINDS; k++)
        for (int a = 0; a <= MOST_ALGORITHMS; a++) {
            const rill__algorithm *row = a ? rill__algorithm_at(RILL_ALLREDUCE, a - 1) : NULL;
            if (a && !row) break;
            if (a && (row->by_request || row->takes_blocks || row->joins_hosts)) continue;
            double time = 0;
            int calls = a ? 3 : 12; /* the last is taken: it agrees on nothing, and tries nothing */
            for (int i = 0; i < calls; i++) {
                meet(t, rank);
                time = call(t, rank, CALLS, comm, in, out, k, a ? row->name : "auto");
            }
            t->times[k][a] = fmax(t->times[k][a], time);
        }
}

static void learning_rank(int rank, void *context) {
    test *t = context;
    rill__link *link = rill__world_link(t->world, rank);
    link->host[0] = 1;
    rill_comm *comm = NULL;
    rill_stream *in[KINDS], *out[KINDS];
    must(t, rill__comm_open(link, NULL, NULL, &comm));
    for (int k = 0; k < KINDS; k++) {
        must(t, rill_stream_create(RILL_F32, kinds[k].dim, &in[k]));
        must(t, rill_stream_create(RILL_F32, kinds[k].dim, &out[k]));
        uint64_t nnz = (uint64_t)((double)kinds[k].dim * kinds[k].density);
        must(t, input_fill(in[k], kinds[k].dim, nnz, 7 + t->seed, rank));
    }
    uint64_t state = t->seed;
    for (int i = 0; i < CALLS; i++) {
        int k = (int)(chance(&state) % KINDS);
        if (rank == 0 && chance(&(uint64_t){state}) % 8 == 0)
            rill__world_work(t->world, 2 * t->world_options.latency); /* the others wait for it */
        call(t, rank, i, comm, in, out, k, "auto");
    }
    rill__learner *learner = comm->planner.learner;
    t->known[rank] = hash_of_places(learner);
    if (t->world_options.kind == RILL__TIMED) { /* of many small calls few are measured */
        uint64_t before = learner->samples;
        for (int i = 0; i < 3 * CALLS; i++)
            call(t, rank, CALLS, comm, in, out, 0, "auto");
        if (learner->samples - before > CALLS / 2)
            must(t, rill__fail(RILL_ERR_STATE, "%llu of %d small calls were measured",
                               (unsigned long long)(learner->samples - before), 3 * CALLS));
        if (verbose && rank == 0)
            printf("  %llu of %d small calls\n", (unsigned long long)(learner->samples - before),
                   3 * CALLS);
        learner->broken = true; /* from here on it knows what it knows */
        compare(t, rank, comm, in, out);
        learner->broken = false;
    }
    must(t, rill_comm_forget(comm));
    if (learner->places || learner->samples || rill__learn_look(learner)->points)
        must(t, rill__fail(RILL_ERR_STATE, "something was not forgotten"));
    call(t, rank, CALLS, comm, in, out, 0, "auto");
    for (int k = 0; k < KINDS; k++) {
        rill_stream_free(&in[k]);
        rill_stream_free(&out[k]);
    }
    must(t, rill_comm_free(&comm));
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the second half. */
static double median_error(const test *t) {
    double late[CALLS / 2];
    for (int i = 0; i < CALLS / 2; i++) {
        int call = CALLS / 2 + i;
        late[i] = fabs(t->predicted[call] / t->elapsed[call] - 1);
    }
    qsort(late, CALLS / 2, sizeof *late, ascending);
    return late[CALLS / 4];
}

/* Of auto to the best, in the geometric mean. */
static double against_best(const test *t) {
    double logs = 0;
    for (int k = 0; k < KINDS; k++) {
        double best = INFINITY;
        for (int a = 1; a <= MOST_ALGORITHMS; a++)
            if (t->times[k][a] > 0 && t->times[k][a] < best) best = t->times[k][a];
        logs += log(t->times[k][0] / best);
        for (int a = 0; verbose && a <= MOST_ALGORITHMS; a++)
            if (t->times[k][a] > 0)
                printf("  kind %d %-18s %.3g s\n", k,
                       a ? rill__algorithm_at(RILL_ALLREDUCE, a - 1)->name : "auto",
                       t->times[k][a]);
    }
    return exp(logs / KINDS);
}

static void run(test *t) {
    t->world_options.ranks = t->ranks;
    t->world_options.seed = t->seed;
    must(t, rill__world_create(&t->world_options, &t->world));
    rill_status ended = rill__world_run(t->world, learning_rank, t);
    EXPECT(ended == RILL_OK, "%d ranks: %s", t->ranks, rill_last_error());
    EXPECT(t->statuses == 0, "%d ranks: %s", t->ranks, t->error);
    if (ended == RILL_OK) rill__world_free(t->world);
    for (int r = 1; r < t->ranks; r++) {
        EXPECT(t->known[r] == t->known[0], "rank %d of %d has learned something else", r, t->ranks);
        EXPECT(t->results[r] == t->results[0], "rank %d of %d has other results", r, t->ranks);
    }
}

static void learns_in(int ranks, double latency, double byte, double message, double work) {
    test *t = calloc(1, sizeof *t);
    if (!t) exit(2);
    t->ranks = ranks;
    t->seed = 11;
    t->world_options = (rill__world_options){.kind = RILL__TIMED,
                                             .latency = latency,
                                             .byte = byte,
                                             .message = message,
                                             .send_work = work,
                                             .receive_work = work};
    run(t);
    double error = median_error(t), best = against_best(t);
    printf("%d ranks, latency %g: predictions are off by %.0f %%, auto takes %.3f of the best\n",
           ranks, latency, 100 * error, best);
    EXPECT(error < 0.2, "%d ranks: predictions are off by %.0f %%", ranks, 100 * error);
    EXPECT(best < 1.08, "%d ranks: auto takes %.3f times the best", ranks, best);
    free(t);
}

static void agrees_by_chance(uint64_t seed) {
    test *t = calloc(1, sizeof *t);
    if (!t) exit(2);
    t->ranks = 2 + (int)(seed % 4);
    t->seed = seed;
    t->world_options = (rill__world_options){.kind = RILL__CHANCE};
    run(t);
    free(t);
}

int main(int argc, char **argv) {
    verbose = argc > 1 && strcmp(argv[1], "--verbose") == 0;
    setenv("RILL_PROFILE", "none", 1);
    setenv("RILL_LEARN", "on", 1);
    learns_in(4, 40e-6, 8e-9, 3e-6, 2e-9);
    learns_in(8, 2e-6, 0.1e-9, 1e-6, 0.5e-9);
    learns_in(2, 200e-6, 80e-9, 5e-6, 1e-9);
    for (uint64_t seed = 1; seed <= 4; seed++)
        agrees_by_chance(seed);
    return wrong != 0;
}
