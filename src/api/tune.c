/* rill_tune: measures allreduces of many sizes and densities by every algorithm, fits the constants of the
 * cost model to them (plan/fit.c), keeps how far the model is off at each, and writes the profile.
 *
 * Real calls rather than ping-pongs and loops: what a byte costs while all ranks send, sum and share
 * processors is what the planner has to know, and no other measurement gives it. */
#include "api/comm.h"
#include "plan/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL "rill_tune: "
#define DEFAULT_SECONDS 50.0
#define LONGEST 2.0 /* seconds of a call that is worth measuring */
#define PRELIMINARY_TIME 0.15
enum {
    LEAST_SAMPLES = 6,
    LEAST_CALLS = 2,
    MOST_CALLS = 15,
    MOST_SAMPLES = 400,
    MOST_ALGORITHMS = 16
};

typedef struct place {
    uint64_t dim;
    double density;
} place;

/* Small ones first, so that a slow network ends with those that it has time for; and first a few all over
 * the range. */
static const place places[] = {
    {1 << 12, 0.01}, {1 << 16, 0.01},  {1 << 16, 0.1},   {1 << 16, 0.001}, {1 << 16, 0.5},
    {1 << 16, 1e-4}, {1 << 20, 0.001}, {1 << 20, 0.01},  {1 << 20, 1e-4},  {1 << 20, 0.1},
    {1 << 18, 0.01}, {1 << 20, 0.5},   {1 << 18, 0.1},   {1 << 12, 0.1},   {1 << 24, 0.001},
    {1 << 24, 1e-4}, {1 << 24, 0.01},  {1 << 24, 0.1},   {1 << 22, 0.01},  {1 << 24, 0.5},
    {1 << 22, 0.1},  {1 << 18, 0.001}, {1 << 22, 0.001},
};
enum { PLACES = sizeof places / sizeof places[0], PRELIMINARY = 8 };

typedef struct tuning {
    rill_comm *comm;
    const rill_tune_options *options;
    double began, seconds;
    rill_stream *in, *out;
    uint32_t *idx;
    float *val;
    rill__sample *samples;
    int n;
    bool at_point[MOST_SAMPLES]; /* as auto would send it: its error becomes a point */
    double last[MOST_ALGORITHMS],
        last_work[MOST_ALGORITHMS]; /* of each algorithm: time, and of what */
} tuning;

static double now_of(const tuning *t) { return MPI_Wtime() - t->began; }

/* Decisions are rank 0's, so that all ranks take the same. */
static bool agreed(const tuning *t, bool mine) {
    int answer = mine;
    MPI_Bcast(&answer, 1, MPI_INT, 0, t->comm->engine.mpi);
    return answer != 0;
}

/* Sorted, one in each of nnz equal ranges: uniform enough, and made in one pass. */
static rill_status fill(tuning *t, uint64_t dim, uint64_t nnz) {
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(t->comm->engine.rank + 1) ^ nnz;
    for (uint64_t i = 0; i < nnz; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t first = dim * i / nnz, range = dim * (i + 1) / nnz - first;
        t->idx[i] = (uint32_t)(first + (state >> 33) % range);
        t->val[i] = (float)(int32_t)(state >> 40) * 0x1p-24f;
    }
    rill_stream_free(&t->in);
    rill_stream_free(&t->out);
    RILL_TRY(rill_stream_create(RILL_F32, dim, &t->in));
    RILL_TRY(rill_stream_create(RILL_F32, dim, &t->out));
    return rill_stream_set_pairs(t->in, nnz, t->idx, t->val);
}

