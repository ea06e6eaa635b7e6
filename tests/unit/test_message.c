/* The decoder of messages: what the encoder writes comes back; what is broken is refused.
 * With RILL_WRITE_CORPUS=FOLDER the valid messages are written there, as seeds of fuzz_message. */
#include "../support/unit.h"

#include "../support/messages.h"
#include "coll/coll.h"

#include <stdio.h>

static void samples_are_accepted(void **state) {
    (void)state;
    int n = 0, with_entries = 0, layouts = 0;
    for (;; n++) {
        size_t size;
        rill__expect expect;
        rill__message m;
        void *bytes = sample_message(n, &size, &expect);
        if (!bytes) break;
        assert_ok(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m));
        assert_ok(rill__message_parse(bytes, size, RILL__SEAL, NULL, false, &m));
        assert_int_equal(rill__message_size(&m.header), size);
        assert_ptr_equal(m.payload, (char *)bytes + rill__header_bytes(&m.header));
        assert_ptr_equal(rill__message_start(&m), bytes);
        layouts |= 1 << m.header.layout;
        if (rill__form_has_entries(m.header.form)) {
            rill__part part;
            void *room = rill__aligned_alloc(rill__message_room(&m));
            assert_ok(rill__message_part(&m, room, &part));
            assert_int_equal(part.n, m.header.count);
            assert_int_equal(part.first, m.header.first);
            assert_int_equal(part.range, m.header.range);
            for (uint64_t i = 0; part.form == RILL__SPARSE && i < part.n; i++) {
                uint64_t at = m.header.index_bytes == 8 ? ((const uint64_t *)part.idx)[i]
                                                        : ((const uint32_t *)part.idx)[i];
                assert_int_equal(at, part.first + 3 * i);
            }
            uint64_t blocks = part.block ? rill__blocks_in(part.n, part.block) : 0;
            for (uint64_t i = 0; i < blocks; i++)
                assert_int_equal(((const uint64_t *)part.idx)[blocks - 1 - i],
                                 (m.header.dim - 1) / part.block - 2 * i);
            for (uint64_t i = 0; i < part.n * rill_type_size((rill_type)m.header.type); i++)
                assert_int_equal(((const unsigned char *)part.val)[i], 0x3C);
            with_entries += part.n > 0;
            free(room);
        } else {
            rill__part part;
            assert_int_equal(rill__message_part(&m, NULL, &part), RILL_ERR_MESSAGE);
        }
        const char *folder = getenv("RILL_WRITE_CORPUS");
        if (folder) {
            char path[512];
            snprintf(path, sizeof path, "%s/sample-%02d", folder, n);
            FILE *f = fopen(path, "wb");
            assert_non_null(f);
            assert_int_equal(fwrite(bytes, 1, size, f), size);
            fclose(f);
        }
        free(bytes);
    }
    assert_true(n >= 13 && with_entries >= 6);
    assert_int_equal(layouts,
                     1 << RILL__LAYOUT_LONG | 1 << RILL__LAYOUT_SHORT | 1 << RILL__LAYOUT_BARE);
}

static void bundles_are_taken_apart(void **state) {
    (void)state;
    size_t size, offset = 0;
    rill__expect expect;
    rill__message bundle, m;
    void *bytes = sample_message(0, &size, &expect);
    assert_ok(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &bundle));
    assert_ok(rill__message_next(&bundle, RILL__SEAL, &expect, &offset, &m));
    assert_int_equal(m.header.form, RILL__M_SPARSE);
    assert_int_equal(m.header.count, 5);
    assert_ok(rill__message_next(&bundle, RILL__SEAL, &expect, &offset, &m));
    assert_int_equal(m.header.form, RILL__M_DENSE);
    assert_int_equal(m.header.range, 9);
    assert_fails(rill__message_next(&bundle, RILL__SEAL, &expect, &offset, &m), RILL_ERR_MESSAGE,
                 "too short");
    free(bytes);
}

