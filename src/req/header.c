/* The layouts of a message's header: docs/reference/format.md. The long one is the struct itself.
 * The short ones have 32 bits for what is 64 wide, and leave out what follows from the rest: the
 * size of the values from their count and codec, the width of an index from the dimension; status,
 * origin and fill are 0. A bundle has no indices, and the size of what it holds stands in the place
 * of theirs. The bare one ends before the last two words, which are 0. */
#include "req/message.h"

#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(rill__header) == RILL__LONG_BYTES, "the header is a wire format");
_Static_assert(sizeof(rill__short_header) == RILL__SHORT_BYTES, "the header is a wire format");
_Static_assert(offsetof(rill__short_header, word) == RILL__BARE_BYTES,
               "the header is a wire format");

/* Indices of so many entries have less than 2^32 bytes in any codec. */
rill__layout rill__layout_for(const rill__header *h, uint64_t entries) {
    bool fits = (h->dim <= UINT32_MAX) & (h->seq <= UINT32_MAX) & (entries <= UINT32_MAX / 16) &
                (h->fill == 0) & (h->status == 0);
    if (h->form == RILL__M_BUNDLE) fits = fits & (h->value_size <= UINT32_MAX);
    if (!fits) return RILL__LAYOUT_LONG;
    if (!(h->word[0] | h->word[1])) return RILL__LAYOUT_BARE;
    return h->tells == RILL__TELLS_WORDS ? RILL__LAYOUT_WORDS : RILL__LAYOUT_SHORT;
}

size_t rill__header_write(const rill__header *h, void *out) {
    if (h->layout == RILL__LAYOUT_LONG) {
        memcpy(out, h, sizeof *h);
        return sizeof *h;
    }
    rill__short_header *s = out; /* messages lie on cache lines */
    s->magic = h->magic;
    s->version = h->version;
    s->layout = h->layout;
    s->form = h->form;
    s->type = h->type;
    s->index_codec = h->index_codec;
    s->value_codec = h->value_codec;
    s->collective = h->collective;
    s->flags = h->flags;
    s->algorithm = h->algorithm;
    s->memory = h->memory;
    s->op = h->op;
    s->arguments = h->arguments;
    s->seq = (uint32_t)h->seq;
    s->dim = (uint32_t)h->dim;
    s->first = (uint32_t)h->first;
    s->range = (uint32_t)h->range;
    s->count = (uint32_t)h->count;
    s->size = (uint32_t)(h->form == RILL__M_BUNDLE ? h->value_size : h->index_size);
    if (h->layout == RILL__LAYOUT_BARE) return RILL__BARE_BYTES;
    s->word[0] = h->word[0];
    s->word[1] = h->word[1];
    return sizeof *s;
}

static __attribute__((noinline)) uint64_t coded_size(uint8_t id, rill_type type, uint64_t count) {
    const rill__value_codec *codec = rill__value_codec_by_id(id);
    return codec && codec->supports(type) ? codec->bound(type, count) : 0;
}

/* 0 where there is no such codec: who checks the header finds that. */
static uint64_t value_size(const rill__short_header *s) {
    rill_type type = (rill_type)s->type;
    if (!s->count || !rill__type_size(type)) return 0;
    return s->value_codec == rill__value_raw.id ? s->count * rill__type_size(type)
                                                : coded_size(s->value_codec, type, s->count);
}

bool rill__header_read(const void *bytes, size_t size, rill__header *h) {
    rill__short_header s;
    if (size < RILL__BARE_BYTES) return false;
    memcpy(&s, bytes, RILL__BARE_BYTES); /* inside a bundle it is aligned to 8 bytes only */
    s.word[0] = s.word[1] = 0;
    if (s.layout == RILL__LAYOUT_SHORT || s.layout == RILL__LAYOUT_WORDS) {
        if (size < sizeof s) return false;
        memcpy(&s, bytes, sizeof s);
    } else if (s.layout != RILL__LAYOUT_BARE) {
        if (size < sizeof *h) return false;
        memcpy(h, bytes, sizeof *h);
        return true;
    }
    h->magic = s.magic;
    h->version = s.version;
    h->layout = s.layout;
    h->form = s.form;
    h->type = s.type;
    h->index_bytes = s.form == RILL__M_BLOCKS ? 8 : (uint8_t)rill__index_bytes(s.dim);
    h->index_codec = s.index_codec;
    h->value_codec = s.value_codec;
    h->collective = s.collective;
    h->algorithm = s.algorithm;
    h->memory = s.memory;
    h->op = s.op;
    h->arguments = s.arguments;
    h->status = 0;
    h->origin = 0;
    h->flags = s.flags;
    h->tells = s.layout == RILL__LAYOUT_WORDS ? RILL__TELLS_WORDS : RILL__TELLS_NNZ;
    h->seq = s.seq;
    h->dim = s.dim;
    h->first = s.first;
    h->range = s.range;
    h->count = s.count;
    bool bundle = s.form == RILL__M_BUNDLE;
    h->index_size = bundle ? 0 : s.size;
    h->value_size = bundle ? s.size : value_size(&s);
    h->word[0] = s.word[0];
    h->word[1] = s.word[1];
    h->fill = 0;
    return true;
}
