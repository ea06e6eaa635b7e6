/* librill_cuda: kernels on device memory, behind one table of functions in plain C.
 *
 * Nothing of rill is needed to build it, and librill does not link it: it loads the library at
 * the first use of device memory and asks for the table by name:
 *     const rill__cuda_table *(*get)(void) = dlsym(library, RILL__CUDA_SYMBOL);
 *
 * Rules. Every call returns 0, or an error of CUDA whose words are in error_text. Work is queued
 * on `stream` (a cudaStream_t; NULL: the legacy stream) of the current device; calls allocate
 * nothing and wait for nothing, unless they say so. What a kernel needs besides its arguments is
 * a workspace of the caller: *_workspace gives its bytes, any contents will do, and it is free
 * again when the work is done. Pointers are to device memory and aligned to 16 bytes, unless
 * they say otherwise. Counts that only the device knows are results in device memory. Every
 * kernel gives the bits of its twin on the host; where a sum is not a number, any NaN will do.
 * Types are those of rill_type. Vectors have at most RILL__CUDA_MOST entries. */
#ifndef RILL_CUDA_SPACE_H
#define RILL_CUDA_SPACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RILL__CUDA_SYMBOL "rill__cuda_table_get"
#define RILL__CUDA_VERSION 8u
#define RILL__CUDA_MOST UINT64_C(0xfffffe00) /* indices have 32 bits */

enum { RILL__CUDA_F32 = 0, RILL__CUDA_F64 = 1, RILL__CUDA_F16 = 2, RILL__CUDA_BF16 = 3 };

/* What selection found: in device memory, written when it is done. */
typedef struct rill__cuda_found {
    uint64_t count;     /* pairs */
    uint64_t nonfinite; /* sums that are not finite; 0 without a gradient */
} rill__cuda_found;

/* What is selected from: dense alone; or residual, which is cleared where an entry is selected;
 * or residual after residual += gradient. guards: a sum that is not finite leaves the residual
 * as it was. idx ascends. f32, f16, bf16. */
typedef struct rill__cuda_select {
    int type;
    int guards;
    uint64_t n;
    const void *dense;
    void *residual;
    const void *gradient;
    uint32_t *idx;
    void *val;
    /* Pairs. threshold and block leave what is over where it is, and count it; the others need what
     * they can select. */
    uint64_t room;
    rill__cuda_found *found;
    void *workspace;
    size_t workspace_bytes;
} rill__cuda_select;

/* 64 of every 4,096 entries (f32), with 12 bits an index and 2 bits a value: 29 words a chunk.
 * Words 0 to 23: indices within the chunk, from the lowest bit up, ascending; an index that does
 * not ascend stands for no entry. Words 24 and 26: signs of entries 0 to 31 and 32 to 63; 25 and
 * 27: whether the level is the outer one; 28: that level (a float; 0: no entries). */
enum { RILL__CUDA_CHUNK = 4096, RILL__CUDA_CHUNK_KEEP = 64, RILL__CUDA_CHUNK_WORDS = 29 };

/* QSGD as codec/value_qsgd.c: the random numbers of a message. */
typedef struct rill__cuda_quant {
    uint32_t key[2], high[2]; /* rill__quant_stream */
    int bits;                 /* 8, 4, 2 */
    int l2;                   /* RILL__SCALE_L2 */
} rill__cuda_quant;

/* rill__sketch in plain words. */
enum { RILL__CUDA_SKETCH_ROWS = 15 };
typedef struct rill__cuda_sketch {
    int rows, wide; /* wide: cells are f64, else f32 */
    uint64_t entries, width, slots, scale;
    struct {
        uint64_t step, start, sign_factor, sign_offset;
    } row[RILL__CUDA_SKETCH_ROWS];
} rill__cuda_sketch;

/* Loops; factor and count where they say so. */
enum {
    RILL__CUDA_ADD,             /* into += from; count: sums that are not finite */
    RILL__CUDA_ADD_GUARDED,     /* the same; those leave into as it was */
    RILL__CUDA_DECAY_ADD,       /* into = factor into + from */
    RILL__CUDA_ADD_SCALED,      /* into += factor from */
    RILL__CUDA_SCALE,           /* into = factor from; count: results that are not finite */
    RILL__CUDA_DIVIDE,          /* into = from / factor; the same */
    RILL__CUDA_COUNT_NONFINITE, /* count: of from */
    RILL__CUDA_DROP_NONFINITE,  /* they become 0 in into; count */
    RILL__CUDA_SUBTRACT_FINITE, /* into -= from where that is finite; else, and as 0, what is not */
    RILL__CUDA_UNDECAY          /* the same, and then / factor */
};

