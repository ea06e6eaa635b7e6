/* Mini-batch stochastic gradient descent, data-parallel.
 *
 * Idea: in a step every rank takes the next rows of its own part, in an order shuffled anew for
 * each epoch; the gradients of all ranks' rows are summed as sparse streams, and every rank makes
 * the same step, so that the weights stay the same on all of them to the bit. Ranks with fewer rows
 * than others send nothing in the last steps. Variants: a reducer sends the largest entries and
 * keeps the rest; sums may arrive some steps late (train_exchange.c); or ranks make steps of their
 * own and average what these changed (train_local.c).
 * Source: SparCML (Renggli et al., 2019), section 8.1.
 * Restriction: local steps need adagrad, or plain without l1; reducers can be one step late.
 * Memory: weights and gradient of n, optimizer state, streams of a sum's size.
 * Cost of a step: the non-zeros of the batch, and the sum of P sparse vectors.
 */
#include "train/solver.h"
#include "train/train_batch.h"
#include "train/train_exchange.h"
#include "train/train_local.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sgd_state {
    rill__batch batch;
    rill__exchange *exchange;
    rill_comm *comm; /* of the reducer */
    rill_reducer *reducer;
    rill_stream *update;
    bool pending;     /* a reducer's step is under way */
    uint64_t *order;  /* this rank's rows, in the order of the epoch */
    uint64_t *counts; /* train rows of each rank */
    uint64_t steps;   /* of an epoch */
    uint64_t largest_exchange;
    rill__local *local; /* local steps: what they changed */
} sgd_state;

static rill_status open_reducer(rill__job *job, sgd_state *s) {
    const rill_train_options *o = job->options;
    rill_reducer_options r = RILL_REDUCER_OPTIONS_INIT;
    bool exact = !strcmp(o->reducer, "topk");
    /* A named algorithm, so that a resumed run repeats the sums. */
    r.algorithm = !exact ? o->reducer : o->algorithm ? o->algorithm : "allgather";
    r.codec = o->codec;
    r.density = o->density;
    r.value_bits = o->value_bits;
    r.average = 0;
    r.seed = o->seed;
    RILL_TRY_DATA(rill__team_another(job->team, NULL, &s->comm));
    RILL_TRY_DATA(rill__data_agree(job->team->talk,
                                   rill_stream_create(RILL_F32, job->objective->n, &s->update)));
    return rill_reducer_create(s->comm, RILL_F32, job->objective->n, &r, &s->reducer);
}

static rill_status sgd_open(rill__job *job) {
    const rill__objective *o = job->objective;
    sgd_state *s = job->state = calloc(1, sizeof *s);
    if (s) s->counts = calloc((size_t)job->team->ranks, sizeof *s->counts);
    if (s) s->order = malloc(((size_t)o->rows.n + 1) * sizeof *s->order);
    bool good = s && s->counts && s->order;
    RILL_TRY_DATA(
        rill__data_agree(job->team->talk, good ? RILL_OK : rill__data_memory("the solver")));
    RILL_TRY_DATA(rill_comm_gather_bytes(job->team->talk, &o->rows.n, sizeof o->rows.n, s->counts));
    for (int r = 0; r < job->team->ranks; r++) {
        uint64_t steps = (s->counts[r] + job->options->batch - 1) / job->options->batch;
        if (steps > s->steps) s->steps = steps;
    }
    RILL_TRY_DATA(
        rill__data_agree(job->team->talk, rill__batch_open(&s->batch, o, job->weights,
                                                           job->options->reducer != NULL)));
    bool adaptive = !strcmp(job->options->optimizer, "adagrad") || job->weights->dual;
    if (job->options->lr == 0 && adaptive) job->lr = 0.5;
    else if (job->options->lr == 0) {
        /* Steps of their own are made with a rank's batch, and a velocity adds up steps. */
        uint64_t ranks = job->options->local_steps ? 1 : (uint64_t)job->team->ranks;
        RILL_TRY_DATA(rill__objective_rate(o, job->team, job->options->batch * ranks, &job->lr));
        if (!strcmp(job->options->optimizer, "momentum")) job->lr *= 1 - job->options->momentum;
        /* A sum that comes late is a step of a direction that has been walked already. */
        job->lr /= 1 + job->options->staleness;
    }
    rill__weights_follow(job->weights, job->lr);
    if (job->options->local_steps)
        RILL_TRY_DATA(rill__data_agree(job->team->talk, rill__local_open(job->weights, &s->local)));
    return job->options->reducer ? open_reducer(job, s)
                                 : rill__exchange_prepare(job->team, job->options);
}

