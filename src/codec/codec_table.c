/* The index codecs, in the order in which `rill info` shows them. */
#include "codec/codec.h"

#include <string.h>

static const rill__index_codec *const table[] = {
    &rill__codec_raw,
    &rill__codec_bitpack,
    &rill__codec_elias_fano,
    &rill__codec_bitmap,
};

enum { COUNT = sizeof table / sizeof table[0] };

const rill__index_codec *rill__index_codec_at(int i) {
    return i >= 0 && i < COUNT ? table[i] : NULL;
}

const rill__index_codec *rill__index_codec_by_id(uint8_t id) {
    for (int i = 0; i < COUNT; i++)
        if (table[i]->id == id) return table[i];
    return NULL;
}

const rill__index_codec *rill__index_codec_by_name(const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}

const rill__index_codec *rill__index_codec_choose(unsigned index_bytes, uint64_t count,
                                                  uint64_t range) {
    /* Ties go to the faster one, which comes first. */
    const rill__index_codec *const codecs[] = {&rill__codec_raw, &rill__codec_bitmap,
                                               &rill__codec_bitpack, &rill__codec_elias_fano};
    const double bits[] = {8.0 * index_bytes * (double)count, (double)range,
                           rill__bitpack_expected_bits(count, range),
                           8.0 + (double)rill__elias_fano_bits(count, range)};
    int best = 0;
    for (int i = 1; i < 4; i++)
        if (bits[i] < bits[best]) best = i;
    return codecs[best];
}

const char *rill_codec_at(int i, const char **description) {
    const rill__index_codec *codec = rill__index_codec_at(i);
    if (description) *description = codec ? codec->description : NULL;
    return codec ? codec->name : NULL;
}
