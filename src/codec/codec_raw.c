/* raw: indices as they are, 4 or 8 bytes each. What the others are compared with, and the only one
 * whose indices are used in place. */
#include "codec/codec.h"
#include "space/space.h"

#include <string.h>

static double bits(unsigned index_bytes, double density) {
    (void)density;
    return 8.0 * index_bytes;
}

static double message_bits(unsigned index_bytes, uint64_t count, uint64_t range) {
    (void)range;
    return 8.0 * index_bytes * (double)count;
}

/* Copied, in and out. */
static double seconds(const rill__constants *c, unsigned index_bytes, double density) {
    (void)density;
    return 2 * c->copy * index_bytes;
}

static size_t bound(unsigned index_bytes, uint64_t count, uint64_t range) {
    (void)range;
    return count * index_bytes;
}

static size_t encode(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                     uint64_t range, void *out) {
    (void)first, (void)range;
    memcpy(out, idx, count * index_bytes);
    return count * index_bytes;
}

static rill_status decode(unsigned index_bytes, const void *in, size_t bytes, uint64_t count,
                          uint64_t first, uint64_t range, void *idx, size_t *used) {
    if (bytes / index_bytes < count)
        return rill__fail(RILL_ERR_MESSAGE, "raw indices: %zu bytes for %llu indices", bytes,
                          (unsigned long long)count);
    *used = count * index_bytes;
    memcpy(idx, in, *used);
    uint64_t at = rill__host()->stream->check(index_bytes, idx, count, first, range);
    if (at < count)
        return rill__fail(RILL_ERR_MESSAGE, "raw indices: index %llu is out of order or range",
                          (unsigned long long)at);
    return RILL_OK;
}

const rill__index_codec rill__codec_raw = {
    .name = "raw",
    .description = "indices of 4 or 8 bytes",
    .id = 0,
    .slower = 0,
    .bits = bits,
    .message_bits = message_bits,
    .seconds = seconds,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .code = RILL__INDEX_RAW,
};
