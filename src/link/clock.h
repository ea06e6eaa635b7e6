/* A clock that a call of half a microsecond can afford: the processor's time stamps, turned into
 * seconds only when somebody asks, by the link's clock over the life of the communicator. Where
 * time is simulated, the link's own ticks. */
#ifndef RILL_LINK_CLOCK_H
#define RILL_LINK_CLOCK_H

#include "link/link.h"

static inline uint64_t rill__ticks(rill__link *link) {
    if (link->ticks) return link->ticks(link);
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return (uint64_t)(link->table->clock(link) * 1e9);
#endif
}

/* Where both clocks stood once. */
typedef struct rill__clock {
    rill__link *link;
    uint64_t ticks;
    double seconds;
} rill__clock;

static inline rill__clock rill__clock_start(rill__link *link) {
    return (rill__clock){link, rill__ticks(link), link->table->clock(link)};
}

static inline double rill__clock_seconds(const rill__clock *start, uint64_t ticks) {
    double lived = (double)(rill__ticks(start->link) - start->ticks);
    double seconds = start->link->table->clock(start->link) - start->seconds;
    return lived > 0 && seconds > 0 ? (double)ticks * seconds / lived : 0;
}

#endif
