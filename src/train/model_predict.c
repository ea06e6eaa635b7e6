/* Predictions of a model, and how good they are. */
#include "train/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static rill_status null_argument(const char *call, const char *name) {
    return rill__data_fail(RILL_ERR_ARGUMENT, "%s: %s is NULL", call, name);
}

rill_status rill_model_look(const rill_model *m, rill_model_view *view) {
    if (!m || !view) return null_argument("rill_model_look", m ? "view" : "model");
    if (view->size < sizeof(size_t) || view->size > sizeof *view)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_model_look: view.size = %zu", view->size);
    rill_model_view full = {.size = view->size,
                            .solver_type = m->solver_type,
                            .regression = m->regression,
                            .probability = m->probability,
                            .features = m->features,
                            .columns = m->columns,
                            .labels = m->labels,
                            .label = m->label,
                            .bias = m->bias,
                            .weight = m->weight};
    memcpy(view, &full, view->size);
    return RILL_OK;
}

/* In the order of LIBLINEAR's sums, so that decisions are the same to the bit. */
static void decide(const rill_model *m, const rill_data_view *d, uint64_t row, double *z) {
    uint64_t columns = (uint64_t)m->columns;
    memset(z, 0, (size_t)columns * sizeof *z);
    for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++) {
        uint64_t j = d->index32 ? d->index32[e] : d->index64[e];
        if (j >= m->features) break;
        for (uint64_t c = 0; c < columns; c++)
            z[c] += m->weight[j * columns + c] * (double)d->value[e];
    }
    double square = m->by_length ? rill__row_square(d, row) : 0;
    for (uint64_t c = 0; square > 0 && c < columns; c++)
        z[c] /= sqrt(square);
    if (m->bias >= 0)
        for (uint64_t c = 0; c < columns; c++)
            z[c] += m->weight[m->features * columns + c] * m->bias;
}

static double label_of(const rill_model *m, const double *z) {
    if (m->regression) return z[0];
    if (m->columns == 1) return z[0] > 0 ? m->label[0] : m->label[1];
    int best = 0;
    for (int c = 1; c < m->columns; c++)
        if (z[c] > z[best]) best = c;
    return m->label[best];
}

rill_status rill_model_predict(const rill_model *m, const rill_dataset *set, double *decision,
                               double *predicted) {
    if (!m || !set) return null_argument("rill_model_predict", m ? "set" : "model");
    rill_data_view d = RILL_DATA_VIEW_INIT;
    RILL_TRY_DATA(rill_dataset_view(set, &d));
    double *z = malloc((size_t)m->columns * sizeof *z);
    if (!z) return rill__data_memory("decision values");
    for (uint64_t i = 0; i < d.rows; i++) {
        decide(m, &d, i, z);
        if (decision)
            memcpy(decision + i * (uint64_t)m->columns, z, (size_t)m->columns * sizeof *z);
        if (predicted) predicted[i] = label_of(m, z);
    }
    free(z);
    return RILL_OK;
}

static double of_sigmoid(const rill_model *m, int c, double z) {
    return 1 / (1 + exp(m->sigmoid[2 * c] * z + m->sigmoid[2 * c + 1]));
}

rill_status rill_model_probabilities(const rill_model *m, const double *decision,
                                     double *probability) {
    if (!m || !decision || !probability)
        return null_argument("rill_model_probabilities", !m ? "model" : "an array");
    if (!m->probability)
        return rill__data_fail(
            RILL_ERR_UNSUPPORTED,
            "a model of type %s has no probabilities: the loss must be logistic, or "
            "the model be calibrated",
            m->solver_type);
    double sum = 0, most = decision[0];
    for (int c = 1; c < m->columns; c++)
        most = fmax(most, decision[c]);
    for (int c = 0; c < m->columns; c++)
        sum += probability[c] = m->sigmoid   ? of_sigmoid(m, c, decision[c])
                                : m->softmax ? exp(decision[c] - most)
                                             : 1 / (1 + exp(-decision[c]));
    if (m->columns == 1) probability[1] = 1 - probability[0];
    else
        for (int c = 0; c < m->columns; c++)
            probability[c] = sum > 0 ? probability[c] / sum : 1.0 / m->columns;
    return RILL_OK;
}

/* ---- metrics -------------------------------------------------------------------------------- */

typedef struct scored {
    double score;
    double positive;
} scored;

static int by_score(const void *a, const void *b) {
    double x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x > y) - (x < y);
}

/* Rank sum of the positives; those of one score share the mean of their ranks. */
static double area(scored *all, uint64_t n) {
    double sum = 0, positives = 0;
    qsort(all, (size_t)n, sizeof *all, by_score);
    for (uint64_t i = 0; i < n;) {
        uint64_t end = i;
        double tied = 0;
        for (; end < n && all[end].score == all[i].score; end++)
            tied += all[end].positive;
        sum += tied * ((double)(i + end + 1) / 2);
        positives += tied;
        i = end;
    }
    double negatives = (double)n - positives;
    if (positives == 0 || negatives == 0) return NAN;
    return (sum - positives * (positives + 1) / 2) / (positives * negatives);
}