/* Steps whose exchange the host does while the device's stream waits for it (mail.cu). All of the
 * device's work is queued ahead: what it will find to do is in page-locked memory by then.
 *
 * reply: which of the device's own pairs go back to the residual; the result, n pairs or n values;
 * and parts that go back as well, one after the other. Arrays are offsets in the inbox. */
enum { RILL__CUDA_OWN_NONE, RILL__CUDA_OWN_ALL, RILL__CUDA_OWN_OUTSIDE /* of the result's */ };
typedef struct rill__cuda_reply {
    uint32_t own;
    uint32_t undo;   /* the gradient is taken out of the residual again, where it is finite */
    uint32_t nan;    /* the update is bits everywhere; there is no result */
    uint32_t dense;  /* the result has values alone */
    uint32_t inside; /* of parts: entries whose index is in the result, which is one of pairs */
    uint32_t parts;
    uint64_t bits, n, idx, val;
    uint64_t list; /* of rill__cuda_part */
} rill__cuda_reply;
typedef struct rill__cuda_part {
    uint64_t dense; /* n values from first on; else pairs */
    uint64_t first, n, idx, val;
} rill__cuda_part;
/* What a steered threshold is steered by: the smallest key of the pairs, all ones where there are
 * none; and values left in the residual that reach the floor. */
typedef struct rill__cuda_seen {
    uint64_t least, above;
} rill__cuda_seen;
typedef struct rill__cuda_letter {
    /* Written by the device: the step whose pairs are in the outbox, and the last that is over. */
    uint32_t ready, done, unused[14];
    rill__cuda_found found;
    uint64_t least, above; /* rill__cuda_seen */
    uint64_t more[4];
    uint32_t flag, apart[15]; /* written by the host: the step that has its reply */
    rill__cuda_reply reply;
} rill__cuda_letter;
/* Tensors of any alignment that one after the other are a part of a vector: each begins there at
 * first, and the last ends at first[n]. None is empty. A launch takes so many. */
enum { RILL__CUDA_TENSORS = 128 };
typedef struct rill__cuda_tensors {
    uint64_t n;
    uint64_t first[RILL__CUDA_TENSORS + 1];
    uintptr_t at[RILL__CUDA_TENSORS];
} rill__cuda_tensors;
/* n pairs of the whole vector; or, with a reply, at most n that it has in the inbox, or values. */
typedef struct rill__cuda_pairs {
    uint64_t n;
    const uint32_t *idx;
    const void *val;
    const rill__cuda_reply *reply;
    const void *inbox;
} rill__cuda_pairs;
typedef struct rill__cuda_mail {
    int type; /* f32, f16, bf16 */
    uint32_t number;
    /* page-locked */
    rill__cuda_letter *letter;
    uint32_t *out_idx;
    void *out_val;
    const void *inbox;
    /* device memory */
    const rill__cuda_found *found;
    const uint32_t *idx;
    const void *val;
    uint64_t room; /* pairs, at most */
    /* Pairs whose key is below the floor go back in any case; 0: none. seen: NULL, nobody asks. */
    uint32_t floor;
    rill__cuda_seen *seen;
    const uint64_t *refused; /* more sums that are not finite; NULL: none */
    uint64_t most;           /* of a result: pairs, at most */
    rill__cuda_reply *reply;
    uint32_t *mask; /* a copy of the result's indices, up to mask_room; NULL: none is needed */
    uint64_t mask_room;
    int undoes, returns; /* what a reply may ask for */
    uint64_t n;
    void *residual;       /* any alignment, as are gradient and update */
    const void *gradient; /* NULL: in tensors, and so for the update; then others see to them */
    void *update;         /* may be gradient */
} rill__cuda_mail;

typedef struct rill__cuda_device {
    char name[256];
    int major, minor, multiprocessors;
    size_t memory, l2;
} rill__cuda_device;

