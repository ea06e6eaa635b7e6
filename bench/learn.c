/* What bench/learn runs on each rank: 200 mixed calls of `auto` for a user who has never tuned,
 * then `auto` beside every algorithm. Calls begin together and the slowest rank counts. One line a
 * kind, one for all. */
#include <math.h>
#include <mpi.h>
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 200, MOST_KINDS = 32, MOST_NAMES = 16, REPS = 21, FIRST = 2, LAST = 11 };

typedef struct kind {
    uint64_t dim, nnz;
    rill_stream *in, *out;
    float *dense, *sum;
    int calls;
    double early[LAST]; /* of calls FIRST to LAST */
    double mpi;
} kind;

static int rank, ranks;

static void must(rill_status status, const char *what) {
    if (status == RILL_OK) return;
    fprintf(stderr, "bench/learn: %s: %s\n", what, rill_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
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
    return slowest(stats.elapsed_s);
}

static void measure_mpi(kind *k) {
    double times[REPS];
    for (int i = 0; i < REPS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(k->dense, k->sum, (int)k->dim, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        times[i] = slowest(MPI_Wtime() - start);
    }
    k->mpi = median(times, REPS);
}

static double mixed(rill_comm *comm, kind *kinds, int n) {
    double errors[CALLS / 2];
    uint64_t state = 5;
    for (int i = 0; i < CALLS; i++) {
        kind *k = &kinds[chance(&state) % (uint64_t)n];
        double predicted, time = call(comm, k, "auto", &predicted);
        if (++k->calls >= FIRST && k->calls <= LAST) k->early[k->calls - FIRST] = time;
        if (i >= CALLS / 2) errors[i - CALLS / 2] = fabs(predicted / time - 1);
    }
    return median(errors, CALLS / 2);
}

/* auto and all algorithms in turns; the time of auto over the best. */
static double compare(rill_comm *learned, rill_comm *fixed, kind *k) {
    static double times[MOST_NAMES + 1][REPS];
    const char *names[MOST_NAMES], *name, *about;
    int n = 0, best = 0;
    for (int i = 0; n < MOST_NAMES && (name = rill_algorithm_at(RILL_ALLREDUCE, i, &about)); i++)
        if (strcmp(name, "block") != 0 && strcmp(name, "hier") != 0) names[n++] = name;
    for (int rep = -2; rep < REPS; rep++) /* the first two make room */
        for (int a = 0; a <= n; a++) {
            double time = a ? call(fixed, k, names[a - 1], NULL) : call(learned, k, "auto", NULL);
            if (rep >= 0) times[a][rep] = time;
        }
    double medians[MOST_NAMES + 1];
    rill_stats stats[2] = {RILL_STATS_INIT, RILL_STATS_INIT};
    must(rill_comm_stats(learned, &stats[0]), "stats");
    for (int a = 0; a <= n; a++) {
        medians[a] = median(times[a], REPS);
        if (a && (!best || medians[a] < medians[best])) best = a;
    }
    int early = k->calls < LAST ? k->calls - FIRST + 1 : LAST - FIRST + 1;
    double start = early > 0 ? median(k->early, early) : NAN;
    call(fixed, k, names[best - 1], NULL);
    must(rill_comm_stats(fixed, &stats[1]), "stats");
    if (rank == 0)
        printf(
            "{\"dim\": %llu, \"nnz\": %llu, \"calls\": %d, \"auto\": \"%s, %s\", \"auto_s\": %.3e, "
            "\"best\": \"%s, %s\", "
            "\"best_s\": %.3e, \"mpi_s\": %.3e, \"auto_to_best\": %.3f, \"early_to_mpi\": %.3f}\n",
            (unsigned long long)k->dim, (unsigned long long)k->nnz, k->calls, stats[0].algorithm,
            stats[0].codec, medians[0], names[best - 1], stats[1].codec, medians[best], k->mpi,
            medians[0] / medians[best], start / k->mpi);
    return medians[0] / medians[best];
}

int main(int argc, char **argv) {
    static const double densities[] = {0.0001, 0.01, 0.001, 0.1, 0.5};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int largest = argc > 1 ? atoi(argv[1]) : 22, n = 0;
    kind kinds[MOST_KINDS] = {{0}};
    for (int shift = 10; shift <= largest && n + 1 < MOST_KINDS; shift += 2) {
        make(&kinds[n], UINT64_C(1) << shift, densities[n % 5]);
        n++;
        make(&kinds[n], UINT64_C(3) << (shift - 1),
             densities[n % 5]); /* dimensions differ: kinds */
        n++;
    }
    rill_comm *learned = NULL, *fixed = NULL;
    rill_config config = RILL_CONFIG_INIT;
    config.learn = "off";
    must(rill_comm_create(MPI_COMM_WORLD, NULL, &learned), "comm");
    must(rill_comm_create(MPI_COMM_WORLD, &config, &fixed), "comm");
    for (int i = 0; i < n; i++)
        measure_mpi(&kinds[i]);
    double error = mixed(learned, kinds, n), logs = 0, worst = 0;
    for (int i = 0; i < n; i++) {
        logs += log(compare(learned, fixed, &kinds[i]));
        int early = kinds[i].calls < LAST ? kinds[i].calls - FIRST + 1 : LAST - FIRST + 1;
        double start = early > 0 ? median(kinds[i].early, early) / kinds[i].mpi : 0;
        if (start > worst) worst = start;
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
    must(rill_comm_free(&fixed), "free");
    must(rill_comm_free(&learned), "free");
    MPI_Finalize();
    return 0;
}
