/* Distributed random block coordinate descent on the primal.
 *
 * Idea: the coordinates that occur in the data are cut into one slice per rank, and each slice is
 * permuted anew for each epoch. In a step every slice offers its next coordinates (100 by default).
 * Every rank adds up its own rows' part of their slopes from its columns; a sparse reduce_scatter
 * gives each rank the sums of its slice; it makes its steps, and a sparse allgather tells all ranks
 * what changed, who then update the decision values of their own rows. A step is that of the
 * quadratic upper bound, soft-thresholded under l1, with the bound widened by
 *     beta = 1 + (together - 1) (omega - 1) / (coordinates - 1),   omega: most entries of a row,
 * which makes simultaneous steps safe.
 * Source: Richtarik, Takac, Parallel coordinate descent methods for big data optimization (2016),
 * and their distributed Hydra; SparCML section 8.1, where nodes exchange 100 coordinates by
 * allgather.
 * Restriction: a loss with curvature. The algorithm option names that of the allgather; "dense" is
 * MPI's, of whole slices.
 * Memory: the rank's entries once more, by columns (8 bytes each); n values for norms, permutation
 * and index; one value per row and column.
 * Cost of a step: the entries of P * 100 columns; two exchanges of that many pairs at most.
 */
#include "train/data_random.h"
#include "train/solver.h"
#include "train/train_exchange.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct scd_state {
    uint64_t active;   /* features that occur */
    uint64_t n;        /* coordinates: active * columns */
    uint32_t *feature; /* of each active one */
    float *square;     /* sum of squares of each active feature, over all ranks */
    uint64_t *start;   /* active + 1: entries of its column */
    uint32_t *row;     /* train row, as its place in the list */
    float *value;
    double *z;          /* by train row and column */
    uint32_t *permuted; /* coordinates, slice by slice */
    float *slope;       /* by coordinate; 0 between steps */
    float *folded;      /* weights times features' factors */
    double beta;
    uint64_t together, room;
    uint32_t *chosen, *idx;
    float *val, *parts; /* parts: of the chosen ones' slopes */
    float *dense;       /* algorithm "dense": all coordinates' changes */
    int *places;        /* of the slices in it: counts, offsets; then room */
    bool placed;
    rill_stream *part, *sums, *mine, *changes;
} scd_state;

static void *take(size_t n, size_t size) { return calloc(n + RILL_SLACK, size); }

/* Sums of squares over all ranks, and from them the features that occur. */
static rill_status find_active(rill__job *job, scd_state *s, float *square) {
    const rill__objective *o = job->objective;
    const rill_data_view *d = &o->rows.data;
    rill_stream *stream = NULL;
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        double factor = rill__row_weight(o, &o->rows, row), by = rill__row_factor(&o->rows, row);
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
            square[d->index32[e]] += (float)(factor * by * by * d->value[e] * d->value[e]);
        if (o->bias >= 0) square[o->features - 1] += (float)(factor * o->bias * o->bias);
    }
    RILL_TRY_DATA(rill__team_comm(job->team));
    rill_status status = rill_stream_create(RILL_F32, o->features, &stream);
    if (status == RILL_OK) {
        rill_options how = RILL_OPTIONS_INIT;
        how.codec = job->options->codec;
        status = rill__exchange_dense(job->team, &how, stream, square);
    }
    if (status != RILL_OK) rill__team_refuse(job->team, 1);
    rill_stream_free(&stream);
    RILL_TRY_DATA(rill__team_agree(job->team, status));
    for (uint64_t j = 0; j < o->features; j++) {
        square[j] *= rill__factor(o, j) * rill__factor(o, j);
        s->active += square[j] > 0;
    }
    return RILL_OK;
}

