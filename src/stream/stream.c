/* The stream: life cycle, contents in and out, views, invariants. */
#include "stream/blocks.h"

#include <stdlib.h>
#include <string.h>

/* ---- life cycle --------------------------------------------------------------------------- */

void rill__stream_init_in(rill_stream *s, const rill__space *space, rill_type type, uint64_t dim) {
    memset(s, 0, sizeof *s);
    s->type = type;
    s->space = space;
    s->dim = dim;
    s->index_bytes = rill__index_bytes(dim);
    s->idx = s->val = s->spare_idx = s->spare_val = rill__space_buffer(space);
}

void rill__stream_init(rill_stream *s, rill_type type, uint64_t dim) {
    rill__stream_init_in(s, rill__host(), type, dim);
}

void rill__stream_release(rill_stream *s) {
    rill__buffer_free(&s->idx);
    rill__buffer_free(&s->val);
    rill__buffer_free(&s->spare_idx);
    rill__buffer_free(&s->spare_val);
    rill__buffer_free(&s->scratch);
    s->nnz = 0;
    s->form = RILL__SPARSE;
}

rill_status rill__stream_create_in(const rill__space *space, rill_type type, uint64_t dim,
                                   rill_stream **out) {
    rill_stream *s = rill__malloc(sizeof *s);
    if (!s) return rill__fail(RILL_ERR_MEMORY, "out of memory for a stream");
    rill__stream_init_in(s, space, type, dim);
    *out = s;
    return RILL_OK;
}

static rill_status check_create(const char *call, rill_type type, rill_stream **out) {
    if (!out) return rill__fail(RILL_ERR_ARGUMENT, "%s: out is NULL", call);
    *out = NULL;
    if (!rill__type_size(type))
        return rill__fail(RILL_ERR_ARGUMENT, "%s: unknown type %d", call, (int)type);
    return RILL_OK;
}

rill_status rill_stream_create(rill_type type, uint64_t dim, rill_stream **out) {
    RILL_TRY(check_create("rill_stream_create", type, out));
    return rill__stream_create_in(rill__host(), type, dim, out);
}

rill_status rill_stream_create_in(rill_memory memory, int device, rill_type type, uint64_t dim,
                                  rill_stream **out) {
    const rill__space *space;
    RILL_TRY(check_create("rill_stream_create_in", type, out));
    RILL_TRY(rill__space_find("rill_stream_create_in", memory, device, &space));
    return rill__stream_create_in(space, type, dim, out);
}

rill_memory rill_stream_memory(const rill_stream *s) {
    return s ? rill__stream_space(s)->kind : RILL_HOST;
}

rill_status rill_stream_free(rill_stream **stream) {
    if (!stream || !*stream) return RILL_OK;
    rill__stream_release(*stream);
    free(*stream);
    *stream = NULL;
    return RILL_OK;
}

rill_status rill__stream_reserve_pairs(rill_stream *s, uint64_t nnz) {
    size_t idx_bytes, val_bytes;
    if (!rill__size_mul(nnz, s->index_bytes, &idx_bytes) ||
        !rill__size_mul(nnz, rill__type_size(s->type), &val_bytes))
        return rill__fail(RILL_ERR_MEMORY, "out of memory: %llu pairs", (unsigned long long)nnz);
    RILL_TRY(rill__buffer_reserve(&s->idx, idx_bytes));
    RILL_TRY(rill__buffer_reserve(&s->val, val_bytes));
    s->form = RILL__SPARSE;
    s->nnz = 0;
    return RILL_OK;
}

rill_status rill__stream_reserve_dense(rill_stream *s) {
    size_t bytes;
    if (!rill__size_mul(s->dim, rill__type_size(s->type), &bytes))
        return rill__fail(RILL_ERR_MEMORY, "out of memory: a dense stream of dimension %llu",
                          (unsigned long long)s->dim);
    RILL_TRY(rill__buffer_reserve(&s->val, bytes));
    s->form = RILL__DENSE;
    s->nnz = s->dim;
    return RILL_OK;
}

