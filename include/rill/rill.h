/* rill: sparse collectives for distributed machine learning.
 *
 * Three levels, each usable alone:
 *   stream      a vector that is sparse, dense or block-sparse, and switches by itself
 *   collective  MPI-like calls on streams: allreduce, reduce_scatter, allgather, reduce, bcast
 *   reducer     one object for a training step: gradient in, update out, nothing lost
 *
 * Every fallible call returns a rill_status: RILL_OK is 0, errors are negative, and
 * rill_last_error() then has a sentence that names the argument and its value. The library never
 * exits, aborts or prints.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_RILL_H
#define RILL_RILL_H

#ifndef RILL_NO_MPI /* defined before: no mpi.h, and what needs it is not declared */
#ifdef __cplusplus  /* without MPI's old C++ bindings, which would have to be linked, too */
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#endif
#include <mpi.h>
#endif
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RILL_API __attribute__((visibility("default")))
#else
#define RILL_API
#endif

#define RILL_VERSION_MAJOR 0
#define RILL_VERSION_MINOR 1
#define RILL_VERSION_PATCH 0
RILL_API const char *rill_version(void); /* "0.1.0" of the library that is linked */

/* ---- status ------------------------------------------------------------------------------- */

typedef enum rill_status {
    RILL_OK = 0,
    RILL_IN_PROGRESS = 1,   /* internal to requests; public calls never return it */
    RILL_ERR_ARGUMENT = -1, /* an argument is invalid; the detail names it and its value */
    RILL_ERR_RANGE = -2,    /* an index lies outside of the dimension */
    RILL_ERR_UNKNOWN = -3,  /* an algorithm, codec, partition or option of that name is unknown */
    RILL_ERR_UNSUPPORTED = -4, /* what was asked for exists, but can't serve this call */
    RILL_ERR_MISMATCH = -5,    /* ranks called with different arguments */
    RILL_ERR_MESSAGE = -6,     /* a message is malformed */
    RILL_ERR_OVERLAP = -7,     /* supports that must be disjoint overlap */
    RILL_ERR_MEMORY = -8,
    RILL_ERR_MPI = -9,    /* MPI reported an error */
    RILL_ERR_STATE = -10, /* the object is not in a state that allows the call */
    RILL_ERR_IO = -11,
    RILL_ERR_PEER = -12 /* a rank is gone; the detail names it */
} rill_status;

RILL_API const char *rill_strerror(rill_status); /* a short phrase; never NULL */
RILL_API const char *rill_last_error(void);      /* detail of this thread's last failed call */
/* Sets that detail and returns the status: for layers on top of this header, such as rill/train.h.
 * With RILL_OK the detail is that of this thread's next failure (NULL: as usual). A layer that
 * finds an argument wrong then makes the collective call with NULL in its place, and an operation
 * of the user's that cannot do its work just returns: the call fails, and tells all ranks why. */
RILL_API rill_status rill_error_set(rill_status, const char *detail);

/* ---- types, operations -------------------------------------------------------------------- */

typedef enum rill_type { RILL_F32 = 0, RILL_F64 = 1, RILL_F16 = 2, RILL_BF16 = 3 } rill_type;

RILL_API size_t rill_type_size(rill_type);      /* bytes of one value; 0 for an unknown type */
RILL_API const char *rill_type_name(rill_type); /* "f32", "f64", "f16", "bf16" */

typedef struct rill_op rill_op;
extern RILL_API const rill_op rill_op_sum, rill_op_min, rill_op_max, rill_op_prod;
#define RILL_SUM (&rill_op_sum)
#define RILL_MIN (&rill_op_min) /* a NaN on either side gives NaN, as with RILL_MAX */
#define RILL_MAX (&rill_op_max)
#define RILL_PROD (&rill_op_prod)

/* result[i] = lower[i] op upper[i] for n values; lower comes from the lower ranks. result may be
 * lower. Must be commutative and associative (up to rounding), and callable from any thread. The
 * ranks of "ring" and "recursive_halving" are in the order of a ring. */
typedef void rill_op_fn(const void *lower, const void *upper, void *result, uint64_t n,
                        rill_type type, void *context);

/* types: OR of RILL_TYPE_BIT(t) that fn serves; 0 means all. neutral: x op neutral = x. It becomes
 * the fill of results. The name (copied) appears in errors and must be the same on all ranks. */
#define RILL_TYPE_BIT(type) (1u << (type))
RILL_API rill_status rill_op_create(const char *name, rill_op_fn *fn, void *context, double neutral,
                                    unsigned types, rill_op **out);
RILL_API rill_status rill_op_free(rill_op **);
RILL_API const char *rill_op_name(const rill_op *);

/* ---- streams ------------------------------------------------------------------------------ */

/* A vector of dimension dim. Sparse: sorted unique indices and their values; dense: all values;
 * block-sparse: sorted unique numbers of blocks of equal size, and all values of those blocks.
 * An absent entry stands for the stream's fill: 0, or the neutral element of the operation that
 * made the stream. In the dense form and in blocks an entry equal to the fill counts as absent. A
 * stream is used by one thread at a time. */
typedef struct rill_stream rill_stream;

RILL_API rill_status rill_stream_create(rill_type, uint64_t dim, rill_stream **out);

/* Where entries lie. device: its number, -1 the current one; -1 for the host. A stream's arrays,
 * those that its calls are given and those that views show, lie in its memory; rill_stream_copy
 * goes from one memory to another. RILL_CUDA needs librill_cuda, which is loaded at its first use:
 * RILL_ERR_UNSUPPORTED, with the reason, where it is missing or there is no such device. */
typedef enum rill_memory { RILL_HOST = 0, RILL_CUDA = 1 } rill_memory;
RILL_API rill_status rill_stream_create_in(rill_memory, int device, rill_type, uint64_t dim,
                                           rill_stream **out);
