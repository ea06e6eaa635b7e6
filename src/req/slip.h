/* Slips: the messages of small calls that are like the one before, written straight into a box of
 * mail (req/mail.h) and read straight out of it.
 *
 * A slip has the bytes that rill__encode and rill__exchange_send would have put there, so that a
 * rank need not know whether its partner writes slips. It has no task and no parcel: all that does
 * not change from call to call is in a short header that was made once. Whoever finds that a box is
 * taken, that no slip comes, or that what came is no slip (a failure, other arguments, another
 * form) makes a task of the call, which sends and receives as ever: a slip that is in its box
 * counts as sent then (rill__mail_send), and one that was read lies there as before. So a slip is
 * never the one to tell of a mistake, and nobody waits for one.
 *
 * Restriction. Raw pairs of the whole dimension, in a short header with statistics. Cost. Two lines
 * for each partner that wait for another processor, one after the other: that of the stamp, and the
 * rest at once. */
#ifndef RILL_REQ_SLIP_H
#define RILL_REQ_SLIP_H

#include "req/request.h"

typedef struct rill__slip {
    rill__short_header head; /* but for number, count, size and words, which are 0 */
    const rill__space *host;
    rill__shape shape;
    size_t value_bytes;
    uint64_t dim;
    uint64_t most; /* entries; 0: there are no slips of such calls */
} rill__slip;

/* How slips of calls like the task's look, of so many entries at most; false: there are none. After
 * its last message. */
bool rill__slip_make(rill__slip *, const rill__task *, uint64_t most);
/* Room that a slip is received into, with slack. */
size_t rill__slip_room(const rill__slip *);

/* Pairs with the statistics of the ranks that they are of. Returns the bytes of the message; 0: its
 * box is taken. There are no requests. */
size_t rill__slip_send(rill__engine *, const rill__slip *, int to, const rill__pairs *,
                       uint64_t nnz_sum, uint64_t nnz_max);
/* The same of that rank. 0: it is not there after so many looks, or is no slip. */
size_t rill__slip_receive(rill__engine *, const rill__slip *, int from, int looks, void *room,
                          rill__pairs *, uint64_t *nnz_sum, uint64_t *nnz_max);
/* The call of these slips is over here. */
void rill__slip_taken(rill__engine *, int from);

#endif