typedef struct rill__cuda_table {
    size_t size;
    uint32_t version;
    int emulated; /* runs on the host: tests */

    /* ---- devices, memory, streams. These may wait ---- */
    const char *(*error_text)(int);
    int (*devices)(int *count);
    int (*device_get)(int *device);
    int (*device_set)(int device);
    /* For a thread of rill's own: the same; and its calls do not spoil what others capture. */
    int (*adopt)(int device);
    int (*device_info)(int device, rill__cuda_device *);
    int (*memory_used)(size_t *bytes); /* of the current device, by allocate_on of this process */
    int (*allocate)(size_t bytes, void **);
    int (*release)(void *);
    int (*allocate_host)(size_t bytes, void **); /* page-locked */
    int (*release_host)(void *);
    int (*device_of)(const void *pointer, int *device);                      /* -1: host memory */
    int (*range_of)(const void *pointer, const void **start, size_t *bytes); /* its allocation */
    int (*copy)(void *to, const void *from, size_t bytes, void *stream);
    int (*fill)(void *to, int byte, size_t bytes, void *stream);
    int (*stream_create)(void **stream);
    int (*stream_free)(void *stream);
    int (*stream_wait)(void *stream);
    int (*stream_capturing)(void *stream, int *capturing);
    int (*event_create)(void **event);
    int (*event_free)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_done)(void *event, int *done);
    int (*stream_wait_event)(void *stream, void *event);

    /* ---- selection ---- */
    size_t (*topk_workspace)(int type, uint64_t n, uint64_t k);
    int (*topk)(const rill__cuda_select *, uint64_t k, void *stream);
    size_t (*threshold_workspace)(int type, uint64_t n);
    int (*threshold)(const rill__cuda_select *, uint32_t key,
                     void *stream); /* keys as rill__key_from gives; at least 1 */
    size_t (*bucket_workspace)(int type, uint64_t n, uint32_t bucket);
    int (*bucket)(const rill__cuda_select *, uint32_t bucket, uint32_t k,
                  void *stream); /* bucket: up to 4,096 */
    size_t (*block_workspace)(int type, uint64_t n, uint64_t block);
    int (*block)(const rill__cuda_select *, uint64_t block, uint64_t want, void *stream);
    int (*random)(const rill__cuda_select *, uint64_t k, uint64_t seed, uint64_t call,
                  void *stream);
    /* residual += gradient; guards as above; *nonfinite, unless NULL, counts from 0. */
    int (*add)(int type, void *residual, const void *gradient, uint64_t n, int guards,
               uint64_t *nonfinite, void *stream);

    /* ---- 64 of 4,096: out has RILL__CUDA_CHUNK_WORDS words a chunk; what the code loses stays
     * in residual; sums that are not finite leave the residual as it was. decode: dense = 0
     * (unless add) and the entries ---- */
    int (*chunk)(float *residual, const float *gradient, uint64_t n, uint32_t *out,
                 uint64_t *nonfinite, void *stream);
    int (*chunk_decode)(const uint32_t *in, uint64_t n, int add, float *dense, void *stream);

    /* ---- dense vectors ---- */
    size_t (*update_workspace)(uint64_t n);
    /* dense = 0 but for the pairs, whose indices ascend. count: on the host. */
    int (*update)(int type, void *dense, uint64_t n, const uint32_t *idx, const void *val,
                  uint64_t count, void *workspace, void *stream);
    int (*scatter)(int type, void *dense, const uint32_t *idx, const void *val, uint64_t count,
                   void *stream);
    int (*scatter_add)(int type, void *dense, const uint32_t *idx, const void *val, uint64_t count,
                       void *stream);
    /* The same for the pairs whose index is (inside), or is not, among the ascending mask; and
     * zeros in their place. */
    int (*scatter_add_where)(int type, void *dense, const uint32_t *idx, const void *val,
                             uint64_t count, const uint32_t *mask, uint64_t masked, int inside,
                             void *stream);
    int (*clear_where)(int type, void *dense, const uint32_t *idx, uint64_t count,
                       const uint32_t *mask, uint64_t masked, int inside, void *stream);
    int (*gather)(int type, const void *dense, const uint32_t *idx, uint64_t count, void *val,
                  void *stream);
    /* into = factor * into + from (momentum); into = factor * from (clipping); into = from /
     * divisor (mean). f64 too. */
    int (*decay_add)(int type, void *into, double factor, const void *from, uint64_t n,
                     void *stream);
    int (*scale)(int type, void *into, double factor, const void *from, uint64_t n, void *stream);
    int (*divide)(int type, void *into, const void *from, double divisor, uint64_t n, void *stream);
    /* *sum: the squares in a fixed tree (cuda_math.h), in double. clip: into = from, scaled down
     * where the norm is over limit. */
    size_t (*norm2_workspace)(uint64_t n);
    int (*norm2)(int type, const void *from, uint64_t n, double *sum, void *workspace,
                 void *stream);
    int (*clip)(int type, void *into, double limit, const double *sum, const void *from, uint64_t n,
                void *stream);

    /* ---- values ---- */
    int (*to_f32)(int type, const void *in, uint64_t n, float *out, void *stream);
    int (*from_f32)(int type, const float *in, uint64_t n, void *out, void *stream);
    size_t (*qsgd_bytes)(int bits, uint64_t n);
    int (*quantize)(const rill__cuda_quant *, const float *values, uint64_t n, void *out,
                    void *stream);
    /* Codes the values anew, to nearest, as the codec's fit: for error feedback. */
    int (*quantize_fit)(int bits, const float *exact, uint64_t n, void *encoded, void *stream);
    int (*dequantize)(int bits, const void *in, uint64_t n, int add, float *values, void *stream);
    /* dense[idx[i]] += what value i stands for. */
    int (*dequantize_scatter_add)(int bits, const void *in, uint64_t n, const uint32_t *idx,
                                  float *dense, void *stream);

    /* ---- indices, as codec/codec_bitpack.c and codec_elias_fano.c. bytes: a result; the room
     * is the codec's bound, rounded up to 8 bytes. Decoders: the caller has checked the message
     * on the host; *wrong counts what only the device sees ---- */
    size_t (*bitpack_workspace)(uint64_t count);
    int (*bitpack)(const uint32_t *idx, uint64_t count, uint64_t first, void *out, uint64_t *bytes,
                   void *workspace, void *stream);
    int (*bitunpack)(const void *in, size_t in_bytes, uint64_t count, uint64_t first,
                     uint64_t range, uint32_t *idx, uint32_t *wrong, void *workspace, void *stream);
    size_t (*elias_fano_workspace)(uint64_t count, uint64_t range);
    int (*elias_fano)(const uint32_t *idx, uint64_t count, uint64_t first, uint64_t range,
                      void *out, uint64_t *bytes, void *workspace, void *stream);
    int (*elias_fano_decode)(const void *in, size_t in_bytes, uint64_t count, uint64_t first,
                             uint64_t range, uint32_t *idx, uint32_t *wrong, void *workspace,
                             void *stream);

    /* ---- sketches (coll/topk/sketch.c): entries 0 to n of f32 values, or of f64 ones where
     * wide. Each cell adds its entries in order, after what it has. estimate: entries first to
     * first + n; gap: what rill__sketch_estimate squares and sums ---- */
    int (*sketch_add)(const rill__cuda_sketch *, const void *values, uint64_t n, void *cells,
                      void *stream);
    int (*sketch_estimate)(const rill__cuda_sketch *, const void *cells, uint64_t first, uint64_t n,
                           double *median, double *mean, double *gap, void *stream);

    /* ---- any alignment, and values that may not be finite (finite.cu, sparse.cu). count, unless
     * NULL: see rill__cuda_op. good: n, or fewer where a value of from is not finite: then into
     * is as before, but for rounding, as on the host ---- */
    int (*each)(int op, int type, void *into, const void *from, double factor, uint64_t n,
                uint64_t *count, void *stream);
    int (*decay_add_finite)(int type, void *into, double factor, const void *from, uint64_t n,
                            uint64_t *good, void *stream);
    int (*fill_value)(int type, void *into, uint64_t bits, uint64_t n, void *stream);
    /* The smallest key among values; all ones where n is 0. Not of f64. */
    int (*least_key)(int type, const void *values, uint64_t n, uint64_t *key, void *stream);
    /* into[idx - first] = val. write: into[0..n) = those pairs in [first, first + n), and zeros;
     * *within, unless NULL: how many that were. */
    int (*assign)(int type, uint32_t index_bytes, void *into, uint64_t first, const void *idx,
                  const void *val, uint64_t count, void *stream);
    int (*write)(int type, uint32_t index_bytes, void *into, uint64_t first, uint64_t n,
                 const void *idx, const void *val, uint64_t count, uint64_t *within, void *stream);
    int (*shift)(uint32_t index_bytes, void *into, uint32_t from_bytes, const void *from,
                 uint64_t first, uint64_t n, void *stream);
    /* Blocks by number; count: entries. ended: blocks that end in the range. */
    int (*write_blocks)(int type, void *into, uint64_t first, uint64_t n, uint64_t block,
                        uint64_t end, const uint64_t *numbers, const void *val, uint64_t count,
                        uint64_t *ended, void *stream);
    int (*add_blocks)(int type, void *into, uint64_t block, const uint64_t *numbers,
                      const void *val, uint64_t count, void *stream);

    /* ---- memory in the order of a stream: neither waits for other streams ---- */
    int (*allocate_on)(size_t bytes, void **, void *stream);
    int (*release_on)(void *, void *stream);
    /* Loads all kernels for the current device: a first launch would wait for all streams. */
    int (*load)(void);

    /* ---- steps whose exchange the host does (mail.cu) ---- */
    /* The stream waits until the word, which is page-locked, has reached the number. */
    int (*stream_hold)(const uint32_t *word, uint32_t number, void *stream);
    /* Appends pairs, whose indices count from first on, to idx and val: of those `found` tells, and
     * `total` is told. */
    int (*mail_append)(const rill__cuda_mail *, const rill__cuda_found *found, const uint32_t *idx,
                       const void *val, uint64_t first, rill__cuda_found *total, void *stream);
    int (*mail_send)(const rill__cuda_mail *, void *stream);  /* the pairs; then ready */
    int (*mail_apply)(const rill__cuda_mail *, void *stream); /* the reply, which is there */
    int (*mail_done)(const rill__cuda_mail *, void *stream);  /* then done */

    /* ---- vectors in tensors (tensors.cu). add, subtract: residual += tensors, guards as above,
     * *nonfinite, unless NULL, is added to; the same undone, always or where the reply says so.
     * write: the pairs and zeros, or what the reply says. f64 too ---- */
    int (*tensors_add)(int type, void *residual, const rill__cuda_tensors *, int guards,
                       uint64_t *nonfinite, void *stream);
    int (*tensors_subtract)(int type, void *residual, const rill__cuda_tensors *,
                            const rill__cuda_reply *or_null, void *stream);
    int (*tensors_write)(int type, const rill__cuda_tensors *, const rill__cuda_pairs *,
                         void *stream);

    /* ---- indices as codec/codec_rice.c, as above. To decode, the host has found where chunks
     * begin: one offset each, and the end, in device memory ---- */
    size_t (*rice_workspace)(uint64_t count);
    int (*rice)(const uint32_t *idx, uint64_t count, uint64_t first, void *out, uint64_t *bytes,
                void *workspace, void *stream);
    int (*rice_decode)(const void *in, size_t in_bytes, const uint64_t *chunk, uint64_t count,
                       uint64_t first, uint64_t range, uint32_t *idx, uint32_t *wrong,
                       void *workspace, void *stream);
    /* idx = in; *wrong: whether they do not ascend in the range. */
    int (*take_indices)(const uint32_t *in, uint64_t count, uint64_t first, uint64_t range,
                        uint32_t *idx, uint32_t *wrong, void *stream);

    /* ---- sums of lists of pairs (union.cu), in this order: begin; mark each list's indices, where
     * *wrong counts those that are not below dim; count them; list them; sum each list into the
     * values of that list, which begin as -0.0. wide: sums of 16-bit values are f32. The workspace
     * stays as it is from call to call ---- */
    size_t (*union_workspace)(uint64_t dim);
    int (*union_begin)(void *workspace, uint64_t dim, void *stream);
    int (*union_mark)(void *workspace, uint64_t dim, const uint32_t *idx, uint64_t count,
                      uint32_t *wrong, void *stream);
    int (*union_count)(void *workspace, uint64_t dim, uint64_t *total, void *stream);
    int (*union_list)(void *workspace, uint64_t dim, uint32_t *idx, void *stream);
    int (*union_sum)(int type, int wide, void *workspace, uint64_t dim, const uint32_t *idx,
                     const void *val, uint64_t count, void *sum, void *stream);
} rill__cuda_table;

#ifdef __cplusplus
}
#endif

#endif