RILL_API rill_memory rill_stream_memory(const rill_stream *); /* RILL_HOST for NULL */
RILL_API rill_status rill_stream_free(rill_stream **); /* NULL and pointer to NULL are fine */

/* Replace the contents. Indices may be unsorted and repeat: they are sorted, values of equal
 * indices summed in the order given. Explicit zeros are kept. The arrays are copied. */
RILL_API rill_status rill_stream_set_pairs(rill_stream *, uint64_t nnz, const uint32_t *idx,
                                           const void *val);
RILL_API rill_status rill_stream_set_pairs64(rill_stream *, uint64_t nnz, const uint64_t *idx,
                                             const void *val);
/* n blocks of block entries each, such as the rows of an embedding: block i has the indices from
 * blocks[i] * block on, and the values from values[i * block] on; those of indices at or past dim
 * are not read. Numbers may be unsorted and repeat, as indices may. The stream is block-sparse
 * then, also with n = 0. */
RILL_API rill_status rill_stream_set_blocks(rill_stream *, uint64_t block, uint64_t n,
                                            const uint64_t *blocks, const void *values);
/* Keeps the non-zeros as pairs, or stays dense where that is cheaper. */
RILL_API rill_status rill_stream_set_dense(rill_stream *, const void *dense);
RILL_API rill_status rill_stream_get_dense(const rill_stream *, void *dense);
RILL_API rill_status rill_stream_clear(rill_stream *); /* no entries, fill 0; keeps its memory */
RILL_API rill_status rill_stream_copy(rill_stream *into, const rill_stream *from);

RILL_API uint64_t rill_stream_nnz(const rill_stream *); /* stored; dim when dense */
RILL_API uint64_t rill_stream_dim(const rill_stream *);
RILL_API rill_type rill_stream_type(const rill_stream *);
RILL_API int rill_stream_is_dense(const rill_stream *);
RILL_API rill_status rill_stream_fill(const rill_stream *, void *fill); /* one value of the type */

/* Views: valid until the stream is next changed or takes part in a collective as output.
 * indices32 is NULL for dim > 2^32 (then indices64 is set) and for dense streams, whose values
 * are all dim entries in order. */
RILL_API const uint32_t *rill_stream_indices32(const rill_stream *);
RILL_API const uint64_t *rill_stream_indices64(const rill_stream *);
RILL_API const void *rill_stream_values(const rill_stream *);
/* Of a block-sparse stream, which has no indices: the entries of a block (0: it is none), and the
 * *n (if not NULL) numbers. The values of the blocks follow each other; the last may be cut by dim.
 */
RILL_API uint64_t rill_stream_block(const rill_stream *);
RILL_API const uint64_t *rill_stream_blocks(const rill_stream *, uint64_t *n);

/* Force a form. To sparse: keeps the entries that differ from the fill; to blocks: those that have
 * such an entry. */
RILL_API rill_status rill_stream_to_dense(rill_stream *);
RILL_API rill_status rill_stream_to_sparse(rill_stream *);
RILL_API rill_status rill_stream_to_blocks(rill_stream *, uint64_t block);

/* Checks every invariant; on failure *reason (if not NULL) names the first broken one. */
RILL_API rill_status rill_stream_validate(const rill_stream *, const char **reason);

/* into = into op from. Any pair of forms; into switches to dense where that is cheaper. Blocks of
 * one size stay blocks; a block-sparse from is taken as into is. */
RILL_API rill_status rill_stream_add(rill_stream *into, const rill_stream *from, const rill_op *);
/* out = in[0] op in[1] op ... op in[n-1], in one pass; out must not be among the inputs. */
RILL_API rill_status rill_stream_sum(rill_stream *out, int n, const rill_stream *const *in,
                                     const rill_op *);
/* Union of disjoint supports; an index in both is RILL_ERR_OVERLAP, and into is unchanged. */
RILL_API rill_status rill_stream_concat(rill_stream *into, const rill_stream *from);

/* ---- communicators ------------------------------------------------------------------------ */

typedef struct rill_comm rill_comm;

/* Settings of a communicator. Precedence of every setting: this struct or rill_options, then
 * MPI_Info (this struct's, then the communicator's own; keys "rill_algorithm", "rill_codec", ...),
 * then rank 0's environment (RILL_ALGORITHM, RILL_CODEC, ...). */
typedef struct rill_config {
    size_t size;
    const void *info;     /* points to an MPI_Info, which rill_comm_create reads; NULL: none */
    int check;            /* 1: agree on all arguments before each call; 0: no; -1: unset */
    uint64_t split_limit; /* most bytes in one MPI message; 0: default, 1 GiB */
    /* 1: a thread of the communicator advances its requests while no caller does, so that they go
     * on while the program computes; 0: no; -1: unset. It needs a processor that the program leaves
     * it (mpirun --bind-to none, or --map-by slot:PE=2), and MPI_THREAD_MULTIPLE: with less,
     * rill_comm_create fails on all ranks, whatever asked for the thread. */
    int progress_thread;
    /* Where the communicator can tell that a rank is gone (not over MPI): seconds after which a
     * rank that does not answer counts as gone, though it may live. A rank answers while it is in a
     * call, or its progress thread at work. 0: however long it takes; -1: unset. */
    int timeout_s;
    /* 1: rill_comm_shrink lets fewer than half of the ranks that may live go on; 0: no; -1: unset.
     */
    int minority;
    /* Whether the planner learns from what blocking calls take, and starts from what the last job
     * here has learned: "off" or NULL, "auto" (on, unless there is a profile), "on", "frozen" (it
     * starts from that, and stays so). In another run the algorithm "auto" may choose otherwise
     * then, and so round otherwise. "predict": it learns what blocking calls take, unless there is
     * a profile, and chooses as with "off", to the same bits. */
    const char *learn;
} rill_config;
#define RILL_CONFIG_INIT                                                                           \
    { sizeof(rill_config), NULL, -1, 0, -1, -1, -1, NULL }

