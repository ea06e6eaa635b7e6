/* What a launcher prints, passed on.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_LAUNCH_PASS_H
#define RILL_TOOL_LAUNCH_PASS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct launch_pass {
    int out, err;  /* ends to read from, of the launcher's standard output and error; -1: none */
    pid_t child;   /* the launcher */
    bool gone;     /* it has ended, with this status */
    int status;    /* as of waitpid */
    int unwritten; /* errno of standard output; 0: all is written */
    int dead;      /* the rank that a signal has ended, as the launcher tells; -1: it does not */
} launch_pass;

/* Until it has closed both, or has gone. A failure of standard output is noticed: launchers drop
 * it. What Open MPI says of a rank that has failed, a paragraph between two lines, is left out, and
 * read. */
void launch_pass_on(launch_pass *);

#endif
