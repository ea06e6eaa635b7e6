/* The inner loops of the codecs, one implementation per instruction set, chosen with that of the
 * streams (rill__kernels_get). All give the same bytes.
 *
 * Arrays are readable and, where output, writable RILL__SLACK bytes past their end. */
#ifndef RILL_CODEC_CODEC_KERNELS_H
#define RILL_CODEC_CODEC_KERNELS_H

#include "core/core.h"

#define RILL__PACK_BLOCK 128u

typedef struct rill__codec_kernels {
    const char *isa;

    /* Blocks of 128 gaps (index - previous - 1, the previous of the first being first - 1): the
     * width of each block to widths, its gaps in that many bits to out. Returns the end of out. */
    uint8_t *(*pack_gaps)(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                          uint8_t *widths, uint8_t *out);
    /* The way back. Widths are at most the index's and the bytes are all there. False when an index
     * leaves [first, first + range). */
    bool (*unpack_gaps)(unsigned index_bytes, const uint8_t *widths, const uint8_t *in,
                        uint64_t count, uint64_t first, uint64_t range, void *idx);

    /* With x[i] = idx[i] - first - i, which never falls: the lower `low` bits of each x to
     * low_out, and bit (x[i] >> low) + i of a bitmap to high_out. Returns the end of high_out.
     * low_out has (count * low + 7) / 8 bytes and high_out may follow it at once. */
    uint8_t *(*pack_high_low)(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                              unsigned low, uint8_t *low_out, uint8_t *high_out);
    /* The way back; the bitmap ends with the byte of its count-th bit, at most high_bytes. False
     * when it does not, when x falls, or when an index leaves [first, first + range). */
    bool (*unpack_high_low)(unsigned index_bytes, const uint8_t *low_in, const uint8_t *high_in,
                            size_t high_bytes, uint64_t count, uint64_t first, uint64_t range,
                            unsigned low, void *idx, size_t *high_used);
} rill__codec_kernels;

const rill__codec_kernels *rill__codec_kernels_get(void);
/* By name, for tests and benchmarks; NULL when not built or not supported here. */
const rill__codec_kernels *rill__codec_kernels_named(const char *isa);
/* Makes get return these kernels from now on; NULL undoes it. For tests. */
void rill__codec_kernels_force(const rill__codec_kernels *);

extern const rill__codec_kernels rill__codec_kernels_scalar;
#ifdef RILL_HAVE_AVX2
extern const rill__codec_kernels rill__codec_kernels_avx2;
#endif
#ifdef RILL_HAVE_AVX512
extern const rill__codec_kernels rill__codec_kernels_avx512;
#endif

#endif