typedef struct rill_stats {
    size_t size;
    /* Of this rank, headers included; for "dense" the ring's 2(P-1)/P N. The agreement on the
     * status that ends the first calls of a kind is not counted. */
    uint64_t sent_bytes;
    uint64_t recv_bytes;
    uint64_t messages; /* sent by this rank */
    uint64_t rounds;   /* dependent steps of this rank */
    uint64_t nnz_in;
    uint64_t nnz_out;
    uint64_t selected_k;   /* reducers: entries selected by this rank; else 0 */
    const char *algorithm; /* what ran; static storage */
    const char *codec;
    double predicted_s; /* the planner's estimate; 0: it knew nothing of such calls */
    double elapsed_s;
    double select_s;        /* reducers: of elapsed_s, time for feedback and selection; */
    double update_s;        /* and for what came back and the update */
    double collision_error; /* "s2": estimated relative error of the sketch's estimates; else 0 */
    int value_bits;         /* of the messages; 0: values as they are */
    const char *partition;  /* "uniform" or "balanced" */
    uint64_t voided;        /* reducers: 1 if the step was void (rill_reducer_options.nonfinite); */
    uint64_t voided_total;  /* and how many were so far */
    /* Messages without the key of the job that this communicator has dropped so far (UCX): somebody
     * else sends here. Of rill_comm_stats; else 0. */
    uint64_t strangers;
    /* Reducers: memory in which what came from all ranks was decoded and summed ("host", "cuda");
     * else "". */
    const char *summed_in;
} rill_stats;
#define RILL_STATS_INIT                                                                            \
    { sizeof(rill_stats), 0, 0, 0, 0, 0, 0, 0, "", "", 0.0, 0.0, 0.0, 0.0, 0.0, 0, "", 0, 0, 0, "" }

#ifndef RILL_NO_MPI
/* Dups the communicator, with MPI_ERRORS_RETURN on the dup. Collective. */
RILL_API rill_status rill_comm_create(MPI_Comm, const rill_config *or_null, rill_comm **out);
#endif
/* n ranks in this process, without MPI, which need not be initialised: comms[0..n) are
 * communicators of each other. One thread creates all of them. Then each is used by a thread of its
 * own; or one thread uses all, with non-blocking calls: while it waits for a request of one rank
 * the others' advance, too. (A blocking call of such a thread would wait for ranks that it keeps
 * from calling.) Settings come from config and the environment; config->info is not read.
 * Algorithms that MPI serves elsewhere ("dense", "s2") sum by messages of rill's own there. */
RILL_API rill_status rill_comm_create_local(int n, const rill_config *or_null, rill_comm **comms);

/* How processes find each other. allgather: all ranks call it in the same order with the same
 * number of bytes; all has room for ranks * bytes; 0 is success. It is called only inside
 * rill_comm_create_ucx. One rank alone needs none (NULL). */
typedef struct rill_bootstrap {
    size_t size;
    int rank, ranks;
    int (*allgather)(const void *mine, size_t bytes, void *all, void *context);
    void *context;
} rill_bootstrap;
#define RILL_BOOTSTRAP_INIT                                                                        \
    { sizeof(rill_bootstrap), 0, 1, NULL, NULL }
/* A bootstrap for processes that only know where to meet: rank 0 listens at HOST:PORT (or
 * [IPV6]:PORT; NULL: RILL_RENDEZVOUS of the environment), the others connect. rank and ranks less
 * than 0: those of the environment, by RANK and WORLD_SIZE, SLURM_PROCID and SLURM_NTASKS,
 * OMPI_COMM_WORLD_RANK and _SIZE, or PMI_RANK and PMI_SIZE, the first pair that is there. Fails
 * after two minutes without the others. The network between them is trusted: anybody who reaches
 * the port meanwhile may come in the place of a rank. Its allgather may be used until it is freed,
 * which may be as soon as the communicators are created. */
RILL_API rill_status rill_bootstrap_create(const char *address_or_null, int rank, int ranks,
                                           rill_bootstrap *out);
RILL_API void rill_bootstrap_free(rill_bootstrap *); /* only what rill_bootstrap_create has made */
/* Ranks that find each other by any means, over UCX, without MPI: each calls this, and none waits
 * for ever for one that does not come. Settings come from config and rank 0's environment;
 * config->info is not read. RILL_ERR_UNSUPPORTED where rill was built without UCX. */
RILL_API rill_status rill_comm_create_ucx(const rill_bootstrap *, const rill_config *or_null,
                                          rill_comm **out);
/* One more communicator of the same ranks, over a link of the same kind, with settings of its own
 * (config, and rank 0's environment; config->info is not read). Collective; ranks of one process
 * must each be in a thread of their own. */
RILL_API rill_status rill_comm_dup(rill_comm *, const rill_config *or_null, rill_comm **out);
/* Bytes, for what ranks have to tell each other besides streams. Collective and blocking, in the
 * same order as other calls and with the same number of bytes on all ranks; no request may be
 * active. all has room for ranks * bytes, in the order of the ranks. Meant for short messages. A
 * rank that has died ends them, and so does one that does not answer for timeout_s, where that is
 * set: bytes are entries of streams then, which takes longer. */
RILL_API rill_status rill_comm_gather_bytes(rill_comm *, const void *mine, size_t bytes, void *all);
RILL_API rill_status rill_comm_bcast_bytes(rill_comm *, void *, size_t bytes, int root);
/* Collective; also after a failed call. All requests must be freed first. Local communicators are
 * freed one by one, in any order: whoever is in a call that the rank would have to take part in
 * gets RILL_ERR_STATE. */
RILL_API rill_status rill_comm_free(rill_comm **);
/* A rank is gone: its process has died, or it did not answer for timeout_s. The first who finds out
 * tells the others, and every call on the communicator, pending ones too, ends with RILL_ERR_PEER
 * on all who live. Only these calls and rill_comm_free are of use then. Not over MPI:
 * RILL_ERR_UNSUPPORTED.
 * Which ranks are gone, as far as this one knows: the lowest ones in ranks[0..capacity), *n is how
 * many there are. Not collective. */
