/* What an algorithm is and what it works on.
 *
 * An algorithm is one file and one row of a table (coll/<collective>/<collective>_table.c). supports
 * and estimate see only what all ranks know (rill__problem), so that all ranks choose alike. */
#ifndef RILL_COLL_COLL_H
#define RILL_COLL_COLL_H

#include "core/constants.h"
#include "req/request.h"

typedef enum rill__partition {
    RILL__UNIFORM = 0,
    RILL__BALANCED = 1,
    RILL__ANY_PARTITION = 2 /* settings only: the planner chooses */
} rill__partition;

/* Where the entries of a result lie: at[i] has i / RILL__SPREAD of them below it, at[0] is 0 and the last the
 * dimension. */
enum { RILL__SPREAD = 256 };
typedef struct rill__spread {
    uint64_t entries; /* 0: not known */
    uint64_t at[RILL__SPREAD + 1];
} rill__spread;

typedef struct rill__problem {
    rill_collective collective;
    int ranks;
    uint64_t dim;
    rill_type type;
    const rill_op *op;
    unsigned index_bytes;
    int hosts, most_per_host; /* that the ranks are on, and ranks on the fullest */
    bool sums_bits;           /* every rank has kernels that sum bits and values */
    bool mpi_sums;            /* the link has MPI's own collectives */
    double nnz;               /* entries per rank, mean */
    double nnz_max;           /* of one rank, the most */
    double result;            /* expected entries of the result */
    double space;             /* in which uniform supports would give it; at most dim */
    double skew;              /* entries in the fullest of P equal ranges over the mean */
    double k;                 /* reducers: entries wanted in the result; else 0 */
    /* The way to send, which the planner chooses with the algorithm (rill__problem_code). */
    const rill__index_codec *codec; /* of messages that are worth it */
    int value_bits;
    double value_cost; /* expected bytes of a value in a message */
    double index_cost; /* and of an index, where the density does not tell; else negative */
    double handle;     /* seconds to encode and decode a byte of a message */
    rill__partition partition;
    uint64_t block; /* entries of a block, where entries come in blocks; else 0 */
    const rill__constants *c;
} rill__problem;

typedef rill_status rill__algorithm_step(rill_request *);

typedef struct rill__algorithm {
    const char *name; /* one spelling: option, table, statistics, legend, file */
    const char *description;
    /* NULL, or why it cannot serve: completes "algorithm 'x' ...". */
    const char *(*supports)(const rill__problem *);
    double (*estimate)(const rill__problem *); /* seconds; the formula at the head of the file */
    size_t state_size;                         /* zeroed at start */
    rill__algorithm_step *step;
    bool posts_mpi_collective; /* then it posts in the order of calls; see rill__may_post */
    bool takes_blocks;         /* its input is block-sparse, or dense */
    /* Algorithms of reducers: bytes that they keep from step to step; NULL: none. */
    size_t (*memory_size)(int ranks);
    const char *selects;   /* selection that suits it; NULL: "topk" */
    bool selects_by_range; /* "topk" is to take as many from each rank's range of the indices */
    bool by_request;       /* "auto" does not choose it */
    bool joins_hosts;      /* "auto" considers it only where several hosts have several ranks */
    bool balances;         /* its partition is "balanced" where none is given */
} rill__algorithm;

/* Resolved options of one call. */
typedef struct rill__settings {
    const rill__algorithm *algorithm; /* NULL: the planner chooses */
    const rill__index_codec *codec;   /* NULL: the planner chooses */
    int value_bits;
    int allow_bits; /* the fewest value bits that the planner may choose; 0: none */
    bool
        all_values; /* value_bits for every message, where the paper has a phase of its own for it */
    rill__partition partition;
    uint64_t expected_nnz;
    uint64_t block; /* 0: unset */
} rill__settings;

typedef enum rill__phase {
    RILL__P_CHECK,
    RILL__P_PLAN,
    RILL__P_AGREE,
    RILL__P_RUN,
    RILL__P_COMMIT
} rill__phase;

struct rill__feedback; /* coll/topk/topk.h */

/* Calls that ended with an agreement (api/commit.c), and the largest that all ranks had room for. */
typedef struct rill__commits {
    uint64_t calls;
    uint64_t result, sum, most; /* entries of the result, of all inputs, of one */
} rill__commits;

/* What a task has counted. */
typedef struct rill__traffic {
    uint64_t nnz_sum, nnz_max, sent_bytes, recv_bytes, messages, rounds;
} rill__traffic;

