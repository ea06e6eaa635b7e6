/* Chooses the instruction set once per process. */
#include "core/isa.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

bool rill__isa_find(const char *name, rill__isa *isa) {
    if (!name) return false;
#ifdef RILL_HAVE_AVX512
    if (!strcmp(name, "avx512")) return *isa = RILL__AVX512, has_avx512();
#endif
#ifdef RILL_HAVE_AVX2
    if (!strcmp(name, "avx2")) return *isa = RILL__AVX2, has_avx2();
#endif
    return *isa = RILL__SCALAR, !strcmp(name, "scalar");
}

/* RILL__ISAS: not chosen yet. Threads that race here find the same answer, so the last store does
 * no harm. */
_Atomic(rill__isa) rill__isa_chosen = RILL__ISAS;

rill__isa rill__isa_choose(void) {
    rill__isa isa;
    if (!rill__isa_find(getenv("RILL_ISA"), &isa) && !rill__isa_find("avx512", &isa) &&
        !rill__isa_find("avx2", &isa))
        isa = RILL__SCALAR;
    atomic_store_explicit(&rill__isa_chosen, isa, memory_order_relaxed);
    return isa;
}

bool rill__isa_force(const char *name) {
    rill__isa isa = RILL__ISAS;
    if (name && !rill__isa_find(name, &isa)) return false;
    atomic_store_explicit(&rill__isa_chosen, isa, memory_order_relaxed);
    return true;
}

int rill__processors(void) {
    static _Atomic(int) found;
    int n = atomic_load_explicit(&found, memory_order_relaxed);
    if (n) return n;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    n = online < 1 ? 1 : online > INT32_MAX ? INT32_MAX : (int)online;
    atomic_store_explicit(&found, n, memory_order_relaxed);
    return n;
}
