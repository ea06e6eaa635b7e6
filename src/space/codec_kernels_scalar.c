/* The portable kernels, compiled for any machine. */
#define CODEC_ISA scalar
#include "space/codec_kernels_portable.inc"
