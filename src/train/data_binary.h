/* The binary form, inside: what reading and writing share. */
#ifndef RILL_TRAIN_DATA_BINARY_H
#define RILL_TRAIN_DATA_BINARY_H

#include "train/data_internal.h"

/* A reader takes chunks of more rows than the writer makes. */
#define RILL__CHUNK_MOST_ROWS (UINT32_C(1) << 24)

uint64_t rill__data_hash(const void *, size_t bytes); /* xxHash64, seed 0 */
const char *rill__chunk_codec(unsigned id);           /* NULL: unknown */

/* Labels and row lengths of a chunk, in bytes, and queries where it has them. */
static inline uint64_t rill__chunk_lengths(uint64_t rows) {
    return rows * sizeof(double) + (rows * sizeof(uint32_t) + 7) / 8 * 8;
}
static inline uint64_t rill__chunk_fixed(uint64_t rows, bool queries) {
    return rill__chunk_lengths(rows) + (queries ? rows * sizeof(int64_t) : 0);
}

#endif