void rill__stream_take_spare(rill_stream *s) {
    rill__buffer idx = s->idx, val = s->val;
    s->idx = s->spare_idx;
    s->val = s->spare_val;
    s->spare_idx = idx;
    s->spare_val = val;
}

void rill__stream_exchange(rill_stream *a, rill_stream *b) {
    rill_stream was = *a;
    a->form = b->form;
    a->nnz = b->nnz;
    a->block = b->block;
    memcpy(a->fill, b->fill, sizeof a->fill);
    a->idx = b->idx;
    a->val = b->val;
    b->form = was.form;
    b->nnz = was.nnz;
    b->block = was.block;
    memcpy(b->fill, was.fill, sizeof b->fill);
    b->idx = was.idx;
    b->val = was.val;
}

/* ---- values ---------------------------------------------------------------------------------- */

bool rill__value_equal(rill_type type, const void *a, const void *b) {
    double x = rill__value_load(type, a), y = rill__value_load(type, b);
    return x == y || (x != x && y != y);
}

/* ---- contents in ----------------------------------------------------------------------------- */

/* First pass over the user's indices: largest value, and whether they ascend strictly. */
#define SCAN(index_t)                                                                              \
    do {                                                                                           \
        const index_t *x = idx;                                                                    \
        index_t most = x[0];                                                                       \
        unsigned disorder = 0;                                                                     \
        for (uint64_t i = 1; i < n; i++) {                                                         \
            disorder |= x[i] <= x[i - 1];                                                          \
            most = x[i] > most ? x[i] : most;                                                      \
        }                                                                                          \
        *largest = most;                                                                           \
        return !disorder;                                                                          \
    } while (0)

static bool scan32(uint64_t n, const void *idx, uint64_t *largest) { SCAN(uint32_t); }
static bool scan64(uint64_t n, const void *idx, uint64_t *largest) { SCAN(uint64_t); }

static void copy_indices(void *to, unsigned to_bytes, const void *from, unsigned from_bytes,
                         uint64_t n) {
    if (to_bytes == from_bytes) {
        memcpy(to, from, n * to_bytes);
    } else if (to_bytes == 8) {
        for (uint64_t i = 0; i < n; i++)
            ((uint64_t *)to)[i] = ((const uint32_t *)from)[i];
    } else {
        for (uint64_t i = 0; i < n; i++)
            ((uint32_t *)to)[i] = (uint32_t)((const uint64_t *)from)[i];
    }
}

static rill_status set_pairs(const char *call, rill_stream *s, uint64_t n, unsigned given_bytes,
                             const void *idx, const void *val) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "%s: stream is NULL", call);
    if (n && !idx) return rill__fail(RILL_ERR_ARGUMENT, "%s: idx is NULL", call);
    if (n && !val) return rill__fail(RILL_ERR_ARGUMENT, "%s: val is NULL", call);
    if (n == 0) return rill_stream_clear(s);
    if (rill__stream_is_foreign(s)) return rill__stream_set_foreign(s, n, given_bytes, idx, val);
    uint64_t largest;
    bool sorted = given_bytes == 4 ? scan32(n, idx, &largest) : scan64(n, idx, &largest);
    if (largest >= s->dim) {
        uint64_t at = 0;
        while (rill__index_at(given_bytes, idx, at) < s->dim)
            at++;
        return rill__fail(RILL_ERR_RANGE, "%s: idx[%llu] = %llu is not below the dimension %llu",
                          call, (unsigned long long)at,
                          (unsigned long long)rill__index_at(given_bytes, idx, at),
                          (unsigned long long)s->dim);
    }
    size_t size = rill__type_size(s->type), bytes;
    if (!rill__size_mul(n, 8, &bytes))
        return rill__fail(RILL_ERR_MEMORY, "%s: nnz %llu is too large", call,
                          (unsigned long long)n);
    rill__buffer *to_idx = sorted ? &s->idx : &s->spare_idx;
    rill__buffer *to_val = sorted ? &s->val : &s->spare_val;
    RILL_TRY(rill__buffer_reserve(to_idx, n * s->index_bytes));
    RILL_TRY(rill__buffer_reserve(to_val, n * size));
    copy_indices(to_idx->data, s->index_bytes, idx, given_bytes, n);
    memcpy(to_val->data, val, n * size);
    uint64_t count = n;
    if (!sorted) {
        RILL_TRY(rill__stream_reserve_pairs(s, n));
        RILL_TRY(rill__sort_pairs(rill__stream_shape(s), n, to_idx->data, to_val->data, s->idx.data,
                                  s->val.data, &count));
    }
    s->form = RILL__SPARSE;
    s->nnz = count;
    memset(s->fill, 0, sizeof s->fill);
    return RILL_OK;
}