static void sgd_close(rill__job *job) {
    sgd_state *s = job->state;
    if (!s) return;
    if (s->pending) rill_reducer_wait(s->reducer);
    rill_reducer_free(&s->reducer);
    rill_stream_free(&s->update);
    rill__exchange_close(&s->exchange);
    rill_comm_free(&s->comm);
    rill__batch_close(&s->batch);
    free(s->order);
    free(s->counts);
    rill__local_close(&s->local);
    free(s);
    job->state = NULL;
}

static uint64_t sgd_bytes(const rill__job *job) {
    const rill__objective *o = job->objective;
    const sgd_state *s = job->state;
    uint64_t bytes = rill__batch_bytes(&s->batch, o->n) + s->largest_exchange +
                     o->rows.n * sizeof *s->order;
    if (s->local) bytes += rill__local_bytes(s->local);
    if (s->reducer) bytes += 2 * o->n * sizeof(float);
    return bytes;
}

static double learning_rate(const rill__job *job, uint64_t step, uint64_t steps) {
    const rill_train_options *o = job->options;
    if (!strcmp(o->schedule, "1/t"))
        return job->lr / (1 + o->decay * ((double)job->epoch + (double)step / (double)steps));
    if (!strcmp(o->schedule, "step"))
        return job->lr * pow(o->step_factor, (double)(job->epoch / o->step_epochs));
    return job->lr;
}

/* Rows of this rank in a step; *all gets those of all ranks. */
static uint64_t step_rows(const rill__job *job, const sgd_state *s, uint64_t step, uint64_t *all) {
    uint64_t mine = 0, first = step * job->options->batch;
    *all = 0;
    for (int r = 0; r < job->team->ranks; r++) {
        uint64_t n = s->counts[r] > first ? s->counts[r] - first : 0;
        if (n > job->options->batch) n = job->options->batch;
        *all += n;
        if (r == job->team->rank) mine = n;
    }
    return mine;
}

static void apply(rill__job *job, double eta, const rill__sum_view *sum) {
    rill__weights_begin(job->weights, eta);
    rill__weights_apply(job->weights, sum->n, sum->idx, sum->value);
}

/* ---- reducers ------------------------------------------------------------------------------- */

static rill_status finish_reducer(rill__job *job, sgd_state *s, double eta) {
    if (!s->pending) return RILL_OK;
    double began = rill__now();
    rill_stats stats = RILL_STATS_INIT;
    s->pending = false;
    RILL_TRY_DATA(rill_reducer_wait(s->reducer));
    rill_reducer_stats(s->reducer, &stats);
    rill__team_account(job->team, began, &stats);
    rill__sum_view sum = {rill_stream_nnz(s->update), rill_stream_indices32(s->update),
                          rill_stream_values(s->update)};
    apply(job, eta, &sum);
    return RILL_OK;
}

/* A step without a gradient fails on all ranks. */
static rill_status refuse_reducer(const rill__job *job, const sgd_state *s, rill_status mine) {
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    if (!job->options->profile) {
        rill_error_set(RILL_OK, detail); /* what the others hear */
        rill_reducer_step_stream(s->reducer, NULL, s->update);
    }
    return rill_error_set(mine, detail);
}

/* mine: whether this rank has a gradient. */
static rill_status step_reducer(rill__job *job, sgd_state *s, rill_status mine, double eta) {
    if (job->options->staleness) RILL_TRY_DATA(finish_reducer(job, s, eta));
    if (mine != RILL_OK) return refuse_reducer(job, s, mine);
    RILL_TRY_DATA(rill__team_meet(job->team));
    double began = rill__now();
    RILL_TRY_DATA(rill_reducer_start_stream(s->reducer, s->batch.gradient, s->update));
    s->pending = true;
    rill__team_account(job->team, began, NULL);
    return job->options->staleness ? RILL_OK : finish_reducer(job, s, eta);
}

