/* Generated data into a file: threads make batches of rows, one thread writes them in order. */
#include "train/data_generate.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 16 };

typedef struct worker {
    const rill__generator *generator;
    rill__row_maker maker;
    rill__text text;
    bool as_text, ready;
    uint64_t first, count;
    rill_status status;
    char detail[512];
} worker;

typedef struct job {
    rill_generate_options options;
    rill__generator generator;
    worker worker[MOST_THREADS];
    int threads;
    rill__output *out;   /* text */
    rill__writer writer; /* binary */
    rill__chunk chunk;
    rill__rows pending; /* rows that make no whole chunk yet */
    uint8_t *seen;      /* bitmap of features, while rows are counted */
    rill_generate_report report;
} job;

static void *make_batch(void *argument) {
    worker *w = argument;
    w->maker.rows.rows = w->maker.rows.entries = 0;
    w->text.size = 0;
    w->status = rill__generate_rows(w->generator, &w->maker, w->first, w->count);
    if (w->status == RILL_OK && w->as_text)
        w->status = rill__text_rows(&w->text, &w->maker.rows, 0, w->count, 0);
    if (w->status != RILL_OK) snprintf(w->detail, sizeof w->detail, "%s", rill_last_error());
    return NULL;
}

/* Batches [0, n) of this round, side by side; without threads to be had, one after the other. */
static void make_batches(job *j, int n) {
    pthread_t thread[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    for (int i = 1; i < n; i++)
        started[i] = pthread_create(&thread[i], NULL, make_batch, &j->worker[i]) == 0;
    for (int i = 0; i < n; i++)
        if (!started[i]) make_batch(&j->worker[i]);
    for (int i = 1; i < n; i++)
        if (started[i]) pthread_join(thread[i], NULL);
}

/* Features are counted up to row 1,000 and 8,000. */
static void count_features(job *j, const rill__rows *rows) {
    rill_generate_report *r = &j->report;
    const uint32_t *index = rows->index;
    for (uint64_t i = 0; i < rows->rows; i++) {
        r->positive += rows->label[i] > 0;
        uint64_t row = r->rows + i;
        for (uint64_t k = rows->start[i]; row < 8000 && k < rows->start[i + 1]; k++) {
            uint8_t bit = (uint8_t)(1u << (index[k] & 7)), *byte = &j->seen[index[k] >> 3];
            uint64_t fresh = !(*byte & bit);
            *byte |= bit;
            r->distinct_8000 += fresh;
            if (row < 1000) r->distinct_1000 += fresh;
        }
    }
}

static rill_status append_rows(rill__rows *into, const rill__rows *from) {
    RILL_TRY_DATA(rill__rows_reserve(into, from->rows, from->entries));
    memcpy((uint32_t *)into->index + into->entries, from->index, from->entries * sizeof(uint32_t));
    memcpy(into->value + into->entries, from->value, from->entries * sizeof(float));
    memcpy(into->label + into->rows, from->label, from->rows * sizeof(double));
    for (uint64_t i = 1; i <= from->rows; i++)
        into->start[into->rows + i] = into->entries + from->start[i];
    into->rows += from->rows;
    into->entries += from->entries;
    return RILL_OK;
}

static rill_status write_batch(job *j, const worker *w) {
    if (w->status != RILL_OK) return rill_error_set(w->status, w->detail);
    count_features(j, &w->maker.rows);
    j->report.rows += w->count;
    j->report.entries += w->maker.rows.entries;
    if (!j->options.binary) return rill__output_write(j->out, w->text.data, w->text.size);
    RILL_TRY_DATA(append_rows(&j->pending, &w->maker.rows));
    return rill__writer_put(&j->writer, &j->chunk, &j->pending, false);
}

static rill_status write_all(job *j) {
    uint64_t batch = j->generator.shape->batch, samples = j->options.samples;
    for (uint64_t next = 0; next < samples;) {
        int n = 0;
        for (; n < j->threads && next < samples; n++) {
            j->worker[n].first = next;
            j->worker[n].count = samples - next < batch ? samples - next : batch;
            next += j->worker[n].count;
        }
        make_batches(j, n);
        for (int i = 0; i < n; i++)
            RILL_TRY_DATA(write_batch(j, &j->worker[i]));
        if (j->options.progress && j->options.progress(j->options.context, next, samples))
            return rill__data_fail(RILL_ERR_STATE, "stopped by the progress call");
    }
    if (j->options.binary) return rill__writer_put(&j->writer, &j->chunk, &j->pending, true);
    return RILL_OK;
}

static rill_status prepare(job *j, const rill__shape *shape) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    j->threads = j->options.threads ? j->options.threads : cores > 0 ? (int)cores : 1;
    if (j->threads > MOST_THREADS) j->threads = MOST_THREADS;
    j->report.dim = shape->dim;
    j->seen = calloc(shape->dim / 8 + 1, 1);
    if (!j->seen) return rill__data_fail(RILL_ERR_MEMORY, "out of memory: a bitmap of features");
    RILL_TRY_DATA(rill__generator_init(&j->generator, shape, j->options.seed));
    for (int i = 0; i < j->threads; i++) {
        j->worker[i].generator = &j->generator;
        j->worker[i].as_text = !j->options.binary;
        RILL_TRY_DATA(rill__row_maker_init(&j->worker[i].maker, shape));
    }
    return RILL_OK;
}

