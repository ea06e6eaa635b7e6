/* rill bench kernels, selection: the methods on 2^24 values of several distributions, in read
 * passes: the time of one vectorised read of the same array, measured in turns with the method,
 * both with cold caches. The fused forms stand against the traffic that they need: read the
 * gradient, read and write the residual. The residual is put back before each repetition. Rows with
 * two threads stand against one read pass of one core all the same. "by minima" is the same ratio
 * from the fastest repetitions: where it differs much, the machine was busy.
 *
 * The peer "nth_element" is what C programs do without a library: a plain quickselect (Hoare's,
 * with the median of three) on a copy of the magnitudes, then one pass that collects the pairs. C
 * has no nth_element; ours is about as fast as that of C++.
 *
 * Every first result is checked. All: sorted, values as in the input. topk: as many as asked for or
 * as there are non-zeros, none smaller than one left out, ties to the lower index. Fused: the
 * residual has the rest.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16, MOST_PEER_REPS = 5 };

/* ---- data ---------------------------------------------------------------------------------- */

typedef enum data_kind { GAUSSIAN, HEAVY, CONSTANT, ZEROS, DATA_KINDS } data_kind;
static const char *const data_names[] = {"gaussian", "heavy", "constant", "zeros"};

static double data_value(data_kind kind, uint64_t *state) {
    switch (kind) {
    case HEAVY: /* ratio of two normal variates */
        return tan(acos(-1) * (kernel_draw(state) - 0.5));
    case CONSTANT: return 1;
    case ZEROS: return kernel_draw(state) < 0.001 ? kernel_draw_normal(state) : 0;
    default: return kernel_draw_normal(state);
    }
}

typedef struct arrays {
    void *dense;              /* what is selected from, or the gradient */
    void *start;              /* fused: the residual before */
    void *residual;           /* fused */
    float *scratch, *val;     /* the peer's */
    uint32_t *idx;            /* the peer's */
    double known, known_both; /* thresholds for 1 % of dense, and of dense + start */
} arrays;

static void data_make(data_kind kind, rill_type type, uint64_t seed, void *array) {
    uint64_t state = seed;
    for (uint64_t i = 0; i < KERNEL_DIM; i++)
        bench_store(type, array, i, data_value(kind, &state));
}

/* ---- what runs ----------------------------------------------------------------------------- */

typedef enum select_kind { SELECT, SELECT_KNOWN, FUSED, FUSED_KNOWN, PEER } select_kind;

typedef struct method {
    const char *name, *method;
    select_kind kind;
    double share, goal; /* goal: read passes; fused: times the traffic; 0: none */
    double tie_goal;    /* on constant data and zeros; below 0: not run there */
    int threads;
} method;

/* Rows with goals, shares or kinds of their own; other selections of the library have one row. */
static const method chosen[] = {
    {"topk", "topk", SELECT, 0.001, 1.3, 3, 1},
    {"topk", "topk", SELECT, 0.01, 1.3, 3, 1},
    {"topk", "topk", SELECT, 0.1, 2, 3, 1},
    {"threshold", "threshold", SELECT, 0.01, 0, 0, 1},
    {"threshold, known", "threshold", SELECT_KNOWN, 0.01, 0, -1, 1},
    {"bucket", "bucket", SELECT, 0.01, 0, 0, 1},
    {"block", "block", SELECT, 0.01, 0, 0, 1},
    {"gaussian", "gaussian", SELECT, 0.01, 0, 0, 1},
    {"random", "random", SELECT, 0.01, 0, -1, 1},
    {"fused threshold, known", "threshold", FUSED_KNOWN, 0.01, 1.3, -1, 1},
    {"fused topk", "topk", FUSED, 0.01, 0, -1, 1},
    {"topk", "topk", SELECT, 0.01, 0, -1, 2},
    {"topk", "topk", SELECT, 0.1, 0, -1, 2},
    {"bucket", "bucket", SELECT, 0.01, 0, -1, 2},
    {"gaussian", "gaussian", SELECT, 0.01, 0, -1, 2},
    {"fused topk", "topk", FUSED, 0.01, 0, -1, 2},
    {"nth_element", NULL, PEER, 0.001, 0, -1, 1},
    {"nth_element", NULL, PEER, 0.01, 0, -1, 1},
    {"nth_element", NULL, PEER, 0.1, 0, -1, 1},
};
enum { CHOSEN = sizeof chosen / sizeof *chosen };

