/* Every index codec's decoder on any bytes. The input: codec, index width, 8 bytes each of first
 * and range, 2 of count, then the encoded indices. */
#include "codec/codec.h"
#include "stream/kernels.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t first, range;
    uint16_t count;
    int codecs = 0;
    if (size < 20) return 0;
    while (rill__index_codec_at(codecs))
        codecs++;
    const rill__index_codec *codec = rill__index_codec_at(data[0] % codecs);
    unsigned index_bytes = data[1] % 2 ? 8 : 4;
    memcpy(&first, data + 2, 8);
    memcpy(&range, data + 10, 8);
    memcpy(&count, data + 18, 2);
    data += 20;
    size -= 20;
    /* What message_parse promises to decoders. */
    uint64_t most = index_bytes == 4 ? UINT64_C(1) << 32 : UINT64_MAX;
    range = range > most ? range % most : range;
    first = most - range ? first % (most - range) : 0;
    if (count > range) count = (uint16_t)range;
    if (!count) return 0;
    uint8_t *in = rill__aligned_alloc(size),
            *idx = rill__aligned_alloc((size_t)count * index_bytes);
    MUST(in && idx);
    memset(in + size, 0xEE, RILL__SLACK);
    if (size) memcpy(in, data, size);
    size_t used = 0;
    if (codec->decode(index_bytes, in, size, count, first, range, idx, &used) == RILL_OK) {
        MUST(used <= size);
        MUST(rill__kernels_scalar.check(index_bytes, idx, count, first, range) == count);
        size_t bound = codec->bound(index_bytes, count, range), again = 0;
        if (bound > (size_t)1 << 28) { /* a bitmap of a huge range: its bound is honest */
            free(in);
            free(idx);
            return 0;
        }
        uint8_t *out = rill__aligned_alloc(bound),
                *back = rill__aligned_alloc((size_t)count * index_bytes);
        MUST(out && back);
        size_t written = codec->encode(index_bytes, idx, count, first, range, out);
        MUST(written <= bound);
        MUST(codec->decode(index_bytes, out, written, count, first, range, back, &again) ==
             RILL_OK);
        MUST(again == written && !memcmp(back, idx, (size_t)count * index_bytes));
        free(out);
        free(back);
    }
    free(in);
    free(idx);
    return 0;
}
