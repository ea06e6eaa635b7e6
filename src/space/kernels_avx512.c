/* Kernels for AVX-512 (F, BW, DQ, VL, VBMI, VBMI2). What is not here is left to the scalar ones. */
#ifdef RILL_HAVE_AVX512
#include "space/kernels_avx512_dense.h"
#include "space/kernels_avx512_merge.h"
#include "space/kernels_avx512_tiles.h"

static uint64_t merge(rill__shape shape, const rill_op *op, rill__pairs a, rill__pairs b, void *idx,
                      void *val) {
    if (op->kind == RILL__USER) return rill__kernels_scalar.merge(shape, op, a, b, idx, val);
    RILL__BY_SHAPE(shape, merge, op->kind, a, b, idx, val);
}

static uint64_t sum_tiles(rill__shape shape, const rill_op *op, uint64_t first, uint64_t range,
                          int n, const rill__pairs *in, void *idx, void *val, void *workspace) {
    if (op->kind == RILL__USER)
        return rill__kernels_scalar.sum_tiles(shape, op, first, range, n, in, idx, val, workspace);
    RILL__BY_SHAPE(shape, tiles, op, first, range, n, in, idx, val, workspace);
}

const rill__kernels rill__kernels_avx512 = {"avx512",    merge, sum_tiles, scatter,    combine,
                                            compact,     check, add_bits,  count_bits, pack_bits,
                                            unpack_bits, fill,  replace};
#else
typedef int rill__no_avx512; /* a file must declare something */
#endif
