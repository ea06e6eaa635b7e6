/* A problem: what all ranks know of a call before it runs, and what the cost model needs.
 * supports and estimate of an algorithm see nothing else, so that all ranks choose alike. */
#ifndef RILL_COLL_PROBLEM_H
#define RILL_COLL_PROBLEM_H

#include "codec/codec.h"
#include "core/constants.h"
#include "stream/part.h"

typedef enum rill__partition {
    RILL__UNIFORM = 0,
    RILL__BALANCED = 1,
    RILL__ANY_PARTITION = 2 /* settings only: the planner chooses */
} rill__partition;

/* Where the entries of a result lie: at[i] has i / RILL__SPREAD of them below it, at[0] is 0 and
 * the last the dimension. */
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
    bool shares;              /* the ranks of every host share memory */
    bool sums_bits;           /* every rank has kernels that sum bits and values */
    bool takes_sums;          /* inputs are sums, which are dense above the switch */
    uint64_t read_bytes;      /* fewest of a dense sum on one host, whose ranks read each other's
                            memory; 0: they do not */
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
    double transcode;  /* seconds to encode and decode a byte of a message */
    bool all_values;   /* value_bits is for every message, not for the phase alone that it suits */
    rill__partition partition;
    uint64_t block; /* entries of a block, where entries come in blocks; else 0 */
    const rill__constants *c;
    /* Where all ranks have their entries on devices, what those take; else NULL. */
    const rill__device_constants *device;
    bool away; /* messages are coded and summed there: a part of the way to send */
} rill__problem;

#endif
