/* Training over MPI: the public calls that take an MPI_Comm, MPI-IO, and MPI's own sums and gathers
 * of whole vectors, which sparse ones are compared with.
 */
#include "train/train_internal.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* What SimGrid's MPI is, as data: nothing else here or elsewhere in training asks for it. */
#ifdef SMPI_H
enum { SIMULATED = 1 };
#else
enum { SIMULATED = 0 };
#endif

bool rill__mpi_simulated(void) { return SIMULATED; }
double rill__mpi_seconds(void) { return MPI_Wtime(); }

static MPI_Comm comm_of(const void *mpi) { return *(const MPI_Comm *)mpi; }

static rill_status fail_mpi(const char *what) {
    return rill__data_fail(RILL_ERR_MPI, "%s failed", what);
}

/* ---- communicators -------------------------------------------------------------------------- */

/* What MPI would answer with the end of the program. */
static rill_status check(const char *call, MPI_Comm parent) {
    int up = 0, down = 0, inter = 0;
    MPI_Initialized(&up);
    MPI_Finalized(&down);
    if (!up || down)
        return rill__data_fail(RILL_ERR_STATE, "%s: MPI %s", call,
                               up ? "has been finalised" : "is not initialised");
    if (parent == MPI_COMM_NULL)
        return rill__data_fail(RILL_ERR_ARGUMENT, "%s: the communicator is MPI_COMM_NULL", call);
    MPI_Comm_test_inter(parent, &inter);
    if (inter) return rill__data_fail(RILL_ERR_ARGUMENT, "%s: this is an intercommunicator", call);
    return RILL_OK;
}

rill_status rill__mpi_dup(const void *mpi, void **out) {
    MPI_Comm *own = malloc(sizeof *own), comm;
    *out = NULL;
    bool good = MPI_Comm_dup(comm_of(mpi), &comm) == MPI_SUCCESS;
    if (good) MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (good && own) *own = comm, *out = own;
    if (*out) return RILL_OK;
    if (good) MPI_Comm_free(&comm);
    free(own);
    return good ? rill__data_memory("a communicator") : fail_mpi("MPI_Comm_dup");
}

void rill__mpi_free(void **mpi) {
    if (!*mpi) return;
    MPI_Comm_free((MPI_Comm *)*mpi);
    free(*mpi);
    *mpi = NULL;
}

rill_status rill__mpi_comm(const void *mpi, const rill_config *config, rill_comm **out) {
    return rill_comm_create(comm_of(mpi), config, out);
}

bool rill__mpi_threads(void) {
    int level = MPI_THREAD_SINGLE;
    if (SIMULATED) return true; /* the parts are done in turn: train_pool.c */
    return MPI_Query_thread(&level) == MPI_SUCCESS && level >= MPI_THREAD_FUNNELED;
}

/* A communicator for one call. */
static rill_status begin(const char *call, MPI_Comm parent, rill_comm **comm) {
    rill_config config = RILL_CONFIG_INIT;
    config.check = config.progress_thread = 0;
    config.learn = "off";
    RILL_TRY_DATA(check(call, parent));
    return rill_comm_create(parent, &config, comm);
}

static rill_status end(rill_comm **comm, rill_status status) {
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    rill_comm_free(comm);
    return status == RILL_OK ? status : rill_error_set(status, detail);
}

/* ---- public calls --------------------------------------------------------------------------- */

rill_status rill_dataset_load(MPI_Comm parent, const char *path, const rill_data_options *options,
                              rill_dataset **out) {
    rill_comm *comm;
    if (out) *out = NULL;
    RILL_TRY_DATA(begin("rill_dataset_load", parent, &comm));
    return end(&comm, rill__dataset_load(comm, &parent, path, options, out));
}

rill_status rill_dataset_create(MPI_Comm parent, const rill_data_view *view, rill_dataset **out) {
    rill_comm *comm;
    if (out) *out = NULL;
    RILL_TRY_DATA(begin("rill_dataset_create", parent, &comm));
    return end(&comm, rill_dataset_create_on(comm, view, out));
}

rill_status rill_model_evaluate(MPI_Comm parent, const rill_model *m, const rill_dataset *set,
                                rill_metrics *metrics) {
    rill_comm *comm;
    RILL_TRY_DATA(begin("rill_model_evaluate", parent, &comm));
    return end(&comm, rill_model_evaluate_on(comm, m, set, metrics));
}

