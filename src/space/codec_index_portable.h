/* Index kernels in plain C: the definition of the bytes, and what the SIMD kernels fall back to.
 * Included by the files that compile them for an instruction set.
 *
 * Cost: pack 1.1 ns an index, unpack 0.7 ns; high and low parts 1.6-1.9 ns and 1.5 ns. */
#ifndef RILL_SPACE_CODEC_INDEX_PORTABLE_H
#define RILL_SPACE_CODEC_INDEX_PORTABLE_H

#include "space/codec_bits.h"
#include "space/codec_kernels.h"

/* Inlined where index_bytes is a constant, so that each width gets its own loop. */
#define RILL__EACH_WIDTH static inline __attribute__((always_inline))

/* ---- bit-packed gaps ------------------------------------------------------------------------ */

/* Appends n values of width bits each, 1 << `merge` at a time, which fit in 56 bits; the array goes
 * on with zeros. Every step stores a word and advances by whole bytes, without a branch. */
RILL__EACH_WIDTH void rill__pack_merged(const uint64_t *value, unsigned n, unsigned width,
                                        unsigned merge, uint8_t *out) {
    uint64_t word = 0;
    unsigned fill = 0, step = width << merge;
    for (unsigned j = 0; j < n; j += 1u << merge) {
        uint64_t v = value[j];
        if (merge == 1) v |= value[j + 1] << width;
        if (merge == 2)
            v |= value[j + 1] << width | (value[j + 2] | value[j + 3] << width) << 2 * width;
        word |= v << fill;
        rill__store64(out, word);
        fill += step;
        out += fill >> 3;
        word >>= fill & ~7u;
        fill &= 7;
    }
}

/* One pack of n <= 128 gaps; *next is the index after the last one. Returns the end of out. */
RILL__EACH_WIDTH uint8_t *rill__pack_one(unsigned index_bytes, const void *idx, uint64_t i,
                                         unsigned n, uint64_t *next, uint8_t *width, uint8_t *out) {
    uint64_t gap[RILL__PACK + 3], all, before = rill__index_at(index_bytes, idx, i);
    gap[0] = all = before - *next;
    for (unsigned j = 1; j < n; j++) {
        uint64_t index = rill__index_at(index_bytes, idx, i + j);
        gap[j] = index - before - 1;
        before = index;
        all |= gap[j];
    }
    gap[n] = gap[n + 1] = gap[n + 2] = 0;
    *next = before + 1;
    unsigned w = rill__bit_width(all);
    *width = (uint8_t)w;
    if (w <= 14) {
        rill__pack_merged(gap, n, w, 2, out);
    } else if (w <= 28) {
        rill__pack_merged(gap, n, w, 1, out);
    } else if (w <= 56) {
        rill__pack_merged(gap, n, w, 0, out);
    } else {
        rill__bit_writer writer = {out, 0, 0};
        for (unsigned j = 0; j < n; j++)
            rill__bits_append(&writer, gap[j], w);
        rill__bits_finish(&writer);
    }
    return out + ((size_t)n * w + 7) / 8;
}

RILL__EACH_WIDTH uint8_t *rill__pack_gaps(unsigned index_bytes, const void *idx, uint64_t count,
                                          uint64_t first, uint8_t *widths, uint8_t *out) {
    uint64_t next = first;
    for (uint64_t i = 0; i < count; i += RILL__PACK)
        out = rill__pack_one(index_bytes, idx, i, (unsigned)rill__min_u64(RILL__PACK, count - i),
                             &next, widths++, out);
    return out;
}

/* One pack back; *left is how many indices of the range lie above the last one. */
RILL__EACH_WIDTH bool rill__unpack_one(unsigned index_bytes, const uint8_t *in, unsigned width,
                                       unsigned n, uint64_t *next, uint64_t *left, void *idx,
                                       uint64_t i) {
    uint64_t index = *next, room = *left, bit = 0;
    if (width <= 48) { /* one load a gap, and no sum of 128 can overflow */
        uint64_t mask = rill__low_mask(width);
        for (unsigned j = 0; j < n; j++, bit += width) {
            index += rill__load64(in + (bit >> 3)) >> (bit & 7) & mask;
            rill__index_put(index_bytes, idx, i + j, index++);
        }
        if (index - *next > room) return false;
        *left = room - (index - *next);
        *next = index;
        return true;
    }
    for (unsigned j = 0; j < n; j++, bit += width) {
        uint64_t gap = rill__bits_at(in, bit, width);
        if (gap >= room) return false;
        room -= gap + 1;
        index += gap;
        rill__index_put(index_bytes, idx, i + j, index++);
    }
    *left = room;
    *next = index;
    return true;
}

