/* lab/simulate --local: many ranks in one process, on a virtual clock (src/link/world.h). Every
 * rank has data of its own and makes the real calls; messages take the latency and bandwidth that
 * are given, processors the planner's constants. */
#include "api/comm.h"
#include "counts.h"
#include "formulas.h"
#include "inputs.h"
#include "link/world.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Unions of random inputs are off by this, at most. */
static const double FORMULA_TOLERANCE = 0.01;

typedef struct options {
    int ranks, steps;
    uint64_t dim, k, seed;
    double latency, rate, density;
    const char *algorithms, *codec;
    int bits, no_compute, reducer;
    int per_host, formulas;
    uint64_t block;
} options;

typedef struct simulation {
    options o;
    const char *algorithm;
    rill__world *world;
    rill_comm **comms;
    double *starts;           /* of each rank: where its clock stood */
    float *gradient, *update; /* of whose turn it is: steps read and write them at once */
    rill_stats *stats;
    counts *counts; /* of each rank, in the last step */
    rill_status status;
    char error[300];
    double seconds; /* of the slowest rank */
} simulation;

static void spy(void *context, int from, int to, int tag, const void *message, size_t bytes) {
    simulation *s = context;
    (void)to;
    if (tag != RILL__TAG_NOTE) counts_add(&s->counts[from], message, bytes);
}

static void fail(simulation *s, rill_status status) {
    if (s->status == RILL_OK) snprintf(s->error, sizeof s->error, "%s", rill_last_error());
    if (s->status == RILL_OK) s->status = status;
}

/* All ranks meet, and go on at the same time: some while after the last has come, so that nobody
 * has gone on before. */
static rill_status start_together(simulation *s, int rank) {
    double start = rill__world_clock(s->world, rank);
    RILL_TRY(rill__link_most(rill__world_link(s->world, rank), &start, 1));
    start = floor(start) + 10;
    rill__world_work(s->world, start - rill__world_clock(s->world, rank));
    rill__world_yield(s->world);
    s->starts[rank] = start;
    s->counts[rank] = (counts){0};
    return RILL_OK;
}

static rill_status run_allreduce(simulation *s, int rank, rill_comm *comm) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = s->algorithm;
    o.codec = s->o.codec;
    o.value_bits = s->o.bits;
    o.block = s->o.block;
    rill_stream *in = NULL, *out = NULL;
    RILL_TRY(rill_stream_create(RILL_F32, s->o.dim, &in));
    RILL_TRY(rill_stream_create(RILL_F32, s->o.dim, &out));
    RILL_TRY(input_fill(in, s->o.dim, s->o.k, s->o.seed, rank));
    rill_status status = RILL_OK;
    for (int i = 0; i < s->o.steps && status == RILL_OK; i++) { /* the last is taken */
        status = start_together(s, rank);
        if (status == RILL_OK) status = rill_allreduce(comm, in, out, RILL_SUM, &o);
    }
    if (status == RILL_OK) status = rill_comm_stats(comm, &s->stats[rank]);
    rill_stream_free(&in);
    rill_stream_free(&out);
    return status;
}

static rill_status run_reducer(simulation *s, int rank, rill_comm *comm) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = s->algorithm;
    o.codec = s->o.codec;
    o.value_bits = s->o.bits;
    o.k = s->o.k;
    o.nonfinite = "pass"; /* no copy of the gradient is kept */
    rill_reducer *reducer = NULL;
    rill_status status = rill_reducer_create(comm, RILL_F32, s->o.dim, &o, &reducer);
    for (int i = 0; i < s->o.steps && status == RILL_OK; i++) {
        status = start_together(s, rank);
        input_gradient(s->gradient, s->o.dim, s->o.seed, rank, i);
        if (status == RILL_OK) status = rill_reducer_step(reducer, s->gradient, s->update);
    }
    if (status == RILL_OK) status = rill_reducer_stats(reducer, &s->stats[rank]);
    rill_status freed = rill_reducer_free(&reducer);
    return status != RILL_OK ? status : freed;
}

