/* A part becomes a message: which form, which codes, and what goes instead where the request has
 * failed. */
#include "req/request.h"
#include "stream/blocks.h"
#include "stream/stream.h"

#include <string.h>

void rill__call_header_at(const rill__task *task, rill__header *h) {
    memcpy(h, &task->engine->seal, sizeof task->engine->seal); /* layout and form: 0 */
    h->type = (uint8_t)task->shape.type;
    h->index_bytes = (uint8_t)task->shape.index_bytes;
    h->index_codec = h->value_codec = 0;
    h->collective = task->expect.collective;
    h->algorithm = task->expect.algorithm;
    h->memory = task->expect.memory;
    h->op = task->expect.op;
    h->status = 0;
    h->flags = task->flags;
    h->tells = RILL__TELLS_NNZ;
    h->origin = task->engine->rank;
    h->arguments = task->expect.arguments;
    h->seq = task->seq;
    h->dim = task->expect.dim;
    h->first = h->range = h->count = h->index_size = h->value_size = 0;
    h->nnz_sum = task->nnz_sum;
    h->nnz_max = task->nnz_max;
    h->fill = task->fill;
}

static rill_status encode_failure(rill__task *task, rill__parcel **out) {
    size_t length = strnlen(task->error, sizeof task->error);
    rill__parcel *parcel = rill__parcel_take(task, sizeof(rill__header) + length);
    if (!parcel) return RILL_ERR_MEMORY;
    rill__header h = rill__call_header(task);
    h.form = RILL__M_FAILED;
    h.status = (int16_t)task->status;
    h.origin = task->origin;
    h.value_size = length;
    memcpy(parcel->buffer.data, &h, sizeof h);
    memcpy((char *)parcel->buffer.data + sizeof h, task->error, length);
    *out = parcel;
    return RILL_OK;
}

/* A header of the call, with what the coding tells. */
static void header_at(const rill__task *task, const rill__coding *coding, rill__header *h) {
    rill__call_header_at(task, h);
    if (!coding->words) return;
    h->tells = RILL__TELLS_WORDS;
    h->word[0] = coding->words[0];
    h->word[1] = coding->words[1];
}

/* The codecs and the key of this message, from those of the call. Each message has a hop of its
 * own, so that no two share random numbers. */
static void settle_coding(rill__task *task, const rill__coding *given, const rill__part *part,
                          rill__coding *coding) {
    uint32_t next = task->hops++;
    coding->index = given->index;
    coding->value = given->value;
    coding->key.seed = given->key.seed;
    coding->key.step = given->key.step;
    coding->key.sender = given->key.sender;
    coding->key.hop = given->key.hop == RILL__NEXT_HOP ? next : given->key.hop;
    if (given->forced) return;
    if (part->form == RILL__BLOCKS) { /* few numbers for many values: always the smallest */
        coding->index = rill__index_codec_choose(8, rill__blocks_in(part->n, part->block),
                                                 rill__block_range(part->block, part->first,
                                                                   part->range));
    } else if (!rill__worth_coding((double)part->n)) {
        coding->index = &rill__codec_raw;
    }
}

/* Before values that lie on a cache line, as sums like them. */
enum { HEADER_ROOM = (sizeof(rill__header) + 63) / 64 * 64 };

/* The part in dense form, in a parcel and behind room for a header: the message itself where values
 * go as they are. */
static rill__parcel *densify(rill__task *task, const rill__part *part, rill__part *dense) {
    rill_type type = task->shape.type;
    size_t bytes;
    if (!rill__size_mul(part->range, rill__type_size(type), &bytes) ||
        bytes > SIZE_MAX - HEADER_ROOM) {
        rill__fail(RILL_ERR_MEMORY, "out of memory: %llu dense values",
                   (unsigned long long)part->range);
        return NULL;
    }
    rill__parcel *parcel = rill__parcel_take(task, HEADER_ROOM + bytes);
    if (!parcel) return NULL;
    char *values = (char *)parcel->buffer.data + HEADER_ROOM;
    rill__assign_fill(rill__part_space(part)->stream, type, values, part->range, &task->fill);
    rill__assign_pairs(task->shape, values, part->first, rill__part_pairs(part));
    *dense = (rill__part){RILL__DENSE, part->first, part->range, part->range,
                          NULL,        values,      0,           part->space};
    return parcel;
}

