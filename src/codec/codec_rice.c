/* rice: gaps, their low bits as they are and their high bits in unary.
 *
 * Idea: Rice (1979), Golomb (1966). elias_fano writes where an index lies, rice how far it is from
 * the one before it, gap = index - previous - 1: the unary part counts floor(gap / 2^l) of each,
 * where elias_fano's counts all of the range, half a bit an index more. Each chunk of 1024 indices
 * has an l of its own, the best one, so that a message may be dense in one place and sparse in
 * another.
 *
 * Layout, of each chunk: one byte l; the low parts of the gaps (gap mod 2^l), l bits each, from the
 * lowest bit up, padded with zero bits to a byte; then a bitmap: for each gap as many zeros as
 * gap / 2^l, and a one. It ends with the byte of its last one. In other words the bits and bytes
 * of elias_fano for x[i] = 2^l (sum of all gaps / 2^l up to i) + gap[i] mod 2^l: its kernels serve
 * here, and allow for an x that falls within equal high parts.
 *
 * Cost: l + 1 / (1 - (1 - density)^(2^l)) bits an index and 15 a chunk: 0.02 to 0.12 bits over the
 * entropy of a uniform support. Memory: 8 KiB of stack. */
#include "codec/codec.h"
#include "space/codec_bits.h"
#include "space/space.h"

#include <math.h>

enum { CHUNK = 1024, CHUNK_BITS = 15 /* the byte of l; padding: 3.5 bits twice */ };

#define EACH_WIDTH static inline __attribute__((always_inline))

static uint64_t chunks_of(uint64_t count) { return count / CHUNK + (count % CHUNK != 0); }

/* ---- sizes -------------------------------------------------------------------------------- */

/* With l low bits: the unary part of a geometric gap, and these. */
static double bits_with(double density, double low) {
    return low - 1 / expm1(exp2(low) * log1p(-density));
}

static double gap_bits(double density) {
    density = fmin(fmax(density, 0x1p-60), 0.9999999);
    double low = fmax(0, floor(log2(M_LN2 / density)));
    return fmin(bits_with(density, low), bits_with(density, low + 1));
}

static double bits(unsigned index_bytes, double density) {
    (void)index_bytes;
    return gap_bits(density) + (double)CHUNK_BITS / CHUNK;
}

static double message_bits(unsigned index_bytes, uint64_t count, uint64_t range) {
    (void)index_bytes;
    if (!count) return 0;
    return (double)count * gap_bits((double)count / (double)range) +
           (double)chunks_of(count) * CHUNK_BITS;
}

/* Beside elias_fano, measured. */
#define OF_FANO 3.0

static double seconds(const rill__constants *c, unsigned index_bytes, double density) {
    (void)index_bytes, (void)density;
    return OF_FANO * c->fano;
}

/* What one l for all chunks takes at most: each takes no more with its own. */
static size_t bound(unsigned index_bytes, uint64_t count, uint64_t range) {
    (void)index_bytes;
    if (!count) return 0;
    uint64_t span = range > count ? range - count : 0, mean = span / count;
    unsigned low = mean ? rill__bit_width(mean) - 1 : 0;
    uint64_t all = count * (low + 1) + (span >> low);
    return (size_t)(all / 8 + 1 + 3 * chunks_of(count));
}

/* ---- encode ------------------------------------------------------------------------------- */

/* Of the gaps of a chunk. Sums are no larger than an index. */
EACH_WIDTH uint64_t size_with(unsigned index_bytes, const void *gap, unsigned n, unsigned low) {
    uint32_t narrow = 0;
    uint64_t wide = 0;
    if (index_bytes == 4)
        for (unsigned i = 0; i < n; i++)
            narrow += ((const uint32_t *)gap)[i] >> low;
    else
        for (unsigned i = 0; i < n; i++)
            wide += ((const uint64_t *)gap)[i] >> low;
    return narrow + wide + (uint64_t)n * low;
}

/* The size is convex in l: another low bit saves the less the more there are. */
EACH_WIDTH unsigned best_low(unsigned index_bytes, const void *gap, unsigned n, uint64_t sum) {
    uint64_t mean = sum / n, size, other;
    unsigned start = mean ? rill__bit_width(mean) - 1 : 0, low = start, most = 8 * index_bytes - 1;
    size = size_with(index_bytes, gap, n, low);
    while (low < most && (other = size_with(index_bytes, gap, n, low + 1)) < size)
        size = other, low++;
    while (low && low <= start && (other = size_with(index_bytes, gap, n, low - 1)) < size)
        size = other, low--;
    return low;
}

