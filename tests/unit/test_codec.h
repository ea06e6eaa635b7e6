/* What the tests of the codecs share. */
#ifndef RILL_TESTS_TEST_CODEC_H
#define RILL_TESTS_TEST_CODEC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/values.h"

#include "core/isa.h"
#include "space/codec_kernels.h"

static const char *const isas[] = {"scalar", "avx2", "avx512"};
enum { ISAS = 3, CANARY = 64 };

/* Memory with slack, and bytes after it that nothing may touch. */
static inline uint8_t *guarded(size_t bytes) {
    uint8_t *p = malloc(bytes + RILL__SLACK + CANARY);
    assert_non_null(p);
    memset(p, 0xA5, bytes + RILL__SLACK + CANARY);
    return p;
}
static inline void check_guard(const uint8_t *p, size_t bytes) {
    for (int i = 0; i < CANARY; i++)
        assert_int_equal(p[bytes + RILL__SLACK + (size_t)i], 0xA5);
}

#endif
