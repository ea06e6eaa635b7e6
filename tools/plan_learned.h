/* What the planner has learned on this machine: the files that rill_comm_free leaves in the user's
 * folder, in the form of a profile.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOLS_PLAN_LEARNED_H
#define RILL_TOOLS_PLAN_LEARNED_H

#include <jansson.h>
#include <stdbool.h>

enum { LEARNED_CONSTANTS = 32, LEARNED_NAME = 32 };

typedef struct learned {
    char folder[1024];
    char path[1400];
    int ranks, hosts; /* of the entry */
    int n, points;
    char name[LEARNED_CONSTANTS][LEARNED_NAME];
    double value[LEARNED_CONSTANTS];
} learned;

/* The newest file of that link; hosts 0: of any number of them. */
bool learned_find(const char *link, int hosts, learned *);
/* Its entry whose ranks are nearest; ranks 0: the last one. False: it is not what rill writes. */
bool learned_read(int ranks, learned *);
void learned_print(const learned *);
json_t *learned_json(const learned *);

#endif
