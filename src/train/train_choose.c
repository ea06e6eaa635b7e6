/* C and scale from the data: how much a row counts against the regularisation, and in which units
 * features are penalised; and whether the rate of 1/t falls.
 *
 * Idea: train with C = 1, then with ten times as much, and so on, each for a few epochs on four
 * fifths of the rows; go on while the loss of the last fifth falls by a two-hundredth at least, or,
 * where features have hardly been used yet, does not move. If ten is no better than one, the same
 * downwards; with more features than few rows as long as it does not rise, since any large C fits
 * all rows there. Newton's method, which on few entries starts a try from the weights of the one
 * before, also tries C times and divided by the root of ten in the end; of larger samples only to
 * the side where a parabola through three tries is lower. Where the scale is open this is done for
 * each, "std" first if most features are in most rows, else "none" first; another is taken if its
 * loss is clearly lower. Of larger samples one that is much worse at the C of the one before is
 * given up after a try. Wide data whose columns are of one unit keep it (train_alike.c); there rows
 * of length 1 are tried, unless all have the same. Where no C does better than the intercept alone,
 * C falls until the features do no harm. Splits and sample do not depend on the options' seed: it
 * is no reason for another model.
 * With the C that was found, adagrad is tried without a falling rate, if the options leave that
 * open: on text, whose features are mostly rare, its own decay is enough; with few features it
 * leaves noise. A fifth of few rows is a poor judge: then it is the mean over several random splits
 * (Monte Carlo cross-validation: Picard, Cook, Cross-validation of regression models, 1984). The
 * rows that the options hold out for validation take no part: what is measured on them stays
 * honest. Few rows that are all predicted right would ask for a C without end, and be sorry for the
 * first that is not: so the loss counts a twentieth of a row with another label among them (targets
 * that are not quite 0 or 1: Platt, Probabilistic outputs for support vector machines, 1999). Where
 * one of two labels is rare there are more splits. The order of tries is that of LIBLINEAR's
 * parameter search (Chu, Ho, Tsai, Lin, Lin, Warm start for parameter selection of linear
 * classifiers, 2015): from strong to weak regularisation, until it stops to pay; the loss is asked,
 * and not the accuracy, since it is less grainy where rows are few. Neither the rate that training
 * starts with nor the number of epochs is chosen so: the loss asks for larger rates, and on some
 * sets for fewer epochs, than predict best. Of large data a sample is taken (train_sample.c). C
 * need not grow with the rows: it is a weight of each.
 * A try is a rank's own: each has the whole sample, and the splits are dealt out; ranks that are
 * left try what may be asked for next (train_ahead.c). Newton then finds the same with any number
 * of ranks, and no try waits for the network.
 * On many entries newton's tries start from nothing, and the loss is asked after each step: with
 * far more features than rows the steps before the optimum predict better than the optimum of any
 * C, as conjugate gradients take the directions first that most rows share (early stopping: Yao,
 * Rosasco, Caponnetto, 2007). Then a large C and the number of steps are chosen; both hold for the
 * whole data, since margins grow by about 1 a step. Of steps that are about as good the first is
 * taken: more rows need rather fewer.
 * Restriction: exact sums, whatever the training itself will send.
 * Memory: a copy of the sample, a trainer at a time, weights of each split. Cost: some 7 tries for
 * a scale, of 3 epochs of sgd or about as many steps of newton, on 20,000 rows at most.
 */
#include "train/train_search.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_ROWS = 30 };
/* Splits of small data: as many as have SPLIT_ROWS rows together. */
/* Of unbalanced labels up to MOST_MORE, as of the rows that the rarer one has, twice. */
enum { MOST_SPLITS = RILL__MOST_SPLITS, SPLIT_ROWS = 5000, SGD_SPLITS = 5, MOST_MORE = 4 };
enum { FEW_ENTRIES = 1 << 20 };
static const double held_out = 0.2, factor = 10, gain = RILL__GAIN, clear_gain = 0.02,
                    flat = 0.0005;
static const double near = 1.03, far = 1.1; /* of another scale's loss: C may not be the best yet */
static const double unlearnt = 0.02; /* so little below the intercept's loss: C is far too small */
static const double useless = 1 + 1e-6; /* above the intercept's loss by more than rounding */
static const double matters = 0.002;    /* of losses at ten times C and a tenth of it */
static const double doubt = 0.05;       /* rows with another label, beside those held out */
static const double least_C = RILL__LEAST_C, most_C = RILL__MOST_C;
static const char *const scales[] = {"none", "max", "std"};
enum { NONE, MAX, SCALES = sizeof scales / sizeof *scales };

