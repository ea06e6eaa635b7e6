/* Several encoded messages in one, so that a partner gets one message a round (RILL__M_BUNDLE). */
#ifndef RILL_COLL_PATTERNS_BUNDLE_H
#define RILL_COLL_PATTERNS_BUNDLE_H

#include "coll/coll.h"

/* *out = the n messages, whose bytes start at start[i]. A failure goes instead, if there is one or memory
 * is short. */
rill_status rill__bundle(rill_request *, int n, const void *const *start, rill__block **out);

#endif
