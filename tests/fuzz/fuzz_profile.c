/* The reader of profiles on any bytes: it refuses them, or gives constants that are positive numbers and
 * points that are finite. */
#include "fuzz.h"
#include "plan/profile.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[64];
    static rill__profile got;
    if (!path[0]) snprintf(path, sizeof path, "/dev/shm/rill-fuzz-profile-%ld", (long)getpid());
    FILE *f = fopen(path, "w");
    MUST(f);
    MUST(fwrite(data, 1, size, f) == size);
    MUST(fclose(f) == 0);
    rill_status status = rill__profile_read(path, 4, size % 2 ? 1 : 4, 1, &got);
    remove(path);
    if (status != RILL_OK) {
        MUST(status == RILL_ERR_IO || status == RILL_ERR_UNSUPPORTED);
        return 0;
    }
    for (int i = 0; i < RILL__CONSTANTS; i++) {
        double value = *(double *)((char *)&got.constants + rill__constant_table[i].offset);
        MUST(value > 0 && isfinite(value));
    }
    MUST(got.points >= 0 && got.points <= RILL__POINTS);
    for (int i = 0; i < got.points; i++)
        MUST(isfinite(got.point[i].log_dim) && isfinite(got.point[i].log_density) &&
             isfinite(got.point[i].log_ratio));
    return 0;
}
