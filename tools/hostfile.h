/* Hosts, and how many ranks each takes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_HOSTFILE_H
#define RILL_TOOL_HOSTFILE_H

#include <stdbool.h>

typedef struct hostfile_host {
    char *name;
    int slots;
} hostfile_host;

typedef struct hostfile {
    int n, slots; /* slots: of all */
    hostfile_host *host;
} hostfile;

/* Lines "HOST", "HOST slots=N" (Open MPI) and "HOST:N" (MPICH); # begins a comment. A host that
 * comes again has more slots. Says what is wrong. */
bool hostfile_read(const char *command, const char *path, hostfile *);
void hostfile_free(hostfile *);

#endif
