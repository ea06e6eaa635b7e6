/* Index codecs: round trips, sizes, the same bytes from every instruction set, malformed input. */
#include "test_codec.h"

#include "codec/codec.h"
#include "codec/value_codec.h"
#include "req/message.h"

#include <stdio.h>

enum { MOST_CODECS = 64 };

static void put(unsigned width, void *idx, uint64_t i, uint64_t value) {
    if (width == 4) ((uint32_t *)idx)[i] = (uint32_t)value;
    else ((uint64_t *)idx)[i] = value;
}

/* Encodes and decodes with every codec and instruction set; sizes[codec] gets the bytes. */
static void round_trip(unsigned width, const void *idx, uint64_t count, uint64_t first,
                       uint64_t range, size_t *sizes) {
    for (int c = 0; rill__index_codec_at(c); c++) {
        const rill__index_codec *codec = rill__index_codec_at(c);
        if (codec == &rill__codec_bitmap && range > 1u << 26) continue;
        size_t bound = codec->bound(width, count, range), reference_size = 0;
        uint8_t *reference = guarded(bound), *bytes = guarded(bound);
        uint8_t *back = guarded(count * width);
        for (int isa = 0; isa < ISAS; isa++) {
            if (!rill__isa_force(isas[isa])) continue;
            uint8_t *out = isa ? bytes : reference;
            size_t size = codec->encode(width, idx, count, first, range, out);
            if (size > bound)
                fail_msg("%s: %zu bytes over the bound of %zu (%llu of %llu)", codec->name, size,
                         bound, (unsigned long long)count, (unsigned long long)range);
            check_guard(out, bound);
            if (!isa) reference_size = size;
            if (size != reference_size || memcmp(out, reference, size))
                fail_msg("%s: %s gives other bytes than scalar (%llu of %llu from %llu)",
                         codec->name, isas[isa], (unsigned long long)count,
                         (unsigned long long)range, (unsigned long long)first);
            /* Exactly the bytes, and then with junk that belongs to someone else. */
            for (int junk = 0; junk < 2; junk++) {
                uint8_t *in = guarded(size + (junk ? 16 : 0));
                memcpy(in, reference, size);
                memset(back, 0xA5, count * width);
                size_t used = 0;
                rill_status status = codec->decode(width, in, size + (junk ? 16 : 0), count, first,
                                                   range, back, &used);
                if (status != RILL_OK || used != size || memcmp(back, idx, count * width))
                    fail_msg("%s: %s: %llu of %llu from %llu come back wrong: %d %zu/%zu %s",
                             codec->name, isas[isa], (unsigned long long)count,
                             (unsigned long long)range, (unsigned long long)first, status, used,
                             size, rill_last_error());
                check_guard(back, count * width);
                free(in);
            }
            /* One byte less can't do. */
            uint8_t *in = guarded(size - 1);
            memcpy(in, reference, size - 1);
            size_t used;
            assert_int_equal(codec->decode(width, in, size - 1, count, first, range, back, &used),
                             RILL_ERR_MESSAGE);
            free(in);
        }
        if (sizes) sizes[c] = reference_size;
        free(reference);
        free(bytes);
        free(back);
    }
    rill__isa_force(NULL);
}

/* About count indices in [first, first + range); returns how many. */
static uint64_t geometric(rng *r, unsigned width, double density, uint64_t most, uint64_t first,
                          uint64_t range, void *idx) {
    uint64_t n = 0, at = 0;
    double scale = density < 1.0 ? 1.0 / log1p(-density) : 0.0;
    while (n < most) {
        double gap = floor(log(rng_unit(r) + 0x1p-54) * scale);
        if (gap >= (double)(range - at)) break;
        at += (uint64_t)gap;
        put(width, idx, n++, first + at++);
        if (at >= range) break;
    }
    return n;
}

