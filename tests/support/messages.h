/* Valid messages of every form, small: for tests of the decoder and as seeds of its fuzzer. */
#ifndef RILL_TESTS_MESSAGES_H
#define RILL_TESTS_MESSAGES_H

#include "req/message.h"
#include "stream/blocks.h"

#include <stdlib.h>
#include <string.h>

/* What the sample messages are for. */
static inline rill__expect sample_expect(rill_type type, uint64_t dim) {
    return (rill__expect){.collective = RILL_ALLREDUCE,
                          .type = (uint8_t)type,
                          .algorithm = 11,
                          .op = 22,
                          .seq = 33,
                          .dim = dim};
}
static inline rill__header sample_header(const rill__expect *e) {
    return (rill__header){.magic = RILL__MAGIC,
                          .version = RILL__VERSION,
                          .collective = e->collective,
                          .algorithm = e->algorithm,
                          .op = e->op,
                          .seq = e->seq,
                          .dim = e->dim,
                          /* in the short layout; without, the bare one */
                          .nnz_sum = e->type == RILL_F16 ? 5 : 0};
}

/* count entries of a stream of that dimension, from first on, every third index. Returns a block
 * of *size bytes with slack, to be freed. */
static inline void *sample_sparse(const rill__index_codec *codec, rill_type type, uint64_t dim,
                                  uint64_t first, uint64_t count, size_t *size) {
    rill__expect e = sample_expect(type, dim);
    rill__header h = sample_header(&e);
    rill__shape shape = {type, rill__index_bytes(dim)};
    char *idx = rill__aligned_alloc(count * 8 + 8), *val = rill__aligned_alloc(count * 8 + 8);
    if (!idx || !val) abort();
    memset(val, 0x3C, count * 8 + 8);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t wide = first + 3 * i;
        uint32_t narrow = (uint32_t)wide;
        memcpy(idx + i * shape.index_bytes,
               shape.index_bytes == 8 ? (void *)&wide : (void *)&narrow, shape.index_bytes);
    }
    rill__part part = {RILL__SPARSE, first, dim - first, count, idx, val, 0, NULL};
    void *out = rill__aligned_alloc(
        rill__message_bound(shape, &(rill__coding){.index = codec, .value = &rill__value_raw},
                            &part));
    if (!out) abort();
    *size = rill__message_encode(&h, shape,
                                 &(rill__coding){.index = codec, .value = &rill__value_raw}, &part,
                                 out);
    free(idx);
    free(val);
    return out;
}
/* n blocks of that size from block first on, every second one up to the end of the dimension. */
static inline void *sample_blocks(const rill__index_codec *codec, rill_type type, uint64_t dim,
                                  uint64_t block, uint64_t first, uint64_t n, size_t *size) {
    rill__expect e = sample_expect(type, dim);
    rill__header h = sample_header(&e);
    uint64_t *numbers = rill__aligned_alloc(n * 8 + 8), have = rill__blocks_in(dim, block);
    void *val = rill__aligned_alloc(n * block * 8 + 8);
    if (!numbers || !val) abort();
    memset(val, 0x3C, n * block * 8 + 8);
    for (uint64_t i = 0; i < n; i++)
        numbers[i] = have - 1 - 2 * (n - 1 - i);
    uint64_t start = first * block;
    rill__part part = {RILL__BLOCKS, start,
                       dim - start,  rill__block_entries(block, n, have - 1, dim),
                       numbers,      val,
                       block,        NULL};
    rill__shape shape = {type, rill__index_bytes(dim)};
    rill__coding coding = {.index = codec, .value = &rill__value_raw};
    void *out = rill__aligned_alloc(rill__message_bound(shape, &coding, &part));
    if (!out) abort();
    *size = rill__message_encode(&h, shape, &coding, &part, out);
    free(numbers);
    free(val);
    return out;
}
static inline void *sample_dense(rill_type type, uint64_t dim, uint64_t first, uint64_t range,
                                 size_t *size) {
    rill__expect e = sample_expect(type, dim);
    rill__header h = sample_header(&e);
    rill__shape shape = {type, rill__index_bytes(dim)};
    void *val = rill__aligned_alloc(range * 8 + 8);
    if (!val) abort();
    memset(val, 0x3C, range * 8 + 8);
    rill__part part = {RILL__DENSE, first, range, range, NULL, val, 0, NULL};
    void *out = rill__aligned_alloc(rill__message_bound(
        shape, &(rill__coding){.index = &rill__codec_raw, .value = &rill__value_raw}, &part));
    if (!out) abort();
    *size = rill__message_encode(&h, shape,
                                 &(rill__coding){.index = &rill__codec_raw,
                                                 .value = &rill__value_raw},
                                 &part, out);
    free(val);
    return out;
}
/* A header of that form followed by bytes of payload. */
static inline void *sample_other(rill__message_form form, uint64_t count, int status,
                                 const void *payload, size_t bytes, size_t *size) {
    rill__expect e = sample_expect(RILL_F32, 100);
    rill__header h = sample_header(&e);
    h.form = (uint8_t)form;
    h.count = count;
    h.status = (int16_t)status;
    h.value_size = bytes;
    char *out = rill__aligned_alloc(sizeof h + bytes);
    if (!out) abort();
    memcpy(out, &h, sizeof h);
    if (bytes) memcpy(out + sizeof h, payload, bytes);
    *size = sizeof h + bytes;
    return out;
}
/* Two messages in one. */
static inline void *sample_bundle(size_t *size) {
    size_t a, b;
    void *sparse = sample_sparse(&rill__codec_raw, RILL_F32, 100, 0, 5, &a);
    void *dense = sample_dense(RILL_F32, 100, 90, 9, &b);
    size_t bytes = rill__align8(a) + rill__align8(b);
    char *payload = calloc(1, bytes);
    if (!payload) abort();
    memcpy(payload, sparse, a);
    memcpy(payload + rill__align8(a), dense, b);
    void *out = sample_other(RILL__M_BUNDLE, 2, 0, payload, bytes, size);
    free(sparse);
    free(dense);
    free(payload);
    return out;
}

