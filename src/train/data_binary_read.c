/* The binary form of a data set, reading.
 *
 * Idea: all values lie in one run of the file and are used where they are mapped; labels, row
 * lengths and coded indices lie in chunks of rows. In a chunk the key row * stride + index, with
 * the row counted from the start of the chunk and a stride above its largest index, ascends over
 * all rows, so that one call of rill_indices_decode serves the chunk, 4 bytes a key where rows *
 * stride <= 2^32. Layout:
 *     header (128 bytes) | values | chunks | directory | RILL_SLACK zero bytes
 *     chunk: labels (double) | row lengths (uint32), padded to 8 | queries (int64), in version 2
 *         where a row has one | indices, padded to 8
 * Header, directory, each chunk and the values of each chunk have an xxHash64.
 * Restriction: little-endian machines; a row of less than 2^32 entries.
 * Memory: the rows without their values, and one chunk of keys. Cost: one pass over the bytes for
 * the hashes, one decode, one subtraction per index.
 */
#define XXH_INLINE_ALL
#include "train/data_binary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

_Static_assert(sizeof(rill__binary_header) == 128 && sizeof(rill__chunk_entry) == 64,
               "structures are the format");

uint64_t rill__data_hash(const void *data, size_t bytes) { return XXH64(data, bytes, 0); }

static const char *const codecs[] = {"raw", "bitpack", "elias_fano", "bitmap"};
const char *rill__chunk_codec(unsigned id) {
    return id < sizeof codecs / sizeof *codecs ? codecs[id] : NULL;
}

static rill_status bad(const rill__binary *b, const char *what) {
    return rill__data_fail(RILL_ERR_IO, "%s: not a valid binary data set: %s", b->path, what);
}
static rill_status bad_chunk(const rill__binary *b, uint64_t chunk, const char *what) {
    return rill__data_fail(RILL_ERR_IO, "%s: chunk %llu of %llu: %s", b->path,
                           (unsigned long long)chunk, (unsigned long long)b->header.chunks, what);
}

static rill_status check_header(const rill__binary *b) {
    const rill__binary_header *h = &b->header;
    uint16_t one = 1;
    if (*(const uint8_t *)&one != 1) return bad(b, "this machine is not little-endian");
    if (memcmp(h->magic, RILL__BINARY_MAGIC, 8) != 0)
        return bad(b, "it does not start with RILLDATA");
    if (h->hash != rill__data_hash(h, offsetof(rill__binary_header, hash)))
        return bad(b, "the header's checksum is wrong");
    if (h->version != RILL__BINARY_VERSION && h->version != RILL__BINARY_PLAIN)
        return rill__data_fail(RILL_ERR_IO, "%s: version %u; this library reads versions up to %d",
                               b->path, h->version, RILL__BINARY_VERSION);
    if (h->file_bytes != b->bytes)
        return rill__data_fail(RILL_ERR_IO, "%s: has %llu bytes instead of %llu: truncated?",
                               b->path, (unsigned long long)b->bytes,
                               (unsigned long long)h->file_bytes);
    if (h->base > 1) return bad(b, "the index base is not 0 or 1");
    if (!h->rows) return bad(b, "it has no rows");
    if (!h->dim || h->dim > RILL__INDEX_LIMIT) return bad(b, "the dimension is out of range");
    /* Sizes are compared by division, since a product could wrap. */
    if (h->values_offset != sizeof *h || h->chunks_offset < h->values_offset ||
        (h->chunks_offset - h->values_offset) / 4 < h->entries || h->chunks_offset % 8 ||
        h->chunks_offset > h->directory_offset || h->directory_offset > b->bytes ||
        h->directory_offset % 8 || b->bytes - h->directory_offset < RILL_SLACK ||
        (b->bytes - h->directory_offset - RILL_SLACK) % sizeof(rill__chunk_entry) ||
        (b->bytes - h->directory_offset - RILL_SLACK) / sizeof(rill__chunk_entry) != h->chunks)
        return bad(b, "offsets and sizes contradict each other");
    return RILL_OK;
}

/* Sizes of the parts of a payload; false if they can't be. */
static bool chunk_fits(const rill__binary *b, const rill__chunk_entry *c) {
    const rill__binary_header *h = &b->header;
    if (c->queries > (h->version != RILL__BINARY_PLAIN)) return false;
    uint64_t fixed = rill__chunk_fixed(c->rows, c->queries);
    if (!c->rows || c->rows > RILL__CHUNK_MOST_ROWS || c->entries > h->entries) return false;
    if (c->offset < h->chunks_offset || c->offset % 8 || c->offset > h->directory_offset ||
        c->size > h->directory_offset - c->offset || c->size % 8)
        return false;
    if (c->index_size > c->size || c->size < fixed ||
        c->size - fixed != (c->index_size + 7) / 8 * 8)
        return false;
    if (c->index_bytes != 4 && c->index_bytes != 8) return false;
    if (!rill__chunk_codec(c->codec)) return false;
    if (!c->entries) return c->index_size == 0;
    uint64_t most = c->index_bytes == 4 ? RILL__NARROW_DIM : RILL__INDEX_LIMIT;
    return c->stride && c->stride <= most / c->rows && c->stride <= h->dim + h->base &&
           c->entries <= c->stride * c->rows;
}

