/* The reader of profiles on any bytes: it refuses them, or gives constants that are positive
 * numbers and points that are finite; and what it gives can be written into the same file and read
 * again.
 *
 * An entry has all constants, which few mutations keep: after a + at its start, the input goes on
 * behind an entry that has them. */
#include "fuzz.h"
#include "plan/profile.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static double constant(const rill__profile *profile, int i) {
    return *(const double *)((const char *)&profile->constants + rill__constant_table[i].offset);
}

static void write_input(const char *path, const uint8_t *data, size_t size) {
    FILE *f = fopen(path, "w");
    MUST(f);
    if (size && *data == '+') {
        data++, size--;
        fputs("rill profile 1\nentry ranks 4 hosts 1 crowding 1\n", f);
        for (int i = 0; i < RILL__CONSTANTS; i++)
            fprintf(f, "%s %g\n", rill__constant_table[i].name, 1e-9 * (i + 1));
    }
    MUST(fwrite(data, 1, size, f) == size);
    MUST(fclose(f) == 0);
}

static void check_profile(const rill__profile *got) {
    for (int i = 0; i < RILL__CONSTANTS; i++)
        MUST(constant(got, i) > 0 && isfinite(constant(got, i)));
    MUST(got->points >= 0 && got->points <= RILL__POINTS);
    for (int i = 0; i < got->points; i++)
        MUST(isfinite(got->point[i].log_dim) && isfinite(got->point[i].log_density) &&
             isfinite(got->point[i].log_ratio));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[64];
    static rill__profile got, again;
    if (!path[0]) snprintf(path, sizeof path, "/dev/shm/rill-fuzz-profile-%ld", (long)getpid());
    write_input(path, data, size);
    int hosts = size % 2 ? 1 : 4;
    rill__seating seating = {.ranks = 4, .hosts = hosts, .together = 4 / hosts, .crowding = 1};
    rill_status status = rill__profile_read(path, &seating, &got);
    if (status == RILL_OK) {
        check_profile(&got);
        got.ranks = seating.ranks; /* as who writes has it */
        got.hosts = seating.hosts;
        MUST(rill__profile_write(path, &got, NULL) == RILL_OK);
        MUST(rill__profile_read(path, &seating, &again) == RILL_OK);
        check_profile(&again);
        for (int i = 0; i < RILL__CONSTANTS && again.ranks == got.ranks; i++)
            MUST(fabs(constant(&again, i) / constant(&got, i) - 1) < 1e-3);
    } else MUST(status == RILL_ERR_IO || status == RILL_ERR_UNSUPPORTED);
    remove(path);
    return 0;
}