static rill_status call_once(tuning *t, const rill_options *o, double *seconds) {
    MPI_Barrier(t->comm->engine.mpi);
    double start = MPI_Wtime();
    RILL_TRY(rill_allreduce(t->comm, t->in, t->out, RILL_SUM, o));
    double mine = MPI_Wtime() - start;
    MPI_Allreduce(&mine, seconds, 1, MPI_DOUBLE, MPI_MAX, t->comm->engine.mpi);
    return RILL_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of as many calls as a share of the time allows. */
static rill_status measure(tuning *t, const rill_options *o, double *median) {
    double times[MOST_CALLS], spent = 0, share = t->seconds / 250;
    int n = 0;
    double first;
    RILL_TRY(call_once(t, o, &first)); /* buffers grow; long calls count at once */
    if (first > share) times[n++] = first;
    while (n < LEAST_CALLS || (n < MOST_CALLS && spent < share)) {
        RILL_TRY(call_once(t, o, &times[n]));
        spent += times[n++];
        if (first > 3 * share) break;
    }
    qsort(times, (size_t)n, sizeof *times, ascending);
    *median = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
    return RILL_OK;
}

/* What ran, as the estimates see it: the request has been recycled, so it is put together again. */
static void keep(tuning *t, const rill__algorithm *a, uint64_t dim, uint64_t nnz, double seconds,
                 bool at_point) {
    const rill_stats *stats = &t->comm->last;
    int ranks = t->comm->engine.size;
    rill__settings settings = {.partition = RILL__UNIFORM};
    rill__observed seen = {.known = true, .nnz_sum = nnz * (unsigned)ranks, .nnz_max = nnz};
    if (!rill_stream_is_dense(t->out)) seen.result = rill_stream_nnz(t->out);
    if (t->n == MOST_SAMPLES) return;
    rill__sample *s = &t->samples[t->n];
    s->algorithm = a;
    s->seconds = fmax(seconds, 1e-9);
    s->problem = rill__plan_problem(&t->comm->planner, &settings, RILL_ALLREDUCE, ranks, dim,
                                    RILL_F32, RILL_SUM, &seen);
    const rill__index_codec *codec = rill__index_codec_by_name(stats->codec);
    rill__problem_code(&s->problem, codec ? codec : &rill__codec_raw, stats->value_bits);
    t->at_point[t->n++] = at_point;
}

/* Whether a call is likely to be over in time, judged by the algorithm's last one. */
static bool worth_it(const tuning *t, int algorithm, double work) {
    double left = t->seconds - now_of(t);
    double expected = t->last_work[algorithm] > 0
                          ? t->last[algorithm] * fmax(1, work / t->last_work[algorithm])
                          : 0;
    if (t->n < LEAST_SAMPLES) return true; /* a profile of nothing would be worse than a late one */
    return left > 0 && expected < LONGEST && expected * (LEAST_CALLS + 1) < left / 2;
}

static rill_status measure_algorithm(tuning *t, int index, uint64_t dim, uint64_t nnz) {
    const rill__algorithm *a = rill__algorithm_at(RILL_ALLREDUCE, index);
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = a->name;
    double work = a->posts_mpi_collective ? (double)dim : (double)nnz, seconds;
    if (!agreed(t, worth_it(t, index, work))) return RILL_OK;
    RILL_TRY(measure(t, &o, &seconds));
    keep(t, a, dim, nnz, seconds, true);
    t->last[index] = seconds;
    t->last_work[index] = work;
    return RILL_OK;
}

/* What codecs cost shows where the same call is sent in another way. */
static rill_status measure_codecs(tuning *t, uint64_t dim, uint64_t nnz) {
    static const struct {
        const char *codec;
        int bits;
    } ways[] = {{"raw", 0}, {"bitpack", 0}, {"elias_fano", 0}, {"bitmap", 0}, {"bitpack", 4}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        rill_options o = RILL_OPTIONS_INIT;
        o.algorithm = rill__allreduce_table[2]->name;
        o.codec = ways[i].codec;
        o.value_bits = ways[i].bits;
        double seconds;
        if (!agreed(t, worth_it(t, 2, (double)nnz))) return RILL_OK;
        RILL_TRY(measure(t, &o, &seconds));
        keep(t, rill__allreduce_table[2], dim, nnz, seconds, false);
    }
    return RILL_OK;
}

static rill_status measure_place(tuning *t, const place *at) {
    uint64_t dim = at->dim, nnz = rill__max_u64(1, (uint64_t)((double)dim * at->density));
    char what[80];
    if (!agreed(t, now_of(t) < t->seconds || t->n < LEAST_SAMPLES)) return RILL_OK;
    snprintf(what, sizeof what, "dimension %llu, density %g %%", (unsigned long long)dim,
             at->density * 100);
    if (t->comm->engine.rank == 0 && t->options->progress)
        t->options->progress(fmin(1, now_of(t) / t->seconds), what, t->options->context);
    int failed = fill(t, dim, nnz) != RILL_OK, any;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, t->comm->engine.mpi);
    if (any) return rill__fail(RILL_ERR_MEMORY, CALL "out of memory on a rank");
    for (int i = 0; i < MOST_ALGORITHMS && rill__algorithm_at(RILL_ALLREDUCE, i); i++) {
        const rill__algorithm *a = rill__algorithm_at(RILL_ALLREDUCE, i);
        rill__settings none = {.partition = RILL__UNIFORM};
        rill__observed seen = {.known = true, .nnz_sum = nnz, .nnz_max = nnz};
        rill__problem p = rill__plan_problem(&t->comm->planner, &none, RILL_ALLREDUCE,
                                             t->comm->engine.size, dim, RILL_F32, RILL_SUM, &seen);
        if (!rill__plan_considers(a, &p)) continue;
        /* MPI's sum does not depend on the entries, and they hardly weigh beside it. */
        bool needless = a->posts_mpi_collective && t->last_work[i] == (double)dim;
        if (!needless) RILL_TRY(measure_algorithm(t, i, dim, nnz));
    }
    bool codecs = dim == 1 << 20 && (at->density == 0.01 || at->density == 0.1);
    return codecs ? measure_codecs(t, dim, nnz) : RILL_OK;
}

