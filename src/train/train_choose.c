/* C from the data: how much a row counts against the regularisation; and whether the rate of 1/t
 * falls.
 *
 * Idea: train with C = 1, then with ten times as much, and so on, each for a few epochs on four
 * fifths of the rows; go on while the loss of the last fifth falls by a two-hundredth at least. If
 * ten is no better than one, the same downwards. With the C that was found, adagrad is tried
 * without a falling rate, if the options leave that open: on text, whose features are mostly rare,
 * its own decay is enough; with few features it leaves noise. A fifth of few rows is a poor judge:
 * then it is the mean over several random splits (Monte Carlo cross-validation: Picard, Cook,
 * Cross-validation of regression models, 1984). The rows that the options hold out for validation
 * take no part: what is measured on them stays honest. The order of tries is that of LIBLINEAR's
 * parameter search (Chu, Ho, Tsai, Lin, Lin, Warm start for parameter selection of linear
 * classifiers, 2015): from strong to weak regularisation, until it stops to pay; the loss is asked,
 * and not the accuracy, since it is less grainy where rows are few. Neither the rate that training
 * starts with nor the number of epochs is chosen so: the loss asks for larger rates, and on some
 * sets for fewer epochs, than predict best. Of large data a sample is taken, by the number of the
 * row in the file, so that all numbers of ranks try the same rows. C need not grow with the rows:
 * it is a weight of each.
 * Restriction: exact sums, whatever the training itself will send.
 * Memory: a copy of the sample, and a trainer at a time. Cost: some 7 tries of 3 epochs on 20,000
 * rows at most.
 */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_ROWS = 25000, MOST_ENTRIES = 1 << 24, LEAST_ROWS = 100, EPOCHS = 3 };
/* Splits of small data: as many as have SPLIT_ROWS rows together. */
enum { MOST_SPLITS = 5, SPLIT_ROWS = 5000 };
static const double held_out = 0.2, factor = 10, gain = 0.005, least_C = 1e-4, most_C = 1e6;

typedef struct search {
    rill_comm *comm;
    const void *mpi;
    rill_dataset *sample;
    rill_train_options options;
    uint64_t seed; /* of the first split */
    int splits;
    rill_C_choice *choice;
    double best; /* loss */
} search;

/* Whether a row is in the sample: neither held out by the options nor left out. */
static bool is_chosen(const rill_train_options *o, uint64_t row, double share) {
    const uint64_t other = UINT64_C(0x5bd1e995); /* another draw than the options' split */
    if (o->valid_fraction > 0 && rill_row_is_held_out(row, o->valid_fraction, o->seed))
        return false;
    return share >= 1 || rill_row_is_held_out(row, share, o->seed ^ other);
}

static double sample_share(const rill_data_view *view, const rill_dataset *train) {
    rill_data_report report = RILL_DATA_REPORT_INIT;
    rill_dataset_report(train, &report);
    double share = MOST_ROWS / (double)(view->total_rows + 1);
    return fmin(share, MOST_ENTRIES / (double)(report.entries + 1));
}

/* This rank's part of the sample; its arrays are the caller's to free. */
static rill_status copy_sample(const rill_data_view *from, const rill_train_options *o,
                               double share, rill_data_view *to, void *arrays[4]) {
    uint64_t rows = 0, entries = 0;
    for (uint64_t i = 0; i < from->rows; i++) {
        if (!is_chosen(o, from->first_row + i, share)) continue;
        rows++;
        entries += from->row[i + 1] - from->row[i];
    }
    uint64_t *row = arrays[0] = malloc(((size_t)rows + 1) * sizeof *row);
    uint32_t *index = arrays[1] = malloc(((size_t)entries + 1) * sizeof *index);
    float *value = arrays[2] = malloc(((size_t)entries + 1) * sizeof *value);
    double *label = arrays[3] = malloc(((size_t)rows + 1) * sizeof *label);
    if (!row || !index || !value || !label) return rill__data_memory("rows to choose C by");
    row[0] = rows = entries = 0;
    for (uint64_t i = 0; i < from->rows; i++) {
        if (!is_chosen(o, from->first_row + i, share)) continue;
        uint64_t first = from->row[i], n = from->row[i + 1] - first;
        memcpy(index + entries, from->index32 + first, (size_t)n * sizeof *index);
        memcpy(value + entries, from->value + first, (size_t)n * sizeof *value);
        label[rows++] = from->label[i];
        row[rows] = entries += n;
    }
    *to = (rill_data_view)RILL_DATA_VIEW_INIT;
    to->dim = from->dim;
    to->rows = rows;
    to->row = row;
    to->index32 = index;
    to->value = value;
    to->label = label;
    return RILL_OK;
}

static rill_status take_sample(search *s, const rill_dataset *train) {
    rill_data_view from = RILL_DATA_VIEW_INIT, to = RILL_DATA_VIEW_INIT;
    void *arrays[4] = {NULL};
    RILL_TRY_DATA(rill_dataset_view(train, &from));
    if (from.dim >= UINT32_MAX) return RILL_OK; /* the trainer itself will complain */
    if (!s->options.batch) {                    /* as the training will have it */
        double rows = (1 - s->options.valid_fraction) * (double)from.total_rows;
        s->options.batch = rill__train_batch((uint64_t)rows, rill_comm_size(s->comm));
    }
    rill_status status = copy_sample(&from, &s->options, sample_share(&from, train), &to, arrays);
    status = rill__data_agree(s->comm, status);
    if (status == RILL_OK) status = rill_dataset_create_on(s->comm, &to, &s->sample);
    for (int i = 0; i < 4; i++)
        free(arrays[i]);
    return status;
}

/* The loss on the rows that a split holds out; infinite if training fails for its numbers. *able:
 * there was a training. */
