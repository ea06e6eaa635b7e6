/* The inner loops of the codecs, one implementation per instruction set. All give the same
 * bytes.
 *
 * Arrays are readable and, where output, writable RILL__SLACK bytes past their end. */
#ifndef RILL_SPACE_CODEC_KERNELS_H
#define RILL_SPACE_CODEC_KERNELS_H

#include "core/core.h"

#define RILL__PACK 128u    /* indices */
#define RILL__BUCKET 1024u /* values with one scale */

typedef enum rill__scale_mode {
    RILL__SCALE_MAX = 0, /* largest magnitude of the bucket */
    RILL__SCALE_L2 = 1   /* its Euclidean norm, as in the QSGD paper */
} rill__scale_mode;

/* One message's random numbers: Philox 4x32-7 with this key, and these words above the block's
 * number in the counter. */
typedef struct rill__quant_stream {
    uint32_t key[2], high[2];
} rill__quant_stream;

typedef struct rill__codec_kernels {
    const char *isa;

    /* Packs of 128 gaps (index - previous - 1, the previous of the first being first - 1): the
     * width of each pack to widths, its gaps in that many bits to out. Returns the end of out. */
    uint8_t *(*pack_gaps)(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                          uint8_t *widths, uint8_t *out);
    /* The way back. Widths are at most the index's and the bytes are all there. False when an index
     * leaves [first, first + range). */
    bool (*unpack_gaps)(unsigned index_bytes, const uint8_t *widths, const uint8_t *in,
                        uint64_t count, uint64_t first, uint64_t range, void *idx);

    /* With x[i] = idx[i] - first - i, whose high parts never fall: the lower `low` bits of each x
     * to low_out, and bit (x[i] >> low) + i of a bitmap to high_out. Returns the end of high_out.
     * low_out has (count * low + 7) / 8 bytes and high_out may follow it at once. */
    uint8_t *(*pack_high_low)(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                              unsigned low, uint8_t *low_out, uint8_t *high_out);
    /* The way back; the bitmap ends with the byte of its count-th bit, at most high_bytes. False
     * when it does not, when x falls (unless it may, within equal high parts), or when the last
     * index leaves [first, first + range). */
    bool (*unpack_high_low)(unsigned index_bytes, const uint8_t *low_in, const uint8_t *high_in,
                            size_t high_bytes, uint64_t count, uint64_t first, uint64_t range,
                            unsigned low, bool may_fall, void *idx, size_t *high_used);

    /* n values of a type from and to f32; to nearest even. */
    void (*to_f32)(rill_type, const void *in, uint64_t n, float *out);
    void (*from_f32)(rill_type, const float *in, uint64_t n, void *out);

    /* QSGD (value_qsgd.c) with 8, 4 or 2 bits. values[0] is the first of bucket number `bucket`;
     * one f32 a bucket to units, which need not be aligned. */
    void (*quantize)(const float *values, uint64_t count, unsigned bits, rill__scale_mode mode,
                     const rill__quant_stream *stream, uint64_t bucket, uint8_t *units,
                     uint8_t *levels);
    /* values[i] = or, if add is set, += what the levels stand for. Units are finite. */
    void (*dequantize)(const uint8_t *units, const uint8_t *levels, uint64_t count, unsigned bits,
                       bool add, float *values);
} rill__codec_kernels;

extern const rill__codec_kernels rill__codec_kernels_scalar;
#ifdef RILL_HAVE_AVX2
extern const rill__codec_kernels rill__codec_kernels_avx2;
#endif
#ifdef RILL_HAVE_AVX512
extern const rill__codec_kernels rill__codec_kernels_avx512;
#endif

#endif
