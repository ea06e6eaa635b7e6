/* The codec kernels of each instruction set. */
#include "codec/codec_kernels.h"
#include "core/isa.h"

const rill__codec_kernels *rill__codec_kernels_get(void) {
    static const rill__codec_kernels *const kernels[] = RILL__ISA_TABLE(rill__codec_kernels);
    return kernels[rill__isa_get()];
}
