/* Some ranks of a link, numbered anew, in an epoch of their own: what rill_comm_shrink makes. Many
 * of them may share a link, which is closed when the last of them is. */
#ifndef RILL_LINK_SUBSET_H
#define RILL_LINK_SUBSET_H

#include "link/link.h"

/* *link becomes one that can share what it was with others: the same ranks, the same epoch. A
 * failure leaves it as it is; one that can share already stays what it is. */
rill_status rill__subset_wrap(rill__link **link);
bool rill__is_subset(const rill__link *);
/* Of a wrapped link: memory for a subset of it, which is not open yet. */
rill_status rill__subset_reserve(rill__link *of, rill__link **out);
void rill__subset_cancel(rill__link *); /* one that was never opened; NULL is fine */
/* Opens it, which cannot fail: n ranks of the link that it is of, ascending, this one among them.
 */
void rill__subset_open(rill__link *, const rill__link *of, const int *ranks, int n, unsigned epoch);
/* The highest epoch that this rank has seen on what the link shares; raised to at_least. */
unsigned rill__subset_epoch(rill__link *, unsigned at_least);
/* Has this called when what the link shares is closed. False: out of memory. */
bool rill__subset_defer(rill__link *, void (*call)(void *), void *context);

#endif
