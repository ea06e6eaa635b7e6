/* The codecs as public calls. */
#include "codec/codec.h"
#include "codec/value_codec.h"

_Static_assert(RILL_SLACK == RILL__SLACK, "one slack, inside and outside");

static rill_status find_index_codec(const char *call, const char *name, unsigned index_bytes,
                                    const rill__index_codec **codec) {
    *codec = name ? rill__index_codec_by_name(name) : NULL;
    if (!*codec)
        return rill__fail(RILL_ERR_UNKNOWN, "%s: codec '%s' is unknown", call,
                          name ? name : "NULL");
    if (index_bytes != 4 && index_bytes != 8)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: index_bytes = %u is not 4 or 8", call,
                          index_bytes);
    return RILL_OK;
}

rill_status rill_indices_bound(const char *name, unsigned index_bytes, uint64_t count,
                               uint64_t range, size_t *bound) {
    const rill__index_codec *codec;
    if (!bound) return rill__fail(RILL_ERR_ARGUMENT, "rill_indices_bound: bound is NULL");
    RILL_TRY(find_index_codec("rill_indices_bound", name, index_bytes, &codec));
    *bound = count ? codec->bound(index_bytes, count, range) : 0;
    return RILL_OK;
}

rill_status rill_indices_encode(const char *name, unsigned index_bytes, const void *idx,
                                uint64_t count, uint64_t first, uint64_t range, void *out,
                                size_t *size) {
    const rill__index_codec *codec;
    if (!idx || !out || !size)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_indices_encode: %s is NULL",
                          !idx   ? "idx"
                          : !out ? "out"
                                 : "size");
    RILL_TRY(find_index_codec("rill_indices_encode", name, index_bytes, &codec));
    *size = count ? codec->encode(index_bytes, idx, count, first, range, out) : 0;
    return RILL_OK;
}

rill_status rill_indices_decode(const char *name, unsigned index_bytes, const void *in, size_t size,
                                uint64_t count, uint64_t first, uint64_t range, void *idx) {
    const rill__index_codec *codec;
    size_t used = 0;
    if (!in || !idx)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_indices_decode: %s is NULL", !in ? "in" : "idx");
    RILL_TRY(find_index_codec("rill_indices_decode", name, index_bytes, &codec));
    if (count > range)
        return rill__fail(RILL_ERR_MESSAGE, "rill_indices_decode: %llu indices in a range of %llu",
                          (unsigned long long)count, (unsigned long long)range);
    if (count) RILL_TRY(codec->decode(index_bytes, in, size, count, first, range, idx, &used));
    if (used != size)
        return rill__fail(RILL_ERR_MESSAGE, "rill_indices_decode: %zu bytes instead of %zu", size,
                          used);
    return RILL_OK;
}

static rill_status find_value_codec(const char *call, rill_type type, int value_bits,
                                    const rill__value_codec **codec) {
    if (!rill__type_size(type))
        return rill__fail(RILL_ERR_ARGUMENT, "%s: unknown type %d", call, (int)type);
    *codec = rill__value_codec_for_bits(type, value_bits);
    if (!*codec)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: value_bits = %d is none of 0, 16, 8, 4, 2", call,
                          value_bits);
    return RILL_OK;
}

rill_status rill_values_bound(rill_type type, int value_bits, uint64_t count, size_t *bound) {
    const rill__value_codec *codec;
    if (!bound) return rill__fail(RILL_ERR_ARGUMENT, "rill_values_bound: bound is NULL");
    RILL_TRY(find_value_codec("rill_values_bound", type, value_bits, &codec));
    *bound = count ? codec->bound(type, count) : 0;
    return RILL_OK;
}

rill_status rill_values_encode(rill_type type, int value_bits, const void *values, uint64_t count,
                               uint64_t seed, uint32_t sender, void *out, size_t *size) {
    const rill__value_codec *codec;
    if (!values || !out || !size)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_values_encode: %s is NULL",
                          !values ? "values"
                          : !out  ? "out"
                                  : "size");
    RILL_TRY(find_value_codec("rill_values_encode", type, value_bits, &codec));
    rill__quant_key key = {.seed = seed, .sender = sender};
    *size = count ? codec->encode(type, values, count, &key, RILL__SCALE_MAX, out) : 0;
    return RILL_OK;
}

rill_status rill_values_decode(rill_type type, int value_bits, const void *in, size_t size,
                               uint64_t count, int add, void *values) {
    const rill__value_codec *codec;
    size_t used = 0;
    if (!in || !values)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_values_decode: %s is NULL",
                          !in ? "in" : "values");
    RILL_TRY(find_value_codec("rill_values_decode", type, value_bits, &codec));
    if (add && type != RILL_F32)
        return rill__fail(RILL_ERR_UNSUPPORTED, "rill_values_decode: add is for type f32, not %s",
                          rill_type_name(type));
    if (count)
        RILL_TRY(add ? codec->decode_add(in, size, count, values, &used)
                     : codec->decode(type, in, size, count, values, &used));
    if (used != size)
        return rill__fail(RILL_ERR_MESSAGE, "rill_values_decode: %zu bytes instead of %zu", size,
                          used);
    return RILL_OK;
}
