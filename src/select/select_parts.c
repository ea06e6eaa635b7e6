/* Parts of a vector and their threads.
 *
 * A call splits the vector into one range per thread, starts the threads and joins them: no thread
 * outlives a call, so there is nothing to fork, to signal or to leave behind. Starting one costs
 * about 20 us, hence the least size of a part. Each part has its own arrays; the first uses the
 * stream's, and the others are appended at the end. Results do not depend on the split. */
#include "select/select.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_PART = 1 << 14 };

void rill__parts_split(rill_selector *s, uint64_t align, rill_stream *out) {
    uint64_t units = s->dim / align + (s->dim % align != 0);
    uint64_t parts = rill__min_u64((uint64_t)s->threads, rill__max_u64(1, s->dim / LEAST_PART));
    parts = rill__max_u64(1, rill__min_u64(parts, units));
    uint64_t first = 0;
    for (uint64_t i = 0; i < parts; i++) {
        rill__part *p = &s->parts[i];
        uint64_t end =
            rill__min_u64(s->dim,
                          (units / parts * (i + 1) + rill__min_u64(i + 1, units % parts)) * align);
        p->selector = s;
        p->first = first;
        p->n = end - first;
        p->idx = i ? &p->own_idx : &out->idx;
        p->val = i ? &p->own_val : &out->val;
        p->count = p->n_keys = 0;
        p->pruned = false;
        first = end;
    }
    s->n_parts = (int)parts;
}

typedef struct job {
    rill__part *part;
    rill_status (*work)(rill__part *, const void *);
    const void *context;
    pthread_t thread;
    bool started;
} job;

static void *run_job(void *argument) {
    job *j = argument;
    j->part->status = j->work(j->part, j->context);
    return NULL;
}

rill_status rill__parts_run(rill_selector *s, rill_status (*work)(rill__part *, const void *),
                            const void *context) {
    if (s->n_parts == 1) return work(&s->parts[0], context);
    job *jobs = calloc((size_t)s->n_parts, sizeof *jobs);
    if (!jobs) return rill__fail(RILL_ERR_MEMORY, "out of memory for %d threads", s->n_parts);
    for (int i = 0; i < s->n_parts; i++) {
        jobs[i] = (job){.part = &s->parts[i], .work = work, .context = context};
        /* A thread that cannot be had only costs time: its part is done here. */
        if (i) jobs[i].started = pthread_create(&jobs[i].thread, NULL, run_job, &jobs[i]) == 0;
    }
    rill_status status = RILL_OK;
    for (int i = 0; i < s->n_parts; i++) {
        if (jobs[i].started) pthread_join(jobs[i].thread, NULL);
        else run_job(&jobs[i]);
        if (status >= 0 && jobs[i].part->status < 0) status = jobs[i].part->status;
    }
    free(jobs);
    /* The detail is that of a thread which is gone. */
    if (status < 0)
        return rill__fail(status, "selection: out of memory in one of %d threads", s->n_parts);
    return RILL_OK;
}

uint64_t rill__parts_count(const rill_selector *s) {
    uint64_t count = 0;
    for (int i = 0; i < s->n_parts; i++)
        count += s->parts[i].count;
    return count;
}

rill_status rill__parts_join(rill_selector *s, rill_stream *out) {
    uint64_t count = rill__parts_count(s), at = s->parts[0].count;
    unsigned width = s->shape.index_bytes;
    RILL_TRY(rill__buffer_grow(&out->idx, at * width, count * width));
    RILL_TRY(rill__buffer_grow(&out->val, at * s->size, count * s->size));
    for (int i = 1; i < s->n_parts; i++) {
        const rill__part *p = &s->parts[i];
        if (!p->count) continue; /* its arrays may not exist */
        memcpy((char *)out->idx.data + at * width, p->idx->data, p->count * width);
        memcpy((char *)out->val.data + at * s->size, p->val->data, p->count * s->size);
        at += p->count;
    }
    out->nnz = count;
    return RILL_OK;
}

rill_status rill__buffer_grow(rill__buffer *buffer, size_t used, size_t bytes) {
    if (bytes <= buffer->capacity && buffer->data) return RILL_OK;
    rill__buffer larger = {NULL, 0};
    /* By half at least, so that growing chunk by chunk copies each byte a few times only. */
    RILL_TRY(rill__buffer_reserve(&larger, bytes + buffer->capacity / 2));
    if (used) memcpy(larger.data, buffer->data, used);
    rill__buffer_free(buffer);
    *buffer = larger;
    return RILL_OK;
}

rill_status rill__part_room(rill__part *p, uint64_t more) {
    const rill_selector *s = p->selector;
    unsigned width = s->shape.index_bytes;
    RILL_TRY(rill__buffer_grow(p->idx, p->count * width, (p->count + more) * width));
    return rill__buffer_grow(p->val, p->count * s->size, (p->count + more) * s->size);
}

#define TAKE(bits_t)                                                                               \
    do {                                                                                           \
        const bits_t *x = (const bits_t *)source.dense + at;                                       \
        bits_t *val = (bits_t *)p->val->data + p->count;                                           \
        for (uint64_t i = 0; i < n; i++)                                                           \
            val[i] = x[offsets[i]];                                                                \
        if (source.residual) {                                                                     \
            bits_t *zero = (bits_t *)source.residual + at;                                         \
            for (uint64_t i = 0; i < n; i++)                                                       \
                zero[offsets[i]] = 0;                                                              \
        }                                                                                          \
    } while (0)

void rill__part_values(rill__part *p, rill__source source, uint64_t at, uint64_t n,
                       const uint32_t *offsets) {
    switch (p->selector->size) {
    case 2: TAKE(uint16_t); break;
    case 4: TAKE(uint32_t); break;
    default: TAKE(uint64_t);
    }
}

void rill__part_indices(rill__part *p, uint64_t at, uint64_t n, const uint32_t *offsets) {
    if (p->selector->shape.index_bytes == 4) {
        uint32_t *idx = (uint32_t *)p->idx->data + p->count;
        for (uint64_t i = 0; i < n; i++)
            idx[i] = (uint32_t)at + offsets[i];
    } else {
        uint64_t *idx = (uint64_t *)p->idx->data + p->count;
        for (uint64_t i = 0; i < n; i++)
            idx[i] = at + offsets[i];
    }
}

void rill__part_take(rill__part *p, rill__source source, uint64_t at, uint64_t n,
                     const uint32_t *offsets) {
    rill__part_values(p, source, at, n, offsets);
    rill__part_indices(p, at, n, offsets);
    p->count += n;
}
