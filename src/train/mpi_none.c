/* What train_mpi.c has, in a library without MPI (RILL_MPI=OFF): no team has MPI there, so that
 * nobody asks. */
#include "train/data_internal.h"

static rill_status none(void) {
    return rill__data_fail(RILL_ERR_UNSUPPORTED, "this rill was built without MPI");
}

rill_status rill__mpi_dup(const void *mpi, void **out) {
    (void)mpi;
    *out = NULL;
    return none();
}
void rill__mpi_free(void **mpi) { *mpi = NULL; }
rill_status rill__mpi_comm(const void *mpi, const rill_config *config, rill_comm **out) {
    (void)mpi, (void)config;
    *out = NULL;
    return none();
}
bool rill__mpi_threads(void) { return true; }
bool rill__mpi_simulated(void) { return false; }
double rill__mpi_seconds(void) { return 0; }
rill_status rill__mpi_sum(const void *mpi, const float *mine, float *all, uint64_t n) {
    (void)mpi, (void)mine, (void)all, (void)n;
    return none();
}
rill_status rill__mpi_gather(const void *mpi, float *values, const int *counts,
                             const int *offsets) {
    (void)mpi, (void)values, (void)counts, (void)offsets;
    return none();
}
rill_status rill__mpi_file_open(const void *mpi, const char *path, rill__file *file) {
    (void)mpi;
    return rill__file_open_alone(path, file);
}
rill_status rill__mpi_file_read(const rill__file *file, uint64_t offset, void *into, size_t n) {
    (void)file, (void)offset, (void)into, (void)n;
    return none();
}
void rill__mpi_file_close(rill__file *file) { file->is_mpi = false; }
