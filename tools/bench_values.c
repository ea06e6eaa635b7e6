/* Values whose reductions are exact, and the 16-bit floats that C and MPI do not have.
 *
 * A sum of integers is exact in floating point as long as no partial sum exceeds 2^m, m the bits
 * of the significand (8, 11, 24, 53). So for sums each rank gives +-1 ... +-8 eighths, fewer where
 * ranks x 8 > 2^m; any order of addition gives the same bits, and a dense oracle can compare
 * exactly. (bf16 beyond 256 ranks: +-1 with random signs, whose sums stay far below 2^8.)
 * Products are of +-1/2, +-1, +-2, minima and maxima of any exact values. No value is 0, so that
 * none is absent in a dense input.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const struct {
    int significand; /* bits, the hidden one included */
    int exponent;    /* 2^exponent and 2^-exponent are normal */
} traits[] = {
    [RILL_F32] = {24, 126}, [RILL_F64] = {53, 1022}, [RILL_F16] = {11, 14}, [RILL_BF16] = {8, 126}};

static uint64_t mix(uint64_t x) { /* the finaliser of splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static int sum_range(rill_type type, int ranks) {
    if (traits[type].significand > 30) return 8;
    int most = (1 << traits[type].significand) / ranks;
    return most < 1 ? 1 : most > 8 ? 8 : most;
}

/* Minima and maxima are of +-1 ... +-2^bits eighths: exact, and in the range of f16 when values
 * travel as that. */
static int extreme_bits(rill_type type) {
    return traits[type].significand < 16 ? traits[type].significand : 16;
}

double bench_value(rill_type type, bench_operation operation, int ranks, int rank, uint64_t index,
                   uint64_t seed) {
    uint64_t h = mix(index * 0x9e3779b97f4a7c15ull + mix((uint64_t)rank + (seed << 20)));
    double sign = h >> 63 ? -1 : 1;
    h &= 0xffffffff;
    switch (operation) {
    case OPERATION_SUM: return sign * (double)(1 + h % (uint64_t)sum_range(type, ranks)) / 8;
    case OPERATION_PROD:
        /* Only so many ranks scale that the product stays in range. */
        return sign * (rank < traits[type].exponent ? ldexp(1, (int)(h % 3) - 1) : 1);
    default: {
        int bits = extreme_bits(type);
        return sign * (double)(1 + (h & ((1u << bits) - 1))) / 8;
    }
    }
}

double bench_value_bound(rill_type type, bench_operation operation, int ranks) {
    switch (operation) {
    case OPERATION_SUM: return (double)ranks * sum_range(type, ranks) / 8;
    case OPERATION_PROD:
        return ldexp(1, ranks < traits[type].exponent ? ranks : traits[type].exponent);
    default: return ldexp(1, extreme_bits(type)) / 8;
    }
}

double bench_neutral(bench_operation operation) {
    switch (operation) {
    case OPERATION_MIN: return INFINITY;
    case OPERATION_MAX: return -INFINITY;
    case OPERATION_PROD: return 1;
    default: return 0;
    }
}

const rill_op *bench_rill_op(bench_operation operation) {
    switch (operation) {
    case OPERATION_MIN: return RILL_MIN;
    case OPERATION_MAX: return RILL_MAX;
    case OPERATION_PROD: return RILL_PROD;
    default: return RILL_SUM;
    }
}

MPI_Op bench_mpi_op_double(bench_operation operation) {
    switch (operation) {
    case OPERATION_MIN: return MPI_MIN;
    case OPERATION_MAX: return MPI_MAX;
    case OPERATION_PROD: return MPI_PROD;
    default: return MPI_SUM;
    }
}

/* ---- 16-bit floats ------------------------------------------------------------------------- */

static inline float bits_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float bf16_load(uint16_t h) { return bits_float((uint32_t)h << 16); }

static inline uint16_t bf16_store(float x) { /* nearest even; no NaN comes here */
    uint32_t bits = float_bits(x);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float f16_load(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) return bits_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest < 0x400) return (sign ? -1.0f : 1.0f) * (float)rest * 0x1p-24f;
    return bits_float(sign | ((rest << 13) + (112u << 23)));
}

static inline uint16_t f16_store(float x) { /* nearest even; no NaN comes here */
    uint16_t sign = (uint16_t)(float_bits(x) >> 16 & 0x8000);
    float a = fabsf(x);
    if (a >= 65520.0f) return sign | 0x7c00;
    /* Below the normal range the spacing is fixed: adding 1/2 lets the hardware round to it. */
    if (a < 0x1p-14f) return (uint16_t)(sign | (float_bits(a + 0.5f) - float_bits(0.5f)));
    uint32_t bits = float_bits(a);
    return (uint16_t)(sign | (((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112u << 10)));
}

void bench_store(rill_type type, void *array, uint64_t i, double value) {
    switch (type) {
    case RILL_F32: ((float *)array)[i] = (float)value; break;
    case RILL_F64: ((double *)array)[i] = value; break;
    case RILL_F16: ((uint16_t *)array)[i] = f16_store((float)value); break;
    case RILL_BF16: ((uint16_t *)array)[i] = bf16_store((float)value); break;
    }
}

void bench_fill(rill_type type, void *array, uint64_t n, double value) {
    if (!n) return;
    bench_store(type, array, 0, value);
    size_t size = rill_type_size(type);
    char *bytes = array;
    /* Doubling, from what is filled already. */
    for (uint64_t done = 1; done < n;) {
        uint64_t more = done < n - done ? done : n - done;
        if (more > 1 << 16) more = 1 << 16;
        memcpy(bytes + done * size, bytes, more * size);
        done += more;
    }
}

void bench_to_double(rill_type type, const void *array, uint64_t n, double *out) {
    switch (type) {
    case RILL_F32:
        for (uint64_t i = 0; i < n; i++)
            out[i] = (double)((const float *)array)[i];
        break;
    case RILL_F64: memcpy(out, array, n * sizeof *out); break;
    case RILL_F16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = (double)f16_load(((const uint16_t *)array)[i]);
        break;
    case RILL_BF16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = (double)bf16_load(((const uint16_t *)array)[i]);
        break;
    }
}

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

void bench_mpi_type_op(rill_type type, bench_operation operation, MPI_Datatype *mpi_type,
                       MPI_Op *op) {
    static MPI_User_function *const f16[] = {f16_add, f16_least, f16_most, f16_mul};
    static MPI_User_function *const bf16[] = {bf16_add, bf16_least, bf16_most, bf16_mul};
    switch (type) {
    case RILL_F32: *mpi_type = MPI_FLOAT; break;
    case RILL_F64: *mpi_type = MPI_DOUBLE; break;
    default:
        *mpi_type = MPI_UINT16_T;
        MPI_Op_create(type == RILL_F16 ? f16[operation] : bf16[operation], 1, op);
        return;
    }
    *op = bench_mpi_op_double(operation);
}

void bench_mpi_op_free(rill_type type, MPI_Op *op) {
    if (type == RILL_F16 || type == RILL_BF16) MPI_Op_free(op);
}
