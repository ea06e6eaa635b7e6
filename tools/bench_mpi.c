/* The baseline `mpi`: MPI's own collective on dense buffers that were written before, and nothing
 * else: no conversion of streams, no allocation. By collective: MPI_Allreduce, MPI_Reduce,
 * MPI_Reduce_scatter (equal ranges), MPI_Allgatherv (equal ranges: what ranks with contiguous
 * supports would do), MPI_Bcast.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench_mpi.h"
#include "bench_half.h"
#include "world.h"

#include <mpi.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* MPI 3 counts in int: more values go in several calls. */
#define MPI_CHUNK ((uint64_t)1 << 30)

struct bench_mpi {
    MPI_Datatype type;
    MPI_Op op;
    bool own; /* the operation is ours to free */
};

/* ---- the baseline's operations on 16-bit floats -------------------------------------------- */

static inline float add(float a, float b) { return a + b; }
static inline float mul(float a, float b) { return a * b; }
static inline float least(float a, float b) { return a < b ? a : b; }
static inline float most(float a, float b) { return a > b ? a : b; }

#define SCALAR_OP(TYPE, OP)                                                                        \
    static void TYPE##_##OP##_scalar(const uint16_t *in, uint16_t *io, int n) {                    \
        for (int i = 0; i < n; i++)                                                                \
            io[i] = TYPE##_store(OP(TYPE##_load(in[i]), TYPE##_load(io[i])));                      \
    }
#if defined(__x86_64__)
/* Every processor with AVX2 has F16C, which not every compiler knows how to ask for. */
#define F16_OP(OP, VECTOR)                                                                         \
    SCALAR_OP(f16, OP)                                                                             \
    __attribute__((target("avx,f16c"))) static void f16_##OP##_f16c(const uint16_t *in,            \
                                                                    uint16_t *io, int n) {         \
        int i = 0;                                                                                 \
        for (; i + 8 <= n; i += 8) {                                                               \
            __m256 a = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i)));  \
            __m256 b = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(io + i)));  \
            _mm_storeu_si128((__m128i *)(void *)(io + i),                                          \
                             _mm256_cvtps_ph(VECTOR(a, b), _MM_FROUND_TO_NEAREST_INT));            \
        }                                                                                          \
        f16_##OP##_scalar(in + i, io + i, n - i);                                                  \
    }                                                                                              \
    static void f16_##OP(void *in, void *io, int *n, MPI_Datatype *type) {                         \
        (void)type;                                                                                \
        if (__builtin_cpu_supports("avx2")) f16_##OP##_f16c(in, io, *n);                           \
        else f16_##OP##_scalar(in, io, *n);                                                        \
    }
#else
#define F16_OP(OP, VECTOR)                                                                         \
    SCALAR_OP(f16, OP)                                                                             \
    static void f16_##OP(void *in, void *io, int *n, MPI_Datatype *type) {                         \
        (void)type;                                                                                \
        f16_##OP##_scalar(in, io, *n);                                                             \
    }
#endif
/* The conversions of bf16 are shifts: the compiler vectorises them. */
#define BF16_OP(OP)                                                                                \
    SCALAR_OP(bf16, OP)                                                                            \
    static void bf16_##OP(void *in, void *io, int *n, MPI_Datatype *type) {                        \
        (void)type;                                                                                \
        bf16_##OP##_scalar(in, io, *n);                                                            \
    }

F16_OP(add, _mm256_add_ps)
F16_OP(least, _mm256_min_ps)
F16_OP(most, _mm256_max_ps)
F16_OP(mul, _mm256_mul_ps)
BF16_OP(add)
BF16_OP(least)
BF16_OP(most)
BF16_OP(mul)

/* ---- calls --------------------------------------------------------------------------------- */

bool bench_mpi_make(rill_type type, bench_operation operation, bench_mpi **out) {
    static MPI_User_function *const f16[] = {f16_add, f16_least, f16_most, f16_mul};
    static MPI_User_function *const bf16[] = {bf16_add, bf16_least, bf16_most, bf16_mul};
    const MPI_Op ops[] = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD};
    bench_mpi *mpi = *out = calloc(1, sizeof *mpi);
    if (!mpi) return false;
    mpi->type = type == RILL_F32 ? MPI_FLOAT : type == RILL_F64 ? MPI_DOUBLE : MPI_UINT16_T;
    mpi->own = type == RILL_F16 || type == RILL_BF16;
    if (!mpi->own) mpi->op = ops[operation];
    else MPI_Op_create(type == RILL_F16 ? f16[operation] : bf16[operation], 1, &mpi->op);
    return true;
}

void bench_mpi_free(bench_mpi **mpi) {
    if (*mpi && (*mpi)->own) MPI_Op_free(&(*mpi)->op);
    free(*mpi);
    *mpi = NULL;
}

static void fill_ranges(const bench_mpi_call *call, int *counts, int *displacements) {
    for (int r = 0; r < call->size; r++) {
        uint64_t first, count;
        bench_equal_range(call->dim, call->size, r, &first, &count);
        counts[r] = (int)count;
        displacements[r] = (int)first;
    }
}

static int by_pieces(const bench_mpi *mpi, const bench_mpi_call *call) {
    size_t size = call->value_bytes;
    int error = MPI_SUCCESS;
    for (uint64_t at = 0; at < call->dim && !error; at += MPI_CHUNK) {
        int n = (int)(call->dim - at < MPI_CHUNK ? call->dim - at : MPI_CHUNK);
        char *send = (char *)call->send + at * size, *receive = (char *)call->receive + at * size;
        if (call->collective == RILL_ALLREDUCE)
            error = MPI_Allreduce(send, receive, n, mpi->type, mpi->op, MPI_COMM_WORLD);
        else if (call->collective == RILL_REDUCE)
            error = MPI_Reduce(send, receive, n, mpi->type, mpi->op, ROOT, MPI_COMM_WORLD);
        else error = MPI_Bcast(receive, n, mpi->type, ROOT, MPI_COMM_WORLD);
    }
    return error;
}

bool bench_mpi_run(const bench_mpi *mpi, const bench_mpi_call *call, double *seconds) {
    MPI_Comm comm = MPI_COMM_WORLD;
    int *counts = NULL, error;
    if (call->collective == RILL_REDUCE_SCATTER || call->collective == RILL_ALLGATHER) {
        counts = malloc(2 * (size_t)call->size * sizeof *counts);
        if (!counts) return false;
        fill_ranges(call, counts, counts + call->size);
    }
    MPI_Barrier(comm);
    world_edge();
    double start = MPI_Wtime();
    switch (call->collective) {
    case RILL_REDUCE_SCATTER:
        error = MPI_Reduce_scatter(call->send, call->receive, counts, mpi->type, mpi->op, comm);
        break;
    case RILL_ALLGATHER:
        error = MPI_Allgatherv((char *)call->send + call->first * call->value_bytes,
                               (int)call->count, mpi->type, call->receive, counts,
                               counts + call->size, mpi->type, comm);
        break;
    default: error = by_pieces(mpi, call);
    }
    *seconds = MPI_Wtime() - start;
    free(counts);
    return error == MPI_SUCCESS;
}
