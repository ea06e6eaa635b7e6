#include "train/data_number.h"

#include "core/text.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const double rill__power10[RILL__POWERS] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,
                                            1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
                                            1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26,
                                            1e27, 1e28, 1e29, 1e30, 1e31, 1e32, 1e33, 1e34, 1e35,
                                            1e36, 1e37, 1e38, 1e39, 1e40, 1e41, 1e42, 1e43, 1e44,
                                            1e45, 1e46, 1e47, 1e48, 1e49, 1e50, 1e51, 1e52, 1e53,
                                            1e54, 1e55, 1e56, 1e57, 1e58, 1e59, 1e60};
const uint64_t rill__power10_int[9] = {1,      10,      100,      1000,     10000,
                                       100000, 1000000, 10000000, 100000000};

/* Whether the token is a decimal number in form; strtod takes more: hexadecimal, nan, blanks
 * before. */
static rill__number_state check_form(const char *s, const char **end) {
    const char *start = s;
    if (*s == '-' || *s == '+') s++;
    const char *word = s;
    size_t digits = 0;
    for (; *s >= '0' && *s <= '9'; s++)
        digits++;
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++)
            digits++;
    if (!digits) {
        *end = start;
        char c = (char)(*word | 0x20), next = c ? (char)(word[1] | 0x20) : 0;
        return (c == 'n' && next == 'a') || (c == 'i' && next == 'n') ? RILL__NUMBER_NOT_FINITE
                                                                      : RILL__NUMBER_BAD;
    }
    if ((*s | 0x20) == 'e') {
        const char *exponent = s + 1;
        if (*exponent == '-' || *exponent == '+') exponent++;
        if (*exponent < '0' || *exponent > '9') return RILL__NUMBER_BAD;
        for (s = exponent; *s >= '0' && *s <= '9'; s++)
            ;
    }
    *end = s;
    return rill__ends_token((unsigned char)*s) ? RILL__NUMBER_OK : RILL__NUMBER_BAD;
}

rill__number_state rill__float_slow(const char *text, void *locale, const char **end,
                                    float *value) {
    rill__number_state state = check_form(text, end);
    if (state != RILL__NUMBER_OK) return state;
    *value = strtof_l(text, NULL, (locale_t)locale);
    return isinf(*value) ? RILL__NUMBER_OVERFLOW : RILL__NUMBER_OK;
}

rill__number_state rill__double_slow(const char *text, void *locale, const char **end,
                                     double *value) {
    rill__number_state state = check_form(text, end);
    if (state != RILL__NUMBER_OK) return state;
    *value = strtod_l(text, NULL, (locale_t)locale);
    return isinf(*value) ? RILL__NUMBER_OVERFLOW : RILL__NUMBER_OK;
}

size_t rill__uint_print(uint64_t value, char *text) {
    char reversed[20];
    size_t n = 0;
    do
        reversed[n++] = (char)('0' + value % 10);
    while (value /= 10);
    for (size_t i = 0; i < n; i++)
        text[i] = reversed[n - 1 - i];
    return n;
}

/* w / 10^places, w > 0. */
static size_t print_decimal(uint64_t w, unsigned places, char *text) {
    char digits[24];
    size_t n = rill__uint_print(w, digits), at = 0;
    if (n <= places) {
        text[at++] = '0';
        text[at++] = '.';
        for (size_t i = n; i < places; i++)
            text[at++] = '0';
        memcpy(text + at, digits, n);
        return at + n;
    }
    memcpy(text, digits, n - places);
    at = n - places;
    if (places) {
        text[at++] = '.';
        memcpy(text + at, digits + n - places, places);
        at += places;
    }
    return at;
}

static size_t print_general(double value, int precision, char *text) {
    return (size_t)rill__print(text, RILL__NUMBER_ROOM, "%.*g", precision, value);
}

size_t rill__float_print(float value, char *text) {
    size_t sign = 0;
    if (signbit(value)) {
        text[sign++] = '-';
        value = -value;
        text++;
    }
    if (value == 0) {
        *text = '0';
        return sign + 1;
    }
    /* The fewest decimal places that give the float back, by the parser's own rule. */
    if (value >= 1e-5f && value < 1e9f)
        for (unsigned places = 0; places <= 12; places++) {
            double scaled = nearbyint((double)value * rill__power10[places]);
            float back;
            if (scaled > 1e10) break;
            if (scaled > 0 && rill__float_of_decimal((uint64_t)scaled, -(int)places, &back) &&
                back == value)
                return sign + print_decimal((uint64_t)scaled, places, text);
        }
    return sign + print_general(value, 9, text);
}

size_t rill__double_print(double value, char *text) {
    if (value == trunc(value) && fabs(value) < 1e15 && !(value == 0 && signbit(value))) {
        size_t sign = value < 0;
        if (sign) *text = '-';
        return sign + rill__uint_print((uint64_t)fabs(value), text + sign);
    }
    return print_general(value, 17, text);
}
