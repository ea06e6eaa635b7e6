/* What selection and reduction did in each step of a run, beside what they are meant to do. */
#ifndef BENCH_CONVERGENCE_TRACE_H
#define BENCH_CONVERGENCE_TRACE_H

#include <rill/rill.h>
#include <stdio.h>

typedef struct trace trace;

/* k entries of dim are aimed at. Collective, as are before and after. NULL: no memory. */
trace *trace_create(MPI_Comm, FILE *json_or_null, const char *model, uint64_t dim, uint64_t k);
void trace_free(trace *);
/* Before and after a reducer's step on fed, a gradient times the learning rate. The reducer has no
 * momentum and no clipping, and gives means. */
void trace_before(trace *, const rill_reducer *, const float *fed);
void trace_after(trace *, const rill_reducer *, const char *method, int step, const float *update);

#endif
