/* A profile: the constants of the cost model for one machine or cluster, and by how much the
 * measured times of each algorithm were off the model at the points that were measured.
 *
 * A profile is a text file with an entry for each number of ranks and hosts that was tuned:
 *
 *     rill profile 1
 *     #+ device_wait 1.5e-05               of a GPU, where one was measured (profile_device.c)
 *     ...
 *     entry ranks 8 hosts 8 crowding 1
 *     learned                              where calls have shown it, and not rill tune
 *     latency 2.5e-05
 *     ...
 *     point ring 1048576 10486 1.07        algorithm, dimension, entries per rank, measured / model
 *     end
 *
 * Where there is none, constants are built in (constants.c), and the network's class is found by a
 * few messages (probe.c). All ranks have the same profile: rank 0 reads it. */
#ifndef RILL_PLAN_PROFILE_H
#define RILL_PLAN_PROFILE_H

#include "coll/coll.h"
#include "core/outfile.h"

enum { RILL__POINTS = 256 };

typedef struct rill__point {
    uint32_t algorithm;                    /* hash of its name */
    float log_dim, log_density, log_ratio; /* base 2; of measured to model: natural */
} rill__point;

typedef struct rill__profile {
    rill__constants constants;
    double crowding;      /* ranks per processor on the fullest host; at least 1 */
    int32_t ranks, hosts; /* that were tuned; 0: built in */
    int32_t learned;      /* by calls, and not by tuning (plan/learn.h) */
    int32_t points;
    rill__point point[RILL__POINTS];
} rill__profile;

_Static_assert(sizeof(rill__profile) == 4264, "checkpoints of reducers have it");
/* Whether what somebody else has written is one. */
bool rill__profile_is_sound(const rill__profile *);

/* The constants by name, in the order of the file. */
typedef struct rill__constant {
    const char *name;
    size_t offset; /* of the double in rill__constants */
    bool computes; /* it is time of a processor, which ranks have to share */
} rill__constant;
extern const rill__constant rill__constant_table[];
enum { RILL__CONSTANTS = 18 };
/* The same of rill__device_constants. */
extern const rill__constant rill__device_table[];
enum { RILL__DEVICE_CONSTANTS = 7 };

/* How ranks sit on hosts. */
typedef struct rill__seating {
    int ranks, hosts;
    int together;    /* that share the memory of the fullest host: also where hosts are pretended */
    double crowding; /* of them for each processor of it */
} rill__seating;

/* crowding: ranks per processor of the fullest host, which has so many ranks together. */
void rill__constants_default(rill__constants *, int hosts, int together, double crowding);
void rill__device_constants_default(rill__device_constants *);
/* Of as many ranks at once as are after, from those of as many as before: on one host alone. */
void rill__constants_share(rill__constants *, int hosts, double before, double after);
/* What is measured of a network: seconds to a neighbour, and bits of a rank in one; seconds of a
 * further message, 0 where it is not known. */
typedef struct rill__network {
    double latency, message, rate;
} rill__network;
/* Classes of networks: the nearest to what was measured takes the place of the default. */
void rill__constants_network(rill__constants *, const rill__network *);

/* The kind of network in a few letters, such as "tcp-1g": far coarser than the classes of
 * constants, so that a machine's seldom changes from job to job. An empty one: none was measured.
 */
enum { RILL__NETWORK_NAME = 16 };
void rill__network_name(const rill__network *, char name[RILL__NETWORK_NAME]);

/* Where it takes longer than this, processors do not count. */
#define RILL__FAR 1e-3

/* Seconds that the algorithm will take: the model, corrected by the points near by. */
double rill__profile_time(const rill__profile *, const rill__algorithm *, const rill__problem *);

/* What is measured of a call, as a point; ratio: logarithm of measured to model. */
rill__point rill__profile_point(const rill__algorithm *, const rill__problem *, double ratio);
/* Whether they speak of the same algorithm, and about the same calls. */
bool rill__points_near(const rill__point *, const rill__point *);

/* Not collective. The entry of the file that is nearest; RILL_ERR_UNSUPPORTED: none is of any use
 * (ranks on one host say nothing of a network). Errors name file and line. */
rill_status rill__profile_read(const char *path, const rill__seating *, rill__profile *);
/* The same from the file of that name, or for an empty one from the user's. *there: it has an entry
 * of use; "none" has not. A file that is named must exist. device: what it says of that, or the
 * built-in constants. */
rill_status rill__profile_find(const char *named, const rill__seating *, rill__profile *,
                               rill__device_constants *device, bool *there);
/* Not collective. What a file says of devices (profile_device.c); others stay as they are. */
rill_status rill__profile_device(const char *path, rill__device_constants *);
/* Those that are positive. */
void rill__profile_write_device(rill__outfile *, const rill__device_constants *);
/* The file with this entry in it, in the place of one with as many ranks and hosts. device: NULL:
 * what is there stays. */
rill_status rill__profile_write(const char *path, const rill__profile *,
                                const rill__device_constants *device);
/* The same, but a file that cannot be read is replaced as a whole. */
rill_status rill__profile_replace(const char *path, const rill__profile *);
/* The profile of this user, or an empty string where there is no home. */
void rill__profile_path(char *path, size_t size);

/* Collective: measure the network by a few messages. Same result on all ranks. */
rill_status rill__probe_latency(rill__link *, double *latency);
rill_status rill__probe_network(rill__link *, rill__network *);

#endif
