/* rill_tune: measures allreduces of many sizes and densities by every algorithm, fits the constants
 * of the cost model to them (plan/fit.c), keeps how far the model is off at each, and writes the
 * profile, with what a GPU takes where all ranks have one (tune_device.c).
 *
 * Real calls rather than ping-pongs and loops: what a byte costs while all ranks send, sum and
 * share processors is what the planner has to know, and no other measurement gives it. */
#include "api/comm.h"
#include "api/tune_device.h"
#include "core/text.h"
#include "plan/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL "rill_tune: "
#define DEFAULT_SECONDS 50.0
#define LONGEST 2.0                    /* seconds of a call that is worth measuring */
#define MOST_ENTRIES ((size_t)9 << 20) /* a little over half of the largest dimension */
#define PRELIMINARY_TIME 0.15
#define MOST_OTHER_BYTES ((size_t)4 << 20)
#define SETTLING 0.48 /* of the time: what a sweep may take that is repeated under its own fit */
#define SHORT 2e-4    /* of all the time: calls that are always worth measuring */
#define HOPELESS 5.0  /* times the fastest algorithm's time */
enum {
    LEAST_SAMPLES = 6,
    LEAST_CALLS = 2,
    CALLS = 21, /* at most, of a sweep */
    SWEEPS = 8, /* at most */
    MOST_CALLS = CALLS * SWEEPS,
    MOST_SAMPLES = 400,
    MOST_ALGORITHMS = 16
};

typedef rill__place place;
enum { PLACES = RILL__PLACES, PRELIMINARY = 8 };
static const place *const places = rill__places;

typedef struct tuning {
    rill_comm *comm;
    rill__profile *profile; /* the new one */
    rill__profile *before;  /* the communicator's, if this fails */
    const rill_tune_options *options;
    double began, seconds;
    rill_stream *in, *out;
    uint32_t *idx;
    float *val;
    unsigned char *other; /* MOST_OTHER_BYTES */
    rill__sample *samples;
    struct candidate *measured; /* of each sample */
    int n, sweep;
    bool settled; /* measured under constants that were fitted to all places, which stay */
    /* Of each algorithm: its last call's time over the model's; 0: none yet. */
    double off[MOST_ALGORITHMS];
} tuning;

static double now_of(const tuning *t) { return rill__comm_clock(t->comm) - t->began; }

/* Decisions are rank 0's, so that all ranks take the same. */
static bool agreed(const tuning *t, bool mine) {
    int answer = mine;
    rill__comm_spread(t->comm, &answer, sizeof answer);
    return answer != 0;
}

/* Whether it is right on all ranks: one that goes on alone would wait for ever. */
static rill_status together(const rill_comm *comm, rill_status mine) {
    rill_status worst;
    RILL_TRY(rill__link_worst(comm->engine.link, mine, &worst));
    if (mine == RILL_OK && worst != RILL_OK)
        return rill__fail(worst, CALL "another rank failed: %s", rill_strerror(worst));
    return mine;
}

static rill_status fill(tuning *t, uint64_t dim, uint64_t nnz) {
    uint64_t seed = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(t->comm->engine.rank + 1) ^ nnz;
    uint64_t count = rill__sample_entries(seed, dim, nnz, MOST_ENTRIES, t->idx, t->val);
    rill_stream_free(&t->in);
    rill_stream_free(&t->out);
    RILL_TRY(rill_stream_create(RILL_F32, dim, &t->in));
    RILL_TRY(rill_stream_create(RILL_F32, dim, &t->out));
    return rill_stream_set_pairs(t->in, count, t->idx, t->val);
}

/* What else a program does between two calls passes through the caches. */
static void forget_caches(tuning *t, uint64_t dim) {
    size_t n = rill__min_u64(2 * dim, MOST_OTHER_BYTES);
    for (size_t i = 0; i < n; i += 64)
        t->other[i]++;
}