/* n indices from idx on, of which none is below next. Returns the end of out. */
EACH_WIDTH uint8_t *encode_chunk(unsigned index_bytes, const void *idx, unsigned n, uint64_t next,
                                 uint8_t *out) {
    union {
        uint32_t narrow[CHUNK + RILL__SLACK / 4];
        uint64_t wide[CHUNK + RILL__SLACK / 8];
    } room;
    uint64_t last = rill__index_at(index_bytes, idx, n - 1);
    rill__index_put(index_bytes, &room, 0, rill__index_at(index_bytes, idx, 0) - next);
    for (unsigned i = 1; i < n; i++)
        rill__index_put(index_bytes, &room, i,
                        rill__index_at(index_bytes, idx, i) -
                            rill__index_at(index_bytes, idx, i - 1) - 1);
    unsigned low = best_low(index_bytes, &room, n, last - next - (n - 1));
    uint64_t mask = rill__low_mask(low), high = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t gap = rill__index_at(index_bytes, &room, i);
        high += gap & ~mask;
        rill__index_put(index_bytes, &room, i, high + (gap & mask) + i);
    }
    out[0] = (uint8_t)low;
    return rill__host()->codec->pack_high_low(index_bytes, &room, n, 0, low, out + 1,
                                              out + 1 + (n * low + 7) / 8);
}

static size_t encode(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                     uint64_t range, void *out) {
    (void)range;
    uint8_t *at = out;
    for (uint64_t i = 0; i < count; i += CHUNK) {
        const char *from = (const char *)idx + i * index_bytes;
        unsigned n = (unsigned)rill__min_u64(CHUNK, count - i);
        at = index_bytes == 4 ? encode_chunk(4, from, n, first, at)
                              : encode_chunk(8, from, n, first, at);
        first = rill__index_at(index_bytes, from, n - 1) + 1;
    }
    return (size_t)(at - (uint8_t *)out);
}

/* ---- decode ------------------------------------------------------------------------------- */

static rill_status malformed(const char *what) {
    return rill__fail(RILL_ERR_MESSAGE, "rice indices: %s", what);
}

/* Any low parts, one by one. */
static bool add_wide_gaps(uint64_t *idx, unsigned n, uint64_t mask, uint64_t *next,
                          uint64_t *left) {
    uint64_t high = 0, index = *next, room = *left;
    for (unsigned i = 0; i < n; i++) {
        uint64_t x = idx[i] - i, gap = x - high;
        high = x & ~mask;
        if (gap >= room) return false;
        room -= gap + 1;
        index += gap;
        idx[i] = index++;
    }
    *next = index;
    *left = room;
    return true;
}

/* What the kernel found, x[i] + i, becomes indices from *next on, of which *left are there. The
 * high parts of x never fall, and the last one is in range: they can't overflow, and low parts of
 * up to 48 bits can't either. Gaps first, so that only a sum waits for the one before it. */
EACH_WIDTH bool indices_of(unsigned index_bytes, void *idx, unsigned n, unsigned low,
                           uint64_t *next, uint64_t *left) {
    union {
        uint32_t narrow[CHUNK];
        uint64_t wide[CHUNK];
    } gap;
    uint64_t mask = rill__low_mask(low), index = *next, room = *left;
    if (low > 48) return add_wide_gaps(idx, n, mask, next, left);
    rill__index_put(index_bytes, &gap, 0, rill__index_at(index_bytes, idx, 0));
    if (index_bytes == 4) {
        const uint32_t *x = idx, high = (uint32_t)~mask;
        for (unsigned i = 1; i < n; i++)
            gap.narrow[i] = x[i] - i - ((x[i - 1] - (i - 1)) & high);
    } else {
        const uint64_t *x = idx;
        for (unsigned i = 1; i < n; i++)
            gap.wide[i] = x[i] - i - ((x[i - 1] - (i - 1)) & ~mask);
    }
    uint64_t last = rill__index_at(index_bytes, idx, n - 1) - (n - 1);
    uint64_t high = last & ~mask & rill__low_mask(8 * index_bytes);
    for (unsigned i = 0; i < n; i++) {
        index += rill__index_at(index_bytes, &gap, i);
        rill__index_put(index_bytes, idx, i, index + i);
    }
    uint64_t rest = index + n - *next - high; /* the low parts, and n */
    if (high > room || rest > room - high) return false;
    *left = room - high - rest;
    *next = index + n;
    return true;
}

