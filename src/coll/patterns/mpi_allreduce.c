#include "coll/patterns/mpi_allreduce.h"
#include "coll/outside.h"
#include "link/link_mpi.h"

#include <stdlib.h>

#define MOST_AT_ONCE (UINT64_C(1) << 30)

/* ---- operations: those that MPI has not, or not as we promise them. MPI calls them as inout = in
 * op inout. ---- */

#define COMBINE(name, type, op)                                                                    \
    static void name(void *in, void *inout, int *n, MPI_Datatype *datatype) {                      \
        (void)datatype;                                                                            \
        rill__values_combine(type, op, in, inout, (uint64_t)*n);                                   \
    }

COMBINE(f16_sum, RILL_F16, RILL_SUM)
COMBINE(f16_min, RILL_F16, RILL_MIN)
COMBINE(f16_max, RILL_F16, RILL_MAX)
COMBINE(f16_prod, RILL_F16, RILL_PROD)
COMBINE(bf16_sum, RILL_BF16, RILL_SUM)
COMBINE(bf16_min, RILL_BF16, RILL_MIN)
COMBINE(bf16_max, RILL_BF16, RILL_MAX)
COMBINE(bf16_prod, RILL_BF16, RILL_PROD)

/* MPI_MIN and MPI_MAX may lose a NaN. */
static void real_min(void *in, void *inout, int *n, MPI_Datatype *datatype) {
    rill__values_combine(*datatype == MPI_FLOAT ? RILL_F32 : RILL_F64, RILL_MIN, in, inout,
                         (uint64_t)*n);
}
static void real_max(void *in, void *inout, int *n, MPI_Datatype *datatype) {
    rill__values_combine(*datatype == MPI_FLOAT ? RILL_F32 : RILL_F64, RILL_MAX, in, inout,
                         (uint64_t)*n);
}

enum { REAL_MIN, REAL_MAX, F16, BF16 = F16 + 4, OPS = BF16 + 4 }; /* F16, BF16: by kind */

struct rill__mpi_sums {
    MPI_Op op[OPS];
};

bool rill__mpi_is_built_in(void) { return true; }

rill_status rill__mpi_sums_create(struct rill__mpi_sums **out) {
    static MPI_User_function *const functions[OPS] = {real_min, real_max, f16_sum,  f16_min,
                                                      f16_max,  f16_prod, bf16_sum, bf16_min,
                                                      bf16_max, bf16_prod};
    struct rill__mpi_sums *sums = *out = rill__malloc(sizeof *sums);
    if (!sums) return rill__fail(RILL_ERR_MEMORY, "out of memory for a communicator");
    for (int i = 0; i < OPS; i++)
        sums->op[i] = MPI_OP_NULL;
    for (int i = 0; i < OPS; i++) {
        int code = MPI_Op_create(functions[i], 1, &sums->op[i]);
        if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Op_create");
    }
    return RILL_OK;
}

void rill__mpi_sums_free(struct rill__mpi_sums *sums) {
    for (int i = 0; sums && i < OPS; i++)
        if (sums->op[i] != MPI_OP_NULL) MPI_Op_free(&sums->op[i]);
    free(sums);
}

static void find_op(const struct rill__mpi_sums *sums, const rill__mpi_allreduce *x,
                    MPI_Datatype *type, MPI_Op *op) {
    if (x->words) {
        *type = MPI_UINT64_T;
        *op = MPI_BOR;
    } else if (x->type == RILL_F32 || x->type == RILL_F64) {
        *type = x->type == RILL_F32 ? MPI_FLOAT : MPI_DOUBLE;
        *op = x->op == RILL__SUM    ? MPI_SUM
              : x->op == RILL__PROD ? MPI_PROD
                                    : sums->op[x->op == RILL__MIN ? REAL_MIN : REAL_MAX];
    } else {
        *type = MPI_UINT16_T;
        *op = sums->op[(x->type == RILL_F16 ? F16 : BF16) + (int)x->op];
    }
}

/* ---- the sum --------------------------------------------------------------------------------- */

void *rill__mpi_room(rill__run *run, rill__mpi_allreduce *x, int i, size_t bytes) {
    x->lent[i] = rill__parcel_take(run->outside->task, bytes);
    return x->lent[i] ? x->lent[i]->buffer.data : NULL;
}

static void lend(rill__engine *engine, rill__mpi_allreduce *x, int more) {
    if (!x->lends) return;
    engine->lent += more;
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
static rill_status post(rill__run *run, rill__mpi_allreduce *x) {
    rill__engine *engine = run->outside->task->engine;
    if (!x->done) lend(engine, x, 1);
    x->posted = rill__min_u64(MOST_AT_ONCE, x->count - x->done);
    const char *from = (const char *)x->from + x->done * x->size;
    char *to = (char *)x->to + x->done * x->size;
    MPI_Comm comm = rill__link_mpi_comm(engine->link);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Datatype type;
    MPI_Op op;
    find_op(engine->mpi_sums, x, &type, &op);
    int n = (int)x->posted, code;
    if (run->outside->may_block) code = MPI_Allreduce(from, to, n, type, op, comm);
    else code = MPI_Iallreduce(from, to, n, type, op, comm, &request);
    x->wire = rill__link_mpi_wire(request);
    x->waiting = true;
    if (x->last && x->done + x->posted == x->count) run->outside->task->may_post = false;
    return code == MPI_SUCCESS ? RILL_OK : rill__mpi_error(code, "MPI_Allreduce");
}

rill_status rill__mpi_allreduce_step(rill__run *run, rill__mpi_allreduce *x) {
    rill__task *task = run->outside->task;
    rill__engine *engine = task->engine;
    while (x->done < x->count) {
        if (!x->waiting) {
            if (!may_post(task)) return RILL_IN_PROGRESS;
            RILL_TRY(post(run, x));
        }
        rill_status status = engine->table->test(engine->link, &x->wire, NULL);
        if (status != RILL_OK) return status;
        x->done += x->posted;
        x->waiting = false;
    }
    if (x->count) lend(engine, x, -1);
    if (x->last) task->may_post = false;
    unsigned ranks = (unsigned)run->size;
    uint64_t bytes = 2 * (ranks - 1) * (x->count * x->size) / ranks;
    task->sent_bytes += bytes;
    task->recv_bytes += bytes;
    task->messages += 2 * (ranks - 1);
    task->rounds += 2 * (ranks - 1);
    return RILL_OK;
}
