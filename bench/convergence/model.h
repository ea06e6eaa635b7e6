/* What convergence.c trains: this rank's rows, their gradient, and how good the weights are. */
#ifndef BENCH_CONVERGENCE_MODEL_H
#define BENCH_CONVERGENCE_MODEL_H

#include <rill/rill.h>
#include <stdbool.h>

/* Sums over rows of this rank, which add up over the ranks. */
typedef struct tally {
    double loss, trained; /* over training rows */
    double right, tested; /* over test rows */
} tally;

typedef struct model {
    uint64_t dim;
    uint64_t rows; /* training rows of this rank */
    void (*start)(float *weight, uint64_t seed);
    /* gradient = mean over the n rows; every entry is written. */
    void (*gradient)(const float *weight, uint64_t n, const uint64_t *row, float *gradient);
    /* A fixed share of the training rows, or all of them; and all test rows. */
    void (*test)(const float *weight, bool all, tally *);
    void (*free)(void);
} model;

/* Both return false, with a reason, when the data is not there or not as expected. path: folder. */
bool model_logistic_load(MPI_Comm, const char *path, model *, char reason[256]);
bool model_network_load(MPI_Comm, const char *path, model *, char reason[256]);

/* splitmix64: a hash of a counter, so that nothing depends on the number of draws elsewhere. */
static inline uint64_t random_bits(uint64_t seed, uint64_t counter) {
    uint64_t z = seed * UINT64_C(0xd1342543de82ef95) + counter * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static inline double random_unit(uint64_t seed, uint64_t counter) {
    return (double)(random_bits(seed, counter) >> 11) * 0x1p-53;
}

#endif