RILL_API rill_status rill_comm_failed(const rill_comm *, int capacity, int *ranks, int *n);
/* Makes a communicator of those who live, in the order of their ranks, with the settings of this
 * one. Collective over them; ranks may die meanwhile. Who lives and is not among them, since it did
 * not answer, gets RILL_ERR_STATE, and so do all where fewer than half of those who may live are
 * left (setting minority). comm stays, to be freed: after its reducers were moved. */
RILL_API rill_status rill_comm_shrink(rill_comm *comm, rill_comm **out);
/* Forgets what calls have shown of sizes and times (the planner's constants are those of the
 * creation again), and counts calls anew: those that follow are planned and rounded as the first
 * ones were, so that a part of a program can be repeated to the bit. Sends
 * nothing; all ranks, at the same place among their calls. No request may be active. */
RILL_API rill_status rill_comm_forget(rill_comm *);
/* Starts the progress thread of rill_config, or ends it; what is so already stays. Not collective.
 * RILL_ERR_UNSUPPORTED where there can be none. */
RILL_API rill_status rill_comm_progress_thread(rill_comm *, int on);
/* Of the last blocking call. */
RILL_API rill_status rill_comm_stats(const rill_comm *, rill_stats *);
RILL_API int rill_comm_rank(const rill_comm *);
RILL_API int rill_comm_size(const rill_comm *);

/* ---- collectives -------------------------------------------------------------------------- */

typedef struct rill_options {
    size_t size;
    const char *algorithm; /* "auto" or a name from rill_algorithm_at; NULL: unset */
    const char *codec;     /* "auto" or a name from rill_codec_at; NULL: unset */
    int value_bits;        /* 0 raw, 16, 8, 4, 2; -1: unset */
    uint64_t expected_nnz; /* expected non-zeros of the result; 0: unknown */
    const char *partition; /* "auto", "uniform", "balanced"; NULL: unset */
    /* What value_bits applies to. "auto", as the papers have it: the second phase of "dsar", every
     * message of the others; "all": every message of "dsar" too; NULL: unset. */
    const char *value_scope;
    /* "block": entries of a block, where entries come in whole blocks; "auto" considers it only
     * then. 0: unset; "block" then takes the blocks of a block-sparse input, or 256. */
    uint64_t block;
    /* The fewest bits of a value that the planner may choose where value_bits is 0: 16, 8, 4 or 2.
     * 0: values travel as they are; -1: unset. */
    int allow_bits;
} rill_options;
#define RILL_OPTIONS_INIT                                                                          \
    { sizeof(rill_options), NULL, NULL, -1, 0, NULL, NULL, 0, -1 }

/* All ranks call in the same order with the same dim, type, op, root and options. out has the dim
 * and type of in, and may be in. Results are bitwise the same on all ranks. */
RILL_API rill_status rill_allreduce(rill_comm *, const rill_stream *in, rill_stream *out,
                                    const rill_op *op, const rill_options *or_null);
/* out is used on the root only, and may be NULL elsewhere. */
RILL_API rill_status rill_reduce(rill_comm *, const rill_stream *in, rill_stream *out,
                                 const rill_op *op, int root, const rill_options *or_null);
/* This rank gets the indices [*first, *first + *count) of the result; out keeps dimension dim.
 * first and count may be NULL. */
RILL_API rill_status rill_reduce_scatter(rill_comm *, const rill_stream *in, rill_stream *out,
                                         const rill_op *op, uint64_t *first, uint64_t *count,
                                         const rill_options *or_null);
/* Union of disjoint supports; an overlap is RILL_ERR_OVERLAP on all ranks. */
RILL_API rill_status rill_allgather(rill_comm *, const rill_stream *in, rill_stream *out,
                                    const rill_options *or_null);
RILL_API rill_status rill_bcast(rill_comm *, rill_stream *, int root, const rill_options *or_null);

/* ---- requests ----------------------------------------------------------------------------- */

/* Non-blocking forms return a started request, persistent forms (_init) one to start with
 * rill_start as often as wanted. Streams must stay untouched from start to completion, and first
 * and count alive. Start order is the same on all ranks; completion order is free. Waiting advances
 * the requests of one communicator: across several, use rill_waitall or rill_progress. Requests go
 * on only in calls that start, test, wait or progress; or by themselves, where the communicator has
 * a progress thread (rill_config, rill_comm_progress_thread). */
typedef struct rill_request rill_request;

RILL_API rill_status rill_iallreduce(rill_comm *, const rill_stream *in, rill_stream *out,
                                     const rill_op *op, const rill_options *or_null,
                                     rill_request **);
RILL_API rill_status rill_ireduce(rill_comm *, const rill_stream *in, rill_stream *out,
                                  const rill_op *op, int root, const rill_options *or_null,
                                  rill_request **);
RILL_API rill_status rill_ireduce_scatter(rill_comm *, const rill_stream *in, rill_stream *out,
                                          const rill_op *op, uint64_t *first, uint64_t *count,
                                          const rill_options *or_null, rill_request **);
RILL_API rill_status rill_iallgather(rill_comm *, const rill_stream *in, rill_stream *out,
                                     const rill_options *or_null, rill_request **);
RILL_API rill_status rill_ibcast(rill_comm *, rill_stream *, int root, const rill_options *or_null,
                                 rill_request **);

RILL_API rill_status rill_allreduce_init(rill_comm *, const rill_stream *in, rill_stream *out,
                                         const rill_op *op, const rill_options *or_null,
                                         rill_request **);
RILL_API rill_status rill_reduce_init(rill_comm *, const rill_stream *in, rill_stream *out,
                                      const rill_op *op, int root, const rill_options *or_null,
                                      rill_request **);
RILL_API rill_status rill_reduce_scatter_init(rill_comm *, const rill_stream *in, rill_stream *out,
                                              const rill_op *op, uint64_t *first, uint64_t *count,
                                              const rill_options *or_null, rill_request **);
