/* Steps in the order of a device's stream. */
#include "reduce/reducer.h"

static rill_status refuse(const rill_reducer *r, const char *call) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "%s: reducer is NULL", call);
    return rill__fail(RILL_ERR_UNSUPPORTED, "%s: steps in the order of a stream are not there yet",
                      call);
}

rill_status rill_reducer_step_on(rill_reducer *r, const void *gradient, void *update,
                                 void *stream) {
    (void)gradient;
    (void)update;
    (void)stream;
    return refuse(r, "rill_reducer_step_on");
}

rill_status rill_reducer_step_tensors_on(rill_reducer *r, int n, const rill_tensor *tensors,
                                         void *stream) {
    (void)n;
    (void)tensors;
    (void)stream;
    return refuse(r, "rill_reducer_step_tensors_on");
}
