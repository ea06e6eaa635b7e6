/* What a device takes to code and to sum, for rill_tune; and the end of it. */
#ifndef RILL_API_TUNE_DEVICE_H
#define RILL_API_TUNE_DEVICE_H

#include "api/comm.h"

/* Collective. *there: every rank has a device, and the slowest has these constants. A rank that has
 * none, or no librill_cuda, is no failure. */
rill_status rill__tune_device(rill_comm *, rill__device_constants *, bool *there);
/* Collective: rank 0 writes the profile. device: NULL: none was measured. */
rill_status rill__tune_write(rill_comm *, const char *path, const rill__profile *,
                             const rill__device_constants *device);

#endif
