/* Rows in CSR form that grow, and the sort of one row.
 *
 * Idea: rows that come unsorted are rare, and hashed rows are short, so one stable radix sort by
 * bytes (LSD, only over the bytes in which the keys differ) serves both; values of equal keys meet
 * in the order in which they were given and are added.
 * Memory: 4 or 8 bytes per index, 4 per value, 16 per row; scratch of 24 bytes per entry of the
 * longest row that was sorted. Cost: O(bytes that differ * (n + 256)) per sorted row.
 */
#include "train/data_internal.h"

#include <stdlib.h>
#include <string.h>

static bool grow(void **data, uint64_t count, size_t width) {
    size_t bytes;
    if (__builtin_mul_overflow(count, width, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)RILL_SLACK, &bytes))
        return false;
    void *moved = realloc(*data, bytes);
    if (moved) *data = moved;
    return moved != NULL;
}

static uint64_t room_for(uint64_t used, uint64_t more, uint64_t room) {
    uint64_t needed = used + more, grown = room + room / 4 + 64;
    return needed > grown ? needed : grown;
}

rill_status rill__rows_reserve(rill__rows *r, uint64_t more_rows, uint64_t more_entries) {
    bool ok = true;
    if (!r->start || more_rows > r->row_room - r->rows) {
        uint64_t room = room_for(r->rows, more_rows, r->row_room);
        bool first = !r->start;
        ok = grow((void **)&r->start, room + 1, sizeof *r->start) &&
             grow((void **)&r->label, room, sizeof *r->label) &&
             (!r->qid || grow((void **)&r->qid, room, sizeof *r->qid));
        for (uint64_t i = r->row_room; ok && r->qid && i < room; i++)
            r->qid[i] = RILL_NO_QID;
        if (ok) r->row_room = room;
        if (ok && first) r->start[0] = 0;
    }
    if (ok && (!r->index || more_entries > r->entry_room - r->entries)) {
        uint64_t room = room_for(r->entries, more_entries, r->entry_room);
        ok = grow(&r->index, room, r->wide ? 8 : 4) &&
             (r->borrowed || grow((void **)&r->value, room, sizeof *r->value));
        if (ok) r->entry_room = room;
    }
    if (ok) return RILL_OK;
    return rill__data_fail(RILL_ERR_MEMORY, "out of memory: %llu rows with %llu entries",
                           (unsigned long long)(r->rows + more_rows),
                           (unsigned long long)(r->entries + more_entries));
}

rill_status rill__rows_set_qid(rill__rows *r, int64_t qid) {
    if (!r->qid) {
        if (qid == RILL_NO_QID) return RILL_OK;
        if (!grow((void **)&r->qid, r->row_room, sizeof *r->qid))
            return rill__data_memory("queries");
        for (uint64_t i = 0; i < r->row_room; i++)
            r->qid[i] = RILL_NO_QID;
    }
    r->qid[r->rows] = qid;
    return RILL_OK;
}

rill_status rill__rows_widen(rill__rows *r) {
    if (r->wide) return RILL_OK;
    if (!grow(&r->index, r->entry_room, 8))
        return rill__data_fail(RILL_ERR_MEMORY, "out of memory: %llu indices of 64 bits",
                               (unsigned long long)r->entry_room);
    uint64_t *wide = r->index;
    const uint32_t *narrow = r->index;
    for (uint64_t i = r->entries; i-- > 0;) { /* from the end: both live in the same array */
        uint32_t index;
        memcpy(&index, narrow + i, 4);
        memcpy(wide + i, &(uint64_t){index}, 8);
    }
    r->wide = true;
    return RILL_OK;
}

void rill__rows_narrow(rill__rows *r) {
    if (!r->wide || r->mapped) return;
    char *bytes = r->index;
    for (uint64_t i = 0; i < r->entries; i++) {
        uint64_t index;
        memcpy(&index, bytes + 8 * i, 8);
        memcpy(bytes + 4 * i, &(uint32_t){(uint32_t)index}, 4);
    }
    r->wide = false;
    r->entry_room = r->entries;
    grow(&r->index, r->entry_room, 4);
    if (!r->borrowed) grow((void **)&r->value, r->entry_room, sizeof *r->value);
}

