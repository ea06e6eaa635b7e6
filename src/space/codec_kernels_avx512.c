/* The table of AVX-512 kernels. */
#include "space/codec_kernels_avx512.h"

const rill__codec_kernels rill__codec_kernels_avx512 = {
    .isa = "avx512",
    .pack_gaps = rill__pack_gaps_avx512,
    .unpack_gaps = rill__unpack_gaps_avx512,
    .pack_high_low = rill__pack_high_low_avx512,
    .unpack_high_low = rill__unpack_high_low_avx512,
    .to_f32 = rill__to_f32_avx512,
    .from_f32 = rill__from_f32_avx512,
    .quantize = rill__quantize_avx512,
    .dequantize = rill__dequantize_avx512,
};