RILL_API rill_status rill_allgather_init(rill_comm *, const rill_stream *in, rill_stream *out,
                                         const rill_options *or_null, rill_request **);
RILL_API rill_status rill_bcast_init(rill_comm *, rill_stream *, int root,
                                     const rill_options *or_null, rill_request **);

RILL_API rill_status rill_start(rill_request *);
/* Test and wait return the operation's status once it is complete, and do not free the request. */
RILL_API rill_status rill_test(rill_request *, int *done); /* never waits for another thread */
RILL_API rill_status rill_wait(rill_request *);
RILL_API rill_status rill_waitall(int n, rill_request **); /* the first failure, after all ended */
/* *index = the first complete request, or -1 if all are NULL or were never started. */
RILL_API rill_status rill_waitany(int n, rill_request **, int *index);
RILL_API rill_status rill_progress(rill_comm *); /* advances all requests; never blocks */
/* Of a request that is not active; advances nothing. */
RILL_API rill_status rill_request_stats(const rill_request *, rill_stats *);
/* An active request is completed first. */
RILL_API rill_status rill_request_free(rill_request **);

/* ---- reducers ------------------------------------------------------------------------------- */

/* A training step: takes this rank's gradient, selects what is worth sending, keeps the rest for
 * later steps (the residual), and gives all ranks the same update. Without momentum and clipping
 * nothing is ever lost: (updates times the number of ranks, where they are means) plus the
 * residuals of all ranks is the sum of all gradients, up to rounding, after every step and under
 * every codec.
 *
 * Algorithms: every allreduce (the exact sum of what the ranks selected), and those of
 * rill_algorithm_at(RILL_REDUCER, i), which give about k entries of the sum.
 *
 * Create, free, step, start, save and load are collective: the same order on all ranks of the
 * communicator. Several reducers can be under way at once. "dense" and "s2" leave sums to MPI,
 * which may round them otherwise in two halves (start, wait) than in one step. */
typedef struct rill_reducer rill_reducer;

typedef struct rill_reducer_options {
    size_t size;
    const char *algorithm; /* a name, or "auto"; NULL: unset, and then "auto" */
    const char *codec;     /* as in rill_options */
    int value_bits;        /* 0 raw, 16, 8, 4, 2; -1: unset. What coding loses stays as residual */
    uint64_t expected_nnz;
    const char *partition;
    const char *value_scope;
    /* What is sent: a name from rill_selector_at; "nonzero": every entry that is not 0; "auto": the
     * planner decides for this tensor at its first step, between all of it, the non-zeros, and the
     * largest. NULL: what suits the algorithm ("threshold" for oktopk, else "topk"). */
    const char *select;
    double density;  /* share of the dimension to select; used when k is 0 */
    uint64_t k;      /* entries to select; both 0: 1 % */
    int average;     /* 1: the update is the mean over the ranks; 0: the sum */
    int feedback;    /* 1: what is not sent is kept; 0: it is dropped */
    double momentum; /* momentum correction: u = momentum u + gradient is what is fed; 0: none */
    int masking;     /* 1: u forgets what was sent (momentum factor masking) */
    double clip;     /* the gradient is scaled to an L2 norm of at most clip / sqrt(ranks); 0: no */
    /* Warm-up: stage i of the densities in warmup lasts warmup_steps steps; those below the final
     * density are raised to it. warmup NULL: 0.25, 0.0725, 0.015, 0.004. warmup_steps 0: none. */
    const double *warmup;
    int warmup_stages;
    uint64_t warmup_steps;
    uint64_t seed;   /* of random rounding, "random" and hashes */
    uint64_t bucket; /* of select "bucket"; 0: 512 */
    /* Entries of a block: for select "block" and algorithm "block" 0 means 256; "s2" sketches
     * entries where it is 0, and whole blocks (embedding rows) where it is not. */
    uint64_t block;
    int threads;                   /* of the selection; 0 or 1: this thread alone */
    uint64_t threshold_interval;   /* steps between exact thresholds (tau'); 0: 32 */
    uint64_t repartition_interval; /* "oktopk", "spardl": steps between partitions (tau); 0: 64 */
    double balance_trigger; /* "oktopk": largest share over the mean that is evened out; 0: 4 */
    double lambda;          /* "s2": cells of the sketch per entry of the union; 0: 0.5 */
    int sketch_rows;        /* "s2": rows of the sketch, whose median is taken; 0: 3 */
    /* What a NaN or an infinity in a gradient does. "void" (NULL: the same): the step is void on
     * all ranks. Its status is RILL_OK, every entry of the update is NaN (a stream has no entries,
     * and NaN as its fill), residual and momentum are as before it, up to rounding, and no gradient
     * of the step is kept. "zero": such values count as 0. "pass": they go through, and stay in
     * residuals. */
    const char *nonfinite;
    /* Where gradients, updates and the residual lie; a stream that takes an update lies there too.
     * In RILL_CUDA selection and update run on the device, and only what was selected is copied.
     * rill_reducer_step and the like wait for the legacy stream of the device before they read, and
     * the update is there when they return. No select "gaussian"; of RILL_F64 only "nonzero" and
     * all of it. */
    rill_memory memory;
    int device; /* -1: the current one, or the host */
} rill_reducer_options;
#define RILL_REDUCER_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(rill_reducer_options), NULL, NULL, -1, 0, NULL, NULL, NULL, 0.0, 0, 1, 1, 0.0, 1,   \
            0.0, NULL, 0, 0, 0, 0, 0, 1, 0, 0, 0.0, 0.0, 0, NULL, RILL_HOST, -1                    \
    }

RILL_API rill_status rill_reducer_create(rill_comm *, rill_type, uint64_t dim,
                                         const rill_reducer_options *, rill_reducer **out);
