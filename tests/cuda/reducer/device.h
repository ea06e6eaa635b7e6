/* What the tests of reducers in device memory share: ranks as threads of the local world, device
 * memory through the same library that librill loads, comparisons to the bit. */
#ifndef RILL_TESTS_CUDA_DEVICE_H
#define RILL_TESTS_CUDA_DEVICE_H

#include "../../support/values.h"

#include "cuda/cuda_space.h"

#include <stdbool.h>
#include <stdio.h>

enum { MOST_RANKS = 5 };

extern const rill__cuda_table *cuda;
extern const char *cuda_path; /* of its library */
/* Of the emulated library: what it shall do (emulate_queue.cpp); NULL on a GPU. */
extern uint64_t (*emulate_control)(const char *what, uint64_t value, uint64_t more);

/* Counts, from any thread; a failure says where it was, and in which case. */
bool check_that(bool ok, const char *file, int line, const char *text);
#define CHECK(x) check_that(x, __FILE__, __LINE__, #x)
#define CHECK_OK(call) check_status(call, __FILE__, __LINE__, #call)
bool check_status(rill_status, const char *file, int line, const char *text);
/* printf style; what failures of all threads are said to be in. */
void check_case(const char *format, ...) __attribute__((format(printf, 1, 2)));
int check_end(void); /* prints the counts; the program's status */

/* Ranks of a world of threads: each has a communicator for the reducers of the host, and one for
 * those of the device, so that both have the same number and round alike. */
typedef struct rank {
    int rank, size;
    rill_comm *comm[2];
    void *stream; /* of the device, this rank's own */
    const void *context;
} rank;
void on_ranks(int size, void (*run)(rank *), const void *context);
void barrier(const rank *); /* of the threads */

void *device_new(const void *from, size_t bytes); /* from may be NULL */
void device_put(void *to, const void *from, size_t bytes);
void device_get(void *to, const void *from, size_t bytes);
void device_free(void *);
/* Waits for a stream of the device. */
void device_wait(void *stream);

/* NaNs are all alike. */
bool same_values(rill_type, const void *a, const void *b, uint64_t n);
bool same_there(rill_type, const void *host, const void *there, uint64_t n);
/* What lies at tensors of which the first, n values long, comes last: a copy. */
void *turned(rill_type, const void *values, uint64_t dim, uint64_t n);
/* Heavy-tailed values, or few of them. */
void *gradient_of(rill_type, uint64_t dim, rng *, bool sparse);

void test_spaces(void);
void test_selectors(void);
void test_reducers(void);
void test_failures(void);
void test_streams(void);
void test_held(void);
void test_devices(void);
void test_memory(void);
void test_away(void);
void test_joins(void); /* a part of that: with its profile */

#endif
