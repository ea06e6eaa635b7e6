/* Default constants of the cost model, until `rill tune` measures the user's own machine.
 *
 * One host: measured with `rill bench` and `rill bench kernels` on two cores of an AMD EPYC (Zen 4)
 * with Open MPI 4.1.4 over shared memory. Several hosts: a 10 Gbit/s network; on slower ones the
 * order of the algorithms is the same, on faster ones dense vectors gain. */
#include "plan/plan.h"

void rill__constants_default(rill__constants *c, int hosts) {
    *c = (rill__constants){
        .latency = 1.0e-6,
        .byte = 0.14e-9,
        .overhead = 1.0e-6,
        .merge = 1.5e-9,
        .sum = 2.5e-9,
        .scatter = 1.5e-9,
        .dense_add = 0.05e-9,
        .copy = 0.05e-9,
        .mpi_byte = 0.20e-9,
    };
    if (hosts > 1) {
        c->latency = 25e-6;
        c->byte = 0.9e-9;
        c->mpi_byte = 0.9e-9;
    }
}

/* Bit-packing an index takes and saves about this much, each way; LIMITS measured it to pay up to about
 * 50 Gbit/s. */
bool rill__codec_pays(const rill__constants *c) { return c->byte * 2.5 > 0.4e-9; }
