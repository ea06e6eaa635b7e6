/* What measurements are made of: entries, the order of calls, the median of times. */
#include "plan/fit.h"

#include <math.h>
#include <stdlib.h>

const rill__place rill__places[RILL__PLACES] = {
    {1 << 12, 0.01}, {1 << 16, 0.01},  {1 << 16, 0.1},   {1 << 16, 0.001}, {1 << 16, 0.5},
    {1 << 16, 1e-4}, {1 << 20, 0.001}, {1 << 20, 0.01},  {1 << 20, 1e-4},  {1 << 20, 0.1},
    {1 << 18, 0.01}, {1 << 20, 0.5},   {1 << 18, 0.1},   {1 << 12, 0.1},   {1 << 24, 0.001},
    {1 << 24, 1e-4}, {1 << 24, 0.01},  {1 << 24, 0.1},   {1 << 22, 0.01},  {1 << 24, 0.5},
    {1 << 22, 0.1},  {1 << 18, 0.001}, {1 << 22, 0.001},
};

static uint64_t next(uint64_t state) {
    return state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

/* Gaps of a geometric distribution. (Regular gaps would be summed in half the time, by branches
 * that are predicted.) */
uint64_t rill__sample_entries(uint64_t seed, uint64_t dim, uint64_t nnz, uint64_t most,
                              uint32_t *idx, float *val) {
    double scale = 1 / log1p(-(double)nnz / (double)dim), at = -1;
    uint64_t state = seed, count = 0;
    while (count < most) {
        state = next(state);
        at += 1 + floor(log(((double)(state >> 11) + 0.5) * 0x1p-53) * scale);
        if (at >= (double)dim) break;
        idx[count] = (uint32_t)at;
        val[count++] = (float)(int32_t)(state >> 40) * 0x1p-24f;
    }
    return count;
}

void rill__sample_order(int *order, int n, int round) {
    uint64_t state = (uint64_t)(round + 2) * UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < n; i++) {
        state = next(state);
        int at = (int)((state >> 33) % (uint64_t)(i + 1));
        order[i] = order[at];
        order[at] = i;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double rill__sample_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