static rill_status try_split(search *s, int split, bool *able, double *loss) {
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    rill_trainer *trainer = NULL;
    s->options.seed = s->seed ^ (odd * (uint64_t)split);
    *loss = INFINITY;
    rill_status status = rill__trainer_create(s->comm, s->mpi, s->sample, NULL, &s->options,
                                              &trainer);
    for (uint64_t e = 0; status == RILL_OK && e < EPOCHS && !report.converged; e++)
        status = rill_trainer_epoch(trainer, &report);
    if (status == RILL_OK && isfinite(report.valid_loss)) *loss = report.valid_loss;
    *able = trainer != NULL;
    if (trainer) s->choice->rows = trainer->objective.total_rows;
    rill_trainer_free(&trainer);
    return status == RILL_ERR_STATE ? RILL_OK : status;
}

/* The mean over the splits; one of few rows may hold out all that have some label, and does not
 * count then. */
static rill_status try_one(search *s, double C, double decay, double *loss) {
    rill_C_choice *choice = s->choice;
    double sum = 0;
    int able_splits = 0;
    rill_status first = RILL_OK;
    *loss = INFINITY;
    s->options.C = C;
    s->options.decay = decay;
    for (int split = 0; split < s->splits && isfinite(sum); split++) {
        bool able = false;
        double one;
        rill_status status = try_split(s, split, &able, &one);
        if (able && status != RILL_OK) return status;
        if (status == RILL_ERR_MEMORY || status == RILL_ERR_MPI) return status;
        if (split == 0) first = status;
        if (!able) continue;
        sum += one;
        able_splits++;
    }
    if (!able_splits) return first;
    *loss = sum / able_splits;
    choice->tried[choice->tries] = C;
    choice->tried_decay[choice->tries] = decay;
    choice->loss[choice->tries++] = *loss;
    return RILL_OK;
}

static rill_status walk(search *s, double by) {
    for (double C = s->choice->C * by; C > 0.5 * least_C && C < 2 * most_C; C *= by) {
        double loss;
        RILL_TRY_DATA(try_one(s, C, s->choice->decay, &loss));
        if (!(loss < (1 - gain) * s->best)) break;
        s->best = loss;
        s->choice->C = C;
    }
    return RILL_OK;
}

static bool may_try_decay(const rill_train_options *o) {
    return o->decay < 0 && (!o->solver || !strcmp(o->solver, "sgd")) &&
           (!o->optimizer || !strcmp(o->optimizer, "adagrad")) &&
           (!o->schedule || !strcmp(o->schedule, "1/t"));
}

static rill_status try_constant_rate(search *s) {
    double loss;
    RILL_TRY_DATA(try_one(s, s->choice->C, 0, &loss));
    if (loss < (1 - gain) * s->best) s->choice->decay = 0;
    return RILL_OK;
}

static rill_status choose(search *s) {
    rill_data_report report = RILL_DATA_REPORT_INIT;
    bool try_decay = may_try_decay(&s->options);
    if (s->sample) rill_dataset_report(s->sample, &report);
    if (report.rows < LEAST_ROWS) return RILL_OK;
    uint64_t splits = SPLIT_ROWS / report.rows;
    s->splits = splits < 1 ? 1 : splits > MOST_SPLITS ? MOST_SPLITS : (int)splits;
    rill_status status = try_one(s, 1, s->choice->decay, &s->best);
    /* What is wrong with the options or the labels is told by the training itself. */
    if (!s->choice->tries && status != RILL_ERR_MEMORY && status != RILL_ERR_MPI) return RILL_OK;
    RILL_TRY_DATA(status);
    RILL_TRY_DATA(walk(s, factor));
    if (s->choice->C == 1) RILL_TRY_DATA(walk(s, 1 / factor));
    return try_decay ? try_constant_rate(s) : RILL_OK;
}

static rill_status check_choose(const rill_dataset *train, const rill_train_options *given,
                                const rill_C_choice *out) {
    if (!train || !out || out->size < sizeof(size_t) || out->size > sizeof *out ||
        (given && (given->size < sizeof(size_t) || given->size > sizeof *given)))
        return rill__data_fail(
            RILL_ERR_ARGUMENT,
            "rill_trainer_choose_C: train or choice is NULL, or a size is wrong");
    return RILL_OK;
}

rill_status rill__choose_C(rill_comm *comm, const void *mpi, const rill_dataset *train,
                           const rill_train_options *given, rill_C_choice *out) {
    rill_C_choice choice = RILL_C_CHOICE_INIT;
    search s = {.comm = comm, .mpi = mpi, .choice = &choice, .options = RILL_TRAIN_OPTIONS_INIT};
    rill_status status = rill__data_agree(comm, check_choose(train, given, out));
    RILL_TRY_DATA(status);
    if (given) memcpy(&s.options, given, given->size);
    s.options.size = sizeof s.options;
    s.seed = s.options.seed;
    choice.decay = rill__train_decay(s.options.decay);
    double began = rill__now();
    status = take_sample(&s, train);
    s.options.valid_fraction = held_out;
    s.options.algorithm = s.options.codec = s.options.reducer = NULL;
    s.options.value_bits = s.options.staleness = s.options.profile = 0;
    s.options.local_steps = 0;
    if (status == RILL_OK) status = choose(&s);
    rill_dataset_free(&s.sample);
    choice.seconds = rill__now() - began;
    choice.size = out->size;
    memcpy(out, &choice, choice.size);
    return status;
}

rill_status rill_trainer_choose_C_on(rill_comm *comm, const rill_dataset *train,
                                     const rill_train_options *given, rill_C_choice *out) {
    return rill__choose_C(comm, NULL, train, given, out);
}
