/* The run: an algorithm's room.
 *
 * An algorithm is one file and one row of a table (coll/<collective>/<collective>_table.c). This
 * header is all that its file knows of the rest: what it works on, what it may do, and what it has
 * to say about itself. Who called, what the planner thought and how messages travel are outside.
 *
 * step is called again and again until it says RILL_OK. It never waits, and keeps its place in
 * run->state. A failure does not end it: it is recorded (rill__run_fail, or it came in a message),
 * and the algorithm goes on to take part, with messages that carry the failure instead of entries.
 * A failure that step returns ends the call at once, on all ranks. */
#ifndef RILL_COLL_RUN_H
#define RILL_COLL_RUN_H

#include "coll/problem.h"
#include "link/hosts.h"
#include "req/agree.h"
#include "req/message.h"
#include "select/part_select.h"
#include "stream/blocks.h"
#include "stream/part_entries.h"

typedef struct rill__run {
    /* What is to be done. Algorithms read it. */
    const rill__problem *problem; /* as agreed; nnz and result are 0 while nothing is known */
    const rill__part *input; /* its absent entries are the neutral element, or there are none */
    const rill_op *op;       /* NULL: the collective has none */
    rill__shape shape;
    uint64_t dim;
    int rank, size;
    int root;            /* -1: the collective has none */
    uint64_t block;      /* entries of a block, for algorithms that take blocks */
    rill__coding coding; /* how messages are written, unless there is a reason for another way */
    const rill__spread *spread; /* of the last result, for the bounds of a split; NULL: not known */
    const rill__hosts *hosts;
    uint64_t entries;                /* of the call's input */
    bool in_place;                   /* the result goes where the input lies */
    struct rill__feedback *feedback; /* of the reducer whose call it is (topk/topk.h); else NULL */

    /* What an absent entry of the result stands for; allgather and bcast learn it. */
    unsigned char fill[8];

    /* The algorithm's own. The memory of pieces and scratch is kept for the next call. */
    void *state; /* state_size bytes, zeroed at start */
    rill__piece piece[2];
    rill__buffer scratch; /* of the kernels */

    /* What it tells. */
    double skew;      /* of the result, where all ranks saw it alike; else 0 */
    bool more_memory; /* this call may need more than those before it; alike on all ranks */
    const rill__index_codec *used_codec; /* for the statistics, where it is not the problem's */

    /* The walls. */
    const rill_status *status;
    struct rill__outside *outside; /* coll/outside.h */
} rill__run;

typedef rill_status rill__algorithm_step(rill__run *);

typedef struct rill__algorithm {
    const char *name; /* one spelling: option, table, statistics, legend, file */
    const char *description;
    /* NULL, or why it cannot serve: completes "algorithm 'x' ...". */
    const char *(*supports)(const rill__problem *);
    double (*estimate)(const rill__problem *); /* seconds; the formula at the head of the file */
    /* The same where the owner of the call codes its input and sums its messages (coll/away.h);
     * NULL: the algorithm has no use for that. */
    double (*estimate_away)(const rill__problem *);
    size_t state_size; /* zeroed at start */
    rill__algorithm_step *step;
    bool posts_mpi_collective; /* then it posts in the order of calls: patterns/mpi_allreduce.h */
    bool takes_blocks;         /* its input is block-sparse, or dense */
    /* Algorithms of reducers: bytes that they keep from step to step; NULL: none. */
    size_t (*memory_size)(int ranks);
    const char *selects;   /* selection that suits it; NULL: "topk" */
    bool selects_by_range; /* "topk" is to take as many from each rank's range of the indices */
    bool by_request;       /* "auto" does not choose it */
    /* "auto" considers it only where ranks share hosts: several of them, or the memory of one. */
    bool joins_hosts;
    bool balances;   /* its partition is "balanced" where none is given */
    bool keeps_late; /* what a rank keeps is known only when it has the result */
    /* It sends what it has summed in each round of rill__doubling_round and nothing else: small
     * calls of it can do without it (call/again.h). */
    bool doubles;
} rill__algorithm;

/* ---- failures ---- */
static inline bool rill__run_failed(const rill__run *run) { return *run->status != RILL_OK; }
/* Records a failure (status and this thread's detail) unless one is there; returns RILL_OK, so that
 * the algorithm goes on taking part. */
rill_status rill__run_fail(rill__run *, rill_status);

/* ---- memory, until the call ends ---- */
/* For n things of a size, zeroed; NULL: recorded. */
void *rill__run_alloc(rill__run *, size_t n, size_t size);
/* As it comes, with slack; NULL: recorded. */
void *rill__run_memory(rill__run *, size_t bytes);

/* ---- messages out ---- */
/* Encodes a part (or the failure) into a parcel, to be sent, perhaps to several ranks. */
rill_status rill__run_encode(rill__run *, const rill__coding *, const rill__part *,
                             rill__parcel **);
/* Bytes of any kind (or the failure) as a message of words, the last filled up with zeros. */
rill_status rill__run_encode_bytes(rill__run *, const void *from, size_t bytes, rill__parcel **);
/* The same, to be written by the caller to *to; NULL: it is the failure. */
rill_status rill__run_encode_room(rill__run *, size_t bytes, rill__parcel **, void **to);
/* The call's input, as coding says; where the problem says away, by the call's owner (coll/away.h).
 * RILL_IN_PROGRESS: that is under way. */