RILL_API rill_status rill_reducer_free(rill_reducer **);
/* One step. gradient and update have dim values; update may be gradient. */
RILL_API rill_status rill_reducer_step(rill_reducer *, const void *gradient, void *update);
/* The update as a stream: saves writing a dense vector. */
RILL_API rill_status rill_reducer_step_stream(rill_reducer *, const void *gradient,
                                              rill_stream *update);
/* The same in two halves. The gradient is free again when start returns; the update is written
 * until wait returns (or the test that says done), and must stay alive and untouched until then. */
RILL_API rill_status rill_reducer_start(rill_reducer *, const void *gradient, void *update);
RILL_API rill_status rill_reducer_start_stream(rill_reducer *, const void *gradient,
                                               rill_stream *update);
RILL_API rill_status rill_reducer_test(rill_reducer *, int *done);
RILL_API rill_status rill_reducer_wait(rill_reducer *);
/* The step that was started last, as a request: rill_test, rill_wait, rill_waitall, rill_waitany
 * and a progress thread serve it beside those of collectives, the update is there when it is
 * complete, and rill_request_stats gives the step's. It is the reducer's: not to be freed or
 * started, and to be asked for after each start. NULL: none was started yet. */
RILL_API rill_request *rill_reducer_request(const rill_reducer *);
/* Adds a micro-batch's gradient to the next step, and sends nothing. Not collective. */
RILL_API rill_status rill_reducer_accumulate(rill_reducer *, const void *gradient);
/* Multiplies what waits to be sent. With the old rate over the new one, when a learning rate that
 * is applied to updates changes: what waits then counts with the rate that it was computed at, as
 * if the rate were in the gradients. Not collective, but all ranks should. */
RILL_API rill_status rill_reducer_scale(rill_reducer *, double factor);

/* Takes back the entries [first, first + count) of an update that nobody applies: values are those
 * of the update, the same on all ranks, and each rank keeps its share of them for later steps.
 * Sends nothing; all ranks should. */
RILL_API rill_status rill_reducer_give_back(rill_reducer *, uint64_t first, uint64_t count,
                                            const void *values);

/* Tensor fusion: n tensors, whose counts sum up to dim, as one vector. */
typedef struct rill_tensor {
    const void *gradient;
    void *update; /* may be gradient */
    uint64_t count;
} rill_tensor;
RILL_API rill_status rill_reducer_step_tensors(rill_reducer *, int n, const rill_tensor *);
RILL_API rill_status rill_reducer_start_tensors(rill_reducer *, int n, const rill_tensor *);

/* A step behind the work of a device's stream (a cudaStream_t; NULL: the legacy one); memory is
 * RILL_CUDA. Returns at once. The gradient is read after all work that was given to the stream
 * before; a thread of the reducer moves the step on. When rill_reducer_wait has returned, or the
 * rill_reducer_test that says done, the update is there for all streams: the gradient and the
 * update stay untouched until then. No stream of the device waits for the step. Steps may be queued
 * one after the other, on several reducers; their order among the ranks is the order of the calls,
 * as with collectives. A step that fails has an update of NaNs, and the first failure is what the
 * wait or test that finds all steps complete returns. That call comes before any other use of the
 * reducer but more such steps. Where threads may not communicate (no MPI_THREAD_MULTIPLE), and in
 * the first step of select "auto", the call itself waits for the gradient and selects.
 * RILL_ERR_UNSUPPORTED: the stream is being captured. */
RILL_API rill_status rill_reducer_start_on(rill_reducer *, const void *gradient, void *update,
                                           void *stream);
RILL_API rill_status rill_reducer_start_tensors_on(rill_reducer *, int n, const rill_tensor *,
                                                   void *stream);
/* The same in the order of the stream: the update is there for all work that is given to it when
 * the call has returned, and the gradient may be overwritten by such work. The stream waits for the
 * step, the host does not: the call returns at once, but for select "threshold" and "random",
 * algorithm "spardl" and warm-ups, whose step waits in the call for the exchange of the one before.
 * The host waits for the whole step where the device cannot be given all of it ahead: with clip,
 * momentum or micro-batches, without feedback, select "nonzero", algorithms "dense", "block" and
 * "s2", where page-locked memory for three times what all ranks select would be more than a
 * gradient, and where ranks are threads of one process with fewer than 32 queues of the device
 * (CUDA_DEVICE_MAX_CONNECTIONS). After RILL_ERR_PEER a rank whose step is not complete, though that
 * of another is, cannot be moved: rill_reducer_move says so. What fails is told by
 * rill_reducer_wait, as above. RILL_ERR_UNSUPPORTED: threads may not communicate, too. */
RILL_API rill_status rill_reducer_step_on(rill_reducer *, const void *gradient, void *update,
                                          void *stream);
RILL_API rill_status rill_reducer_step_tensors_on(rill_reducer *, int n, const rill_tensor *,
                                                  void *stream);

/* What this rank has not sent yet: dim values in the reducer's memory, valid until the next call on
 * the reducer. */
RILL_API const void *rill_reducer_residual(const rill_reducer *);
/* Likewise this rank's momentum, the u of the option; NULL without momentum. */
RILL_API const void *rill_reducer_momentum(const rill_reducer *);
/* Adds dim values to this rank's residual, and to its momentum; either may be NULL. Neither clip
 * nor momentum see what is added to the residual. For checkpoints of one's own, which the two calls
 * above are read for. Without feedback no residual is kept. Sends nothing. */
RILL_API rill_status rill_reducer_keep(rill_reducer *, const void *residual, const void *momentum);
RILL_API uint64_t rill_reducer_dim(const rill_reducer *);
RILL_API rill_type rill_reducer_type(const rill_reducer *);
RILL_API rill_status rill_reducer_stats(const rill_reducer *, rill_stats *); /* of the last step */
/* One file for all ranks, replaced as a whole when it is complete. Loading with the same number of
 * ranks goes on bit by bit as if never interrupted; with another number, residuals and momenta move
 * to other ranks and none is lost. The reducer loaded into has the dim, type and options of the
 * saved one. A failure of one rank is everybody's: a save leaves the file that was there, a load
 * the reducer as it was. */