static rill_status call_once(tuning *t, const rill_options *o, double *seconds) {
    forget_caches(t, rill_stream_dim(t->in));
    RILL_TRY(rill__link_most(t->comm->engine.link, NULL, 0)); /* all at once */
    double start = rill__comm_clock(t->comm);
    rill_status status = rill_allreduce(t->comm, t->in, t->out, RILL_SUM, o);
    double most[2] = {rill__comm_clock(t->comm) - start, status != RILL_OK};
    rill_status told = rill__link_most(t->comm->engine.link, most, 2);
    *seconds = most[0];
    if (status == RILL_OK) status = told;
    if (status == RILL_OK && most[1] > 0)
        status = rill__fail(RILL_ERR_MEMORY, CALL "a call failed on another rank");
    return status;
}

/* One way to make the call, and what it took. */
typedef struct candidate {
    const place *at;
    int algorithm;
    rill_options options;
    bool at_point; /* as auto would send it: its error becomes a point */
    int n;
    double times[MOST_CALLS], last;
    rill_stats stats;
} candidate;

static double median_of(candidate *c) { return rill__sample_median(c->times, c->n); }

static int fewest_of(const candidate *c, int n) {
    int fewest = MOST_CALLS;
    for (int i = 0; i < n; i++)
        fewest = c[i].n < fewest ? c[i].n : fewest;
    return fewest;
}

/* In turns, as many rounds as a share of the time allows: between two calls of a program its caches
 * see other things, and one call again and again would find all that it needs in them. The first
 * round makes buffers grow, and counts where a round is long: known by what was measured before
 * (all of it then counts), else by the call itself. */
static rill_status measure(tuning *t, candidate *c, int n, double share) {
    double start = rill__comm_clock(t->comm), round_time = 0;
    int had = fewest_of(c, n), wanted = had + 1 > LEAST_CALLS ? had + 1 : LEAST_CALLS;
    for (int i = 0; had > 0 && i < n; i++)
        round_time += median_of(&c[i]);
    for (int round = -1; round < CALLS; round++) {
        int order[MOST_ALGORITHMS];
        rill__sample_order(order, n, round + CALLS * t->sweep);
        for (int i = 0; i < n; i++) {
            candidate *next = &c[order[i]];
            double seconds;
            /* A short call twice: in a program, the memory that it writes to is what it wrote to
             * the last time. */
            if (round >= 0 && next->last < share / (8 * n))
                RILL_TRY(call_once(t, &next->options, &seconds));
            RILL_TRY(call_once(t, &next->options, &seconds));
            next->last = seconds;
            if (round < 0 && (had > 0 ? round_time < share : seconds < share / n)) continue;
            if (next->n < MOST_CALLS) next->times[next->n++] = seconds;
            next->stats = t->comm->last;
        }
        if (!agreed(t, fewest_of(c, n) < wanted || rill__comm_clock(t->comm) - start < share))
            break;
    }
    return RILL_OK;
}

/* What ran, as the estimates see it: the request has been recycled, so it is put together again. */
static void keep(tuning *t, candidate *c, uint64_t dim, uint64_t nnz) {
    int ranks = t->comm->engine.size;
    rill__settings settings = {.partition = RILL__UNIFORM};
    rill__observed seen = {.known = true, .nnz_sum = nnz * (unsigned)ranks, .nnz_max = nnz};
    if (!rill_stream_is_dense(t->out)) seen.result = rill_stream_nnz(t->out);
    if (t->n == MOST_SAMPLES) return;
    rill__sample *s = &t->samples[t->n];
    s->algorithm = rill__algorithm_at(RILL_ALLREDUCE, c->algorithm);
    s->seconds = fmax(median_of(c), 1e-9);
    s->problem = rill__plan_problem(&t->comm->planner, &settings, RILL_ALLREDUCE, ranks, dim,
                                    RILL_F32, RILL_SUM, &seen);
    const rill__index_codec *codec = rill__index_codec_by_name(c->stats.codec);
    rill__problem_code(&s->problem, codec ? codec : &rill__codec_raw, c->stats.value_bits);
    t->measured[t->n++] = *c;
    if (c->at_point) t->off[c->algorithm] = s->seconds / s->algorithm->estimate(&s->problem);
}