static void cut_and_padded_messages_are_refused(void **state) {
    (void)state;
    for (int n = 0;; n++) {
        size_t size;
        rill__expect expect;
        rill__message m;
        char *bytes = sample_message(n, &size, &expect);
        if (!bytes) break;
        for (size_t cut = 0; cut < size; cut++) {
            assert_int_equal(rill__message_parse(bytes, cut, RILL__SEAL, &expect, false, &m),
                             RILL_ERR_MESSAGE);
            /* The first part of a split message is fine from the header on. */
            rill__header h;
            if (rill__header_read(bytes, cut, &h))
                assert_ok(rill__message_parse(bytes, cut, RILL__SEAL, &expect, true, &m));
        }
        assert_int_equal(rill__message_parse(bytes, size + 1, RILL__SEAL, &expect, false, &m),
                         RILL_ERR_MESSAGE);
        assert_int_equal(rill__message_parse(bytes, size + 1, RILL__SEAL, &expect, true, &m),
                         RILL_ERR_MESSAGE);
        free(bytes);
    }
}

/* The same message with a long header. */
static char *lengthened(char *bytes, size_t *size) {
    rill__header h;
    assert_true(rill__header_read(bytes, *size, &h));
    assert_int_not_equal(h.layout, RILL__LAYOUT_LONG);
    size_t header = rill__header_bytes(&h), payload = *size - header;
    char *longer = rill__aligned_alloc(RILL__LONG_BYTES + payload);
    assert_non_null(longer);
    h.layout = RILL__LAYOUT_LONG;
    assert_int_equal(rill__header_write(&h, longer), RILL__LONG_BYTES);
    memcpy(longer + RILL__LONG_BYTES, bytes + header, payload);
    *size = RILL__LONG_BYTES + payload;
    free(bytes);
    return longer;
}

/* Both layouts of one message say the same; what does not fit the short one goes with the long one.
 */
static void layouts_agree(void **state) {
    (void)state;
    size_t size;
    rill__expect expect = sample_expect(RILL_F32, 100);
    char *bytes = sample_sparse(&rill__codec_raw, RILL_F32, 100, 50, 7, &size);
    rill__header a, b;
    assert_true(rill__header_read(bytes, size, &a));
    assert_int_equal(size, RILL__BARE_BYTES + 7 * 8 + 4);
    bytes = lengthened(bytes, &size);
    rill__message m;
    assert_ok(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m));
    b = m.header;
    b.layout = a.layout;
    assert_memory_equal(&a, &b, sizeof a);
    uint32_t idx = 1;
    float val = 2;
    rill__part part = {RILL__SPARSE, 0, 100, 1, &idx, &val, 0, NULL};
    rill__coding coding = {.index = &rill__codec_raw, .value = &rill__value_raw};
    static const struct {
        uint64_t dim, seq, fill, word[2];
        rill__layout layout;
        rill__tells tells;
    } cases[] = {{100, 1, 0, {0, 0}, RILL__LAYOUT_BARE, RILL__TELLS_NNZ},
                 {100, 1, 0, {UINT64_MAX, 0}, RILL__LAYOUT_SHORT, RILL__TELLS_NNZ},
                 {100, 1, 0, {0, UINT64_MAX}, RILL__LAYOUT_SHORT, RILL__TELLS_NNZ},
                 {UINT32_MAX, UINT32_MAX, 0, {2, 1}, RILL__LAYOUT_SHORT, RILL__TELLS_NNZ},
                 {UINT32_MAX, UINT32_MAX, 0, {0, 0}, RILL__LAYOUT_BARE, RILL__TELLS_NNZ},
                 {UINT64_C(1) << 32, 1, 0, {0, 0}, RILL__LAYOUT_LONG, RILL__TELLS_NNZ},
                 {100, UINT64_C(1) << 32, 0, {0, 0}, RILL__LAYOUT_LONG, RILL__TELLS_NNZ},
                 {100, 1, 1, {0, 0}, RILL__LAYOUT_LONG, RILL__TELLS_NNZ},
                 {100, 1, 0, {UINT64_MAX, 3}, RILL__LAYOUT_WORDS, RILL__TELLS_WORDS},
                 {100, 1, 1, {UINT64_MAX, 3}, RILL__LAYOUT_LONG, RILL__TELLS_WORDS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rill__header h = {.magic = RILL__MAGIC,
                          .version = RILL__VERSION,
                          .dim = cases[i].dim,
                          .seq = cases[i].seq,
                          .fill = cases[i].fill,
                          .tells = (uint8_t)cases[i].tells,
                          .word = {cases[i].word[0], cases[i].word[1]}};
        size = rill__message_encode(&h, (rill__shape){RILL_F32, 4}, &coding, &part, bytes);
        assert_int_equal(h.layout, cases[i].layout);
        assert_true(rill__header_read(bytes, size, &a));
        assert_memory_equal(&a, &h, sizeof h);
    }
    free(bytes);
}

