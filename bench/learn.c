/* What bench/learn runs on each rank: 200 mixed calls of `auto` for a user who has never tuned,
 * the same of MPI_Allreduce, then `auto` beside every algorithm, each on a communicator of its own
 * and in turns of any order, so that all find caches and memory alike. Calls begin together and the
 * slowest rank counts. One line a kind, one for all. */
#include <math.h>
#include <mpi.h>
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALLS = 200,
    MOST_KINDS = 32,
    MOST_NAMES = 16,
    REPS = 21,
    FIRST = 2,
    LAST = 11,
    TRACE = 1 << 16
};

typedef struct kind {
    uint64_t dim, nnz;
    rill_stream *in, *out;
    float *dense, *sum;
    int calls;
    double early[LAST], mpi_early[LAST];         /* of calls FIRST to LAST */
    double late[CALLS / 2], foretold[CALLS / 2]; /* of the second half of the mixed calls */
    int lates;
    char trace[TRACE]; /* of all calls of auto: algorithm, microseconds, and as predicted */
} kind;

static int rank, ranks, traces;

static void must(rill_status status, const char *what) {
    if (status == RILL_OK) return;
    fprintf(stderr, "bench/learn: %s: %s\n", what, rill_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* "hier" serves where ranks share a host. */
static int one_host(void) {
    MPI_Comm here;
    int together;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &together);
    MPI_Comm_free(&here);
    return together == ranks;
}

static double slowest(double mine) {
    double all;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *x, int n) {
    if (n == 0) return 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static uint64_t chance(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 31);
}

static void make(kind *k, uint64_t dim, double density) {
    uint64_t state = 1000003 * (uint64_t)(rank + 1) + dim;
    k->dim = dim;
    k->nnz = (uint64_t)((double)dim * density);
    if (!k->nnz) k->nnz = 1;
    uint32_t *idx = malloc(k->nnz * sizeof *idx);
    float *val = malloc(k->nnz * sizeof *val);
    k->dense = calloc(dim, sizeof(float));
    k->sum = calloc(dim, sizeof(float));
    if (!idx || !val || !k->dense || !k->sum) MPI_Abort(MPI_COMM_WORLD, 1);
    for (uint64_t i = 0; i < k->nnz; i++) {
        uint64_t first = i * dim / k->nnz, next = (i + 1) * dim / k->nnz;
        idx[i] = (uint32_t)(first + chance(&state) % (next - first));
        val[i] = (float)(chance(&state) % 1000) - 500;
    }
    must(rill_stream_create(RILL_F32, dim, &k->in), "stream");
    must(rill_stream_create(RILL_F32, dim, &k->out), "stream");
    must(rill_stream_set_pairs(k->in, k->nnz, idx, val), "stream");
    free(idx);
    free(val);
}

static double call(rill_comm *comm, kind *k, const char *algorithm, double *predicted) {
    rill_options o = RILL_OPTIONS_INIT;
    rill_stats stats = RILL_STATS_INIT;
    o.algorithm = algorithm;
    MPI_Barrier(MPI_COMM_WORLD);
    must(rill_allreduce(comm, k->in, k->out, RILL_SUM, &o), algorithm);
    must(rill_comm_stats(comm, &stats), "stats");
    if (predicted) *predicted = stats.predicted_s;
    double time = slowest(stats.elapsed_s);
    size_t at = strlen(k->trace);
    if (traces && strcmp(algorithm, "auto") == 0)
        snprintf(k->trace + at, TRACE - at, "%s %.4g %.4g, ", stats.algorithm, 1e6 * time,
                 1e6 * stats.predicted_s);
    return time;
}

static double call_mpi(kind *k) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    MPI_Allreduce(k->dense, k->sum, (int)k->dim, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return slowest(MPI_Wtime() - start);
}

/* The same calls in the same order, of MPI's own sum. */
static void mixed_mpi(kind *kinds, int n) {
    int calls[MOST_KINDS] = {0};
    uint64_t state = 5;
    for (int i = 0; i < CALLS; i++) {
        uint64_t which = chance(&state) % (uint64_t)n;
        double time = call_mpi(&kinds[which]);
        int made = ++calls[which];
        if (made >= FIRST && made <= LAST) kinds[which].mpi_early[made - FIRST] = time;
    }
}

/* Median of the early calls of auto over that of MPI's; 0: there were none. */
/* How far times of one kind are from their median, in the median. */
static double spread(const kind *k) {
    double off[CALLS / 2], times[CALLS / 2];
    memcpy(times, k->late, sizeof times);
    double middle = median(times, k->lates);
    for (int i = 0; i < k->lates; i++)
        off[i] = fabs(middle / k->late[i] - 1);
    return median(off, k->lates);
}

static double early_to_mpi(const kind *k) {
    double ours[LAST], theirs[LAST];
    int n = k->calls < LAST ? k->calls - FIRST + 1 : LAST - FIRST + 1;
    if (n <= 0) return 0;
    memcpy(ours, k->early, sizeof ours);
    memcpy(theirs, k->mpi_early, sizeof theirs);
    return median(ours, n) / median(theirs, n);
}

static double mixed(rill_comm *comm, kind *kinds, int n) {
    double errors[CALLS / 2];
    uint64_t state = 5;
    for (int i = 0; i < CALLS; i++) {
        kind *k = &kinds[chance(&state) % (uint64_t)n];
        double predicted, time = call(comm, k, "auto", &predicted);
        if (++k->calls >= FIRST && k->calls <= LAST) k->early[k->calls - FIRST] = time;
        if (i < CALLS / 2) continue;
        errors[i - CALLS / 2] = fabs(predicted / time - 1);
        k->late[k->lates] = time;
        k->foretold[k->lates++] = predicted;
    }
    return median(errors, CALLS / 2);
}

typedef struct contest {
    int n; /* auto, and the fixed algorithms */
    const char *names[MOST_NAMES];
    rill_comm *comm[MOST_NAMES];
} contest;

static void enter(contest *c, const char *name, rill_comm *comm) {
    rill_config config = RILL_CONFIG_INIT;
    config.learn = "off";
    if (!comm) must(rill_comm_create(MPI_COMM_WORLD, &config, &comm), "comm");
    c->names[c->n] = name;
    c->comm[c->n++] = comm;
}

/* All in turns, each round in another order: who comes behind another finds its caches and the
 * state of its connections. The time of auto over the best. */
static double compare(const contest *c, kind *k) {
    static double times[MOST_NAMES][REPS];
    int best = 0, order[MOST_NAMES];
    uint64_t state = 17;
    for (int a = 0; a < c->n; a++)
        order[a] = a;
    for (int rep = -2; rep < REPS; rep++) /* the first two make room */
        for (int i = 0; i < c->n; i++) {
            int other = i + (int)(chance(&state) % (uint64_t)(c->n - i)), a = order[other];
            order[other] = order[i];
            order[i] = a;
            double time = call(c->comm[a], k, c->names[a], NULL);
            if (rep >= 0) times[a][rep] = time;
        }
    double medians[MOST_NAMES];
    rill_stats stats[2] = {RILL_STATS_INIT, RILL_STATS_INIT};
    for (int a = 0; a < c->n; a++) {
        medians[a] = median(times[a], REPS);
        if (a && (!best || medians[a] < medians[best])) best = a;
    }
    must(rill_comm_stats(c->comm[0], &stats[0]), "stats");
    must(rill_comm_stats(c->comm[best], &stats[1]), "stats");
    if (rank == 0)
        printf(
            "{\"dim\": %llu, \"nnz\": %llu, \"calls\": %d, \"auto\": \"%s, %s\", \"auto_s\": %.3e, "
            "\"best\": \"%s, %s\", \"best_s\": %.3e, \"auto_to_best\": %.3f, "
            "\"early_to_mpi\": %.3f, \"mixed_s\": %.3e, \"predicted_s\": %.3e, "
            "\"spread\": %.3f%s%s%s}\n",
            (unsigned long long)k->dim, (unsigned long long)k->nnz, k->calls, stats[0].algorithm,
            stats[0].codec, medians[0], c->names[best], stats[1].codec, medians[best],
            medians[0] / medians[best], early_to_mpi(k), median(k->late, k->lates),
            median(k->foretold, k->lates), spread(k), traces ? ", \"trace\": \"" : "", k->trace,
            traces ? "\"" : "");
    return medians[0] / medians[best];
}

int main(int argc, char **argv) {
    static const double densities[] = {0.0001, 0.01, 0.001, 0.1, 0.5};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int largest = argc > 1 ? atoi(argv[1]) : 22, n = 0;
    traces = argc > 2;
    static kind kinds[MOST_KINDS];
    for (int shift = 10; shift <= largest && n + 1 < MOST_KINDS; shift += 2) {
        make(&kinds[n], UINT64_C(1) << shift, densities[n % 5]);
        n++;
        make(&kinds[n], UINT64_C(3) << (shift - 1),
             densities[n % 5]); /* dimensions differ: kinds */
        n++;
    }
    rill_comm *learned = NULL;
    contest all = {0};
    const char *name, *about;
    must(rill_comm_create(MPI_COMM_WORLD, NULL, &learned), "comm");
    mixed_mpi(kinds, n);
    double error = mixed(learned, kinds, n), logs = 0, worst = 0;
    enter(&all, "auto", learned);
    for (int i = 0; all.n < MOST_NAMES && (name = rill_algorithm_at(RILL_ALLREDUCE, i, &about));
         i++)
        if (strcmp(name, "block") != 0 && (strcmp(name, "hier") != 0 || one_host()))
            enter(&all, name, NULL);
    for (int i = 0; i < n; i++) {
        logs += log(compare(&all, &kinds[i]));
        worst = fmax(worst, early_to_mpi(&kinds[i]));
    }
    if (rank == 0)
        printf("{\"ranks\": %d, \"kinds\": %d, \"calls\": %d, \"auto_to_best\": %.3f, "
               "\"median_error\": %.3f, \"worst_early_to_mpi\": %.3f}\n",
               ranks, n, CALLS, exp(logs / n), error, worst);
    for (int i = 0; i < n; i++) {
        rill_stream_free(&kinds[i].in);
        rill_stream_free(&kinds[i].out);
        free(kinds[i].dense);
        free(kinds[i].sum);
    }
    for (int i = all.n - 1; i >= 0; i--)
        must(rill_comm_free(&all.comm[i]), "free");
    MPI_Finalize();
    return 0;
}
