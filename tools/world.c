/* See world.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "world.h"
#include "launch.h"
#include "parse.h"
#include "tool_mpi.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const world_link_names[] = {"mpi", "ucx", "local", NULL};

bool world_option(const char *command, int option, const char *value, world_options *o,
                  int *status) {
    *status = EXIT_OK;
    switch (option) {
    case WORLD_OPT_RANKS:
        if (!parse_int(value, 1, 1 << 20, &o->ranks))
            *status = tool_usage(command, "--ranks: '%s' is not a number of ranks", value);
        return true;
    case WORLD_OPT_HOSTFILE: o->hostfile = value; return true;
    case WORLD_OPT_LINK:
        for (int i = 0; world_link_names[i]; i++)
            if (!strcmp(value, world_link_names[i])) {
                o->link = (world_link)(i + 1);
                return true;
            }
        *status = tool_usage(command, "--link: '%s' is not mpi, ucx or local", value);
        return true;
    default: return false;
    }
}

double world_clock(void) {
#ifdef RILL_TOOL_SMPI
    return tool_mpi_clock();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
}

#ifdef RILL_TOOL_SMPI
void world_edge(void) {}
#else
void world_edge(void) {
    const double step = 4e-6;
    double now = world_clock(), edge = (floor(now / step) + 1) * step;
    while (now < edge)
        now = world_clock();
}
#endif

/* ---- talk ------------------------------------------------------------------------------------ */

/* Whoever started the ranks ends the others. */
static void must(rill_status status) {
    if (status == RILL_OK) return;
    tool_error("%s: %s", rill_strerror(status), rill_last_error());
    fflush(NULL);
    _exit(EXIT_FAILED);
}

static void *room(size_t ranks, size_t bytes) {
    void *all = calloc(ranks, bytes);
    if (all) return all;
    tool_error("out of memory");
    _exit(EXIT_FAILED);
}

void world_gather(const tool_world *w, const void *mine, size_t bytes, void *all) {
    if (w->mpi) tool_mpi_gather(mine, bytes, all);
    else must(rill_comm_gather_bytes(w->comm, mine, bytes, all));
}

void world_barrier(const tool_world *w) {
    if (w->mpi) {
        tool_mpi_barrier();
        return;
    }
    char *all = room((size_t)w->size, 1);
    world_gather(w, "", 1, all);
    free(all);
}

void world_bcast(const tool_world *w, void *data, size_t bytes, int root) {
    if (w->mpi) tool_mpi_bcast(data, bytes, root);
    else must(rill_comm_bcast_bytes(w->comm, data, bytes, root));
}

/* In the order of the ranks. */
#define COMBINE(into, with, op)                                                                    \
    switch (op) {                                                                                  \
    case WORLD_SUM: (into) += (with); break;                                                       \
    case WORLD_PROD: (into) *= (with); break;                                                      \
    case WORLD_MIN: (into) = (with) < (into) ? (with) : (into); break;                             \
    case WORLD_MAX: (into) = (with) > (into) ? (with) : (into); break;                             \
    }

#define REDUCE(type, values, n, op)                                                                \
    do {                                                                                           \
        type *all = room((size_t)w->size, (size_t)(n) * sizeof *all);                              \
        world_gather(w, values, (size_t)(n) * sizeof *all, all);                                   \
        memcpy(values, all, (size_t)(n) * sizeof *all);                                            \
        for (size_t i = (size_t)(n); i < (size_t)w->size * (size_t)(n); i++)                       \
            COMBINE((values)[i % (size_t)(n)], all[i], op)                                         \
        free(all);                                                                                 \
    } while (0)

int world_int(const tool_world *w, int value, world_op op) {
    if (w->mpi) tool_mpi_ints(&value, 1, op);
    else REDUCE(int, &value, 1, op);
    return value;
}

rill_status world_agree(const tool_world *w, rill_status mine) {
    int first = world_int(w, mine == RILL_OK ? w->size : w->rank, WORLD_MIN);
    if (first == w->size) return RILL_OK;
    char detail[512];
    int status = mine;
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    world_bcast(w, &status, sizeof status, first);
    world_bcast(w, detail, sizeof detail, first);
    return rill_error_set((rill_status)status, detail);
}

void world_u64(const tool_world *w, uint64_t *values, int n, world_op op) {
    if (w->mpi) tool_mpi_u64(values, n, op);
    else REDUCE(uint64_t, values, n, op);
}

void world_f64(const tool_world *w, double *values, int n, world_op op) {
    enum { PIECE = 1 << 14 };
    if (w->mpi) {
        tool_mpi_f64(values, n, op);
        return;
    }
    for (int at = 0; at < n; at += PIECE) {
        int some = n - at < PIECE ? n - at : PIECE;
        REDUCE(double, values + at, some, op);
    }
}

