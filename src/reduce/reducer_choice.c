/* Which algorithm, and what of the gradient: forced by the options, or by the planner's estimates.
 *
 * Parallax's idea (Kim et al., EuroSys 2019): each tensor the way that suits it. Small tensors go
 * dense, naturally sparse ones (embeddings) as the exact sum of their non-zeros, large dense ones
 * by top-k. */
#include "reduce/reducer.h"

#include <string.h>

#define CREATE "rill_reducer_create: "

enum { DEFAULT_BLOCK = 256 };

/* What is exact delays nothing, and may take this much longer than what is not. */
#define EXACTNESS 1.25

/* ---- names -------------------------------------------------------------------------------- */

rill_options rill__reducer_call_options(const rill_reducer *r) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = r->algorithm ? r->algorithm->name : "auto";
    o.codec = r->options.codec;
    o.value_bits = r->options.value_bits;
    o.expected_nnz = r->options.expected_nnz;
    o.partition = r->options.partition;
    o.value_scope = r->options.value_scope;
    if (r->algorithm && r->algorithm->takes_blocks)
        o.block = r->options.block ? r->options.block : DEFAULT_BLOCK;
    return o;
}

static const char *suited_method(const rill_reducer *r) {
    return r->algorithm && r->algorithm->selects ? r->algorithm->selects : "topk";
}

static void resolve_method(rill_reducer *r) {
    const char *name = r->options.select;
    r->choice = RILL__SEND_SELECTED;
    if (!name) {
        r->method = suited_method(r);
        return;
    }
    r->method = name;
    if (strcmp(name, "nonzero") == 0) r->choice = RILL__SEND_NONZERO;
    if (strcmp(name, "auto") == 0) r->choice = RILL__UNDECIDED;
    if (r->choice != RILL__SEND_SELECTED) r->method = "topk";
}

/* ---- estimates ---------------------------------------------------------------------------- */

static rill__problem problem_of(const rill_reducer *r, rill_collective collective, double nnz,
                                rill__settings *settings) {
    *settings = (rill__settings){0};
    rill_options o = rill__reducer_call_options(r);
    o.algorithm = "auto";
    rill__settings_resolve(r->comm, collective, &o, settings);
    settings->on_devices = r->feedback.on_devices;
    int ranks = r->comm->engine.size;
    rill__observed seen = {.known = true,
                           .nnz_sum = (uint64_t)nnz * (unsigned)ranks,
                           .nnz_max = (uint64_t)nnz};
    rill__problem p = rill__plan_problem(&r->comm->planner, settings, collective, ranks, r->dim,
                                         r->type, RILL_SUM, &seen);
    p.k = (double)rill__reducer_stage_k(r);
    return p;
}

static double best_of(const rill_reducer *r, rill_collective collective, double nnz,
                      const rill__algorithm **best) {
    rill__settings settings;
    rill__problem p = problem_of(r, collective, nnz, &settings);
    double least = 1e300;
    for (int i = 0; rill__algorithm_at(collective, i); i++) {
        const rill__algorithm *a = rill__algorithm_at(collective, i);
        if (!rill__plan_considers(a, &p) || a->posts_mpi_collective) continue;
        rill__problem way = p;
        double time = rill__plan_way(&r->comm->planner, &settings, a, &way);
        if (time >= least) continue;
        least = time;
        if (best) *best = a;
    }
    return least;
}

static const rill__algorithm *mpi_allreduce(void) { return rill__algorithm_of_mpi(RILL_ALLREDUCE); }

static double dense_time(const rill_reducer *r) {
    rill__settings settings;
    rill__problem p = problem_of(r, RILL_ALLREDUCE, (double)r->dim, &settings);
    rill__problem_code(&p, &rill__codec_raw, 0); /* what is sent whole is sent as it is */
    return mpi_allreduce()->supports(&p)
               ? 1e300
               : rill__profile_time(&r->comm->planner.profile, mpi_allreduce(), &p);
}

/* Reads of gradient and residual, and a write of the residual: a device's memory is so fast that
 * they are nothing beside the rest. */
static double selection_time(const rill_reducer *r) {
    if (r->feedback.on_devices) return 0;
    double bytes = (double)r->dim * (double)rill__type_size(r->type);
    return 3 * bytes * r->comm->planner.profile.constants.dense_add;
}

static void use_dense(rill_reducer *r) {
    r->collective = RILL_ALLREDUCE;
    r->algorithm = mpi_allreduce();
    r->choice = RILL__SEND_ALL;
    r->options.value_bits = 0;
}

/* Seconds of the ways to send a gradient. */
typedef struct ways {
    double all;            /* as it is */
    double nonzero;        /* its non-zeros, as an exact sum */
    double exact, bounded; /* the largest: their exact sum, or top-k of it */
    double largest;        /* the better of these, with the selection */
    const rill__algorithm *bounding;
} ways;

