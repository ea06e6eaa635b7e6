/* Bits in memory: streams of little-endian bits, bit b in byte b / 8 at 1 << b % 8. Shared by the
 * portable kernels and by the ends of the SIMD ones.
 *
 * Loads may touch up to 8 bytes past the bits asked for, stores up to 16: RILL__SLACK covers
 * both. */
#ifndef RILL_SPACE_CODEC_BITS_H
#define RILL_SPACE_CODEC_BITS_H

#include "core/core.h"

#include <string.h>

static inline uint64_t rill__load64(const void *at) {
    uint64_t word;
    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline void rill__store64(void *at, uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    memcpy(at, &word, 8);
}

/* Bits that x needs; 0 for 0. */
static inline unsigned rill__bit_width(uint64_t x) {
    return x ? 64u - (unsigned)__builtin_clzll(x) : 0u;
}

static inline uint64_t rill__low_mask(unsigned width) {
    return width < 64 ? (UINT64_C(1) << width) - 1 : ~UINT64_C(0);
}

/* width bits from bit on. */
static inline uint64_t rill__bits_at(const uint8_t *in, uint64_t bit, unsigned width) {
    unsigned shift = bit & 7;
    uint64_t word = rill__load64(in + (bit >> 3)) >> shift;
    if (shift + width > 64) word |= (uint64_t)in[(bit >> 3) + 8] << (64 - shift);
    return word & rill__low_mask(width);
}

/* Appends values of a fixed width. */
typedef struct rill__bit_writer {
    uint8_t *at;
    uint64_t word;
    unsigned fill; /* bits of word that are used: below 64 */
} rill__bit_writer;

static inline void rill__bits_append(rill__bit_writer *w, uint64_t value, unsigned width) {
    w->word |= value << w->fill;
    w->fill += width;
    if (w->fill >= 64) {
        rill__store64(w->at, w->word);
        w->at += 8;
        w->fill -= 64;
        w->word = w->fill ? value >> (width - w->fill) : 0;
    }
}

/* Writes what is left, to the byte, and returns the end. */
static inline uint8_t *rill__bits_finish(rill__bit_writer *w) {
    for (; w->fill > 0; w->fill = w->fill > 8 ? w->fill - 8 : 0) {
        *w->at++ = (uint8_t)w->word;
        w->word >>= 8;
    }
    return w->at;
}

/* Sets bits of a bitmap in ascending order, up to 64 at a time. Nothing is read back from memory,
 * so consecutive groups wait for registers only; words that are skipped are cleared. */
typedef struct rill__bit_setter {
    uint8_t *map;
    uint64_t at; /* number of the current word; UINT64_MAX before the first */
    uint64_t word, next;
} rill__bit_setter;

/* low and high: the bits for word number at and the one after it. The lowest of them lies above all
 * bits that were set before. */
static inline void rill__bits_set(rill__bit_setter *s, uint64_t at, uint64_t low, uint64_t high) {
    if (__builtin_expect(at > s->at + 1, 0)) {
        rill__store64(s->map + 8 * (s->at + 1), s->next);
        for (uint64_t i = s->at + 2; i < at; i++)
            rill__store64(s->map + 8 * i, 0);
        s->next = 0;
    }
    /* In the same word, next is still empty: its bits would lie above ours. */
    s->word = (at == s->at ? s->word : s->next) | low;
    s->next = high;
    s->at = at;
    rill__store64(s->map + 8 * at, s->word);
}

static inline void rill__bits_set_end(rill__bit_setter *s) {
    rill__store64(s->map + 8 * (s->at + 1), s->next);
}

static inline void rill__bit_set(rill__bit_setter *s, uint64_t bit) {
    rill__bits_set(s, bit >> 6, UINT64_C(1) << (bit & 63), 0);
}

#endif
