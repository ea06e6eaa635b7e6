/* The stream kernels of each instruction set. */
#include "core/isa.h"
#include "stream/kernels.h"

static const rill__kernels *const kernels[] = RILL__ISA_TABLE(rill__kernels);

const rill__kernels *rill__kernels_get(void) { return kernels[rill__isa_get()]; }

const rill__kernels *rill__kernels_named(const char *name) {
    rill__isa isa;
    return rill__isa_find(name, &isa) ? kernels[isa] : NULL;
}