/* What a call is likely to take, by the model and how far that was off the last time. */
static double expected_time(const tuning *t, int algorithm, const rill__problem *p) {
    rill__settings none = {.partition = RILL__UNIFORM};
    rill__problem way = *p;
    double time = rill__plan_way(&t->comm->planner, &none,
                                 rill__algorithm_at(RILL_ALLREDUCE, algorithm), &way);
    if (t->off[algorithm] <= 0) return time;
    return time * fmin(fmax(t->off[algorithm], 0.5), 2); /* a short call may be off by far more */
}

/* Whether a call is likely to be over in time; and, if it is a long one, whether it could be the
 * choice: a dense sum of a few entries over a slow network would take the time of all that could.
 */
static bool worth_it(const tuning *t, double expected, double least) {
    double left = t->seconds - now_of(t);
    if (t->n < LEAST_SAMPLES) return true; /* a profile of nothing would be worse than a late one */
    if (expected > SHORT * t->seconds && expected > HOPELESS * least) return false;
    return left > 0 && expected < LONGEST && expected * LEAST_CALLS < left / 2;
}

static void add(candidate *c, int *n, const place *at, int algorithm, const char *codec, int bits) {
    candidate *next = &c[(*n)++];
    next->at = at;
    next->n = 0;
    next->algorithm = algorithm;
    next->options = (rill_options)RILL_OPTIONS_INIT;
    next->options.algorithm = rill__algorithm_at(RILL_ALLREDUCE, algorithm)->name;
    next->options.codec = codec;
    if (bits) next->options.value_bits = bits;
    next->at_point = !codec;
}

/* All that auto considers, as far as there is time for it. */
static int choose(const tuning *t, const place *at, uint64_t nnz, candidate *c) {
    rill__settings none = {.partition = RILL__UNIFORM};
    rill__observed seen = {.known = true,
                           .nnz_sum = nnz * (unsigned)t->comm->engine.size,
                           .nnz_max = nnz};
    rill__problem p = rill__plan_problem(&t->comm->planner, &none, RILL_ALLREDUCE,
                                         t->comm->engine.size, at->dim, RILL_F32, RILL_SUM, &seen);
    double expected[MOST_ALGORITHMS], least = INFINITY;
    int n = 0, all = 0;
    for (; all < MOST_ALGORITHMS && rill__algorithm_at(RILL_ALLREDUCE, all); all++) {
        bool considered = rill__plan_considers(rill__algorithm_at(RILL_ALLREDUCE, all), &p);
        expected[all] = considered ? expected_time(t, all, &p) : INFINITY;
        least = fmin(least, expected[all]);
    }
    for (int i = 0; i < all; i++)
        if (isfinite(expected[i]) && worth_it(t, expected[i], least)) add(c, &n, at, i, NULL, 0);
    return n;
}

/* What codecs cost shows where the same call is sent in another way. */
static int choose_codecs(const place *at, candidate *c) {
    const int split = 2; /* split_allgather: it codes everything once, and sums it once */
    int n = 0;
    const rill__index_codec *codec;
    for (int i = 0; n < MOST_ALGORITHMS - 1 && (codec = rill__index_codec_at(i)); i++)
        add(c, &n, at, split, codec->name, 0);
    add(c, &n, at, split, rill__codec_bitpack.name, 4);
    return n;
}

/* Of a place, in a sweep: there are to be several. */
static double share_of(const tuning *t) { return t->seconds / (4 * PLACES); }

