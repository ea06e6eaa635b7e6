/* Slices of a vector and their threads.
 *
 * A call splits the vector into one range per thread, starts the threads and joins them: no thread
 * outlives a call, so there is nothing to fork, to signal or to leave behind. Starting and joining
 * one costs about 20 us (waking one that waits: 5 to 20), hence the least size of a slice. Each has
 * its own arrays; the first uses the stream's, and the others are appended at the end. Results do
 * not depend on the split. */
#include "select/select.h"

#include <string.h>

void rill__slices_note(rill_selector *s) {
    bool all = s->n_slices > 0;
    for (int i = 0; i < s->n_slices; i++) {
        all = all && s->slices[i].added == s->slices[i].n;
        s->skipped = s->skipped || s->slices[i].skipped;
    }
    s->fed = s->fed || all;
}

void rill__slices_split(rill_selector *s, uint64_t align, rill_stream *out) {
    rill__slices_note(s); /* of the pass before */
    uint64_t units = s->dim / align + (s->dim % align != 0);
    uint64_t slices = rill__min_u64((uint64_t)s->threads,
                                    rill__max_u64(1, s->dim / s->least_slice));
    slices = rill__max_u64(1, rill__min_u64(slices, units));
    uint64_t first = 0;
    for (uint64_t i = 0; i < slices; i++) {
        rill__slice *p = &s->slices[i];
        uint64_t end = rill__min_u64(
            s->dim, (units / slices * (i + 1) + rill__min_u64(i + 1, units % slices)) * align);
        p->selector = s;
        p->first = first;
        p->n = end - first;
        p->idx = i ? &p->own_idx : &out->idx;
        p->val = i ? &p->own_val : &out->val;
        p->count = p->n_keys = p->added = 0;
        p->pruned = p->skipped = false;
        first = end;
    }
    s->n_slices = (int)slices;
}

/* ---- adding, and memory that is not there ---------------------------------------------------- */

void rill__slice_add(rill__slice *p, rill__source source, uint64_t at, uint64_t n) {
    const rill_selector *s = p->selector;
    uint32_t none[RILL__SLACK / sizeof(uint32_t)];
    p->added += n;
    if (source.gradient)
        s->kernels->add_filter(s->shape.type, (char *)source.residual + at * s->size,
                               (const char *)source.gradient + at * s->size, n,
                               rill__key_none(s->shape.type), 0, none, rill__slice_guard(p));
}

void rill__slices_recover(rill_selector *s, rill__source source, rill_stream *out) {
    if (!source.residual) return;
    if (!s->n_slices) rill__slices_split(s, RILL__SELECT_CHUNK, out);
    bool fed = s->fed || !source.gradient;
    for (int i = 0; i < s->n_slices; i++) {
        rill__slice *p = &s->slices[i];
        if (p->count)
            rill__assign_pairs(s->shape, source.residual, 0,
                               (rill__pairs){p->count, p->idx->data, p->val->data});
        p->count = 0;
        if (!fed) rill__slice_add(p, source, p->first + p->added, p->n - p->added);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *run_job(void *argument) {
    rill__slice *p = argument;
    p->job.status = p->job.work(p, p->job.context);
    return NULL;
}

rill_status rill__slices_each(rill_selector *s, rill_status (*work)(rill__slice *, const void *),
                              const void *context) {
    for (int i = 0; i < s->n_slices; i++)
        RILL_TRY(work(&s->slices[i], context));
    return RILL_OK;
}

rill_status rill__slices_run(rill_selector *s, rill_status (*work)(rill__slice *, const void *),
                             const void *context) {
    if (s->n_slices == 1) return work(&s->slices[0], context);
    for (int i = 0; i < s->n_slices; i++) {
        rill__slice *p = &s->slices[i];
        p->job = (rill__slice_job){.work = work, .context = context};
        /* A thread that cannot be had only costs time: its slice is done here. */
        if (i) p->job.started = pthread_create(&p->job.thread, NULL, run_job, p) == 0;
    }
    rill_status status = RILL_OK;
    for (int i = 0; i < s->n_slices; i++) {
        rill__slice_job *job = &s->slices[i].job;
        if (job->started) pthread_join(job->thread, NULL);
        else run_job(&s->slices[i]);
        if (status >= 0 && job->status < 0) status = job->status;
    }
    /* The detail is that of a thread which is gone. */
    if (status < 0)
        return rill__fail(status, "selection: out of memory in one of %d threads", s->n_slices);
    return RILL_OK;
}

uint64_t rill__slices_count(const rill_selector *s) {
    uint64_t count = 0;
    for (int i = 0; i < s->n_slices; i++)
        count += s->slices[i].count;
    return count;
}

rill_status rill__slices_join(rill_selector *s, rill_stream *out) {
    uint64_t count = rill__slices_count(s), at = s->slices[0].count;
    unsigned width = s->shape.index_bytes;
    RILL_TRY(rill__buffer_grow(&out->idx, at * width, count * width));
    RILL_TRY(rill__buffer_grow(&out->val, at * s->size, count * s->size));
    for (int i = 1; i < s->n_slices; i++) {
        const rill__slice *p = &s->slices[i];
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
    rill__buffer larger = {.memory = buffer->memory};
    /* By half at least, so that growing chunk by chunk copies each byte a few times only. */
    RILL_TRY(rill__buffer_reserve(&larger, bytes + buffer->capacity / 2));
    if (used) memcpy(larger.data, buffer->data, used);
    rill__buffer_free(buffer);
    *buffer = larger;
    return RILL_OK;
}

rill_status rill__slice_room(rill__slice *p, uint64_t more) {
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

void rill__slice_values(rill__slice *p, rill__source source, uint64_t at, uint64_t n,
                        const uint32_t *offsets) {
    switch (p->selector->size) {
    case 2: TAKE(uint16_t); break;
    case 4: TAKE(uint32_t); break;
    default: TAKE(uint64_t);
    }
}

void rill__slice_indices(rill__slice *p, uint64_t at, uint64_t n, const uint32_t *offsets) {
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

void rill__slice_take(rill__slice *p, rill__source source, uint64_t at, uint64_t n,
                      const uint32_t *offsets) {
    rill__slice_values(p, source, at, n, offsets);
    rill__slice_indices(p, at, n, offsets);
    p->count += n;
}
