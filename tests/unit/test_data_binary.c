/* The binary form: what is written comes back in any part, and damage is told, wherever it is. */
#include "../support/unit.h"
#include "train/data_binary.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct image {
    uint8_t *data;
    size_t bytes;
} image;

static uint64_t step(uint64_t *s) {
    *s = *s * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *s >> 20;
}

static void add_row(rill__rows *rows, uint64_t n, uint64_t gap, uint64_t *s, uint64_t base) {
    uint64_t index = base + step(s) % gap;
    assert_ok(rill__rows_reserve(rows, 1, n));
    for (uint64_t i = 0; i < n; i++) {
        rill__rows_set_index(rows, rows->entries, index);
        rows->value[rows->entries++] = (float)step(s) / 977;
        index += 1 + step(s) % gap;
    }
    rows->label[rows->rows++] = (double)(step(s) % 5) - 2;
    rows->start[rows->rows] = rows->entries;
}

static char path[64];

static image write_rows(const rill__rows *rows, int base) {
    rill__writer writer;
    rill__chunk chunk = {0};
    uint64_t bytes = 0, first = 0, n;
    assert_ok(rill__writer_open(&writer, path));
    while ((n = rill__chunk_cut(rows, first, true))) {
        assert_ok(rill__chunk_encode(&chunk, rows, first, n));
        assert_ok(rill__writer_add(&writer, &chunk, rows->value + rows->start[first]));
        first += n;
    }
    assert_ok(rill__writer_close(&writer, base, 0, false, &bytes));
    rill__chunk_free(&chunk);
    image m = {malloc(bytes), bytes};
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(m.data, 1, bytes, f), bytes);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    unlink(path);
    return m;
}

static void check_part(const rill__rows *want, const image *m, int base, uint64_t first,
                       uint64_t count) {
    rill__binary b;
    rill__rows got = {0};
    assert_ok(rill__binary_open(&b, "file", m->data, m->bytes));
    assert_int_equal(b.header.rows, want->rows);
    assert_ok(rill__binary_rows(&b, first, count, &got));
    assert_int_equal(got.rows, count);
    uint64_t from = want->start[first];
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(got.start[i + 1], want->start[first + i + 1] - from);
        assert_true(got.label[i] == want->label[first + i]);
    }
    for (uint64_t j = 0; j < got.entries; j++) {
        assert_int_equal(rill__rows_index(&got, j),
                         rill__rows_index(want, from + j) - (uint64_t)base);
        assert_true(got.value[j] == want->value[from + j]);
    }
    rill__rows_free(&got);
}

static void parts_come_back(void **state) {
    (void)state;
    static const struct {
        uint64_t rows, longest, gap;
        int base;
        bool wide;
    } cases[] = {{1, 1, 1, 0, false},
                 {1, 5, 3, 1, false},
                 {9000, 3, 9, 1, false},
                 {700, 900, 100, 1, false},
                 {300, 100, 1 << 20, 0, false},
                 {50, 40, UINT64_C(1) << 40, 1, true},
                 {40, 20, UINT64_C(1) << 56, 1, true},
                 {5, 0, 1, 1, false}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        rill__rows rows = {.wide = cases[c].wide};
        uint64_t s = c + 1, parts = 7;
        for (uint64_t i = 0; i < cases[c].rows; i++)
            add_row(&rows, cases[c].longest ? step(&s) % (cases[c].longest + 1) : 0, cases[c].gap,
                    &s, (uint64_t)cases[c].base);
        image m = write_rows(&rows, cases[c].base);
        check_part(&rows, &m, cases[c].base, 0, rows.rows);
        for (uint64_t p = 0; p < parts; p++) {
            uint64_t from = rows.rows * p / parts, to = rows.rows * (p + 1) / parts;
            check_part(&rows, &m, cases[c].base, from, to - from);
        }
        free(m.data);
        rill__rows_free(&rows);
    }
}

