/* What the fuzzers share. */
#ifndef RILL_TESTS_FUZZ_H
#define RILL_TESTS_FUZZ_H

#include "core/core.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

/* Exactly bytes and slack: a sanitizer sees what goes further. */
static inline uint8_t *room_for(size_t bytes) {
    uint8_t *p = malloc(bytes + RILL__SLACK);
    MUST(p);
    memset(p, 0xEE, bytes + RILL__SLACK);
    return p;
}

#endif