/* Rank 0 chooses for all. */
static rill_status measure_candidates(tuning *t, const place *at, candidate *c, int n,
                                      uint64_t nnz) {
    struct {
        int n, algorithm[MOST_ALGORITHMS];
    } chosen = {.n = n};
    for (int i = 0; i < n; i++)
        chosen.algorithm[i] = c[i].algorithm;
    RILL_TRY(rill__comm_spread(t->comm, &chosen, sizeof chosen));
    if (chosen.n == 0) return RILL_OK;
    n = 0;
    for (int i = 0; i < chosen.n; i++)
        add(c, &n, at, chosen.algorithm[i], NULL, 0);
    RILL_TRY(measure(t, c, chosen.n, share_of(t)));
    for (int i = 0; i < chosen.n; i++)
        keep(t, &c[i], at->dim, nnz);
    return RILL_OK;
}

static rill_status fill_all(tuning *t, const place *at, uint64_t nnz) {
    return together(t->comm, fill(t, at->dim, nnz));
}

static void tell(const tuning *t, const place *at) {
    char what[80];
    rill__print(what, sizeof what, "dimension %llu, density %g %%", (unsigned long long)at->dim,
                at->density * 100);
    if (t->comm->engine.rank == 0 && t->options->progress)
        t->options->progress(fmin(1, now_of(t) / t->seconds), what, t->options->context);
}

static rill_status measure_place(tuning *t, const place *at) {
    uint64_t dim = at->dim, nnz = rill__place_entries(at);
    candidate c[MOST_ALGORITHMS];
    if (!agreed(t, now_of(t) < t->seconds || t->n < LEAST_SAMPLES)) return RILL_OK;
    tell(t, at);
    RILL_TRY(fill_all(t, at, nnz));
    RILL_TRY(measure_candidates(t, at, c, choose(t, at, nnz, c), nnz));
    bool codecs = dim == 1 << 20 && (at->density == 0.01 || at->density == 0.1);
    double last = t->n ? t->samples[t->n - 1].seconds : 0;
    if (!codecs || !agreed(t, worth_it(t, last, last))) return RILL_OK;
    int n = choose_codecs(at, c);
    RILL_TRY(measure(t, c, n, share_of(t)));
    for (int i = 0; i < n; i++)
        keep(t, &c[i], dim, nnz);
    return RILL_OK;
}

/* All that was measured together, once more. */
static rill_status measure_again(tuning *t, candidate *c, int n) {
    double round = 0;
    for (int i = 0; i < n; i++)
        round += median_of(&c[i]);
    if (!agreed(t, now_of(t) + 2 * round < t->seconds)) return RILL_OK;
    tell(t, c->at);
    RILL_TRY(fill_all(t, c->at, rill__place_entries(c->at)));
    return measure(t, c, n, share_of(t));
}

/* The time that is left goes to further sweeps over all places: what disturbs one for a second is
 * in a part of its figures only, and medians do not see it. */
static rill_status sweep_again(tuning *t) {
    while (++t->sweep < SWEEPS && agreed(t, now_of(t) < t->seconds))
        for (int first = 0, next; first < t->n; first = next) {
            candidate *c = &t->measured[first];
            for (next = first + 1; next < t->n; next++)
                if (t->measured[next].at != c->at || t->measured[next].at_point != c->at_point)
                    break;
            RILL_TRY(measure_again(t, c, next - first));
        }
    for (int i = 0; i < t->n; i++)
        t->samples[i].seconds = fmax(median_of(&t->measured[i]), 1e-9);
    return RILL_OK;
}

/* What the planner will estimate for a call, in the way that it will choose by the new constants.
 * That way may be another than the one that was measured, whose gain over this one is an estimate,
 * and no measurement: with the ratio to it, what is predicted here is what was measured. */
static double time_by_model(const rill__planner *planner, const rill__sample *s) {
    rill__settings none = {.partition = RILL__UNIFORM};
    rill__problem way = s->problem;
    return rill__plan_way(planner, &none, s->algorithm, &way);
}

static rill_status check_fit(const tuning *t, double error) {
    return together(t->comm, isnan(error)
                                 ? rill__fail(RILL_ERR_MEMORY, CALL "out of memory for a fit")
                                 : RILL_OK);
}

