/* The inner loops of streams, one implementation per instruction set (kernels_<isa>.c). A space has
 * the one that its processor runs (space.h). Every implementation gives the same bits as
 * kernels_scalar.c.
 *
 * All arrays are ours: readable and, where output, writable RILL__SLACK bytes past their end.
 * Indices of inputs are strictly ascending. 16-bit values are combined in f32 and rounded to
 * nearest even. */
#ifndef RILL_SPACE_KERNELS_H
#define RILL_SPACE_KERNELS_H

#include "core/core.h"
#include "space/half.h"

typedef enum rill__op_kind {
    RILL__SUM = 0,
    RILL__MIN = 1,
    RILL__MAX = 2,
    RILL__PROD = 3,
    RILL__USER = 4
} rill__op_kind;

struct rill_op {
    const char *name;
    rill__op_kind kind;
    unsigned types; /* bits of RILL_TYPE_BIT */
    double neutral;
    rill_op_fn *fn; /* RILL__USER only */
    void *context;
};

/* Type of the values, bytes (4 or 8) of an index. */
typedef struct rill__shape {
    rill_type type;
    unsigned index_bytes;
} rill__shape;

/* Borrowed, sorted, unique pairs. */
typedef struct rill__pairs {
    uint64_t n;
    const void *idx;
    const void *val;
} rill__pairs;

typedef struct rill__kernels {
    const char *isa;

    /* idx/val = union of a and b, equal indices combined as a op b. Returns the count, at most
     * a.n + b.n, for which the output has room. Outputs do not alias inputs. */
    uint64_t (*merge)(rill__shape, const rill_op *, rill__pairs a, rill__pairs b, void *idx,
                      void *val);

    /* Union of n inputs whose indices all lie in [first, first + range), combined left to right in
     * input order (((in0 op in1) op in2) ...), through dense tiles with a bitmap. Room for
     * min(range, sum of counts) in the output. workspace: rill__tiles_workspace(shape) bytes, whose
     * contents need not be kept or cleared between calls. 16-bit types accumulate in f32 and
     * round once. With idx NULL the result is dense: val has range entries, those that do not occur
     * are the neutral element, and the count is of those that do. */
    uint64_t (*sum_tiles)(rill__shape, const rill_op *, uint64_t first, uint64_t range, int n,
                          const rill__pairs *in, void *idx, void *val, void *workspace);

    /* dense[idx - first] = dense[idx - first] op val (the dense side is the lower one). */
    void (*scatter)(rill__shape, const rill_op *, void *dense, uint64_t first, rill__pairs);

    /* out[i] = lower[i] op upper[i]; out may be lower or upper. */
    void (*combine)(rill_type, const rill_op *, void *out, const void *lower, const void *upper,
                    uint64_t n);

    /* Pairs of the entries of dense[0..n) that differ from fill (compared as numbers, so -0.0 is
     * 0.0; a NaN fill matches NaN); indices count from first. Stops before the entry that would be
     * number limit + 1 and returns limit + 1 then. Room for limit entries. */
    uint64_t (*compact)(rill__shape, const void *dense, uint64_t first, uint64_t n,
                        const void *fill, uint64_t limit, void *idx, void *val);

    /* Position of the first index that is not above its predecessor or not in
     * [first, first + range); n if all are fine. */
    uint64_t (*check)(unsigned index_bytes, const void *idx, uint64_t n, uint64_t first,
                      uint64_t range);

    /* dense[i] += the next of val for each bit i that is set, of n entries, f32; fresh: dense is 0
     * before, whatever it holds. Returns how many were set. Reads, but does not use, a register's
     * worth past val's end. NULL: this instruction set gains nothing by it; and then there is no
     * count_bits either: of n words. */
    uint64_t (*add_bits)(float *dense, uint64_t n, const uint64_t *bits, const float *val,
                         bool fresh);
    uint64_t (*count_bits)(const uint64_t *bits, uint64_t n);

    /* The entries of dense[0..n), f32, that are not +0.0 to the bit: bits has a bit for each of n,
     * in whole words, val their values. Stops where they are more than limit, and returns limit + 1
     * then. Room for limit entries and a register's worth. NULL as above. */
    uint64_t (*pack_bits)(const float *dense, uint64_t n, uint64_t limit, uint64_t *bits,
                          float *val);
    /* The way back, to the bit; returns how many were set. Reads past val as add_bits does. */
    uint64_t (*unpack_bits)(float *dense, uint64_t n, const uint64_t *bits, const float *val);

    /* dst[i] = *value. */
    void (*fill)(rill_type, void *dst, uint64_t n, const void *value);

    /* dst[i] = (src[i] equals *from as numbers) ? *to : src[i]; dst may be src. */
    void (*replace)(rill_type, void *dst, const void *src, uint64_t n, const void *from,
                    const void *to);
} rill__kernels;

extern const rill__kernels rill__kernels_scalar;
#ifdef RILL_HAVE_AVX2
extern const rill__kernels rill__kernels_avx2;
#endif
#ifdef RILL_HAVE_AVX512
extern const rill__kernels rill__kernels_avx512;
#endif

size_t rill__tiles_workspace(rill__shape);

/* One value of a type from and to double; 16-bit types round to nearest even. */
void rill__value_store(rill_type, void *at, double);
double rill__value_load(rill_type, const void *at);

#endif
