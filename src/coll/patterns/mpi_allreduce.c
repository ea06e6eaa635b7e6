/* The one file of coll/ that talks to MPI itself. */
#include "coll/patterns/mpi_allreduce.h"
#include "coll/outside.h"
#include "coll/patterns/mpi_ops.h"

#include <string.h>

/* MPI counts are ints. */
#define MOST_AT_ONCE (UINT64_C(1) << 30)

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits its word");

/* What MPI sums: its type and operation, and bytes of an element. */
typedef struct element {
    MPI_Datatype type;
    MPI_Op op;
    size_t size;
} element;

static element element_of(const rill__run *run, rill__mpi_sum what) {
    element e = {MPI_UINT64_T, MPI_BOR, sizeof(uint64_t)};
    if (what == RILL__MPI_F32) return (element){MPI_FLOAT, MPI_SUM, sizeof(float)};
    if (what == RILL__MPI_F64) return (element){MPI_DOUBLE, MPI_SUM, sizeof(double)};
    if (what == RILL__MPI_OP) {
        rill__mpi_op(run->outside->mpi_ops, run->shape.type, run->op, &e.type, &e.op);
        e.size = rill__type_size(run->shape.type);
    }
    return e;
}

bool rill__mpi_allreduce_serves(const rill__run *run) {
    MPI_Datatype type;
    MPI_Op op;
    return rill__mpi_op(run->outside->mpi_ops, run->shape.type, run->op, &type, &op);
}

void *rill__mpi_room(rill__run *run, rill__mpi_allreduce *x, int i, size_t bytes) {
    x->lent[i] = rill__block_take(run->outside->task, bytes);
    return x->lent[i] ? x->lent[i]->buffer.data : NULL;
}

static void lend(rill__run *run, rill__mpi_allreduce *x, int more) {
    if (!x->lends) return;
    run->outside->task->engine->lent += more;
    for (int i = 0; i < 2; i++)
        if (x->lent[i]) x->lent[i]->users += more;
}

/* No earlier call can still post a collective on the MPI communicator. */
static bool may_post(const rill__task *task) {
    for (const rill__task *t = task->engine->active; t && t != task; t = t->next)
        if (t->may_post) return false;
    return true;
}

void rill__mpi_allreduce_forgo(rill__run *run) { run->outside->task->may_post = false; }

/* A blocking call may block in MPI: the agreement has shown that all ranks are in this call, and
 * none has an earlier collective to post. */
static rill_status post(rill__run *run, rill__mpi_allreduce *x, const element *e) {
    if (!x->done) lend(run, x, 1);
    x->posted = rill__min_u64(MOST_AT_ONCE, x->count - x->done);
    const char *from = (const char *)x->from + x->done * e->size;
    char *to = (char *)x->to + x->done * e->size;
    int n = (int)x->posted, code;
    MPI_Comm comm = run->outside->task->engine->mpi;
    MPI_Request request = MPI_REQUEST_NULL;
    if (run->outside->may_block) code = MPI_Allreduce(from, to, n, e->type, e->op, comm);
    else code = MPI_Iallreduce(from, to, n, e->type, e->op, comm, &request);
    memcpy(&x->request, &request, sizeof request);
    x->waiting = true;
    if (x->last && x->done + x->posted == x->count) run->outside->task->may_post = false;
    return code == MPI_SUCCESS ? RILL_OK : rill__mpi_error(code, "MPI_Allreduce");
}

static rill_status await(rill__mpi_allreduce *x) {
    MPI_Request request;
    int over = 0;
    memcpy(&request, &x->request, sizeof request);
    int code = rill__mpi_test(&request, &over);
    memcpy(&x->request, &request, sizeof request);
    if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Test");
    return over ? RILL_OK : RILL_IN_PROGRESS;
}

rill_status rill__mpi_allreduce_step(rill__run *run, rill__mpi_allreduce *x) {
    rill__task *task = run->outside->task;
    element e = element_of(run, x->what);
    while (x->done < x->count) {
        if (!x->waiting) {
            if (!may_post(task)) return RILL_IN_PROGRESS;
            RILL_TRY(post(run, x, &e));
        }
        rill_status status = await(x);
        if (status != RILL_OK) return status;
        x->done += x->posted;
        x->waiting = false;
    }
    if (x->count) lend(run, x, -1);
    if (x->last) task->may_post = false;
    unsigned ranks = (unsigned)run->size;
    uint64_t bytes = 2 * (ranks - 1) * (x->count * e.size) / ranks;
    task->sent_bytes += bytes;
    task->recv_bytes += bytes;
    task->messages += 2 * (ranks - 1);
    task->rounds += 2 * (ranks - 1);
    return RILL_OK;
}
