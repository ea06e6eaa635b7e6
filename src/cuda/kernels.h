/* The functions behind the table, each defined in the file of its kernels; cuda_space.h says
 * what they do. */
#ifndef RILL_CUDA_KERNELS_H
#define RILL_CUDA_KERNELS_H

#include "cuda_space.h"

/* Zeroes device memory, on the stream. */
int rill__cuda_zero(void *, size_t bytes, void *stream);
/* Multiprocessors of the current device. */
int rill__cuda_sms(uint32_t *sms);
/* Whether the kernels that run on the current device wait for the one before by themselves
 * (launch_after): those made from code for an earlier one do not, whatever the device is. */
int rill__cuda_waits_before(int *waits);
/* Lets a kernel have that much dynamic shared memory. */
int rill__cuda_shared_limit(const void *kernel, size_t bytes);
/* Nothing is selected; the gradient is added all the same. */
int rill__cuda_zero_found(const rill__cuda_select *, void *stream);

size_t rill__cuda_topk_workspace(int type, uint64_t n, uint64_t k);
int rill__cuda_topk(const rill__cuda_select *, uint64_t k, void *stream);
size_t rill__cuda_threshold_workspace(int type, uint64_t n);
int rill__cuda_threshold(const rill__cuda_select *, uint32_t key, void *stream);
size_t rill__cuda_bucket_workspace(int type, uint64_t n, uint32_t bucket);
int rill__cuda_bucket(const rill__cuda_select *, uint32_t bucket, uint32_t k, void *stream);
size_t rill__cuda_block_workspace(int type, uint64_t n, uint64_t block);
int rill__cuda_block(const rill__cuda_select *, uint64_t block, uint64_t want, void *stream);
int rill__cuda_random(const rill__cuda_select *, uint64_t k, uint64_t seed, uint64_t call,
                      void *stream);
int rill__cuda_add(int type, void *residual, const void *gradient, uint64_t n, int guards,
                   uint64_t *nonfinite, void *stream);

int rill__cuda_chunk(float *residual, const float *gradient, uint64_t n, uint32_t *out,
                     uint64_t *nonfinite, void *stream);
int rill__cuda_chunk_decode(const uint32_t *in, uint64_t n, int add, float *dense, void *stream);

size_t rill__cuda_update_workspace(uint64_t n);
int rill__cuda_update(int type, void *dense, uint64_t n, const uint32_t *idx, const void *val,
                      uint64_t count, void *workspace, void *stream);
int rill__cuda_scatter(int type, void *dense, const uint32_t *idx, const void *val, uint64_t count,
                       void *stream);
int rill__cuda_scatter_add(int type, void *dense, const uint32_t *idx, const void *val,
                           uint64_t count, void *stream);
int rill__cuda_scatter_add_where(int type, void *dense, const uint32_t *idx, const void *val,
                                 uint64_t count, const uint32_t *mask, uint64_t masked, int inside,
                                 void *stream);
int rill__cuda_clear_where(int type, void *dense, const uint32_t *idx, uint64_t count,
                           const uint32_t *mask, uint64_t masked, int inside, void *stream);
int rill__cuda_gather(int type, const void *dense, const uint32_t *idx, uint64_t count, void *val,
                      void *stream);
int rill__cuda_decay_add(int type, void *into, double factor, const void *from, uint64_t n,
                         void *stream);
int rill__cuda_scale(int type, void *into, double factor, const void *from, uint64_t n,
                     void *stream);
int rill__cuda_divide(int type, void *into, const void *from, double divisor, uint64_t n,
                      void *stream);
size_t rill__cuda_norm2_workspace(uint64_t n);
int rill__cuda_norm2(int type, const void *from, uint64_t n, double *sum, void *workspace,
                     void *stream);

int rill__cuda_to_f32(int type, const void *in, uint64_t n, float *out, void *stream);
int rill__cuda_from_f32(int type, const float *in, uint64_t n, void *out, void *stream);
size_t rill__cuda_qsgd_bytes(int bits, uint64_t n);
int rill__cuda_quantize(const rill__cuda_quant *, const float *values, uint64_t n, void *out,
                        void *stream);
int rill__cuda_quantize_fit(int bits, const float *exact, uint64_t n, void *encoded, void *stream);
int rill__cuda_dequantize(int bits, const void *in, uint64_t n, int add, float *values,
                          void *stream);
int rill__cuda_dequantize_scatter_add(int bits, const void *in, uint64_t n, const uint32_t *idx,
                                      float *dense, void *stream);

size_t rill__cuda_bitpack_workspace(uint64_t count);
int rill__cuda_bitpack(const uint32_t *idx, uint64_t count, uint64_t first, void *out,
                       uint64_t *bytes, void *workspace, void *stream);
int rill__cuda_bitunpack(const void *in, size_t in_bytes, uint64_t count, uint64_t first,
                         uint64_t range, uint32_t *idx, uint32_t *wrong, void *workspace,
                         void *stream);
size_t rill__cuda_elias_fano_workspace(uint64_t count, uint64_t range);
int rill__cuda_elias_fano(const uint32_t *idx, uint64_t count, uint64_t first, uint64_t range,
                          void *out, uint64_t *bytes, void *workspace, void *stream);
