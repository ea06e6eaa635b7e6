/* Trains one model by several reducers, from the same start, on the same batches and with the same
 * learning rates, and writes JSON lines: loss and accuracy against steps and bytes.
 *
 * Every rank computes the gradient of its batch, times the learning rate, and gives it to the
 * reducer; the update is subtracted from the weights. The rate falls linearly to 0. */
#include "model.h"
#include "trace.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: convergence logistic|network [OPTION...]\n"
    "  --data FOLDER     news20-12gram.*.svm.xz, or the unpacked idx files of Fashion-MNIST\n"
    "  --methods A,B,..  default: all\n"
    "  --steps N --batch N (of a rank) --rate X --momentum X --density X --seed N\n"
    "  --warmup N        steps of each stage (25, 7.25, 1.5 %) before the final density\n"
    "  --every N         steps between records\n"
    "  --stop N          end after so many of the steps that the learning rate is planned for\n"
    "  --trace           instead: selected counts and xi of every step\n"
    "  --json FILE       default: standard output\n";

typedef struct method {
    const char *name, *algorithm, *select;
    int value_bits, feedback;
} method;

/* topk and below: the exact sum of what the ranks selected, in a fixed order of summation. */
static const method methods[] = {
    {"dense", "dense", NULL, 0, 1},
    {"topk", "split_allgather", "topk", 0, 1},
    {"gtopk", "gtopk", NULL, 0, 1},
    {"oktopk", "oktopk", NULL, 0, 1},
    {"spardl", "spardl", NULL, 0, 1},
    {"threshold", "split_allgather", "threshold", 0, 1},
    {"gaussian", "split_allgather", "gaussian", 0, 1},
    {"bucket", "split_allgather", "bucket", 0, 1},
    {"block", "block", "block", 0, 1},
    {"topk+qsgd8", "split_allgather", "topk", 8, 1},
    {"topk+qsgd4", "split_allgather", "topk", 4, 1},
    {"topk+qsgd2", "split_allgather", "topk", 2, 1},
    {"dsar+qsgd4", "dsar", "topk", 4, 1},
    {"s2", "s2", NULL, 0, 1},
    {"s2-published", "s2", NULL, 0, 0}, /* without feedback */
};
enum { METHODS = sizeof methods / sizeof *methods };

typedef struct setting {
    const char *model, *data, *methods, *json;
    int steps, stop, every, trace;
    uint64_t batch, warmup, seed;
    double rate, momentum, density;
} setting;

typedef struct run {
    const setting *set;
    const model *model;
    const method *method;
    rill_comm *comm;
    rill_reducer *reducer;
    float *weight, *gradient, *update;
    uint64_t *order; /* of this rank's rows */
    FILE *out;
    double sent, selected; /* bytes so far; entries since the last record */
    double selected_k;     /* mean in that record */
    int recorded;          /* its step */
} run;

/* The batch of a step: the same for all methods. Epochs are permutations by seed, epoch and rank.
 */
static const uint64_t *batch_at(run *r, int step) {
    uint64_t rows = r->model->rows, batch = r->set->batch;
    uint64_t per_epoch = rows / batch, at = (uint64_t)step % per_epoch;
    uint64_t epoch = (uint64_t)step / per_epoch;
    for (uint64_t i = 0; at == 0 && i < rows; i++)
        r->order[i] = i;
    uint64_t seed = r->set->seed * 1000003 + epoch * 1009 + (uint64_t)rill_comm_rank(r->comm);
    for (uint64_t i = rows; at == 0 && i > 1; i--) {
        uint64_t j = random_bits(seed, i) % i, other = r->order[j];
        r->order[j] = r->order[i - 1];
        r->order[i - 1] = other;
    }
    return r->order + at * batch;
}

