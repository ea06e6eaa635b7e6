/* Codecs of message payloads: how the indices and the values of one message are written.
 *
 * A message carries count entries whose indices are strictly ascending in [first, first + range).
 * One codec a file, one row in the table (codec_table.c). A decoder trusts nothing: it reads only
 * the bytes it is given and rejects what does not decode to exactly count ascending indices in
 * range. */
#ifndef RILL_CODEC_CODEC_H
#define RILL_CODEC_CODEC_H

#include "core/constants.h"
#include "core/core.h"
#include "space/codes.h"

typedef struct rill__index_codec {
    const char *name; /* one spelling: option, table, message, legend */
    const char *description;
    uint8_t id; /* in messages; never reused */
    /* Than so many of the others. Of two that take the same bytes the faster is taken. */
    uint8_t slower;
    /* Bits of a message for each index of its range, besides those of its entries. */
    double range_bits;
    /* Expected bits of an entry's index, at a density in (0, 1): cheap, for the estimates. */
    double (*bits)(unsigned index_bytes, double density);
    /* Expected bits of all of one message, if each index of the range is as likely as another. */
    double (*message_bits)(unsigned index_bytes, uint64_t count, uint64_t range);
    /* Seconds to encode and decode an index, at a density in (0, 1]. */
    double (*seconds)(const rill__constants *, unsigned index_bytes, double density);
    /* Most bytes that encode may write for any count indices of that range. */
    size_t (*bound)(unsigned index_bytes, uint64_t count, uint64_t range);
    /* Writes and returns the bytes used. out has bound + RILL__SLACK bytes. */
    size_t (*encode)(unsigned index_bytes, const void *idx, uint64_t count, uint64_t first,
                     uint64_t range, void *out);
    /* Reads at most bytes; writes count indices to idx (with RILL__SLACK) and the bytes used. */
    rill_status (*decode)(unsigned index_bytes, const void *in, size_t bytes, uint64_t count,
                          uint64_t first, uint64_t range, void *idx, size_t *used);
    rill__index_code code; /* what spaces with kernels for it know it as */
    /* Where such a kernel must be told where parts of `chunk` indices begin; else NULL: one offset
     * each and the end, with what can be checked on the way. at has room for them. */
    unsigned chunk;
    rill_status (*find_chunks)(const void *in, size_t bytes, uint64_t count, uint64_t range,
                               uint64_t *at);
    double finding; /* for each index, in seconds that the constant fano stands for; else 0 */
} rill__index_codec;

const rill__index_codec *rill__index_codec_at(int i);         /* NULL past the end */
const rill__index_codec *rill__index_codec_by_id(uint8_t id); /* NULL: unknown */
const rill__index_codec *rill__index_codec_by_name(const char *name);

/* The codec with the smallest expected size for count indices that lie anywhere in the range. */
const rill__index_codec *rill__index_codec_choose(unsigned index_bytes, uint64_t count,
                                                  uint64_t range);

/* Bits that an index of a uniform support takes at least, in any codec. */
double rill__index_entropy(double density);

extern const rill__index_codec rill__codec_raw;
extern const rill__index_codec rill__codec_bitpack;
extern const rill__index_codec rill__codec_elias_fano;
extern const rill__index_codec rill__codec_bitmap;
extern const rill__index_codec rill__codec_rice;

#endif
