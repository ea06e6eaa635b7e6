/* bitmap: one bit per index of the range. Best from a density of 1/3 on.
 *
 * Layout: bit index - first is set for every index; ends with the byte of the last index. That is
 * Elias-Fano without low bits and shares its kernels.
 *
 * Cost: at most range / 8 bytes; about 0.1 ns per index of the range and 0.2 ns per entry. */
#include "codec/codec.h"
#include "space/space.h"

/* Of the time per entry, what it takes per index of the range. */
#define PER_INDEX 0.19

static double bits(unsigned index_bytes, double density) {
    (void)index_bytes, (void)density;
    return 0; /* all of it is the range's */
}

static double message_bits(unsigned index_bytes, uint64_t count, uint64_t range) {
    (void)index_bytes, (void)count;
    return (double)range;
}

static double seconds(const rill__constants *c, unsigned index_bytes, double density) {
    (void)index_bytes;
    return c->bits * (1 + PER_INDEX / density);
}

static size_t bound(unsigned index_bytes, uint64_t count, uint64_t range) {
    (void)index_bytes;
    return count ? (size_t)(range / 8 + (range % 8 != 0)) : 0;
}

static size_t encode(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                     uint64_t range, void *out) {
    (void)range;
    uint8_t *end = rill__host()->codec->pack_high_low(index_bytes, idx, count, first, 0, out, out);
    return (size_t)(end - (uint8_t *)out);
}

static rill_status decode(unsigned index_bytes, const void *in, size_t bytes, uint64_t count,
                          uint64_t first, uint64_t range, void *idx, size_t *used) {
    if (!count) return *used = 0, RILL_OK;
    if (count > range)
        return rill__fail(RILL_ERR_MESSAGE, "bitmap indices: more indices than the range");
    if (!rill__host()->codec->unpack_high_low(index_bytes, in, in, bytes, count, first, range, 0,
                                              false, idx, used))
        return rill__fail(RILL_ERR_MESSAGE,
                          "bitmap indices: %zu bytes do not have %llu bits set, "
                          "or have them out of range",
                          bytes, (unsigned long long)count);
    return RILL_OK;
}

const rill__index_codec rill__codec_bitmap = {
    .name = "bitmap",
    .description = "one bit per index of the range",
    .id = 3,
    .slower = 1,
    .range_bits = 1,
    .bits = bits,
    .message_bits = message_bits,
    .seconds = seconds,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