/* ---- epochs --------------------------------------------------------------------------------- */

static rill_status average(rill__job *job, sgd_state *s) {
    return rill__local_average(s->local, job->weights, s->exchange, job->team->ranks);
}

static rill_status step_local(rill__job *job, sgd_state *s, rill_status mine, uint64_t step,
                              double eta) {
    rill__weights *weights = job->weights;
    const rill__batch *b = &s->batch;
    if (mine == RILL_OK && rill__local_full(weights, eta)) {
        RILL_TRY_DATA(average(job, s));
        rill__weights_settle(weights);
    }
    if (mine == RILL_OK) mine = rill__local_step(s->local, weights, eta, b->n, b->idx, b->value);
    if (mine != RILL_OK) return rill__exchange_refuse(s->exchange, mine);
    return (step + 1) % job->options->local_steps ? RILL_OK : average(job, s);
}

static rill_status step_exact(rill__job *job, sgd_state *s, rill_status mine, double eta) {
    bool has;
    rill__sum_view sum;
    if (mine != RILL_OK) return rill__exchange_refuse(s->exchange, mine);
    RILL_TRY_DATA(rill__exchange_put(s->exchange, s->batch.n, s->batch.idx, s->batch.value));
    RILL_TRY_DATA(rill__exchange_take(s->exchange, job->options->staleness, &has, &sum));
    if (has) apply(job, eta, &sum);
    return RILL_OK;
}

/* The gradient is of this rank alone: what it may fail for the others learn in the exchange. */
static rill_status one_step(rill__job *job, sgd_state *s, uint64_t step, double *loss) {
    uint64_t all, rows = step_rows(job, s, step, &all);
    for (uint64_t i = 0; i < rows; i++)
        rill__job_foresee(job, step * job->options->batch + i);
    double eta = learning_rate(job, step, s->steps);
    bool local = job->options->local_steps > 0;
    double weight = 1 / (double)(local ? (rows ? rows : 1) : all);
    rill_status status = rill__batch_compute(&s->batch, job->objective, job->weights,
                                             s->order + step * job->options->batch, rows, weight);
    if (status == RILL_OK) *loss += s->batch.loss;
    status = s->reducer ? step_reducer(job, s, status, eta)
             : local    ? step_local(job, s, status, step, eta)
                        : step_exact(job, s, status, eta);
    rill__batch_clear(&s->batch);
    return status;
}

/* What is still under way at the end of an epoch, or before a step. */
static rill_status drain(rill__job *job, sgd_state *s, uint64_t step) {
    double eta = learning_rate(job, step, s->steps);
    if (s->reducer) return finish_reducer(job, s, eta);
    if (s->local) return step % job->options->local_steps ? average(job, s) : RILL_OK;
    for (;;) {
        bool has;
        rill__sum_view sum;
        RILL_TRY_DATA(rill__exchange_take(s->exchange, 0, &has, &sum));
        if (!has) return RILL_OK;
        apply(job, eta, &sum);
    }
}

/* One rank and row after row: the gradient need not be gathered. *step is where it ends. */
static rill_status epoch_alone(rill__job *job, const sgd_state *s, uint64_t *at, double *sum) {
    const rill__objective *o = job->objective;
    rill__weights *weights = job->weights;
    const rill_data_view *data = &o->rows.data;
    double loss = 0;
    uint64_t step = *at;
    for (; step < s->steps; step++) {
        RILL_TRY_DATA(rill__watch_at(&job->watch, job->team, step, s->steps));
        if (job->watch.stop) break;
        uint64_t row = s->order[step];
        rill__job_foresee(job, step);
        float target = o->rows.target[row];
        double z, y = rill__row_y(o, target, 0), factor = rill__row_weight(o, &o->rows, row);
        rill__row_decide(o, &o->rows, row, weights->w, &z);
        z *= weights->scale;
        loss += factor * rill__loss_value(o, z, y);
        double slope = rill__loss_slope(o, z, y);
        rill__weights_begin(weights, learning_rate(job, step, s->steps));
        float by = (float)(-weights->eta * factor * slope / weights->scale);
        if (by != 0)
            for (uint64_t e = data->row[row]; e < data->row[row + 1]; e++)
                weights->w[data->index32[e]] += by * data->value[e];
        if (o->bias >= 0) weights->w[o->features - 1] += by * (float)o->bias;
    }
    *sum += loss;
    *at = step;
    return RILL_OK;
}