int rill__cuda_elias_fano_decode(const void *in, size_t in_bytes, uint64_t count, uint64_t first,
                                 uint64_t range, uint32_t *idx, uint32_t *wrong, void *workspace,
                                 void *stream);

int rill__cuda_clip(int type, void *into, double limit, const double *sum, const void *from,
                    uint64_t n, void *stream);
int rill__cuda_sketch_add(const rill__cuda_sketch *, const void *values, uint64_t n, void *cells,
                          void *stream);
int rill__cuda_sketch_estimate(const rill__cuda_sketch *, const void *cells, uint64_t first,
                               uint64_t n, double *median, double *mean, double *gap, void *stream);

int rill__cuda_each(int op, int type, void *into, const void *from, double factor, uint64_t n,
                    uint64_t *count, void *stream);
int rill__cuda_decay_add_finite(int type, void *into, double factor, const void *from, uint64_t n,
                                uint64_t *good, void *stream);
int rill__cuda_fill_value(int type, void *into, uint64_t bits, uint64_t n, void *stream);
int rill__cuda_least_key(int type, const void *values, uint64_t n, uint64_t *key, void *stream);
int rill__cuda_assign(int type, uint32_t index_bytes, void *into, uint64_t first, const void *idx,
                      const void *val, uint64_t count, void *stream);
int rill__cuda_write(int type, uint32_t index_bytes, void *into, uint64_t first, uint64_t n,
                     const void *idx, const void *val, uint64_t count, uint64_t *within,
                     void *stream);
int rill__cuda_shift(uint32_t index_bytes, void *into, uint32_t from_bytes, const void *from,
                     uint64_t first, uint64_t n, void *stream);
int rill__cuda_write_blocks(int type, void *into, uint64_t first, uint64_t n, uint64_t block,
                            uint64_t end, const uint64_t *numbers, const void *val, uint64_t count,
                            uint64_t *ended, void *stream);
int rill__cuda_add_blocks(int type, void *into, uint64_t block, const uint64_t *numbers,
                          const void *val, uint64_t count, void *stream);
int rill__cuda_mail_append(const rill__cuda_mail *, const rill__cuda_found *found,
                           const uint32_t *idx, const void *val, uint64_t first,
                           rill__cuda_found *total, void *stream);
int rill__cuda_mail_send(const rill__cuda_mail *, void *stream);
int rill__cuda_mail_apply(const rill__cuda_mail *, void *stream);
int rill__cuda_mail_done(const rill__cuda_mail *, void *stream);
int rill__cuda_tensors_add(int type, void *residual, const rill__cuda_tensors *, int guards,
                           uint64_t *nonfinite, void *stream);
int rill__cuda_tensors_subtract(int type, void *residual, const rill__cuda_tensors *,
                                const rill__cuda_reply *, void *stream);
int rill__cuda_tensors_write(int type, const rill__cuda_tensors *, const rill__cuda_pairs *,
                             void *stream);

size_t rill__cuda_rice_workspace(uint64_t count);
int rill__cuda_rice(const uint32_t *idx, uint64_t count, uint64_t first, void *out, uint64_t *bytes,
                    void *workspace, void *stream);
int rill__cuda_rice_decode(const void *in, size_t in_bytes, const uint64_t *chunk, uint64_t count,
                           uint64_t first, uint64_t range, uint32_t *idx, uint32_t *wrong,
                           void *workspace, void *stream);
int rill__cuda_take_indices(const uint32_t *in, uint64_t count, uint64_t first, uint64_t range,
                            uint32_t *idx, uint32_t *wrong, void *stream);
size_t rill__cuda_union_workspace(uint64_t dim);
int rill__cuda_union_begin(void *workspace, uint64_t dim, void *stream);
int rill__cuda_union_mark(void *workspace, uint64_t dim, const uint32_t *idx, uint64_t count,
                          uint32_t *wrong, void *stream);
int rill__cuda_union_count(void *workspace, uint64_t dim, uint64_t *total, void *stream);
int rill__cuda_union_list(void *workspace, uint64_t dim, uint32_t *idx, void *stream);
int rill__cuda_union_sum(int type, int wide, void *workspace, uint64_t dim, const uint32_t *idx,
                         const void *val, uint64_t count, void *sum, void *stream);

/* A kernel of each file, by which all of it are found (load in space.cu). */
#ifdef RILL_EMULATE
#define RILL_CUDA_ONE_OF_FILE(file, kernel)
#else
#define RILL_CUDA_ONE_OF_FILE(file, kernel)                                                        \
    const void *rill__cuda_one_of_##file() { return (const void *)kernel; }
#endif
const void *rill__cuda_one_of_block();
const void *rill__cuda_one_of_chunk();
const void *rill__cuda_one_of_dense();
const void *rill__cuda_one_of_finite();
const void *rill__cuda_one_of_indices();
const void *rill__cuda_one_of_mail();
const void *rill__cuda_one_of_methods();
const void *rill__cuda_one_of_rice();
const void *rill__cuda_one_of_sketch();
const void *rill__cuda_one_of_sparse();
const void *rill__cuda_one_of_tensors();
const void *rill__cuda_one_of_topk();
const void *rill__cuda_one_of_union();
const void *rill__cuda_one_of_values();

#endif
