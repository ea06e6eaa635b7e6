/* cmocka, with asserts that say what went wrong in rill's words. */
#ifndef RILL_TESTS_UNIT_H
#define RILL_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model.h"

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        rill_status unit_status = (call);                                                          \
        if (unit_status != RILL_OK)                                                                \
            fail_msg("%s: %s (%d): %s", #call, rill_strerror(unit_status), (int)unit_status,       \
                     rill_last_error());                                                           \
    } while (0)

/* The call fails with that status, and the detail has text in it. */
#define assert_fails(call, expected, text)                                                         \
    do {                                                                                           \
        rill_status unit_status = (call);                                                          \
        if (unit_status != (expected))                                                             \
            fail_msg("%s: %s (%d), not %s (%d): %s", #call, rill_strerror(unit_status),            \
                     (int)unit_status, rill_strerror(expected), (int)(expected),                   \
                     rill_last_error());                                                           \
        if (!strstr(rill_last_error(), (text)))                                                    \
            fail_msg("%s: the detail \"%s\" lacks \"%s\"", #call, rill_last_error(), (text));      \
    } while (0)

#define assert_valid(stream)                                                                       \
    do {                                                                                           \
        const char *unit_reason = NULL;                                                            \
        if (rill_stream_validate((stream), &unit_reason) != RILL_OK)                               \
            fail_msg("%s is invalid: %s", #stream, unit_reason ? unit_reason : "(no reason)");     \
    } while (0)

/* Equal to the model, entry by entry, with its fill. */
#define assert_model(stream, expected)                                                             \
    do {                                                                                           \
        double unit_got = 0;                                                                       \
        assert_valid(stream);                                                                      \
        uint64_t unit_at = model_compare((expected), (stream), &unit_got);                         \
        if (unit_at < (expected)->dim)                                                             \
            fail_msg("%s[%llu] is %g, not %g", #stream, (unsigned long long)unit_at, unit_got,     \
                     model_at((expected), unit_at));                                               \
        unsigned char unit_fill[8];                                                                \
        assert_ok(rill_stream_fill((stream), unit_fill));                                          \
        unit_got = value_load(rill_stream_type(stream), unit_fill, 0);                             \
        if (!value_same(unit_got, (expected)->fill))                                               \
            fail_msg("fill of %s is %g, not %g", #stream, unit_got, (expected)->fill);             \
    } while (0)

static inline rill_stream *unit_stream(rill_type type, uint64_t dim) {
    rill_stream *s = NULL;
    assert_ok(rill_stream_create(type, dim, &s));
    assert_non_null(s);
    return s;
}

#endif
