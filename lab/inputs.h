/* The inputs of simulated calls: of the rank, the step and the index alone, so that whoever
 * simulates the same call sends the same bytes. */
#ifndef RILL_LAB_INPUTS_H
#define RILL_LAB_INPUTS_H

#include <rill/rill.h>
#include <stdint.h>
#include <stdlib.h>

static inline uint64_t input_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The i-th of k indices of a rank, which has one in each of k ranges. or_null: of a value. */
static inline uint64_t input_index(uint64_t dim, uint64_t k, uint64_t seed, int rank, uint64_t i,
                                   float *or_null) {
    uint64_t first = i * dim / k, next = (i + 1) * dim / k;
    uint64_t h = input_mix(seed + (uint64_t)rank * UINT64_C(0x9e3779b97f4a7c15) + i);
    if (or_null) *or_null = (float)(h >> 40) - 8388608.0f;
    return first + h % (next - first);
}

static inline rill_status input_fill(rill_stream *stream, uint64_t dim, uint64_t k, uint64_t seed,
                                     int rank) {
    uint64_t *idx = malloc((k + 1) * sizeof *idx);
    float *val = malloc((k + 1) * sizeof *val);
    if (!idx || !val) abort();
    for (uint64_t i = 0; i < k; i++)
        idx[i] = input_index(dim, k, seed, rank, i, &val[i]);
    rill_status status = rill_stream_set_pairs64(stream, k, idx, val);
    free(idx);
    free(val);
    return status;
}

/* Normal enough: the sum of four uniform numbers. */
static inline void input_gradient(float *gradient, uint64_t dim, uint64_t seed, int rank,
                                  int step) {
    uint64_t key = input_mix(seed * 1000003 + (uint64_t)rank) + (uint64_t)step;
    for (uint64_t i = 0; i < dim; i++) {
        uint64_t h = input_mix(key + i * UINT64_C(0x9e3779b97f4a7c15));
        int sum = (int)(h & 0xffff) + (int)(h >> 16 & 0xffff) + (int)(h >> 32 & 0xffff) +
                  (int)(h >> 48);
        gradient[i] = (float)(sum - 131070) / 37837.0f;
    }
}

#endif