/* The header ends where the values begin. */
static void add_header(const rill__task *task, const rill__coding *given, const rill__part *dense,
                       rill__parcel *parcel) {
    rill__header h;
    header_at(task, given, &h);
    h.form = RILL__M_DENSE;
    h.first = dense->first;
    h.range = h.count = dense->n;
    h.value_size = dense->n * rill__type_size(task->shape.type);
    h.layout = (uint8_t)rill__layout_for(&h, dense->n);
    parcel->skip = HEADER_ROOM - rill__header_bytes(&h);
    parcel->bytes = rill__header_write(&h, rill__parcel_message(parcel)) + h.value_size;
}

static bool may_send_bits(const rill__task *task, const rill__coding *given,
                          const rill__part *part) {
    return task->adds_bits && !given->forced && given->value == &rill__value_raw &&
           rill__worth_coding((double)part->n);
}

/* Of so many pairs in a part that may go in any form. */
static rill__wire_form form_of(const rill__task *task, const rill__coding *given,
                               const rill__part *part, uint64_t pairs) {
    return rill__wire_form_of((double)pairs, (double)part->range,
                              (double)rill__dense_switch(task->shape.type, part->range),
                              may_send_bits(task, given, part));
}

/* A dense part as a bitmap and the values that are not 0, where these are so many that receivers
 * leave them as they lie; else there is none. In one pass: words of the bitmap that are 0 at its
 * end are found after that, and what is before the values moves up to them. */
static rill_status pack(rill__task *task, const rill__coding *given, const rill__part *part,
                        rill__parcel **out) {
    uint64_t words = part->range / 64 + (part->range % 64 != 0), used = words;
    uint64_t most = part->range - part->range / 8; /* about what rill__wire_form_of allows */
    rill__parcel *parcel = rill__parcel_take(task, HEADER_ROOM + words * 8 + most * 4);
    if (!parcel) return RILL_ERR_MEMORY;
    uint64_t *bits = (uint64_t *)(void *)((char *)parcel->buffer.data + HEADER_ROOM);
    uint64_t n = rill__part_space(part)->stream->pack_bits(part->val, part->range, most, bits,
                                                           (float *)(void *)(bits + words));
    if (form_of(task, given, part, n) != RILL__WIRE_BITS) {
        rill__parcel_release(task, parcel);
        return RILL_OK;
    }
    while (!bits[used - 1])
        used--;
    memmove(bits + (words - used), bits, used * 8);
    rill__header h;
    header_at(task, given, &h);
    h.form = RILL__M_SPARSE;
    h.index_codec = rill__codec_bitmap.id;
    h.first = part->first;
    h.range = part->range;
    h.count = n;
    h.index_size = used * 8;
    h.value_size = n * sizeof(float);
    h.layout = (uint8_t)rill__layout_for(&h, n);
    parcel->skip = HEADER_ROOM + (words - used) * 8 - rill__header_bytes(&h);
    rill__header_write(&h, rill__parcel_message(parcel));
    parcel->bytes = rill__message_size(&h);
    *out = parcel;
    return RILL_OK;
}

/* The entries of a dense part, or of blocks, that are there, as pairs: what is absent stands for
 * the fill, which codes of few bits cannot express, and must not turn into a value. */
static rill_status list_present(rill__task *task, const rill__part *part, rill__part *pairs) {
    rill__shape shape = task->shape;
    size_t size = rill__type_size(shape.type);
    rill__parcel *idx = rill__parcel_take(task, part->n * shape.index_bytes);
    rill__parcel *val = rill__parcel_take(task, part->n * size);
    if (!idx || !val) return RILL_ERR_MEMORY;
    *pairs = rill__part_empty(part->first, part->range);
    uint64_t block = part->form == RILL__BLOCKS ? part->block : part->n;
    for (uint64_t at = 0, i = 0, n; at < part->n; at += n, i++) {
        n = rill__min_u64(block, part->n - at);
        uint64_t first = part->form == RILL__BLOCKS ? ((const uint64_t *)part->idx)[i] * block
                                                    : part->first;
        pairs->n += rill__part_space(part)->stream->compact(
            shape, (const char *)part->val + at * size, first, n, &task->fill, part->n - pairs->n,
            (char *)idx->buffer.data + pairs->n * shape.index_bytes,
            (char *)val->buffer.data + pairs->n * size);
    }
    pairs->idx = idx->buffer.data;
    pairs->val = val->buffer.data;
    return RILL_OK;
}