struct rill_request {
    rill__task task; /* first */
    rill_comm *comm;
    rill_collective collective;
    const rill_stream *in;
    rill_stream *out; /* may be in; reduce: NULL except on the root */
    const rill_op *op;
    int root;
    uint64_t *first, *count;
    rill__settings settings;
    bool blocking, persistent;
    const char *only_agrees;         /* on this, outside of a call; else NULL */
    bool takes_most;                 /* and words may differ */
    struct rill__feedback *feedback; /* of the reducer whose call it is; else NULL */

    rill__phase phase;
    rill__agree agree;
    const rill__algorithm *algorithm;
    uint32_t algorithm_hash;
    rill__problem problem; /* as agreed; nnz and result are 0 while nothing is known */
    uint64_t choice;       /* the planner's number of it */
    double predicted;
    bool may_post;    /* it may still post a collective of MPI's */
    bool stats_known; /* task.nnz_sum and nnz_max are those of all ranks when it completes */
    double skew;      /* of the result, where all ranks saw it alike; else 0 */
    const rill__spread *spread; /* of the last result, for the bounds of a split; NULL: not known */
    int key; /* where its statistics go (plan/plan.h), and which call of that kind it is */
    uint64_t key_born, call, blocking_before;
    bool more_memory;        /* this call may take memory that those before it did not */
    rill__commits commits;   /* of a persistent request */
    rill__traffic at_commit; /* while it commits */

    rill__part input;          /* in, its absent entries the neutral element */
    uint64_t block;            /* entries of a block, for algorithms that take blocks */
    unsigned char fill[8];     /* of the result */
    rill_stream normal;        /* a changed copy of in, where one was needed */
    rill__piece piece[2];      /* sums, kept for the next call */
    rill__buffer scratch;      /* of the kernels */
    rill__buffer state;        /* of the algorithm */
    uint64_t started, elapsed; /* ticks */
    uint64_t nnz_in, nnz_out;
    rill_request *next_idle;
};

/* Tables: NULL past the end, or for an unknown name. */
const rill__algorithm *rill__algorithm_at(rill_collective, int i);
const rill__algorithm *rill__algorithm_named(rill_collective, const char *name);
extern const rill__algorithm *const rill__allreduce_table[];
extern const rill__algorithm *const rill__reduce_table[];
extern const rill__algorithm *const rill__reduce_scatter_table[];
extern const rill__algorithm *const rill__allgather_table[];
extern const rill__algorithm *const rill__bcast_table[];
extern const rill__algorithm *const rill__topk_table[];
enum { RILL__TABLES = RILL_COLLECTIVES + 1 };

/* ---- for algorithms ---- */

/* First index of part i of n when [0, dim) is split evenly. */
static inline uint64_t rill__uniform_bound(uint64_t dim, int i, int n) {
    return (uint64_t)((unsigned __int128)dim * (unsigned)i / (unsigned)n);
}

/* Adds the statistics of a message to the request's. */
static inline void rill__add_nnz(rill_request *r, const rill__header *h) {
    r->task.nnz_sum += h->nnz_sum;
    r->task.nnz_max = rill__max_u64(r->task.nnz_max, h->nnz_max);
}

/* Block size that all ranks must have alike: the option; or, where the algorithm needs one, also what
 * the input or the default gives. 0: none. */
static inline uint64_t rill__agreed_block(const rill_request *r) {
    const rill__algorithm *forced = r->settings.algorithm;
    return forced && forced->takes_blocks ? r->block : r->settings.block;
}

/* piece = parts summed in order; on failure records it and gives an empty piece. */
void rill__request_sum(rill_request *, uint64_t first, uint64_t range, int n, const rill__part *,
                       bool force_dense, rill__piece *);
/* Ends: out takes the piece's memory, or is put together from parts. */
rill_status rill__finish_piece(rill_request *, rill__piece *);
rill_status rill__finish_parts(rill_request *, int n, const rill__part *);

static inline bool rill__request_is_lossy(const rill_request *r) {
    return r->task.coding.value->bits != 0;
}
/* What the others decode from a message of ours: where values are coded, all ranks must go on from
 * the same. */
rill__part rill__own_part(rill_request *, const rill__block *);

/* No earlier call can still post a collective on the MPI communicator. */
bool rill__may_post(const rill_request *);

/* Memory for n things of a size, zeroed, until the request completes; NULL: recorded. */
void *rill__request_alloc(rill_request *, size_t n, size_t size);

#endif