static ways ways_of(const rill_reducer *r, double nonzeros) {
    double k = (double)rill__reducer_stage_k(r);
    ways w = {.all = dense_time(r), .nonzero = best_of(r, RILL_ALLREDUCE, nonzeros, NULL)};
    w.exact = best_of(r, RILL_ALLREDUCE, k, NULL);
    w.bounded = best_of(r, RILL_REDUCER, k, &w.bounding);
    w.largest = selection_time(r) + (w.bounded < w.exact ? w.bounded : w.exact);
    return w;
}

static void use_largest(rill_reducer *r, const ways *w) {
    bool bounded = w->bounding && w->bounded * EXACTNESS < w->exact;
    r->collective = bounded ? RILL_REDUCER : RILL_ALLREDUCE;
    r->algorithm = bounded ? w->bounding : NULL; /* NULL: for each call by what it knows then */
}

rill_status rill__reducer_resolve(rill_reducer *r) {
    const char *name = r->options.algorithm;
    if (!name && r->comm->defaults.algorithm[0]) name = r->comm->defaults.algorithm;
    if (!name) name = "auto";
    bool automatic = strcmp(name, "auto") == 0;
    r->collective = RILL_REDUCER;
    r->algorithm = rill__algorithm_named(RILL_REDUCER, name);
    if (!r->algorithm) {
        r->collective = RILL_ALLREDUCE;
        r->algorithm = rill__algorithm_named(RILL_ALLREDUCE, name);
    }
    if (!r->algorithm && !automatic)
        return rill__fail(RILL_ERR_UNKNOWN, CREATE "algorithm '%s' is unknown", name);
    resolve_method(r);
    rill_options o = rill__reducer_call_options(r);
    rill__settings settings = {0};
    RILL_TRY(rill__settings_resolve(r->comm, r->collective, &o, &settings));
    if (automatic && r->choice == RILL__SEND_SELECTED) {
        ways w = ways_of(r, (double)r->dim);
        if (!r->options.select && w.all <= w.largest) use_dense(r);
        else use_largest(r, &w);
        if (r->choice == RILL__SEND_SELECTED) resolve_method(r);
        return RILL_OK;
    }
    if (automatic) return RILL_OK;
    rill__problem p = problem_of(r, r->collective, (double)rill__reducer_stage_k(r), &settings);
    const char *why = r->algorithm->supports(&p);
    if (why)
        return rill__fail(RILL_ERR_UNSUPPORTED, CREATE "algorithm '%s' %s", r->algorithm->name,
                          why);
    /* MPI's allreduce of the gradient itself, unless a selection was asked for. */
    if (r->algorithm == mpi_allreduce() && !r->options.select) r->choice = RILL__SEND_ALL;
    return RILL_OK;
}

/* ---- select "auto" ------------------------------------------------------------------------ */

/* The most non-zeros of one rank: all ranks must decide alike. */
static rill_status agree_nonzeros(rill_reducer *r, const void *gradient, double *most) {
    rill_status status = gradient ? rill_stream_set_dense(r->selected, gradient) : RILL_OK;
    uint64_t nonzeros = gradient && status == RILL_OK ? r->selected->nnz : 0;
    RILL_TRY(rill__agree_most(r->comm, "reducer_step", status, &nonzeros));
    *most = (double)nonzeros;
    return RILL_OK;
}

static void decide(rill_reducer *r, double nonzeros) {
    ways w = ways_of(r, nonzeros);
    bool forced = r->algorithm != NULL;
    double limit = w.largest * EXACTNESS;
    if (nonzeros <= (double)rill__reducer_stage_k(r) ||
        (w.nonzero <= limit && w.nonzero <= w.all)) {
        r->choice = RILL__SEND_NONZERO;
    } else if (!forced && w.all <= limit) {
        use_dense(r);
    } else {
        r->choice = RILL__SEND_SELECTED;
        if (!forced) use_largest(r, &w);
        r->method = suited_method(r);
    }
}

rill_status rill__reducer_decide(rill_reducer *r, const void *gradient) {
    double nonzeros = 0;
    RILL_TRY(agree_nonzeros(r, gradient, &nonzeros));
    rill_collective collective = r->collective;
    const rill__algorithm *algorithm = r->algorithm;
    const char *method = r->method;
    int value_bits = r->options.value_bits;
    decide(r, nonzeros);
    rill_status status = rill__agree_all(r->comm, "reducer_step", rill__reducer_prepare(r), 0);
    if (status == RILL_OK) return RILL_OK;
    r->choice = RILL__UNDECIDED; /* on all ranks: the next step decides */
    r->collective = collective;
    r->algorithm = algorithm;
    r->method = method;
    r->options.value_bits = value_bits;
    return status;
}