/* Opens and reads all; the status. */
static rill_status read_all(const image *m) {
    rill__binary b;
    rill__rows rows = {0};
    rill_status status = rill__binary_open(&b, "file", m->data, m->bytes);
    if (status == RILL_OK) status = rill__binary_rows(&b, 0, b.header.rows, &rows);
    rill__rows_free(&rows);
    return status;
}

static void every_damaged_byte_is_noticed(void **state) {
    (void)state;
    rill__rows rows = {0};
    uint64_t s = 11;
    for (int i = 0; i < 40; i++)
        add_row(&rows, step(&s) % 20, 50, &s, 1);
    image m = write_rows(&rows, 1);
    assert_ok(read_all(&m));
    uint64_t values_end = sizeof(rill__binary_header) + rows.entries * 4;
    uint64_t chunks = (values_end + 7) / 8 * 8;
    for (size_t i = 0; i + RILL_SLACK < m.bytes; i++) {
        if (i >= values_end && i < chunks) continue; /* padding */
        m.data[i] ^= 0x10;
        if (read_all(&m) == RILL_OK) fail_msg("byte %zu of %zu", i, m.bytes);
        m.data[i] ^= 0x10;
    }
    assert_ok(read_all(&m));
    for (size_t n = 0; n < m.bytes; n += n < 300 ? 1 : 97) {
        image cut = {malloc(n + 8), n};
        memcpy(cut.data, m.data, n);
        assert_int_equal(read_all(&cut), RILL_ERR_IO);
        free(cut.data);
    }
    free(m.data);
    rill__rows_free(&rows);
}

/* Recomputes the checksums, so that only the checks of contents are left. */
static void seal(image *m) {
    rill__binary_header *h = (rill__binary_header *)(void *)m->data;
    rill__chunk_entry *c = (rill__chunk_entry *)(void *)(m->data + h->directory_offset);
    uint64_t at = h->values_offset;
    for (uint64_t i = 0; i < h->chunks; i++) {
        c[i].hash = rill__data_hash(m->data + c[i].offset, c[i].size);
        c[i].values_hash = rill__data_hash(m->data + at, c[i].entries * 4);
        at += c[i].entries * 4;
    }
    h->directory_hash = rill__data_hash(c, h->chunks * sizeof *c);
    h->hash = rill__data_hash(h, offsetof(rill__binary_header, hash));
}

static void wrong_contents_are_told(void **state) {
    (void)state;
    rill__rows rows = {0};
    uint64_t s = 12;
    for (int i = 0; i < 10; i++)
        add_row(&rows, 5, 50, &s, 1);
    image m = write_rows(&rows, 1);
    rill__binary_header *h = (rill__binary_header *)(void *)m.data;
    rill__chunk_entry *c = (rill__chunk_entry *)(void *)(m.data + h->directory_offset);
    float *value = (float *)(void *)(m.data + h->values_offset), kept = *value;
    *value = NAN;
    seal(&m);
    assert_fails(read_all(&m), RILL_ERR_IO, "a value is not finite");
    *value = kept;
    double *label = (double *)(void *)(m.data + c->offset), mark = *label;
    *label = INFINITY;
    seal(&m);
    assert_fails(read_all(&m), RILL_ERR_IO, "a label is not finite");
    *label = mark;
    uint32_t *length = (uint32_t *)(void *)(label + c->rows);
    length[0]++;
    seal(&m);
    assert_fails(read_all(&m), RILL_ERR_IO, "chunk 0 of 1");
    length[0]--;
    h->version = 9;
    seal(&m);
    assert_fails(read_all(&m), RILL_ERR_IO, "version 9");
    h->version = 1;
    h->rows++;
    seal(&m);
    assert_fails(read_all(&m), RILL_ERR_IO, "do not add up");
    h->rows--;
    c->stride = 1;
    seal(&m);
    assert_fails(read_all(&m), RILL_ERR_IO, "malformed");
    free(m.data);
    rill__rows_free(&rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_back),
        cmocka_unit_test(every_damaged_byte_is_noticed),
        cmocka_unit_test(wrong_contents_are_told),
    };
    snprintf(path, sizeof path, "/tmp/rill-test-binary-%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