static rill_status take_sample(rill__search *s, const rill_dataset *train) {
    rill_data_view from = RILL_DATA_VIEW_INIT;
    RILL_TRY_DATA(rill_dataset_view(train, &from));
    if (from.dim >= UINT32_MAX) return RILL_OK; /* the trainer itself will complain */
    if (!s->options.batch) {                    /* as the training will have it */
        double rows = (1 - s->options.valid_fraction) * (double)from.total_rows;
        s->options.batch = rill__train_batch((uint64_t)rows, s->ranks);
    }
    s->options.batch *= (uint64_t)s->ranks; /* a try's only rank makes the steps of all */
    s->options.coordinates *= (uint64_t)s->ranks;
    return rill__train_sample(s->comm, s->alone, train, &s->options, &s->sample);
}

static void take_if_better(rill__search *s, double C, double loss, double by) {
    if (!(loss < (1 - by) * s->best)) return;
    s->best = loss;
    s->choice->C = C;
    s->choice->steps = s->steps;
}

static rill_status walk(rill__search *s, double by) {
    double before = s->best;
    s->by = by;
    for (double C = s->choice->C * by; C > 0.5 * least_C && C < 2 * most_C; C *= by) {
        double loss;
        RILL_TRY_DATA(rill__try_one(s, C, s->choice->decay, &loss));
        bool idle = s->newton && s->best > (1 - unlearnt) * s->bare;
        bool fitted = s->wide && by < 1 && loss < (1 + gain) * before;
        bool goes_on = loss < (1 - gain) * s->best || fitted ||
                       (idle && loss < (1 + flat) * before && loss > (1 - flat) * before);
        take_if_better(s, C, loss, gain);
        if (!goes_on) break;
        before = loss;
    }
    return RILL_OK;
}

/* The loss at a C that was tried; 0: it was not. */
static double loss_at(const rill_C_choice *choice, double C) {
    for (int i = 0; i < choice->tries; i++)
        if (fabs(choice->tried[i] / C - 1) < 1e-6) return choice->loss[i];
    return 0;
}

/* Where the features predict worse than the intercept alone: as little of them as that takes. */
static rill_status fade(rill__search *s) {
    double loss = s->best;
    s->by = 1 / factor;
    for (double C = s->choice->C / factor; loss > useless * s->bare && C > 0.5 * least_C;
         C /= factor) {
        RILL_TRY_DATA(rill__try_one(s, C, s->choice->decay, &loss));
        take_if_better(s, C, loss, 0);
    }
    return RILL_OK;
}

/* C by the root of ten to either side, unless ten times hardly differ. */
static rill_status refine(rill__search *s) {
    double middle = s->choice->C, loss;
    const double step = sqrt(factor);
    double above = loss_at(s->choice, middle * factor), below = loss_at(s->choice, middle / factor);
    bool both = above > 0 && below > 0, one_side = !s->few && both;
    if (both && fmax(above, below) < (1 + matters) * s->best) return RILL_OK;
    s->by = 1;
    if (!one_side || above < below) {
        RILL_TRY_DATA(rill__try_one(s, middle * step, s->choice->decay, &loss));
        take_if_better(s, middle * step, loss, 0);
        if (one_side || s->choice->C != middle) return RILL_OK;
    }
    RILL_TRY_DATA(rill__try_one(s, middle / step, s->choice->decay, &loss));
    take_if_better(s, middle / step, loss, 0);
    return RILL_OK;
}

/* The best C of a scale, from that of the choice on. Given up where the first try is not better
 * than so many times `beat`. */
static rill_status walk_scale(rill__search *s, double beat, double times) {
    double start = s->choice->C;
    s->by = 0;
    RILL_TRY_DATA(rill__try_one(s, start, s->choice->decay, &s->best));
    s->choice->steps = s->steps;
    if (!s->few && s->best > times * beat) return RILL_OK;
    RILL_TRY_DATA(walk(s, factor));
    if (s->choice->C == start) RILL_TRY_DATA(walk(s, 1 / factor));
    return RILL_OK;
}

static bool may_try_decay(const rill_train_options *o) {
    return o->decay < 0 && (!o->solver || !strcmp(o->solver, "sgd")) &&
           (!o->optimizer || !strcmp(o->optimizer, "adagrad")) &&
           (!o->schedule || !strcmp(o->schedule, "1/t"));
}