rill_status rill__run_encode_input(rill__run *, rill__parcel **);
/* n messages, which start at those bytes, in one, so that a partner gets one a round. */
rill_status rill__run_bundle(rill__run *, int n, const void *const *start, rill__parcel **);
rill_status rill__run_send_parcel(rill__run *, int to, int lane, rill__parcel *);
/* Encodes and sends. */
rill_status rill__run_send(rill__run *, int to, int lane, const rill__coding *, const rill__part *);
bool rill__run_sends_done(rill__run *); /* all that was sent has left */
/* Parcels serve until the call ends, and the next message gets another. Where messages are many
 * and long, they need not: a received one goes back when nobody reads it any more, and those that
 * were sent when they have left. The next messages then find them in the caches. */
void rill__run_release(rill__run *, rill__parcel *);
void rill__run_release_sent(rill__run *); /* all of them: none may be read or sent again */
size_t rill__parcel_bytes(const rill__parcel *);
/* What this rank has encoded itself, as a message and as the part that the others decode: where
 * values are coded, all must go on from the same. */
rill_status rill__own_message(const rill__parcel *, rill__message *);
rill__part rill__run_own_part(rill__run *, const rill__parcel *);
rill__part rill__run_decode(rill__run *, const void *message, size_t bytes); /* the same */

/* ---- messages in ---- */
typedef struct rill__received {
    rill__message message;
    rill__parcel *parcel; /* that holds it: may be sent on */
    int from;             /* rank */
    int place;            /* of it in the group that is collected from (patterns/collect.h) */
} rill__received;
/* It brought a failure, which has been recorded, and no entries. */
static inline bool rill__received_nothing(const rill__received *r) {
    return r->message.header.form == RILL__M_FAILED;
}
/* Receives a message of that rank, or of any. RILL_IN_PROGRESS: not there yet. A failed or
 * malformed one is recorded, and gives RILL_OK with nothing in it. */
enum { RILL__FROM_ANY = -1 };
rill_status rill__run_receive(rill__run *, int from, int lane, rill__received *);
/* Its entries; a failure is recorded and gives an empty part. */
void rill__run_part_at(rill__run *, const rill__message *, rill__part *);
static inline rill__part rill__run_part(rill__run *run, const rill__message *message) {
    rill__part part;
    rill__run_part_at(run, message, &part);
    return part;
}
/* The message at *offset of a bundle; advances it. Past the last: a failure. */
rill_status rill__run_unbundle(rill__run *, const rill__message *bundle, size_t *offset,
                               rill__message *);

/* ---- messages both ways ---- */
/* Where each partner gets one message at most, small ones are faster so. */
rill_status rill__run_exchange_send(rill__run *, int to, rill__parcel *);
/* short_likely: it will probably have at most RILL__SHORT bytes. */
rill_status rill__run_exchange_receive(rill__run *, int from, bool short_likely, rill__received *);

static inline rill__group rill__run_group(const rill__run *run, const rill__group *group) {
    return rill__group_or_all(group, run->rank, run->size);
}
/* An agreement (req/agree.h), started with rill__agree_start. */
rill_status rill__run_agree(rill__run *, rill__agree *);
/* Memory for an agreement of all ranks without sums: it then ends, and on all ranks alike. */
rill_status rill__run_agree_reserve(rill__run *);

/* ---- what messages carry for all ---- */
void rill__run_round(rill__run *); /* another round begins: statistics */
/* The entries of the ranks that a message speaks for: added to those heard of so far; or in their
 * place, with more of this rank. */
void rill__run_count(rill__run *, const rill__header *);
void rill__run_count_anew(rill__run *, const rill__header *, uint64_t more);
/* Messages from now on show whether all ranks remember the same. Else ranks that remember different
 * steps (a call that failed on some of them only) would wait for different messages. */
void rill__run_remembers(rill__run *, const void *memory, size_t bytes);

/* ---- sums and endings ---- */
/* piece = parts summed in order; on failure records it and gives an empty piece. */
void rill__run_sum(rill__run *, uint64_t first, uint64_t range, int n, const rill__part *,
                   bool force_dense, rill__piece *);
/* The call ends with the sum of the entries of n messages, in order, made by the call's owner where
 * the problem says away. RILL_IN_PROGRESS: that is under way. Not done: it is the host's affair. */
rill_status rill__run_sum_away(rill__run *, int n, const rill__message *, bool *done);
/* out[i] = lower[i] op upper[i] for values in the host's memory; out may be either of them, or a
 * part of a larger array. A failure of the operation is recorded. */
void rill__run_combine(rill__run *, rill_type, const rill_op *, void *out, const void *lower,
                       const void *upper, uint64_t n);
/* Parts that follow each other in one. Nobody may read the input any more. */
rill_status rill__run_assemble(rill__run *, int n, const rill__part *, rill__part *);
/* The result takes the piece's memory, or is put together from parts, or is a copy of a part. */
rill_status rill__finish_piece(rill__run *, rill__piece *);
rill_status rill__finish_parts(rill__run *, int n, const rill__part *);
/* Parts that others read at the same time, and whose indices nobody has checked: that is done now,
 * from one of them on, and round. */
rill_status rill__finish_unchecked(rill__run *, int n, const rill__part *, int from);
rill_status rill__finish_copy(rill__run *, const rill__part *);
/* The same of a reduce-scatter: a range of it, which the caller learns. */
rill_status rill__finish_range(rill__run *, uint64_t first, uint64_t count, const rill__part *);
/* The result turns dense, or into pairs. */
rill_status rill__finish_dense(rill__run *);
rill_status rill__finish_pairs(rill__run *);
/* The result as it is now. */
rill__part rill__run_result(const rill__run *);

/* First index of part i of n when [0, dim) is split evenly. */
static inline uint64_t rill__uniform_bound(uint64_t dim, int i, int n) {
    return (uint64_t)((unsigned __int128)dim * (unsigned)i / (unsigned)n);
}
static inline bool rill__run_is_lossy(const rill__run *run) { return run->coding.value->bits != 0; }

#endif
