/* A progress line for long work, and options mixed with words.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "tool_progress.h"
#include "launch.h"

#include <stdlib.h>
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

/* Whether the word is an option whose argument is the next word. */
static bool takes_next(const char *word, const struct option *options) {
    size_t length = strlen(word + 2);
    if (strchr(word, '=')) return false;
    for (const struct option *o = options; o->name; o++)
        if (!strcmp(o->name, word + 2)) return o->has_arg;
    for (const struct option *o = options; o->name; o++)
        if (!strncmp(o->name, word + 2, length)) return o->has_arg; /* abbreviated */
    return false;
}

/* Words are sorted out first, and getopt sees options only: the position in argv that it leaves to
 * its caller cannot be moved in SimGrid, where every rank has one of its own. */
int tool_words(const char *command, int argc, char **argv, const struct option *options, int most,
               const char **words, int *n, tool_option_fn *set, void *config) {
    const char *extra = NULL;
    int kept = 1, status = EXIT_OK;
    *n = 0;
    spell_out(argc, argv, options);
    char **rest = malloc(((size_t)argc + 1) * sizeof *rest);
    if (!rest) return EXIT_FAILED;
    rest[0] = argv[0];
    for (int i = 1; i < argc; i++) {
        bool all = !strcmp(argv[i], "--"); /* after it there are only words */
        if (argv[i][0] == '-' && argv[i][1] && !all) {
            rest[kept++] = argv[i];
            if (!strncmp(argv[i], "--", 2) && takes_next(argv[i], options) && i + 1 < argc)
                rest[kept++] = argv[++i];
            continue;
        }
        for (i += all; i < argc; i++) {
            if (*n < most) words[(*n)++] = argv[i];
            else if (!extra) extra = argv[i];
            if (!all) break;
        }
    }
    rest[kept] = NULL;
    tool_getopt_reset();
    for (int c; status == EXIT_OK && (c = tool_getopt(command, kept, rest, options)) != -1;)
        status = c == '?' ? EXIT_USAGE : set(config, c, optarg);
    free(rest);
    if (status != EXIT_OK || !extra) return status;
    return tool_usage(command, "unexpected argument '%s'", extra);
}