void rill__rows_trim(rill__rows *r) {
    if (!r->start || r->mapped) return;
    grow((void **)&r->start, r->rows + 1, sizeof *r->start);
    grow((void **)&r->label, r->rows, sizeof *r->label);
    if (r->qid) grow((void **)&r->qid, r->rows, sizeof *r->qid);
    r->row_room = r->rows;
    grow(&r->index, r->entries, r->wide ? 8 : 4);
    if (!r->borrowed) grow((void **)&r->value, r->entries, sizeof *r->value);
    r->entry_room = r->entries;
    free(r->key);
    r->key = NULL;
    r->scratch_room = 0;
}

void rill__rows_free(rill__rows *r) {
    if (r->mapped) {
        free(r->key);
        *r = (rill__rows){0};
        return;
    }
    free(r->start);
    free(r->index);
    if (!r->borrowed) free(r->value);
    free(r->label);
    free(r->qid);
    free(r->key);
    *r = (rill__rows){0};
}

uint64_t rill__rows_bytes(const rill__rows *r) {
    uint64_t bytes = r->scratch_room * 24;
    if (r->mapped) return bytes;
    if (r->start) bytes += (r->row_room + 1) * 8 + r->row_room * 8 + 2 * RILL_SLACK;
    if (r->qid) bytes += r->row_room * 8 + RILL_SLACK;
    if (r->index) bytes += r->entry_room * (r->wide ? 8 : 4) + RILL_SLACK;
    if (r->value && !r->borrowed) bytes += r->entry_room * 4 + RILL_SLACK;
    return bytes;
}

void rill__rows_drop(rill__rows *r, uint64_t first) {
    if (!first) return;
    uint64_t gone = r->start[first], width = r->wide ? 8 : 4;
    r->rows -= first;
    r->entries -= gone;
    memmove(r->index, (char *)r->index + gone * width, r->entries * width);
    memmove(r->value, r->value + gone, r->entries * sizeof *r->value);
    memmove(r->label, r->label + first, r->rows * sizeof *r->label);
    for (uint64_t i = 0; r->qid && i < r->row_room; i++)
        r->qid[i] = i < r->rows ? r->qid[i + first] : RILL_NO_QID;
    for (uint64_t i = 0; i <= r->rows; i++)
        r->start[i] = r->start[i + first] - gone;
}

rill_status rill__rows_scratch(rill__rows *r, size_t n) {
    if (n <= r->scratch_room) return RILL_OK;
    size_t room = n + n / 2 + 64, bytes;
    uint64_t *moved = NULL;
    if (!__builtin_mul_overflow(room, (size_t)24, &bytes)) moved = malloc(bytes);
    if (!moved)
        return rill__data_fail(RILL_ERR_MEMORY, "out of memory: sorting a row of %zu entries", n);
    free(r->key);
    r->key = moved;
    r->scratch_room = room;
    return RILL_OK;
}

/* One pass by the byte at shift. */
static void sort_by_byte(const uint64_t *key, const float *value, size_t n, unsigned shift,
                         uint64_t *key_out, float *value_out) {
    size_t at[256] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++)
        at[key[i] >> shift & 255]++;
    for (unsigned b = 0; b < 256; b++) {
        size_t count = at[b];
        at[b] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++) {
        size_t to = at[key[i] >> shift & 255]++;
        key_out[to] = key[i];
        value_out[to] = value[i];
    }
}

uint64_t rill__rows_merge(rill__rows *r, size_t n, uint64_t at) {
    uint64_t *key = r->key, *other_key = key + r->scratch_room, differ = 0;
    float *value = rill__rows_scratch_value(r), *other_value = value + r->scratch_room;
    for (size_t i = 1; i < n; i++)
        differ |= key[i] ^ key[0];
    for (unsigned shift = 0; shift < 64; shift += 8)
        if (differ >> shift & 255) {
            sort_by_byte(key, value, n, shift, other_key, other_value);
            uint64_t *swap_key = key;
            float *swap_value = value;
            key = other_key, other_key = swap_key;
            value = other_value, other_value = swap_value;
        }
    uint64_t out = at;
    for (size_t i = 0; i < n; i++) {
        if (i && key[i] == key[i - 1]) {
            r->value[out - 1] += value[i];
            continue;
        }
        rill__rows_set_index(r, out, key[i]);
        r->value[out++] = value[i];
    }
    return out - at;
}
