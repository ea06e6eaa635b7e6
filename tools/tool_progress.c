/* A progress line for long work, and options mixed with words.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "tool_progress.h"
#include "launch.h"

#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int tool_progress(void *context, uint64_t done, uint64_t total) {
    tool_progress_state *s = context;
    double t = now();
    if (s->began == 0) s->began = s->shown = t;
    if (!tool_speaks() || !launch_progress() || t - s->shown < 0.3 || !total) return 0;
    double share = (double)done / (double)total, spent = t - s->began;
    fprintf(stderr, "\r%5.1f %% of %llu %s, %.0f s left \033[K", 100 * share,
            (unsigned long long)total, s->what, share > 0 ? spent * (1 - share) / share : 0.0);
    fflush(stderr);
    s->shown = t;
    s->visible = true;
    return 0;
}

void tool_progress_end(tool_progress_state *s) {
    if (s->visible) fputs("\r\033[K", stderr);
    s->visible = false;
}

/* "-o" spelled out, since tool_getopt knows long options and -h only. */
static void spell_out(int argc, char **argv, const struct option *options) {
    static char output[] = "--output";
    for (; options->name; options++)
        if (!strcmp(options->name, "output"))
            for (int i = 1; i < argc; i++)
                if (!strcmp(argv[i], "-o")) argv[i] = output;
}

int tool_words(const char *command, int argc, char **argv, const struct option *options, int most,
               const char **words, int *n, tool_option_fn *set, void *config) {
    *n = 0;
    spell_out(argc, argv, options);
    tool_getopt_reset();
    for (;;) {
        int c = tool_getopt(command, argc, argv, options);
        if (c == '?') return EXIT_USAGE;
        if (c == -1) { /* a word, or the end */
            if (optind >= argc) return EXIT_OK;
            if (*n == most) return tool_usage(command, "unexpected argument '%s'", argv[optind]);
            words[(*n)++] = argv[optind++];
            continue;
        }
        int status = set(config, c, optarg);
        if (status != EXIT_OK) return status;
    }
}