/* Fits on rank 0's figures, which are the same everywhere; the constants then are, too. */
static double fit(tuning *t, rill__profile *profile) {
    double error = rill__fit(t->samples, t->n, &profile->constants);
    profile->points = 0;
    for (int i = 0; i < t->n && profile->points < RILL__POINTS; i++) {
        const rill__sample *s = &t->samples[i];
        double dim = (double)s->problem.dim,
               ratio = s->seconds / rill__fit_time(s, &profile->constants);
        if (!t->at_point[i]) continue;
        profile->point[profile->points++] = (rill__point){rill__name_hash(s->algorithm->name),
                                                          (float)log2(dim),
                                                          (float)log2(s->problem.nnz / dim),
                                                          (float)log(fmin(fmax(ratio, 0.01), 100))};
    }
    return error;
}

/* Not those of an older profile: what is measured must not depend on it. */
static rill_status start_constants(rill_comm *comm) {
    rill__profile *profile = &comm->planner.profile;
    double latency, rate;
    profile->points = 0;
    rill__constants_default(&profile->constants, comm->planner.hosts, profile->crowding);
    if (comm->planner.hosts == 1) return RILL_OK;
    RILL_TRY(rill__probe_network(comm->engine.mpi, &latency, &rate));
    rill__constants_network(&profile->constants, latency, rate);
    return RILL_OK;
}

/* Algorithms choose by the constants how to gather: the first few measurements only make these right. */
static void forget(tuning *t) {
    t->n = 0;
    memset(t->last_work, 0, sizeof t->last_work);
    memset(t->comm->planner.keys, 0,
           sizeof t->comm->planner.keys); /* choices of the old constants */
}

