/* See tool_mpi.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "tool_mpi.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

bool tool_mpi_built(void) { return true; }

static const struct {
    int level;
    const char *name;
} levels[] = {
    [TOOL_SINGLE] = {MPI_THREAD_SINGLE, "single"},
    [TOOL_FUNNELED] = {MPI_THREAD_FUNNELED, "funneled"},
    [TOOL_SERIALIZED] = {MPI_THREAD_SERIALIZED, "serialized"},
    [TOOL_MULTIPLE] = {MPI_THREAD_MULTIPLE, "multiple"},
};

void tool_mpi_begin(tool_threads threads) {
    int initialized = 0, provided, rank;
    const char *thread = getenv("RILL_PROGRESS_THREAD"); /* which MPI must allow; 0: to compare */
    if (thread && *thread) threads = TOOL_MULTIPLE;
    MPI_Initialized(&initialized);
    if (!initialized) MPI_Init_thread(NULL, NULL, levels[threads].level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    tool_set_speaks(rank == 0);
}

void tool_mpi_end(void) {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized) MPI_Finalize();
}

void tool_mpi_place(int *rank, int *size) {
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
}

void tool_mpi_host(char *name, size_t size) {
    char text[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int length;
    MPI_Get_processor_name(text, &length);
    snprintf(name, size, "%s", text);
}

double tool_mpi_clock(void) { return MPI_Wtime(); }

const char *tool_mpi_library(void) {
    static char name[64];
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    const char *version = strstr(text, "Version:");
    if (version) /* "MPICH Version:<tab>4.0.2" */
        snprintf(name, sizeof name, "%.*s%s", (int)(version - text), text,
                 version + 8 + strspn(version + 8, " \t"));
    else snprintf(name, sizeof name, "%.63s", text);
    return name;
}

const char *tool_mpi_standard(void) {
    static char text[32];
    int version, subversion;
    MPI_Get_version(&version, &subversion);
    snprintf(text, sizeof text, "%d.%d", version, subversion);
    return text;
}

const char *tool_mpi_threads(void) {
    int level = 0;
    MPI_Query_thread(&level);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (levels[i].level == level) return levels[i].name;
    return "unknown";
}

char *const *tool_mpi_launchers(const char **library, const char **package) {
#if defined(OPEN_MPI)
    static char *const launchers[] = {"mpirun.openmpi", "mpirun", NULL};
    *library = "Open MPI";
    *package = "openmpi-bin";
#elif defined(MPICH_VERSION)
    static char *const launchers[] = {"mpirun.mpich", "mpiexec.hydra", "mpirun", NULL};
    *library = "MPICH";
    *package = "mpich";
#else
    static char *const launchers[] = {"mpiexec", "mpirun", NULL};
    *library = "this MPI library";
    *package = "its launcher";
#endif
    return launchers;
}

bool tool_mpi_is_open(void) {
#ifdef OPEN_MPI
    return true;
#else
    return false;
#endif
}

/* ---- talk ---------------------------------------------------------------------------------- */

static MPI_Op op_of(world_op op) {
    switch (op) {
    case WORLD_MIN: return MPI_MIN;
    case WORLD_MAX: return MPI_MAX;
    case WORLD_PROD: return MPI_PROD;
    default: return MPI_SUM;
    }
}

void tool_mpi_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

void tool_mpi_gather(const void *mine, size_t bytes, void *all) {
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

void tool_mpi_bcast(void *data, size_t bytes, int root) {
    MPI_Bcast(data, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}

void tool_mpi_ints(int *values, int n, world_op op) {
    MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_INT, op_of(op), MPI_COMM_WORLD);
}

void tool_mpi_u64(uint64_t *values, int n, world_op op) {
    MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_UINT64_T, op_of(op), MPI_COMM_WORLD);
}

void tool_mpi_f64(double *values, int n, world_op op) {
    MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_DOUBLE, op_of(op), MPI_COMM_WORLD);
}

rill_status tool_mpi_comm(const rill_config *config, rill_comm **out) {
    return rill_comm_create(MPI_COMM_WORLD, config, out);
}
