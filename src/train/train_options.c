/* Options of a trainer: checked before any work, with sentences that name the option and its
 * value. */
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>

static bool among(const char *name, const char *const *names) {
    for (; *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

static rill_status unknown(const char *option, const char *value, const char *there) {
    return rill__data_fail(RILL_ERR_UNKNOWN, "%s \"%s\" is unknown; there are %s", option, value,
                           there);
}

static rill_status check_number(const char *option, double value, double least, bool open) {
    if (isfinite(value) && (open ? value > least : value >= least)) return RILL_OK;
    return rill__data_fail(RILL_ERR_ARGUMENT, "%s = %g must be a number %s %g", option, value,
                           open ? "above" : "of at least", least);
}

static rill_status check_names(rill_trainer *t) {
    static const char *const optimizers[] = {"plain", "momentum", "adagrad", NULL};
    static const char *const schedules[] = {"constant", "1/t", "step", "bold-driver", NULL};
    static const char *const reducers[] = {"oktopk", "gtopk", "spardl", "s2", "topk", NULL};
    static const char *const tasks[] = {"classify", "regress", NULL};
    static const char *const scales[] = {"none", "max", "std", "rows", NULL};
    static const char *const multiclass[] = {"softmax", "ovr", NULL};
    rill_train_options *o = &t->options;
    bool regress = o->task && !strcmp(o->task, "regress");
    t->loss_open = !o->loss;
    if (!o->loss) o->loss = regress ? "squared" : "logistic";
    if (!o->solver) o->solver = "sgd";
    if (!o->scale) o->scale = "none";
    if (!o->optimizer) o->optimizer = "adagrad";
    if (!o->schedule) o->schedule = !strcmp(o->solver, "ftrl") ? "constant" : "1/t";
    if (!(t->objective.loss = rill__loss_find(o->loss)))
        return unknown("loss", o->loss, "logistic, hinge, squared_hinge, squared, huber");
    t->solver = rill__solver_find(o->solver);
    if (!t->solver && strcmp(o->solver, "auto"))
        return unknown("solver", o->solver, "auto, sgd, scd, newton, hybrid, ftrl");
    if (!among(o->scale, scales)) return unknown("scale", o->scale, "none, max, std, rows");
    if (o->multiclass && !among(o->multiclass, multiclass))
        return unknown("multiclass", o->multiclass, "softmax, ovr");
    if (!among(o->optimizer, optimizers))
        return unknown("optimizer", o->optimizer, "plain, momentum, adagrad");
    if (!among(o->schedule, schedules))
        return unknown("schedule", o->schedule, "constant, 1/t, step, bold-driver");
    if (o->reducer && !among(o->reducer, reducers))
        return unknown("reducer", o->reducer, "oktopk, gtopk, spardl, s2, topk");
    if (o->task && !among(o->task, tasks)) return unknown("task", o->task, "classify, regress");
    if (regress && !t->objective.loss->regression)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "task \"regress\" needs the loss squared or huber, not %s", o->loss);
    return RILL_OK;
}

double rill__train_decay(double decay) { return decay < 0 && isfinite(decay) ? 0.25 : decay; }

static rill_status check_numbers(rill_trainer *t) {
    rill_train_options *o = &t->options;
    RILL_TRY_DATA(check_number("C", o->C, 0, true));
    RILL_TRY_DATA(check_number("l2", o->l2, 0, false));
    RILL_TRY_DATA(check_number("l1", o->l1, 0, false));
    RILL_TRY_DATA(check_number("lr", o->lr, 0, false));
    o->decay = rill__train_decay(o->decay);
    RILL_TRY_DATA(check_number("decay", o->decay, 0, false));
    RILL_TRY_DATA(check_number("step_factor", o->step_factor, 0, true));
    RILL_TRY_DATA(check_number("momentum", o->momentum, 0, false));
    RILL_TRY_DATA(check_number("tolerance", o->tolerance, 0, false));
    RILL_TRY_DATA(check_number("huber_delta", o->huber_delta, 0, false));
    if (o->folds < 0 || o->folds == 1 || o->fold < 0 || (o->folds && o->fold >= o->folds))
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "fold = %d, folds = %d: folds must be 0 or at least 2, and fold "
                               "below it",
                               o->fold, o->folds);
    RILL_TRY_DATA(check_number("valid_fraction", o->valid_fraction, 0, false));
    if (o->momentum >= 1)
        return rill__data_fail(RILL_ERR_ARGUMENT, "momentum = %g must be below 1", o->momentum);
    if (o->valid_fraction >= 1)
        return rill__data_fail(RILL_ERR_ARGUMENT, "valid_fraction = %g must be below 1",
                               o->valid_fraction);
    if (!isfinite(o->bias))
        return rill__data_fail(RILL_ERR_ARGUMENT, "bias = %g is not finite", o->bias);
    if (!o->step_epochs || !o->coordinates)
        return rill__data_fail(RILL_ERR_ARGUMENT, "step_epochs and coordinates are at least 1");
    if (o->staleness < 0 || o->staleness > 64)
        return rill__data_fail(RILL_ERR_ARGUMENT, "staleness = %d must be 0 to 64", o->staleness);
    if (o->value_bits > 0 && o->value_bits != 16 && o->value_bits != 8 && o->value_bits != 4 &&
        o->value_bits != 2)
        return rill__data_fail(RILL_ERR_ARGUMENT, "value_bits = %d is none of 0, 16, 8, 4, 2",
                               o->value_bits);
    if (o->reducer && !(o->density > 0 && o->density <= 1))
        return rill__data_fail(RILL_ERR_ARGUMENT, "density = %g must be above 0 and at most 1",
                               o->density);
    if (o->threads < 0 || o->threads > RILL__MOST_THREADS)
        return rill__data_fail(RILL_ERR_ARGUMENT, "threads = %d must be 1 to %d", o->threads,
                               RILL__MOST_THREADS);
    return RILL_OK;
}