static rill_status run(tuning *t, rill_tune_report *report) {
    rill_comm *comm = t->comm;
    uint64_t largest = 1 << 23; /* entries: half of the largest dimension */
    t->idx = malloc(largest * sizeof *t->idx);
    t->val = malloc(largest * sizeof *t->val);
    t->samples = calloc(MOST_SAMPLES, sizeof *t->samples);
    int failed = !t->idx || !t->val || !t->samples, any;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, comm->engine.mpi);
    if (any) return rill__fail(RILL_ERR_MEMORY, CALL "out of memory");
    RILL_TRY(start_constants(comm));
    double seconds = t->seconds;
    t->seconds = seconds * PRELIMINARY_TIME;
    for (int i = 0; i < PRELIMINARY; i++)
        RILL_TRY(measure_place(t, &places[i]));
    rill__fit(t->samples, t->n, &comm->planner.profile.constants);
    MPI_Bcast(&comm->planner.profile, (int)sizeof comm->planner.profile, MPI_BYTE, 0,
              comm->engine.mpi);
    forget(t);
    t->seconds = seconds;
    for (int i = 0; i < PLACES; i++)
        RILL_TRY(measure_place(t, &places[i]));
    rill__profile *profile = malloc(sizeof *profile);
    if (!profile) return rill__fail(RILL_ERR_MEMORY, CALL "out of memory");
    *profile = comm->planner.profile;
    profile->ranks = comm->engine.size;
    profile->hosts = comm->planner.hosts;
    report->median_error = fit(t, profile);
    report->measured = t->n;
    profile->constants.doubt = 0.97;
    MPI_Bcast(profile, (int)sizeof *profile, MPI_BYTE, 0, comm->engine.mpi);
    report->latency_s = profile->constants.latency;
    report->bits_per_second = 8 / profile->constants.byte;
    struct {
        int32_t status;
        char error[400];
    } outcome = {0};
    if (comm->engine.rank == 0) {
        outcome.status = (int32_t)rill__profile_write(report->profile, profile);
        if (outcome.status) snprintf(outcome.error, sizeof outcome.error, "%s", rill_last_error());
    }
    MPI_Bcast(&outcome, (int)sizeof outcome, MPI_BYTE, 0, comm->engine.mpi);
    comm->planner.profile = *profile;
    free(profile);
    forget(t);
    return outcome.status ? rill__fail((rill_status)outcome.status, CALL "%s", outcome.error)
                          : RILL_OK;
}

rill_status rill_tune(rill_comm *comm, const rill_tune_options *options, rill_tune_report *report) {
    static const rill_tune_options unset = RILL_TUNE_OPTIONS_INIT;
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, CALL "comm is NULL");
    if (!report) return rill__fail(RILL_ERR_ARGUMENT, CALL "report is NULL");
    if (!options) options = &unset;
    if (comm->engine.size < 2)
        return rill__fail(RILL_ERR_ARGUMENT,
                          CALL "one rank has nothing to send: at least 2 are needed");
    if (options->seconds < 0)
        return rill__fail(RILL_ERR_ARGUMENT, CALL "seconds = %g is negative", options->seconds);
    *report = (rill_tune_report)RILL_TUNE_REPORT_INIT;
    const char *set = comm->defaults.profile;
    const char *named = options->profile                     ? options->profile
                        : set[0] && strcmp(set, "none") != 0 ? set
                                                             : NULL;
    if (named) snprintf(report->profile, sizeof report->profile, "%s", named);
    else rill__profile_path(report->profile, sizeof report->profile);
    MPI_Bcast(report->profile, (int)sizeof report->profile, MPI_CHAR, 0, comm->engine.mpi);
    if (!report->profile[0])
        return rill__fail(RILL_ERR_ARGUMENT,
                          CALL "no file to write: neither profile nor HOME is set");
    tuning t = {.comm = comm,
                .options = options,
                .began = MPI_Wtime(),
                .seconds = options->seconds > 0 ? options->seconds : DEFAULT_SECONDS};
    rill_status status = run(&t, report);
    rill_stream_free(&t.in);
    rill_stream_free(&t.out);
    free(t.idx);
    free(t.val);
    free(t.samples);
    return status;
}