/* The rows of this rank by columns. place: number of each feature among the active ones. */
static void fill_columns(const rill__job *job, scd_state *s, const uint32_t *place) {
    const rill__objective *o = job->objective;
    const rill_data_view *d = &o->rows.data;
    uint32_t of_bias = o->bias > 0 ? place[o->features - 1] : UINT32_MAX;
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
            if (place[d->index32[e]] != UINT32_MAX) s->start[place[d->index32[e]] + 1]++;
        if (of_bias != UINT32_MAX) s->start[of_bias + 1]++;
    }
    for (uint64_t k = 0; k < s->active; k++)
        s->start[k + 1] += s->start[k];
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        float by = rill__row_factor(&o->rows, row);
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++) {
            uint32_t k = place[d->index32[e]];
            if (k == UINT32_MAX) continue;
            uint64_t at = s->start[k]++;
            s->row[at] = (uint32_t)i;
            s->value[at] = by * d->value[e] * rill__factor(o, d->index32[e]);
        }
        if (of_bias != UINT32_MAX) {
            uint64_t at = s->start[of_bias]++;
            s->row[at] = (uint32_t)i;
            s->value[at] = (float)o->bias;
        }
    }
    for (uint64_t k = s->active; k > 0; k--)
        s->start[k] = s->start[k - 1];
    s->start[0] = 0;
}

/* The bound of simultaneous steps. */
static rill_status find_beta(rill__job *job, scd_state *s) {
    const rill__objective *o = job->objective;
    const rill_data_view *d = &o->rows.data;
    uint64_t omega = 1;
    for (uint64_t i = 0; i < o->rows.n; i++) {
        uint64_t row = rill__row_at(&o->rows, i);
        uint64_t length = o->bias > 0;
        for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
            length += rill__factor(o, d->index32[e]) != 0;
        if (length > omega) omega = length;
    }
    RILL_TRY_DATA(rill__most_u64(job->team->talk, &omega, 1));
    /* Columns of weights do not interact: those of one class are drawn from its active features. */
    double crowd = (double)s->together / o->columns;
    if (crowd < 1) crowd = 1;
    s->beta = s->active > 1 ? 1 + (crowd - 1) * ((double)omega - 1) / ((double)s->active - 1) : 1;
    if (s->beta > (double)omega) s->beta = (double)omega;
    return RILL_OK;
}

static uint64_t slice(const rill__job *job, const scd_state *s, int rank) {
    return s->n / (uint64_t)job->team->ranks * (uint64_t)rank +
           s->n % (uint64_t)job->team->ranks * (uint64_t)rank / (uint64_t)job->team->ranks;
}

static bool is_dense(const rill__job *job) {
    return job->options->algorithm && !strcmp(job->options->algorithm, "dense");
}

static rill_status open_dense(const rill__job *job, scd_state *s) {
    if (s->n > INT32_MAX)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "scd: %llu coordinates are too many for the dense allgather",
                               (unsigned long long)s->n);
    s->dense = take((size_t)s->n, sizeof *s->dense);
    s->places = take(4 * (size_t)job->team->ranks, sizeof *s->places);
    return s->dense && s->places ? RILL_OK : rill__data_memory("the dense allgather");
}

static rill_status open_coordinates(rill__job *job, scd_state *s, const float *square,
                                    uint32_t *place) {
    const rill__objective *o = job->objective;
    s->n = s->active * (uint64_t)o->columns;
    s->feature = take((size_t)s->active, sizeof *s->feature);
    s->square = take((size_t)s->active, sizeof *s->square);
    s->start = take((size_t)s->active + 2, sizeof *s->start);
    size_t entries = (size_t)(o->rows.data.entries + (o->bias > 0 ? o->rows.n : 0));
    s->row = take(entries, sizeof *s->row);
    s->value = take(entries, sizeof *s->value);
    s->z = take((size_t)o->rows.n * (size_t)o->columns, sizeof *s->z);
    s->permuted = take((size_t)s->n, sizeof *s->permuted);
    s->slope = take((size_t)s->n, sizeof *s->slope);
    if (o->factor) s->folded = take((size_t)o->n, sizeof *s->folded);
    s->room = job->options->coordinates * (uint64_t)job->team->ranks;
    if (s->room > s->n) s->room = s->n;
    s->chosen = take((size_t)s->room, sizeof *s->chosen);
    s->idx = take((size_t)s->room, sizeof *s->idx);
    s->val = take((size_t)s->room, sizeof *s->val);
    s->parts = take((size_t)s->room, sizeof *s->parts);
    if (!s->feature || !s->square || !s->start || !s->row || !s->value || !s->z || !s->permuted ||
        !s->slope || !s->chosen || !s->idx || !s->val || !s->parts || (o->factor && !s->folded))
        return rill__data_memory("the solver");
    uint32_t k = 0;
    for (uint64_t j = 0; j < o->features; j++) {
        place[j] = square[j] > 0 ? k : UINT32_MAX;
        if (place[j] == UINT32_MAX) continue;
        s->feature[k] = (uint32_t)j;
        s->square[k++] = square[j];
    }
    fill_columns(job, s, place);
    s->together = s->room;
    rill_stream **streams[] = {&s->part, &s->sums, &s->mine, &s->changes};
    for (int i = 0; i < 4; i++)
        RILL_TRY_DATA(rill_stream_create(RILL_F32, s->n ? s->n : 1, streams[i]));
    return is_dense(job) ? open_dense(job, s) : RILL_OK;
}