static rill_status try_constant_rate(rill__search *s) {
    double loss;
    RILL_TRY_DATA(rill__try_one(s, s->choice->C, 0, &loss));
    if (loss < (1 - gain) * s->best) s->choice->decay = 0;
    return RILL_OK;
}

/* C under which rows of length 1 count as much as before, or as they are (-1) as much as those. */
static double by_length(const rill__search *s, double C, double to) {
    C *= pow(factor, to * round(log10(s->length)));
    return fmin(fmax(C, least_C), most_C);
}

/* Rows of length 1, where columns stay as they are: the length of a text says little of what it is
 * about. */
static rill_status try_rows(rill__search *s, rill_C_choice *best, rill_C_choice *empty,
                            double *lowest) {
    if (!s->alike || s->length == 0) return RILL_OK;
    *s->choice = *empty;
    s->choice->C = by_length(s, best->C, 1);
    s->options.scale = "rows";
    rill__try_cool(s);
    RILL_TRY_DATA(walk_scale(s, *lowest, far));
    empty->rows_loss = s->best;
    if (!(s->best < (1 - (s->few ? clear_gain : gain)) * *lowest)) return RILL_OK;
    *lowest = s->best;
    *best = *s->choice;
    best->scale = "rows";
    return RILL_OK;
}

/* The tries of the scale that is taken stay in the choice. */
static rill_status choose_scale(rill__search *s) {
    if (!s->options.scale || strcmp(s->options.scale, "auto")) return walk_scale(s, INFINITY, far);
    rill_C_choice best = *s->choice, empty = best;
    double lowest = INFINITY;
    if (!s->few) RILL_TRY_DATA(try_rows(s, &best, &empty, &lowest)); /* mostly better */
    bool rows_first = empty.rows_loss > 0;
    for (int k = 0; k < SCALES; k++) {
        int i = s->dense ? SCALES - 1 - k : k;
        if (i != NONE && s->alike) continue;
        if (i == MAX && s->same && empty.scale_loss[NONE] > 0) {
            empty.scale_loss[i] = empty.scale_loss[NONE];
            continue;
        }
        *s->choice = empty;
        if (!s->few) s->choice->C = rows_first ? by_length(s, best.C, -1) : best.C;
        s->options.scale = scales[i];
        rill__try_cool(s);
        rill_status status = walk_scale(s, lowest, rows_first ? near : far);
        if (!s->choice->tries) return status;
        RILL_TRY_DATA(status);
        empty.scale_loss[i] = s->best;
        if (!(s->best < (1 - (s->few ? clear_gain : gain)) * lowest)) continue;
        lowest = s->best;
        best = *s->choice;
        best.scale = scales[i];
    }
    if (!rows_first) RILL_TRY_DATA(try_rows(s, &best, &empty, &lowest));
    memcpy(best.scale_loss, empty.scale_loss, sizeof best.scale_loss);
    best.rows_loss = empty.rows_loss;
    *s->choice = best;
    s->options.scale = best.scale;
    s->best = lowest;
    rill__try_cool(s);
    return RILL_OK;
}

static int count_splits(const rill__search *s, const rill_data_view *view) {
    int most = s->newton ? MOST_SPLITS : SGD_SPLITS;
    bool regress = s->options.task && !strcmp(s->options.task, "regress");
    double rows = (double)view->rows, telling = regress ? rows : rill__rows_that_tell(view);
    double of_rows = SPLIT_ROWS / rows, of_few = fmin(MOST_MORE, SPLIT_ROWS / fmax(telling, 1));
    return (int)fmin(fmax(fmax(of_rows, of_few), 1), most);
}

