/* The AVX-512 kernels, which live in several files; codec_kernels_avx512.c has their table. */
#ifndef RILL_SPACE_CODEC_KERNELS_AVX512_H
#define RILL_SPACE_CODEC_KERNELS_AVX512_H

#include "space/codec_kernels.h"

uint8_t *rill__pack_gaps_avx512(unsigned index_bytes, const void *idx, uint64_t count,
                                uint64_t first, uint8_t *widths, uint8_t *out);
bool rill__unpack_gaps_avx512(unsigned index_bytes, const uint8_t *widths, const uint8_t *in,
                              uint64_t count, uint64_t first, uint64_t range, void *idx);
uint8_t *rill__pack_high_low_avx512(unsigned index_bytes, const void *idx, uint64_t count,
                                    uint64_t first, unsigned low, uint8_t *low_out,
                                    uint8_t *high_out);
bool rill__unpack_high_low_avx512(unsigned index_bytes, const uint8_t *low_in,
                                  const uint8_t *high_in, size_t high_bytes, uint64_t count,
                                  uint64_t first, uint64_t range, unsigned low, bool may_fall,
                                  void *idx, size_t *high_used);

void rill__to_f32_avx512(rill_type, const void *in, uint64_t n, float *out);
void rill__from_f32_avx512(rill_type, const float *in, uint64_t n, void *out);
void rill__quantize_avx512(const float *values, uint64_t count, unsigned bits,
                           rill__scale_mode mode, const rill__quant_stream *stream, uint64_t bucket,
                           uint8_t *units, uint8_t *levels);
void rill__dequantize_avx512(const uint8_t *units, const uint8_t *levels, uint64_t count,
                             unsigned bits, bool add, float *values);

#endif
