/* The index codecs, in the order in which `rill info` shows them. */
#include "codec/codec.h"

#include <math.h>
#include <string.h>

static const rill__index_codec *const table[] = {&rill__codec_raw,        &rill__codec_bitpack,
                                                 &rill__codec_elias_fano, &rill__codec_bitmap,
                                                 &rill__codec_rice,
#ifdef RILL_TEST_CODECS /* rows of a test, which compiles this file itself */
                                                 RILL_TEST_CODECS
#endif
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
    const rill__index_codec *best = NULL;
    double least = 0;
    for (int i = 0; i < COUNT; i++) {
        double bits = table[i]->message_bits(index_bytes, count, range);
        if (best && (bits > least || (bits == least && table[i]->slower > best->slower))) continue;
        best = table[i];
        least = bits;
    }
    return best;
}

/* Of a geometric gap. */
double rill__index_entropy(double density) {
    density = fmin(density, 0.999);
    return -log2(density) - (1 - density) / density * log2(1 - density);
}

const char *rill_codec_at(int i, const char **description) {
    const rill__index_codec *codec = rill__index_codec_at(i);
    if (description) *description = codec ? codec->description : NULL;
    return codec ? codec->name : NULL;
}