static rill_status scd_open(rill__job *job) {
    const rill__objective *o = job->objective;
    scd_state *s = job->state = calloc(1, sizeof *s);
    float *square = take((size_t)o->features, sizeof *square);
    uint32_t *place = malloc((size_t)o->features * sizeof *place);
    rill_status status = s && square && place ? RILL_OK : rill__data_memory("the solver");
    status = rill__data_agree(job->team->talk, status);
    if (status == RILL_OK) status = find_active(job, s, square);
    if (status == RILL_OK)
        status = rill__data_agree(job->team->talk, open_coordinates(job, s, square, place));
    if (status == RILL_OK) status = find_beta(job, s);
    free(square);
    free(place);
    return status;
}

static void scd_close(rill__job *job) {
    scd_state *s = job->state;
    if (!s) return;
    rill_stream_free(&s->part);
    rill_stream_free(&s->sums);
    rill_stream_free(&s->mine);
    rill_stream_free(&s->changes);
    free(s->feature);
    free(s->square);
    free(s->start);
    free(s->row);
    free(s->value);
    free(s->folded);
    free(s->z);
    free(s->permuted);
    free(s->slope);
    free(s->chosen);
    free(s->idx);
    free(s->val);
    free(s->parts);
    free(s->dense);
    free(s->places);
    free(s);
    job->state = NULL;
}

static uint64_t scd_bytes(const rill__job *job) {
    const rill__objective *o = job->objective;
    const scd_state *s = job->state;
    return o->rows.data.entries * 8 + s->active * 16 + s->n * 8 +
           o->rows.n * (uint64_t)o->columns * 8 + s->room * 16;
}

/* Each slice in a random order, the same on all ranks. */
static void permute(const rill__job *job, scd_state *s) {
    for (uint64_t i = 0; i < s->n; i++)
        s->permuted[i] = (uint32_t)i;
    for (int r = 0; r < job->team->ranks; r++) {
        uint64_t first = slice(job, s, r), count = slice(job, s, r + 1) - first, random[2];
        for (uint64_t i = count; i > 1; i--) {
            rill__random(job->options->seed, 77, job->epoch, first + i, random);
            uint64_t at = random[0] % i;
            uint32_t swap = s->permuted[first + i - 1];
            s->permuted[first + i - 1] = s->permuted[first + at];
            s->permuted[first + at] = swap;
        }
    }
}

/* The coordinates of a step, of all slices. */
static uint64_t choose(const rill__job *job, scd_state *s, uint64_t step) {
    uint64_t n = 0, each = job->options->coordinates;
    for (int r = 0; r < job->team->ranks; r++) {
        uint64_t last = slice(job, s, r + 1);
        for (uint64_t i = slice(job, s, r) + step * each, k = 0; k < each && i < last; i++, k++)
            s->chosen[n++] = s->permuted[i];
    }
    return n;
}

/* This rank's part of a coordinate's slope. */
static double part_of_slope(const rill__job *job, const scd_state *s, uint32_t coordinate) {
    const rill__objective *o = job->objective;
    uint32_t k = coordinate / (uint32_t)o->columns;
    int column = (int)(coordinate % (uint32_t)o->columns);
    double sum = 0;
    for (uint64_t e = s->start[k]; e < s->start[k + 1]; e++) {
        uint64_t i = s->row[e];
        uint64_t row = rill__row_at(&o->rows, i);
        double z = s->z[i * (uint64_t)o->columns + (uint64_t)column];
        sum += rill__row_weight(o, &o->rows, row) * s->value[e] *
               rill__loss_slope(o, z, rill__row_y(o, o->rows.target[row], column));
    }
    return sum;
}

static uint64_t weight_of(const rill__job *job, const scd_state *s, uint32_t coordinate) {
    const rill__objective *o = job->objective;
    return (uint64_t)s->feature[coordinate / (uint32_t)o->columns] * (uint64_t)o->columns +
           coordinate % (uint32_t)o->columns;
}

