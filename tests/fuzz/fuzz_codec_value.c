/* Value decoders on any bytes, and encoding of any values, with every instruction set: all must
 * agree. The input: codec, type, what to do, scale mode; 2 bytes of count; then encoded values, or
 * values. */
#include "fuzz.h"

#include "codec/value_codec.h"
#include "core/isa.h"

#include <math.h>

static const char *const isas[] = {"scalar", "avx2", "avx512"};

static void decode_any(const rill__value_codec *codec, rill_type type, const uint8_t *data,
                       size_t size, uint64_t count) {
    size_t bytes = count * rill_type_size(type);
    uint8_t *in = room_for(size), *reference = room_for(bytes);
    if (size) memcpy(in, data, size);
    for (int isa = 0; isa < 3; isa++) {
        if (!rill__isa_force(isas[isa])) continue;
        uint8_t *values = isa ? room_for(bytes) : reference;
        size_t used = 0;
        rill_status status = codec->decode(type, in, size, count, values, &used);
        MUST(status ==
             (size >= codec->bound(type, count) && status == RILL_OK ? RILL_OK : RILL_ERR_MESSAGE));
        if (status == RILL_OK) {
            MUST(used == codec->bound(type, count));
            MUST(!isa || !memcmp(values, reference, bytes));
        }
        if (type == RILL_F32) {
            float *sum = (float *)room_for(4 * count);
            memset(sum, 0, 4 * count);
            MUST(codec->decode_add(in, size, count, sum, &used) == status);
            const float *v = (const float *)values;
            for (uint64_t i = 0; i < count && status == RILL_OK; i++)
                MUST(sum[i] == v[i] || (isnan(sum[i]) && isnan(v[i])));
            free(sum);
        }
        if (isa) free(values);
    }
    free(in);
    free(reference);
}

static void round_trip(const rill__value_codec *codec, rill_type type, rill__scale_mode mode,
                       const uint8_t *data, size_t size) {
    uint64_t count = size / rill_type_size(type);
    if (!count) return;
    size_t bytes = count * rill_type_size(type), bound = codec->bound(type, count), used = 0;
    uint8_t *values = room_for(bytes), *reference = room_for(bound), *back = room_for(bytes);
    rill__quant_key key = {size, data[0], 1, 2};
    memcpy(values, data, bytes);
    for (int isa = 0; isa < 3; isa++) {
        if (!rill__isa_force(isas[isa])) continue;
        uint8_t *out = isa ? room_for(bound) : reference;
        MUST(codec->encode(type, values, count, &key, mode, out) == bound);
        MUST(!memcmp(out, reference, bound));
        MUST(codec->decode(type, out, bound, count, back, &used) == RILL_OK && used == bound);
        if (codec == &rill__value_raw) MUST(!memcmp(back, values, bytes));
        if (isa) free(out);
    }
    free(values);
    free(reference);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 6) return 0;
    uint16_t count;
    const rill__value_codec *codec = rill__value_codec_at(data[0] % 6);
    rill_type type = (rill_type)(data[1] % 4);
    memcpy(&count, data + 4, 2);
    if (!codec->supports(type)) return 0;
    if (data[2] & 1)
        round_trip(codec, type, data[3] & 1 ? RILL__SCALE_L2 : RILL__SCALE_MAX, data + 6, size - 6);
    else decode_any(codec, type, data + 6, size - 6, count);
    return 0;
}
