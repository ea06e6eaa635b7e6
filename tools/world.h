/* The ranks that run a command: how they come to be, and how they tell each other things.
 *
 * A command that runs on several ranks describes itself in a world_job. world_run starts the ranks
 * where nobody has (launch.h), and calls job->run on each. They talk by MPI where an MPI launcher
 * has started them, else by a communicator of rill's own. A failure of that talk ends the process:
 * the launcher ends the others.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_WORLD_H
#define RILL_TOOL_WORLD_H

#include "tool.h"

#include <rill/rill.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What carries rill's messages. */
typedef enum world_link { LINK_ANY, LINK_MPI, LINK_UCX, LINK_LOCAL } world_link;
extern const char *const world_link_names[]; /* "mpi", "ucx", "local"; NULL-terminated */

typedef enum world_op { WORLD_SUM, WORLD_MIN, WORLD_MAX, WORLD_PROD } world_op;

typedef struct tool_world {
    int rank, size;
    world_link link; /* of the communicators that world_comm makes */
    bool mpi;        /* the ranks talk by MPI, which is there to be measured, too */
    rill_comm *comm; /* where it is not MPI that carries rill's messages: of all ranks */
} tool_world;

/* Options that commands on ranks share. */
typedef struct world_options {
    int ranks; /* 0: not given */
    world_link link;
    const char *hostfile;
} world_options;
enum { WORLD_OPT_LINK = 900, WORLD_OPT_HOSTFILE, WORLD_OPT_RANKS }; /* for getopt_long */
#define WORLD_OPTIONS                                                                              \
    {"ranks", required_argument, NULL, WORLD_OPT_RANKS},                                           \
        {"link", required_argument, NULL, WORLD_OPT_LINK}, {                                       \
        "hostfile", required_argument, NULL, WORLD_OPT_HOSTFILE                                    \
    }
/* Whether it is one of them; *status is that of reading it then. */
bool world_option(const char *command, int option, const char *value, world_options *, int *status);

typedef struct world_job {
    const char *command; /* for messages */
    const world_options *options;
    int ranks; /* where the options do not say */
    int argc;  /* of the command, for processes that are started */
    char **argv;
    bool tune_malloc, unbound; /* unbound: ranks are not to be bound to processors */
    bool gentle;               /* ranks end by themselves after SIGUSR1: see launch.h */
    tool_threads threads;
    int (*run)(const tool_world *, const void *context);
    const void *context;
} world_job;

/* Returns the exit status. */
int world_run(const world_job *);

/* Collective, all of them. */
void world_barrier(const tool_world *);
void world_gather(const tool_world *, const void *mine, size_t bytes, void *all);
void world_bcast(const tool_world *, void *, size_t bytes, int root);
int world_int(const tool_world *, int value, world_op);
/* All ranks get the failure of the lowest rank that has one. */
rill_status world_agree(const tool_world *, rill_status mine);
void world_u64(const tool_world *, uint64_t *values, int n, world_op);
void world_f64(const tool_world *, double *values, int n, world_op);
/* A new communicator of all ranks. */
rill_status world_comm(const tool_world *, const rill_config *or_null, rill_comm **);

/* Seconds. */
double world_clock(void);
/* Ranks leave a barrier one after another, which would be a good part of what a small call takes.
 * Those of a host share a clock: after this they begin together, at its next edge. */
void world_edge(void);

#endif
