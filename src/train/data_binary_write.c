/* The binary form of a data set, writing; the layout is in data_binary_read.c.
 *
 * Idea: rows are cut into chunks by a rule that sees the rows alone, so that the file does not
 * depend on buffers, ranks or threads: at most 4,096 rows and 2^18 entries, and keys of 32 bits as
 * long as the indices are below 2^28. Values go to the output at once, chunks to a scratch file
 * that is appended, so that a file larger than memory can be written in one pass.
 * Memory: one chunk, 64 bytes of directory for each. Cost: both index codecs are tried, the smaller
 * one stays.
 */
#include "train/data_binary.h"

#include <stdlib.h>
#include <string.h>

#define NARROW_STRIDE (UINT64_C(1) << 28)

/* ---- chunks --------------------------------------------------------------------------------- */

static uint64_t row_end(const rill__rows *rows, uint64_t row) {
    uint64_t end = rows->start[row + 1];
    return end > rows->start[row] ? rill__rows_index(rows, end - 1) + 1 : 0;
}

uint64_t rill__chunk_cut(const rill__rows *rows, uint64_t first, bool final) {
    uint64_t stride = 1, n = 0;
    for (; first + n < rows->rows; n++) {
        uint64_t end = row_end(rows, first + n), wider = end > stride ? end : stride;
        uint64_t most = wider <= NARROW_STRIDE ? RILL__NARROW_DIM : RILL__INDEX_LIMIT;
        if (n && (n == RILL__CHUNK_ROWS || wider > most / (n + 1) ||
                  rows->start[first + n + 1] - rows->start[first] > RILL__CHUNK_ENTRIES))
            return n;
        stride = wider;
    }
    return final ? n : 0;
}

static rill_status reserve(void **data, size_t *room, size_t bytes) {
    if (*data && bytes <= *room) return RILL_OK;
    free(*data);
    *room = bytes + bytes / 4;
    *data = malloc(*room + RILL_SLACK);
    if (*data) return RILL_OK;
    *room = 0;
    return rill__data_fail(RILL_ERR_MEMORY, "out of memory: a chunk of %zu bytes", bytes);
}

static void make_keys(const rill__chunk *chunk, const rill__rows *rows, uint64_t first) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < chunk->entry.rows; i++) {
        uint64_t base = i * chunk->entry.stride;
        for (uint64_t j = rows->start[first + i]; j < rows->start[first + i + 1]; j++, at++) {
            uint64_t key = base + rill__rows_index(rows, j);
            if (chunk->entry.index_bytes == 4) ((uint32_t *)chunk->key)[at] = (uint32_t)key;
            else ((uint64_t *)chunk->key)[at] = key;
        }
    }
}

/* The smaller one of bitpack and elias_fano, behind the fixed part of the payload. */
static rill_status encode_indices(rill__chunk *chunk) {
    enum { BITPACK = 1, ELIAS_FANO = 2 };
    rill__chunk_entry *e = &chunk->entry;
    uint64_t range = e->stride * e->rows;
    size_t fixed = (size_t)rill__chunk_fixed(e->rows, e->queries), bound[3] = {0}, size[3] = {0};
    for (unsigned c = BITPACK; c <= ELIAS_FANO; c++)
        RILL_TRY_DATA(
            rill_indices_bound(rill__chunk_codec(c), e->index_bytes, e->entries, range, &bound[c]));
    size_t second = fixed + bound[BITPACK] + RILL_SLACK;
    RILL_TRY_DATA(
        reserve((void **)&chunk->payload, &chunk->room, second + bound[ELIAS_FANO] + RILL_SLACK));
    for (unsigned c = BITPACK; c <= ELIAS_FANO; c++)
        RILL_TRY_DATA(
            rill_indices_encode(rill__chunk_codec(c), e->index_bytes, chunk->key, e->entries, 0,
                                range, chunk->payload + (c == BITPACK ? fixed : second), &size[c]));
    e->codec = size[ELIAS_FANO] < size[BITPACK] ? ELIAS_FANO : BITPACK;
    if (e->codec == ELIAS_FANO)
        memmove(chunk->payload + fixed, chunk->payload + second, size[ELIAS_FANO]);
    e->index_size = size[e->codec];
    return RILL_OK;
}

rill_status rill__chunk_encode(rill__chunk *chunk, const rill__rows *rows, uint64_t first,
                               uint64_t count) {
    rill__chunk_entry *e = &chunk->entry;
    uint64_t from = rows->start[first], to = rows->start[first + count];
    *e = (rill__chunk_entry){.rows = (uint32_t)count,
                             .entries = to - from,
                             .stride = 1,
                             .index_bytes = 4};
    for (uint64_t i = 0; rows->qid && i < count; i++)
        if (rows->qid[first + i] != RILL_NO_QID) e->queries = 1;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t end = row_end(rows, first + i);
        if (end > e->stride) e->stride = end;
        if (rows->start[first + i + 1] - rows->start[first + i] > UINT32_MAX)
            return rill__data_fail(RILL_ERR_UNSUPPORTED, "a row has more than 2^32 - 1 entries");
    }
    chunk->largest = e->stride - 1;
    if (e->stride > RILL__NARROW_DIM / count) e->index_bytes = 8;
    size_t fixed = (size_t)rill__chunk_fixed(count, e->queries);
    if (e->entries) {
        RILL_TRY_DATA(reserve(&chunk->key, &chunk->key_room, (size_t)e->entries * e->index_bytes));
        make_keys(chunk, rows, first);
        RILL_TRY_DATA(encode_indices(chunk));
    } else RILL_TRY_DATA(reserve((void **)&chunk->payload, &chunk->room, fixed));
    memset(chunk->payload, 0, fixed);
    memcpy(chunk->payload, rows->label + first, count * sizeof(double));
    uint32_t *length = (uint32_t *)(void *)(chunk->payload + count * sizeof(double));
    for (uint64_t i = 0; i < count; i++)
        length[i] = (uint32_t)(rows->start[first + i + 1] - rows->start[first + i]);
    if (e->queries)
        memcpy(chunk->payload + rill__chunk_lengths(count), rows->qid + first,
               count * sizeof *rows->qid);
    e->size = (fixed + e->index_size + 7) / 8 * 8;
    memset(chunk->payload + fixed + e->index_size, 0, e->size - fixed - e->index_size);
    e->hash = rill__data_hash(chunk->payload, e->size);
    e->values_hash = rill__data_hash(rows->value + from, (to - from) * sizeof(float));
    return RILL_OK;
}