static void densities(void **state) {
    (void)state;
    static const double density[] = {1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99, 1.0};
    static const uint64_t counts[] = {1,   2,   3,   15,  16,  17,  63,   64,   65,   127,
                                      128, 129, 191, 255, 256, 257, 1000, 4096, 10000};
    rng r = rng_make(1, 1);
    uint64_t idx[10000];
    for (size_t d = 0; d < sizeof density / sizeof *density; d++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (unsigned width = 4; width <= 8; width += 4) {
                uint64_t range = (uint64_t)((double)counts[c] / density[d] * 1.3) + 1;
                if (width == 4 && range > UINT32_MAX) continue;
                uint64_t top = width == 4 ? UINT64_C(1) << 32 : UINT64_C(1) << 40;
                uint64_t firsts[] = {0, 1, rng_below(&r, top - range), top - range};
                uint64_t first = firsts[rng_below(&r, 4)];
                uint64_t n = geometric(&r, width, density[d], counts[c], first, range, idx);
                if (n) round_trip(width, idx, n, first, range, NULL);
            }
}

/* The ends of the number line, first and last of the range, and clusters. */
static void corners(void **state) {
    (void)state;
    static const uint64_t tops[] = {UINT64_C(1) << 32, (UINT64_C(1) << 32) + 5,
                                    UINT64_C(1) << 33, (UINT64_C(1) << 34) + 1,
                                    UINT64_C(1) << 62, UINT64_MAX};
    uint64_t idx[600];
    for (size_t t = 0; t < sizeof tops / sizeof *tops; t++)
        for (unsigned width = 4; width <= 8; width += 4) {
            if (width == 4 && tops[t] > UINT64_C(1) << 32) continue;
            for (unsigned n = 1; n <= 300; n += n < 4 ? 1 : 37) {
                uint64_t range = tops[t], k = 0;
                /* n at the start, n at the end */
                for (uint64_t i = 0; i < n; i++)
                    put(width, idx, k++, i);
                round_trip(width, idx, n, 0, range, NULL);
                for (uint64_t i = 0; i < n; i++)
                    put(width, idx, k++, range - n + i);
                round_trip(width, idx, k, 0, range, NULL);
                round_trip(width, (char *)idx + (size_t)n * width, n, range - n, n, NULL);
                round_trip(width, (char *)idx + (size_t)n * width, n, range / 2, range - range / 2,
                           NULL);
                /* spread evenly: every gap is as wide as can be */
                for (uint64_t i = 0; i < n; i++)
                    put(width, idx, i, range / n * (i + 1) - 1);
                round_trip(width, idx, n, 0, range, NULL);
            }
        }
    /* One index, anywhere. */
    for (unsigned b = 0; b < 64; b++) {
        uint64_t at = UINT64_C(1) << b;
        idx[0] = at;
        round_trip(8, idx, 1, 0, at + 1, NULL);
        round_trip(8, idx, 1, at, 1, NULL);
        if (b >= 32) continue;
        put(4, idx, 0, at);
        round_trip(4, idx, 1, 0, at + 1, NULL);
        round_trip(4, idx, 1, at, UINT64_C(1) << b, NULL);
    }
}

/* What makes bound() work hardest: one wide gap in each block of 128, of all sizes. */
static void worst_cases(void **state) {
    (void)state;
    enum { MOST = 5000 };
    static uint64_t idx[MOST];
    rng r = rng_make(2, 2);
    for (unsigned log = 0; log < 40; log++)
        for (unsigned width = 4; width <= 8; width += 4)
            for (unsigned variant = 0; variant < 4; variant++) {
                uint64_t n = 1 + rng_below(&r, MOST), at = 0;
                for (uint64_t i = 0; i < n; i++) {
                    if (i % 128 == (variant & 1 ? 127 : 0)) at += UINT64_C(1) << log;
                    if (variant & 2 && rng_below(&r, 300) == 0)
                        at += rng_below(&r, UINT64_C(1) << log / 2);
                    put(width, idx, i, at++);
                }
                if (width == 4 && at > UINT64_C(1) << 32) continue;
                round_trip(width, idx, n, 0, at, NULL);
                if (width == 8) round_trip(width, idx, n, 0, at * 3, NULL);
            }
    for (unsigned trial = 0; trial < 300; trial++) { /* gaps of any size, mixed */
        unsigned width = trial & 1 ? 8 : 4;
        uint64_t n = 1 + rng_below(&r, 700), at = 0, i = 0;
        for (; i < n; i++) {
            uint64_t gap = rng_next(&r) >> (64 - rng_below(&r, width == 4 ? 25 : 50) - 1) >> 1;
            if (width == 4 && at + gap >= UINT64_C(1) << 32) break;
            put(width, idx, i, at += gap);
            at++;
        }
        if (i) round_trip(width, idx, i, 0, at, NULL);
    }
}

static double entropy_bits(double count, double range) {
    return (lgamma(range + 1) - lgamma(count + 1) - lgamma(range - count + 1)) / log(2.0) / count;
}

static void sizes_near_entropy(void **state) {
    (void)state;
    enum { MOST = 200000 };
    static const double density[] = {1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1};
    uint32_t *idx = malloc(MOST * 4);
    assert_non_null(idx);
    rng r = rng_make(3, 3);
    for (size_t d = 0; d < sizeof density / sizeof *density; d++) {
        uint64_t range = (uint64_t)(100000 / density[d]);
        uint64_t n = geometric(&r, 4, density[d], MOST, 0, range, idx);
        size_t sizes[MOST_CODECS] = {0};
        round_trip(4, idx, n, 0, range, sizes);
        double entropy = entropy_bits((double)n, (double)range);
        for (int c = 0; rill__index_codec_at(c); c++) {
            const rill__index_codec *codec = rill__index_codec_at(c);
            if (!sizes[c]) continue; /* a bitmap of too large a range */
            double over = 8.0 * (double)sizes[c] / (double)n - entropy, most = 32;
            if (codec == &rill__codec_bitpack) most = 1.6;
            if (codec == &rill__codec_elias_fano) most = 0.6;
            if (codec == &rill__codec_rice) most = 0.13;
            if (over > most && codec != &rill__codec_bitmap)
                fail_msg("%s at %g: %.3f bits over the entropy", codec->name, density[d], over);
            /* The estimate is that of the size. */
            double expected = codec->message_bits(4, n, range) / 8.0;
            if (fabs(expected / (double)sizes[c] - 1.0) > 0.02)
                fail_msg("%s at %g: %g bytes are expected, %zu are sent", codec->name, density[d],
                         expected, sizes[c]);
        }
    }
    free(idx);
}

/* 64 of each 4,096, as SparseLoCo sends them, with values of 2 bits: the whole message. */
static void tiles(void **state) {
    (void)state;
    enum { TILE = 4096, KEEP = 64, TILES = 1024, COUNT = TILES * KEEP };
    uint32_t *idx = malloc(COUNT * 4);
    assert_non_null(idx);
    rng r = rng_make(6, 6);
    for (uint32_t t = 0, n = 0; t < TILES; t++)
        for (uint32_t i = 0, left = KEEP; i < TILE; i++) /* each support is as likely */
            if (rng_below(&r, TILE - i) < left) idx[n++] = t * TILE + i, left--;
    size_t sizes[MOST_CODECS] = {0};
    round_trip(4, idx, COUNT, 0, TILES * TILE, sizes);
    assert_ptr_equal(rill__index_codec_choose(4, COUNT, TILES * TILE), &rill__codec_rice);
    size_t values = rill__value_qsgd2.bound(RILL_F32, COUNT), header = sizeof(rill__header);
    for (int c = 0; rill__index_codec_at(c); c++)
        if (rill__index_codec_at(c) == &rill__codec_rice)
            assert_true(8.0 * (double)(header + sizes[c] + values) / COUNT < 9.60);
    free(idx);
}

static void choice(void **state) {
    (void)state;
    enum { MOST = 50000 };
    static const double density[] = {1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.2, 0.4, 0.6, 0.9, 0.9999, 1.0};
    uint32_t *idx = malloc(MOST * 4);
    assert_non_null(idx);
    rng r = rng_make(4, 4);
    for (size_t d = 0; d < sizeof density / sizeof *density; d++) {
        uint64_t range = (uint64_t)(20000 / density[d]);
        uint64_t n = geometric(&r, 4, density[d], MOST, 0, range, idx);
        size_t sizes[MOST_CODECS] = {0}, best = SIZE_MAX;
        round_trip(4, idx, n, 0, range, sizes);
        const rill__index_codec *codec = rill__index_codec_choose(4, n, range);
        for (int c = 0; rill__index_codec_at(c); c++)
            if (sizes[c] && sizes[c] < best) best = sizes[c];
        /* A hair over the best is fine: sizes differ from their expectation. */
        for (int c = 0; rill__index_codec_at(c); c++)
            if (rill__index_codec_at(c) == codec && (double)sizes[c] > 1.01 * (double)best + 4)
                fail_msg("at %g %s was chosen: %zu bytes, not %zu", density[d], codec->name,
                         sizes[c], best);
    }
    assert_ptr_equal(rill__index_codec_choose(4, 1000, 1000), &rill__codec_bitpack);
    assert_ptr_equal(rill__index_codec_choose(4, 500, 1000), &rill__codec_bitmap);
    assert_ptr_equal(rill__index_codec_choose(4, 10000, 1000000), &rill__codec_rice);
    assert_non_null(rill__index_codec_choose(8, 0, 0));
    free(idx);
}

/* Every codec has its row, found by its name and by its number on the wire. */
static void table(void **state) {
    (void)state;
    const rill__index_codec *codec;
    for (int i = 0; (codec = rill__index_codec_at(i)); i++) {
        assert_in_range(i, 0, MOST_CODECS - 1);
        assert_ptr_equal(codec, rill__index_codec_by_name(codec->name));
        assert_ptr_equal(codec, rill__index_codec_by_id(codec->id));
        const char *text = NULL;
        assert_string_equal(rill_codec_at(i, &text), codec->name);
        assert_true(text && *text);
        assert_int_equal(codec->bound(4, 0, 100), 0);
        size_t used = 1;
        uint8_t nothing[RILL__SLACK] = {0};
        assert_int_equal(codec->decode(4, nothing, 0, 0, 0, 100, nothing, &used), RILL_OK);
        assert_int_equal(used, 0);
    }
    /* Numbers that other versions know. */
    assert_int_equal(rill__codec_raw.id, 0);
    assert_int_equal(rill__codec_bitpack.id, 1);
    assert_int_equal(rill__codec_elias_fano.id, 2);
    assert_int_equal(rill__codec_bitmap.id, 3);
    assert_int_equal(rill__codec_rice.id, 4);
    assert_null(rill__index_codec_by_id(99));
    assert_null(rill__index_codec_by_name("auto"));
}

static const char *refused_isa;

static void refused(const rill__index_codec *codec, unsigned width, const uint8_t *bytes,
                    size_t size, uint64_t count, uint64_t first, uint64_t range) {
    uint8_t *in = guarded(size), *idx = guarded(count * width);
    if (size) memcpy(in, bytes, size);
    size_t used;
    rill_status status = codec->decode(width, in, size, count, first, range, idx, &used);
    if (status != RILL_ERR_MESSAGE)
        fail_msg("%s with %s: malformed, but status is %d", codec->name, refused_isa, status);
    check_guard(idx, count * width);
    free(in);
    free(idx);
}

static void refuse_rice(unsigned width, const uint8_t *far, size_t size) {
    const rill__index_codec *rice = &rill__codec_rice;
    /* l too wide; junk after the low bits; after the last high bit; no high bit */
    refused(rice, width, (const uint8_t[]){40, 0, 0, 0, 0, 0, 1}, 7, 1, 0, 100);
    refused(rice, width, (const uint8_t[]){200, 0, 0, 0, 0, 0, 1}, 7, 1, 0, 100);
    refused(rice, width, (const uint8_t[]){2, 0x1b, 0x03}, 3, 2, 0, 100);
    refused(rice, width, (const uint8_t[]){2, 0x0e, 0x0b}, 3, 2, 0, 100);
    refused(rice, width, (const uint8_t[]){2, 0x0e, 0x02}, 3, 2, 0, 100);
    refused(rice, width, far, size, 1, 0, (UINT64_C(1) << 32) - 1);
    /* low parts whose sum leaves the range, though each x is in it; and wraps around 2^32 */
    refused(rice, width, (const uint8_t[]){2, 0x0f, 0x03}, 3, 2, 0, 7);
    for (unsigned l = 20; l <= 32; l++) {
        uint8_t wide[1 + 128 * 4 + 16];
        memset(wide, 0xff, sizeof wide);
        wide[0] = (uint8_t)l;
        refused(rice, width, wide, 1 + 16 * l + 16, 128, 0, (UINT64_C(1) << l) + 256);
    }
    /* a second chunk that is missing, and one that has no room left */
    uint8_t full[1 + 128 + 2];
    memset(full, 0xff, sizeof full);
    full[0] = full[129] = 0;
    refused(rice, width, full, 129, 1025, 0, 2000);
    refused(rice, width, full, 131, 1025 + 7, 0, 1024 + 7);
}

/* The bytes that the layout asks for, put together by hand. */
static void rice_layout(void **state) {
    (void)state;
    /* gaps 5, 0, 13, l = 2: low parts 1, 0, 1; high parts 1, 0, 3: 01 1 0001 */
    static const uint32_t idx[] = {105, 106, 120};
    static const uint8_t by_hand[] = {2, 0x11, 0x46};
    uint8_t *out = guarded(rill__codec_rice.bound(4, 3, 21));
    assert_int_equal(rill__codec_rice.encode(4, idx, 3, 100, 21, out), sizeof by_hand);
    assert_memory_equal(out, by_hand, sizeof by_hand);
    free(out);
}

static void malformed(void **state) {
    (void)state;
    for (int isa = 0; isa < ISAS; isa++) {
        if (!rill__isa_force(isas[isa])) continue;
        refused_isa = isas[isa];
        for (unsigned width = 4; width <= 8; width += 4) {
            for (int c = 1; rill__index_codec_at(c); c++) {
                const rill__index_codec *codec = rill__index_codec_at(c);
                uint8_t zeros[64] = {0};
                refused(codec, width, zeros, 0, 1, 0, 10);
                refused(codec, width, zeros, 64, 11, 0, 10); /* more than the range */
                refused(codec, width, zeros, 1, 300, 0, 1000);
                /* An index past the range: the same bytes fit a larger one. */
                uint64_t space[200];
                for (uint64_t i = 0; i < 200; i++)
                    put(width, space, i, 7 * i);
                for (uint64_t n = 1; n <= 200; n += 33) {
                    uint64_t range = 7 * (n - 1) + 1;
                    uint8_t *out = guarded(codec->bound(width, n, range));
                    size_t size = codec->encode(width, space, n, 0, range, out);
                    if (n > 1) refused(codec, width, out, size, n, 0, range - 1);
                    refused(codec, width, out, size, n + 200, 0, 7 * 200);
                    free(out);
                }
            }
            const rill__index_codec *pack = &rill__codec_bitpack, *fano = &rill__codec_elias_fano;
            /* bitpack: 3 gaps of 3 bits and junk in the padding; then too wide */
            refused(pack, width, (const uint8_t[]){3, 0x49, 0x02}, 3, 3, 0, 100);
            refused(pack, width, (const uint8_t[]){65, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 10, 1, 0, 100);
            refused(pack, width, (const uint8_t[]){8, 1}, 2, 1, 0, 100);
            /* sums that wrap around 2^32 */
            uint8_t wide[1 + 128 * 4];
            memset(wide, 0xff, sizeof wide);
            for (unsigned w = 20; w <= 32; w++) {
                wide[0] = (uint8_t)w;
                refused(pack, width, wide, 1 + 16 * w, 128, 0, (UINT64_C(1) << w) + 256);
                refused(pack, width, wide, 1 + (100 * w + 7) / 8, 100, 5, UINT64_C(1) << w);
            }
            /* elias_fano: x falls within equal high parts: 3 then 2, with l = 2 */
            refused(fano, width, (const uint8_t[]){2, 0x0b, 0x03}, 3, 2, 0, 100);
            /* l too wide; junk after the low bits; after the last high bit; no high bit */
            refused(fano, width, (const uint8_t[]){40, 0, 0, 0, 0, 0, 1}, 7, 1, 0, 100);
            refused(fano, width, (const uint8_t[]){200, 0, 0, 0, 0, 0, 1}, 7, 1, 0, 100);
            refused(fano, width, (const uint8_t[]){2, 0x1b, 0x03}, 3, 2, 0, 100);
            refused(fano, width, (const uint8_t[]){2, 0x0e, 0x0b}, 3, 2, 0, 100);
            refused(fano, width, (const uint8_t[]){2, 0x0e, 0x02}, 3, 2, 0, 100);
            /* a high part far out, which a shift would lose */
            uint8_t far[600] = {24, 0, 0, 0};
            far[599] = 1;
            refused(fano, width, far, sizeof far, 1, 0, (UINT64_C(1) << 32) - 1);
            refuse_rice(width, far, sizeof far);
        }
    }
    rill__isa_force(NULL);
}

/* Flipped bits never crash, and what is accepted is ascending and in range. */
static void mutations(void **state) {
    (void)state;
    rng r = rng_make(5, 5);
    uint64_t idx[700], coded = 0; /* raw is row 0 */
    while (rill__index_codec_at(1 + (int)coded))
        coded++;
    for (int trial = 0; trial < 6000; trial++) {
        const rill__index_codec *codec = rill__index_codec_at(1 + (int)rng_below(&r, coded));
        unsigned width = rng_next(&r) & 1 ? 8 : 4;
        double density = pow(10.0, -3.0 * rng_unit(&r));
        uint64_t range = 2000, first = rng_below(&r, 1000);
        uint64_t n = geometric(&r, width, density, 700, first, range, idx);
        if (!n) continue;
        size_t bound = codec->bound(width, n, range);
        uint8_t *bytes = guarded(bound), *back = guarded(n * width);
        size_t size = codec->encode(width, idx, n, first, range, bytes), used = 0;
        for (uint64_t k = 1 + rng_below(&r, 3); k--;)
            bytes[rng_below(&r, size)] ^= (uint8_t)(1u << rng_below(&r, 8));
        int verdict[ISAS], any = -1;
        for (int isa = 0; isa < ISAS; isa++) {
            if (!rill__isa_force(isas[isa])) continue;
            verdict[isa] = codec->decode(width, bytes, size, n, first, range, back, &used);
            check_guard(back, n * width);
            if (any >= 0) assert_int_equal(verdict[isa], verdict[any]);
            any = isa;
            if (verdict[isa] != RILL_OK) continue;
            assert_true(used <= size);
            uint64_t before = 0;
            for (uint64_t i = 0; i < n; i++) {
                uint64_t x = width == 4 ? ((uint32_t *)back)[i] : ((uint64_t *)back)[i];
                assert_true(x >= first && x - first < range && (i == 0 || x > before));
                before = x;
            }
        }
        free(bytes);
        free(back);
    }
    rill__isa_force(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table),     cmocka_unit_test(densities),
        cmocka_unit_test(corners),   cmocka_unit_test(worst_cases),
        cmocka_unit_test(choice),    cmocka_unit_test(sizes_near_entropy),
        cmocka_unit_test(malformed), cmocka_unit_test(mutations),
        cmocka_unit_test(tiles),     cmocka_unit_test(rice_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
