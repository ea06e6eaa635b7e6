/* Fibers: several courses of a program in one thread. One runs until it yields, and goes on from
 * there when it is resumed. The local world (link/world.h) has one for each rank, so that a
 * blocking call of one rank can wait for another rank in the same thread. */
#ifndef RILL_LINK_FIBER_H
#define RILL_LINK_FIBER_H

#include "core/core.h"

typedef struct rill__fiber rill__fiber;

enum {
    RILL__FIBER_STACK = 256 << 10
}; /* enough for any call of the library; touched pages cost memory only */

rill_status rill__fiber_create(size_t stack, rill__fiber **out);
void rill__fiber_free(
    rill__fiber *); /* NULL is fine; also one that has not ended: it is dropped as it stands */
/* Sets what the next resume begins. The fiber has ended, or has never run. */
void rill__fiber_start(rill__fiber *, void (*run)(void *), void *argument);
/* From outside: runs the fiber until it yields or ends. True: it has ended. */
bool rill__fiber_resume(rill__fiber *);
/* From inside: back to whoever resumed it. */
void rill__fiber_yield(rill__fiber *);

#endif