static rill_status cannot(const char *what, const char *needs) {
    return rill__data_fail(RILL_ERR_UNSUPPORTED, "%s needs %s", what, needs);
}

static rill_status check_together(const rill_trainer *t) {
    const rill_train_options *o = &t->options;
    if (o->multiclass && !strcmp(o->multiclass, "softmax") && strcmp(o->loss, "logistic"))
        return cannot("multiclass \"softmax\"", "the loss logistic");
    if (!t->solver) return RILL_OK;
    if (o->multiclass && !strcmp(o->multiclass, "softmax") && t->solver->separate)
        return cannot("multiclass \"softmax\"", "the solver sgd, newton or hybrid");
    if (t->solver->smooth && t->objective.loss->most_curvature == 0)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "solver %s needs a loss with curvature: the slope of %s jumps",
                               o->solver, o->loss);
    if (t->solver->follows && (o->local_steps || strcmp(o->schedule, "constant")))
        return cannot("solver ftrl", "exact sums at once or late, at a constant rate: neither "
                                     "local_steps nor a schedule");
    if (t->solver->no_l1 && o->l1 > 0)
        return rill__data_fail(RILL_ERR_UNSUPPORTED, "solver %s cannot do l1 = %g; sgd and scd can",
                               o->solver, o->l1);
    if (!t->solver->stochastic &&
        (o->reducer || o->staleness || o->local_steps || o->value_bits > 0))
        return cannot("a reducer, staleness, local_steps or value_bits", "the solver sgd");
    bool adagrad = !strcmp(o->optimizer, "adagrad"), plain = !strcmp(o->optimizer, "plain");
    if (o->local_steps && !adagrad && !(plain && o->l1 == 0))
        return cannot("local_steps", "the optimizer adagrad, or plain without l1");
    if (o->local_steps && adagrad && o->value_bits > 0)
        return cannot("local_steps of adagrad", "values as they are: value_bits 0");
    if (o->local_steps == RILL_STEPS_AUTO && !adagrad)
        return cannot("local_steps by the network", "the optimizer adagrad");
    if (o->local_steps && (o->reducer || o->staleness))
        return cannot("local_steps", "exact sums at once: neither reducer nor staleness");
    if (o->reducer && o->staleness > 1)
        return rill__data_fail(RILL_ERR_UNSUPPORTED, "staleness = %d: with a reducer at most 1",
                               o->staleness);
    if (o->reducer && strcmp(o->reducer, "topk") && o->algorithm)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "reducer %s is an algorithm; algorithm \"%s\" goes with topk only",
                               o->reducer, o->algorithm);
    return RILL_OK;
}

/* The options' texts live as long as the trainer. */
static rill_status keep_names(rill_trainer *t) {
    rill_train_options *o = &t->options;
    const char **texts[] = {&o->loss,      &o->solver,   &o->task,      &o->class_weights,
                            &o->optimizer, &o->schedule, &o->algorithm, &o->codec,
                            &o->reducer,   &o->scale,    &o->multiclass};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!*texts[i]) continue;
        char *copy = strdup(*texts[i]);
        if (!copy) return rill__data_memory("the options");
        t->names[t->name_count++] = copy;
        *texts[i] = copy;
    }
    return RILL_OK;
}

/* Up to so many of all ranks the optimum is found to the last digits of floats: that is cheap. */
static const double exact_entries = 5e5;

rill_status rill__train_solver(rill_trainer *t) {
    rill_train_options *o = &t->options;
    double entries = (double)t->objective.rows.data.entries;
    bool open = !t->solver;
    RILL_TRY_DATA(rill__team_sum(&t->team, RILL_OK, &entries, 1));
    bool smooth = t->objective.loss->most_curvature > 0 && o->l1 == 0;
    bool stochastic = o->reducer || o->staleness || o->local_steps || o->value_bits > 0;
    if (open) {
        double whole = entries * t->objective.columns;
        o->solver = !smooth || stochastic           ? "sgd"
                    : whole <= rill__newton_entries ? "newton"
                                                    : "hybrid";
        t->solver = rill__solver_find(o->solver);
        /* The first gradient grows with C, the weights do not. */
        double exact = 1e-6 / fmax(o->C, 1);
        if (o->tolerance == 0) o->tolerance = whole <= exact_entries ? exact : 1e-3;
        if (o->steps) o->tolerance = 1e-5;
    }
    if (strcmp(o->solver, "newton")) o->steps = 0;
    RILL_TRY_DATA(check_together(t));
    bool named = o->multiclass != NULL;
    t->objective.softmax = t->objective.columns > 1 && !strcmp(o->loss, "logistic") &&
                           !t->solver->separate && (!named || !strcmp(o->multiclass, "softmax"));
    return RILL_OK;
}

rill_status rill__train_options(rill_trainer *t, const rill_train_options *given) {
    rill_train_options options = RILL_TRAIN_OPTIONS_INIT;
    if (given) {
        if (given->size < sizeof(size_t) || given->size > sizeof options)
            return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_create: options.size = %zu",
                                   given->size);
        memcpy(&options, given, given->size);
    }
    options.size = sizeof options;
    t->options = options;
    RILL_TRY_DATA(keep_names(t));
    RILL_TRY_DATA(check_names(t));
    RILL_TRY_DATA(check_numbers(t));
    RILL_TRY_DATA(check_together(t));
    t->job.lr = t->options.lr;
    t->objective.C = t->options.C;
    t->objective.l2 = t->options.l2;
    t->objective.l1 = t->options.l1;
    return RILL_OK;
}