static rill_status check_directory(const rill__binary *b) {
    const rill__binary_header *h = &b->header;
    size_t bytes = (size_t)h->chunks * sizeof *b->chunk;
    if (h->directory_hash != rill__data_hash(b->chunk, bytes))
        return bad(b, "the directory's checksum is wrong");
    uint64_t rows = 0, entries = 0, offset = h->chunks_offset;
    for (uint64_t i = 0; i < h->chunks; i++) {
        const rill__chunk_entry *c = &b->chunk[i];
        if (!chunk_fits(b, c) || c->offset != offset || c->entries > h->entries - entries ||
            c->rows > h->rows - rows)
            return bad_chunk(b, i, "its entry in the directory is malformed");
        rows += c->rows;
        entries += c->entries;
        offset += c->size;
    }
    if (rows != h->rows || entries != h->entries || offset != h->directory_offset)
        return bad(b, "the chunks do not add up to the header's sizes");
    return RILL_OK;
}

rill_status rill__binary_open(rill__binary *b, const char *path, void *data, uint64_t bytes) {
    *b = (rill__binary){.data = data, .bytes = bytes, .path = path};
    if (bytes < sizeof b->header + RILL_SLACK) return bad(b, "it is too short");
    memcpy(&b->header, data, sizeof b->header);
    RILL_TRY_DATA(check_header(b));
    b->chunk = (const rill__chunk_entry *)(const void *)(b->data + b->header.directory_offset);
    return check_directory(b);
}

/* No NaN, no infinity. */
static bool all_finite(const float *value, uint64_t n) {
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, value + i, 4);
        any |= (bits & UINT32_C(0x7F800000)) == UINT32_C(0x7F800000);
    }
    return !any;
}

/* Keys of one row to indices from 0; false if one is outside of the row. */
#define UNKEY(NAME, KEY, INDEX)                                                                    \
    static bool NAME(const KEY *key, uint64_t n, uint64_t first, uint64_t stride, uint64_t base,   \
                     INDEX *index) {                                                               \
        if (n && (key[0] < first + base || key[n - 1] - first >= stride)) return false;            \
        KEY shift = (KEY)(first + base);                                                           \
        for (uint64_t i = 0; i < n; i++)                                                           \
            index[i] = (INDEX)(key[i] - shift);                                                    \
        return true;                                                                               \
    }
UNKEY(unkey_4_to_4, uint32_t, uint32_t)
UNKEY(unkey_4_to_8, uint32_t, uint64_t)
UNKEY(unkey_8_to_4, uint64_t, uint32_t)
UNKEY(unkey_8_to_8, uint64_t, uint64_t)

static bool unkey(const rill__chunk_entry *c, const void *key, uint64_t at, uint64_t n,
                  uint64_t first, uint64_t base, rill__rows *rows, uint64_t to) {
    if (c->index_bytes == 4) {
        const uint32_t *from = (const uint32_t *)key + at;
        return rows->wide
                   ? unkey_4_to_8(from, n, first, c->stride, base, (uint64_t *)rows->index + to)
                   : unkey_4_to_4(from, n, first, c->stride, base, (uint32_t *)rows->index + to);
    }
    const uint64_t *from = (const uint64_t *)key + at;
    return rows->wide ? unkey_8_to_8(from, n, first, c->stride, base, (uint64_t *)rows->index + to)
                      : unkey_8_to_4(from, n, first, c->stride, base, (uint32_t *)rows->index + to);
}

static rill_status decode_keys(const rill__binary *b, uint64_t chunk, void *key) {
    const rill__chunk_entry *c = &b->chunk[chunk];
    const uint8_t *payload = b->data + c->offset;
    if (c->hash != rill__data_hash(payload, c->size))
        return bad_chunk(b, chunk, "its checksum is wrong");
    if (!c->entries) return RILL_OK;
    if (rill_indices_decode(rill__chunk_codec(c->codec), c->index_bytes,
                            payload + rill__chunk_fixed(c->rows, c->queries), c->index_size,
                            c->entries, 0, c->stride * c->rows, key) != RILL_OK)
        return bad_chunk(b, chunk, "its indices are malformed");
    return RILL_OK;
}

/* The pages of a chunk that has been decoded: those of a file's map count as memory of the process
 * while they are there. A few before it may have come back with the first of these. */
static void give_back(const rill__binary *b, const rill__chunk_entry *c) {
    const uint64_t around = 1 << 16;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = b->header.chunks_offset;
    if (c->offset - from > around) from = c->offset - around;
    from = (from + page - 1) / page * page;
    uint64_t to = (c->offset + c->size) / page * page;
    if (b->from_file && to > from) madvise(b->data + from, (size_t)(to - from), MADV_DONTNEED);
}