static rill_status encode(rill__task *task, const rill__coding *given, const rill__part *part,
                          rill__parcel **out) {
    rill__coding coding;
    rill__part dense, present;
    settle_coding(task, given, part, &coding);
    bool absent_is_lost = coding.value->bits && task->fill;
    if (absent_is_lost && part->form != RILL__SPARSE && part->n) {
        RILL_TRY(list_present(task, part, &present));
        part = &present;
        if (!given->forced)
            coding.index = rill__index_codec_choose(task->shape.index_bytes, part->n, part->range);
    }
    bool any_form = !absent_is_lost && given->turns_dense && part->form == RILL__SPARSE;
    rill__wire_form form = any_form ? form_of(task, given, part, part->n) : RILL__WIRE_PAIRS;
    bool packs = part->form == RILL__DENSE && given->packs_dense && !task->fill;
    if (packs && may_send_bits(task, given, part)) {
        *out = NULL;
        RILL_TRY(pack(task, given, part, out));
        if (*out) return RILL_OK;
    }
    if (form == RILL__WIRE_BITS) coding.index = &rill__codec_bitmap;
    if (form == RILL__WIRE_DENSE) {
        *out = densify(task, part, &dense);
        if (!*out) return RILL_ERR_MEMORY;
        if (coding.value == &rill__value_raw) {
            add_header(task, given, &dense, *out);
            return RILL_OK;
        }
        part = &dense;
    }
    rill__parcel *parcel = rill__parcel_take(task, rill__message_bound(task->shape, &coding, part));
    if (!parcel) return RILL_ERR_MEMORY;
    rill__header h;
    header_at(task, given, &h);
    parcel->bytes = rill__message_encode(&h, task->shape, &coding, part, parcel->buffer.data);
    if (task->lost && coding.value->bits)
        task->lost(task->whom, given, part, parcel->buffer.data, parcel->bytes);
    *out = parcel;
    return RILL_OK;
}

rill_status rill__encode(rill__task *task, const rill__coding *coding, const rill__part *part,
                         rill__parcel **out) {
    if (task->status == RILL_OK) {
        if (encode(task, coding, part, out) == RILL_OK) return RILL_OK;
        rill__task_fail(task, RILL_ERR_MEMORY);
    }
    return encode_failure(task, out);
}

/* Of a part of pairs that goes as pairs. */
static void pairs_header_at(const rill__task *task, const rill__coding *given,
                            const rill__coding *coding, const rill__part *part, rill__header *h) {
    header_at(task, given, h);
    h->form = RILL__M_SPARSE;
    h->index_codec = coding->index->id;
    h->value_codec = coding->value->id;
    h->first = part->first;
    h->range = part->range;
    h->count = part->n;
    h->layout = (uint8_t)rill__layout_for(h, part->n);
}

rill_status rill__encode_begin(rill__task *task, const rill__coding *given, const rill__part *part,
                               rill__coding *coding, rill__parcel **out, char **payload) {
    rill__header h;
    *coding = *given;
    settle_coding(task, given, part, coding);
    *out = rill__parcel_take(task, rill__message_bound(task->shape, coding, part));
    if (!*out) return RILL_ERR_MEMORY;
    pairs_header_at(task, given, coding, part, &h);
    *payload = (char *)(*out)->buffer.data + rill__header_bytes(&h);
    return RILL_OK;
}