rill_status rill_stream_set_pairs(rill_stream *s, uint64_t nnz, const uint32_t *idx,
                                  const void *val) {
    return set_pairs("rill_stream_set_pairs", s, nnz, 4, idx, val);
}

rill_status rill_stream_set_pairs64(rill_stream *s, uint64_t nnz, const uint64_t *idx,
                                    const void *val) {
    return set_pairs("rill_stream_set_pairs64", s, nnz, 8, idx, val);
}

/* Compacts n entries at from (the user's memory, so read exactly) that differ from fill into the
 * stream's arrays, which have room for limit pairs. Returns limit + 1 if there are more. */
static uint64_t compact_exact(const rill_stream *s, const void *from, const void *fill,
                              uint64_t limit, void *idx, void *val) {
    const rill__kernels *k = rill__stream_space(s)->stream;
    rill__shape shape = rill__stream_shape(s);
    size_t size = rill__type_size(s->type);
    uint64_t whole = s->dim & ~(uint64_t)63, tail = s->dim - whole;
    uint64_t count = k->compact(shape, from, 0, whole, fill, limit, idx, val);
    if (count > limit || !tail) return count;
    char padded[64 * 8 + RILL__SLACK] = {0};
    memcpy(padded, (const char *)from + whole * size, tail * size);
    return count + k->compact(shape, padded, whole, tail, fill, limit - count,
                              (char *)idx + count * s->index_bytes, (char *)val + count * size);
}

rill_status rill_stream_set_dense(rill_stream *s, const void *dense) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_set_dense: stream is NULL");
    if (!dense && s->dim)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_set_dense: dense is NULL");
    if (rill__stream_is_foreign(s)) return rill__stream_set_foreign(s, s->dim, 0, NULL, dense);
    memset(s->fill, 0, sizeof s->fill);
    uint64_t limit = rill__dense_switch(s->type, s->dim);
    RILL_TRY(rill__stream_reserve_pairs(s, limit));
    uint64_t count = compact_exact(s, dense, s->fill, limit, s->idx.data, s->val.data);
    if (count <= limit) {
        s->nnz = count;
        return RILL_OK;
    }
    RILL_TRY(rill__stream_reserve_dense(s));
    memcpy(s->val.data, dense, s->dim * rill__type_size(s->type));
    return RILL_OK;
}

rill_status rill_stream_clear(rill_stream *s) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_clear: stream is NULL");
    s->form = RILL__SPARSE;
    s->nnz = 0;
    memset(s->fill, 0, sizeof s->fill);
    return RILL_OK;
}

