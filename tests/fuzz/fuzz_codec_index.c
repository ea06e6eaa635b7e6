/* Index decoders on any bytes, and round trips of any indices, with every instruction set: all must
 * agree. The input: codec, index width and what to do, 8 bytes each of first and range, 2 of count;
 * then encoded indices, or gaps of a byte whose upper half is a shift. */
#include "fuzz.h"

#include "codec/codec.h"
#include "core/isa.h"

static const char *const isas[] = {"scalar", "avx2", "avx512"};

static uint64_t index_at(unsigned width, const uint8_t *idx, uint64_t i) {
    uint64_t wide;
    uint32_t narrow;
    if (width == 4) return memcpy(&narrow, idx + 4 * i, 4), narrow;
    return memcpy(&wide, idx + 8 * i, 8), wide;
}

/* Indices that are fine: every instruction set writes the same bytes, within the bound, and reads
 * them back. */
static void check_encoding(const rill__index_codec *codec, unsigned width, const uint8_t *idx,
                           uint64_t count, uint64_t first, uint64_t range) {
    size_t bound = codec->bound(width, count, range), reference_size = 0;
    if (bound > (size_t)1 << 20) return; /* a bitmap of a huge range: its bound is honest */
    uint8_t *reference = room_for(bound), *back = room_for(count * width);
    for (int isa = 0; isa < 3; isa++) {
        if (!rill__isa_force(isas[isa])) continue;
        uint8_t *out = isa ? room_for(bound) : reference;
        size_t used = 0, written = codec->encode(width, idx, count, first, range, out);
        if (!isa) reference_size = written;
        MUST(written <= bound && written == reference_size);
        MUST(!memcmp(out, reference, written));
        MUST(!codec->decode(width, out, written, count, first, range, back, &used));
        MUST(used == written && !memcmp(back, idx, count * width));
        if (isa) free(out);
    }
    free(reference);
    free(back);
}

static void decode_any(const rill__index_codec *codec, unsigned width, const uint8_t *data,
                       size_t size, uint64_t count, uint64_t first, uint64_t range) {
    uint8_t *in = room_for(size), *reference = room_for(count * width);
    if (size) memcpy(in, data, size);
    rill_status verdict = RILL_OK;
    for (int isa = 0; isa < 3; isa++) {
        if (!rill__isa_force(isas[isa])) continue;
        uint8_t *idx = isa ? room_for(count * width) : reference;
        size_t used = 0;
        rill_status status = codec->decode(width, in, size, count, first, range, idx, &used);
        MUST(status == RILL_OK || status == RILL_ERR_MESSAGE);
        if (!isa) verdict = status;
        MUST(status == verdict);
        if (status == RILL_OK) {
            MUST(used <= size);
            for (uint64_t i = 0; i < count; i++) {
                uint64_t x = index_at(width, idx, i);
                MUST(x >= first && x - first < range);
                MUST(!i || x > index_at(width, idx, i - 1));
            }
            MUST(!isa || !memcmp(idx, reference, count * width));
        }
        if (isa) free(idx);
    }
    if (verdict == RILL_OK) check_encoding(codec, width, reference, count, first, range);
    free(in);
    free(reference);
}

static void round_trip(const rill__index_codec *codec, unsigned width, const uint8_t *data,
                       size_t size, uint64_t first) {
    uint64_t count = 0, next = first, top = width == 4 ? UINT64_C(1) << 32 : UINT64_MAX;
    uint8_t *idx = room_for(size * width);
    for (size_t i = 0; i < size; i++) {
        uint64_t gap = (uint64_t)(data[i] & 15) << (data[i] >> 4) * (width == 4 ? 1 : 3);
        if (codec == &rill__codec_bitmap) gap &= 1023;
        if (gap >= top - next) break;
        next += gap;
        uint32_t narrow = (uint32_t)next;
        if (width == 4) memcpy(idx + 4 * count, &narrow, 4);
        else memcpy(idx + 8 * count, &next, 8);
        count++;
        if (++next == top) break;
    }
    if (count) check_encoding(codec, width, idx, count, first, next - first);
    free(idx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t first, range;
    uint16_t count;
    if (size < 20) return 0;
    const rill__index_codec *codec = rill__index_codec_at(data[0] % 5);
    unsigned width = data[1] % 2 ? 8 : 4;
    memcpy(&first, data + 2, 8);
    memcpy(&range, data + 10, 8);
    memcpy(&count, data + 18, 2);
    /* What message_parse promises to decoders: first + range is an index or one past the last. */
    uint64_t most = width == 4 ? UINT64_C(1) << 32 : UINT64_MAX;
    range = range > most ? range % most : range;
    first = most - range ? first % (most - range) : 0;
    if (data[1] & 2) round_trip(codec, width, data + 20, size - 20, first);
    else if (count) decode_any(codec, width, data + 20, size - 20, count, first, range);
    return 0;
}
