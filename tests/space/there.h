/* Vectors and streams in the mock memory, compared with those of the host. */
#ifndef RILL_TESTS_SPACE_THERE_H
#define RILL_TESTS_SPACE_THERE_H

#include "../mpi/check.h"

#include "reduce/reducer.h"
#include "select/select.h"
#include "space/space_mock.h"

/* ---- vectors in the memory ---------------------------------------------------------------- */

static const rill__space *space; /* the mock */

static inline void *make(const void *values, size_t bytes) {
    void *at = space->memory.allocate(&space->memory, bytes);
    CHECK(at);
    if (values) CHECK_OK(space->copy_in(space, at, values, bytes));
    return at;
}
static inline void drop(void *at, size_t bytes) {
    space->memory.release(&space->memory, at, bytes);
}

static inline void check_same(const void *host, const void *there, size_t bytes) {
    void *copy = malloc(bytes + 1);
    CHECK_OK(space->copy_out(space, copy, there, bytes));
    CHECK(memcmp(host, copy, bytes) == 0);
    free(copy);
}

/* Entries, form and fill of a stream are those of another. */
static inline void check_stream(const rill_stream *host, const rill_stream *there) {
    rill_stream *copy;
    CHECK_OK(rill_stream_validate(there, NULL));
    CHECK_OK(rill_stream_create(rill_stream_type(there), rill_stream_dim(there), &copy));
    CHECK_OK(rill_stream_copy(copy, there));
    CHECK_INT(copy->form, ==, host->form);
    if (CHECK_INT(copy->nnz, ==, host->nnz) && host->nnz) {
        size_t size = value_size(host->type);
        CHECK(memcmp(copy->val.data, host->val.data, host->nnz * size) == 0);
        if (host->form == RILL__SPARSE)
            CHECK(memcmp(copy->idx.data, host->idx.data, host->nnz * host->index_bytes) == 0);
    }
    CHECK(memcmp(copy->fill, host->fill, value_size(host->type)) == 0);
    CHECK_OK(rill_stream_free(&copy));
}

static inline void *gradient_of(rill_type type, uint64_t dim, rng *random, bool sparse) {
    size_t size = value_size(type);
    char *values = calloc(dim + 1, size);
    for (uint64_t i = 0; i < dim; i++)
        if (!sparse || rng_below(random, 40) == 0) {
            double x = rng_unit(random) * 2 - 1;
            value_store(type, values, i, x * x * x);
        }
    return values;
}

#endif