rill_status rill__train_auc(rill_comm *comm, uint64_t n, const double *score,
                            const uint8_t *positive, double *auc) {
    int rank = rill_comm_rank(comm), ranks = rill_comm_size(comm);
    uint64_t total = n, bytes = n * sizeof(scored);
    RILL_TRY_DATA(rill__sum_u64(comm, &total, 1));
    *auc = NAN;
    if (total > INT32_MAX / 2) /* scores meet on rank 0 */
        return RILL_OK;
    scored *pairs = malloc(((size_t)n + 1) * sizeof *pairs), *all = NULL;
    uint64_t *counts = malloc((size_t)ranks * sizeof *counts);
    if (rank == 0) all = malloc(((size_t)total + 1) * sizeof *all);
    rill_status status = pairs && counts && (all || rank) ? RILL_OK : rill__data_memory("the AUC");
    status = rill__data_agree(comm, status);
    if (status == RILL_OK) {
        for (uint64_t i = 0; i < n; i++)
            pairs[i] = (scored){score[i], positive[i] ? 1 : 0};
        status = rill_comm_gather_bytes(comm, &bytes, sizeof bytes, counts);
        if (status == RILL_OK) status = rill__gather_all(comm, pairs, counts, all);
        if (status == RILL_OK && rank == 0) *auc = area(all, total);
        if (status == RILL_OK) status = rill_comm_bcast_bytes(comm, auc, sizeof *auc, 0);
    }
    free(pairs);
    free(all);
    free(counts);
    return status;
}

enum { RIGHT, ERRORS, ROWS, LOSS, TARGETS, SQUARES, UNKNOWN, SUMS };

static int find_label(const rill_model *m, double label) {
    for (int i = 0; i < m->labels; i++)
        if (m->label[i] == label) return i;
    return -1;
}

/* Adds a row; p has room for the probabilities. */
static void measure_row(const rill_model *m, const double *z, double label, double *p, double *sums,
                        double *unknown) {
    sums[RIGHT] += !m->regression && label_of(m, z) == label;
    sums[ERRORS] += (z[0] - label) * (z[0] - label);
    sums[TARGETS] += label;
    sums[SQUARES] += label * label;
    int at = m->regression ? 0 : find_label(m, label);
    if (at < 0) {
        sums[UNKNOWN]++;
        *unknown = fmin(*unknown, label);
    } else if (m->probability && rill_model_probabilities(m, z, p) == RILL_OK)
        sums[LOSS] -= log(fmax(p[at], 1e-300));
}

static void conclude(const rill_model *m, const double *sums, double unknown,
                     rill_metrics *metrics) {
    double rows = sums[ROWS], mean = sums[TARGETS] / rows, known = rows - sums[UNKNOWN];
    double variance = sums[SQUARES] / rows - mean * mean;
    metrics->rows = (uint64_t)rows;
    metrics->accuracy = m->regression ? NAN : sums[RIGHT] / rows;
    metrics->mse = m->regression ? sums[ERRORS] / rows : NAN;
    metrics->r2 = m->regression && variance > 0 ? 1 - metrics->mse / variance : NAN;
    metrics->log_loss = m->probability && !m->regression && known > 0 ? sums[LOSS] / known : NAN;
    metrics->unknown_rows = (uint64_t)sums[UNKNOWN];
    metrics->unknown_label = sums[UNKNOWN] > 0 ? unknown : NAN;
    metrics->auc = NAN;
}

static rill_status measure(rill_comm *comm, const rill_model *m, const rill_dataset *set,
                           rill_metrics *metrics) {
    rill_data_view d = RILL_DATA_VIEW_INIT;
    RILL_TRY_DATA(rill_dataset_view(set, &d)); /* cannot fail: set is one */
    double *z = malloc(2 * ((size_t)m->columns + 2) * sizeof *z);
    double *score = malloc(((size_t)d.rows + 1) * sizeof *score);
    uint8_t *positive = malloc((size_t)d.rows + 1);
    rill_status status = z && score && positive ? RILL_OK : rill__data_memory("metrics");
    double sums[SUMS] = {0}, unknown = INFINITY;
    sums[ROWS] = (double)d.rows;
    for (uint64_t i = 0; status == RILL_OK && i < d.rows; i++) {
        decide(m, &d, i, z);
        score[i] = z[0];
        positive[i] = m->labels && d.label[i] == m->label[0];
        measure_row(m, z, d.label[i], z + m->columns + 2, sums, &unknown);
    }
    status = rill__data_agree(comm, status);
    double minus_least = -unknown;
    if (status == RILL_OK) status = rill__sum_f64(comm, sums, SUMS);
    if (status == RILL_OK) status = rill__most_f64(comm, &minus_least, 1);
    if (status == RILL_OK) {
        conclude(m, sums, -minus_least, metrics);
        if (m->labels == 2 && m->columns == 1)
            status = rill__train_auc(comm, d.rows, score, positive, &metrics->auc);
    }
    free(z);
    free(score);
    free(positive);
    return status;
}

static rill_status check_evaluate(const rill_model *m, const rill_dataset *set,
                                  const rill_metrics *metrics) {
    if (!m || !set || !metrics)
        return null_argument("rill_model_evaluate", !m ? "model" : !set ? "set" : "metrics");
    if (metrics->size < sizeof(size_t) || metrics->size > sizeof *metrics)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_model_evaluate: metrics.size = %zu",
                               metrics->size);
    return RILL_OK;
}

rill_status rill_model_evaluate_on(rill_comm *comm, const rill_model *m, const rill_dataset *set,
                                   rill_metrics *metrics) {
    rill_metrics full = RILL_METRICS_INIT;
    RILL_TRY_DATA(rill__data_agree(comm, check_evaluate(m, set, metrics)));
    RILL_TRY_DATA(measure(comm, m, set, &full));
    full.size = metrics->size;
    memcpy(metrics, &full, full.size);
    return RILL_OK;
}
