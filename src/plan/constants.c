/* Default constants of the cost model, until `rill tune` measures the user's own machine.
 *
 * One host: measured with `rill bench` and `rill bench kernels` on two cores of an AMD EPYC (Zen 4)
 * with Open MPI 4.1.4 over shared memory. Several hosts: a 10 Gbit/s network; on slower ones the
 * order of the algorithms is the same, on faster ones dense vectors gain. */
#include "plan/plan.h"

#include <math.h>

void rill__constants_default(rill__constants *c, int hosts, double crowding) {
    *c = (rill__constants){
        .latency = 0.5e-6,
        .byte = 0.18e-9,
        .overhead = 0.3e-6,
        .merge = 1.0e-9,
        .sum = 2.0e-9,
        .scatter = 0.6e-9,
        .dense_add = 0.06e-9,
        .copy = 0.06e-9,
        .mpi_latency = 0.3e-6,
        .mpi_byte = 0.33e-9,
        /* In the caches, where small vectors are, all is faster than these figures, MPI most. */
        .doubt = 0.7,
    };
    if (hosts > 1) {
        c->doubt = 0.95;
        c->latency = c->mpi_latency = 25e-6;
        c->byte = c->mpi_byte = 0.9e-9;
    }
    if (crowding > 1) { /* ranks take turns on the processors */
        c->latency = fmax(c->latency, 2e-6);
        c->mpi_latency = fmax(c->mpi_latency, 1.5e-6);
        double *each[] = {&c->latency, &c->overhead,  &c->merge, &c->sum,
                          &c->scatter, &c->dense_add, &c->copy,  &c->mpi_latency};
        for (size_t i = 0; i < sizeof each / sizeof each[0]; i++)
            *each[i] *= crowding;
        if (hosts == 1) {
            c->byte *= crowding;
            c->mpi_byte *= crowding;
        }
    }
}

/* Coding an index takes about 0.4 ns, both ways together, and saves 2.5 bytes: see docs/COST.md. */
bool rill__codec_pays(const rill__constants *c) { return c->byte * 2.5 > 0.4e-9; }