/* Fits on rank 0's figures, which are the same everywhere; the constants then are, too. */
static rill_status fit(tuning *t, rill__profile *profile, double *median_error) {
    double error = t->settled ? rill__fit_error(t->samples, t->n, &profile->constants)
                              : rill__fit(t->samples, t->n, &profile->constants);
    *median_error = error;
    RILL_TRY(check_fit(t, error));
    rill__profile *model = &t->comm->planner.profile;
    model->constants = profile->constants;
    model->points = profile->points = 0;
    for (int i = 0; i < t->n && profile->points < RILL__POINTS; i++) {
        const rill__sample *s = &t->samples[i];
        if (!t->measured[i].at_point) continue;
        double dim = (double)s->problem.dim;
        double ratio = s->seconds / time_by_model(&t->comm->planner, s);
        profile->point[profile->points++] = (rill__point){rill__name_hash(s->algorithm->name),
                                                          (float)log2(dim),
                                                          (float)log2(s->problem.nnz / dim),
                                                          (float)log(fmin(fmax(ratio, 0.01), 100))};
    }
    return RILL_OK;
}

/* Not those of an older profile: what is measured must not depend on it. */
static rill_status start_constants(rill_comm *comm) {
    rill__profile *profile = &comm->planner.profile;
    rill__network network;
    rill__comm_learn_stop(comm); /* what is tuned stands */
    profile->points = profile->learned = 0;
    rill__constants_default(&profile->constants, comm->planner.hosts, comm->planner.together,
                            profile->crowding);
    if (comm->planner.hosts == 1) return RILL_OK;
    RILL_TRY(rill__probe_network(comm->engine.link, &network));
    rill__constants_network(&profile->constants, &network);
    return RILL_OK;
}

/* Algorithms choose by the constants how to gather: the first few measurements only make these
 * right. */
static void forget(tuning *t) {
    t->n = 0;
    memset(t->off, 0, sizeof t->off);
    rill__planner_forget(&t->comm->planner); /* choices of the old constants */
}

/* The next measurements are under constants that fit the last ones. */
static rill_status adopt_fit(tuning *t) {
    rill__profile *profile = &t->comm->planner.profile;
    RILL_TRY(check_fit(t, rill__fit(t->samples, t->n, &profile->constants)));
    RILL_TRY(rill__comm_spread(t->comm, profile, sizeof *profile));
    forget(t);
    return RILL_OK;
}

static rill_status reserve(tuning *t) {
    t->idx = rill__malloc(MOST_ENTRIES * sizeof *t->idx);
    t->val = rill__malloc(MOST_ENTRIES * sizeof *t->val);
    t->samples = rill__calloc(MOST_SAMPLES, sizeof *t->samples);
    t->measured = rill__calloc(MOST_SAMPLES, sizeof *t->measured);
    t->other = rill__calloc(1, MOST_OTHER_BYTES);
    t->profile = rill__malloc(sizeof *t->profile);
    t->before = rill__malloc(sizeof *t->before);
    bool good = t->idx && t->val && t->samples && t->measured && t->other && t->profile &&
                t->before;
    if (good) *t->before = t->comm->planner.profile;
    return good ? RILL_OK : rill__fail(RILL_ERR_MEMORY, CALL "out of memory");
}

