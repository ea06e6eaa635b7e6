#include "coll/patterns/fan_out.h"

enum { LARGE = 64 << 10 }; /* bytes: below it MPI sends at once, and says that it is done */

rill_status rill__fan_out(rill__run *run, int root, int place, int *distance, int lane,
                          rill__parcel *parcel) {
    int size = run->size;
    while (*distance > 1) {
        int child = place + *distance / 2;
        if (child < size) {
            if (rill__parcel_bytes(parcel) > LARGE && !rill__run_sends_done(run))
                return RILL_IN_PROGRESS;
            RILL_TRY(rill__run_send_parcel(run, (child + root) % size, lane, parcel));
            rill__run_round(run);
        }
        *distance /= 2;
    }
    return RILL_OK;
}