rill_status rill_trainer_create(MPI_Comm parent, const rill_dataset *train,
                                const rill_dataset *valid, const rill_train_options *options,
                                rill_trainer **out) {
    rill_comm *comm;
    if (out) *out = NULL;
    RILL_TRY_DATA(begin("rill_trainer_create", parent, &comm));
    return end(&comm, rill__trainer_create(comm, &parent, train, valid, options, out));
}

rill_status rill_trainer_choose_C(MPI_Comm parent, const rill_dataset *train,
                                  const rill_train_options *options, rill_C_choice *out) {
    rill_comm *comm;
    RILL_TRY_DATA(begin("rill_trainer_choose_C", parent, &comm));
    return end(&comm, rill_trainer_choose_C_on(comm, train, options, out));
}

/* ---- whole vectors -------------------------------------------------------------------------- */

/* In pieces that MPI's counts can express. */
rill_status rill__mpi_sum(const void *mpi, const float *mine, float *all, uint64_t n) {
    const uint64_t most = UINT64_C(1) << 30;
    for (uint64_t at = 0; at < n; at += most) {
        int count = (int)(n - at < most ? n - at : most);
        if (MPI_Allreduce(mine + at, all + at, count, MPI_FLOAT, MPI_SUM, comm_of(mpi)) !=
            MPI_SUCCESS)
            return fail_mpi("MPI_Allreduce");
    }
    return RILL_OK;
}

rill_status rill__mpi_gather(const void *mpi, float *values, const int *counts,
                             const int *offsets) {
    if (MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, values, counts, offsets, MPI_FLOAT,
                       comm_of(mpi)) != MPI_SUCCESS)
        return fail_mpi("MPI_Allgatherv");
    return RILL_OK;
}

/* ---- files ---------------------------------------------------------------------------------- */

_Static_assert(sizeof(MPI_File) <= sizeof(uint64_t), "a file's handle is a word");
static MPI_File file_of(const rill__file *file) {
    MPI_File opened;
    memcpy(&opened, &file->mpi, sizeof opened);
    return opened;
}

static rill_status fail_file(const char *path, const char *what, int code) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return rill__data_fail(RILL_ERR_IO, "%s: %s: %.300s", path, what, text);
}

rill_status rill__mpi_file_open(const void *mpi, const char *path, rill__file *file) {
    MPI_Offset size = 0;
    MPI_File opened;
    if (SIMULATED) return rill__file_open_alone(path, file); /* its disks are simulated, too */
    *file = (rill__file){.path = path, .fd = -1};
    char place[4096]; /* Open MPI 4 does not open files whose whole name is a letter */
    snprintf(place, sizeof place, "%s%s", strchr(path, '/') ? "" : "./", path);
    int code = MPI_File_open(comm_of(mpi), place, MPI_MODE_RDONLY, MPI_INFO_NULL, &opened);
    if (code != MPI_SUCCESS) return fail_file(path, "cannot be opened", code);
    memcpy(&file->mpi, &opened, sizeof opened);
    file->is_mpi = true;
    code = MPI_File_get_size(opened, &size);
    if (code != MPI_SUCCESS) return fail_file(path, "its size is unknown", code);
    file->size = (uint64_t)size;
    return RILL_OK;
}

rill_status rill__mpi_file_read(const rill__file *file, uint64_t offset, void *into, size_t n) {
    MPI_Status status;
    int got = 0;
    /* The caller's buffers are far below 2 GiB, which is what a count can say. */
    int code = MPI_File_read_at(file_of(file), (MPI_Offset)offset, into, (int)n, MPI_BYTE, &status);
    if (code != MPI_SUCCESS) return fail_file(file->path, "cannot be read", code);
    MPI_Get_count(&status, MPI_BYTE, &got);
    if ((size_t)got != n)
        return rill__data_fail(RILL_ERR_IO, "%s: ends at byte %llu of %llu: changed while reading?",
                               file->path, (unsigned long long)(offset + (uint64_t)got),
                               (unsigned long long)file->size);
    return RILL_OK;
}

void rill__mpi_file_close(rill__file *file) {
    MPI_File opened = file_of(file);
    MPI_File_close(&opened);
    file->is_mpi = false;
}
