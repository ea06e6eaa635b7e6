/* Values whose reductions are exact.
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
#include "bench_half.h"

#include <math.h>
#include <string.h>

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
