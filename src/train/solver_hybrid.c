/* Adaptive passes that come close, then Newton's method to the optimum.
 *
 * Idea: in each of the first epochs every rank goes over its own rows alone, row by row, with
 * AdaGrad; then the ranks' weights are averaged, each weight by the sums of squares that AdaGrad
 * has for it. A plain mean would divide a rare feature, which few ranks have, by the number of
 * ranks. Two vectors are summed for a pass, of the features that several have. The passes know
 * nothing of the penalty; Newton's steps, which start from there, do. Where the passes end worse
 * than they began, these start from there.
 * Source: Agarwal, Chapelle, Dudik, Langford, A reliable effective terascale linear learning system
 * (2014), which goes on with L-BFGS.
 * Restriction: as newton.
 * Memory: newton's, 2 n floats, streams. Cost of a pass: the rank's non-zeros, two sums of
 * weights that several have, and those that others lack to them.
 */
#include "train/solver.h"
#include "train/train_exchange.h"

#include <math.h>
#include <stdlib.h>

enum { PASSES = 2 };
static const double rate = 0.5;

typedef struct hybrid_state {
    void *newton; /* its state */
    uint64_t *order;
    double *z;
    float *products;     /* weights times sums of squares */
    rill_stream *stream; /* of all weights; NULL where vectors are by place */
    rill_options how;
} hybrid_state;

/* What newton has no use for. */
static void free_passes(hybrid_state *s) {
    rill_stream_free(&s->stream);
    free(s->order);
    free(s->z);
    free(s->products);
    s->order = NULL;
    s->z = NULL;
    s->products = NULL;
}

static rill_status open_alone(const rill__job *job, hybrid_state *s) {
    const rill__objective *o = job->objective;
    free_passes(s);
    s->order = malloc(((size_t)o->rows.n + 1) * sizeof *s->order);
    s->z = malloc((size_t)o->columns * sizeof *s->z);
    s->products = rill__vector(o->n + RILL_SLACK, sizeof *s->products);
    s->how = (rill_options)RILL_OPTIONS_INIT;
    s->how.algorithm = job->options->algorithm;
    s->how.codec = job->options->codec;
    if (!s->order || !s->z || !s->products) return rill__data_memory("the solver");
    return o->places.list ? RILL_OK : rill_stream_create(RILL_F32, o->n, &s->stream);
}

static void hybrid_close(rill__job *job) {
    hybrid_state *s = job->state;
    if (!s) return;
    job->state = s->newton;
    rill__solver_newton.close(job);
    free_passes(s);
    free(s);
    job->state = NULL;
}

static rill_status hybrid_open(rill__job *job) {
    hybrid_state *s = calloc(1, sizeof *s);
    rill_status status = s ? open_alone(job, s) : rill__data_memory("the solver");
    status = rill__data_agree(job->team->talk, status);
    job->near = true;
    if (status == RILL_OK) status = rill__solver_newton.open(job);
    if (s) s->newton = job->state;
    job->state = s;
    return status;
}

static uint64_t hybrid_bytes(const rill__job *job) {
    rill__job newton = *job;
    const hybrid_state *s = job->state;
    newton.state = s->newton;
    uint64_t passes = s->order ? job->objective->n * sizeof(float) +
                                     job->objective->rows.n * sizeof *s->order
                               : 0;
    return rill__solver_newton.bytes(&newton) + passes;
}

/* A weight after a gradient g. */
static inline void move(rill__weights *weights, uint64_t j, double g) {
    float squares = weights->state[j] += (float)(g * g);
    if (squares > 0) weights->w[j] -= (float)(rate * g / sqrt(squares));
}

static void learn_row(rill__job *job, double *z, uint64_t row, double *loss) {
    const rill__objective *o = job->objective;
    const rill_data_view *d = &o->rows.data;
    uint64_t columns = (uint64_t)o->columns;
    float target = o->rows.target[row], *w = job->weights->w;
    double weight = rill__row_weight(o, &o->rows, row), by = rill__row_factor(&o->rows, row);
    for (uint64_t c = 0; c < columns; c++)
        z[c] = o->bias >= 0 ? w[(o->features - 1) * columns + c] * o->bias : 0;
    for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++) {
        double x = by * d->value[e] * rill__factor(o, d->index32[e]);
        for (uint64_t c = 0; c < columns; c++)
            z[c] += w[d->index32[e] * columns + c] * x;
    }
    *loss += weight * rill__row_loss(o, target, z, z, NULL);
    for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++) {
        double x = weight * by * d->value[e] * rill__factor(o, d->index32[e]);
        for (uint64_t c = 0; x != 0 && c < columns; c++)
            move(job->weights, d->index32[e] * columns + c, z[c] * x);
    }
    for (uint64_t c = 0; o->bias >= 0 && c < columns; c++)
        move(job->weights, (o->features - 1) * columns + c, weight * z[c] * o->bias);
}

/* All ranks: weights that several have become means by their sums of squares; those that others
 * lack go to them, without the sums, which only the rows of a feature ask for. */
