/* The portable kernels, compiled for AVX2: the compiler's vectorizer makes the counting, comparing
 * and adding loops twice as wide, and those are where the bytes are. */
#define SELECT_ISA avx2
#include "space/select_kernels_portable.inc"
