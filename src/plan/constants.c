/* Built-in constants of the cost model, for where `rill tune` has not measured the user's own
 * machine.
 *
 * One host: measured with `rill bench` and `rill bench kernels` on two cores of an AMD EPYC (Zen 4)
 * with Open MPI 4.1.4 over shared memory. Several hosts: the class of the network is found when a
 * communicator is made. Classes are coarse, so that a noisy measurement seldom changes the choice
 * of an algorithm, and with it the rounding, from one run to the next. */
#include "plan/profile.h"

#include <math.h>
#include <stdio.h>

#define ROW(name, computes)                                                                        \
    { #name, offsetof(rill__constants, name), computes }

const rill__constant rill__constant_table[RILL__CONSTANTS] = {
    ROW(latency, false),  ROW(message, true),   ROW(byte, false),    ROW(host_latency, true),
    ROW(host_byte, true), ROW(overhead, true),  ROW(merge, true),    ROW(sum, true),
    ROW(scatter, true),   ROW(dense_add, true), ROW(copy, true),     ROW(pack, true),
    ROW(fano, true),      ROW(bits, true),      ROW(quantize, true), ROW(mpi_latency, false),
    ROW(mpi_byte, false), ROW(doubt, false),
};

#define DEVICE_ROW(name)                                                                           \
    { "device_" #name, offsetof(rill__device_constants, name), false }

const rill__constant rill__device_table[RILL__DEVICE_CONSTANTS] = {
    DEVICE_ROW(wait), DEVICE_ROW(in),   DEVICE_ROW(out), DEVICE_ROW(errand),
    DEVICE_ROW(list), DEVICE_ROW(code), DEVICE_ROW(sum),
};

/* Ranks of a host share its memory and the caches in front of it. What is moved in a stream suffers
 * least from it, and coding most. These powers were fitted to what 8 and 16 ranks on 16 cores took
 * (docs/results/planner.md, tests/unit/test_full_host.c). Several full hosts were not measured:
 * there the constants stay as they are. */
#define MOVED 0.36
#define SUMMED 0.6
#define CODED 1.0

static void slow_down(double *constants[], size_t n, double more, double power) {
    double slower = pow(more, power);
    for (size_t i = 0; i < n; i++)
        *constants[i] *= slower;
}
#define SLOW_DOWN(constants, more, power)                                                          \
    slow_down(constants, sizeof(constants) / sizeof *(constants), more, power)

void rill__constants_share(rill__constants *c, int hosts, double before, double after) {
    double *moved[] = {&c->byte, &c->host_byte, &c->copy, &c->scatter, &c->dense_add};
    double *summed[] = {&c->merge, &c->sum, &c->mpi_byte};
    double *coded[] = {&c->pack, &c->fano, &c->bits, &c->quantize};
    double more = fmax(after / 2, 1) / fmax(before / 2, 1);
    if (hosts > 1) return;
    SLOW_DOWN(moved, more, MOVED);
    SLOW_DOWN(summed, more, SUMMED);
    SLOW_DOWN(coded, more, CODED);
}

void rill__constants_default(rill__constants *c, int hosts, int together, double crowding) {
    *c = (rill__constants){
        .latency = 0.5e-6,
        .message = 0.3e-6,
        .byte = 0.18e-9,
        .host_latency = 0.5e-6,
        .host_byte = 0.18e-9,
        .overhead = 0.3e-6,
        .merge = 1.0e-9,
        .sum = 2.0e-9,
        .scatter = 0.6e-9,
        .dense_add = 0.06e-9,
        .copy = 0.06e-9,
        .pack = 0.5e-9,
        .fano = 1.0e-9,
        .bits = 0.8e-9,
        .quantize = 0.5e-9,
        .mpi_latency = 0.3e-6,
        .mpi_byte = 0.33e-9,
        /* In the caches, where small vectors are, all is faster than these figures, MPI most. */
        .doubt = 0.7,
    };
    rill__constants_share(c, hosts, 1, together / fmax(crowding, 1));
    if (crowding > 1) { /* ranks take turns on the processors */
        c->latency = c->host_latency = fmax(c->latency, 2e-6);
        c->mpi_latency = fmax(c->mpi_latency, 1.5e-6);
        for (int i = 0; i < RILL__CONSTANTS; i++) {
            const rill__constant *row = &rill__constant_table[i];
            if (row->computes) *(double *)((char *)c + row->offset) *= crowding;
        }
        c->latency *= crowding;
        c->mpi_latency *= crowding;
        c->byte *= crowding;
        c->mpi_byte *= crowding;
    }
    if (hosts > 1) rill__constants_network(c, &(rill__network){.latency = 25e-6, .rate = 1e10});
}

/* An H200 on PCIe 5. */
void rill__device_constants_default(rill__device_constants *d) {
    *d = (rill__device_constants){
        .wait = 15e-6,
        .in = 0.08e-9,
        .out = 0.022e-9,
        .errand = 60e-6,
        .list = 15e-6,
        .code = 0.03e-9,
        .sum = 0.04e-9,
    };
}

/* The nearest on a logarithmic scale. */
static double nearest(double value, const double *classes, int n) {
    double best = classes[0];
    for (int i = 1; i < n; i++)
        if (fabs(log(value / classes[i])) < fabs(log(value / best))) best = classes[i];
    return best;
}

void rill__constants_network(rill__constants *c, const rill__network *network) {
    static const double rates[] = {1e6, 2e6, 5e6, 1e7, 2e7,  5e7,    1e8,  2e8,
                                   5e8, 1e9, 2e9, 5e9, 1e10, 2.5e10, 5e10, 1e11};
    static const double latencies[] = {2e-6, 5e-6, 12e-6, 25e-6, 50e-6, 100e-6, 200e-6, 500e-6,
                                       1e-3, 2e-3, 5e-3,  10e-3, 20e-3, 50e-3,  100e-3, 200e-3};
    static const double messages[] = {0.5e-6, 1e-6, 2e-6, 5e-6, 10e-6, 15e-6, 20e-6, 30e-6, 50e-6};
    c->latency = c->mpi_latency = nearest(network->latency, latencies, 16);
    bool tcp = c->latency >= RILL__TCP_LATENCY;
    /* A small part of it is the processor's: the rest of several messages passes at once. Where
     * that part is large, ranks share processors. */
    c->message = network->message > 0 ? nearest(network->message, messages, 9)
                                      : (tcp ? 5e-6 : 0.5e-6);
    c->message = fmin(c->message, c->latency);
    /* Headers of packets take 4 %. MPI's dense sum reaches half of the line rate over TCP: see
     * docs/results/network.md. */
    c->byte = 8 * 1.05 / nearest(network->rate, rates, 16);
    c->mpi_byte = tcp ? 2 * c->byte : 1.3 * c->byte;
    c->merge = fmax(c->merge, 2e-9); /* what comes over a network is in no cache */
    c->doubt = 0.95;
}

/* What is measured of a rate is nearly all of the line's, or half of it, and seldom more. */
void rill__network_name(const rill__network *network, char name[RILL__NETWORK_NAME]) {
    static const double rates[] = {1e6, 1e7, 1e8, 1e9, 1e10, 1e11};
    static const char *const names[] = {"1m", "10m", "100m", "1g", "10g", "100g"};
    name[0] = '\0';
    if (!(network->rate > 0)) return;
    int i = 0;
    while (rates[i] < nearest(network->rate, rates, 6))
        i++;
    bool tcp = network->latency >= RILL__TCP_LATENCY;
    snprintf(name, RILL__NETWORK_NAME, "%s-%s", tcp ? "tcp" : "fast", names[i]);
}
