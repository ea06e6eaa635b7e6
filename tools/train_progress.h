/* What one sees of a training meanwhile, and how it is asked to end.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_TRAIN_PROGRESS_H
#define RILL_TOOL_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct train_progress {
    double every; /* seconds between two lines where stderr is no terminal; 0: nothing is shown */
    char what[64];
    double began, shown; /* seconds: of what, and of whatever was printed last */
    bool visible;        /* there is a bar */
} train_progress;

/* From here on Ctrl-C, SIGTERM and SIGUSR1 ask a run to end after the step; the first two end it at
 * once when they come again. Ranks that rill has started leave that to the process that did. A
 * mapped file that is cut ends the run with a message. */
void train_signals(void);
bool train_asked_to_stop(void);

/* What comes next; then the options' progress, with it as the context, shows how far that is: a bar
 * on a terminal, lines elsewhere. Returns whether the run is to stop. */
void train_progress_begin(train_progress *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int train_progress_show(void *progress, uint64_t done, uint64_t total);
/* Before anything else is printed. */
void train_progress_hide(train_progress *);

#endif
