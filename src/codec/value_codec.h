/* Codecs of values: raw, 16-bit floats, and QSGD with 8, 4 and 2 bits.
 *
 * One row a codec (value_codec.c). Sizes are known before: bound is what encode writes. Lossy
 * codecs work in f32, to which f64, f16 and bf16 are converted. A decoder reads only the bytes it
 * is given. Arrays are readable and, where output, writable RILL__SLACK bytes past their end. */
#ifndef RILL_CODEC_VALUE_CODEC_H
#define RILL_CODEC_VALUE_CODEC_H

#include "core/constants.h"
#include "space/codec_kernels.h"
#include "space/codes.h"

/* What the randomness of a message depends on, besides the element's position in it. hop: number
 * of the message among those that the sender quantizes in a step; no two may share it. */
typedef struct rill__quant_key {
    uint64_t seed, step;
    uint32_t sender, hop;
} rill__quant_key;

typedef struct rill__value_codec {
    const char *name; /* one spelling: table, message, legend */
    const char *description;
    uint8_t id;   /* in messages; never reused */
    uint8_t bits; /* of one value; 0: as many as its type has */
    bool keyed;   /* uses the key: results are random */
    bool (*supports)(rill_type);
    double (*bytes)(rill_type); /* of one value in a long message */
    /* To encode and decode one value. */
    double (*seconds)(const rill__constants *, rill_type);
    size_t (*bound)(rill_type, uint64_t count);
    /* Writes and returns bound bytes. key and mode: QSGD only. */
    size_t (*encode)(rill_type, const void *values, uint64_t count, const rill__quant_key *key,
                     rill__scale_mode mode, void *out);
    rill_status (*decode)(rill_type, const void *in, size_t bytes, uint64_t count, void *values,
                          size_t *used);
    /* values[i] += decoded, for messages of type f32; values are unchanged on failure. */
    rill_status (*decode_add)(const void *in, size_t bytes, uint64_t count, float *values,
                              size_t *used);
    /* Codes the values anew, as close as possible to the exact ones: no longer unbiased, but never
     * further from them than nothing at all, which error feedback needs to stay stable. NULL:
     * encode does so. */
    void (*fit)(rill_type, const void *exact, uint64_t count, void *encoded);
    rill__value_code code; /* what spaces with kernels for it know it as */
    /* All that decode would find wrong in values of the right size; NULL: nothing can be. */
    rill_status (*check)(const void *in, size_t bytes, uint64_t count);
} rill__value_codec;

const rill__value_codec *rill__value_codec_at(int i);         /* NULL past the end */
const rill__value_codec *rill__value_codec_by_id(uint8_t id); /* NULL: unknown */
/* For value_bits of 0, 16, 8, 4 or 2; NULL when there is none. 16 gives raw for 16-bit types. */
const rill__value_codec *rill__value_codec_for_bits(rill_type, int value_bits);

/* Seconds of one value that is coded in 16 bits or less, and back, whatever the codec. */
double rill__value_coding_seconds(const rill__constants *, rill_type);

extern const rill__value_codec rill__value_raw, rill__value_f16, rill__value_bf16;
extern const rill__value_codec rill__value_qsgd8, rill__value_qsgd4, rill__value_qsgd2;

/* The random numbers of a message; here for tests. */
rill__quant_stream rill__quant_stream_make(const rill__quant_key *);

#endif
