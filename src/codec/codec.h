/* Codecs of message payloads: how the indices and the values of one message are written.
 *
 * A message carries count entries whose indices are strictly ascending in [first, first + range).
 * One codec a file, one row in the table (codec_table.c). A decoder trusts nothing: it reads only
 * the bytes it is given and rejects what does not decode to exactly count ascending indices in
 * range. */
#ifndef RILL_CODEC_CODEC_H
#define RILL_CODEC_CODEC_H

#include "core/core.h"

typedef struct rill__index_codec {
    const char *name; /* one spelling: option, table, message, legend */
    const char *description;
    uint8_t id; /* in messages; never reused */
    /* Most bytes that encode may write for any count indices of that range. */
    size_t (*bound)(unsigned index_bytes, uint64_t count, uint64_t range);
    /* Writes and returns the bytes used. out has bound + RILL__SLACK bytes. */
    size_t (*encode)(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                     uint64_t range, void *out);
    /* Reads at most bytes; writes count indices to idx (with RILL__SLACK) and the bytes used. */
    rill_status (*decode)(unsigned index_bytes, const void *in, size_t bytes, uint64_t count,
                          uint64_t first, uint64_t range, void *idx, size_t *used);
} rill__index_codec;

const rill__index_codec *rill__index_codec_at(int i);         /* NULL past the end */
const rill__index_codec *rill__index_codec_by_id(uint8_t id); /* NULL: unknown */
const rill__index_codec *rill__index_codec_by_name(const char *name);

/* The codec with the smallest expected size for count indices that lie anywhere in the range. */
const rill__index_codec *rill__index_codec_choose(unsigned index_bytes, uint64_t count,
                                                  uint64_t range);

extern const rill__index_codec rill__codec_raw;
extern const rill__index_codec rill__codec_bitpack;
extern const rill__index_codec rill__codec_elias_fano;
extern const rill__index_codec rill__codec_bitmap;

/* Bits of count indices in elias_fano, without the header. */
uint64_t rill__elias_fano_bits(uint64_t count, uint64_t range);
/* Expected bits of count indices in bitpack, if each index of the range is as likely as another. */
double rill__bitpack_expected_bits(uint64_t count, uint64_t range);

#endif
