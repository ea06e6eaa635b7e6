/* What was learned, from job to job: one file for each set of hosts, kind of link and of network,
 * in the form of a profile, in the user's folder for caches. Jobs may write at once: each writes a
 * file of its own that then takes the place of the old one (core/outfile.h), so that one of them
 * wins as a whole. A file that cannot be read is as good as none, and is replaced. */
#include "plan/learn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 4 << 20 };
#define OTHERS 20.0 /* samples that stand for what was there */

void rill__cache_path(const rill__machine *m, char *path, size_t size) {
    const char *folder = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *within = "";
    path[0] = '\0';
    if (!folder || *folder != '/') { /* others are to be ignored, says XDG */
        folder = home;
        within = "/.cache";
    }
    if (!folder || *folder != '/') return;
    char network[RILL__NETWORK_NAME];
    rill__network_name(&m->network, network);
    int n = snprintf(path, size, "%s%s/rill/learned-%s-%d-%s%s%016llx%016llx", folder, within,
                     m->link, m->seating.hosts, network, *network ? "-" : "",
                     (unsigned long long)m->hosts[0], (unsigned long long)m->hosts[1]);
    if (n < 0 || (size_t)n >= size) path[0] = '\0';
}

bool rill__cache_read(const rill__machine *m, rill__profile *profile, char *why, size_t size) {
    char path[1024];
    why[0] = '\0';
    rill__cache_path(m, path, sizeof path);
    struct stat about;
    if (!*path || stat(path, &about) != 0) return false;
    if (!S_ISREG(about.st_mode) || about.st_size > MOST_BYTES) { /* it might never end */
        snprintf(why, size, "%s is no file that rill has written", path);
        return false;
    }
    rill_status status = rill__profile_read(path, &m->seating, profile);
    if (status == RILL_OK) {
        profile->learned = true;
        return true;
    }
    if (status != RILL_ERR_UNSUPPORTED) snprintf(why, size, "%s", rill_last_error());
    return false;
}

/* Another communicator of the same ranks may have learned meanwhile: of other calls, or longer. */
static void join(rill__profile *profile, rill__profile *other, uint64_t samples) {
    double share = (double)samples / ((double)samples + OTHERS);
    for (int i = 0; i < RILL__FITTED; i++) {
        double *value = rill__constant_at(&profile->constants, i);
        double theirs = *rill__constant_at(&other->constants, i);
        *value = theirs * pow(*value / theirs, share);
    }
    int own = profile->points;
    for (int i = 0; i < other->points && profile->points < RILL__POINTS; i++) {
        int j = 0;
        while (j < own && !rill__points_near(&profile->point[j], &other->point[i]))
            j++;
        if (j == own) profile->point[profile->points++] = other->point[i];
    }
}

rill_status rill__cache_write(const rill__machine *m, rill__profile *profile, uint64_t samples) {
    char path[1024], why[300];
    rill__cache_path(m, path, sizeof path);
    struct stat about;
    if (!*path) return rill__fail(RILL_ERR_IO, "there is no folder for what was learned");
    if (stat(path, &about) == 0 && (!S_ISREG(about.st_mode) || about.st_size > MOST_BYTES) &&
        unlink(path) != 0)
        return rill__fail(RILL_ERR_IO, "%s is no file that rill has written", path);
    rill__profile *other = rill__malloc(sizeof *other);
    if (!other) return rill__fail(RILL_ERR_MEMORY, "out of memory for what was learned");
    if (rill__cache_read(m, other, why, sizeof why) && other->ranks == m->seating.ranks &&
        other->hosts == m->seating.hosts)
        join(profile, other, samples);
    free(other);
    return rill__profile_replace(path, profile);
}
