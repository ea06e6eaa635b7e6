#include "bench_device.h"

#include <stddef.h>

const char *const bench_memory_names[] = {[RILL_HOST] = "host", [RILL_CUDA] = "cuda", NULL};

rill_status bench_vector_make(rill_memory memory, rill_type type, uint64_t dim, void *values,
                              bench_vector *out) {
    *out = (bench_vector){.at = values};
    if (memory == RILL_HOST) return RILL_OK;
    rill_stream *host = NULL;
    rill_status status = rill_stream_create(type, dim, &host);
    if (status == RILL_OK) status = rill_stream_set_dense(host, values);
    if (status == RILL_OK) status = rill_stream_to_dense(host);
    if (status == RILL_OK) status = rill_stream_create_in(memory, -1, type, dim, &out->owner);
    if (status == RILL_OK) status = rill_stream_copy(out->owner, host);
    union {
        const void *from;
        void *to;
    } at = {.from = status == RILL_OK ? rill_stream_values(out->owner) : NULL};
    out->at = at.to; /* the stream is there for its memory only */
    rill_stream_free(&host);
    return status;
}

void bench_vector_free(bench_vector *v) { rill_stream_free(&v->owner); }

rill_status bench_vector_fetch(rill_memory memory, rill_type type, uint64_t dim, const void *at,
                               void *values) {
    rill_stream *there = NULL, *host = NULL;
    rill_status status = rill_stream_create_in(memory, -1, type, dim, &there);
    if (status == RILL_OK) status = rill_stream_set_dense(there, at);
    if (status == RILL_OK) status = rill_stream_create(type, dim, &host);
    if (status == RILL_OK) status = rill_stream_copy(host, there);
    if (status == RILL_OK) status = rill_stream_get_dense(host, values);
    rill_stream_free(&there);
    rill_stream_free(&host);
    return status;
}
