/* Decimal text to float, and float to short decimal text.
 *
 * Idea: digits are taken eight at a time from one 64-bit word (SWAR: the first byte that is no
 * digit is found by a carry into its top bit; the digits are summed by three multiplications). The
 * decimal w * 10^e is then computed in double, whose error is below 4 units in its last place, so
 * that rounding it to float is right unless it lies within that of the middle between two floats.
 * Those, one in 2^25 by chance, and all odd forms are left to strtof, which is correctly rounded.
 * Source: the digit trick is in common use since D. Lemire's fast_float; the double-to-float test
 * is a guard-bit argument.
 * Restriction: reads up to 8 bytes past the token.
 */
#ifndef RILL_TRAIN_DATA_NUMBER_H
#define RILL_TRAIN_DATA_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { RILL__POWERS = 61 };
extern const double rill__power10[RILL__POWERS]; /* 1e0 ... */
extern const uint64_t rill__power10_int[9];      /* 10^0 ... 10^8 */

typedef enum rill__number_state {
    RILL__NUMBER_OK,
    RILL__NUMBER_BAD,        /* not a decimal number */
    RILL__NUMBER_NOT_FINITE, /* nan, inf */
    RILL__NUMBER_OVERFLOW
} rill__number_state;

/* A separator must follow a number. */
static inline bool rill__is_blank(unsigned char c) { return c == ' ' || c == '\t' || c == '\r'; }
static inline bool rill__ends_token(unsigned char c) {
    return rill__is_blank(c) || c == '\n' || c == '#';
}

/* What the fast paths leave. locale is a "C" locale. *end is moved past what was read. */
rill__number_state rill__float_slow(const char *text, void *locale, const char **end, float *value);
rill__number_state rill__double_slow(const char *text, void *locale, const char **end,
                                     double *value);

/* The digits at p, at most 8: their number, and their value in *sum. */
static inline unsigned rill__digits8(const char *p, uint64_t *sum) {
    uint64_t w;
    memcpy(&w, p, 8);
    w ^= UINT64_C(0x3030303030303030);
    uint64_t other = (w | (w + UINT64_C(0x7676767676767676))) & UINT64_C(0x8080808080808080);
    unsigned n = 8;
    if (other) {
        n = (unsigned)__builtin_ctzll(other) >> 3;
        if (!n) {
            *sum = 0;
            return 0;
        }
        w <<= 64 - 8 * n;
    }
    w = w * 10 + (w >> 8);
    w = ((w & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x000F424000000064) +
         ((w >> 16) & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x0000271000000001)) >>
        32;
    *sum = w & UINT32_MAX;
    return n;
}

/* All digits at p: appends them to *sum; false if that overflows. */
static inline bool rill__digits(const char **p, uint64_t *sum, unsigned *count) {
    for (;;) {
        uint64_t part, grown;
        unsigned n = rill__digits8(*p, &part);
        if (!n) return true;
        if (*sum) {
            if (__builtin_mul_overflow(*sum, rill__power10_int[n], &grown) ||
                __builtin_add_overflow(grown, part, sum))
                return false;
        } else *sum = part;
        *p += n;
        *count += n;
        if (n < 8) return true;
    }
}

/* w * 10^e rounded to float; false when that needs more care. */
static inline bool rill__float_of_decimal(uint64_t w, int e, float *value) {
    if (!w) {
        *value = 0;
        return true;
    }
    if (e < -(RILL__POWERS - 1) || e > 38) return false;
    double d = (double)w;
    if (e < 0) d /= rill__power10[-e];
    else if (e) d *= rill__power10[e];
    if (!(d >= 0x1p-125 && d <= 0x1p127)) return false;
    uint64_t bits;
    memcpy(&bits, &d, 8);
    /* 29 bits go away; 8 units around their middle are in doubt. */
    uint64_t low = (bits & UINT64_C(0x1FFFFFFF)) - UINT64_C(0x10000000) + 8;
    if (low <= 16) return false;
    *value = (float)d;
    return true;
}

/* A float at *p, which moves past it. */
static inline rill__number_state rill__float_parse(const char **p, void *locale, float *value) {
    const char *s = *p;
    unsigned lone = (unsigned)(unsigned char)*s - '0';
    if (lone < 10 && rill__ends_token((unsigned char)s[1])) { /* most values are 1 */
        *value = (float)lone;
        *p = s + 1;
        return RILL__NUMBER_OK;
    }
    bool negative = *s == '-';
    s += negative || *s == '+';
    uint64_t w = 0;
    unsigned whole = 0, part = 0;
    int exponent = 0;
    if (!rill__digits(&s, &w, &whole)) goto slow;
    if (*s == '.') {
        s++;
        if (!rill__digits(&s, &w, &part)) goto slow;
    }
    if (whole + part == 0) goto slow;
    if ((*s | 0x20) == 'e') {
        s++;
        bool minus = *s == '-';
        s += minus || *s == '+';
        uint64_t e = 0;
        unsigned n = 0;
        if (!rill__digits(&s, &e, &n) || !n || e > 9999) goto slow;
        exponent = minus ? -(int)e : (int)e;
    }
    if (part > 9999 || !rill__ends_token((unsigned char)*s)) goto slow;
    if (!rill__float_of_decimal(w, exponent - (int)part, value)) goto slow;
    if (negative) *value = -*value;
    *p = s;
    return RILL__NUMBER_OK;
slow:
    return rill__float_slow(*p, locale, p, value);
}

/* A label: mostly a small integer. */
static inline rill__number_state rill__double_parse(const char **p, void *locale, double *value) {
    const char *s = *p;
    bool negative = *s == '-';
    s += negative || *s == '+';
    uint64_t w;
    unsigned n = rill__digits8(s, &w);
    if (n && n < 8 && rill__ends_token((unsigned char)s[n])) {
        *value = negative ? -(double)w : (double)w;
        *p = s + n;
        return RILL__NUMBER_OK;
    }
    return rill__double_slow(*p, locale, p, value);
}

/* Writes text that parses to the same bits, not NUL-terminated; room for RILL__NUMBER_ROOM. Finite
 * values only. Returns the length. */
enum { RILL__NUMBER_ROOM = 32 };
size_t rill__float_print(float value, char *text);
size_t rill__double_print(double value, char *text);
size_t rill__uint_print(uint64_t value, char *text);

#endif
