/* A clock that a call of half a microsecond can afford: the processor's time stamps, turned into
 * seconds only when somebody asks, by MPI_Wtime over the life of the communicator. Elsewhere, and in
 * SimGrid, where time is simulated, MPI_Wtime itself. */
#ifndef RILL_CORE_CLOCK_H
#define RILL_CORE_CLOCK_H

#include <mpi.h>
#include <stdint.h>

#if defined(__x86_64__) && !defined(SMPI_H)
static inline uint64_t rill__ticks(void) { return __builtin_ia32_rdtsc(); }
#else
static inline uint64_t rill__ticks(void) { return (uint64_t)(MPI_Wtime() * 1e9); }
#endif

/* Where both clocks stood once. */
typedef struct rill__clock {
    uint64_t ticks;
    double seconds;
} rill__clock;

static inline rill__clock rill__clock_start(void) {
    return (rill__clock){rill__ticks(), MPI_Wtime()};
}

static inline double rill__clock_seconds(const rill__clock *start, uint64_t ticks) {
    double lived = (double)(rill__ticks() - start->ticks), seconds = MPI_Wtime() - start->seconds;
    return lived > 0 && seconds > 0 ? (double)ticks * seconds / lived : 0;
}

#endif
