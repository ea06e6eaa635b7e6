/* Streams in a space whose entries cannot be touched here. What the space has no operation for is
 * done with a copy on the host, which goes back. */
#include "stream/part_ops.h"

#include <string.h>

rill_status rill__stream_fetch(const rill_stream *s, rill_stream *copy) {
    rill__stream_init(copy, s->type, s->dim);
    return rill_stream_copy(copy, s);
}

rill_status rill__stream_put_back(rill_stream *s, rill_stream *copy, rill_status status) {
    if (status == RILL_OK) status = rill_stream_copy(s, copy);
    rill__stream_release(copy);
    return status;
}

rill_status rill__stream_on_host(const rill_stream *s, rill_stream *temp,
                                 const rill_stream **host) {
    memset(temp, 0, sizeof *temp);
    *host = s;
    if (!rill__stream_is_foreign(s)) return RILL_OK;
    *host = temp;
    return rill__stream_fetch(s, temp);
}

/* n elements of the stream's space in a buffer of the host. */
static rill_status fetch_array(const rill_stream *s, const void *from, uint64_t n, size_t size,
                               rill__buffer *to) {
    size_t bytes;
    if (!rill__size_mul(n, size, &bytes))
        return rill__fail(RILL_ERR_MEMORY, "out of memory: %llu entries", (unsigned long long)n);
    RILL_TRY(rill__buffer_reserve(to, bytes));
    return rill__space_copy(rill__host(), to->data, s->space, from, bytes);
}

rill_status rill__stream_set_foreign(rill_stream *s, uint64_t n, unsigned index_bytes,
                                     const void *idx, const void *val) {
    rill__buffer indices = {.data = NULL}, values = {.data = NULL};
    rill_stream temp;
    rill__stream_init(&temp, s->type, s->dim);
    rill_status status = idx ? fetch_array(s, idx, n, index_bytes, &indices) : RILL_OK;
    if (status == RILL_OK) status = fetch_array(s, val, n, rill__type_size(s->type), &values);
    if (status == RILL_OK && !idx) status = rill_stream_set_dense(&temp, values.data);
    else if (status == RILL_OK)
        status = index_bytes == 4 ? rill_stream_set_pairs(&temp, n, indices.data, values.data)
                                  : rill_stream_set_pairs64(&temp, n, indices.data, values.data);
    rill__buffer_free(&indices);
    rill__buffer_free(&values);
    return rill__stream_put_back(s, &temp, status);
}

/* Blocks are put together on the host. */
static rill_status get_blocks(const rill_stream *s, void *dense) {
    rill__buffer values = {.data = NULL};
    rill_stream temp;
    size_t bytes = s->dim * rill__type_size(s->type);
    rill_status status = rill__stream_fetch(s, &temp);
    if (status == RILL_OK) status = rill__buffer_reserve(&values, bytes);
    if (status == RILL_OK) status = rill_stream_get_dense(&temp, values.data);
    if (status == RILL_OK)
        status = rill__space_copy(s->space, dense, rill__host(), values.data, bytes);
    rill__buffer_free(&values);
    rill__stream_release(&temp);
    return status;
}

rill_status rill__stream_get_foreign(const rill_stream *s, void *dense) {
    const rill__space *space = s->space;
    if (s->form == RILL__BLOCKS) return get_blocks(s, dense);
    if (s->form == RILL__DENSE) {
        rill__do_copy(space, dense, s->val.data, s->dim * rill__type_size(s->type));
    } else {
        rill__dense_fill(space, s->type, dense, s->fill, s->dim);
        if (s->nnz)
            space->run(space,
                       &(rill__operation){.kind = RILL__DO_ASSIGN,
                                          .type = s->type,
                                          .index_bytes = s->index_bytes,
                                          .into = dense,
                                          .pairs = rill__stream_pairs(s)},
                       NULL);
    }
    return rill__space_wait(space);
}
