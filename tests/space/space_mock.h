/* A memory that behaves like a device's, for tests: its pages cannot be touched but by its
 * operations, which run late and in order, when somebody waits. A touch from anywhere else is a
 * SIGSEGV; an operation that is given an array of another memory ends the program with a message.
 */
#ifndef RILL_TESTS_SPACE_MOCK_H
#define RILL_TESTS_SPACE_MOCK_H

#include "space/space.h"

typedef struct mock_counts {
    uint64_t operations; /* that ran */
    uint64_t late;       /* of these, such that ran in a later call than the one that gave them */
    uint64_t calls;      /* of host code */
    uint64_t bytes_in, bytes_out;
    uint64_t allocations, releases;
} mock_counts;

const rill__space *mock_create(void);
void mock_free(const rill__space *); /* all of its memory must have been released */
mock_counts mock_counted(const rill__space *);
/* Whether allocations fail from now on. */
void mock_fail_allocations(const rill__space *, bool fail);
uint64_t mock_pending(const rill__space *); /* operations that have not run yet */

#endif