static bool is_chosen(const char *name) {
    for (int i = 0; i < CHOSEN; i++)
        if (chosen[i].method && strcmp(chosen[i].method, name) == 0) return true;
    return false;
}

/* False past the last row. */
static bool method_at(int i, method *m) {
    const char *name;
    if (i < CHOSEN) {
        *m = chosen[i];
        return true;
    }
    for (int row = 0, left = i - CHOSEN; (name = rill_selector_at(row, NULL)); row++)
        if (!is_chosen(name) && left-- == 0) {
            *m = (method){name, name, SELECT, 0.01, 0, -1, 1};
            return true;
        }
    return false;
}

static bool is_fused(const method *m) { return m->kind == FUSED || m->kind == FUSED_KNOWN; }

static uint64_t count_of(double share) { return (uint64_t)(share * (double)KERNEL_DIM + 0.5); }

/* ---- the peer ------------------------------------------------------------------------------ */

static void swap(float *a, float *b) {
    float t = *a;
    *a = *b;
    *b = t;
}

/* The value that would be at position k in ascending order. */
static float quickselect(float *v, size_t n, size_t k) {
    size_t low = 0, high = n - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (v[middle] < v[low]) swap(&v[middle], &v[low]);
        if (v[high] < v[low]) swap(&v[high], &v[low]);
        if (v[high] < v[middle]) swap(&v[high], &v[middle]);
        float pivot = v[middle];
        size_t i = low, j = high;
        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (pivot < v[j])
                j--;
            if (i > j) break;
            swap(&v[i++], &v[j]);
            if (j-- == 0) break;
        }
        if (k <= j && j < n) high = j;
        else if (k >= i) low = i;
        else break;
    }
    return v[k];
}

static uint64_t peer(const arrays *a, uint64_t k) {
    const float *x = a->dense;
    for (uint64_t i = 0; i < KERNEL_DIM; i++)
        a->scratch[i] = fabsf(x[i]);
    float least = quickselect(a->scratch, KERNEL_DIM, KERNEL_DIM - k);
    uint64_t above = 0, ties, n = 0;
    for (uint64_t i = KERNEL_DIM - k; i < KERNEL_DIM; i++)
        above += a->scratch[i] > least;
    ties = k - above;
    for (uint64_t i = 0; i < KERNEL_DIM; i++)
        if (fabsf(x[i]) > least || (fabsf(x[i]) == least && ties && ties--)) {
            a->idx[n] = (uint32_t)i;
            a->val[n++] = x[i];
        }
    return n;
}

/* ---- checks -------------------------------------------------------------------------------- */

typedef struct found {
    uint64_t n;
    const uint32_t *idx;
    const void *val;
} found;

/* The values from i on that are selected from, as doubles. */
static void load(const arrays *a, rill_type type, bool fused, uint64_t i, uint64_t n, double *out) {
    size_t at = i * rill_type_size(type);
    bench_to_double(type, (const char *)a->dense + at, n, out);
    if (!fused) return;
    const float *g = a->dense, *r = a->start;
    for (uint64_t j = 0; j < n; j++)
        out[j] = (double)(float)(r[i + j] + g[i + j]);
}

