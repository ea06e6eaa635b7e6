/* A progress line for long work, and options mixed with words.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_PROGRESS_H
#define RILL_TOOL_PROGRESS_H

#include "tool.h"

#include <stdint.h>

typedef struct tool_progress_state {
    const char *what;    /* "rows", "bytes" */
    double began, shown; /* seconds */
    bool visible;
} tool_progress_state;

/* A rill_data_progress: writes a line to a terminal a few times a second. */
int tool_progress(void *state, uint64_t done, uint64_t total);
void tool_progress_end(tool_progress_state *); /* wipes it off */

/* Takes an option's value into the configuration; returns an exit status. */
typedef int tool_option_fn(void *config, int option, const char *value);
/* Reads options and at most `most` words in any order; "-o" is "--output" where there is such. */
int tool_words(const char *command, int argc, char **argv, const struct option *, int most,
               const char **words, int *n, tool_option_fn *, void *config);

#endif
