/* C and scale from the data: how much a row counts against the regularisation, and in which units
 * features are penalised; and whether the rate of 1/t falls.
 *
 * Idea: train with C = 1, then with ten times as much, and so on, each for a few epochs on four
 * fifths of the rows; go on while the loss of the last fifth falls by a two-hundredth at least, or,
 * where features have hardly been used yet, does not move. If ten is no better than one, the same
 * downwards; with more features than rows as long as it does not rise, since any large C fits all
 * rows there. Newton's method, which on few entries starts a try from the weights of the one before,
 * also tries C times and divided by the root of ten in the end; of larger samples only to the side
 * where a parabola through three tries is lower. Where the scale is open this is done for each,
 * "std" first if most features are in most rows, else "none" first; another is taken if its loss is
 * clearly lower. Of larger samples one that is much worse at the C of the one before is given up
 * after a try. Wide data whose columns are of one unit keep it (train_alike.c); there rows of
 * length 1 are tried, unless all have the same. Where no C does better than the intercept alone, C
 * falls until the features do no harm. Splits and sample do not depend on the options'
 * seed: it is no reason for another model.
 * With the C that was found, adagrad is tried without a falling rate, if the options leave that
 * open: on text, whose features are mostly rare, its own decay is enough; with few features it
 * leaves noise. A fifth of few rows is a poor judge: then it is the mean over several random splits
 * (Monte Carlo cross-validation: Picard, Cook, Cross-validation of regression models, 1984). The
 * rows that the options hold out for validation take no part: what is measured on them stays
 * honest. The order of tries is that of LIBLINEAR's parameter search (Chu, Ho, Tsai, Lin, Lin, Warm
 * start for parameter selection of linear classifiers, 2015): from strong to weak regularisation,
 * until it stops to pay; the loss is asked, and not the accuracy, since it is less grainy where
 * rows are few. Neither the rate that training starts with nor the number of epochs is chosen so:
 * the loss asks for larger rates, and on some sets for fewer epochs, than predict best. Of large
 * data a sample is taken (train_sample.c). C need not grow with the rows: it is a weight of each.
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
#include "train/train_ahead.h"
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_ROWS = 30, EPOCHS = 3 };
enum { NEWTON_STEPS = RILL__TRY_STEPS };
/* Splits of small data: as many as have SPLIT_ROWS rows together. */
/* Of unbalanced labels up to MOST_MORE, as of the rows that the rarer one has, twice. */
enum { MOST_SPLITS = 10, SPLIT_ROWS = 5000, SGD_SPLITS = 5, MOST_MORE = 4 };
enum { MOST_KEPT = 1 << 24, FEW_ENTRIES = 1 << 20 };
static const double held_out = 0.2, factor = 10, gain = 0.005, clear_gain = 0.02, flat = 0.0005;
static const double about = 0.02, path_tolerance = 1e-4; /* of paths */
static const double near = 1.03, far = 1.1; /* of another scale's loss: C may not be the best yet */
static const double unlearnt = 0.02; /* so little below the intercept's loss: C is far too small */
static const double doubt = 0.05;    /* rows with another label, beside those held out */
static const double least_C = 1e-4, most_C = 1e6;
enum { MOST_TRIES = 16 }; /* of rill_C_choice */
static const char *const scales[] = {"none", "max", "std"};
enum { NONE, MAX, SCALES = sizeof scales / sizeof *scales };

typedef struct search {
    rill_comm *comm, *alone; /* alone: of one rank, for tries */
    int rank, ranks;         /* that splits are dealt out to */
    rill_dataset *sample;
    rill_train_options options;
    uint64_t seed; /* of the first split */
    int splits;
    bool open;                  /* the options leave the solver and its end open */
    bool newton;                /* tries are its steps, else sgd's or scd's epochs */
    bool few;                   /* the sample is small: everything can be tried */
    double entries;             /* of all ranks' rows */
    double doubt;               /* share of rows whose label may be another one */
    bool path;                  /* tries are newton's paths: the loss is asked after each step */
    double along[NEWTON_STEPS]; /* sums over splits, by step */
    uint64_t steps;             /* of the last try: where it was best; 0: at its end */
    bool wide;                  /* few rows, more features: any large C fits them all */
    bool dense;                 /* most features are in most rows */
    bool alike, same;           /* see rill__columns_alike */
    double length;              /* mean squared length of rows; 0: all have about the same */
    float *kept[MOST_SPLITS];   /* newton: weights that the last try of a split has reached */
    rill_C_choice *choice;
    double best; /* loss */
    double bare; /* loss of the intercept alone; 0: not known yet */
    rill_data_progress *tell;
    void *context;
    uint64_t trainings; /* of this rank */
    bool stopped;       /* by some rank's */
    rill__ahead ahead;
    double by; /* factor of the walk; 0: it begins */
} search;

