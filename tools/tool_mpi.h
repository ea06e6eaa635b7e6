/* All that the tool asks of MPI: tool_mpi.c, or mpi_none.c in a tool without it. The baseline of
 * rill bench is in bench_mpi.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_MPI_H
#define RILL_TOOL_MPI_H

#include "world.h"

bool tool_mpi_built(void);
/* MPI is initialised at most once: by main under a launcher, else by the command that needs it. */
void tool_mpi_begin(tool_threads);
void tool_mpi_end(void); /* if it was */
void tool_mpi_place(int *rank, int *size);
void tool_mpi_host(char *name, size_t size); /* of this rank; in a simulation a simulated one */
double tool_mpi_clock(void);                 /* in a simulation the one that counts */
/* "Open MPI v4.1.4", "MPICH 4.0.2": the first words of MPI_Get_library_version; "none". */
const char *tool_mpi_library(void);
const char *tool_mpi_standard(void); /* "3.1" */
const char *tool_mpi_threads(void);  /* "single" */
/* Its launchers, NULL-terminated, the name of the library and that of the package that has one. */
char *const *tool_mpi_launchers(const char **library, const char **package);
bool tool_mpi_is_open(void); /* it is Open MPI, and its launcher takes its options */

void tool_mpi_barrier(void);
void tool_mpi_gather(const void *mine, size_t bytes, void *all);
void tool_mpi_bcast(void *, size_t bytes, int root);
void tool_mpi_ints(int *values, int n, world_op);
void tool_mpi_u64(uint64_t *values, int n, world_op);
void tool_mpi_f64(double *values, int n, world_op);
rill_status tool_mpi_comm(const rill_config *or_null, rill_comm **);

#endif
