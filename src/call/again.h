/* A small blocking sum that is like the last call of its communicator: without a request.
 *
 * Idea. What a call is planned from, what its messages say of it and what its end leaves behind is
 * mostly the same as in the call before. Where a few comparisons show that it is, the call consists
 * of slips (req/slip.h) and sums of pairs; the rest is a few stores.
 *
 * Nothing depends on which way a rank takes. Messages have the same bytes, sums the same order, and
 * planner, statistics and the list of past calls are left as a request would leave them. Whatever
 * is not as expected (a partner that is late or sends something else, a result that needs more
 * memory, a note of another rank) ends it before it has changed anything but the partner's boxes:
 * the call then begins anew as a request, under the same number and the same lock. That finds its
 * messages sent, and the others' where they were. So failures, aborts, ranks that are gone and
 * waiting are the request's affair, and of what the request needs nothing is missing then.
 *
 * Restriction. Sums by recursive doubling of 2^n ranks that have boxes for each other, raw values,
 * pairs in the host's memory, operations of rill's own whose neutral element is 0.
 * Memory. Two pieces and a message, of at most RILL__AGAIN_MOST entries each.
 * Cost. log2 P exchanges of slips, and as many merges. */
#ifndef RILL_CALL_AGAIN_H
#define RILL_CALL_AGAIN_H

#include "plan/plan.h"
#include "req/slip.h"

/* Above that many entries of a message its indices are coded, and the rest of a call is little. */
enum { RILL__AGAIN_MOST = 255, RILL__AGAIN_NAME = 24 };

/* The last call, as far as it says what the next one must be. */
typedef struct rill__again {
    bool on;   /* there was one, and nothing has been started since */
    bool runs; /* the last one was made without a request */
    rill__slip slip;
    const rill_op *op;
    uint64_t limit; /* entries above which a sum would turn dense, or the pieces are full */
    bool given;     /* it had options: these, and the texts of algorithm, codec, partition, scope */
    rill_options options;
    char names[4][RILL__AGAIN_NAME];
    rill__plan_key *key;
    rill__expect expect;
    struct rill_request *request; /* that served it, and is there for the next */
    rill__piece piece[2];
    rill__buffer room;
} rill__again;

struct rill_comm;
struct rill_request;
struct rill__arguments;

/* Whether the call is over, and well. False: it has yet to be made. Lock held. */
bool rill__again_run(struct rill_comm *, const struct rill__arguments *);
/* A blocking call has ended well: those like it may do without a request. Lock held. */
void rill__again_keep(struct rill_request *, const rill_options *);
void rill__again_free(rill__again *);

#endif
