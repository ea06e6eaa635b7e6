/* Starting the tool on several ranks.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_LAUNCH_H
#define RILL_TOOL_LAUNCH_H

#include <stdbool.h>

/* Whether this process was started by an MPI launcher (or runs in a simulation). */
bool launch_is_under(void);

/* Runs this program again on so many ranks and returns its exit status. argv is that of the
 * command; tune_malloc sets the variables of launch_tune_malloc for the ranks. */
int launch_ranks(int ranks, int argc, char **argv, bool tune_malloc);

/* Keeps big blocks in the heap, so that MPI's temporaries are not mapped and faulted in anew with
 * every call. A user's own setting stays. Returns whether a tuning is in force. */
bool launch_tune_malloc(void);

/* Whether rank 0 may write a progress line: its own stderr is a pipe to the launcher, so the
 * process that started the launcher has looked. */
bool launch_progress(void);

#endif
