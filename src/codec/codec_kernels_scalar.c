/* The portable kernels, compiled for any machine. */
#define CODEC_ISA scalar
#include "codec/codec_kernels_portable.inc"
