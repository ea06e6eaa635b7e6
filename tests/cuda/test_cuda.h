/* What the tests of device kernels share: the library under test, device memory, data,
 * comparisons to the bit. */
#ifndef RILL_TESTS_TEST_CUDA_H
#define RILL_TESTS_TEST_CUDA_H

#include "../support/data.h"

#include "cuda/cuda_space.h"

#include <stdarg.h>
#include <stdio.h>

extern const rill__cuda_table *cuda;
extern void *cuda_stream;
extern bool cuda_few; /* emulated devices and sanitizers take long: fewer and smaller cases */
extern unsigned cuda_passed, cuda_failed;

/* Counts a case; a failed one says which it was (printf style). */
bool cuda_case(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the program with CUDA's words when a call failed. */
#define CUDA(call) cuda_must(call, #call)
void cuda_must(int error, const char *what);

/* Device memory of that many bytes, filled with a pattern, between pages that cuda_free checks
 * for writes outside of it. */
void *cuda_new(size_t bytes);
void *cuda_upload(const void *from, size_t bytes);
void cuda_download(void *to, const void *from, size_t bytes); /* waits for the stream */
void cuda_free(void *);

void data_fill(enum data, rill_type, uint64_t n, uint64_t seed, void *values);

/* NaNs are all alike: hardware differs in their other bits. */
bool same_values(rill_type, const void *a, const void *b, uint64_t n, uint64_t *where);

void test_topk(void);
void test_dense(void);
void test_chunk(void);
void test_methods(void);
void test_values(void);
void test_indices(void);
void test_sketch(void);
void test_tensors(void);

#endif
