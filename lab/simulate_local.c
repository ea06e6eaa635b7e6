/* lab/simulate --local: many ranks in one process, on a virtual clock (src/link/world.h). Every
 * rank has data of its own and makes the real calls; messages take the latency and bandwidth that
 * are given, processors the planner's constants. */
#include "api/comm.h"
#include "link/world.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct options {
    int ranks, steps;
    uint64_t dim, k, seed;
    double latency, rate, density;
    const char *algorithms, *codec;
    int bits, no_compute, reducer;
} options;

/* What a rank has sent: bytes of entries, and of all headers, also those of messages within a
 * message. */
typedef struct counts {
    uint64_t entries, headers;
} counts;

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

static void count_message(counts *c, const char *at, size_t bytes) {
    rill__message m;
    if (rill__message_parse(at, bytes, NULL, false, &m) != RILL_OK) return;
    size_t payload = m.header.index_size + m.header.value_size;
    if (m.header.form != RILL__M_BUNDLE) {
        c->entries += payload;
        c->headers += bytes - payload;
        return;
    }
    c->headers += bytes - payload;
    size_t inside = 0;
    for (uint64_t i = 0; i < m.header.count && inside < payload; i++) {
        rill__header one;
        if (!rill__header_read(m.payload + inside, payload - inside, &one)) return;
        size_t whole = rill__message_size(&one);
        count_message(c, m.payload + inside, whole);
        c->headers += rill__message_padded(&one) - whole;
        inside += rill__message_padded(&one);
    }
}

static void spy(void *context, int from, int to, int tag, const void *message, size_t bytes) {
    simulation *s = context;
    (void)to;
    if (tag != RILL__TAG_NOTE) count_message(&s->counts[from], message, bytes);
}

static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
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
    s->counts[rank] = (counts){0, 0};
    return RILL_OK;
}

/* k indices of the rank, one in each of k ranges, and values. */
static rill_status fill(const simulation *s, int rank, rill_stream *stream) {
    uint64_t k = s->o.k, dim = s->o.dim;
    uint64_t *idx = malloc((k + 1) * sizeof *idx);
    float *val = malloc((k + 1) * sizeof *val);
    if (!idx || !val) abort();
    for (uint64_t i = 0; i < k; i++) {
        uint64_t first = i * dim / k, next = (i + 1) * dim / k;
        uint64_t h = mix(s->o.seed + (uint64_t)rank * UINT64_C(0x9e3779b97f4a7c15) + i);
        idx[i] = first + h % (next - first);
        val[i] = (float)(h >> 40) - 8388608.0f;
    }
    rill_status status = rill_stream_set_pairs64(stream, k, idx, val);
    free(idx);
    free(val);
    return status;
}

static rill_status run_allreduce(simulation *s, int rank, rill_comm *comm) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = s->algorithm;
    o.codec = s->o.codec;
    o.value_bits = s->o.bits;
    rill_stream *in = NULL, *out = NULL;
    RILL_TRY(rill_stream_create(RILL_F32, s->o.dim, &in));
    RILL_TRY(rill_stream_create(RILL_F32, s->o.dim, &out));
    RILL_TRY(fill(s, rank, in));
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

/* Normal enough: the sum of four uniform numbers, of the rank, the step and the index. */
static void make_gradient(simulation *s, int rank, int step) {
    uint64_t key = mix(s->o.seed * 1000003 + (uint64_t)rank) + (uint64_t)step;
    for (uint64_t i = 0; i < s->o.dim; i++) {
        uint64_t h = mix(key + i * UINT64_C(0x9e3779b97f4a7c15));
        int sum = (int)(h & 0xffff) + (int)(h >> 16 & 0xffff) + (int)(h >> 32 & 0xffff) +
                  (int)(h >> 48);
        s->gradient[i] = (float)(sum - 131070) / 37837.0f;
    }
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
        make_gradient(s, rank, i);
        if (status == RILL_OK) status = rill_reducer_step(reducer, s->gradient, s->update);
    }
    if (status == RILL_OK) status = rill_reducer_stats(reducer, &s->stats[rank]);
    rill_status freed = rill_reducer_free(&reducer);
    return status != RILL_OK ? status : freed;
}

static void run_rank(int rank, void *context) {
    simulation *s = context;
    rill__link *link = rill__world_link(s->world, rank);
    link->host[0] = (uint64_t)rank + 1; /* a host each */
    rill_comm *comm = NULL;
    rill_status status = rill__comm_open(link, NULL, NULL, &comm);
    if (status == RILL_OK) {
        rill__profile_network(&comm->planner.profile, s->o.latency, s->o.rate);
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
        entries += (double)s->counts[i].entries / s->o.ranks;
        headers += (double)s->counts[i].headers / s->o.ranks;
    }
    printf("%-18s %6d %12.6f %12.6f %14llu %12llu %14.0f %12.0f %9.2f\n", s->algorithm, s->o.ranks,
           s->seconds, s->stats[0].predicted_s, (unsigned long long)most,
           (unsigned long long)messages, entries, headers, real);
    fflush(stdout);
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
    rill__constants_default(&c, o->ranks, 1);
    rill__constants_network(&c, o->latency, o->rate);
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
    if (s.status == RILL_OK) print_row(&s, now_s() - start);
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
        case SEED: o->seed = strtoull(optarg, NULL, 0); break;
        case HELP: fputs(help, stdout); exit(0);
        default: return false;
        }
    o->k = (uint64_t)llround(o->density * (double)o->dim);
    return optind == argc && o->ranks >= 1 && o->ranks <= 1 << 16 && o->dim && o->k >= 1 &&
           o->k <= o->dim && o->latency >= 0 && o->rate > 0 && o->steps >= 1;
}

int main(int argc, char **argv) {
    options o = {.dim = 1 << 20,
                 .density = 1e-4,
                 .latency = 20e-6,
                 .rate = 9.56e9,
                 .algorithms = "all",
                 .codec = "raw",
                 .steps = 2,
                 .seed = 1};
    if (!read_options(argc, argv, &o)) {
        fputs(help, stderr);
        return 2;
    }
    setenv("RILL_PROFILE", "none", 1);
    printf("# dim %llu, %llu entries a rank, latency %g s, %g bit/s, codec %s, value_bits %d%s\n",
           (unsigned long long)o.dim, (unsigned long long)o.k, o.latency, o.rate, o.codec, o.bits,
           o.no_compute ? ", processors take no time" : "");
    printf("%-18s %6s %12s %12s %14s %12s %14s %12s %9s\n", "# algorithm", "ranks", "seconds",
           "predicted", "sent_bytes_max", "messages_max", "entries_bytes", "header_bytes", "cpu_s");
    return !simulate_all(&o);
}