static rill_status take_sample(search *s, const rill_dataset *train) {
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

/* Before the tries of a split, and after them: newton goes on from where the last try ended. */
static void start_warm(const search *s, int split, rill_trainer *t) {
    if (s->kept[split])
        memcpy(t->weights.w, s->kept[split], (size_t)t->objective.n * sizeof(float));
}
static void keep_warm(search *s, int split, const rill_trainer *t) {
    size_t bytes = (size_t)t->objective.n * sizeof(float);
    if (!s->newton || !s->few || t->objective.n * (uint64_t)s->splits > MOST_KEPT) return;
    if (!s->kept[split]) s->kept[split] = malloc(bytes);
    if (s->kept[split]) memcpy(s->kept[split], t->weights.w, bytes);
}
static void cool_down(search *s) {
    for (int i = 0; i < MOST_SPLITS; i++) {
        free(s->kept[i]);
        s->kept[i] = NULL;
    }
}

/* Whether a try is a path: what is trained then must be newton's, too, to the end that it has. */
static bool follows(search *s, const rill_trainer *t) {
    s->path = s->newton && s->open && !s->few &&
              s->entries * t->objective.columns <= rill__newton_entries;
    return s->path;
}

/* Steps, and the loss after each. A path need not go on where that only rises. */
static rill_status follow(search *s, rill_trainer *t, rill_train_report *report) {
    double best = INFINITY;
    int rises = 0, e = 0; /* one after the other */
    t->options.tolerance = path_tolerance;
    for (bool goes_on = true; goes_on && e < NEWTON_STEPS; e++) {
        RILL_TRY_DATA(rill_trainer_epoch(t, report));
        int converged = report->converged;
        RILL_TRY_DATA(rill__train_validate(t, false, report));
        double loss = isfinite(report->valid_loss) ? report->valid_loss : INFINITY;
        s->along[e] += loss;
        best = fmin(best, loss);
        rises = loss > (1 + gain) * best ? rises + 1 : 0;
        goes_on = !converged && rises < (s->splits > 1 ? 3 : 2);
    }
    for (; e < NEWTON_STEPS; e++)
        s->along[e] += report->valid_loss;
    return RILL_OK;
}

/* The loss of paths: that of the best step if the end is clearly worse, else that of the end. */
static void end_path(search *s, double splits, double *loss) {
    int best = 0, last = NEWTON_STEPS - 1;
    for (int e = 1; e < NEWTON_STEPS; e++)
        if (s->along[e] < s->along[best]) best = e;
    s->steps = 0;
    bool end = !(s->along[last] > (1 + 2 * about) * s->along[best]);
    for (int e = 0; !end && !s->steps; e++)
        if (s->along[e] <= (1 + about) * s->along[best]) s->steps = (uint64_t)e + 1;
    *loss = s->along[end ? last : best] / splits;
}

/* The loss on the rows that a split holds out; infinite if training fails for its numbers. *able:
 * there was a training. *bare: what it starts from, where that is not known yet. */
static rill_status try_split(search *s, int split, bool *able, double *loss, double *bare) {
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    rill_trainer *trainer = NULL;
    s->options.seed = s->seed ^ (odd * (uint64_t)split);
    *loss = INFINITY;
    rill_status status = rill_trainer_create_on(s->alone, s->sample, NULL, &s->options, &trainer);
    uint64_t epochs = s->newton ? NEWTON_STEPS : EPOCHS;
    if (status == RILL_OK) {
        start_warm(s, split, trainer);
        trainer->has_valid = false; /* not before the end */
        const rill__objective *o = &trainer->objective;
        if (!strcmp(trainer->options.loss, "logistic") && (o->columns == 1 || o->softmax))
            trainer->objective.doubt = s->doubt;
        if (s->newton && s->bare == 0) status = rill__train_validate(trainer, false, &report);
        *bare = report.valid_loss;
    }
    bool path = status == RILL_OK && follows(s, trainer);
    if (path) status = follow(s, trainer, &report);
    for (uint64_t e = 0; !path && status == RILL_OK && e < epochs && !report.converged; e++)
        status = rill_trainer_epoch(trainer, &report);
    if (status == RILL_OK && !path) {
        keep_warm(s, split, trainer);
        status = rill__train_validate(trainer, false, &report);
    }
    if (status == RILL_OK && isfinite(report.valid_loss)) *loss = report.valid_loss;
    *able = trainer != NULL;
    if (trainer) s->choice->rows = trainer->objective.total_rows;
    rill_trainer_free(&trainer);
    return status == RILL_ERR_STATE ? RILL_OK : status;
}

/* Splits of one C, from `first` on; *status: of the first one. */
static rill_status try_splits(search *s, int first, int every, double *sums, rill_status *status) {
    rill_status bad = RILL_OK;
    memset(s->along, 0, sizeof s->along);
    for (int split = first; split < s->splits && isfinite(sums[0]) && !bad; split += every) {
        if (s->tell && s->tell(s->context, s->trainings++, 0))
            return rill__data_fail(RILL_ERR_STATE, "stopped while C is chosen");
        bool able = false;
        double one, bare = 0;
        rill_status mine = try_split(s, split, &able, &one, &bare);
        bool ours = able || mine == RILL_ERR_MEMORY || mine == RILL_ERR_MPI;
        if (ours && mine != RILL_OK) bad = mine;
        if (split == first) *status = mine;
        if (!able) continue;
        sums[0] += one;
        sums[1]++;
        sums[2] += bare;
    }
    memcpy(sums + 3, s->along, sizeof s->along);
    return bad;
}

/* All ranks: this C, and others by ranks that it has no split for. *first: why it may have none. */
static rill_status make_tries(search *s, double C, double decay, rill_status *first) {
    double numbers[RILL__MOST_AHEAD * RILL__TRY_NUMBERS] = {0}, plan[RILL__MOST_AHEAD], most[2];
    int groups = s->few ? 1 : s->ranks / s->splits, group = 0, split = s->rank, every = s->ranks;
    if (groups > RILL__MOST_AHEAD) groups = RILL__MOST_AHEAD;
    bool refines = s->newton && !s->choice->steps;
    int n = rill__ahead_plan(C, s->choice->C, s->by, refines, groups > 1 ? groups : 1, plan);
    if (n > 1) {
        group = s->rank / s->splits;
        split = s->rank % s->splits;
        every = s->splits;
    }
    rill_status bad = RILL_OK;
    bool mine = group < n && plan[group] > 0.5 * least_C && plan[group] < 2 * most_C;
    s->options.decay = decay;
    s->options.C = mine ? plan[group] : C;
    if (mine) bad = try_splits(s, split, every, numbers + group * RILL__TRY_NUMBERS, first);
    if (group > 0) *first = RILL_OK;
    bad = rill__data_agree(s->comm, bad);
    s->stopped = bad == RILL_ERR_STATE; /* of a try's own it is no failure */
    RILL_TRY_DATA(bad);
    RILL_TRY_DATA(rill__sum_f64(s->comm, numbers, n * RILL__TRY_NUMBERS));
    most[0] = (double)s->choice->rows;
    most[1] = s->path; /* a rank without a split does not know */
    RILL_TRY_DATA(rill__most_f64(s->comm, most, 2));
    s->choice->rows = (uint64_t)most[0];
    s->path = most[1] > 0;
    for (int i = 0; i < n; i++) {
        rill__try made = {.C = plan[i], .decay = decay, .scale = s->options.scale};
        memcpy(made.number, numbers + i * RILL__TRY_NUMBERS, sizeof made.number);
        if (made.number[1] > 0) rill__ahead_keep(&s->ahead, &made);
    }
    return RILL_OK;
}

/* The mean over the splits; one of few rows may hold out all that have some label, and does not
 * count then. */
static rill_status try_one(search *s, double C, double decay, double *loss) {
    rill_C_choice *choice = s->choice;
    rill_status first = RILL_OK;
    *loss = INFINITY;
    if (choice->tries == MOST_TRIES) return RILL_OK;
    const rill__try *made = rill__ahead_find(&s->ahead, C, decay, s->options.scale);
    if (!made) {
        RILL_TRY_DATA(make_tries(s, C, decay, &first));
        made = rill__ahead_find(&s->ahead, C, decay, s->options.scale);
    }
    if (!made) return rill__data_agree(s->comm, first);
    const double *sums = made->number;
    *loss = sums[0] / sums[1];
    memcpy(s->along, sums + 3, sizeof s->along);
    s->steps = 0;
    if (s->path) end_path(s, sums[1], loss);
    if (s->bare == 0) s->bare = sums[2] / sums[1];
    choice->tried[choice->tries] = C;
    choice->tried_decay[choice->tries] = decay;
    choice->loss[choice->tries++] = *loss;
    return RILL_OK;
}

static void take_if_better(search *s, double C, double loss, double by) {
    if (!(loss < (1 - by) * s->best)) return;
    s->best = loss;
    s->choice->C = C;
    s->choice->steps = s->steps;
}

static rill_status walk(search *s, double by) {
    double before = s->best;
    s->by = by;
    for (double C = s->choice->C * by; C > 0.5 * least_C && C < 2 * most_C; C *= by) {
        double loss;
        RILL_TRY_DATA(try_one(s, C, s->choice->decay, &loss));
        bool idle = s->newton && s->best > (1 - unlearnt) * s->bare;
        bool fitted = s->wide && by < 1 && loss < (1 + flat) * before;
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
static rill_status fade(search *s) {
    double loss = s->best;
    s->by = 1 / factor;
    for (double C = s->choice->C / factor; loss > s->bare && C > 0.5 * least_C; C /= factor) {
        RILL_TRY_DATA(try_one(s, C, s->choice->decay, &loss));
        take_if_better(s, C, loss, 0);
    }
    return RILL_OK;
}

/* C by the root of ten to either side. */
static rill_status refine(search *s) {
    double middle = s->choice->C, loss;
    const double step = sqrt(factor);
    double above = loss_at(s->choice, middle * factor), below = loss_at(s->choice, middle / factor);
    bool one_side = !s->few && above > 0 && below > 0;
    s->by = 1;
    if (!one_side || above < below) {
        RILL_TRY_DATA(try_one(s, middle * step, s->choice->decay, &loss));
        take_if_better(s, middle * step, loss, 0);
        if (one_side || s->choice->C != middle) return RILL_OK;
    }
    RILL_TRY_DATA(try_one(s, middle / step, s->choice->decay, &loss));
    take_if_better(s, middle / step, loss, 0);
    return RILL_OK;
}

/* The best C of a scale, from that of the choice on. Given up where the first try is not better
 * than so many times `beat`. */
static rill_status walk_scale(search *s, double beat, double times) {
    double start = s->choice->C;
    s->by = 0;
    RILL_TRY_DATA(try_one(s, start, s->choice->decay, &s->best));
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

static rill_status try_constant_rate(search *s) {
    double loss;
    RILL_TRY_DATA(try_one(s, s->choice->C, 0, &loss));
    if (loss < (1 - gain) * s->best) s->choice->decay = 0;
    return RILL_OK;
}

/* C under which rows of length 1 count as much as before, or as they are (-1) as much as those. */
static double by_length(const search *s, double C, double to) {
    C *= pow(factor, to * round(log10(s->length)));
    return fmin(fmax(C, least_C), most_C);
}

/* Rows of length 1, where columns stay as they are: the length of a text says little of what it is
 * about. */
static rill_status try_rows(search *s, rill_C_choice *best, rill_C_choice *empty, double *lowest) {
    if (!s->alike || s->length == 0) return RILL_OK;
    *s->choice = *empty;
    s->choice->C = by_length(s, best->C, 1);
    s->options.scale = "rows";
    cool_down(s);
    RILL_TRY_DATA(walk_scale(s, *lowest, far));
    empty->rows_loss = s->best;
    if (!(s->best < (1 - (s->few ? clear_gain : gain)) * *lowest)) return RILL_OK;
    *lowest = s->best;
    *best = *s->choice;
    best->scale = "rows";
    return RILL_OK;
}

/* The tries of the scale that is taken stay in the choice. */
static rill_status choose_scale(search *s) {
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
        cool_down(s);
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
    cool_down(s);
    return RILL_OK;
}

/* Rows of two labels say as much as those of the rarer one, twice. */
static double rows_that_tell(const search *s, const rill_data_view *view) {
    uint64_t first = 0;
    double label = view->label[0], other = label;
    if (s->options.task && !strcmp(s->options.task, "regress")) return (double)view->rows;
    for (uint64_t i = 0; i < view->rows; i++) {
        if (view->label[i] == label) first++;
        else if (other == label || view->label[i] == other) other = view->label[i];
        else return (double)view->rows; /* more than two */
    }
    return 2 * fmin((double)first, (double)(view->rows - first));
}

static int count_splits(const search *s, const rill_data_view *view) {
    int most = s->newton ? MOST_SPLITS : SGD_SPLITS;
    double rows = (double)view->rows, of_rows = SPLIT_ROWS / rows;
    double of_few = fmin(MOST_MORE, SPLIT_ROWS / fmax(rows_that_tell(s, view), 1));
    return (int)fmin(fmax(fmax(of_rows, of_few), 1), most);
}

static rill_status choose(search *s) {
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
    bool useless = s->newton && s->bare > 0 && s->best > s->bare;
    if (useless) RILL_TRY_DATA(fade(s));
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
static rill_status choose_task(search *s, const rill_dataset *train) {
    rill_data_view view = RILL_DATA_VIEW_INIT;
    if (s->options.loss || s->options.task) return RILL_OK;
    RILL_TRY_DATA(rill_dataset_view(train, &view));
    return rill__labels_task(s->comm, &view, &s->options.task);
}

/* Newton where it can: its tries end at the optimum, and so are the same for all scales. */
static void choose_solver(search *s) {
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
    search s = {.comm = comm, .choice = &choice, .options = RILL_TRAIN_OPTIONS_INIT};
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
    status = take_sample(&s, train);
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
    cool_down(&s);
    rill_dataset_free(&s.sample);
    rill_comm_free(&s.alone);
    choice.seconds = rill__now() - began;
    choice.size = out->size;
    memcpy(out, &choice, choice.size);
    return status;
}
