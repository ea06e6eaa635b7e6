/* vbyte: a toy that shows what a codec of indices needs: a file such as this, and a row.
 *
 * Layout: for each index the gap to the one before it, less one (before the first comes first - 1),
 * 7 bits a byte from the lowest up; the highest bit of a byte says that another follows. */
#include "codec/codec.h"

#include <math.h>

enum { MOST = 10 }; /* bytes of 64 bits */

/* Another byte for each power of 128 that the gap reaches: it does with (1 - density)^power. */
static double vbyte_bits(unsigned index_bytes, double density) {
    double bits = 8;
    (void)index_bytes;
    for (double power = 128; power < 0x1p64; power *= 128)
        bits += 8 * pow(1 - density, power);
    return bits;
}

static double vbyte_message_bits(unsigned index_bytes, uint64_t count, uint64_t range) {
    return count ? (double)count * vbyte_bits(index_bytes, (double)count / (double)range) : 0;
}

/* There is no constant of its own in profiles: say what it takes in those that there are. */
static double vbyte_seconds(const rill__constants *c, unsigned index_bytes, double density) {
    (void)index_bytes, (void)density;
    return 0.5 * c->pack;
}

static size_t vbyte_bound(unsigned index_bytes, uint64_t count, uint64_t range) {
    (void)index_bytes, (void)range;
    return count * MOST;
}

static size_t vbyte_encode(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                           uint64_t range, void *out) {
    uint8_t *at = out;
    uint64_t next = first;
    (void)range;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = rill__index_at(index_bytes, idx, i), gap = index - next;
        for (; gap >= 128; gap >>= 7)
            *at++ = (uint8_t)(gap | 128);
        *at++ = (uint8_t)gap;
        next = index + 1;
    }
    return (size_t)(at - (uint8_t *)out);
}

static rill_status vbyte_decode(unsigned index_bytes, const void *in, size_t bytes, uint64_t count,
                                uint64_t first, uint64_t range, void *idx, size_t *used) {
    const uint8_t *at = in, *end = at + bytes;
    uint64_t left = range, next = first;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t gap = 0;
        unsigned shift = 0;
        bool more = true;
        for (; more && at < end && shift < 63; shift += 7) {
            more = *at & 128;
            gap |= (uint64_t)(*at++ & 127) << shift;
        }
        if (more) return rill__fail(RILL_ERR_MESSAGE, "vbyte indices: a gap is cut off");
        if (gap >= left) return rill__fail(RILL_ERR_MESSAGE, "vbyte indices: out of range");
        rill__index_put(index_bytes, idx, i, next + gap);
        next += gap + 1;
        left -= gap + 1;
    }
    *used = (size_t)(at - (const uint8_t *)in);
    return RILL_OK;
}

extern const rill__index_codec toy_codec_vbyte;
const rill__index_codec toy_codec_vbyte = {
    .name = "vbyte",
    .description = "gaps in whole bytes",
    .id = 200,
    .slower = 2,
    .bits = vbyte_bits,
    .message_bits = vbyte_message_bits,
    .seconds = vbyte_seconds,
    .bound = vbyte_bound,
    .encode = vbyte_encode,
    .decode = vbyte_decode,
};
