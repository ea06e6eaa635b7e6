/* A try of the search for C: trainings on splits of the sample, and the loss on what they hold out.
 *
 * Idea: see train_choose.c. Splits are dealt out to the ranks; those that are left try what may be
 * asked for next (train_ahead.c). Least squares of small data have exact tries (train_ridge.c).
 * Memory: a trainer at a time, weights of each split. Cost: 3 epochs of sgd or scd, or up to 20
 * steps of newton.
 */
#include "train/train_search.h"

#include <math.h>
#include <stdlib.h>

enum { EPOCHS = 3, NEWTON_STEPS = RILL__TRY_STEPS, MOST_SPLITS = RILL__MOST_SPLITS };
enum { MOST_KEPT = 1 << 24, MOST_TRIES = 16 }; /* MOST_TRIES: of rill_C_choice */
static const double gain = RILL__GAIN, least_C = RILL__LEAST_C, most_C = RILL__MOST_C;
static const double about = 0.02, path_tolerance = 1e-4; /* of paths */

/* Before the tries of a split, and after them: newton goes on from where the last try ended. */
static void start_warm(const rill__search *s, int split, rill_trainer *t) {
    if (s->kept[split])
        memcpy(t->weights.w, s->kept[split], (size_t)t->objective.n * sizeof(float));
}
static void keep_warm(rill__search *s, int split, const rill_trainer *t) {
    size_t bytes = (size_t)t->objective.n * sizeof(float);
    if (!s->newton || !s->few || t->objective.n * (uint64_t)s->splits > MOST_KEPT) return;
    if (!s->kept[split]) s->kept[split] = malloc(bytes);
    if (s->kept[split]) memcpy(s->kept[split], t->weights.w, bytes);
}
void rill__try_cool(rill__search *s) {
    for (int i = 0; i < MOST_SPLITS; i++) {
        free(s->kept[i]);
        s->kept[i] = NULL;
    }
}
void rill__try_end(rill__search *s) {
    rill__try_cool(s);
    for (int i = 0; i < RILL__MOST_SCALES * MOST_SPLITS; i++)
        rill__ridge_free(&s->ridge[i / MOST_SPLITS][i % MOST_SPLITS]);
}

/* Where the exact solution of a split is, under the scale that is tried. */
static rill__ridge **ridge_at(rill__search *s, int split) {
    const char *scale = s->options.scale ? s->options.scale : "none";
    return &s->ridge[*scale == 'm' ? 0 : *scale == 's' ? 1 : *scale == 'r' ? 2 : 3][split];
}

/* Whether a try is a path: what is trained then must be newton's, too, to the end that it has. */
static bool follows(rill__search *s, const rill_trainer *t) {
    s->path = s->newton && s->open && !s->few &&
              s->entries * t->objective.columns <= rill__newton_entries;
    return s->path;
}

/* Steps, and the loss after each. A path need not go on where that only rises. */
static rill_status follow(rill__search *s, rill_trainer *t, rill_train_report *report) {
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
static void end_path(rill__search *s, double splits, double *loss) {
    int best = 0, last = NEWTON_STEPS - 1;
    for (int e = 1; e < NEWTON_STEPS; e++)
        if (s->along[e] < s->along[best]) best = e;
    s->steps = 0;
    bool end = !(s->along[last] > (1 + 2 * about) * s->along[best]);
    for (int e = 0; !end && !s->steps; e++)
        if (s->along[e] <= (1 + about) * s->along[best]) s->steps = (uint64_t)e + 1;
    *loss = s->along[end ? last : best] / splits;
}

/* Least squares of small data need no steps, and the next C not even a trainer. */
static bool solve_exactly(rill__search *s, int split, const rill_trainer *t, double *loss) {
    if (!s->newton || !s->few || !t->valid.n) return false;
    rill__ridge **ridge = ridge_at(s, split);
    if (!*ridge) rill__ridge_open(&t->objective, &t->valid, s->splits, ridge);
    return *ridge && rill__ridge_loss(*ridge, s->options.C, loss);
}

/* The loss on the rows that a split holds out; infinite if training fails for its numbers. *able:
 * there was a training. *bare: what it starts from, where that is not known yet. */
static rill_status try_split(rill__search *s, int split, bool *able, double *loss, double *bare) {
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    rill_trainer *trainer = NULL;
    s->options.seed = s->seed ^ (odd * (uint64_t)split);
    *loss = INFINITY;
    const rill__ridge *ridge = *ridge_at(s, split);
    *able = ridge && rill__ridge_loss(ridge, s->options.C, loss);
    if (*able) return RILL_OK;
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
    bool exact = status == RILL_OK && solve_exactly(s, split, trainer, loss);
    bool path = status == RILL_OK && !exact && follows(s, trainer);
    bool trains = !exact && !path;
    if (path) status = follow(s, trainer, &report);
    for (uint64_t e = 0; trains && status == RILL_OK && e < epochs && !report.converged; e++)
        status = rill_trainer_epoch(trainer, &report);
    if (status == RILL_OK && trains) {
        keep_warm(s, split, trainer);
        status = rill__train_validate(trainer, false, &report);
    }
    if (status == RILL_OK && !exact && isfinite(report.valid_loss)) *loss = report.valid_loss;
    *able = trainer != NULL;
    if (trainer) s->choice->rows = trainer->objective.total_rows;
    rill_trainer_free(&trainer);
    return status == RILL_ERR_STATE ? RILL_OK : status;
}

/* Splits of one C, from `first` on; *status: of the first one. */
static rill_status try_splits(rill__search *s, int first, int every, double *sums,
                              rill_status *status) {
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
static rill_status make_tries(rill__search *s, double C, double decay, rill_status *first) {
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
rill_status rill__try_one(rill__search *s, double C, double decay, double *loss) {
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