rill_status rill_stream_copy(rill_stream *into, const rill_stream *from) {
    if (!into) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_copy: into is NULL");
    if (!from) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_copy: from is NULL");
    if (into == from) return RILL_OK;
    if (into->dim != from->dim || into->type != from->type)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_copy: into is %s[%llu], from is %s[%llu]",
                          rill_type_name(into->type), (unsigned long long)into->dim,
                          rill_type_name(from->type), (unsigned long long)from->dim);
    const rill__space *to = rill__stream_space(into), *at = rill__stream_space(from);
    size_t indices = 0, values = from->nnz * rill__type_size(from->type);
    if (from->form == RILL__DENSE) {
        RILL_TRY(rill__stream_reserve_dense(into));
    } else if (from->form == RILL__BLOCKS) {
        uint64_t blocks = rill__blocks_in(from->nnz, from->block);
        RILL_TRY(rill__stream_reserve_blocks(into, from->block, blocks, from->nnz));
        indices = blocks * sizeof(uint64_t);
    } else {
        RILL_TRY(rill__stream_reserve_pairs(into, from->nnz));
        indices = from->nnz * from->index_bytes;
    }
    RILL_TRY(rill__space_copy(to, into->idx.data, at, from->idx.data, indices));
    RILL_TRY(rill__space_copy(to, into->val.data, at, from->val.data, values));
    into->nnz = from->nnz;
    memcpy(into->fill, from->fill, sizeof into->fill);
    return RILL_OK;
}

rill_status rill__stream_refill(rill_stream *to, const rill_stream *from, const void *fill) {
    RILL_TRY(rill__stream_reserve_dense(to));
    rill__stream_space(from)->stream->replace(to->type, to->val.data, from->val.data, from->dim,
                                              from->fill, fill);
    return RILL_OK;
}

/* ---- contents out ---------------------------------------------------------------------------- */

/* All entries of a stream that is not dense; exact bounds. */
static void write_dense(const rill_stream *s, void *dense) {
    rill__assign_fill(rill__stream_space(s)->stream, s->type, dense, s->dim, s->fill);
    if (s->form == RILL__BLOCKS) {
        rill__part part = rill__stream_part(s);
        rill__blocks_assign(s->type, dense, 0, &part);
    } else {
        rill__assign_pairs(rill__stream_shape(s), dense, 0, rill__stream_pairs(s));
    }
}

rill_status rill_stream_get_dense(const rill_stream *s, void *dense) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_get_dense: stream is NULL");
    if (s->dim == 0) return RILL_OK;
    if (!dense) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_get_dense: dense is NULL");
    if (rill__stream_is_foreign(s)) return rill__stream_get_foreign(s, dense);
    if (s->form == RILL__DENSE) {
        memcpy(dense, s->val.data, s->dim * rill__type_size(s->type));
        return RILL_OK;
    }
    write_dense(s, dense);
    return RILL_OK;
}

static rill_status convert_foreign(rill_stream *s, rill_status (*convert)(rill_stream *)) {
    rill_stream copy;
    rill_status status = rill__stream_fetch(s, &copy);
    if (status == RILL_OK) status = convert(&copy);
    return rill__stream_put_back(s, &copy, status);
}

rill_status rill_stream_to_dense(rill_stream *s) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_to_dense: stream is NULL");
    if (s->form == RILL__DENSE) return RILL_OK;
    if (rill__stream_is_foreign(s)) return convert_foreign(s, rill_stream_to_dense);
    size_t bytes;
    if (!rill__size_mul(s->dim, rill__type_size(s->type), &bytes))
        return rill__fail(RILL_ERR_MEMORY, "out of memory: a dense stream of dimension %llu",
                          (unsigned long long)s->dim);
    RILL_TRY(rill__buffer_reserve(&s->spare_val, bytes));
    if (s->dim) write_dense(s, s->spare_val.data);
    rill__stream_take_spare(s);
    s->form = RILL__DENSE;
    s->nnz = s->dim;
    return RILL_OK;
}