/* Appends the rows [skip, skip + take) of a chunk. */
static rill_status take_rows(const rill__binary *b, uint64_t chunk, uint64_t skip, uint64_t take,
                             const void *key, rill__rows *rows) {
    const rill__chunk_entry *c = &b->chunk[chunk];
    const double *label = (const double *)(const void *)(b->data + c->offset);
    const uint32_t *length = (const uint32_t *)(const void *)(label + c->rows);
    const uint8_t *queries = b->data + c->offset + rill__chunk_lengths(c->rows);
    uint64_t at = 0;
    for (uint64_t i = 0; i < c->rows; i++) {
        uint64_t n = length[i];
        if (n > c->entries - at) return bad_chunk(b, chunk, "its rows do not add up");
        if (i >= skip && i < skip + take) {
            if (!isfinite(label[i])) return bad_chunk(b, chunk, "a label is not finite");
            if (!unkey(c, key, at, n, i * c->stride, b->header.base, rows, rows->entries))
                return bad_chunk(b, chunk, "an index is outside of its row");
            rows->entries += n;
            if (c->queries)
                RILL_TRY_DATA(
                    rill__rows_set_qid(rows, ((const int64_t *)(const void *)queries)[i]));
            rows->label[rows->rows++] = label[i];
            rows->start[rows->rows] = rows->entries;
        }
        at += n;
    }
    return at == c->entries ? RILL_OK : bad_chunk(b, chunk, "its rows do not add up");
}

/* The entries in the rows [from, to) of a chunk, for reserving; row lengths are not checked yet. */
static uint64_t count_entries(const rill__binary *b, uint64_t chunk, uint64_t from, uint64_t to) {
    const rill__chunk_entry *c = &b->chunk[chunk];
    const uint32_t *length = (const uint32_t *)(const void *)(b->data + c->offset +
                                                              c->rows * sizeof(double));
    uint64_t sum = 0;
    for (uint64_t i = from; i < to; i++)
        sum += length[i];
    return sum;
}

static uint64_t overlap(uint64_t first, uint64_t count, uint64_t at, uint64_t rows,
                        uint64_t *skip) {
    uint64_t from = first > at ? first : at;
    uint64_t to = first + count < at + rows ? first + count : at + rows;
    *skip = from - at;
    return to > from ? to - from : 0;
}

/* Room for the rows, and in *keys the most keys of one of their chunks, in bytes. */
static rill_status prepare(const rill__binary *b, uint64_t first, uint64_t count, rill__rows *rows,
                           size_t *keys) {
    uint64_t entries = 0, at = 0, skip;
    *keys = 0;
    for (uint64_t i = 0; i < b->header.chunks; i++) {
        const rill__chunk_entry *c = &b->chunk[i];
        uint64_t take = overlap(first, count, at, c->rows, &skip);
        at += c->rows;
        if (!take) continue;
        uint64_t part = take == c->rows ? c->entries : count_entries(b, i, skip, skip + take);
        if (part > c->entries) return bad_chunk(b, i, "its rows do not add up");
        entries += part;
        if (c->entries * c->index_bytes > *keys) *keys = (size_t)(c->entries * c->index_bytes);
    }
    rows->wide = b->header.dim > RILL__NARROW_DIM;
    rows->borrowed = true;
    rows->value = (float *)(void *)(b->data + b->header.values_offset);
    return rill__rows_reserve(rows, count, entries);
}

rill_status rill__binary_rows(const rill__binary *b, uint64_t first, uint64_t count,
                              rill__rows *rows) {
    size_t key_bytes;
    RILL_TRY_DATA(prepare(b, first, count, rows, &key_bytes));
    void *key = malloc(key_bytes + RILL_SLACK);
    rill_status status = key ? RILL_OK
                             : rill__data_fail(RILL_ERR_MEMORY, "out of memory: %zu bytes of keys",
                                               key_bytes);
    const float *value = rows->value;
    uint64_t at = 0, entry = 0, skip;
    for (uint64_t i = 0; i < b->header.chunks && status == RILL_OK; i++) {
        const rill__chunk_entry *c = &b->chunk[i];
        uint64_t take = overlap(first, count, at, c->rows, &skip);
        if (take) {
            if (c->values_hash != rill__data_hash(value + entry, c->entries * sizeof *value))
                status = bad_chunk(b, i, "the checksum of its values is wrong");
            else if (!all_finite(value + entry, c->entries))
                status = bad_chunk(b, i, "a value is not finite");
            else status = decode_keys(b, i, key);
            bool starts = !rows->rows;
            if (status == RILL_OK) status = take_rows(b, i, skip, take, key, rows);
            if (status == RILL_OK && starts) /* the first row's place in the run of values */
                rows->value += entry + count_entries(b, i, 0, skip);
            give_back(b, c);
        }
        at += c->rows;
        entry += c->entries;
    }
    free(key);
    return status;
}