static void run_rank(int rank, void *context) {
    simulation *s = context;
    rill__link *link = rill__world_link(s->world, rank);
    link->host[0] = (uint64_t)(rank / s->o.per_host) + 1;
    rill_comm *comm = NULL;
    rill_status status = rill__comm_open(link, NULL, NULL, &comm);
    if (status == RILL_OK) {
        rill__network network = {.latency = s->o.latency, .rate = s->o.rate};
        rill__constants_network(&comm->planner.profile.constants, &network);
        status = s->o.reducer ? run_reducer(s, rank, comm) : run_allreduce(s, rank, comm);
        s->seconds = fmax(s->seconds, rill__world_clock(s->world, rank) - s->starts[rank]);
    }
    if (status != RILL_OK) fail(s, status);
    rill_comm_free(&comm);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_row(const simulation *s, double real) {
    uint64_t most = 0, messages = 0;
    double entries = 0, headers = 0;
    for (int i = 0; i < s->o.ranks; i++) {
        const rill_stats *x = &s->stats[i];
        if (x->sent_bytes > most) most = x->sent_bytes;
        if (x->messages > messages) messages = x->messages;
        entries += (double)counts_entries(&s->counts[i]) / s->o.ranks;
        headers += (double)counts_headers(&s->counts[i]) / s->o.ranks;
    }
    printf("%-18s %6d %12.6f %12.6f %14llu %12llu %14.0f %12.0f %9.2f\n", s->algorithm, s->o.ranks,
           s->seconds, s->stats[0].predicted_s, (unsigned long long)most,
           (unsigned long long)messages, entries, headers, real);
    fflush(stdout);
}

/* Bytes of a rank in the mean, by kind, and what they should be. */
static void print_formula(simulation *s) {
    const options *o = &s->o;
    counts all = counts_sum(s->counts, o->ranks);
    formula_call call = {.ranks = o->ranks,
                         .per_host = o->per_host,
                         .dim = o->dim,
                         .k = o->k,
                         .block = o->block,
                         .seed = o->seed,
                         .result = s->stats[0].nnz_out,
                         .parts = all.parts};
    formula f;
    double ranks = o->ranks;
    if (!formula_of(s->algorithm, o->reducer, &call, &f)) {
        printf("%-18s %6d has no formula\n", s->algorithm, o->ranks);
        return;
    }
    double sent = (double)(f.in_words ? all.words : all.pairs);
    double off = sent / f.closed - 1;
    bool right = f.most ? off <= 0 : fabs(off) <= FORMULA_TOLERANCE;
    right &= f.exact == 0 || sent == f.exact;
    right &= f.parts == 0 || (double)all.parts == f.parts;
    printf("%-18s %6d %14.1f %14.1f %14.1f %8.4f %10.1f %10.1f %8.1f %8.1f %10.1f  %s  %s\n",
           s->algorithm, o->ranks, sent / ranks, f.exact / ranks, f.closed / ranks, 1 + off,
           (double)all.rounding / ranks, f.in_words ? 0 : (double)all.words / ranks,
           (double)all.parts / ranks, (double)all.headers / (double)all.parts,
           (double)all.bundling / ranks, right ? "yes" : "NO ", f.words);
    fflush(stdout);
    if (!right && s->status == RILL_OK) s->status = RILL_ERR_STATE;
}

/* Of the processor: the machine may have other things to do. */
static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- one algorithm --------------------------------------------------------------------------- */

static void *memory(size_t n, size_t bytes) {
    void *at = calloc(n, bytes);
    if (at) return at;
    fprintf(stderr, "out of memory\n");
    exit(1);
}

static bool simulate(const options *o, const char *algorithm) {
    rill__constants c;
    rill__constants_default(&c, o->ranks, 1, 1);
    rill__constants_network(&c, &(rill__network){.latency = o->latency, .rate = o->rate});
    /* A pair is 8 bytes: written once where it is sent, summed where it is received. */
    rill__world_options w = {.kind = RILL__TIMED,
                             .ranks = o->ranks,
                             .latency = o->latency,
                             .byte = 8 / o->rate,
                             .message = o->no_compute ? 0 : c.message,
                             .send_work = o->no_compute ? 0 : c.copy,
                             .receive_work = o->no_compute ? 0 : c.merge / 8};
    simulation s = {.o = *o, .algorithm = algorithm};
    size_t n = (size_t)o->ranks;
    s.starts = memory(n, sizeof *s.starts);
    s.stats = memory(n, sizeof *s.stats);
    s.counts = memory(n, sizeof *s.counts);
    w.spy = spy;
    w.spy_context = &s;
    for (size_t i = 0; i < n; i++)
        s.stats[i].size = sizeof s.stats[i];
    if (o->reducer) {
        s.gradient = memory(o->dim + 64, sizeof *s.gradient);
        s.update = memory(o->dim + 64, sizeof *s.update);
    }
    double start = now_s();
    rill_status status = rill__world_create(&w, &s.world);
    if (status == RILL_OK) status = rill__world_run(s.world, run_rank, &s);
    if (status != RILL_OK) fail(&s, status);
    if (s.status == RILL_OK && o->formulas) print_formula(&s);
    else if (s.status == RILL_OK) print_row(&s, now_s() - start);
    else printf("%-18s %6d %s\n", algorithm, o->ranks, s.error);
    if (status == RILL_OK) rill__world_free(s.world);
    free(s.starts);
    free(s.stats);
    free(s.counts);
    free(s.gradient);
    free(s.update);
    return s.status == RILL_OK || s.status == RILL_ERR_UNSUPPORTED;
}

static bool simulate_all(const options *o) {
    bool good = true;
    rill_collective table = o->reducer ? RILL_REDUCER : RILL_ALLREDUCE;
    if (strcmp(o->algorithms, "all") == 0) {
        for (int i = 0; rill_algorithm_at(table, i, NULL); i++)
            good &= simulate(o, rill_algorithm_at(table, i, NULL));
        return good;
    }
    char *list = strdup(o->algorithms), *rest = list;
    for (const char *name; list && (name = strsep(&rest, ",")) != NULL;)
        good &= simulate(o, name);
    free(list);
    return good;
}

/* ---- command line ---------------------------------------------------------------------------- */

static const char help[] =
    "usage: lab/simulate --local --ranks P [OPTION...]\n"
    "Time and bytes of a call on P ranks in one process, on a virtual clock.\n"
    "  --ranks P        number of ranks, each on a host of its own\n"
    "  --dim N          entries of the vectors (1048576)\n"
    "  --density D      share of them that each rank has, or that a reducer selects (0.0001)\n"
    "  --algorithm LIST names with commas between them, or all (all)\n"
    "  --reducer        steps of a reducer, in place of allreduce\n"
    "  --latency S      seconds of a message on its way (20e-6)\n"
    "  --rate BITS      bits per second in and out of each rank (9.56e9)\n"
    "  --codec NAME     of indices (raw)\n"
    "  --value-bits B   of values (0)\n"
    "  --steps N        calls; the last is printed (2)\n"
    "  --no-compute     processors take no time\n"
    "  --per-host N     ranks of a host (1)\n"
    "  --block B        entries of a block, for the algorithm block (256)\n"
    "  --formulas       bytes of entries beside the formulas of the papers, and beside what "
    "follows\n"
    "                   from the inputs, which must be equal; in place of times\n"
    "  --seed S         of the data (1)\n";

static uint64_t read_count(const char *text) {
    if (strncmp(text, "2^", 2) == 0) return UINT64_C(1) << atoi(text + 2);
    return strtoull(text, NULL, 10);
}

static bool read_options(int argc, char **argv, options *o) {
    enum {
        RANKS = 1,
        DIM,
        DENSITY,
        ALGORITHM,
        REDUCER,
        LATENCY,
        RATE,
        CODEC,
        BITS,
        STEPS,
        NO_COMPUTE,
        PER_HOST,
        BLOCK,
        FORMULAS,
        SEED,
        HELP
    };
    static const struct option names[] = {{"ranks", 1, NULL, RANKS},
                                          {"dim", 1, NULL, DIM},
                                          {"density", 1, NULL, DENSITY},
                                          {"algorithm", 1, NULL, ALGORITHM},
                                          {"reducer", 0, NULL, REDUCER},
                                          {"latency", 1, NULL, LATENCY},
                                          {"rate", 1, NULL, RATE},
                                          {"codec", 1, NULL, CODEC},
                                          {"value-bits", 1, NULL, BITS},
                                          {"steps", 1, NULL, STEPS},
                                          {"no-compute", 0, NULL, NO_COMPUTE},
                                          {"per-host", 1, NULL, PER_HOST},
                                          {"block", 1, NULL, BLOCK},
                                          {"formulas", 0, NULL, FORMULAS},
                                          {"seed", 1, NULL, SEED},
                                          {"help", 0, NULL, HELP},
                                          {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (c) {
        case RANKS: o->ranks = atoi(optarg); break;
        case DIM: o->dim = read_count(optarg); break;
        case DENSITY: o->density = strtod(optarg, NULL); break;
        case ALGORITHM: o->algorithms = optarg; break;
        case REDUCER: o->reducer = 1; break;
        case LATENCY: o->latency = strtod(optarg, NULL); break;
        case RATE: o->rate = strtod(optarg, NULL); break;
        case CODEC: o->codec = optarg; break;
        case BITS: o->bits = atoi(optarg); break;
        case STEPS: o->steps = atoi(optarg); break;
        case NO_COMPUTE: o->no_compute = 1; break;
        case PER_HOST: o->per_host = atoi(optarg); break;
        case BLOCK: o->block = read_count(optarg); break;
        case FORMULAS: o->formulas = 1; break;
        case SEED: o->seed = strtoull(optarg, NULL, 0); break;
        case HELP: fputs(help, stdout); exit(0);
        default: return false;
        }
    o->k = (uint64_t)llround(o->density * (double)o->dim);
    return optind == argc && o->ranks >= 1 && o->ranks <= 1 << 16 && o->dim && o->k >= 1 &&
           o->k <= o->dim && o->latency >= 0 && o->rate > 0 && o->steps >= 1 && o->block &&
           o->per_host >= 1 && o->ranks % o->per_host == 0;
}

int main(int argc, char **argv) {
    options o = {.dim = 1 << 20,
                 .density = 1e-4,
                 .latency = 20e-6,
                 .rate = 9.56e9,
                 .algorithms = "all",
                 .codec = "raw",
                 .steps = 2,
                 .per_host = 1,
                 .block = 256,
                 .seed = 1};
    if (!read_options(argc, argv, &o)) {
        fputs(help, stderr);
        return 2;
    }
    setenv("RILL_PROFILE", "none", 1);
    printf("# dim %llu, %llu entries a rank, latency %g s, %g bit/s, codec %s, value_bits %d%s\n",
           (unsigned long long)o.dim, (unsigned long long)o.k, o.latency, o.rate, o.codec, o.bits,
           o.no_compute ? ", processors take no time" : "");
    if (o.formulas)
        printf("%-18s %6s %14s %14s %14s %8s %10s %10s %8s %8s %10s  %s\n", "# algorithm", "ranks",
               "sent_bytes", "counted", "formula", "ratio", "rounding", "agreed", "messages",
               "header", "bundling", "right");
    else
        printf("%-18s %6s %12s %12s %14s %12s %14s %12s %9s\n", "# algorithm", "ranks", "seconds",
               "predicted", "sent_bytes_max", "messages_max", "entries_bytes", "header_bytes",
               "cpu_s");
    return !simulate_all(&o);
}