static void record(run *r, int step, bool final) {
    const setting *set = r->set;
    rill_stats stats = RILL_STATS_INIT;
    tally t = {0, 0, 0, 0};
    int ranks = rill_comm_size(r->comm), steps = step > r->recorded ? step - r->recorded : 1;
    r->model->test(r->weight, final, &t);
    double sums[] = {t.loss, t.trained, t.right, t.tested, r->selected / steps / ranks}, most;
    MPI_Allreduce(MPI_IN_PLACE, sums, 5, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&r->sent, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    rill_reducer_stats(r->reducer, &stats);
    r->recorded = step;
    if (!final) r->selected_k = sums[4]; /* the last record repeats it */
    r->selected = 0;
    if (rill_comm_rank(r->comm)) return;
    char loss[32] = "null"; /* diverged: JSON has no NaN */
    if (isfinite(sums[0])) snprintf(loss, sizeof loss, "%.6f", sums[0] / sums[1]);
    fprintf(r->out,
            "{\"model\":\"%s\",\"method\":\"%s\",\"step\":%d,\"final\":%s,\"train_loss\":%s,"
            "\"test_accuracy\":%.5f,\"sent_bytes\":%.0f,\"sent_bytes_per_step\":%.0f,"
            "\"selected_k\":%.1f,\"algorithm\":\"%s\",\"codec\":\"%s\",\"ranks\":%d,\"dim\":%llu,"
            "\"density\":%g,\"steps\":%d,\"batch\":%llu,\"rate\":%g,\"momentum\":%g,"
            "\"warmup\":%llu,\"seed\":%llu}\n",
            set->model, r->method->name, step, final ? "true" : "false", loss, sums[2] / sums[3],
            most, step ? most / step : 0.0, r->selected_k, stats.algorithm, stats.codec, ranks,
            (unsigned long long)r->model->dim, set->density, set->steps,
            (unsigned long long)set->batch, set->rate, set->momentum,
            (unsigned long long)set->warmup, (unsigned long long)set->seed);
    fflush(r->out);
}

static rill_status take_step(run *r, int step, trace *t) {
    const setting *set = r->set;
    float rate = (float)(set->rate * (set->steps - step) / set->steps);
    r->model->gradient(r->weight, set->batch, batch_at(r, step), r->gradient);
    for (uint64_t i = 0; i < r->model->dim; i++)
        r->gradient[i] *= rate;
    if (t) trace_before(t, r->reducer, r->gradient);
    rill_status status = rill_reducer_step(r->reducer, r->gradient, r->update);
    if (status) return status;
    for (uint64_t i = 0; i < r->model->dim; i++)
        r->weight[i] -= r->update[i];
    if (t) trace_after(t, r->reducer, r->method->name, step, r->update);
    rill_stats stats = RILL_STATS_INIT;
    rill_reducer_stats(r->reducer, &stats);
    r->sent += (double)stats.sent_bytes;
    r->selected += (double)stats.selected_k;
    return RILL_OK;
}

static rill_status train(run *r) {
    const setting *set = r->set;
    static const double stages[] = {0.25, 0.0725, 0.015};
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = r->method->algorithm;
    o.select = r->method->select;
    o.value_bits = r->method->value_bits;
    o.feedback = r->method->feedback;
    o.density = set->density;
    o.momentum = set->momentum;
    o.warmup = stages;
    o.warmup_stages = 3;
    o.warmup_steps = set->warmup;
    o.seed = set->seed;
    rill_status status = rill_reducer_create(r->comm, RILL_F32, r->model->dim, &o, &r->reducer);
    if (status) return status;
    trace *t = NULL;
    if (set->trace) {
        uint64_t k = (uint64_t)(set->density * (double)r->model->dim + 0.5);
        t = trace_create(MPI_COMM_WORLD, r->out, set->model, r->model->dim, k);
        if (!t) return RILL_ERR_MEMORY;
    }
    r->model->start(r->weight, set->seed);
    r->sent = r->selected = r->recorded = 0;
    for (int step = 0; !status && step < set->stop; step++) {
        if (!t && step % set->every == 0) record(r, step, false);
        status = take_step(r, step, t);
    }
    if (!status && !t) record(r, set->stop, false);
    if (!status && !t) record(r, set->stop, true);
    trace_free(t);
    rill_status freed = rill_reducer_free(&r->reducer);
    return status ? status : freed;
}

static bool wanted(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
    return false;
}

static int run_all(const setting *set, const model *m, rill_comm *comm) {
    run r = {.set = set, .model = m, .comm = comm};
    int failed = 0, rank = rill_comm_rank(comm), left = 1;
    r.weight = malloc(m->dim * sizeof *r.weight);
    r.gradient = malloc(m->dim * sizeof *r.gradient);
    r.update = malloc(m->dim * sizeof *r.update);
    r.order = malloc(m->rows * sizeof *r.order);
    r.out = rank || !set->json ? stdout : fopen(set->json, "w");
    bool ready = r.weight && r.gradient && r.update && r.order && r.out;
    if (!ready) fprintf(stderr, "convergence: no memory, or no %s\n", set->json);
    if (m->rows < set->batch) fprintf(stderr, "convergence: --batch is more than a rank has\n");
    int good = ready && m->rows >= set->batch;
    MPI_Allreduce(&good, &left, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (int i = 0; left && i < METHODS; i++) {
        r.method = &methods[i];
        if (set->methods && !wanted(set->methods, methods[i].name)) continue;
        rill_status status = train(&r);
        if (!status) continue;
        failed = 1;
        rill_reducer_free(&r.reducer);
        if (!rank) fprintf(stderr, "convergence: %s: %s\n", methods[i].name, rill_last_error());
    }
    if (r.out && r.out != stdout) fclose(r.out);
    free(r.weight);
    free(r.gradient);
    free(r.update);
    free(r.order);
    return !left || failed;
}

static bool parse(int argc, char **argv, setting *set) {
    static const struct option options[] = {
        {"data", 1, NULL, 'd'},    {"methods", 1, NULL, 'm'}, {"steps", 1, NULL, 'n'},
        {"batch", 1, NULL, 'b'},   {"rate", 1, NULL, 'r'},    {"momentum", 1, NULL, 'u'},
        {"density", 1, NULL, 'k'}, {"seed", 1, NULL, 's'},    {"warmup", 1, NULL, 'w'},
        {"every", 1, NULL, 'e'},   {"stop", 1, NULL, 'o'},    {"trace", 0, NULL, 't'},
        {"json", 1, NULL, 'j'},    {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'd': set->data = optarg; break;
        case 'm': set->methods = optarg; break;
        case 'n': set->steps = atoi(optarg); break;
        case 'b': set->batch = strtoull(optarg, NULL, 10); break;
        case 'r': set->rate = atof(optarg); break;
        case 'u': set->momentum = atof(optarg); break;
        case 'k': set->density = atof(optarg); break;
        case 's': set->seed = strtoull(optarg, NULL, 10); break;
        case 'w': set->warmup = strtoull(optarg, NULL, 10); break;
        case 'e': set->every = atoi(optarg); break;
        case 't': set->trace = 1; break;
        case 'o': set->stop = atoi(optarg); break;
        case 'j': set->json = optarg; break;
        default: return false;
        }
    }
    if (optind != argc - 1) return false;
    set->model = argv[optind];
    if (set->stop <= 0 || set->stop > set->steps) set->stop = set->steps;
    return set->steps > 0 && set->every > 0 && set->batch > 0 && set->rate > 0 &&
           (strcmp(set->model, "logistic") == 0 || strcmp(set->model, "network") == 0);
}

int main(int argc, char **argv) {
    setting set = {.data = ".",
                   .steps = 1000,
                   .every = 50,
                   .batch = 32,
                   .rate = 0.1,
                   .density = 0.01,
                   .seed = 1};
    MPI_Init(&argc, &argv);
    rill_comm *comm = NULL;
    model m;
    char reason[256] = "";
    int status = 2;
    if (!parse(argc, argv, &set)) {
        fputs(usage, stderr);
    } else if (rill_comm_create(MPI_COMM_WORLD, NULL, &comm)) {
        fprintf(stderr, "convergence: %s\n", rill_last_error());
    } else if (!(strcmp(set.model, "logistic") == 0
                     ? model_logistic_load(MPI_COMM_WORLD, set.data, &m, reason)
                     : model_network_load(MPI_COMM_WORLD, set.data, &m, reason))) {
        status = 77;
        if (!rill_comm_rank(comm)) fprintf(stderr, "convergence: skipped: %s\n", reason);
    } else {
        status = run_all(&set, &m, comm);
        m.free();
    }
    rill_comm_free(&comm);
    MPI_Finalize();
    return status;
}
