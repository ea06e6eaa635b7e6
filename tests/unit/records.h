/* Records of bench/results, and the planner of a host without a profile, which they are compared
 * with. */
#ifndef RILL_TESTS_RECORDS_H
#define RILL_TESTS_RECORDS_H

#include "../support/unit.h"

#include "plan/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_WIDTH = 4096 };

/* ---- lines of JSON --------------------------------------------------------------------------- */

/* From the root, where scripts/test runs; elsewhere the test is skipped. */
static inline FILE *open_records(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        print_message("skipped: %s is not here\n", path);
        skip();
    }
    return file;
}

static inline const char *value_of(const char *line, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(line, key);
    return at ? at + strlen(key) : NULL;
}

static inline double number(const char *line, const char *name) {
    const char *at = value_of(line, name);
    return at ? strtod(at, NULL) : 0;
}

static inline void text(const char *line, const char *name, char to[32]) {
    const char *at = value_of(line, name);
    size_t n = at && *at == '"' ? strcspn(at + 1, "\"") : 0;
    if (n > 31) n = 31;
    if (n) memcpy(to, at + 1, n);
    to[n] = '\0';
}

/* ---- one host, a core for each rank ---------------------------------------------------------- */

static inline const rill__algorithm *algorithm_named(rill_collective collective, const char *name) {
    const rill__algorithm *a;
    for (int i = 0; (a = rill__algorithm_at(collective, i)); i++)
        if (strcmp(a->name, name) == 0) return a;
    fail_msg("algorithm %s", name);
    return NULL;
}

static inline rill__planner planner_for(int ranks) {
    rill__planner planner = {.hosts = 1,
                             .most_per_host = ranks,
                             .shares = true,
                             .sums_bits = true,
                             .mpi_sums = true,
                             .read_bytes = (UINT64_C(4) << 20) * (ranks == 2 ? 2 : 1)};
    rill__constants_default(&planner.profile.constants, 1, ranks, 1);
    planner.profile.crowding = 1;
    return planner;
}

#endif