/* How far the coordinate goes, from the sum of its slopes. */
static float step_of(const rill__job *job, const scd_state *s, uint32_t coordinate) {
    const rill_train_options *o = job->options;
    uint64_t at = weight_of(job, s, coordinate);
    bool free = at >= job->objective->penalised;
    double w = job->weights->w[at], l2 = free ? 0 : o->l2, l1 = free ? 0 : o->l1;
    double slope = o->C * s->slope[coordinate] + l2 * w;
    double bound = s->beta * o->C * job->objective->loss->most_curvature *
                       s->square[coordinate / (uint32_t)job->objective->columns] +
                   l2;
    double to = w - slope / bound, cut = l1 / bound;
    to = to > cut ? to - cut : to < -cut ? to + cut : 0;
    return (float)(to - w);
}

static void move(rill__job *job, scd_state *s, uint32_t coordinate, float by) {
    const rill__objective *o = job->objective;
    uint32_t k = coordinate / (uint32_t)o->columns, column = coordinate % (uint32_t)o->columns;
    job->weights->w[weight_of(job, s, coordinate)] += by;
    for (uint64_t e = s->start[k]; e < s->start[k + 1]; e++)
        s->z[s->row[e] * (uint64_t)o->columns + column] += (double)by * s->value[e];
}

typedef struct scd_work {
    const rill__job *job;
    scd_state *state;
    uint64_t n; /* chosen */
} scd_work;

static void find_parts(void *context, int thread, int threads) {
    const scd_work *work = context;
    scd_state *s = work->state;
    uint64_t last = rill__pool_cut(work->n, thread + 1, threads);
    for (uint64_t i = rill__pool_cut(work->n, thread, threads); i < last; i++)
        s->parts[i] = (float)part_of_slope(work->job, s, s->chosen[i]);
}

/* slope of the coordinates in [*first, *first + *count) becomes the sum over the ranks. */
static rill_status sum_slopes(rill__job *job, scd_state *s, uint64_t n, uint64_t *first,
                              uint64_t *count) {
    scd_work work = {job, s, n};
    uint64_t pairs = 0;
    rill__pool_run(job->objective->pool, find_parts, &work);
    for (uint64_t i = 0; i < n; i++) {
        if (s->parts[i] == 0) continue;
        s->idx[pairs] = s->chosen[i];
        s->val[pairs++] = s->parts[i];
    }
    RILL_TRY_DATA(rill_stream_set_pairs(s->part, pairs, s->idx, s->val));
    RILL_TRY_DATA(rill__team_meet(job->team));
    double began = rill__now();
    rill_stats stats = RILL_STATS_INIT;
    RILL_TRY_DATA(
        rill_reduce_scatter(job->team->comm, s->part, s->sums, RILL_SUM, first, count, NULL));
    rill_comm_stats(job->team->comm, &stats);
    rill__team_account(job->team, began, &stats);
    const uint32_t *idx = rill_stream_indices32(s->sums);
    const float *value = rill_stream_values(s->sums);
    for (uint64_t i = 0, total = rill_stream_nnz(s->sums); i < total; i++)
        s->slope[idx ? idx[i] : i] = value[i];
    return RILL_OK;
}

/* As a program without sparse collectives would: whole slices, by MPI where it is there. */
static rill_status gather_dense(rill__job *job, scd_state *s, uint64_t pairs, uint64_t first,
                                uint64_t count) {
    RILL_TRY_DATA(rill__team_agree(job->team, RILL_OK)); /* of the sum of slopes */
    if (!s->placed) {
        int mine[2] = {(int)first, (int)count}, *all = s->places + 2 * (size_t)job->team->ranks;
        RILL_TRY_DATA(rill_comm_gather_bytes(job->team->talk, mine, sizeof mine, all));
        for (int r = 0; r < job->team->ranks; r++) { /* counts, then offsets */
            s->places[r] = all[2 * r + 1];
            s->places[job->team->ranks + r] = all[2 * r];
        }
        s->placed = true;
    }
    RILL_TRY_DATA(rill__team_meet(job->team));
    double began = rill__now();
    memset(s->dense + first, 0, (size_t)count * sizeof *s->dense);
    for (uint64_t i = 0; i < pairs; i++)
        s->dense[s->idx[i]] = s->val[i];
    RILL_TRY_DATA(rill__team_gather(job->team, s->dense, s->places, s->places + job->team->ranks));
    rill_stats stats = RILL_STATS_INIT;
    stats.sent_bytes = count * sizeof(float) * (uint64_t)(job->team->ranks - 1);
    stats.algorithm = "dense";
    rill__team_account(job->team, began, &stats);
    for (uint64_t k = 0; k < s->n; k++)
        if (s->dense[k] != 0) move(job, s, (uint32_t)k, s->dense[k]);
    return RILL_OK;
}