/* Writes the good header with one change, in its layout, and has the message refused. */
#define REFUSED(change, expected)                                                                  \
    do {                                                                                           \
        h = good;                                                                                  \
        h.change;                                                                                  \
        rill__header_write(&h, bytes);                                                             \
        assert_int_equal(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m),         \
                         (expected));                                                              \
        assert_true(strlen(rill_last_error()) > 0);                                                \
    } while (0)

/* Field by field: the sample of seven sparse entries in [50, 100). */
static void broken_short_headers_are_refused(void **state) {
    (void)state;
    size_t size;
    rill__expect expect = sample_expect(RILL_F32, 100);
    char *bytes = sample_sparse(&rill__codec_raw, RILL_F32, 100, 50, 7, &size);
    rill__header good, h;
    assert_true(rill__header_read(bytes, size, &good));
    rill__message m;
    REFUSED(magic ^= 1, RILL_ERR_MESSAGE);
    REFUSED(version++, RILL_ERR_MESSAGE);
    for (int form = 0; form < 256; form++)
        if (form != RILL__M_SPARSE && form != RILL__M_BLOCKS) /* blocks: by their contents */
            REFUSED(form = (uint8_t)form, RILL_ERR_MESSAGE);
    REFUSED(type = 9, RILL_ERR_MESSAGE);
    REFUSED(type = RILL_F64, RILL_ERR_MESSAGE);
    REFUSED(index_codec = 200, RILL_ERR_MESSAGE);
    REFUSED(value_codec = 200, RILL_ERR_MESSAGE);
    REFUSED(first = 51, RILL_ERR_MESSAGE);
    REFUSED(first = UINT32_MAX, RILL_ERR_MESSAGE);
    REFUSED(range = 51, RILL_ERR_MESSAGE);
    REFUSED(range = UINT32_MAX, RILL_ERR_MESSAGE);
    REFUSED(range = 6, RILL_ERR_MESSAGE);
    REFUSED(count = 8, RILL_ERR_MESSAGE);
    REFUSED(count = 0, RILL_ERR_MESSAGE);
    REFUSED(count = UINT32_MAX, RILL_ERR_MESSAGE);
    REFUSED(index_size = 24, RILL_ERR_MESSAGE);
    REFUSED(index_size = UINT32_MAX - 7, RILL_ERR_MESSAGE);
    REFUSED(seq++, RILL_ERR_MISMATCH);
    REFUSED(collective++, RILL_ERR_MISMATCH);
    REFUSED(algorithm++, RILL_ERR_MISMATCH);
    REFUSED(op++, RILL_ERR_MISMATCH);
    REFUSED(memory++, RILL_ERR_MISMATCH);
    REFUSED(arguments++, RILL_ERR_MISMATCH);
    REFUSED(dim++, RILL_ERR_MISMATCH);
    rill__header_write(&good, bytes);
    bytes[5] = RILL__LAYOUT_WORDS + 1; /* the layout */
    assert_int_equal(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m),
                     RILL_ERR_MESSAGE);
    free(bytes);
}

/* A header has 16 bits for an algorithm. */
static void algorithms_are_told_apart(void **state) {
    (void)state;
    for (int c = 0; c < RILL__TABLES; c++)
        for (int i = 0; rill__algorithm_at((rill_collective)c, i); i++) {
            uint16_t hash = rill__algorithm_hash(rill__algorithm_at((rill_collective)c, i)->name);
            assert_int_not_equal(hash, 0);
            for (int j = 0; j < i; j++)
                assert_int_not_equal(hash, rill__algorithm_hash(
                                               rill__algorithm_at((rill_collective)c, j)->name));
        }
}

