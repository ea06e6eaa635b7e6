#include "coll/patterns/fan_out.h"

enum { LARGE = 64 << 10 }; /* bytes: below it MPI sends at once, and says that it is done */

rill_status rill__fan_out(rill_request *r, int root, int place, int *distance, int lane,
                          rill__block *block) {
    int size = r->task.engine->size;
    while (*distance > 1) {
        int child = place + *distance / 2;
        if (child < size) {
            if (block->bytes > LARGE && !rill__sends_done(&r->task)) return RILL_IN_PROGRESS;
            RILL_TRY(rill__send_block(&r->task, (child + root) % size, lane, block));
            r->task.rounds++;
        }
        *distance /= 2;
    }
    return RILL_OK;
}