void rill__encode_end(rill__task *task, const rill__coding *given, const rill__coding *coding,
                      const rill__part *part, uint64_t index_size, uint64_t value_size,
                      rill__parcel *parcel) {
    rill__header h;
    pairs_header_at(task, given, coding, part, &h);
    h.index_size = index_size;
    h.value_size = value_size;
    rill__header_write(&h, parcel->buffer.data);
    parcel->bytes = rill__message_size(&h);
}

/* Of a message that was encoded or checked here: all of the header is there. */
static rill__header read_header(const void *start) {
    rill__header h;
    rill__header_read(start, RILL__LONG_BYTES, &h);
    return h;
}

static rill_status bundle(rill__task *task, int n, const void *const *start, rill__parcel **out) {
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        rill__header h = read_header(start[i]);
        bytes += rill__message_padded(&h);
    }
    rill__parcel *parcel = rill__parcel_take(task, sizeof(rill__header) + bytes);
    if (!parcel) return RILL_ERR_MEMORY;
    rill__header h = rill__call_header(task);
    h.form = RILL__M_BUNDLE;
    h.count = (uint64_t)n;
    h.value_size = bytes;
    h.nnz_sum = h.nnz_max = 0; /* the messages have them */
    h.layout = (uint8_t)rill__layout_for(&h, 0);
    parcel->bytes = rill__message_size(&h);
    char *at = (char *)parcel->buffer.data + rill__header_write(&h, parcel->buffer.data);
    for (int i = 0; i < n; i++) {
        rill__header inner = read_header(start[i]);
        size_t whole = rill__message_size(&inner), padded = rill__message_padded(&inner);
        memcpy(at, start[i], whole);
        memset(at + whole, 0, padded - whole);
        at += padded;
    }
    *out = parcel;
    return RILL_OK;
}

rill_status rill__encode_bundle(rill__task *task, int n, const void *const *start,
                                rill__parcel **out) {
    if (task->status == RILL_OK) {
        if (bundle(task, n, start, out) == RILL_OK) return RILL_OK;
        rill__task_fail(task, RILL_ERR_MEMORY);
    }
    return encode_failure(task, out);
}

/* With room for the bytes behind its header. */
static rill__parcel *room_for_words(rill__task *task, size_t bytes) {
    size_t padded = rill__align8(bytes);
    rill__parcel *parcel = rill__parcel_take(task, sizeof(rill__header) + padded);
    if (!parcel) return NULL;
    rill__header *h = parcel->buffer.data;
    rill__call_header_at(task, h);
    h->form = RILL__M_AGREE;
    h->count = padded / sizeof(uint64_t);
    h->value_size = padded;
    memset((char *)(h + 1) + bytes, 0, padded - bytes);
    return parcel;
}

static rill__parcel *words_of(rill__task *task, const void *from, size_t bytes) {
    rill__parcel *parcel = room_for_words(task, bytes);
    if (parcel && bytes) memcpy((rill__header *)parcel->buffer.data + 1, from, bytes);
    return parcel;
}

rill_status rill__encode_room(rill__task *task, size_t bytes, rill__parcel **out, void **to) {
    *to = NULL;
    if (task->status == RILL_OK) {
        *out = room_for_words(task, bytes);
        if (*out) *to = (rill__header *)(*out)->buffer.data + 1;
        if (*out) return RILL_OK;
        rill__task_fail(task, RILL_ERR_MEMORY);
    }
    return encode_failure(task, out);
}

rill_status rill__encode_bytes(rill__task *task, const void *from, size_t bytes,
                               rill__parcel **out) {
    if (task->status == RILL_OK) {
        *out = words_of(task, from, bytes);
        if (*out) return RILL_OK;
        rill__task_fail(task, RILL_ERR_MEMORY);
    }
    return encode_failure(task, out);
}

rill_status rill__send_words(rill__task *task, int to, int lane, const uint64_t *words,
                             uint64_t n) {
    rill__parcel *parcel;
    if (task->status == RILL_OK) {
        parcel = words_of(task, words, n * sizeof *words);
        if (!parcel) return RILL_ERR_MEMORY;
    } else {
        RILL_TRY(encode_failure(task, &parcel));
    }
    return rill__send_parcel(task, to, lane, parcel);
}