static void broken_headers_are_refused(void **state) {
    (void)state;
    size_t size;
    rill__expect expect = sample_expect(RILL_F32, 100);
    char *bytes = lengthened(sample_sparse(&rill__codec_raw, RILL_F32, 100, 50, 7, &size), &size);
    rill__header good, h;
    memcpy(&good, bytes, sizeof good);
    rill__message m;
    REFUSED(magic ^= 1, RILL_ERR_MESSAGE);
    REFUSED(version++, RILL_ERR_MESSAGE);
    REFUSED(layout = RILL__LAYOUT_WORDS + 1, RILL_ERR_MESSAGE);
    REFUSED(form = 5, RILL_ERR_MESSAGE);
    REFUSED(form = 255, RILL_ERR_MESSAGE);
    REFUSED(form = RILL__M_DENSE, RILL_ERR_MESSAGE);
    REFUSED(form = RILL__M_AGREE, RILL_ERR_MESSAGE);
    REFUSED(form = RILL__M_BUNDLE, RILL_ERR_MESSAGE);
    REFUSED(form = RILL__M_FAILED, RILL_ERR_MESSAGE);
    REFUSED(type = 9, RILL_ERR_MESSAGE);
    REFUSED(type = RILL_F64, RILL_ERR_MESSAGE);
    REFUSED(index_bytes = 8, RILL_ERR_MESSAGE);
    REFUSED(index_bytes = 0, RILL_ERR_MESSAGE);
    REFUSED(index_codec = 200, RILL_ERR_MESSAGE);
    REFUSED(value_codec = 200, RILL_ERR_MESSAGE);
    REFUSED(status = 1, RILL_ERR_MESSAGE);
    REFUSED(status = -1, RILL_ERR_MESSAGE);
    REFUSED(flags = 2, RILL_ERR_MESSAGE);
    REFUSED(tells = 2, RILL_ERR_MESSAGE);
    REFUSED(first = 51, RILL_ERR_MESSAGE);
    REFUSED(first = UINT64_MAX, RILL_ERR_MESSAGE);
    REFUSED(range = 51, RILL_ERR_MESSAGE);
    REFUSED(range = UINT64_MAX, RILL_ERR_MESSAGE);
    REFUSED(range = 6, RILL_ERR_MESSAGE);
    REFUSED(count = 8, RILL_ERR_MESSAGE);
    REFUSED(count = 0, RILL_ERR_MESSAGE);
    REFUSED(count = UINT64_MAX / 4 + 8, RILL_ERR_MESSAGE);
    REFUSED(index_size = 24, RILL_ERR_MESSAGE);
    REFUSED(index_size = UINT64_MAX - 7, RILL_ERR_MESSAGE);
    REFUSED(value_size = 27, RILL_ERR_MESSAGE);
    REFUSED(value_size = UINT64_MAX, RILL_ERR_MESSAGE);
    REFUSED(seq++, RILL_ERR_MISMATCH);
    REFUSED(collective++, RILL_ERR_MISMATCH);
    REFUSED(collective = 77, RILL_ERR_MISMATCH);
    REFUSED(algorithm++, RILL_ERR_MISMATCH);
    REFUSED(op++, RILL_ERR_MISMATCH);
    REFUSED(dim++, RILL_ERR_MISMATCH);
#undef REFUSED
    free(bytes);
}

