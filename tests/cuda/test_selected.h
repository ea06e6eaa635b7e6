/* One selection on host and device, and the comparison. */
#ifndef RILL_TESTS_TEST_SELECTED_H
#define RILL_TESTS_TEST_SELECTED_H

#include "test_cuda.h"

/* What is selected from: a dense vector; a residual, cleared where selected; a residual after a
 * gradient was added. */
enum form { DENSE, CLEARED, ADDED, FORMS };

typedef struct selection {
    rill_type type;
    uint64_t n;
    enum form form;
    bool guards;
    enum data kind;
    uint64_t room; /* pairs that can be selected */

    void *given, *gradient, *residual; /* host; residual: afterwards */
    rill_stream *expected;
    uint64_t nonfinite; /* sums */
    void *device_given, *device_gradient;
} selection;

void selection_begin(selection *);
/* What the host selects, at that call of the selector (from 1 on). */
void selection_host(selection *, const rill_select_options *, int calls);
rill__cuda_select selection_call(selection *); /* without a workspace */
void selection_end(selection *, rill__cuda_select *, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