RILL__EACH_WIDTH bool rill__unpack_gaps(unsigned index_bytes, const uint8_t *widths,
                                        const uint8_t *in, uint64_t count, uint64_t first,
                                        uint64_t range, void *idx) {
    uint64_t next = first, left = range;
    for (uint64_t i = 0; i < count; i += RILL__PACK) {
        unsigned n = (unsigned)rill__min_u64(RILL__PACK, count - i), width = *widths++;
        if (!rill__unpack_one(index_bytes, in, width, n, &next, &left, idx, i)) return false;
        in += ((size_t)n * width + 7) / 8;
    }
    return true;
}

/* ---- high and low parts --------------------------------------------------------------------- */

/* Indices [i, count); the writer stands at the low part of i. */
RILL__EACH_WIDTH void rill__pack_high_low_from(unsigned index_bytes, const void *idx, uint64_t i,
                                               uint64_t count, uint64_t first, unsigned low,
                                               rill__bit_writer *writer, rill__bit_setter *setter) {
    uint64_t mask = rill__low_mask(low);
    for (; i < count; i++) {
        uint64_t x = rill__index_at(index_bytes, idx, i) - first - i;
        rill__bits_append(writer, x & mask, low);
        rill__bit_set(setter, (x >> low) + i);
    }
    rill__bits_finish(writer);
}

RILL__EACH_WIDTH uint8_t *rill__pack_high_low(unsigned index_bytes, const void *idx, uint64_t count,
                                              uint64_t first, unsigned low, uint8_t *low_out,
                                              uint8_t *high_out) {
    rill__bit_writer writer = {low_out, 0, 0};
    rill__bit_setter setter = {high_out, UINT64_MAX, 0, 0};
    rill__pack_high_low_from(index_bytes, idx, 0, count, first, low, &writer, &setter);
    rill__bits_set_end(&setter);
    uint64_t x = rill__index_at(index_bytes, idx, count - 1) - first - (count - 1);
    return high_out + ((x >> low) + count - 1) / 8 + 1;
}

/* Checks the end of a bitmap whose last bit is number bit, and the last x. */
static inline bool rill__high_low_end(const uint8_t *high_in, uint64_t bit, uint64_t last,
                                      uint64_t count, uint64_t range, unsigned low,
                                      size_t *high_used) {
    uint64_t most = range - count; /* of x */
    *high_used = (size_t)(bit / 8 + 1);
    return high_in[bit / 8] >> (bit % 8) == 1 && bit - (count - 1) <= most >> low && last <= most;
}

/* What unpacking has got to. */
typedef struct rill__high_low {
    uint64_t i, last, low_bit;
    bool fallen; /* some x was below the one before it */
} rill__high_low;

/* Indices of the bits of one word, of which at most `limit` are wanted. Returns the last bit. */
RILL__EACH_WIDTH unsigned rill__unpack_word(unsigned index_bytes, uint64_t word, uint64_t base,
                                            uint64_t limit, const uint8_t *low_in, uint64_t first,
                                            unsigned low, void *idx, rill__high_low *state) {
    rill__high_low s = *state;
    unsigned bit = 0;
    for (; word && s.i != limit; word &= word - 1, s.i++) {
        bit = (unsigned)__builtin_ctzll(word);
        uint64_t x = (base + bit - s.i) << low | rill__bits_at(low_in, s.low_bit, low);
        s.low_bit += low;
        s.fallen |= x < s.last;
        s.last = x;
        rill__index_put(index_bytes, idx, s.i, first + x + s.i);
    }
    *state = s;
    return bit;
}

/* Unpacking takes the bitmap in windows, and in three steps without a branch that depends on the
 * data: positions of the bits, low parts, indices. */
#define RILL__WINDOW 256u