RILL_API rill_status rill_reducer_save(const rill_reducer *, const char *path);
RILL_API rill_status rill_reducer_load(rill_reducer *, const char *path);
/* The reducer goes on on another communicator (of rill_comm_shrink, or one with more ranks), with
 * its residual and momentum; what depends on the number of ranks starts anew. Collective on comm,
 * and in the same order on all ranks. A rank that is new there has made its reducer, with the same
 * options, on a communicator of its own (rill_comm_create_local(1, ...)), and takes over the count
 * of steps. *again = 1: this rank's last step, which ended with RILL_ERR_PEER, is void on all
 * ranks; all is as before it, up to rounding, and it is to be repeated, with its micro-batches.
 * 0: there was none, or another rank has completed it; then it is complete here, too, and
 * rill_reducer_update gives its update. After a failure the reducer can be moved again; that of
 * another communicator is not freed before. */
RILL_API rill_status rill_reducer_move(rill_reducer *, rill_comm *comm, int *again);
/* The update of the last complete step, once more: dim values. Over MPI reducers do not keep it. */
RILL_API rill_status rill_reducer_update(rill_reducer *, void *update);

/* ---- selection ---------------------------------------------------------------------------- */

/* Picks the entries of a dense vector that are worth sending. A selector keeps the state that
 * some methods carry from call to call, and its memory. */
typedef struct rill_selector rill_selector;

typedef struct rill_select_options {
    size_t size;
    const char *method; /* a name from rill_selector_at; NULL: "topk" */
    double density;     /* share of the dimension to select, when k is 0 */
    uint64_t k;         /* entries to select; 0: by density */
    uint64_t bucket;    /* "bucket": entries of a bucket; 0: 512 */
    uint64_t block;     /* "block": entries of a block; 0: 256 */
    double threshold;   /* "threshold": fixed; 0: found and steered */
    uint64_t interval;  /* "threshold": calls between exact evaluations; 0: 32 */
    uint64_t seed;      /* "random": the same on all ranks */
    int threads;        /* 0 or 1: this thread alone */
    rill_memory memory; /* where vectors and streams of its calls lie */
    int device;         /* -1: the current one, or the host */
} rill_select_options;
#define RILL_SELECT_OPTIONS_INIT                                                                   \
    { sizeof(rill_select_options), NULL, 0.0, 0, 0, 0, 0.0, 0, 0, 1, RILL_HOST, -1 }

RILL_API rill_status rill_selector_create(rill_type, uint64_t dim, const rill_select_options *,
                                          rill_selector **out);
RILL_API rill_status rill_selector_free(rill_selector **);
/* out = the selected entries of dense. Largest magnitudes; a NaN counts as the largest, ties go to
 * the lower index. */
RILL_API rill_status rill_select(rill_selector *, const void *dense, rill_stream *out);
/* residual += gradient; out = what is selected of it, and those entries of residual become 0. After
 * a failure for want of memory the gradient is in residual, and nothing is selected. */
RILL_API rill_status rill_select_residual(rill_selector *, const void *gradient, void *residual,
                                          rill_stream *out);
/* The same in memory RILL_CUDA, behind the work that was given to a stream (a cudaStream_t; NULL:
 * the legacy one) before the call. Work given to it later finds the residual and out's arrays as
 * they are when the call returns; the call itself waits, since the number of entries is known only
 * then. rill_select and rill_select_residual do the same with the legacy stream. */
RILL_API rill_status rill_select_on(rill_selector *, const void *dense, rill_stream *out,
                                    void *stream);
RILL_API rill_status rill_select_residual_on(rill_selector *, const void *gradient, void *residual,
                                             rill_stream *out, void *stream);
RILL_API const char *rill_selector_at(int i, const char **description);

/* ---- codecs by themselves ------------------------------------------------------------------ */

/* What the collectives do to the indices and values of a message, for those who write their own
 * transport or measure. Indices are strictly ascending in [first, first + range) and have
 * index_bytes (4 or 8) each. Kernels load and store whole registers: every array must be readable,
 * and outputs writable, RILL_SLACK bytes past its end. Decoders accept any bytes, and report
 * malformed ones. */
#define RILL_SLACK 128
RILL_API rill_status rill_indices_bound(const char *codec, unsigned index_bytes, uint64_t count,
                                        uint64_t range, size_t *bound);
RILL_API rill_status rill_indices_encode(const char *codec, unsigned index_bytes, const void *idx,
                                         uint64_t count, uint64_t first, uint64_t range, void *out,
                                         size_t *size);
RILL_API rill_status rill_indices_decode(const char *codec, unsigned index_bytes, const void *in,
                                         size_t size, uint64_t count, uint64_t first,
                                         uint64_t range, void *idx);
/* value_bits of 0 (as they are), 16, 8, 4 or 2; below 16 by QSGD: stochastic and unbiased, in
 * buckets of 1024 with one scale. The same seed and sender give the same bytes. */
RILL_API rill_status rill_values_bound(rill_type, int value_bits, uint64_t count, size_t *bound);
RILL_API rill_status rill_values_encode(rill_type, int value_bits, const void *values,
                                        uint64_t count, uint64_t seed, uint32_t sender, void *out,
                                        size_t *size);
/* add: values += what was decoded (RILL_F32 only), in the same pass. */
RILL_API rill_status rill_values_decode(rill_type, int value_bits, const void *in, size_t size,
                                        uint64_t count, int add, void *values);

/* ---- what there is ------------------------------------------------------------------------ */

typedef enum rill_collective {
    RILL_ALLREDUCE = 0,
    RILL_REDUCE = 1,
    RILL_REDUCE_SCATTER = 2,
    RILL_ALLGATHER = 3,
    RILL_BCAST = 4
} rill_collective;
#define RILL_COLLECTIVES 5
/* Not a collective: for rill_algorithm_at, the algorithms that only reducers have. */
#define RILL_REDUCER ((rill_collective)5)
RILL_API const char *rill_collective_name(rill_collective); /* "allreduce", ... */

