/* Kernels for AVX2 (with BMI2, F16C). What is not here is left to the scalar ones. */
#ifdef RILL_HAVE_AVX2
#include "stream/kernels_impl.h"

static uint64_t merge(rill__shape shape, const rill_op *op, rill__pairs a, rill__pairs b, void *idx,
                      void *val) {
    return rill__kernels_scalar.merge(shape, op, a, b, idx, val);
}

static uint64_t sum_blocks(rill__shape shape, const rill_op *op, uint64_t first, uint64_t range,
                           int n, const rill__pairs *in, void *idx, void *val, void *workspace) {
    return rill__kernels_scalar.sum_blocks(shape, op, first, range, n, in, idx, val, workspace);
}
static void scatter(rill__shape shape, const rill_op *op, void *dense, uint64_t first,
                    rill__pairs p) {
    rill__kernels_scalar.scatter(shape, op, dense, first, p);
}
static void combine(rill_type type, const rill_op *op, void *out, const void *lower,
                    const void *upper, uint64_t n) {
    rill__kernels_scalar.combine(type, op, out, lower, upper, n);
}
static uint64_t compact(rill__shape shape, const void *dense, uint64_t first, uint64_t n,
                        const void *fill_value, uint64_t limit, void *idx, void *val) {
    return rill__kernels_scalar.compact(shape, dense, first, n, fill_value, limit, idx, val);
}
static uint64_t check(unsigned index_bytes, const void *idx, uint64_t n, uint64_t first,
                      uint64_t range) {
    return rill__kernels_scalar.check(index_bytes, idx, n, first, range);
}
static void fill(rill_type type, void *dst, uint64_t n, const void *value) {
    rill__kernels_scalar.fill(type, dst, n, value);
}
static void replace(rill_type type, void *dst, const void *src, uint64_t n, const void *from,
                    const void *to) {
    rill__kernels_scalar.replace(type, dst, src, n, from, to);
}

const rill__kernels rill__kernels_avx2 = {"avx2", merge, sum_blocks, scatter, combine,
                                            compact,  check, fill,       replace};
#else
typedef int rill__no_avx2; /* a file must declare something */
#endif
