/* Numbers of data sets: the parser against strtof, and text that gives the same bits back. */
#include "../support/unit.h"
#include "train/data_number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t plain;

static uint64_t next(uint64_t *state) { /* SplitMix64 */
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static uint32_t to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

/* The token parses to the bits of strtof, and all of it is taken. */
static void check_token(const char *token) {
    char text[512];
    float got = -7, want = strtof(token, NULL);
    snprintf(text, sizeof text - 16, "%s ", token);
    const char *p = text;
    rill__number_state state = rill__float_parse(&p, plain, &got);
    if (isinf(want)) {
        assert_int_equal(state, RILL__NUMBER_OVERFLOW);
        return;
    }
    if (state != RILL__NUMBER_OK || to_bits(got) != to_bits(want) || p != text + strlen(token))
        fail_msg("%s: state %d, %.9g (%08x), strtof %.9g (%08x)", token, (int)state, got,
                 to_bits(got), want, to_bits(want));
}

static void random_tokens_match_strtof(void **state) {
    (void)state;
    uint64_t s = 1;
    char token[128];
    for (int i = 0; i < 1500000; i++) {
        uint64_t r = next(&s);
        float f = from_bits((uint32_t)next(&s));
        if (!isfinite(f)) f = 1.5f;
        switch (r % 10) {
        case 0: snprintf(token, sizeof token, "%.*g", 1 + (int)((r >> 8) % 20), f); break;
        case 1: snprintf(token, sizeof token, "%.*e", (int)((r >> 8) % 25), f); break;
        case 2: snprintf(token, sizeof token, "%d", (int)next(&s)); break;
        case 3:
            snprintf(token, sizeof token, "%.*f", (int)((r >> 8) % 12), (double)(r >> 40) / 977.0);
            break;
        case 4:
            snprintf(token, sizeof token, "0.%0*llu", 1 + (int)((r >> 8) % 30),
                     (unsigned long long)(next(&s) >> r % 60));
            break;
        case 5:
            snprintf(token, sizeof token, "%llu.%llue%d", (unsigned long long)next(&s) >> r % 64,
                     (unsigned long long)next(&s) >> (r >> 6) % 64, (int)((r >> 20) % 90) - 60);
            break;
        case 6: snprintf(token, sizeof token, "%.17g", (double)f * (1 + 1e-9)); break;
        case 7:
            snprintf(token, sizeof token, "+%llu", (unsigned long long)next(&s) >> r % 64);
            break;
        case 8: { /* close to the middle between two floats */
            double middle = ((double)f + (double)nextafterf(f, INFINITY)) / 2;
            if (!isfinite(middle)) middle = 1.5;
            snprintf(token, sizeof token, "%.*g", 15 + (int)((r >> 8) % 12), middle);
            break;
        }
        default: snprintf(token, sizeof token, "%llu.", (unsigned long long)(r >> 40)); break;
        }
        check_token(token);
    }
}

static void edges(void **state) {
    (void)state;
    static const char *const tokens[] = {"0",
                                         "-0",
                                         "1",
                                         "9",
                                         "00000000000000000000000001",
                                         "0.000000000000000000000000000000001",
                                         "16777217",
                                         "16777219",
                                         "33554435",
                                         "1e10",
                                         "1e-45",
                                         "7e-46",
                                         "7.0064923216240853e-46",
                                         "1.1754943508222875e-38",
                                         "1.17549435e-38",
                                         "3.4028234663852886e38",
                                         "3.4028235677973366e38",
                                         "3.4028235677973367e38",
                                         "1e38",
                                         "1e39",
                                         "1e99999",
                                         "1e-99999",
                                         "123456789012345678901234567890",
                                         ".5",
                                         "5.",
                                         "+.5e+1",
                                         "-5.e-1",
                                         "0e999",
                                         "1E3",
                                         "18446744073709551615",
                                         "18446744073709551616",
                                         "99999999",
                                         "999999999",
                                         "1.00000005960464477539062499",
                                         "1.00000005960464477539062500",
                                         "1.00000005960464477539062501",
                                         "0.1",
                                         "0.3",
                                         "1e22",
                                         "1e23",
                                         "8388608.5",
                                         "8388609.5"};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        check_token(tokens[i]);
}

static void what_is_no_number(void **state) {
    (void)state;
    static const struct {
        const char *text;
        rill__number_state want;
    } cases[] = {
        {" ", RILL__NUMBER_BAD},
        {"- ", RILL__NUMBER_BAD},
        {". ", RILL__NUMBER_BAD},
        {"1e ", RILL__NUMBER_BAD},
        {"1e+ ", RILL__NUMBER_BAD},
        {"1x ", RILL__NUMBER_BAD},
        {"0x10 ", RILL__NUMBER_BAD},
        {"--1 ", RILL__NUMBER_BAD},
        {"1..2 ", RILL__NUMBER_BAD},
        {"nan ", RILL__NUMBER_NOT_FINITE},
        {"NaN ", RILL__NUMBER_NOT_FINITE},
        {"-inf ", RILL__NUMBER_NOT_FINITE},
        {"Infinity ", RILL__NUMBER_NOT_FINITE},
        {"1e39 ", RILL__NUMBER_OVERFLOW},
        {"-4e38 ", RILL__NUMBER_OVERFLOW},
        {"1,5 ", RILL__NUMBER_BAD},
        {"1:2 ", RILL__NUMBER_BAD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64] = {0};
        float value;
        double label;
        memcpy(text, cases[i].text, strlen(cases[i].text));
        const char *p = text;
        if (rill__float_parse(&p, plain, &value) != cases[i].want) fail_msg("'%s'", text);
        p = text;
        if (cases[i].want == RILL__NUMBER_OVERFLOW) continue;
        if (rill__double_parse(&p, plain, &label) != cases[i].want) fail_msg("label '%s'", text);
    }
}

static void printed_floats_come_back(void **state) {
    (void)state;
    uint64_t s = 5;
    for (int i = 0; i < 1000000; i++) {
        float f = from_bits((uint32_t)next(&s));
        if (i % 3 == 0) f = (float)((double)(next(&s) >> 44) / 1e4);
        if (i % 7 == 0) f = (float)(int)next(&s);
        if (!isfinite(f)) continue;
        char text[RILL__NUMBER_ROOM + 16] = {0};
        size_t n = rill__float_print(f, text);
        assert_true(n < RILL__NUMBER_ROOM);
        float back = strtof(text, NULL);
        if (to_bits(back) != to_bits(f)) fail_msg("%.9g: '%s'", f, text);
        text[n] = '\n';
        const char *p = text;
        assert_int_equal(rill__float_parse(&p, plain, &back), RILL__NUMBER_OK);
        assert_int_equal(to_bits(back), to_bits(f));
    }
    static const struct {
        float value;
        const char *text;
    } shortest[] = {
        {1, "1"},           {0.1f, "0.1"},           {-0.0f, "-0"},         {0.3f, "0.3"},
        {123456, "123456"}, {0.009512f, "0.009512"}, {16777216, "16777216"}};
    for (size_t i = 0; i < sizeof shortest / sizeof *shortest; i++) {
        char text[RILL__NUMBER_ROOM] = {0};
        rill__float_print(shortest[i].value, text);
        assert_string_equal(text, shortest[i].text);
    }
}

static void printed_doubles_come_back(void **state) {
    (void)state;
    uint64_t s = 9;
    for (int i = 0; i < 300000; i++) {
        uint64_t bits = next(&s);
        double d;
        memcpy(&d, &bits, 8);
        if (i % 2) d = (double)(int64_t)(bits >> 30) - 1e9;
        if (!isfinite(d)) continue;
        char text[RILL__NUMBER_ROOM + 16] = {0};
        size_t n = rill__double_print(d, text);
        text[n] = ' ';
        const char *p = text;
        double back;
        assert_int_equal(rill__double_parse(&p, plain, &back), RILL__NUMBER_OK);
        assert_memory_equal(&back, &d, 8);
        assert_ptr_equal(p, text + n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_tokens_match_strtof), cmocka_unit_test(edges),
        cmocka_unit_test(what_is_no_number),          cmocka_unit_test(printed_floats_come_back),
        cmocka_unit_test(printed_doubles_come_back),
    };
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    freelocale(plain);
    return failed;
}
