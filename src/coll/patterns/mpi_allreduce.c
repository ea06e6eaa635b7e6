#include "coll/patterns/mpi_allreduce.h"

/* MPI counts are ints. */
#define MOST_AT_ONCE (UINT64_C(1) << 30)

/* A blocking call may block in MPI: the agreement has shown that all ranks are in this call, and
 * none has an earlier collective to post. */
static rill_status post(rill_request *r, rill__mpi_allreduce *x) {
    x->posted = rill__min_u64(MOST_AT_ONCE, x->count - x->done);
    const char *from = (const char *)x->from + x->done * x->size;
    char *to = (char *)x->to + x->done * x->size;
    int n = (int)x->posted, code;
    x->mpi = MPI_REQUEST_NULL;
    if (r->blocking) code = MPI_Allreduce(from, to, n, x->type, x->op, r->task.engine->mpi);
    else code = MPI_Iallreduce(from, to, n, x->type, x->op, r->task.engine->mpi, &x->mpi);
    x->waiting = true;
    if (x->last && x->done + x->posted == x->count) r->may_post = false;
    return code == MPI_SUCCESS ? RILL_OK : rill__mpi_error(code, "MPI_Allreduce");
}

rill_status rill__mpi_allreduce_step(rill_request *r, rill__mpi_allreduce *x) {
    while (x->done < x->count) {
        if (!x->waiting) {
            if (!rill__may_post(r)) return RILL_IN_PROGRESS;
            RILL_TRY(post(r, x));
        }
        int over = 0;
        int code = rill__mpi_test(&x->mpi, &over);
        if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Test");
        if (!over) return RILL_IN_PROGRESS;
        x->done += x->posted;
        x->waiting = false;
    }
    if (x->last) r->may_post = false;
    unsigned ranks = (unsigned)r->task.engine->size;
    uint64_t bytes = 2 * (ranks - 1) * (x->count * x->size) / ranks;
    r->task.sent_bytes += bytes;
    r->task.recv_bytes += bytes;
    r->task.messages += 2 * (ranks - 1);
    r->task.rounds += 2 * (ranks - 1);
    return RILL_OK;
}