static rill_status gather_sparse(rill__job *job, scd_state *s, uint64_t pairs) {
    RILL_TRY_DATA(rill_stream_set_pairs(s->mine, pairs, s->idx, s->val));
    rill_options options = RILL_OPTIONS_INIT;
    options.algorithm = job->options->algorithm;
    options.codec = job->options->codec;
    RILL_TRY_DATA(rill__team_meet(job->team));
    double began = rill__now();
    rill_stats stats = RILL_STATS_INIT;
    RILL_TRY_DATA(rill_allgather(job->team->comm, s->mine, s->changes, &options));
    rill_comm_stats(job->team->comm, &stats);
    rill__team_account(job->team, began, &stats);
    const uint32_t *idx = rill_stream_indices32(s->changes);
    const float *value = rill_stream_values(s->changes);
    for (uint64_t i = 0, total = rill_stream_nnz(s->changes); i < total; i++)
        if (value[i] != 0) move(job, s, idx ? idx[i] : (uint32_t)i, value[i]);
    return RILL_OK;
}

static rill_status one_step(rill__job *job, scd_state *s, uint64_t step) {
    uint64_t n = choose(job, s, step), first = 0, count = 0, pairs = 0;
    RILL_TRY_DATA(sum_slopes(job, s, n, &first, &count));
    for (uint64_t i = 0; i < n; i++) {
        uint32_t k = s->chosen[i];
        if (k < first || k - first >= count) continue;
        float by = step_of(job, s, k);
        s->slope[k] = 0;
        if (by == 0) continue;
        s->idx[pairs] = k;
        s->val[pairs++] = by;
    }
    return is_dense(job) ? gather_dense(job, s, pairs, first, count) : gather_sparse(job, s, pairs);
}

static rill_status scd_epoch(rill__job *job, rill__epoch *epoch) {
    const rill__objective *o = job->objective;
    scd_state *s = job->state;
    uint64_t longest = 0;
    for (int r = 0; r < job->team->ranks; r++) {
        uint64_t length = slice(job, s, r + 1) - slice(job, s, r);
        if (length > longest) longest = length;
    }
    uint64_t steps = (longest + job->options->coordinates - 1) / job->options->coordinates;
    uint64_t first = rill__watch_unit(job->share, steps), step = first;
    epoch->samples = o->rows.n;
    /* As after a checkpoint: decision values, too, start from the weights. */
    RILL_TRY_DATA(rill__team_comm(job->team));
    permute(job, s);
    memset(s->slope, 0, (size_t)s->n * sizeof *s->slope); /* what a broken-off epoch left */
    const float *w = rill__objective_fold(o, job->weights->w, s->folded);
    for (uint64_t i = 0; i < o->rows.n; i++)
        rill__row_decide(o, &o->rows, rill__row_at(&o->rows, i), w,
                         s->z + i * (uint64_t)o->columns);
    rill_status status = RILL_OK;
    for (; status == RILL_OK && step < steps; step++) {
        status = rill__watch_at(&job->watch, job->team, step, steps);
        if (status != RILL_OK || job->watch.stop) break;
        status = one_step(job, s, step);
    }
    epoch->steps = step - first;
    if (job->watch.stop) epoch->share = job->watch.at;
    if (status != RILL_OK) rill__team_refuse(job->team, 1);
    return status == RILL_OK
               ? rill__objective_look(o, &o->rows, job->weights->w, &epoch->loss, NULL, NULL)
               : status;
}

const rill__solver rill__solver_scd = {
    .name = "scd",
    .description = "random block coordinate descent on the primal, by sparse allgather",
    .smooth = true,
    .separate = true,
    .plain_weights = true,
    .open = scd_open,
    .epoch = scd_epoch,
    .close = scd_close,
    .bytes = scd_bytes,
};