rill_status world_comm(const tool_world *w, const rill_config *config, rill_comm **comm) {
    return w->comm ? rill_comm_dup(w->comm, config, comm) : tool_mpi_comm(config, comm);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static int failed(const char *command) {
    tool_error("%s: %s", command, rill_last_error());
    return EXIT_FAILED;
}

static int introduce(const void *mine, size_t bytes, void *all, void *context) {
    (void)context;
    tool_mpi_gather(mine, bytes, all);
    return 0;
}

/* MPI has started the ranks, so that it can introduce them to each other. */
static rill_status join_by_mpi(tool_world *w) {
    tool_mpi_place(&w->rank, &w->size);
    if (w->link != LINK_UCX) return RILL_OK;
    rill_bootstrap bootstrap = RILL_BOOTSTRAP_INIT;
    bootstrap.rank = w->rank;
    bootstrap.ranks = w->size;
    bootstrap.allgather = introduce;
    return rill_comm_create_ucx(&bootstrap, NULL, &w->comm);
}

static rill_status join_by_address(tool_world *w) {
    rill_bootstrap meeting;
    rill_status status = rill_bootstrap_create(NULL, -1, -1, &meeting);
    if (status == RILL_OK) status = rill_comm_create_ucx(&meeting, NULL, &w->comm);
    rill_bootstrap_free(&meeting);
    w->rank = rill_comm_rank(w->comm);
    w->size = rill_comm_size(w->comm);
    return status;
}

/* A process that something has started as one of several ranks. */
static int run_rank(const world_job *job, launch_kind kind) {
    tool_world w = {.link = job->options->link, .mpi = kind == UNDER_MPI};
    if (w.mpi) tool_mpi_begin(job->threads);
    if (w.link == LINK_ANY) w.link = w.mpi ? LINK_MPI : LINK_UCX;
    if ((w.mpi ? join_by_mpi(&w) : join_by_address(&w)) != RILL_OK) return failed(job->command);
    int status = EXIT_USAGE, asked = job->options->ranks;
    if (asked && asked != w.size)
        tool_usage(job->command, "--ranks: %d were asked for, the launcher started %d", asked,
                   w.size);
    else status = job->run(&w, job->context);
    if (w.comm) rill_comm_free(&w.comm);
    return status;
}

#ifndef RILL_TOOL_SMPI
typedef struct local_rank {
    const world_job *job;
    tool_world w;
    pthread_t thread;
    int status;
} local_rank;

static void *run_thread(void *argument) {
    local_rank *one = argument;
    tool_set_speaks(one->w.rank == 0);
    one->status = one->job->run(&one->w, one->job->context);
    rill_comm_free(&one->w.comm);
    return NULL;
}

/* Ranks as threads of this process; rank 0 is the caller's. */
static int run_local(const world_job *job, int n) {
    rill_comm **comms = calloc((size_t)n, sizeof *comms);
    local_rank *all = calloc((size_t)n, sizeof *all);
    int status = EXIT_OK;
    if (!comms || !all || rill_comm_create_local(n, NULL, comms) != RILL_OK) {
        status = comms && all ? failed(job->command) : EXIT_FAILED;
        free(comms);
        free(all);
        return status;
    }
    for (int i = n - 1; i >= 0; i--) {
        all[i] = (local_rank){job, {i, n, LINK_LOCAL, false, comms[i]}, pthread_self(), EXIT_OK};
        if (!i) run_thread(&all[0]);
        else if (pthread_create(&all[i].thread, NULL, run_thread, &all[i])) {
            tool_error("%s: cannot start a thread for rank %d", job->command, i);
            _exit(EXIT_FAILED); /* the others would wait for it */
        }
    }
    for (int i = 0; i < n; i++) {
        if (i) pthread_join(all[i].thread, NULL);
        if (all[i].status > status) status = all[i].status;
    }
    free(comms);
    free(all);
    return status;
}
#endif

static int refuse(const world_job *job, launch_kind kind) {
    world_link link = job->options->link;
    if (link == LINK_MPI && !tool_mpi_built())
        return tool_usage(job->command, "--link: mpi: this rill was built without MPI");
    if (link == LINK_LOCAL && kind != UNDER_NOTHING)
        return tool_usage(job->command, "--link: local: its ranks are threads of one process, and "
                                        "this is a rank of several already");
    if (link == LINK_LOCAL && job->options->hostfile)
        return tool_usage(job->command, "--hostfile: the ranks of --link local are threads of one "
                                        "process");
    return EXIT_OK;
}

int world_run(const world_job *job) {
    launch_kind kind = launch_under();
    int status = refuse(job, kind);
    if (status != EXIT_OK) return status;
    if (kind != UNDER_NOTHING) return run_rank(job, kind);
#ifdef RILL_TOOL_SMPI
    return EXIT_FAILED; /* it is always under a launcher */
#else
    world_link link = job->options->link;
    int ranks = job->options->ranks ? job->options->ranks : job->ranks;
    bool hosts = job->options->hostfile != NULL;
    if (link == LINK_ANY && ranks == 1 && !hosts) link = LINK_LOCAL;
    if (link == LINK_ANY) link = tool_mpi_built() ? LINK_MPI : LINK_UCX;
    if (job->tune_malloc) launch_tune_environment();
    if (link == LINK_LOCAL) {
        if (job->tune_malloc) launch_tune_malloc();
        return run_local(job, ranks);
    }
    launch_job start = {.command = job->command,
                        .ranks = hosts && !job->options->ranks ? 0 : ranks,
                        .hostfile = job->options->hostfile,
                        .argc = job->argc,
                        .argv = job->argv,
                        .unbound = job->unbound,
                        .gentle = job->gentle};
    return link == LINK_MPI ? launch_mpirun(&start) : launch_processes(&start);
#endif
}
