/* Processes that are ranks, or run the ranks of a host: started, watched, ended together.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_LAUNCH_CHILDREN_H
#define RILL_TOOL_LAUNCH_CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct child {
    pid_t pid;
    int rank;         /* -1: it runs a host's */
    const char *host; /* of such a one; the caller's */
    int leash;        /* such a one ends when this is closed; -1: it is a child like others */
    bool gone;
} child;

typedef struct children {
    int n, most;
    child *one;
    int leash; /* all end when this can't be read any more; -1: there is none. A byte from it asks
                * them to end by themselves, as Ctrl-C does */
    bool gentle, asked; /* gentle: they do that after SIGUSR1; asked: they were */
} children;

/* From here to children_close signals that would end this process end the children first. Gentle:
 * of Ctrl-C and SIGTERM only the second does, the first asks them to end. */
bool children_open(children *, int most, int leash, bool gentle);
/* Say what is wrong. Words: the program and its arguments. */
bool children_start_rank(children *, int rank, char **words);
bool children_start_host(children *, const char *host, char **words);
/* Until all have ended; good: all were started, else they are ended. Returns the exit status: of
 * the first that has failed. Where a signal has come, this process ends by it. */
int children_wait(children *, bool good);
void children_close(children *);

#endif