/* The same for four of the blocks 5 to 12, of 8 entries: 6, 8, 10, and 12 with 4 entries. */
static void broken_blocks_are_refused(void **state) {
    (void)state;
    rill__expect expect = sample_expect(RILL_F32, 100);
    static const struct {
        uint64_t block, number[2], first, range, count; /* number: which, what */
        const char *what;
    } bad[] = {
        {8, {0, 6}, 40, 60, 28, NULL},
        {8, {0, 5}, 40, 60, 28, NULL},
        {0, {0, 6}, 40, 60, 28, "no entries"},
        {7, {0, 6}, 40, 60, 28, "range does not fit"},
        {16, {0, 6}, 40, 60, 28, "range does not fit"},
        {UINT64_MAX, {0, 6}, 40, 60, 28, "range does not fit"},
        {4, {0, 6}, 40, 60, 28, "indices"},
        {8, {0, 6}, 41, 59, 28, "range does not fit"},
        {8, {0, 6}, 40, 59, 28, "range does not fit"},
        {8, {0, 4}, 40, 60, 28, "out of order or range"},
        {8, {0, 8}, 40, 60, 28, "out of order or range"},
        {8, {3, 13}, 40, 60, 28, "out of order or range"},
        {8, {3, 11}, 40, 60, 28, "the count does not fit"},
        {8, {3, UINT64_MAX}, 40, 60, 28, "out of order or range"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t size;
        char *bytes = lengthened(sample_blocks(&rill__codec_raw, RILL_F32, 100, 8, 5, 4, &size),
                                 &size);
        rill__message m;
        rill__part part;
        rill__header h;
        memcpy(&h, bytes, sizeof h);
        assert_int_equal(h.count, 28);
        h.first = bad[i].first;
        h.range = bad[i].range;
        memcpy(bytes, &h, sizeof h);
        memcpy(bytes + sizeof h, &bad[i].block, 8);
        memcpy(bytes + sizeof h + 8 + 8 * bad[i].number[0], &bad[i].number[1], 8);
        assert_ok(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m));
        if (bad[i].what)
            assert_fails(rill__message_part(&m, NULL, &part), RILL_ERR_MESSAGE, bad[i].what);
        else assert_ok(rill__message_part(&m, NULL, &part));
        free(bytes);
    }
    size_t size;
    char *bytes = lengthened(sample_blocks(&rill__codec_raw, RILL_F32, 100, 8, 5, 4, &size), &size);
    rill__header good, h;
    rill__message m;
    memcpy(&good, bytes, sizeof good);
#define REFUSED(change, text)                                                                      \
    do {                                                                                           \
        h = good;                                                                                  \
        h.change;                                                                                  \
        memcpy(bytes, &h, sizeof h);                                                               \
        assert_fails(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m),             \
                     RILL_ERR_MESSAGE, text);                                                      \
    } while (0)
    REFUSED(index_bytes = 4, "width");
    REFUSED(index_codec = 99, "codec");
    REFUSED(count = 61, "more entries");
    REFUSED(count = 27, "size of the values");
    REFUSED(count = 0, "size of the values");
    REFUSED(index_size = 7, "padded");
    REFUSED(index_size = 0, "no block size");
    REFUSED(index_size = 8, "bytes instead");
    REFUSED(form = RILL__M_BLOCKS + 1, "form");
#undef REFUSED
    free(bytes);
}

static void broken_indices_are_refused(void **state) {
    (void)state;
    static const uint32_t bad[][2] = {{0, 49}, {0, 53},  {3, 56},
                                      {3, 10}, {6, 100}, {6, UINT32_MAX}};
    rill__expect expect = sample_expect(RILL_F32, 100);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t size;
        char *bytes = sample_sparse(&rill__codec_raw, RILL_F32, 100, 50, 7, &size);
        rill__message m;
        rill__part part;
        memcpy(bytes + RILL__BARE_BYTES + 4 * bad[i][0], &bad[i][1], 4);
        assert_ok(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m));
        assert_fails(rill__message_part(&m, NULL, &part), RILL_ERR_MESSAGE, "");
        free(bytes);
    }
}

/* Two of three indices, as bits: more than the dense form would take. */
static char *sample_bits(uint64_t dim, uint64_t first, size_t *size) {
    rill__expect e = sample_expect(RILL_F32, dim);
    rill__header h = sample_header(&e);
    rill__coding coding = {.index = &rill__codec_bitmap, .value = &rill__value_raw};
    uint32_t *idx = rill__aligned_alloc(dim * sizeof *idx);
    float *val = rill__aligned_alloc(dim * sizeof *val);
    uint64_t n = 0;
    for (uint64_t i = first; i < dim; i++)
        if (i % 3 != 1) idx[n] = (uint32_t)i, val[n] = (float)i - 100, n++;
    rill__part part = {RILL__SPARSE, first, dim - first, n, idx, val, 0, NULL};
    rill__shape shape = {RILL_F32, 4};
    char *out = rill__aligned_alloc(rill__message_bound(shape, &coding, &part));
    *size = rill__message_encode(&h, shape, &coding, &part, out);
    free(idx);
    free(val);
    return out;
}

