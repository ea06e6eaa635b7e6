/* The binary loader on any bytes. Checksums would keep fuzzed bytes out, so the first byte says
 * which of them are put right before: the rest of the reader must not need them to be safe. */
#include "train/data_binary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

static void seal_chunks(uint8_t *data, uint64_t size, rill__binary_header *h) {
    if (h->directory_offset > size || h->directory_offset % 8) return;
    rill__chunk_entry *c = (rill__chunk_entry *)(void *)(data + h->directory_offset);
    uint64_t most = (size - h->directory_offset) / sizeof *c, at = h->values_offset;
    if (h->chunks > most) return;
    for (uint64_t i = 0; i < h->chunks; i++) {
        if (c[i].offset <= size && c[i].size <= size - c[i].offset)
            c[i].hash = rill__data_hash(data + c[i].offset, c[i].size);
        if (at <= size && c[i].entries <= (size - at) / 4) {
            c[i].values_hash = rill__data_hash(data + at, c[i].entries * 4);
            at += c[i].entries * 4;
        }
    }
    h->directory_hash = rill__data_hash(c, h->chunks * sizeof *c);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size < 2) return 0;
    unsigned part = input[0] >> 1 & 7, parts = 1 + (input[0] >> 4);
    bool sealed = input[0] & 1;
    input++, size--;
    uint8_t *data = malloc(size);
    MUST(data);
    memcpy(data, input, size);
    if (sealed && size >= sizeof(rill__binary_header)) {
        rill__binary_header *h = (rill__binary_header *)(void *)data;
        memcpy(h->magic, RILL__BINARY_MAGIC, 8);
        h->version = RILL__BINARY_VERSION;
        h->file_bytes = size;
        seal_chunks(data, size, h);
        h->hash = rill__data_hash(h, offsetof(rill__binary_header, hash));
    }
    rill__binary b;
    if (rill__binary_open(&b, "fuzz", data, size) == RILL_OK) {
        uint64_t rows = b.header.rows, from = rows / parts * (part % parts);
        uint64_t count = part % parts + 1 == parts ? rows - from : rows / parts;
        rill__rows r = {0};
        if (rill__binary_rows(&b, from, count, &r) == RILL_OK) {
            MUST(r.rows == count);
            double sum = 0;
            for (uint64_t i = 0; i < r.rows; i++)
                for (uint64_t j = r.start[i]; j < r.start[i + 1]; j++) {
                    MUST(rill__rows_index(&r, j) < b.header.dim && isfinite(r.value[j]));
                    MUST(j == r.start[i] || rill__rows_index(&r, j) > rill__rows_index(&r, j - 1));
                    sum += r.value[j];
                }
            MUST(!isnan(sum));
        }
        rill__rows_free(&r);
    }
    free(data);
    return 0;
}
