/* rill bench kernels --memory cuda: selections on a device, by whole calls of a selector: launch,
 * kernels, and the wait for how many were selected. They stand against a copy of the vector on the
 * device, in turns: a read and a write of it. The first result of each, and the residual, are
 * compared with those of a selector on the host, to the bit.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench_device.h"
#include "bench_kernels.h"

#include <stdlib.h>
#include <string.h>

typedef struct device_case {
    const char *method;
    double share;
    bool fused; /* with the residual */
} device_case;

static const device_case cases[] = {
    {"topk", 0.001, false},     {"topk", 0.01, false},   {"topk", 0.1, false},
    {"threshold", 0.01, false}, {"bucket", 0.01, false}, {"block", 0.01, false},
    {"random", 0.01, false},    {"topk", 0.01, true},    {"threshold", 0.01, true},
    {"bucket", 0.01, true},
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct vectors {
    void *dense, *start, *residual, *fetched; /* on the host */
    bench_vector input, before, kept, target; /* on the device: dense, start, residual, a copy */
} vectors;

typedef struct timed {
    double *seconds, *copies;
    uint64_t selected;
    bool correct;
} timed;

static rill_status make_vectors(const kernel_run *run, vectors *v) {
    size_t bytes = run->dim * rill_type_size(run->type);
    void **arrays[] = {&v->dense, &v->start, &v->residual, &v->fetched};
    bench_vector *there[] = {&v->input, &v->before, &v->kept, &v->target};
    uint64_t state = 1;
    for (int i = 0; i < 4; i++) {
        *arrays[i] = calloc(run->dim + 1, rill_type_size(run->type));
        if (!*arrays[i]) return RILL_ERR_MEMORY;
        for (uint64_t j = 0; j < run->dim && i < 2; j++)
            bench_store(run->type, *arrays[i], j, kernel_draw_normal(&state));
        if (i == 2) memcpy(v->residual, v->start, bytes);
        rill_status status = bench_vector_make(run->where, run->type, run->dim, *arrays[i],
                                               there[i]);
        if (status != RILL_OK) return status;
    }
    return RILL_OK;
}

static void free_vectors(vectors *v) {
    bench_vector *there[] = {&v->input, &v->before, &v->kept, &v->target};
    void *arrays[] = {v->dense, v->start, v->residual, v->fetched};
    for (int i = 0; i < 4; i++) {
        bench_vector_free(there[i]);
        free(arrays[i]);
    }
}

static rill_status open_selector(const kernel_run *run, const device_case *c, rill_memory memory,
                                 rill_selector **selector, rill_stream **out) {
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    o.method = c->method;
    o.density = c->share;
    o.memory = memory;
    rill_status status = rill_selector_create(run->type, run->dim, &o, selector);
    if (status != RILL_OK) return status;
    return rill_stream_create_in(memory, -1, run->type, run->dim, out);
}

/* The same on the host, to the bit. */
static rill_status compare(const kernel_run *run, const device_case *c, vectors *v,
                           const rill_stream *there, bool *same) {
    rill_selector *selector = NULL;
    rill_stream *out = NULL, *copy = NULL;
    size_t size = rill_type_size(run->type);
    memcpy(v->residual, v->start, run->dim * size);
    rill_status status = open_selector(run, c, RILL_HOST, &selector, &out);
    if (status == RILL_OK)
        status = c->fused ? rill_select_residual(selector, v->dense, v->residual, out)
                          : rill_select(selector, v->dense, out);
    if (status == RILL_OK) status = rill_stream_create(run->type, run->dim, &copy);
    if (status == RILL_OK) status = rill_stream_copy(copy, there);
    if (status == RILL_OK && c->fused)
        status = bench_vector_fetch(run->where, run->type, run->dim, v->kept.at, v->fetched);
    uint64_t n = status == RILL_OK ? rill_stream_nnz(out) : 0;
    *same = status == RILL_OK && rill_stream_nnz(copy) == n &&
            !memcmp(rill_stream_indices32(copy), rill_stream_indices32(out), n * 4) &&
            !memcmp(rill_stream_values(copy), rill_stream_values(out), n * size) &&
            (!c->fused || !memcmp(v->fetched, v->residual, run->dim * size));
    rill_stream_free(&copy);
    rill_stream_free(&out);
    rill_selector_free(&selector);
    return status;
}

static rill_status measure(const kernel_run *run, const device_case *c, vectors *v, timed *t) {
    rill_selector *selector = NULL;
    rill_stream *out = NULL;
    rill_status status = open_selector(run, c, run->where, &selector, &out);
    for (int i = -1; i < run->reps && status == RILL_OK; i++) {
        double start = world_clock();
        status = rill_stream_copy(v->target.owner, v->input.owner);
        double copied = world_clock() - start;
        if (status == RILL_OK && c->fused)
            status = rill_stream_copy(v->kept.owner, v->before.owner);
        if (status != RILL_OK) break;
        start = world_clock();
        status = c->fused ? rill_select_residual(selector, v->input.at, v->kept.at, out)
                          : rill_select(selector, v->input.at, out);
        double seconds = world_clock() - start;
        if (status == RILL_OK && i < 0) status = compare(run, c, v, out, &t->correct);
        if (i < 0) continue; /* it also makes room */
        t->copies[i] = copied;
        t->seconds[i] = seconds;
    }
    t->selected = status == RILL_OK ? rill_stream_nnz(out) : 0;
    rill_stream_free(&out);
    rill_selector_free(&selector);
    return status;
}

static bool report(const kernel_run *run, const device_case *c, const timed *t, table *rows) {
    double median = bench_quantile(t->seconds, run->reps, 0.5);
    double copy = bench_quantile(t->copies, run->reps, 0.5);
    table_row *row = table_add(rows);
    if (row) {
        snprintf(row->cell[0], TABLE_CELL, "%s%s", c->fused ? "fused " : "", c->method);
        snprintf(row->cell[1], TABLE_CELL, "%g %%", 100 * c->share);
        cell_count(row->cell[2], t->selected);
        cell_time(row->cell[3], median);
        cell_time(row->cell[4], copy);
        cell_ratio(row->cell[5], median / copy);
        cell_text(row->cell[6], t->correct ? "yes" : "NO");
    }
    json_t *o = json_pack("{s:s, s:s, s:s, s:b, s:s, s:f, s:I, s:I, s:f, s:f, s:f, s:f, s:b, s:i, "
                          "s:s}",
                          "group", "device", "kernel", c->method, "memory",
                          bench_memory_names[run->where], "fused", c->fused, "type",
                          bench_type_names[run->type], "share", c->share, "elements",
                          (json_int_t)run->dim, "nnz_out", (json_int_t)t->selected, "median_s",
                          median, "p25_s", bench_quantile(t->seconds, run->reps, 0.25), "p75_s",
                          bench_quantile(t->seconds, run->reps, 0.75), "copy_s", copy, "correct",
                          t->correct, "reps", run->reps, "commit", tool_commit());
    return kernel_write(run->json, o);
}

int kernel_device(const kernel_run *run) {
    char device[300];
    vectors v = {0};
    bench_config progress = {.quiet = run->quiet};
    timed t = {.seconds = calloc((size_t)run->reps, sizeof(double)),
               .copies = calloc((size_t)run->reps, sizeof(double))};
    table rows = {.columns = 7,
                  .left = 1,
                  .head = {"selection", "share", "selected", "median", "copy", "in copies",
                           "as on the host"}};
    rill_status status = rill_device_at(run->where, 0, device, sizeof device);
    int result = status == RILL_OK ? EXIT_OK : kernel_failed("--memory", status);
    if (result == EXIT_OK) {
        status = t.seconds && t.copies ? make_vectors(run, &v) : RILL_ERR_MEMORY;
        if (status != RILL_OK) result = kernel_failed("vectors", status);
    }
    for (int i = 0; i < CASES && result == EXIT_OK; i++) {
        bench_progress(&progress, "%s", cases[i].method);
        status = measure(run, &cases[i], &v, &t);
        if (status != RILL_OK) result = kernel_failed(cases[i].method, status);
        else if (!report(run, &cases[i], &t, &rows)) result = EXIT_FAILED;
        if (status == RILL_OK && !t.correct) {
            tool_error("bench kernels: %s: another result than on the host", cases[i].method);
            result = EXIT_FAILED;
        }
    }
    bench_progress(&progress, NULL);
    if (result == EXIT_OK && run->out) fprintf(run->out, "%s\n\n", device);
    if (result == EXIT_OK) kernel_table(run, &rows, "Selection");
    table_free(&rows);
    free_vectors(&v);
    free(t.seconds);
    free(t.copies);
    return result;
}