/* The i-th algorithm of a collective or the i-th codec: NULL past the end. The description (if
 * asked for) is one line. */
RILL_API const char *rill_algorithm_at(rill_collective, int i, const char **description);
RILL_API const char *rill_codec_at(int i, const char **description);
RILL_API const char *rill_isa(void); /* instruction set in use: "scalar", "avx2", "avx512" */
/* The i-th device of a memory, in one line: its name, its compute capability, its multiprocessors
 * and its memory; cut to size. RILL_ERR_ARGUMENT: there are no more; RILL_ERR_UNSUPPORTED: there
 * are none, and rill_last_error says what is missing. RILL_HOST has none. */
RILL_API rill_status rill_device_at(rill_memory, int i, char *text, size_t size);
/* Until all work that a stream of a CUDA device (-1: the current one) was given has ended: for
 * arrays that somebody else's stream fills. stream: a cudaStream_t; NULL: the legacy one. */
RILL_API rill_status rill_device_wait(int device, void *stream);

/* One setting: what it is called in the structs, in an MPI_Info, and in the environment. */
typedef struct rill_setting {
    size_t size;
    const char *name;        /* of the field */
    const char *environment; /* variable, such as "RILL_ALGORITHM"; NULL: none */
    const char *info;        /* key, such as "rill_algorithm"; NULL: none */
    const char *value;       /* default, as text; "": none, or it depends */
    const char *description; /* one line */
    unsigned structs;        /* OR of RILL_IN_...: those that have the field */
} rill_setting;
#define RILL_IN_CONFIG 1u
#define RILL_IN_OPTIONS 2u
#define RILL_IN_REDUCER_OPTIONS 4u
#define RILL_SETTING_INIT                                                                          \
    { sizeof(rill_setting), NULL, NULL, NULL, NULL, NULL, 0 }
/* The i-th setting: its name, and all of it in *out (if not NULL), in static storage. NULL past the
 * end. */
RILL_API const char *rill_setting_at(int i, rill_setting *out);

/* ---- planner ------------------------------------------------------------------------------ */

/* Algorithm "auto" takes what is expected to be fastest. What a message, a byte, a sum cost comes
 * from a profile, which rill_tune writes: the file RILL_PROFILE names (or the MPI_Info key
 * "rill_profile"; "none" for the built-in constants), else rill/profile in the user's configuration
 * folder. Without one the constants are built in, and a few messages tell what class of network
 * there is. */

typedef struct rill_plan_query {
    size_t size;
    rill_collective collective; /* or RILL_REDUCER: what gives the k largest of the sum */
    rill_type type;
    int ranks, hosts;      /* at most 2^24 ranks */
    uint64_t dim, nnz;     /* nnz: entries of each rank; with RILL_REDUCER also k */
    uint64_t result;       /* entries of the result; 0: as of uniform supports */
    const char *codec;     /* as in rill_options; NULL: auto */
    const char *partition; /* the same */
    int value_bits;        /* 0: values as they are */
    int allow_bits;
    uint64_t block;
    const char *profile;               /* a file or "none"; NULL: as a communicator finds it */
    double latency_s, bits_per_second; /* of the network; 0: the profile's */
    const char *link;   /* "mpi", "ucx" or "local"; NULL: mpi, or ucx where rill has no MPI */
    rill_memory memory; /* RILL_CUDA: of a reducer whose ranks all have their vectors there */
} rill_plan_query;
#define RILL_PLAN_QUERY_INIT                                                                       \
    {                                                                                              \
        sizeof(rill_plan_query), (rill_collective)0, RILL_F32, 2, 1, 0, 0, 0, NULL, NULL, 0, 0, 0, \
            NULL, 0.0, 0.0, NULL, RILL_HOST                                                        \
    }

typedef struct rill_plan_row {
    const char *algorithm, *codec, *partition;
    int value_bits;
    double seconds;
    const char *refuses; /* why it cannot serve; NULL: it can */
    int chosen;
    rill_memory sums; /* RILL_CUDA: messages are coded and summed on the devices */
} rill_plan_row;
/* What auto would do, in the order of the table: at most capacity rows, *n of them. The choice is
 * among all of the table; *n is 0 after an error. Needs no MPI. */
RILL_API rill_status rill_plan(const rill_plan_query *, rill_plan_row *rows, int capacity, int *n);

typedef struct rill_tune_options {
    size_t size;
    const char *profile; /* the file to write; NULL: where a communicator looks for it */
    double seconds;      /* to spend; 0: 50 */
    void (*progress)(double share, const char *what, void *context); /* on rank 0; may be NULL */
    void *context;
} rill_tune_options;
#define RILL_TUNE_OPTIONS_INIT                                                                     \
    { sizeof(rill_tune_options), NULL, 0.0, NULL, NULL }

typedef struct rill_tune_report {
    size_t size;
    int measured;        /* calls of different kind */
    double median_error; /* of the model against them: 0.1 is 10 % */
    double latency_s, bits_per_second;
    char profile[1024]; /* as written */
    int device;         /* 1: what the ranks' devices take to code and to sum is in it, too */
} rill_tune_report;
#define RILL_TUNE_REPORT_INIT                                                                      \
    { sizeof(rill_tune_report), 0, 0.0, 0.0, 0.0, "", 0 }
/* Measures every allreduce on this communicator, fits the constants, writes them into the profile,
 * and uses them from now on. Entries for other numbers of ranks and hosts stay in the file. Where
 * all ranks have a GPU and librill_cuda, what it takes to code and to sum is measured, too.
 * Collective. */
RILL_API rill_status rill_tune(rill_comm *, const rill_tune_options *or_null, rill_tune_report *);

#ifdef __cplusplus
}
#endif
#endif
