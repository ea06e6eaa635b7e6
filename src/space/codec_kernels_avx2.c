/* The portable kernels, compiled for AVX2 and BMI: shifts by a register, bit scans and conversions
 * become one instruction each, which is most of what AVX2 has to give here. */
#define CODEC_ISA avx2
#include "space/codec_kernels_portable.inc"
