/* The selection kernels of the instruction set that the stream kernels use. */
#include "select/select_kernels.h"

#include <stdatomic.h>
#include <string.h>

static _Atomic(const rill__select_kernels *) chosen;

const rill__select_kernels *rill__select_kernels_named(const char *isa) {
    if (!rill__kernels_named(isa)) return NULL;
#ifdef RILL_HAVE_AVX512
    if (!strcmp(isa, "avx512")) return &rill__select_kernels_avx512;
#endif
#ifdef RILL_HAVE_AVX2
    if (!strcmp(isa, "avx2")) return &rill__select_kernels_avx2;
#endif
    return &rill__select_kernels_scalar;
}

const rill__select_kernels *rill__select_kernels_get(void) {
    /* Threads that race here find the same answer. */
    const rill__select_kernels *kernels = atomic_load_explicit(&chosen, memory_order_acquire);
    if (kernels) return kernels;
    kernels = rill__select_kernels_named(rill__kernels_get()->isa);
    atomic_store_explicit(&chosen, kernels, memory_order_release);
    return kernels;
}

void rill__select_kernels_force(const rill__select_kernels *kernels) {
    atomic_store_explicit(&chosen, kernels, memory_order_release);
}