rill_status rill_stream_to_sparse(rill_stream *s) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_to_sparse: stream is NULL");
    if (s->form == RILL__SPARSE) return RILL_OK;
    if (rill__stream_is_foreign(s)) return convert_foreign(s, rill_stream_to_sparse);
    RILL_TRY(rill__buffer_reserve(&s->spare_idx, s->nnz * s->index_bytes));
    RILL_TRY(rill__buffer_reserve(&s->spare_val, s->nnz * rill__type_size(s->type)));
    uint64_t count = 0;
    rill__part part = rill__stream_part(s);
    if (s->form == RILL__BLOCKS)
        count = rill__blocks_compact(rill__stream_shape(s), &part, s->fill, s->spare_idx.data,
                                     s->spare_val.data);
    else if (s->dim)
        count = compact_exact(s, s->val.data, s->fill, s->dim, s->spare_idx.data,
                              s->spare_val.data);
    rill__stream_take_spare(s);
    s->form = RILL__SPARSE;
    s->nnz = count;
    return RILL_OK;
}

uint64_t rill_stream_nnz(const rill_stream *s) { return s ? s->nnz : 0; }
uint64_t rill_stream_dim(const rill_stream *s) { return s ? s->dim : 0; }
rill_type rill_stream_type(const rill_stream *s) { return s ? s->type : RILL_F32; }
int rill_stream_is_dense(const rill_stream *s) { return s && s->form == RILL__DENSE; }

rill_status rill_stream_fill(const rill_stream *s, void *fill) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_fill: stream is NULL");
    if (!fill) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_fill: fill is NULL");
    memcpy(fill, s->fill, rill__type_size(s->type));
    return RILL_OK;
}

const uint32_t *rill_stream_indices32(const rill_stream *s) {
    return s && s->form == RILL__SPARSE && s->index_bytes == 4 ? s->idx.data : NULL;
}
const uint64_t *rill_stream_indices64(const rill_stream *s) {
    return s && s->form == RILL__SPARSE && s->index_bytes == 8 ? s->idx.data : NULL;
}
const void *rill_stream_values(const rill_stream *s) { return s ? s->val.data : NULL; }

/* ---- invariants ------------------------------------------------------------------------------ */

static const char *first_broken_invariant(const rill_stream *s) {
    if (!rill__type_size(s->type)) return "type is unknown";
    if (s->index_bytes != rill__index_bytes(s->dim))
        return "index width does not fit the dimension";
    if (s->form != RILL__SPARSE && s->form != RILL__DENSE && s->form != RILL__BLOCKS)
        return "form is unknown";
    if (s->form == RILL__DENSE && s->nnz != s->dim) return "dense, but nnz is not the dimension";
    if (s->nnz > s->dim) return "more entries than the dimension";
    if (s->nnz && !s->val.data) return "entries, but no values";
    if (s->val.capacity / rill__type_size(s->type) < s->nnz) return "values exceed their memory";
    if (s->form == RILL__BLOCKS) return rill__stream_broken_blocks(s);
    if (s->form == RILL__DENSE || !s->nnz) return NULL;
    if (!s->idx.data) return "entries, but no indices";
    if (s->idx.capacity / s->index_bytes < s->nnz) return "indices exceed their memory";
    uint64_t at = rill__stream_space(s)->stream->check(s->index_bytes, s->idx.data, s->nnz, 0,
                                                       s->dim);
    if (at == s->nnz) return NULL;
    if (rill__index_at(s->index_bytes, s->idx.data, at) >= s->dim)
        return "an index is not below the dimension";
    return "indices are not strictly ascending";
}

rill_status rill_stream_validate(const rill_stream *s, const char **reason) {
    if (s && rill__stream_is_foreign(s)) {
        rill_stream copy;
        rill_status status = rill__stream_fetch(s, &copy);
        if (status == RILL_OK) status = rill_stream_validate(&copy, reason);
        rill__stream_release(&copy);
        return status;
    }
    const char *broken = s ? first_broken_invariant(s) : "stream is NULL";
    if (reason) *reason = broken ? broken : "";
    if (!broken) return RILL_OK;
    return rill__fail(s ? RILL_ERR_STATE : RILL_ERR_ARGUMENT, "rill_stream_validate: %s", broken);
}
