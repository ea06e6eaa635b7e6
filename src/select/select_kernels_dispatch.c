/* The selection kernels of each instruction set. */
#include "core/isa.h"
#include "select/select_kernels.h"

const rill__select_kernels *rill__select_kernels_get(void) {
    static const rill__select_kernels *const kernels[] = RILL__ISA_TABLE(rill__select_kernels);
    return kernels[rill__isa_get()];
}
