/* mpi_allreduce.h in a library without MPI (RILL_MPI=OFF): no link has MPI's collectives there
 * (rill__link.has_mpi), so that nobody asks for a sum. */
#include "coll/outside.h"
#include "coll/patterns/mpi_allreduce.h"

static rill_status none(void) {
    return rill__fail(RILL_ERR_UNSUPPORTED, "this rill was built without MPI");
}

bool rill__mpi_is_built_in(void) { return false; }

rill_status rill__mpi_sums_create(struct rill__mpi_sums **out) {
    *out = NULL;
    return none();
}

void rill__mpi_sums_free(struct rill__mpi_sums *sums) { (void)sums; }

void *rill__mpi_room(rill__run *run, rill__mpi_allreduce *sum, int i, size_t bytes) {
    (void)run, (void)sum, (void)i, (void)bytes;
    none();
    return NULL;
}

rill_status rill__mpi_allreduce_step(rill__run *run, rill__mpi_allreduce *sum) {
    (void)run, (void)sum;
    return none();
}

void rill__mpi_allreduce_forgo(rill__run *run) { run->outside->task->may_post = false; }
