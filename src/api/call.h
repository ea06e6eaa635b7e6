/* A call: arguments checked, settings resolved, planned, run. */
#ifndef RILL_API_CALL_H
#define RILL_API_CALL_H

#include "api/comm.h"

typedef enum rill__mode { RILL__BLOCKING, RILL__NONBLOCKING, RILL__PERSISTENT } rill__mode;

typedef struct rill__arguments {
    rill_collective collective;
    const rill_stream *in;
    rill_stream *out;
    const rill_op *op; /* NULL: the collective has none */
    int root;          /* -1: the collective has none */
    uint64_t *first, *count;
    struct rill__feedback *feedback; /* reducers only */
    const rill_options *options;
} rill__arguments;

/* The one way into all collectives. request: NULL when blocking. */
rill_status rill__call(rill_comm *, const rill__arguments *, rill__mode, rill_request **request);
rill_status rill__request_begin(rill_request *); /* start or restart; lock held */
void rill__request_launch(rill_request *);       /* after begin, where nobody waits; lock held */
rill_status rill__request_result(const rill_request *); /* status and detail of a complete one */
void rill__request_statistics(const rill_request *, rill_stats *); /* all but the time */
void rill__request_destroy(rill_request *);
void rill__request_recycle(rill_request *); /* lock held */
void rill__stats_copy(rill_stats *to, const rill_stats *from);
/* A request that agrees on a word and on nothing else, begun; NULL: out of memory. Lock held. */
rill_request *rill__agreement_begin(rill_comm *, const rill_stream *nothing, const char *what,
                                    uint64_t word);

/* ---- commit.c ---- */
/* When the algorithm is through: RILL_OK, or RILL_IN_PROGRESS and the phase RILL__P_COMMIT. */
rill_status rill__commit_start(rill_request *);
rill_status rill__commit_step(rill_request *);
/* Collective, outside of calls: a failure of one rank is the result on all, and so is a word that differs; what: names
 * the thing in the error. */
rill_status rill__agree_all(rill_comm *, const char *what, rill_status, uint64_t word);
/* The same, and the word becomes the largest of all. */
rill_status rill__agree_most(rill_comm *, const char *what, rill_status, uint64_t *word);

#endif