static rill_status choose(rill__search *s) {
    rill_data_report report = RILL_DATA_REPORT_INIT;
    rill_data_view view = RILL_DATA_VIEW_INIT;
    bool try_decay = may_try_decay(&s->options);
    if (s->sample) rill_dataset_report(s->sample, &report);
    if (report.rows < LEAST_ROWS) return RILL_OK;
    RILL_TRY_DATA(rill_dataset_view(s->sample, &view));
    s->splits = count_splits(s, &view);
    s->doubt = doubt / ((double)report.rows + 2);
    s->few = report.entries * (uint64_t)s->splits <= FEW_ENTRIES;
    s->wide = s->few && view.dim > report.rows;
    s->dense = (double)report.entries > 0.3 * (double)report.rows * (double)view.dim;
    rill_status status = rill__columns_alike(&view, &s->alike, &s->same);
    RILL_TRY_DATA(rill__data_agree(s->comm, status));
    s->length = rill__rows_length(&view);
    status = choose_scale(s);
    /* What is wrong with the options or the labels is told by the training itself. */
    bool ours = s->stopped || status == RILL_ERR_MEMORY || status == RILL_ERR_MPI;
    if (!s->choice->tries && !ours) return RILL_OK;
    RILL_TRY_DATA(status);
    bool fades = s->newton && s->bare > 0 && s->best > useless * s->bare;
    if (fades) RILL_TRY_DATA(fade(s));
    else if (s->newton && !s->choice->steps) RILL_TRY_DATA(refine(s));
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

/* By all rows: a sample may have too few of a label. */
static rill_status choose_task(rill__search *s, const rill_dataset *train) {
    rill_data_view view = RILL_DATA_VIEW_INIT;
    if (s->options.loss || s->options.task) return RILL_OK;
    RILL_TRY_DATA(rill_dataset_view(train, &view));
    return rill__labels_task(s->comm, &view, &s->options.task);
}

/* Newton where it can: its tries end at the optimum, and so are the same for all scales. */
static void choose_solver(rill__search *s) {
    rill_train_options *o = &s->options;
    const rill__loss *loss = o->loss ? rill__loss_find(o->loss) : NULL;
    bool smooth = (!o->loss || (loss && loss->most_curvature > 0)) && !(o->l1 > 0);
    bool is_auto = o->solver && !strcmp(o->solver, "auto");
    bool stochastic = o->reducer || o->staleness || o->local_steps || o->value_bits > 0;
    if (is_auto) o->solver = smooth && !stochastic ? "newton" : "sgd";
    if (o->solver && !strcmp(o->solver, "hybrid")) o->solver = "newton";
    s->newton = o->solver && !strcmp(o->solver, "newton");
    s->open = is_auto && o->tolerance == 0;
    if (s->newton) o->tolerance = 1e-3;
}

rill_status rill_trainer_choose_C_on(rill_comm *comm, const rill_dataset *train,
                                     const rill_train_options *given, rill_C_choice *out) {
    rill_C_choice choice = RILL_C_CHOICE_INIT;
    rill__search s = {.comm = comm, .choice = &choice, .options = RILL_TRAIN_OPTIONS_INIT};
    rill_status status = rill__data_agree(comm, check_choose(train, given, out));
    RILL_TRY_DATA(status);
    if (given) memcpy(&s.options, given, given->size);
    s.options.size = sizeof s.options;
    s.tell = s.options.progress;
    s.context = s.options.context;
    s.options.progress = NULL; /* tries are short */
    s.seed = 1;
    choice.decay = rill__train_decay(s.options.decay);
    choice.scale = s.options.scale && strcmp(s.options.scale, "auto") ? s.options.scale : "max";
    if (!s.options.scale) choice.scale = "none";
    choose_solver(&s);
    s.rank = rill_comm_rank(comm);
    s.ranks = rill_comm_size(comm);
    rill_config config = RILL_CONFIG_INIT;
    config.check = 0;
    RILL_TRY_DATA(rill__data_agree(comm, rill_comm_create_local(1, &config, &s.alone)));
    double began = rill__now();
    rill_data_view view = RILL_DATA_VIEW_INIT;
    status = rill_dataset_view(train, &view);
    if (status == RILL_OK) status = rill__room_for(comm, view.dim, 4 * sizeof(float));
    if (status == RILL_OK) status = take_sample(&s, train);
    rill_data_report report = RILL_DATA_REPORT_INIT;
    rill_dataset_report(train, &report);
    s.entries = (double)report.entries;
    if (status == RILL_OK) status = choose_task(&s, train);
    s.options.valid_fraction = held_out;
    s.options.folds = s.options.fold = 0;
    s.options.algorithm = s.options.codec = s.options.reducer = NULL;
    s.options.value_bits = s.options.staleness = s.options.profile = 0;
    s.options.local_steps = 0;
    if (status == RILL_OK) status = choose(&s);
    rill__try_end(&s);
    rill_dataset_free(&s.sample);
    rill_comm_free(&s.alone);
    choice.seconds = rill__now() - began;
    choice.size = out->size;
    memcpy(out, &choice, choice.size);
    return status;
}