static rill_status decode(unsigned index_bytes, const void *in, size_t bytes, uint64_t count,
                          uint64_t first, uint64_t range, void *idx, size_t *used) {
    const uint8_t *at = in, *end = at + bytes;
    uint64_t next = first, left = range;
    if (count > range) return malformed("more indices than the range");
    if (count / 8 > bytes) return malformed("fewer bits than indices");
    for (uint64_t i = 0; i < count; i += CHUNK) {
        unsigned n = (unsigned)rill__min_u64(CHUNK, count - i);
        char *to = (char *)idx + i * index_bytes;
        if (n > left) return malformed("more indices than are left of the range");
        if (at == end) return malformed("a chunk is missing");
        unsigned low = *at++;
        if (low > 63 || low > rill__bit_width(left - n))
            return malformed("low bits are wider than the range");
        size_t low_bytes = ((size_t)n * low + 7) / 8, high_used = 0;
        if (low_bytes > (size_t)(end - at)) return malformed("the low bits are cut off");
        if (n * low % 8 && at[low_bytes - 1] >> n * low % 8)
            return malformed("bits are set after the low bits");
        if (!rill__host()->codec->unpack_high_low(index_bytes, at, at + low_bytes,
                                                  (size_t)(end - at) - low_bytes, n, 0, left, low,
                                                  true, to, &high_used))
            return malformed("the high bits don't give gaps in range");
        if (!(index_bytes == 4 ? indices_of(4, to, n, low, &next, &left)
                               : indices_of(8, to, n, low, &next, &left)))
            return malformed("an index is out of range");
        at += low_bytes + high_used;
    }
    *used = (size_t)(at - (const uint8_t *)in);
    return RILL_OK;
}

/* The end of a bitmap with n ones; NULL: it is not there. */
static const uint8_t *skip_ones(const uint8_t *at, const uint8_t *end, unsigned n) {
    for (; end - at >= 8; at += 8) {
        unsigned ones = (unsigned)__builtin_popcountll(rill__load64(at));
        if (ones >= n) break;
        n -= ones;
    }
    for (; at < end; at++) {
        unsigned ones = (unsigned)__builtin_popcount(*at);
        if (ones >= n) return at + 1;
        n -= ones;
    }
    return NULL;
}

static rill_status find_chunks(const void *in, size_t bytes, uint64_t count, uint64_t range,
                               uint64_t *chunk) {
    const uint8_t *start = in, *at = start, *end = start + bytes;
    if (count > range) return malformed("more indices than the range");
    for (uint64_t i = 0; i < count; i += CHUNK) {
        unsigned n = (unsigned)rill__min_u64(CHUNK, count - i);
        *chunk++ = (uint64_t)(at - start);
        if (at == end) return malformed("a chunk is missing");
        unsigned low = *at++;
        if (low > rill__bit_width(range - count))
            return malformed("low bits are wider than the range");
        size_t low_bytes = ((size_t)n * low + 7) / 8;
        if (low_bytes > (size_t)(end - at)) return malformed("the low bits are cut off");
        if (n * low % 8 && at[low_bytes - 1] >> n * low % 8)
            return malformed("bits are set after the low bits");
        at = skip_ones(at + low_bytes, end, n);
        if (!at) return malformed("the high bits are cut off");
    }
    *chunk = (uint64_t)(at - start);
    if (rill__align8(*chunk) != bytes && *chunk != bytes) return malformed("bytes are left over");
    return RILL_OK;
}

const rill__index_codec rill__codec_rice = {
    .name = "rice",
    .description = "gaps, low bits packed, high bits in unary",
    .id = 4,
    .slower = 4,
    .bits = bits,
    .message_bits = message_bits,
    .seconds = seconds,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .code = RILL__INDEX_RICE,
    .chunk = CHUNK,
    .find_chunks = find_chunks,
    .finding = 0.15,
};