static bool is_alone(const rill__job *job) {
    const rill_train_options *o = job->options;
    return job->team->ranks == 1 && o->batch == 1 && job->objective->columns == 1 && !o->reducer &&
           !o->local_steps && !o->staleness && rill__weights_scaled(job->weights) &&
           !job->objective->factor && !job->objective->rows.factor;
}

static rill_status shuffle(const rill__job *job, sgd_state *s) {
    const rill__objective *o = job->objective;
    const uint64_t *list = o->rows.list;
    for (uint64_t i = 0; i < o->rows.n; i++)
        s->order[i] = list ? list[i] : i;
    return rill__dataset_shuffle(o->set, job->options->seed, job->epoch, job->options->window,
                                 s->order, o->rows.n);
}

/* An epoch that broke off: ends the others', and leaves nothing that the next one would find. */
static void break_off(rill__job *job, sgd_state *s) {
    char detail[512];
    rill__team_refuse(job->team, job->options->staleness + 1);
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    if (s->pending) rill_reducer_wait(s->reducer);
    s->pending = false;
    rill__local_forget(s->local);
    rill__exchange_close(&s->exchange);
    rill_error_set(RILL_ERR_STATE, detail);
}

/* This rank's rows before a step. */
static uint64_t rows_before(const rill__job *job, uint64_t step) {
    uint64_t rows = step * job->options->batch, all = job->objective->rows.n;
    return rows < all ? rows : all;
}

static rill_status sgd_epoch(rill__job *job, rill__epoch *epoch) {
    const rill__objective *o = job->objective;
    sgd_state *s = job->state;
    uint64_t first = rill__watch_unit(job->share, s->steps), step = first;
    RILL_TRY_DATA(shuffle(job, s));
    if (is_alone(job)) RILL_TRY_DATA(epoch_alone(job, s, &step, &epoch->loss));
    else {
        uint64_t dim = s->local ? rill__local_dim(job->weights) : o->n;
        rill_status status = s->reducer
                                 ? RILL_OK
                                 : rill__exchange_open(job->team, job->options, dim, &s->exchange);
        for (; status == RILL_OK && step < s->steps; step++) {
            status = rill__watch_at(&job->watch, job->team, step, s->steps);
            if (status != RILL_OK || job->watch.stop) break;
            status = one_step(job, s, step, &epoch->loss);
        }
        if (status == RILL_OK) status = drain(job, s, step);
        if (rill__exchange_bytes(s->exchange) > s->largest_exchange)
            s->largest_exchange = rill__exchange_bytes(s->exchange);
        if (status != RILL_OK) break_off(job, s);
        rill__exchange_close(&s->exchange);
        if (status != RILL_OK) return status;
    }
    rill__weights_settle(job->weights);
    epoch->steps = step - first;
    epoch->samples = rows_before(job, step) - rows_before(job, first);
    if (job->watch.stop) epoch->share = job->watch.at;
    return RILL_OK;
}

static rill_status sgd_save(rill__job *job, const char *path) {
    const sgd_state *s = job->state;
    return s->reducer ? rill_reducer_save(s->reducer, path) : RILL_OK;
}

static rill_status sgd_load(rill__job *job, const char *path) {
    const sgd_state *s = job->state;
    return s->reducer ? rill_reducer_load(s->reducer, path) : RILL_OK;
}

#define STEPS                                                                                      \
    .stochastic = true, .open = sgd_open, .epoch = sgd_epoch, .close = sgd_close,                  \
    .bytes = sgd_bytes, .save = sgd_save, .load = sgd_load

const rill__solver rill__solver_sgd = {
    .name = "sgd",
    .description = "mini-batch stochastic gradient descent: plain, momentum, adagrad",
    STEPS,
};

/* The same steps, of weights that follow from the sum of all gradients: train_weights.c. */
const rill__solver rill__solver_ftrl = {
    .name = "ftrl",
    .description = "follow the regularised leader: with l1 a sparse model from the first pass on",
    .follows = true,
    STEPS,
};