/* A bitmap that is summed as it lies has as many bits as the message says, and none past the range.
 */
static void bits_are_checked(void **state) {
    (void)state;
    if (!rill__host()->stream->add_bits) return;
    for (uint64_t dim = 100; dim <= 1000; dim += 37) {
        size_t size;
        rill__expect expect = sample_expect(RILL_F32, dim);
        uint64_t first = dim / 4;
        char *bytes = sample_bits(dim, first, &size);
        rill__message m;
        rill__part bits;
        assert_ok(rill__message_parse(bytes, size, RILL__SEAL, &expect, false, &m));
        assert_int_equal(rill__message_bits(&m, &bits), RILL__BITS_THERE);
        assert_int_equal(bits.form, RILL__BITS);
        float *sum = rill__aligned_alloc(bits.range * sizeof *sum);
        memset(sum, 0, bits.range * sizeof *sum);
        uint64_t in_words = rill__min_u64(bits.range, bits.block * 64);
        for (int round = 1; round <= 2; round++) {
            assert_int_equal(rill__host()->stream->add_bits(sum, in_words, bits.idx, bits.val,
                                                            round == 1),
                             bits.n);
            for (uint64_t i = first; i < dim; i++)
                assert_true(sum[i - first] == (i % 3 != 1 ? (float)round * ((float)i - 100) : 0));
        }
        free(sum);
        for (size_t at = 0; at < m.header.index_size; at++) {
            char *byte = bytes + (m.payload - bytes) + at;
            *byte ^= 1;
            assert_int_equal(rill__message_bits(&m, &bits), RILL__BITS_BROKEN);
            assert_non_null(strstr(rill_last_error(), "bitmap"));
            *byte ^= 1;
        }
        free(bytes);
    }
}

/* Any byte of any sample changed to anything: refused, or decoded to something in order. */
static void flipped_bytes(void **state) {
    (void)state;
    static const unsigned char masks[] = {1, 0x80, 0xFF};
    long accepted = 0, refused = 0;
    for (int n = 0;; n++) {
        size_t size;
        rill__expect expect;
        unsigned char *bytes = sample_message(n, &size, &expect);
        if (!bytes) break;
        for (size_t at = 0; at < size; at++)
            for (int k = 0; k < 3; k++) {
                rill__message m;
                rill__part part;
                bytes[at] ^= masks[k];
                rill_status status = rill__message_parse(bytes, size, RILL__SEAL, NULL, false, &m);
                if (status == RILL_OK && rill__form_has_entries(m.header.form)) {
                    void *room = rill__aligned_alloc(rill__message_room(&m));
                    status = rill__message_part(&m, room, &part);
                    if (status == RILL_OK && part.form == RILL__SPARSE)
                        assert_int_equal(rill__kernels_scalar.check(m.header.index_bytes, part.idx,
                                                                    part.n, part.first, part.range),
                                         part.n);
                    if (status == RILL_OK && part.form == RILL__BLOCKS && part.n)
                        assert_int_equal(rill__kernels_scalar.check(
                                             8, part.idx, rill__blocks_in(part.n, part.block),
                                             part.first / part.block,
                                             rill__block_range(part.block, part.first, part.range)),
                                         rill__blocks_in(part.n, part.block));
                    free(room);
                }
                *(status == RILL_OK ? &accepted : &refused) += 1;
                bytes[at] ^= masks[k];
            }
        free(bytes);
    }
    assert_true(accepted > 0 && refused > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_accepted),
        cmocka_unit_test(bundles_are_taken_apart),
        cmocka_unit_test(cut_and_padded_messages_are_refused),
        cmocka_unit_test(layouts_agree),
        cmocka_unit_test(broken_short_headers_are_refused),
        cmocka_unit_test(algorithms_are_told_apart),
        cmocka_unit_test(broken_headers_are_refused),
        cmocka_unit_test(broken_blocks_are_refused),
        cmocka_unit_test(broken_indices_are_refused),
        cmocka_unit_test(bits_are_checked),
        cmocka_unit_test(flipped_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
