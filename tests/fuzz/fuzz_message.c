/* The decoder of messages on any bytes: it refuses them, or gives parts that keep what the rest of
 * the library relies on, and that encode to a message with the same entries. */
#include "fuzz.h"

#include "req/message.h"
#include "stream/blocks.h"

#define MOST_BYTES ((size_t)1 << 28)

static void entries(const rill__message *m) {
    const rill__header *h = &m->header;
    void *room = rill__aligned_alloc(rill__message_room(m));
    rill__part part;
    MUST(room);
    if (rill__host()->stream->add_bits && rill__message_bits(m, &part) == RILL__BITS_THERE) {
        MUST(part.n == h->count && part.block <= (part.range + 63) / 64);
        float *sum = rill__aligned_alloc((size_t)part.range * sizeof *sum);
        if (part.range < MOST_BYTES / 4) {
            MUST(sum);
            uint64_t in_words = rill__min_u64(part.range, part.block * 64);
            MUST(rill__host()->stream->add_bits(sum, in_words, part.idx, part.val, true) == part.n);
        }
        free(sum);
    }
    if (rill__message_part(m, room, &part) == RILL_OK) {
        rill__shape shape = {(rill_type)h->type, h->index_bytes};
        MUST(part.n == h->count && part.n <= part.range);
        MUST(part.range <= h->dim && part.first <= h->dim - part.range);
        if (part.form == RILL__SPARSE)
            MUST(rill__kernels_scalar.check(h->index_bytes, part.idx, part.n, part.first,
                                            part.range) == part.n);
        uint64_t numbers = part.n; /* index_bytes each */
        if (part.form == RILL__BLOCKS) {
            MUST(part.block && rill__blocks_fit(part.block, part.first, part.range, h->dim));
            numbers = rill__blocks_in(part.n, part.block);
            MUST(rill__kernels_scalar.check(8, part.idx, numbers, part.first / part.block,
                                            rill__block_range(part.block, part.first,
                                                              part.range)) == numbers);
            uint64_t last = numbers ? ((const uint64_t *)part.idx)[numbers - 1] : 0;
            MUST(part.n == rill__block_entries(part.block, numbers, last, part.first + part.range));
        }
        /* Once more through the encoder. */
        const rill__index_codec *codec = rill__index_codec_by_id(h->index_codec);
        if (!codec) codec = &rill__codec_raw; /* dense messages have none */
        rill__header again = *h;
        size_t bound =
            rill__message_bound(shape, &(rill__coding){.index = codec, .value = &rill__value_raw},
                                &part);
        if (bound > MOST_BYTES) { /* the bitmap of a huge range, say: nobody would choose it */
            free(room);
            return;
        }
        void *bytes = rill__aligned_alloc(bound);
        MUST(bytes);
        size_t size = rill__message_encode(&again, shape,
                                           &(rill__coding){.index = codec,
                                                           .value = &rill__value_raw},
                                           &part, bytes);
        rill__message back;
        rill__part other;
        MUST(rill__message_parse(bytes, size, RILL__SEAL, NULL, false, &back) == RILL_OK);
        void *room_back = rill__aligned_alloc(rill__message_room(&back));
        MUST(room_back && rill__message_part(&back, room_back, &other) == RILL_OK);
        MUST(other.n == part.n && other.form == part.form);
        MUST(other.block == part.block);
        MUST(!part.n || !part.idx || !memcmp(other.idx, part.idx, numbers * h->index_bytes));
        MUST(!part.n || !memcmp(other.val, part.val, part.n * rill_type_size(shape.type)));
        free(room_back);
        free(bytes);
    }
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* Messages lie in memory with slack; what is behind them must not matter. */
    uint8_t *bytes = rill__aligned_alloc(size);
    rill__message m;
    MUST(bytes);
    memset(bytes + size, 0xEE, RILL__SLACK);
    if (size) memcpy(bytes, data, size);
    rill__message_parse(bytes, size, RILL__SEAL, NULL, true, &m);
    if (rill__message_parse(bytes, size, RILL__SEAL, NULL, false, &m) == RILL_OK) {
        rill__expect expect = {.collective = m.header.collective,
                               .type = m.header.type,
                               .algorithm = m.header.algorithm,
                               .op = m.header.op,
                               .memory = m.header.memory,
                               .arguments = m.header.arguments,
                               .seq = m.header.seq,
                               .dim = m.header.dim};
        MUST(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m) == RILL_OK);
        expect.seq++;
        MUST(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m) == RILL_ERR_MISMATCH);
        expect.seq--;
        if (rill__form_has_entries(m.header.form)) {
            entries(&m);
        } else if (m.header.form == RILL__M_BUNDLE) {
            size_t offset = 0;
            rill__message inner;
            while (rill__message_next(&m, RILL__SEAL, &expect, &offset, &inner) == RILL_OK) {
                MUST(offset <= m.header.value_size);
                if (rill__form_has_entries(inner.header.form)) entries(&inner);
            }
        }
    }
    free(bytes);
    return 0;
}