/* NULL, or what is wrong. */
static const char *check(const method *m, const arrays *a, rill_type type, found f) {
    double *in = malloc(3 * CHUNK * sizeof *in), *got = in + CHUNK, *rest = got + CHUNK;
    const char *wrong = in ? NULL : "out of memory";
    double least = INFINITY, largest_left = 0, known = 0;
    uint64_t at = 0, last_least = 0, first_largest = 0, nonzeros = 0;
    bool topk = m->kind == PEER || (m->method && !strcmp(m->method, "topk"));
    if (m->kind == SELECT_KNOWN) known = a->known;
    if (m->kind == FUSED_KNOWN) known = a->known_both;
    for (uint64_t base = 0; base < KERNEL_DIM && !wrong; base += CHUNK) {
        uint64_t n = 0;
        load(a, type, is_fused(m), base, CHUNK, in);
        if (is_fused(m)) bench_to_double(type, (const float *)a->residual + base, CHUNK, rest);
        while (at + n < f.n && f.idx[at + n] >= base && f.idx[at + n] < base + CHUNK)
            n++;
        bench_to_double(type, (const char *)f.val + at * rill_type_size(type), n, got);
        for (uint64_t i = 0, j = 0; i < CHUNK && !wrong; i++) {
            bool selected = j < n && f.idx[at + j] == base + i;
            double size = fabs(in[i]);
            nonzeros += in[i] != 0;
            if (selected && got[j++] != in[i]) wrong = "a value is not that of the input";
            if (is_fused(m) && rest[i] != (selected ? 0 : in[i])) wrong = "a wrong residual";
            if (selected && size <= least) {
                least = size;
                last_least = base + i;
            } else if (!selected && size > largest_left) {
                largest_left = size;
                first_largest = base + i;
            }
            if (i + 1 == CHUNK && j != n) wrong = "indices do not ascend";
        }
        at += n;
    }
    free(in);
    if (wrong) return wrong;
    if (at != f.n) return "indices do not ascend";
    if (topk && f.n != (nonzeros < count_of(m->share) ? nonzeros : count_of(m->share)))
        return "a wrong number of entries";
    if (topk && least < largest_left) return "an entry left out is larger than one selected";
    if (topk && least == largest_left && last_least > first_largest)
        return "a tie went to the higher index";
    if (known > 0 && (least < known || largest_left >= known)) return "not by the threshold";
    return NULL;
}

/* ---- one method ---------------------------------------------------------------------------- */

typedef struct measured {
    double seconds, least, p25, p75, read, traffic; /* traffic: fused only */
    double read_least, traffic_least;
    uint64_t selected;
    const char *wrong;
} measured;

static rill_status call(const method *m, rill_selector *s, const arrays *a, rill_stream *out,
                        found *f, double *seconds) {
    rill_status status = RILL_OK;
    double start = world_clock();
    if (m->kind == PEER) *f = (found){peer(a, count_of(m->share)), a->idx, a->val};
    else if (is_fused(m)) status = rill_select_residual(s, a->dense, a->residual, out);
    else status = rill_select(s, a->dense, out);
    *seconds = world_clock() - start;
    if (m->kind != PEER)
        *f = (found){rill_stream_nnz(out), rill_stream_indices32(out), rill_stream_values(out)};
    return status;
}

static rill_status make_selector(const method *m, rill_type type, const arrays *a,
                                 rill_selector **out) {
    rill_select_options options = RILL_SELECT_OPTIONS_INIT;
    options.method = m->method;
    options.k = count_of(m->share);
    options.seed = 1;
    options.threads = m->threads;
    if (m->kind == SELECT_KNOWN) options.threshold = a->known;
    if (m->kind == FUSED_KNOWN) options.threshold = a->known_both;
    return rill_selector_create(type, KERNEL_DIM, &options, out);
}

static rill_status measure(const method *m, const kernel_run *run, const arrays *a,
                           measured *result) {
    rill_selector *s = NULL;
    rill_stream *out = NULL;
    found f = {0};
    size_t bytes = KERNEL_DIM * rill_type_size(run->type);
    int reps = m->kind == PEER && run->reps > MOST_PEER_REPS ? MOST_PEER_REPS : run->reps;
    double *times = calloc(3 * (size_t)reps, sizeof *times), seconds, read, traffic = 0;
    double *reads = times + reps, *traffics = reads + reps;
    rill_status status = times ? rill_stream_create(run->type, KERNEL_DIM, &out) : RILL_ERR_MEMORY;
    if (status == RILL_OK && m->kind != PEER) status = make_selector(m, run->type, a, &s);
    /* The first call is checked, the second warms up what the first has learned. */
    for (int r = m->kind == PEER ? -1 : -2; r < reps && status == RILL_OK; r++) {
        bench_evict(run->memory);
        double start = world_clock();
        bench_read_pass(a->dense, bytes);
        read = world_clock() - start;
        if (is_fused(m)) {
            bench_evict(run->memory);
            traffic = bench_bound_pass(run->memory, 2 * bytes, bytes, BOUND_IN_PLACE);
            memcpy(a->residual, a->start, bytes);
        }
        bench_evict(run->memory);
        status = call(m, s, a, out, &f, &seconds);
        if (status == RILL_OK && r < 0 && !result->wrong) {
            if (m->kind == PEER || rill_stream_validate(out, &result->wrong) == RILL_OK)
                result->wrong = check(m, a, run->type, f);
        }
        if (r < 0) continue;
        times[r] = seconds;
        reads[r] = read;
        traffics[r] = traffic;
    }
    if (status == RILL_OK) {
        result->seconds = bench_quantile(times, reps, 0.5);
        result->p25 = bench_quantile(times, reps, 0.25);
        result->p75 = bench_quantile(times, reps, 0.75);
        result->least = times[0]; /* sorted by now */
        result->read = bench_quantile(reads, reps, 0.5);
        result->read_least = reads[0];
        result->traffic = is_fused(m) ? bench_quantile(traffics, reps, 0.5) : 0;
        result->traffic_least = traffics[0];
        result->selected = f.n;
    }
    rill_selector_free(&s);
    rill_stream_free(&out);
    free(times);
    return status;
}

