/* The plain numbers of the cost model: what processors and networks take for what a call does. They
 * are here so that every room can say what its own work costs; plan/profile.h has their values. */
#ifndef RILL_CORE_CONSTANTS_H
#define RILL_CORE_CONSTANTS_H

/* Constants of the cost model, the same on all ranks of a communicator. Seconds. */
typedef struct rill__constants {
    double latency;                 /* of one message that somebody waits for */
    double message;                 /* of each further one of the same round */
    double byte;                    /* per byte on the wire of one rank */
    double host_latency, host_byte; /* the same between ranks of one host */
    double overhead;                /* of a call, whatever the algorithm */
    double merge;                   /* per input entry of a two-way sparse sum */
    double sum;                     /* per input entry of a P-way sparse sum */
    double scatter;                 /* per sparse entry added to a dense vector */
    double dense_add;               /* per byte of a dense sum */
    double copy;                    /* per byte copied */
    double pack, fano,
        bits; /* per index, encoded and decoded: rows of codecs say what they take of these */
    double quantize;              /* per value coded in 16 bits or less, and back */
    double mpi_latency, mpi_byte; /* of MPI's own dense allreduce, as a ring */
    double doubt; /* MPI's dense allreduce is kept unless another takes less than this share */
} rill__constants;

/* The same of a device that codes and sums for a reducer in its memory. A device's own work has no
 * part in what `rill tune` fits: it is measured by itself. */
typedef struct rill__device_constants {
    double wait;    /* for one copy from the device */
    double in, out; /* per byte copied to it, by way of page-locked memory; and from it */
    double errand;  /* of coding a message, or of summing several: launches and waits */
    double list;    /* more for each message that is summed */
    double code;    /* per entry coded */
    double sum;     /* per entry decoded and summed */
} rill__device_constants;

/* Where a message takes longer, the network is TCP's: others take 2 us. */
#define RILL__TCP_LATENCY 6e-6

#endif