/* Positions of the bits of a window, four bits at a time. Returns how many. */
static inline unsigned rill__window_positions(const uint8_t *in, uint8_t *out) {
    static const uint32_t position[16] = {0,     0,       1,       0x100,    2,     0x200,
                                          0x201, 0x20100, 3,       0x300,    0x301, 0x30100,
                                          0x302, 0x30200, 0x30201, 0x3020100};
    static const uint8_t bits[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
    unsigned n = 0;
    for (unsigned at = 0; at < RILL__WINDOW; at += 64) {
        uint64_t word = rill__load64(in + at / 8);
        if (!word) continue;
        for (unsigned k = 0; k < 64; k += 4, word >>= 4) {
            uint32_t four = position[word & 15] + (at + k) * 0x01010101u;
            memcpy(out + n, &four, 4);
            n += bits[word & 15];
        }
    }
    return n;
}

/* n values of width <= 28 bits from `bit` on, 1 << merge of them from each load. */
RILL__EACH_WIDTH void rill__unpack_merged(const uint8_t *in, uint64_t bit, unsigned n,
                                          unsigned width, unsigned merge, uint32_t *out) {
    uint64_t mask = rill__low_mask(width);
    for (unsigned j = 0; j < n; j += 1u << merge, bit += width << merge) {
        uint64_t word = rill__load64(in + (bit >> 3)) >> (bit & 7);
        for (unsigned k = 0; k < 1u << merge; k++, word >>= width)
            out[j + k] = (uint32_t)(word & mask);
    }
}

/* Indices i to i + n of a window that starts with bit `start`. Returns whether x falls. */
#define RILL__WINDOW_INDICES(index_t)                                                              \
    do {                                                                                           \
        index_t x[RILL__WINDOW + 1], *out = (index_t *)idx + i, wrong = 0;                         \
        index_t high = (index_t)(start - i), rank = (index_t)(first + i);                          \
        x[0] = (index_t)*last;                                                                     \
        for (unsigned j = 0; j < n; j++) {                                                         \
            x[j + 1] = (index_t)(((index_t)position[j] + high - j) << low) + part[j];              \
            out[j] = x[j + 1] + rank + j;                                                          \
        }                                                                                          \
        for (unsigned j = 0; j < n; j++)                                                           \
            wrong |= x[j + 1] < x[j];                                                              \
        *last = x[n];                                                                              \
        return wrong;                                                                              \
    } while (0)
RILL__EACH_WIDTH bool rill__window_indices(unsigned index_bytes, const uint8_t *position,
                                           const uint32_t *part, unsigned n, uint64_t i,
                                           uint64_t start, uint64_t first, unsigned low, void *idx,
                                           uint64_t *last) {
    if (index_bytes == 4) RILL__WINDOW_INDICES(uint32_t);
    else RILL__WINDOW_INDICES(uint64_t);
}

RILL__EACH_WIDTH bool rill__unpack_high_low(unsigned index_bytes, const uint8_t *low_in,
                                            const uint8_t *high_in, size_t high_bytes,
                                            uint64_t count, uint64_t first, uint64_t range,
                                            unsigned low, bool may_fall, void *idx,
                                            size_t *high_used) {
    rill__high_low s = {0, 0, 0, 0};
    uint8_t position[RILL__WINDOW + 4];
    uint32_t part[RILL__WINDOW + 4];
    uint64_t at = 0;
    /* While neither the bits nor the indices can end. */
    for (; low <= 28 && high_bytes - at >= RILL__WINDOW / 8 && count - s.i > RILL__WINDOW;
         at += RILL__WINDOW / 8) {
        unsigned n = rill__window_positions(high_in + at, position);
        if (!n) continue;
        if (low <= 14) rill__unpack_merged(low_in, s.low_bit, n, low, 2, part);
        else rill__unpack_merged(low_in, s.low_bit, n, low, 1, part);
        s.fallen |= rill__window_indices(index_bytes, position, part, n, s.i, 8 * at, first, low,
                                         idx, &s.last);
        s.i += n;
        s.low_bit += (uint64_t)n * low;
    }
    for (; at < high_bytes; at += 8) {
        uint64_t word = rill__load64(high_in + at);
        if (high_bytes - at < 8) word &= rill__low_mask(8 * (unsigned)(high_bytes - at));
        unsigned bit = rill__unpack_word(index_bytes, word, 8 * at, count, low_in, first, low, idx,
                                         &s);
        if (s.i == count)
            return rill__high_low_end(high_in, 8 * at + bit, s.last, count, range, low,
                                      high_used) &&
                   (may_fall || !s.fallen);
    }
    return false;
}

#endif
