/* Starting the tool on several ranks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_LAUNCH_H
#define RILL_TOOL_LAUNCH_H

#include <stdbool.h>

/* What has started this process. Rendezvous: it knows its rank, the number of ranks and where they
 * meet (RILL_RENDEZVOUS): Slurm, torchrun, a shell, or launch_processes. */
typedef enum launch_kind { UNDER_NOTHING, UNDER_MPI, UNDER_RENDEZVOUS } launch_kind;
launch_kind launch_under(void);
/* In main: finds it out, and lets only rank 0 speak. */
void launch_look(int argc, char **argv);

typedef struct launch_job {
    const char *command; /* for messages */
    int ranks;           /* 0: as many as the host file has */
    const char *hostfile;
    int argc;
    char **argv; /* of the command */
    bool unbound;
    bool gentle; /* ranks end by themselves after SIGUSR1: it is what a first Ctrl-C becomes */
} launch_job;
/* In the environment of ranks of such a job. */
#define LAUNCH_STARTED "RILL_STARTED"

/* Run this program again on so many ranks, and return its exit status. */
int launch_mpirun(const launch_job *);
/* Processes of our own: on this host, or by ssh on those of the host file. */
int launch_processes(const launch_job *);
/* On a host of those: RILL_LAUNCH is FIRST:COUNT, the ranks that this process is to start here.
 * False: it is not set. */
bool launch_here(int argc, char **argv, int *status);

/* This program's file. Says what is wrong. */
bool launch_self(char *path, int size);

/* Keeps big blocks in the heap, so that MPI's temporaries are not mapped and faulted in anew with
 * every call. A user's own setting stays. Returns whether a tuning is in force. */
bool launch_tune_malloc(void);
void launch_tune_environment(void); /* the same for processes to come */

/* Whether rank 0 may write a progress line: its own stderr is a pipe to the launcher, so the
 * process that started the launcher has looked. */
bool launch_progress(void);

#endif