/* The i-th sample; NULL past the end. *expect is what a receiver of it waits for. */
static inline void *sample_message(int i, size_t *size, rill__expect *expect) {
    static const uint64_t wide = UINT64_C(1) << 40;
    const rill__index_codec *codec;
    *expect = sample_expect(RILL_F32, 100);
    switch (i) {
    case 0: return sample_bundle(size);
    case 1: return sample_other(RILL__M_AGREE, 3, 0, "123456781234567812345678", 24, size);
    case 2: return sample_other(RILL__M_FAILED, 0, RILL_ERR_MEMORY, "out of memory", 13, size);
    case 3: return sample_other(RILL__M_FAILED, 0, RILL_ERR_ARGUMENT, NULL, 0, size);
    case 4: return sample_dense(RILL_F32, 100, 0, 100, size);
    case 5: *expect = sample_expect(RILL_BF16, 7); return sample_dense(RILL_BF16, 7, 3, 3, size);
    case 6:
        *expect = sample_expect(RILL_F64, wide);
        return sample_dense(RILL_F64, wide, 9, 0, size);
    default: break;
    }
    codec = rill__index_codec_at((i - 7) / 9);
    if (!codec) return NULL;
    switch ((i - 7) % 9) {
    case 0: return sample_sparse(codec, RILL_F32, 100, 0, 0, size);
    case 1: return sample_sparse(codec, RILL_F32, 100, 50, 7, size);
    case 2:
        *expect = sample_expect(RILL_F16, 100);
        return sample_sparse(codec, RILL_F16, 100, 0, 33, size);
    case 3:
        *expect = sample_expect(RILL_F64, 1);
        return sample_sparse(codec, RILL_F64, 1, 0, 1, size);
    case 4:
        *expect = sample_expect(RILL_F32, UINT64_C(1) << 32);
        return sample_sparse(codec, RILL_F32, UINT64_C(1) << 32, (UINT64_C(1) << 32) - 20, 6, size);
    case 5: return sample_blocks(codec, RILL_F32, 100, 8, 5, 4, size);
    case 6: return sample_blocks(codec, RILL_F32, 100, 8, 0, 0, size);
    case 7:
        *expect = sample_expect(RILL_F64, wide);
        return sample_blocks(codec, RILL_F64, wide, 3, wide / 3 - 100, 40, size);
    default:
        *expect = sample_expect(RILL_BF16, wide);
        return sample_sparse(codec, RILL_BF16, wide, wide - 400, 130, size);
    }
}

#endif
