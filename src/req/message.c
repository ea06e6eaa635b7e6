#include "req/message.h"
#include "stream/blocks.h"

#include <string.h>

enum { RAW = 0 }; /* the id of rill__codec_raw and rill__value_raw */

uint32_t rill__name_hash(const char *name) {
    uint32_t hash = 2166136261u; /* FNV-1a: names are short, and this runs per call */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

uint16_t rill__algorithm_hash(const char *name) {
    uint32_t hash = rill__name_hash(name);
    uint16_t folded = (uint16_t)(hash ^ hash >> 16);
    return folded ? folded : 1;
}

size_t rill__message_size(const rill__header *h) {
    uint64_t size;
    if (__builtin_add_overflow(h->index_size, h->value_size, &size) ||
        __builtin_add_overflow(size, rill__header_bytes(h), &size) || size > SIZE_MAX / 2)
        return 0;
    return (size_t)size;
}

/* ---- encode ---------------------------------------------------------------------------------- */

size_t rill__message_bound(rill__shape shape, const rill__coding *coding, const rill__part *part) {
    size_t size = sizeof(rill__header) + coding->value->bound(shape.type, part->n);
    if (part->form == RILL__SPARSE)
        size += rill__align8(coding->index->bound(shape.index_bytes, part->n, part->range));
    if (part->form == RILL__BLOCKS)
        size += sizeof part->block +
                rill__align8(
                    coding->index->bound(8, rill__blocks_in(part->n, part->block),
                                         rill__block_range(part->block, part->first, part->range)));
    return size;
}

/* Pads what an index codec wrote; returns the bytes then. */
static uint64_t pad(char *at, size_t used) {
    if (used % 8) memset(at + used, 0, 8 - used % 8);
    return rill__align8(used);
}

/* The block size, then the numbers. */
static uint64_t encode_numbers(const rill__coding *coding, const rill__part *part, char *at) {
    memcpy(at, &part->block, sizeof part->block);
    if (!part->n) return sizeof part->block;
    at += sizeof part->block;
    size_t used = coding->index->encode(8, part->idx, rill__blocks_in(part->n, part->block),
                                        part->first / part->block,
                                        rill__block_range(part->block, part->first, part->range),
                                        at);
    return sizeof part->block + pad(at, used);
}

size_t rill__message_encode(rill__header *h, rill__shape shape, const rill__coding *coding,
                            const rill__part *part, void *out) {
    h->layout = (uint8_t)rill__layout_for(h, part->n);
    h->type = (uint8_t)shape.type;
    h->index_bytes = (uint8_t)shape.index_bytes;
    h->index_codec = coding->index->id;
    h->value_codec = coding->value->id;
    h->first = part->first;
    h->range = part->range;
    h->count = part->n;
    h->index_size = h->value_size = 0;
    char *at = (char *)out + rill__header_bytes(h);
    if (part->form == RILL__SPARSE) {
        h->form = RILL__M_SPARSE;
        if (part->n) {
            size_t used = coding->index->encode(shape.index_bytes, part->idx, part->n, part->first,
                                                part->range, at);
            h->index_size = pad(at, used);
        }
    } else if (part->form == RILL__BLOCKS) {
        h->form = RILL__M_BLOCKS;
        h->index_bytes = 8;
        h->index_size = encode_numbers(coding, part, at);
    } else {
        h->form = RILL__M_DENSE;
    }
    if (part->n)
        h->value_size = coding->value->encode(shape.type, part->val, part->n, &coding->key,
                                              RILL__SCALE_MAX, at + h->index_size);
    rill__header_write(h, out);
    return rill__message_size(h);
}

/* ---- parse ----------------------------------------------------------------------------------- */

static const char *broken_values(const rill__header *h) {
    const rill__value_codec *codec = rill__value_codec_by_id(h->value_codec);
    if (!codec || !codec->supports((rill_type)h->type)) return "unknown value codec";
    if (h->count > SIZE_MAX / 64) return "too many entries";
    if (h->value_size != (h->count ? codec->bound((rill_type)h->type, h->count) : 0))
        return "size of the values does not fit the count";
    return NULL;
}

/* Fields and sizes; the payload's contents are for their own decoders. */
static const char *broken_field(const rill__header *h, uint64_t seal) {
    rill__header ours;
    rill__header_seal(&ours, seal);
    if (seal && h->magic != ours.magic) return "not a rill message";
    if (seal && h->version != ours.version) return "unknown version";
    if (h->layout > RILL__LAYOUT_WORDS) return "unknown layout";
    if (h->form > RILL__M_PING) return "unknown form";
    if (h->layout != RILL__LAYOUT_LONG && !rill__form_has_entries(h->form) &&
        h->form != RILL__M_BUNDLE)
        return "a short header without entries";
    if (!rill__message_size(h)) return "sizes overflow";
    if (h->status > 0) return "positive status";
    if (h->flags & ~(unsigned)RILL__FLAGS) return "unknown flags";
    if (h->tells > RILL__TELLS_WORDS) return "unknown words";
    if (h->form == RILL__M_FAILED) return h->index_size ? "a failure with indices" : NULL;
    if (h->status < 0) return "a status without a failure";
    const char *broken;
    if (!rill__type_size((rill_type)h->type)) return "unknown type";
    if (h->range > h->dim || h->first > h->dim - h->range) return "range outside of the dimension";
    switch (h->form) {
    case RILL__M_SPARSE:
        if (h->index_bytes != rill__index_bytes(h->dim)) return "wrong index width";
        if (!rill__index_codec_by_id(h->index_codec)) return "unknown index codec";
        if (h->count > h->range) return "more entries than the range";
        if ((broken = broken_values(h))) return broken;
        if (h->index_size % 8) return "size of the indices is not padded";
        if (!h->count && h->index_size) return "indices without entries";
        return NULL;
    case RILL__M_BLOCKS:
        if (h->index_bytes != 8) return "wrong width of block numbers";
        if (!rill__index_codec_by_id(h->index_codec)) return "unknown index codec";
        if (h->count > h->range) return "more entries than the range";
        if ((broken = broken_values(h))) return broken;
        if (h->index_size % 8) return "size of the block numbers is not padded";
        if (h->index_size < 8) return "no block size";
        if (!h->count && h->index_size > 8) return "block numbers without entries";
        return NULL;
    case RILL__M_DENSE:
        if (h->count != h->range) return "dense, but the count is not the range";
        if ((broken = broken_values(h))) return broken;
        return h->index_size ? "dense, but with indices" : NULL;
    case RILL__M_BUNDLE:
        if (h->index_size) return "a bundle with indices";
        if (h->count > h->value_size / RILL__BARE_BYTES)
            return "more messages than the bundle can hold";
        return NULL;
    case RILL__M_INQUIRY:
    case RILL__M_FAREWELL:
    case RILL__M_PING: return h->index_size || h->value_size ? "a note with a payload" : NULL;
    case RILL__M_GONE:
        if (h->index_size) return "a list of ranks with indices";
        if (h->count > h->value_size / 4 || h->value_size != h->count * 4)
            return "size of the list does not fit the count";
        return NULL;
    default: /* RILL__M_AGREE */
        if (h->index_size) return "an agreement with indices";
        if (h->count > h->value_size / 8 || h->value_size != h->count * 8)
            return "size of the words does not fit the count";
        return NULL;
    }
}

rill_status rill__message_check(const rill__header *h, const rill__expect *e) {
    if (h->seq != e->seq)
        return rill__fail(RILL_ERR_MISMATCH, "a message of call %llu came in call %llu",
                          (unsigned long long)h->seq, (unsigned long long)e->seq);
    if (h->collective != e->collective)
        return rill__fail(RILL_ERR_MISMATCH, "another rank is in %s, this one in %s",
                          rill_collective_name((rill_collective)h->collective),
                          rill_collective_name((rill_collective)e->collective));
    if (h->form == RILL__M_FAILED) return RILL_OK;
    if (h->dim != e->dim)
        return rill__fail(RILL_ERR_MISMATCH, "another rank has dimension %llu, this one %llu",
                          (unsigned long long)h->dim, (unsigned long long)e->dim);
    if (h->type != e->type)
        return rill__fail(RILL_ERR_MISMATCH, "another rank has type %s, this one %s",
                          rill_type_name((rill_type)h->type), rill_type_name((rill_type)e->type));
    if (h->op != e->op) return rill__fail(RILL_ERR_MISMATCH, "another rank has another op");
    if (h->algorithm != e->algorithm)
        return rill__fail(RILL_ERR_MISMATCH, "another rank runs another algorithm");
    if (h->memory != e->memory)
        return rill__fail(RILL_ERR_MISMATCH, "another rank remembers other steps");
    if (h->arguments != e->arguments)
        return rill__fail(RILL_ERR_MISMATCH, "another rank has another root, or other options: "
                                             "algorithm, codec, value bits, partition, block size");
    return RILL_OK;
}

/* The usual message, whole, expected, sparse and raw: all of what the checks above would find
 * right. Branches that always go the same way cost less than to compute with each answer. */
static bool is_usual(const rill__header *h, uint64_t start, uint64_t seal, size_t size,
                     const rill__expect *e) {
    bool kind = !((start ^ seal) & RILL__SEAL_MASK) && h->layout <= RILL__LAYOUT_WORDS &&
                h->form == RILL__M_SPARSE && h->index_codec == RAW && h->value_codec == RAW &&
                h->status == 0 && h->flags <= RILL__FLAGS && h->tells <= RILL__TELLS_WORDS;
    bool call = h->type == e->type && h->collective == e->collective && h->op == e->op &&
                h->algorithm == e->algorithm && h->memory == e->memory &&
                h->arguments == e->arguments && h->seq == e->seq && h->dim == e->dim &&
                h->index_bytes == rill__index_bytes(e->dim);
    if (!kind || !call || h->count > size || h->count > h->range) return false;
    uint64_t values = (uint64_t)rill__type_size((rill_type)e->type) * h->count;
    uint64_t indices = rill__align8(h->index_bytes * h->count);
    return h->range <= h->dim && h->first <= h->dim - h->range && h->index_size == indices &&
           h->value_size == values && size == rill__header_bytes(h) + indices + values;
}

bool rill__message_strange(const void *bytes, size_t size, uint64_t seal) {
    uint64_t start;
    if (size < RILL__BARE_BYTES) return true;
    memcpy(&start, bytes, sizeof start);
    return ((start ^ seal) & RILL__SEAL_MASK) != 0;
}

rill_status rill__message_parse(const void *bytes, size_t size, uint64_t seal,
                                const rill__expect *expect, bool partial, rill__message *message) {
    uint64_t start;
    if (!rill__header_read(bytes, size, &message->header))
        return rill__fail(RILL_ERR_MESSAGE, "malformed message: %zu bytes are less than a header",
                          size);
    message->payload = (const char *)bytes + rill__header_bytes(&message->header);
    memcpy(&start, bytes, sizeof start);
    if (expect && !partial && is_usual(&message->header, start, seal, size, expect)) return RILL_OK;
    const char *broken = broken_field(&message->header, seal);
    if (broken) return rill__fail(RILL_ERR_MESSAGE, "malformed message: %s", broken);
    size_t whole = rill__message_size(&message->header);
    if (partial ? size > whole : size != whole)
        return rill__fail(RILL_ERR_MESSAGE, "malformed message: %zu bytes instead of %zu", size,
                          whole);
    return expect ? rill__message_check(&message->header, expect) : RILL_OK;
}

/* ---- contents -------------------------------------------------------------------------------- */

/* What index codecs work on: the indices of pairs, or the numbers of blocks. */
typedef struct numbers {
    uint64_t block; /* 0: indices */
    const char *bytes;
    uint64_t size, count, first, range;
} numbers;

static rill_status malformed(const char *what) {
    return rill__fail(RILL_ERR_MESSAGE, "malformed message: %s", what);
}

static rill_status numbers_of(const rill__message *m, numbers *n) {
    const rill__header *h = &m->header;
    n->block = 0;
    n->bytes = m->payload;
    n->size = h->index_size;
    n->count = h->count;
    n->first = h->first;
    n->range = h->range;
    if (h->form != RILL__M_BLOCKS) return RILL_OK;
    memcpy(&n->block, m->payload, sizeof n->block);
    if (!n->block) return malformed("blocks of no entries");
    if (!rill__blocks_fit(n->block, h->first, h->range, h->dim))
        return malformed("the range does not fit the blocks");
    n->bytes += sizeof n->block;
    n->size -= sizeof n->block;
    n->count = rill__blocks_in(h->count, n->block);
    n->first = h->first / n->block;
    n->range = rill__block_range(n->block, h->first, h->range);
    return n->count > n->range ? malformed("more blocks than the range") : RILL_OK;
}

/* Indices first, then values, each with slack. */
static size_t index_room(const rill__message *m) {
    const rill__header *h = &m->header;
    numbers n;
    if (h->form == RILL__M_DENSE || h->index_codec == RAW || numbers_of(m, &n) != RILL_OK) return 0;
    return (n.count * h->index_bytes + RILL__SLACK + 63) & ~(size_t)63;
}

size_t rill__message_room(const rill__message *m) {
    const rill__header *h = &m->header;
    bool raw = h->value_codec == RAW;
    if (raw && h->index_codec == RAW) return 0;
    if (!rill__form_has_entries(h->form)) return 0;
    return index_room(m) + (raw ? 0 : h->count * rill__type_size((rill_type)h->type) + RILL__SLACK);
}

static rill_status decode_indices(const rill__header *h, const numbers *n, void *room,
                                  const void **idx) {
    size_t used;
    if (h->index_codec == RAW) {
        if (n->size != rill__align8(n->count * h->index_bytes))
            return malformed("size of the indices does not fit the count");
        *idx = n->bytes;
        uint64_t at = rill__host()->stream->check(h->index_bytes, *idx, n->count, n->first,
                                                  n->range);
        if (at < n->count)
            return rill__fail(RILL_ERR_MESSAGE,
                              "malformed message: index %llu is out of order or range",
                              (unsigned long long)at);
        return RILL_OK;
    }
    *idx = room;
    RILL_TRY(
        rill__index_codec_by_id(h->index_codec)
            ->decode(h->index_bytes, n->bytes, n->size, n->count, n->first, n->range, room, &used));
    if (rill__align8(used) != n->size)
        return rill__fail(RILL_ERR_MESSAGE,
                          "malformed message: %zu bytes of indices instead of %llu", used,
                          (unsigned long long)n->size);
    return RILL_OK;
}

static rill_status decode_values(const rill__message *m, void *room, const void **val) {
    const rill__header *h = &m->header;
    size_t used;
    *val = m->payload + h->index_size;
    if (h->value_codec == RAW) return RILL_OK;
    room = (char *)room + index_room(m);
    RILL_TRY(rill__value_codec_by_id(h->value_codec)
                 ->decode((rill_type)h->type, *val, h->value_size, h->count, room, &used));
    *val = room;
    return RILL_OK;
}

rill__bits rill__message_bits(const rill__message *m, rill__part *part) {
    const rill__header *h = &m->header;
    if (h->form != RILL__M_SPARSE || h->type != RILL_F32 ||
        h->index_codec != rill__codec_bitmap.id || h->value_codec != RAW ||
        (uintptr_t)m->payload % 8)
        return RILL__BITS_NONE;
    /* Also where a forced codec made bits of a range that is nearly full. */
    double limit = (double)rill__dense_switch(RILL_F32, h->range);
    if (rill__wire_form_of((double)h->count, (double)h->range, limit, true) == RILL__WIRE_PAIRS)
        return RILL__BITS_NONE;
    const uint64_t *words = (const uint64_t *)m->payload;
    uint64_t n = h->index_size / 8, set = rill__host()->stream->count_bits(words, n);
    uint64_t over = n ? n * 64 : 0;
    bool fits = over < h->range + 64 &&
                (over <= h->range || !(words[n - 1] >> (64 - (over - h->range))));
    if (set != h->count || !fits) {
        malformed("a bitmap does not fit the count or the range");
        return RILL__BITS_BROKEN;
    }
    *part = (rill__part){RILL__BITS, h->first, h->range,
                         h->count,   words,    m->payload + h->index_size,
                         n,          NULL};
    return RILL__BITS_THERE;
}

rill_status rill__message_part(const rill__message *m, void *room, rill__part *part) {
    const rill__header *h = &m->header;
    if (!rill__form_has_entries(h->form))
        return rill__fail(RILL_ERR_MESSAGE, "malformed message: form %d has no entries", h->form);
    numbers n;
    RILL_TRY(numbers_of(m, &n));
    part->form = h->form == RILL__M_SPARSE   ? RILL__SPARSE
                 : h->form == RILL__M_BLOCKS ? RILL__BLOCKS
                                             : RILL__DENSE;
    part->first = h->first;
    part->range = h->range;
    part->n = h->count;
    part->idx = part->val = NULL;
    part->block = n.block;
    part->space = NULL;
    if (!h->count) return RILL_OK;
    if (h->form != RILL__M_DENSE) RILL_TRY(decode_indices(h, &n, room, &part->idx));
    if (n.block) {
        uint64_t last = ((const uint64_t *)part->idx)[n.count - 1];
        if (h->count != rill__block_entries(n.block, n.count, last, h->first + h->range))
            return malformed("the count does not fit the blocks");
    }
    return decode_values(m, room, &part->val);
}

rill_status rill__message_next(const rill__message *bundle, uint64_t seal,
                               const rill__expect *expect, size_t *offset, rill__message *message) {
    size_t left = bundle->header.value_size - *offset;
    if (!left) return malformed("a bundle is too short");
    const char *at = bundle->payload + *offset;
    rill__header h;
    size_t size = 0;
    if (rill__header_read(at, left, &h)) size = rill__message_size(&h);
    if (!size || size > left || rill__align8(size) > left)
        return rill__fail(RILL_ERR_MESSAGE, "malformed message: a bundle is cut off");
    RILL_TRY(rill__message_parse(at, size, seal, expect, false, message));
    if (h.form == RILL__M_BUNDLE)
        return rill__fail(RILL_ERR_MESSAGE, "malformed message: a bundle in a bundle");
    *offset += rill__align8(size);
    return RILL_OK;
}
