/* Batch and averages of sgd by the network, for who asks for that.
 *
 * Idea: the batch is small, as accuracy asks for. On a slow network the sums of such batches take
 * many times as long as the rows. Then ranks make steps of their own, with batches smaller still,
 * and average what they changed: up to eight times an epoch where that takes no longer than the
 * rows, else less often, but once. What a sum takes is the planner's estimate, which knows the
 * network from a profile or from a few messages; what rows take is a constant. Averages must pay
 * twice over.
 * They are for ranks whose rows are alike: where labels or targets of a rank are others than those
 * of all, as in a file that is sorted by them, each rank would walk its own way. And they are for
 * sparse rows, of one problem: with dense ones, or many classes, they predict worse.
 * Restriction: adagrad, exact sums at once. Estimates without a profile are of messages of this
 * run, and near the edge of a class of networks another run may choose otherwise.
 * Memory: a batch's entries; a bit for each feature. Cost: two sums, of a batch's size at most, or
 * twice each where the algorithm is given; and a pass over the indices where the network is slow.
 */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_AVERAGES = 8, HALVES = 4, FEW_ENTRIES = 16 };
enum { FINER = 5 };                 /* batches of ranks that go alone, than those of one rank */
static const double entry_s = 1e-8; /* of a row, both ways; 8 to 30 ns were measured */
static const double worth = 2;
/* Of the rows that would have to change for labels as all ranks have them; of a label's share; of a
 * mean in standard deviations. */
static const double strange = 0.1, strange_label = 0.5;
static const double sparse = 0.25; /* of the features, in a row */

typedef struct pace {
    double rows, most_rows; /* of a rank: the mean, and the most */
    double entries;         /* of a row, times columns */
    double shortest;        /* a sum of a few entries */
    double sum;             /* of a batch */
    double changed[HALVES]; /* weights, by the first eighth of the rows, quarter, half, by all */
} pace;

static bool is_open(const rill_trainer *t) {
    const rill_train_options *o = &t->options;
    return o->local_steps == RILL_STEPS_AUTO && !o->batch && t->team.ranks > 1 &&
           t->objective.columns == 1 && t->objective.n <= UINT32_MAX / 2;
}

/* Entries of a batch on each rank, none of them another's. */
static rill_status spread(const rill_trainer *t, uint64_t entries, rill_stream **out) {
    uint64_t n = t->objective.n, rank = (uint64_t)t->team.rank, ranks = (uint64_t)t->team.ranks;
    uint32_t *index = malloc((size_t)entries * sizeof *index);
    float *value = malloc((size_t)entries * sizeof *value);
    rill_status status = index && value ? rill_stream_create(RILL_F32, n, out)
                                        : rill__data_memory("a batch");
    double step = (double)n / (double)entries;
    for (uint64_t i = 0; status == RILL_OK && i < entries; i++) {
        index[i] = (uint32_t)(step * ((double)i + (double)rank / (double)ranks));
        value[i] = 1;
    }
    if (status == RILL_OK) status = rill_stream_set_pairs(*out, entries, index, value);
    free(index);
    free(value);
    return status;
}

/* All ranks: the planner's estimate of a sum of so many entries of each. */
static rill_status estimate(rill_trainer *t, uint64_t entries, double *seconds) {
    rill_stream *stream = NULL;
    rill_stats stats = RILL_STATS_INIT;
    rill_options how = RILL_OPTIONS_INIT;
    how.partition = "balanced"; /* as exchanges have it */
    RILL_TRY_DATA(rill__team_comm(&t->team));
    rill_status status = RILL_OK;
    /* Of the first sum of a kind nothing is known where the algorithm is forced; of the second it
     * is. */
    for (int i = 0; i < 2 && status == RILL_OK && stats.predicted_s == 0; i++) {
        status = rill__data_agree(t->team.talk, spread(t, entries, &stream));
        if (status == RILL_OK)
            status = rill_allreduce(t->team.comm, stream, stream, RILL_SUM, &how);
        if (status == RILL_OK) status = rill_comm_stats(t->team.comm, &stats);
        rill_stream_free(&stream);
    }
    *seconds = stats.predicted_s;
    return status == RILL_OK ? rill__most_f64(t->team.talk, seconds, 1) : status;
}

static rill_status count_entries(rill_trainer *t, pace *p) {
    const rill__part_rows *rows = &t->objective.rows;
    double sums[2] = {(double)rows->n, 0};
    for (uint64_t i = 0; i < rows->n; i++) {
        uint64_t row = rill__row_at(rows, i);
        sums[1] += (double)(rows->data.row[row + 1] - rows->data.row[row]);
    }
    p->most_rows = sums[0];
    RILL_TRY_DATA(rill__sum_f64(t->team.talk, sums, 2));
    RILL_TRY_DATA(rill__most_f64(t->team.talk, &p->most_rows, 1));
    p->rows = sums[0] / t->team.ranks;
    p->entries = sums[1] / sums[0] * t->objective.columns;
    return RILL_OK;
}

/* By how much the mean target of these rows is too far from that of all; 0 or less: it is not. */
static double strange_targets(const double *all, const double *mine) {
    double mean = all[0] / all[2], own = mine[0] / mine[2];
    double deviation = sqrt(fmax(all[1] / all[2] - mean * mean, 0));
    return fabs(own - mean) - strange * deviation - 4 * deviation / sqrt(mine[2]);
}

