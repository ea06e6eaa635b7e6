/* Per step: how many entries were selected, and xi of Ok-Topk's Assumption 1:
 *   || Topk(mean over ranks of acc) - update || = xi || mean over ranks of fed ||
 * with acc = residual + fed, what a rank selects from. Beside it the count that Gaussian-k's rule
 * as published would select from the same acc: all above mean +- z sigma, with z from the normal
 * law. */
#include "trace.h"

#include <math.h>
#include <stdlib.h>

struct trace {
    MPI_Comm comm;
    FILE *json;
    const char *model;
    uint64_t dim, k;
    float *acc, *mean; /* mean: of acc over the ranks */
    double fed_norm, gaussian;
    rill_selector *top;
    rill_stream *best;
};

void trace_free(trace *t) {
    if (!t) return;
    rill_selector_free(&t->top);
    rill_stream_free(&t->best);
    free(t->acc);
    free(t->mean);
    free(t);
}

trace *trace_create(MPI_Comm comm, FILE *json, const char *model, uint64_t dim, uint64_t k) {
    trace *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    *t = (trace){.comm = comm, .json = json, .model = model, .dim = dim, .k = k};
    t->acc = malloc(dim * sizeof *t->acc);
    t->mean = malloc(dim * sizeof *t->mean);
    rill_select_options options = RILL_SELECT_OPTIONS_INIT;
    options.k = k;
    if (t->acc && t->mean && !rill_selector_create(RILL_F32, dim, &options, &t->top) &&
        !rill_stream_create(RILL_F32, dim, &t->best))
        return t;
    trace_free(t);
    return NULL;
}

static double gaussian_count(const trace *t) {
    double sum = 0, squares = 0, low = 0, high = 40, count = 0;
    for (uint64_t i = 0; i < t->dim; i++) {
        sum += t->acc[i];
        squares += (double)t->acc[i] * t->acc[i];
    }
    double n = (double)t->dim, mean = sum / n, sigma = sqrt(fmax(squares / n - mean * mean, 0));
    for (int i = 0; i < 60; i++) {
        double z = 0.5 * (low + high);
        *(erfc(z / sqrt(2)) > (double)t->k / n ? &low : &high) = z;
    }
    for (uint64_t i = 0; i < t->dim; i++)
        count += fabs(t->acc[i] - mean) > high * sigma;
    return count;
}

void trace_before(trace *t, const rill_reducer *reducer, const float *fed) {
    const float *residual = rill_reducer_residual(reducer);
    int ranks, n = (int)t->dim;
    MPI_Comm_size(t->comm, &ranks);
    MPI_Allreduce(fed, t->mean, n, MPI_FLOAT, MPI_SUM, t->comm);
    t->fed_norm = 0;
    for (uint64_t i = 0; i < t->dim; i++) {
        t->fed_norm += (double)t->mean[i] * t->mean[i];
        t->acc[i] = residual[i] + fed[i];
    }
    t->fed_norm = sqrt(t->fed_norm) / ranks;
    MPI_Allreduce(t->acc, t->mean, n, MPI_FLOAT, MPI_SUM, t->comm);
    for (uint64_t i = 0; i < t->dim; i++)
        t->mean[i] /= (float)ranks;
    t->gaussian = gaussian_count(t);
}

void trace_after(trace *t, const rill_reducer *reducer, const char *method, int step,
                 const float *update) {
    int rank, ranks;
    double difference = 0, k = (double)t->k;
    rill_stats stats = RILL_STATS_INIT;
    MPI_Comm_rank(t->comm, &rank);
    MPI_Comm_size(t->comm, &ranks);
    rill_reducer_stats(reducer, &stats);
    rill_select(t->top, t->mean, t->best);
    rill_stream_get_dense(t->best, t->acc);
    for (uint64_t i = 0; i < t->dim; i++)
        difference += pow((double)t->acc[i] - update[i], 2);
    double selected = (double)stats.selected_k;
    double sums[] = {selected, fabs(selected - k) / k, t->gaussian, fabs(t->gaussian - k) / k};
    MPI_Allreduce(MPI_IN_PLACE, sums, 4, MPI_DOUBLE, MPI_SUM, t->comm);
    if (rank || !t->json) return;
    fprintf(t->json,
            "{\"model\":\"%s\",\"method\":\"%s\",\"step\":%d,\"k\":%.0f,\"selected_k\":%.1f,"
            "\"selected_off\":%.5f,\"gaussian_rule_k\":%.1f,\"gaussian_rule_off\":%.5f,"
            "\"nnz_out\":%llu,\"nnz_out_off\":%.5f,\"xi\":%.5f}\n",
            t->model, method, step, k, sums[0] / ranks, sums[1] / ranks, sums[2] / ranks,
            sums[3] / ranks, (unsigned long long)stats.nnz_out, fabs((double)stats.nnz_out - k) / k,
            sqrt(difference) / t->fed_norm);
}