static rill_status generate(job *j, const char *path, const rill__shape *shape) {
    RILL_TRY_DATA(prepare(j, shape));
    if (j->options.binary) RILL_TRY_DATA(rill__writer_open(&j->writer, path));
    else RILL_TRY_DATA(rill__output_open(path, &j->out));
    rill_status status = write_all(j), closed;
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    bool failed = status != RILL_OK;
    if (j->options.binary)
        closed = rill__writer_close(&j->writer, 1, shape->dim, failed, &j->report.bytes);
    else {
        j->report.bytes = rill__output_bytes(j->out);
        closed = rill__output_close(j->out, !failed);
    }
    return failed ? rill_error_set(status, detail) : closed;
}

static rill_status check_arguments(const char *path, const rill_generate_options *given,
                                   rill_generate_options *options, const rill__shape **shape) {
    static const char call[] = "rill_data_generate";
    if (!path || !*path || !given)
        return rill__data_fail(RILL_ERR_ARGUMENT, "%s: %s", call,
                               given ? "path is empty" : "options is NULL");
    *options = (rill_generate_options)RILL_GENERATE_OPTIONS_INIT;
    if (given->size > sizeof *options || given->size < sizeof(size_t))
        return rill__data_fail(RILL_ERR_ARGUMENT, "%s: options.size = %zu", call, given->size);
    memcpy(options, given, given->size);
    *shape = NULL;
    for (int i = 0; i < rill__shape_count && options->shape; i++)
        if (!strcmp(options->shape, rill__shapes[i].name)) *shape = &rill__shapes[i];
    if (!*shape)
        return rill__data_fail(RILL_ERR_UNKNOWN, "%s: shape '%s' is unknown", call,
                               options->shape ? options->shape : "NULL");
    if (!options->samples) return rill__data_fail(RILL_ERR_ARGUMENT, "%s: samples is 0", call);
    if (options->threads < 0)
        return rill__data_fail(RILL_ERR_ARGUMENT, "%s: threads = %d is negative", call,
                               options->threads);
    if (options->binary && !strcmp(path, "-"))
        return rill__data_fail(RILL_ERR_ARGUMENT, "%s: the binary form needs a file, not '-'",
                               call);
    return RILL_OK;
}

rill_status rill_data_generate(const char *path, const rill_generate_options *given,
                               rill_generate_report *report) {
    const rill__shape *shape = NULL;
    job *j = calloc(1, sizeof *j);
    if (!j) return rill__data_fail(RILL_ERR_MEMORY, "out of memory: a generator");
    rill_status status = check_arguments(path, given, &j->options, &shape);
    if (status == RILL_OK && report &&
        (report->size < sizeof(size_t) || report->size > sizeof *report))
        status = rill__data_fail(RILL_ERR_ARGUMENT, "rill_data_generate: report.size = %zu",
                                 report->size);
    if (status == RILL_OK) status = generate(j, path, shape);
    if (status == RILL_OK && report) {
        if (j->report.rows < 1000) j->report.distinct_1000 = 0;
        if (j->report.rows < 8000) j->report.distinct_8000 = 0;
        j->report.size = report->size;
        memcpy(report, &j->report, report->size);
    }
    for (int i = 0; i < MOST_THREADS; i++) {
        rill__row_maker_free(&j->worker[i].maker);
        free(j->worker[i].text.data);
    }
    rill__chunk_free(&j->chunk);
    rill__rows_free(&j->pending);
    free(j->seen);
    free(j);
    return status;
}