static double strange_labels(const double *all, const double *mine, int labels) {
    double rows = mine[labels], apart = 0, by_chance = 0, worst = 0;
    for (int c = 0; c < labels; c++) {
        double share = all[c] / all[labels], off = fabs(mine[c] / rows - share);
        apart += off / 2;
        by_chance += sqrt(share / rows) / 2;
        worst = fmax(worst, off - strange_label * share - 4 * sqrt(share / rows));
    }
    return fmax(worst, apart - strange - 2 * by_chance);
}

/* Whether the labels, or the mean target, of each rank are about those of all. */
static rill_status look_alike(rill_trainer *t, bool *alike) {
    const rill__objective *o = &t->objective;
    int n = o->regression ? 3 : o->labels + 1; /* the last is the number of rows */
    double *all = calloc((size_t)n, sizeof *all), *mine = calloc((size_t)n, sizeof *mine), far = 0;
    rill_status status = all && mine ? RILL_OK : rill__data_memory("the labels' shares");
    for (uint64_t i = 0; status == RILL_OK && i < o->rows.n; i++) {
        float target = o->rows.target[rill__row_at(&o->rows, i)];
        if (!o->regression) all[(int)target]++;
        else all[0] += target, all[1] += (double)target * target;
        all[n - 1]++;
    }
    status = rill__data_agree(t->team.talk, status);
    if (status == RILL_OK) memcpy(mine, all, (size_t)n * sizeof *all);
    if (status == RILL_OK) status = rill__sum_f64(t->team.talk, all, n);
    if (status == RILL_OK && mine[n - 1] > 0)
        far = o->regression ? strange_targets(all, mine) : strange_labels(all, mine, o->labels);
    free(all);
    free(mine);
    if (status == RILL_OK) status = rill__most_f64(t->team.talk, &far, 1);
    *alike = !(far > 0);
    return status;
}

static rill_status count_changed(rill_trainer *t, pace *p) {
    const rill__objective *o = &t->objective;
    const rill_data_view *d = &o->rows.data;
    uint64_t *seen = calloc((size_t)(o->features / 64 + 1), sizeof *seen);
    rill_status status = seen ? RILL_OK : rill__data_memory("the features of a part");
    RILL_TRY_DATA(rill__data_agree(t->team.talk, status));
    double changed = 0;
    for (uint64_t i = 0, half = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++) {
            uint64_t *word = &seen[d->index32[e] >> 6], bit = UINT64_C(1) << (d->index32[e] & 63);
            changed += !(*word & bit);
            *word |= bit;
        }
        for (; half < HALVES && (i + 1) * MOST_AVERAGES >= o->rows.n << half; half++)
            p->changed[half] = changed * o->columns;
    }
    free(seen);
    RILL_TRY_DATA(rill__sum_f64(t->team.talk, p->changed, HALVES));
    for (int half = 0; half < HALVES; half++)
        p->changed[half] /= t->team.ranks;
    return RILL_OK;
}

/* Seconds of an epoch's averages; two numbers travel of a weight. */
static double averaging(const pace *p, double batch_entries, int half) {
    double each = (p->sum - p->shortest) / batch_entries;
    return (MOST_AVERAGES >> half) * (p->shortest + 2 * p->changed[half] * fmax(each, 0));
}

static rill_status choose(rill_trainer *t, double batch) {
    pace p = {0};
    RILL_TRY_DATA(count_entries(t, &p));
    double entries = floor(fmin(batch * p.entries, 0.5 * (double)t->objective.n));
    if (entries < 1) return RILL_OK;
    RILL_TRY_DATA(estimate(t, (uint64_t)fmin(entries, FEW_ENTRIES), &p.shortest));
    p.sum = p.shortest;
    if (entries > FEW_ENTRIES) RILL_TRY_DATA(estimate(t, (uint64_t)entries, &p.sum));
    double computing = p.rows * p.entries * entry_s, exact = p.rows / batch * p.sum;
    bool dense = p.entries > sparse * (double)t->objective.features;
    if (dense || computing + exact < worth * computing) return RILL_OK;
    bool alike;
    RILL_TRY_DATA(look_alike(t, &alike));
    if (!alike) return RILL_OK;
    RILL_TRY_DATA(count_changed(t, &p));
    int half = 0;
    while (half + 1 < HALVES && averaging(&p, entries, half) > computing)
        half++;
    if (computing + exact < worth * (computing + averaging(&p, entries, half))) return RILL_OK;
    double averages = MOST_AVERAGES >> half;
    uint64_t of_one = t->options.batch / (FINER * (uint64_t)t->team.ranks);
    t->options.batch = of_one < 1 ? 1 : of_one;
    t->options.local_steps = (uint64_t)ceil(p.most_rows / (double)t->options.batch / averages);
    return RILL_OK;
}

rill_status rill__train_pace(rill_trainer *t) {
    bool open = is_open(t);
    if (t->options.local_steps == RILL_STEPS_AUTO) t->options.local_steps = 0;
    if (!t->options.batch)
        t->options.batch = rill__train_batch(t->objective.total_rows, t->team.ranks);
    return open ? choose(t, (double)t->options.batch) : RILL_OK;
}
