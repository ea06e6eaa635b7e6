/* Every index codec of the table: what is encoded comes back, within the bound; what is cut off or
 * does not decode to ascending indices in range is refused.
 * With RILL_WRITE_CORPUS=FOLDER some encodings are written there, as seeds of fuzz_codec_index. */
#include "../support/unit.h"

#include "codec/codec.h"
#include "space/kernels.h"

#include <stdio.h>

/* How indices lie in their range. */
typedef enum layout { EVERY_ONE, EVERY_THIRD, RANDOM, AT_THE_END, CLUSTERS, LAYOUTS } layout;

/* Fills idx with up to count ascending indices in [first, first + range); returns how many. */
static uint64_t lay_out(layout how, unsigned index_bytes, uint64_t first, uint64_t range,
                        uint64_t count, rng *r, void *idx) {
    uint64_t n = 0, at = 0;
    if (how == AT_THE_END) at = range > count ? range - count : 0;
    for (; n < count && at < range; n++) {
        uint64_t value = first + at, step = 1;
        if (index_bytes == 8) ((uint64_t *)idx)[n] = value;
        else ((uint32_t *)idx)[n] = (uint32_t)value;
        if (how == EVERY_THIRD) step = 3;
        if (how == RANDOM) step = 1 + rng_below(r, 2 * (range / count) + 1);
        if (how == CLUSTERS && n % 7 == 6) step = 1 + range / (count / 7 + 2);
        if (step > range - at) break;
        at += step;
    }
    return n < count && at < range ? n + 1 : n;
}

static void write_seed(int codec, unsigned index_bytes, uint64_t first, uint64_t range,
                       uint64_t count, const void *bytes, size_t size) {
    const char *folder = getenv("RILL_WRITE_CORPUS");
    if (!folder || size > 300) return;
    static int number;
    char path[512];
    snprintf(path, sizeof path, "%s/codec%d-%02d", folder, codec, number++);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    unsigned char head[2] = {(unsigned char)codec, index_bytes == 8};
    uint16_t narrow = (uint16_t)count;
    fwrite(head, 1, 2, f);
    fwrite(&first, 8, 1, f);
    fwrite(&range, 8, 1, f);
    fwrite(&narrow, 2, 1, f);
    fwrite(bytes, 1, size, f);
    fclose(f);
}

static void round_trips(void **state) {
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 127, 128, 129, 255, 1000, 4096};
    rng r = rng_make(20, 0);
    long cases = 0;
    const rill__index_codec *codec;
    for (int c = 0; (codec = rill__index_codec_at(c)) != NULL; c++)
        for (unsigned index_bytes = 4; index_bytes <= 8; index_bytes += 4)
            for (int k = 0; k < 9; k++)
                for (int how = 0; how < LAYOUTS; how++)
                    for (int wide = 0; wide < 5; wide++) {
                        uint64_t count = counts[k], first = wide % 2 ? 1000003 : 0;
                        uint64_t range = wide == 0   ? count
                                         : wide == 1 ? count * 3
                                         : wide == 2 ? count * 100
                                         : wide == 3 ? (UINT64_C(1) << 32) - first
                                                     : UINT64_C(1) << 32;
                        if (wide == 4 && index_bytes == 8) range = UINT64_MAX;
                        char *idx = rill__aligned_alloc(count * index_bytes);
                        char *back = rill__aligned_alloc(count * index_bytes);
                        count = lay_out((layout)how, index_bytes, first, range, count, &r, idx);
                        assert_int_equal(rill__kernels_scalar.check(index_bytes, idx, count, first,
                                                                    range),
                                         count);
                        size_t bound = codec->bound(index_bytes, count, range), used = 0;
                        if (bound > 1 << 24) { /* a bitmap of a huge range */
                            free(idx);
                            free(back);
                            continue;
                        }
                        char *out = rill__aligned_alloc(bound);
                        memset(out, 0xAA, bound + RILL__SLACK);
                        size_t size = codec->encode(index_bytes, idx, count, first, range, out);
                        if (size > bound)
                            fail_msg(
                                "%s: %zu bytes, bound %zu: layout %d, %llu indices of %u bytes "
                                "in %llu + %llu",
                                codec->name, size, bound, how, (unsigned long long)count,
                                index_bytes, (unsigned long long)first, (unsigned long long)range);
                        assert_ok(codec->decode(index_bytes, out, size, count, first, range, back,
                                                &used));
                        assert_int_equal(used, size);
                        assert_memory_equal(back, idx, count * index_bytes);
                        if (k % 3 == 0 && how == RANDOM && wide % 2)
                            write_seed(c, index_bytes, first, range, count, out, size);
                        /* Cut off at any place, with other bytes behind: refused, or read as other
                         * indices that are in order, but never past the end. */
                        for (size_t cut = 0; cut < size; cut += 1 + size / 16) {
                            char *part = rill__aligned_alloc(cut);
                            memset(part, 0xEE, cut + RILL__SLACK);
                            memcpy(part, out, cut);
                            rill_status status = codec->decode(index_bytes, part, cut, count, first,
                                                               range, back, &used);
                            assert_true(status == RILL_ERR_MESSAGE);
                            free(part);
                        }
                        free(idx);
                        free(back);
                        free(out);
                        cases++;
                    }
    assert_true(cases >= 450);
}

/* Any bit of the encoding flipped: refused, or something in order. */
static void flipped_bits(void **state) {
    (void)state;
    rng r = rng_make(21, 0);
    const rill__index_codec *codec;
    for (int c = 0; (codec = rill__index_codec_at(c)) != NULL; c++)
        for (unsigned index_bytes = 4; index_bytes <= 8; index_bytes += 4)
            for (int how = 0; how < LAYOUTS; how++) {
                char *idx = rill__aligned_alloc(300 * index_bytes);
                uint64_t first = 77, range = 30000;
                uint64_t n = lay_out((layout)how, index_bytes, first, range, 300, &r, idx);
                size_t bound = codec->bound(index_bytes, n, range), used;
                char *out = rill__aligned_alloc(bound);
                size_t size = codec->encode(index_bytes, idx, n, first, range, out);
                for (size_t bit = 0; bit < size * 8; bit++) {
                    out[bit / 8] ^= (char)(1 << bit % 8);
                    rill_status status = codec->decode(index_bytes, out, size, n, first, range, idx,
                                                       &used);
                    assert_true(status == RILL_OK || status == RILL_ERR_MESSAGE);
                    if (status == RILL_OK) {
                        assert_true(used <= size);
                        assert_int_equal(rill__kernels_scalar.check(index_bytes, idx, n, first,
                                                                    range),
                                         n);
                    }
                    out[bit / 8] ^= (char)(1 << bit % 8);
                }
                free(idx);
                free(out);
            }
}

static void the_table(void **state) {
    (void)state;
    const rill__index_codec *codec;
    int n = 0;
    for (; (codec = rill__index_codec_at(n)) != NULL; n++) {
        assert_ptr_equal(rill__index_codec_by_id(codec->id), codec);
        assert_ptr_equal(rill__index_codec_by_name(codec->name), codec);
    }
    assert_true(n > 0);
    assert_null(rill__index_codec_at(-1));
    assert_null(rill__index_codec_by_name("morse"));
    assert_null(rill__index_codec_by_id(255));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(flipped_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
