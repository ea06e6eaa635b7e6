/* What the planner has learned on this machine: the files that rill_comm_free leaves in the user's
 * folder, in the form of a profile.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOLS_PLAN_LEARNED_H
#define RILL_TOOLS_PLAN_LEARNED_H

#include <jansson.h>
#include <stdbool.h>

enum { LEARNED_CONSTANTS = 32, LEARNED_POINTS = 256, LEARNED_NAME = 32 };

/* Calls of a kind that went by one algorithm. */
typedef struct learned_point {
    char algorithm[LEARNED_NAME];
    double dim, entries;
    double ratio; /* of what they took to what the constants say */
} learned_point;

typedef struct learned {
    char folder[1024];
    char path[1400];
    int ranks, hosts; /* of the entry */
    int n;            /* constants, from which predictions start */
    char name[LEARNED_CONSTANTS][LEARNED_NAME];
    double value[LEARNED_CONSTANTS];
    int points;
    learned_point point[LEARNED_POINTS];
} learned;

/* The newest file of that link; hosts 0: of any number of them. */
bool learned_find(const char *link, int hosts, learned *);
/* Its entry whose ranks are nearest; ranks 0: the last one. False: it is not what rill writes. */
bool learned_read(int ranks, learned *);
void learned_print(learned *);
json_t *learned_json(const learned *);

#endif
