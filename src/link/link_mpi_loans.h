/* Long messages between ranks of a host over MPI, read by the receiver where they lie.
 *
 * Idea. Where MPI has no way to copy from process to process by itself, a long message moves on
 * only while its sender is in a call of MPI: a rank that computes keeps the others waiting. So the
 * sender sends where the bytes lie, a loan, and the receiver has the kernel copy them, and writes
 * into the sender's memory that the loan is over. The sender need not be there.
 * Order. A loan is a message under the tag of the one that it stands for.
 * Restriction. Each rank of a host can read and write the memory of all others (link/reach.h), and
 * all ranks of the communicator have agreed on loans.
 * Cost. A small message and two calls of the kernel; one copy. */
#ifndef RILL_LINK_LINK_MPI_LOANS_H
#define RILL_LINK_LINK_MPI_LOANS_H

#include "link/link_mpi.h"
#include "link/reach.h"

/* From here on a message is lent: what is shorter Open MPI sends at once (4096 with its header). */
enum { RILL__LOAN_LEAST = 4000 };

/* What travels. No other message has this size and mark. */
typedef struct rill__loan {
    uint64_t mark, address, bytes;
    uint64_t over; /* where the receiver writes that it has them */
} rill__loan;

/* A loan under way, a posted receive that a loan may come to, or a message that a probe has taken
 * in to see whether it is one. */
typedef struct rill__loan_entry rill__loan_entry;

typedef struct rill__loans {
    const rill__reach *reach;      /* NULL: nothing is lent */
    int *place;                    /* of each rank on this host; -1: it is on another */
    rill__loan_entry *idle, *kept; /* kept: taken in by probes, in order */
    rill__loan_entry *first;       /* that were allocated at once */
    int under_way;                 /* lent: others may still write to the entry */
} rill__loans;

/* Local. No memory: nothing is lent, and the others must not lend either. */
rill_status rill__loans_reserve(rill__loans *, int ranks);
/* All have agreed. The reach outlives the loans. */
void rill__loans_open(rill__loans *, const rill__reach *, const rill__hosts *, int ranks);
void rill__loans_free(rill__loans *);

/* Words of wires that are an entry's. MPI's own requests are pointers or small numbers. */
static inline bool rill__loan_is(const rill__wire *wire) { return wire->word >> 63; }

/* RILL_IN_PROGRESS: the message must be sent as it is. */
rill_status rill__loan_send(rill__loans *, MPI_Comm, int to, int tag, const void *, size_t bytes,
                            rill__wire *);
rill_status rill__loan_post(rill__loans *, MPI_Comm, int source, int tag, void *, size_t room,
                            rill__wire *);
rill_status rill__loan_test(rill__loans *, MPI_Comm, rill__wire *, size_t *bytes);
void rill__loan_cancel(rill__loans *, rill__wire *, bool *came);

/* The first message that earlier probes have taken in. */
bool rill__loan_kept(const rill__loans *, int source, int tag, rill__arrival *);
/* MPI's probe has found a message as large as a loan: takes it in, and tells what it stands for. */
rill_status rill__loan_found(rill__loans *, MPI_Comm, rill__arrival *);
/* What one of these two has told of. NULL: it is thrown away. */
rill_status rill__loan_receive(rill__loans *, const rill__arrival *, void *);

#endif
