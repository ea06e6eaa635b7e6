/* tool_mpi.h, bench_mpi.h and world_train.h in a tool that was built without MPI (RILL_MPI=OFF).
 * Nobody gets to most of this: world_run refuses the link, and no world is MPI's.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench_mpi.h"
#include "tool_mpi.h"
#include "world_train.h"

bool tool_mpi_built(void) { return false; }
void tool_mpi_begin(tool_threads threads) { (void)threads; }
void tool_mpi_end(void) {}
void tool_mpi_place(int *rank, int *size) { *rank = 0, *size = 1; }
void tool_mpi_host(char *name, size_t size) { snprintf(name, size, "localhost"); }
double tool_mpi_clock(void) { return 0; }
const char *tool_mpi_library(void) { return "without MPI"; }
const char *tool_mpi_standard(void) { return "none"; }
const char *tool_mpi_threads(void) { return "none"; }
char *const *tool_mpi_launchers(const char **library, const char **package) {
    static char *const launchers[] = {NULL};
    *library = *package = "MPI";
    return launchers;
}
bool tool_mpi_is_open(void) { return false; }

void tool_mpi_barrier(void) {}
void tool_mpi_gather(const void *mine, size_t bytes, void *all) {
    (void)mine, (void)bytes, (void)all;
}
void tool_mpi_bcast(void *data, size_t bytes, int root) { (void)data, (void)bytes, (void)root; }
void tool_mpi_ints(int *values, int n, world_op op) { (void)values, (void)n, (void)op; }
void tool_mpi_u64(uint64_t *values, int n, world_op op) { (void)values, (void)n, (void)op; }
void tool_mpi_f64(double *values, int n, world_op op) { (void)values, (void)n, (void)op; }
static rill_status none(void) {
    return rill_error_set(RILL_ERR_UNSUPPORTED, "this rill was built without MPI");
}
rill_status tool_mpi_comm(const rill_config *config, rill_comm **out) {
    (void)config;
    *out = NULL;
    return none();
}
rill_status mpi_dataset_load(const char *path, const rill_data_options *options,
                             rill_dataset **out) {
    (void)path, (void)options, (void)out;
    return none();
}
rill_status mpi_model_evaluate(const rill_model *model, const rill_dataset *set,
                               rill_metrics *metrics) {
    (void)model, (void)set, (void)metrics;
    return none();
}
rill_status mpi_trainer_create(const rill_dataset *train, const rill_dataset *valid,
                               const rill_train_options *options, rill_trainer **out) {
    (void)train, (void)valid, (void)options, (void)out;
    return none();
}
rill_status mpi_choose_C(const rill_dataset *set, const rill_train_options *options,
                         rill_C_choice *choice) {
    (void)set, (void)options, (void)choice;
    return none();
}

bool bench_mpi_make(rill_type type, bench_operation operation, bench_mpi **out) {
    (void)type, (void)operation;
    *out = NULL;
    return false;
}
void bench_mpi_free(bench_mpi **mpi) { *mpi = NULL; }
bool bench_mpi_run(const bench_mpi *mpi, const bench_mpi_call *call, double *seconds) {
    (void)mpi, (void)call;
    *seconds = 0;
    return false;
}