void rill__chunk_free(rill__chunk *chunk) {
    free(chunk->payload);
    free(chunk->key);
    *chunk = (rill__chunk){0};
}

/* ---- files ---------------------------------------------------------------------------------- */

rill_status rill__writer_open(rill__writer *w, const char *path) {
    *w = (rill__writer){
        .header = {.version = RILL__BINARY_PLAIN, .values_offset = sizeof w->header}};
    memcpy(w->header.magic, RILL__BINARY_MAGIC, 8);
    rill_status status = rill__output_open(path, &w->out);
    if (status == RILL_OK) status = rill__output_scratch(w->out, &w->chunks);
    /* The header's place; it is known at the end, and a pipe has no way back to it. */
    if (status == RILL_OK && rill__output_rewrite(w->out, 0, "", 0) != RILL_OK)
        status = rill__data_fail(RILL_ERR_IO, "%s: the binary form needs a file, not a pipe", path);
    if (status == RILL_OK) status = rill__output_write(w->out, &w->header, sizeof w->header);
    if (status == RILL_OK) return RILL_OK;
    rill__output_close(w->out, false);
    rill__output_close(w->chunks, false);
    w->out = w->chunks = NULL;
    return status;
}

rill_status rill__writer_add(rill__writer *w, const rill__chunk *chunk, const float *values) {
    rill__binary_header *h = &w->header;
    if (h->chunks == w->room) {
        uint64_t room = w->room + w->room / 2 + 64;
        void *moved = realloc(w->directory, room * sizeof *w->directory);
        if (!moved) return rill__data_fail(RILL_ERR_MEMORY, "out of memory: a directory");
        w->directory = moved;
        w->room = room;
    }
    rill__chunk_entry *e = &w->directory[h->chunks++];
    *e = chunk->entry;
    if (e->queries) h->version = RILL__BINARY_VERSION;
    e->offset = rill__output_bytes(w->chunks); /* of the chunks, until they have their place */
    h->rows += e->rows;
    h->entries += e->entries;
    if (e->entries && h->dim < chunk->largest + 1) h->dim = chunk->largest + 1;
    RILL_TRY_DATA(rill__output_write(w->out, values, e->entries * sizeof *values));
    return rill__output_write(w->chunks, chunk->payload, e->size);
}

rill_status rill__writer_put(rill__writer *w, rill__chunk *chunk, rill__rows *rows, bool final) {
    uint64_t first = 0, n;
    while ((n = rill__chunk_cut(rows, first, final))) {
        RILL_TRY_DATA(rill__chunk_encode(chunk, rows, first, n));
        RILL_TRY_DATA(rill__writer_add(w, chunk, rows->value + rows->start[first]));
        first += n;
    }
    rill__rows_drop(rows, first);
    return RILL_OK;
}

static rill_status complete(rill__writer *w, int base, uint64_t least_dim) {
    static const char zero[RILL_SLACK] = {0};
    rill__binary_header *h = &w->header;
    h->base = (uint32_t)base;
    /* Chunks have indices as written, the dimension counts from 0. */
    if (h->dim) h->dim -= (uint64_t)base;
    if (h->dim < least_dim) h->dim = least_dim;
    if (!h->dim) h->dim = 1;
    RILL_TRY_DATA(rill__output_write(w->out, zero, (8 - rill__output_bytes(w->out) % 8) % 8));
    h->chunks_offset = rill__output_bytes(w->out);
    RILL_TRY_DATA(rill__output_append(w->out, w->chunks));
    h->directory_offset = rill__output_bytes(w->out);
    for (uint64_t i = 0; i < h->chunks; i++)
        w->directory[i].offset += h->chunks_offset;
    size_t bytes = (size_t)h->chunks * sizeof *w->directory;
    h->directory_hash = rill__data_hash(w->directory, bytes);
    RILL_TRY_DATA(rill__output_write(w->out, w->directory, bytes));
    RILL_TRY_DATA(rill__output_write(w->out, zero, sizeof zero));
    h->file_bytes = rill__output_bytes(w->out);
    h->hash = rill__data_hash(h, offsetof(rill__binary_header, hash));
    return rill__output_rewrite(w->out, 0, h, sizeof *h);
}

rill_status rill__writer_close(rill__writer *w, int base, uint64_t least_dim, bool failed,
                               uint64_t *bytes) {
    if (!w->out) return RILL_OK;
    rill_status status = failed ? RILL_OK : complete(w, base, least_dim);
    if (bytes) *bytes = w->header.file_bytes;
    rill__output_close(w->chunks, false);
    rill_status closed = rill__output_close(w->out, !failed && status == RILL_OK);
    free(w->directory);
    *w = (rill__writer){0};
    return status == RILL_OK ? closed : status;
}
