/* The portable kernels, compiled for any machine. */
#define SELECT_ISA scalar
#include "space/select_kernels_portable.inc"