static rill_status run(tuning *t, rill_tune_report *report) {
    rill_comm *comm = t->comm;
    RILL_TRY(start_constants(comm));
    double seconds = t->seconds;
    t->seconds = seconds * PRELIMINARY_TIME;
    for (int i = 0; i < PRELIMINARY; i++)
        RILL_TRY(measure_place(t, &places[i]));
    RILL_TRY(adopt_fit(t));
    t->seconds = seconds;
    for (int i = 0; i < PLACES; i++)
        RILL_TRY(measure_place(t, &places[i]));
    /* Others may gather in another way than those that the sweep was under. So if there is time,
     * all is measured anew under the ones that will be written, and does then what was measured. */
    t->settled = agreed(t, now_of(t) < SETTLING * t->seconds);
    if (t->settled) {
        RILL_TRY(adopt_fit(t));
        for (int i = 0; i < PLACES; i++)
            RILL_TRY(measure_place(t, &places[i]));
    }
    RILL_TRY(sweep_again(t));
    rill__profile *profile = t->profile;
    *profile = comm->planner.profile;
    profile->ranks = comm->engine.size;
    profile->hosts = comm->planner.hosts;
    RILL_TRY(fit(t, profile, &report->median_error));
    report->measured = t->n;
    profile->constants.doubt = comm->planner.hosts > 1 ? 0.95 : 1;
    RILL_TRY(rill__comm_spread(comm, profile, sizeof *profile));
    rill__device_constants device;
    bool has_device;
    RILL_TRY(rill__tune_device(comm, &device, &has_device));
    if (has_device) comm->planner.device = device;
    report->device = has_device;
    report->latency_s = profile->constants.latency;
    report->bits_per_second = 8 / profile->constants.byte;
    rill_status written = rill__tune_write(comm, report->profile, profile,
                                           has_device ? &device : NULL);
    comm->planner.profile = *profile;
    forget(t);
    return written;
}

static void release(tuning *t) {
    rill_stream_free(&t->in);
    rill_stream_free(&t->out);
    void *all[] = {t->idx, t->val, t->samples, t->measured, t->other, t->profile, t->before};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* The planner is then as it was, but for what it had learned. */
static void undo(tuning *t) {
    if (t->before) t->comm->planner.profile = *t->before;
    forget(t);
}

static rill_status check(const rill_tune_options *given, const rill_tune_report *report) {
    if (!report) return rill__fail(RILL_ERR_ARGUMENT, CALL "report is NULL");
    if ((given && given->size < sizeof given->size) || report->size < sizeof report->size)
        return rill__fail(RILL_ERR_ARGUMENT, CALL "a size is not set: use RILL_TUNE_OPTIONS_INIT "
                                                  "and RILL_TUNE_REPORT_INIT");
    if (given && given->size > offsetof(rill_tune_options, seconds) && given->seconds < 0)
        return rill__fail(RILL_ERR_ARGUMENT, CALL "seconds = %g is negative", given->seconds);
    return RILL_OK;
}

/* Older programs have shorter structs: what they do not have is as unset, and only what fits is
 * written. */
rill_status rill_tune(rill_comm *comm, const rill_tune_options *given, rill_tune_report *report) {
    rill_tune_options own = RILL_TUNE_OPTIONS_INIT, *options = &own;
    rill_tune_report full = RILL_TUNE_REPORT_INIT;
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, CALL "comm is NULL");
    RILL_TRY(together(comm, check(given, report)));
    if (given) memcpy(options, given, rill__min_u64(given->size, sizeof own));
    if (comm->engine.size < 2)
        return rill__fail(RILL_ERR_ARGUMENT,
                          CALL "one rank has nothing to send: at least 2 are needed");
    rill__comm_profile_path(comm, options->profile, full.profile, sizeof full.profile);
    RILL_TRY(rill__comm_spread(comm, full.profile, sizeof full.profile));
    if (!full.profile[0])
        return rill__fail(RILL_ERR_ARGUMENT,
                          CALL "no file to write: neither profile nor HOME is set");
    tuning t = {.comm = comm,
                .options = options,
                .began = rill__comm_clock(comm),
                .seconds = options->seconds > 0 ? options->seconds : DEFAULT_SECONDS};
    RILL_TRY(rill__comm_spread(comm, &t.seconds, sizeof t.seconds));
    rill_status status = together(comm, reserve(&t));
    if (status == RILL_OK) {
        status = run(&t, &full);
        if (status != RILL_OK) undo(&t);
    }
    release(&t);
    memcpy((char *)report + sizeof report->size, (const char *)&full + sizeof full.size,
           rill__min_u64(report->size, sizeof full) - sizeof full.size);
    return status;
}
