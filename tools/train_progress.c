/* See train_progress.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "train_progress.h"
#include "launch.h"
#include "tool.h"
#include "world.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the end --------------------------------------------------------------------------------- */

static volatile sig_atomic_t asked, speaks;

static void ask_to_stop(int number) {
    static const char text[] = "\nrill: train: ends after this step; Ctrl-C again: at once\n";
    if (!asked && speaks && write(STDERR_FILENO, text, sizeof text - 1) < 0) speaks = 0;
    asked = 1;
    if (number == SIGUSR1) return; /* whoever sends it knows how to end us */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

/* Values of the binary form are used in the file: it must stay as it is. */
static void lose_data(int number) {
    static const char text[] =
        "\nrill: train: a page of a mapped file cannot be read any more: it was "
        "cut or replaced while the run needed it, or its disk has failed\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(EXIT_FAILED);
    (void)number;
    _exit(EXIT_FAILED);
}

void train_signals(void) {
    if (tool_speaks()) speaks = 1; /* of ranks that are threads one does */
    signal(SIGBUS, lose_data);
    signal(SIGUSR1, ask_to_stop);
    if (getenv(LAUNCH_STARTED)) return;
    signal(SIGINT, ask_to_stop);
    signal(SIGTERM, ask_to_stop);
}

bool train_asked_to_stop(void) { return asked; }

/* ---- how far it is --------------------------------------------------------------------------- */

void train_progress_begin(train_progress *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->what, sizeof p->what, format, args);
    va_end(args);
    p->began = world_clock();
    if (p->shown == 0) p->shown = p->began;
}

static void show_bar(train_progress *p, double share, double left) {
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++)
        bar[i] = (i + 0.5) / WIDTH < share ? '#' : '.';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r%s [%s] %3.0f %%, %.0f s left\033[K", p->what, bar, 100 * share, left);
}

int train_progress_show(void *context, uint64_t done, uint64_t total) {
    train_progress *p = context;
    double now = world_clock(), spent = now - p->began;
    bool bar = launch_progress();
    double every = bar && p->every > 0.3 ? 0.3 : p->every;
    if (!tool_speaks() || !(p->every > 0) || now - p->shown < every) return asked;
    double share = total ? (double)done / (double)total : 0;
    double left = share > 0 ? spent * (1 - share) / share : 0;
    const char *begin = bar ? "\r" : "", *end = bar ? "\033[K" : "\n";
    fflush(stdout);
    if (!total || share <= 0)
        fprintf(stderr, "%s%s: %llu so far, %.0f s%s", begin, p->what, (unsigned long long)done,
                spent, end);
    else if (bar) show_bar(p, share, left);
    else fprintf(stderr, "%s: %.0f %%, %.0f s left\n", p->what, 100 * share, left);
    fflush(stderr);
    p->shown = now;
    p->visible = bar;
    return asked;
}

void train_progress_hide(train_progress *p) {
    if (p->visible) fputs("\r\033[K", stderr);
    p->visible = false;
    p->shown = world_clock();
}
