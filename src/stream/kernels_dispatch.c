/* Chooses the instruction set once per process: the best that is built in and that CPU and
 * operating system both support, or the one RILL_ISA names, if supported. */
#include "stream/kernels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(RILL_HAVE_AVX2) || defined(RILL_HAVE_AVX512)
#include <cpuid.h>

/* __builtin_cpu_supports also asks xgetbv whether the system saves the wide registers. It does not
 * know f16c everywhere, whose registers are those of AVX: CPUID is enough for that bit. */
static bool has_avx2(void) {
    unsigned a, b, c = 0, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

#ifdef RILL_HAVE_AVX512
static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
}
#endif

const rill__kernels *rill__kernels_named(const char *isa) {
    if (!isa) return NULL;
#ifdef RILL_HAVE_AVX512
    if (!strcmp(isa, "avx512") && has_avx512()) return &rill__kernels_avx512;
#endif
#ifdef RILL_HAVE_AVX2
    if (!strcmp(isa, "avx2") && has_avx2()) return &rill__kernels_avx2;
#endif
    if (!strcmp(isa, "scalar")) return &rill__kernels_scalar;
    return NULL;
}

const rill__kernels *rill__kernels_get(void) {
    /* Threads that race here find the same answer, so the last store does no harm. */
    static _Atomic(const rill__kernels *) chosen;
    const rill__kernels *kernels = atomic_load_explicit(&chosen, memory_order_acquire);
    if (kernels) return kernels;
    kernels = rill__kernels_named(getenv("RILL_ISA"));
    if (!kernels) kernels = rill__kernels_named("avx512");
    if (!kernels) kernels = rill__kernels_named("avx2");
    if (!kernels) kernels = &rill__kernels_scalar;
    atomic_store_explicit(&chosen, kernels, memory_order_release);
    return kernels;
}
