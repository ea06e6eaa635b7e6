/* Codes of a message where a space has kernels for them: what host code does elsewhere (codec/),
 * to the bit. Messages lie in the host's memory, pairs in the space. */
#ifndef RILL_SPACE_CODES_H
#define RILL_SPACE_CODES_H

#include "space/codec_kernels.h"

typedef struct rill__space rill__space;

/* How indices and values are written: rows of codec/ say which of these they are. */
typedef enum rill__index_code {
    RILL__INDEX_NONE, /* no space has kernels for it */
    RILL__INDEX_RAW,
    RILL__INDEX_BITPACK,
    RILL__INDEX_ELIAS_FANO,
    RILL__INDEX_RICE
} rill__index_code;
typedef enum rill__value_code {
    RILL__VALUE_RAW,
    RILL__VALUE_F16,
    RILL__VALUE_BF16,
    RILL__VALUE_QSGD
} rill__value_code;
typedef struct rill__codes {
    rill__index_code index;
    rill__value_code value;
    int bits; /* QSGD: of a value */
} rill__codes;

/* Pairs to be written, with 4-byte indices in [first, first + range). */
typedef struct rill__encode_task {
    rill__codes codes;
    rill_type type;
    uint64_t n, first, range;
    const void *idx, *val;    /* in the space */
    size_t index_room;        /* most bytes that their indices take */
    size_t value_bytes;       /* of all values */
    rill__quant_stream quant; /* QSGD: the random numbers, */
    bool fits;                /* or coded anew, as close as can be */
    void *lost;         /* in the space: n values, what coding takes from them; NULL: nobody asks */
    char *out;          /* page-locked: the indices, zeros up to a multiple of 8, the values */
    size_t out_bytes;   /* result: of all */
    size_t index_bytes; /* result: with the zeros */
} rill__encode_task;

/* Pairs as they were written. The index codes' sizes are right as far as codec/ can tell without
 * decoding; the rest is checked here. */
typedef struct rill__coded_pairs {
    rill__codes codes;
    uint64_t n, first, range;
    const char *bytes; /* of the host: the indices with the zeros, and the values */
    size_t index_bytes, value_bytes;
    const uint64_t *chunk; /* RICE: where each begins, and the end; n_chunk numbers */
    uint64_t n_chunk;
} rill__coded_pairs;

/* Their sum, in two calls: the first tells how many entries it has. */
typedef struct rill__sum_task {
    rill_type type;
    uint64_t dim;
    int n;
    const rill__coded_pairs *list;
    bool tiles;       /* values are summed in order, 16-bit ones in f32; else by a tree of merges */
    uint64_t entries; /* result */
} rill__sum_task;

typedef struct rill__space_codes {
    /* Over on return. Failures but for want of memory and RILL_ERR_MESSAGE stay with the space. */
    rill_status (*encode)(const rill__space *, rill__encode_task *);
    rill_status (*sum_begin)(const rill__space *, rill__sum_task *);
    /* Nothing else is done in the space between the two. The sum is there for later operations; idx
     * and val have room for it. */
    rill_status (*sum_end)(const rill__space *, const rill__sum_task *, void *idx, void *val);
} rill__space_codes;

#endif
