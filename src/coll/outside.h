/* What is outside of an algorithm's room. For those who build the walls: run.c, the call (call/),
 * and the patterns that use more than messages (mpi_allreduce.c, host_parts.c, host_sum.c). */
#ifndef RILL_COLL_OUTSIDE_H
#define RILL_COLL_OUTSIDE_H

#include "coll/rooms.h"
#include "coll/run.h"
#include "req/request.h"
#include "stream/stream.h"

typedef struct rill__outside {
    rill__task *task;
    rill_stream *out;        /* NULL: this rank gets no result */
    uint64_t *first, *count; /* of a reduce-scatter, for the caller; may be NULL */
    rill_stream spare; /* the call's own: a changed copy of the input, or a result in the making */
    rill_stream third; /* the same, where the input lies in spare */
    rill__rooms asked; /* by the end of this call, but for pieces that it has kept */
    bool keeps_room;   /* nobody hears from this rank: it gives no memory away for less */
    bool may_block;    /* the caller waits for this call: MPI may block in it */
} rill__outside;

#endif