/* ---- report -------------------------------------------------------------------------------- */

static kernel_goal goal_of(const method *m, const kernel_run *run, data_kind kind,
                           const measured *r) {
    kernel_goal g = {.what = is_fused(m) ? "times the traffic" : "read passes"};
    g.value = r->seconds / (is_fused(m) ? r->traffic : r->read);
    if (run->type == RILL_F32) g.limit = kind == CONSTANT || kind == ZEROS ? m->tie_goal : m->goal;
    return g;
}

static bool report(const method *m, const kernel_run *run, data_kind kind, table *t,
                   const measured *r) {
    kernel_goal g = goal_of(m, run, kind, r);
    double best = r->least / (is_fused(m) ? r->traffic_least : r->read_least);
    table_row *row = table_add(t);
    if (row) {
        cell_text(row->cell[0], m->name);
        cell_text(row->cell[1], data_names[kind]);
        snprintf(row->cell[2], TABLE_CELL, "%g %%", 100 * m->share);
        cell_count(row->cell[3], (uint64_t)m->threads);
        cell_count(row->cell[4], r->selected);
        cell_time(row->cell[5], r->seconds);
        cell_time(row->cell[6], r->least);
        cell_time(row->cell[7], r->read);
        snprintf(row->cell[8], TABLE_CELL, "%.2f", r->seconds / r->read);
        if (is_fused(m)) cell_ratio(row->cell[9], r->seconds / r->traffic);
        else cell_text(row->cell[9], "-");
        kernel_goal_cell(row->cell[10], g);
        snprintf(row->cell[11], TABLE_CELL, "%.2f", best);
        cell_text(row->cell[12], r->wrong ? "NO" : "yes");
    }
    if (!tool_records_wanted(run->json)) return true;
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, "
                  "s:f, s:f, s:f, s:f, "
                  "s:o, s:b, s:i, s:s, s:s}",
                  "group", "select", "kernel", m->name, "data", data_names[kind], "from", "memory",
                  "type", bench_type_names[run->type], "share", m->share, "threads", m->threads,
                  "elements", (json_int_t)KERNEL_DIM, "nnz_out", (json_int_t)r->selected,
                  "median_s", r->seconds, "min_s", r->least, "p25_s", r->p25, "p75_s", r->p75,
                  "ns_per_element", 1e9 * r->seconds / (double)KERNEL_DIM, "read_pass_s", r->read,
                  "read_passes", r->seconds / r->read, "bound_s",
                  is_fused(m) ? r->traffic : r->read, "ratio_to_bound", g.value, "ratio_of_minima",
                  best, "goals", kernel_goals_json(1, &g), "correct", !r->wrong, "reps", run->reps,
                  "isa", rill_isa(), "commit", tool_commit());
    return kernel_write(run->json, o);
}

