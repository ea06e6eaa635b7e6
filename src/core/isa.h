/* The processors, and the instruction set in use: one choice for the kernels of streams, selection
 * and codecs.
 *
 * A family of kernels is a struct of functions with one instance per instruction set, named
 * FAMILY_scalar, FAMILY_avx2 and FAMILY_avx512; RILL__ISA_TABLE lists those that are built. */
#ifndef RILL_CORE_ISA_H
#define RILL_CORE_ISA_H

#include "core/core.h"

#include <stdatomic.h>

typedef enum rill__isa { RILL__SCALAR, RILL__AVX2, RILL__AVX512, RILL__ISAS } rill__isa;

/* The best that is built and that CPU and operating system support, or the one that RILL_ISA names
 * (scalar, avx2, avx512) if supported. Thread-safe. */
extern _Atomic(rill__isa) rill__isa_chosen; /* RILL__ISAS: not yet */
rill__isa rill__isa_choose(void);
static inline rill__isa rill__isa_get(void) {
    rill__isa isa = atomic_load_explicit(&rill__isa_chosen, memory_order_relaxed);
    return isa != RILL__ISAS ? isa : rill__isa_choose();
}
/* Online at the first call: asking reads a file of the system, and each communicator asks. */
int rill__processors(void);
/* False: unknown, not built, or not supported here. */
bool rill__isa_find(const char *name, rill__isa *);
/* For tests: this one from now on, in the whole process; false as above. NULL undoes it. */
bool rill__isa_force(const char *name);

#ifdef RILL_HAVE_AVX2
#define RILL__IF_AVX2(x) x
#else
#define RILL__IF_AVX2(x) NULL
#endif
#ifdef RILL_HAVE_AVX512
#define RILL__IF_AVX512(x) x
#else
#define RILL__IF_AVX512(x) NULL
#endif
#define RILL__ISA_TABLE(family)                                                                    \
    { &family##_scalar, RILL__IF_AVX2(&family##_avx2), RILL__IF_AVX512(&family##_avx512) }

#endif
