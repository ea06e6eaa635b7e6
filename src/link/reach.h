/* The memory of other ranks of this host, read and written by the kernel from process to process:
 * vectors need not be copied to where both can see them.
 *
 * It is not always allowed: processes of different users, Yama's ptrace_scope, a container's
 * filter of system calls, ranks whose numbers of processes are of different namespaces. So each
 * rank tries it with every other when a communicator is made. */
#ifndef RILL_LINK_REACH_H
#define RILL_LINK_REACH_H

#include "link/hosts.h"

/* By place on this host. All 0: nobody's memory can be read. */
typedef struct rill__reach {
    int64_t *process;
    uint64_t word; /* what the others read when they try */
    char greeting; /* where they write */
} rill__reach;

/* Collective, by the link's allgather. *all: this rank can read and write the memory of all other
 * ranks of its host; what the others can it does not know. No memory for the table is no failure.
 * The reach stays where it is until all ranks have tried. */
rill_status rill__reach_find(rill__reach *, rill__link *, const rill__hosts *, bool *all);
void rill__reach_free(rill__reach *);

/* Copies bytes from that address of the rank at that place. False: they are not there, or not for
 * this rank (any more), and to has some of them or none. */
bool rill__reach_read(const rill__reach *, int place, uint64_t from, void *to, size_t bytes);
/* The other way. */
bool rill__reach_write(const rill__reach *, int place, uint64_t to, const void *from, size_t bytes);

#endif