/* The magnitude of the smallest of the largest 1 % of dense, by topk. */
static rill_status threshold_of(rill_type type, const void *dense, double *threshold) {
    rill_select_options options = RILL_SELECT_OPTIONS_INIT;
    rill_selector *s = NULL;
    rill_stream *out = NULL;
    double value;
    options.k = count_of(0.01);
    rill_status status = rill_selector_create(type, KERNEL_DIM, &options, &s);
    if (status == RILL_OK) status = rill_stream_create(type, KERNEL_DIM, &out);
    if (status == RILL_OK) status = rill_select(s, dense, out);
    *threshold = INFINITY;
    for (uint64_t i = 0; status == RILL_OK && i < rill_stream_nnz(out); i++) {
        bench_to_double(type, (const char *)rill_stream_values(out) + i * rill_type_size(type), 1,
                        &value);
        *threshold = fmin(*threshold, fabs(value));
    }
    rill_selector_free(&s);
    rill_stream_free(&out);
    return status;
}

static rill_status prepare(const kernel_run *run, data_kind kind, arrays *a) {
    data_make(kind, run->type, 1, a->dense);
    rill_status status = threshold_of(run->type, a->dense, &a->known);
    if (status != RILL_OK || run->type != RILL_F32) return status;
    data_make(kind, run->type, 2, a->start);
    const float *g = a->dense, *start = a->start;
    float *sum = a->residual;
    for (uint64_t i = 0; i < KERNEL_DIM; i++)
        sum[i] = start[i] + g[i];
    return threshold_of(run->type, sum, &a->known_both);
}

static bool arrays_make(rill_type type, arrays *a) {
    size_t bytes = KERNEL_DIM * rill_type_size(type), most = count_of(0.1) * sizeof(float);
    a->dense = bench_huge_alloc(bytes);
    if (type != RILL_F32) return a->dense;
    a->start = bench_huge_alloc(bytes);
    a->residual = bench_huge_alloc(bytes);
    a->scratch = bench_huge_alloc(bytes);
    a->idx = bench_huge_alloc(most);
    a->val = bench_huge_alloc(most);
    return a->dense && a->start && a->residual && a->scratch && a->idx && a->val;
}

static void arrays_free(rill_type type, arrays *a) {
    size_t bytes = KERNEL_DIM * rill_type_size(type), most = count_of(0.1) * sizeof(float);
    bench_huge_free(a->dense, bytes);
    bench_huge_free(a->start, bytes);
    bench_huge_free(a->residual, bytes);
    bench_huge_free(a->scratch, bytes);
    bench_huge_free(a->idx, most);
    bench_huge_free(a->val, most);
}

static bool runs(const method *m, rill_type type, data_kind kind) {
    if (type != RILL_F32 && (is_fused(m) || m->kind == PEER)) return false;
    return m->tie_goal >= 0 || kind == GAUSSIAN || kind == HEAVY;
}

int kernel_select(const kernel_run *run) {
    arrays a = {0};
    bench_config progress = {.quiet = run->quiet};
    table t = {.columns = 13,
               .left = 2,
               .head = {"selection", "data", "share", "threads", "selected", "median", "min",
                        "read pass", "passes", "traffic", "goal", "by minima", "correct"}};
    int status = EXIT_OK;
    if (!arrays_make(run->type, &a)) status = kernel_failed("select", RILL_ERR_MEMORY);
    for (data_kind kind = 0; kind < DATA_KINDS && status == EXIT_OK; kind++) {
        bench_progress(&progress, "%s data", data_names[kind]);
        rill_status s = prepare(run, kind, &a);
        if (s != RILL_OK) status = kernel_failed("select", s);
        method row;
        const method *m = &row;
        for (int i = 0; s == RILL_OK && method_at(i, &row); i++) {
            measured r = {0};
            if (!runs(m, run->type, kind)) continue;
            bench_progress(&progress, "%s %g %% of %s data", m->name, 100 * m->share,
                           data_names[kind]);
            s = measure(m, run, &a, &r);
            if (s != RILL_OK) {
                status = kernel_failed(m->name, s);
                break;
            }
            if (r.wrong) {
                tool_error("bench kernels: %s %g %% of %s data: %s", m->name, 100 * m->share,
                           data_names[kind], r.wrong);
                status = EXIT_FAILED;
            }
            if (!report(m, run, kind, &t, &r)) status = EXIT_FAILED;
        }
    }
    bench_progress(&progress, NULL);
    kernel_table(
        run, &t,
        "selection of 2^24 values; passes: reads of the same array; traffic: read gradient, "
        "read and write residual");
    table_free(&t);
    arrays_free(run->type, &a);
    return status;
}