static rill_status average(rill__job *job, hybrid_state *s) {
    const rill__places *p = &job->objective->places;
    float *w = job->weights->w, *squares = job->weights->state, *sum = s->products;
    uint64_t columns = p->columns;
    if (job->team->ranks == 1) return RILL_OK;
    RILL_TRY_DATA(rill__team_comm(job->team));
    for (uint64_t i = p->alone; i < p->features; i++)
        for (uint64_t c = 0, j = rill__place_feature(p, i) * columns; c < columns; c++, j++)
            sum[i * columns + c] = w[j] * squares[j];
    RILL_TRY_DATA(rill__places_sum(p, job->team, &s->how, s->stream, sum));
    for (uint64_t i = p->alone; i < p->features; i++)
        for (uint64_t c = 0, j = rill__place_feature(p, i) * columns; c < columns; c++, j++) {
            w[j] = sum[i * columns + c];
            sum[i * columns + c] = squares[j];
        }
    RILL_TRY_DATA(rill__places_sum(p, job->team, &s->how, s->stream, sum));
    for (uint64_t i = p->alone; i < p->features; i++)
        for (uint64_t c = 0, j = rill__place_feature(p, i) * columns; c < columns; c++, j++) {
            squares[j] = sum[i * columns + c];
            w[j] = squares[j] > 0 ? w[j] / squares[j] : 0;
        }
    RILL_TRY_DATA(rill__places_spread(p, job->team, &s->how, w));
    for (uint64_t j = 0; j < job->weights->n; j++)
        squares[j] /= (float)job->team->ranks;
    return RILL_OK;
}

/* All ranks: back to the start where that is better. */
static rill_status compare(rill__job *job, hybrid_state *s) {
    const rill__objective *o = job->objective;
    double value, loss = 0;
    RILL_TRY_DATA(rill__objective_value(o, job->team, job->weights->w, &value, NULL));
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        float target = o->rows.target[row];
        for (int c = 0; c < o->columns; c++)
            s->z[c] = o->bias >= 0 ? job->start[c] * o->bias : 0;
        loss += rill__row_weight(o, &o->rows, row) * rill__row_loss(o, target, s->z, NULL, NULL);
    }
    RILL_TRY_DATA(rill__team_sum(job->team, RILL_OK, &loss, 1));
    if (!(value < o->C * loss)) rill__job_start(job, job->weights->w);
    return RILL_OK;
}

static rill_status pass(rill__job *job, hybrid_state *s, rill__epoch *epoch) {
    const rill__objective *o = job->objective;
    if (!s->order) /* a checkpoint has led back here */
        RILL_TRY_DATA(rill__data_agree(job->team->talk, open_alone(job, s)));
    for (uint64_t i = 0; i < o->rows.n; i++)
        s->order[i] = rill__row_at(&o->rows, i);
    RILL_TRY_DATA(rill__dataset_shuffle(o->set, job->options->seed, job->epoch,
                                        job->options->window, s->order, o->rows.n));
    uint64_t first = rill__watch_unit(job->share, o->rows.n), i = first;
    rill_status status = RILL_OK;
    for (; status == RILL_OK; i++) {
        status = rill__watch_at(&job->watch, job->team, i, o->rows.n);
        if (status != RILL_OK || job->watch.stop || i == o->rows.n) break;
        rill__job_foresee(job, i);
        learn_row(job, s->z, s->order[i], &epoch->loss);
    }
    epoch->samples = epoch->steps = i - first;
    if (job->watch.stop) epoch->share = job->watch.at;
    bool last = job->epoch + 1 == PASSES && !job->watch.stop;
    if (status == RILL_OK) status = average(job, s);
    if (status != RILL_OK) {
        rill__team_refuse(job->team, 2);
        return status;
    }
    return last ? compare(job, s) : RILL_OK;
}

/* The sums of squares, which nobody asks for any more, become zeros: those take no memory until
 * they are written to. */
static void free_squares(rill__weights *weights) {
    float *zeros = calloc((size_t)weights->n + RILL_SLACK, sizeof *zeros);
    if (!zeros) return;
    free(weights->state);
    weights->state = zeros;
}

static rill_status hybrid_epoch(rill__job *job, rill__epoch *epoch) {
    hybrid_state *s = job->state;
    if (job->epoch < PASSES && job->warm == 0) return pass(job, s, epoch);
    if (s->order) free_squares(job->weights);
    free_passes(s); /* before newton's vectors are written to for the first time */
    job->state = s->newton;
    rill_status status = rill__solver_newton.epoch(job, epoch);
    job->state = s;
    return status;
}

/* A checkpoint has the sums of all features. */
static rill_status hybrid_complete(rill__job *job) {
    hybrid_state *s = job->state;
    if (!s->order || job->team->ranks == 1) return RILL_OK; /* newton has no use for them */
    RILL_TRY_DATA(rill__team_comm(job->team));
    return rill__places_spread(&job->objective->places, job->team, &s->how, job->weights->state);
}

const rill__solver rill__solver_hybrid = {
    .name = "hybrid",
    .description = "two adaptive passes of each rank alone, averaged, then newton",
    .smooth = true,
    .no_l1 = true,
    .adaptive = true,
    .open = hybrid_open,
    .epoch = hybrid_epoch,
    .close = hybrid_close,
    .bytes = hybrid_bytes,
    .complete = hybrid_complete,
};
