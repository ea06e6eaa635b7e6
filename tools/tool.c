/* Messages, option scanning, suggestions, and the commit of the build.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "tool.h"

#include <ctype.h>
#include <rill/rill.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#ifndef RILL_COMMIT
#define RILL_COMMIT "unknown"
#endif

/* Ranks are processes, or threads of one. In SimGrid they are neither, and have statics of their
 * own. */
#ifdef RILL_TOOL_SMPI
static bool silent;
#else
static _Thread_local bool silent;
#endif

bool tool_speaks(void) { return !silent; }
void tool_set_speaks(bool speaks) { silent = !speaks; }

void tool_error(const char *format, ...) {
    if (silent) return;
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fputs("rill: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

int tool_usage(const char *command, const char *format, ...) {
    if (silent) return EXIT_USAGE;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "rill %s: ", command);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nTry 'rill %s --help'.\n", command);
    va_end(args);
    return EXIT_USAGE;
}

const char *tool_settings_error(void) {
    rill_comm *alone = NULL;
    bool wrong = rill_comm_create_local(1, NULL, &alone) != RILL_OK;
    if (!wrong) return rill_comm_free(&alone), NULL;
    const char *why = strstr(rill_last_error(), ": "); /* without the name of the call */
    return why ? why + 2 : rill_last_error();
}

void tool_getopt_reset(void) { optind = 0; }

int tool_getopt(const char *command, int argc, char **argv, const struct option *options) {
    opterr = 0;
    int at = optind ? optind : 1;
    int c = getopt_long(argc, argv, "+:h", options, NULL);
    if (c == 'h' || (c != '?' && c != ':')) return c;
    const char *word = at < argc ? argv[at] : "";
    if (c == ':') {
        tool_usage(command, "option '%s' needs an argument", word);
        return '?';
    }
    size_t length = strcspn(word, "=");
    const char *names[64];
    int n = 0, prefixes = 0;
    bool known = false;
    for (const struct option *o = options; o->name && n < 63; o++) {
        names[n++] = o->name;
        if (length < 3 || strncmp(word, "--", 2) != 0) continue;
        prefixes += !strncmp(o->name, word + 2, length - 2);
        known |= strlen(o->name) == length - 2 && !strncmp(o->name, word + 2, length - 2);
    }
    names[n] = NULL;
    char given[64];
    snprintf(given, sizeof given, "%.*s", (int)length, word);
    const char *meant = strncmp(given, "--", 2) ? NULL : tool_suggest(given + 2, names);
    if (known) tool_usage(command, "option '%s' takes no argument", given);
    else if (prefixes > 1) tool_usage(command, "option '%s' is ambiguous", given);
    else if (meant) tool_usage(command, "unknown option '%s'; did you mean '--%s'?", given, meant);
    else tool_usage(command, "unknown option '%s'", given);
    return '?';
}

static const char *option_name(const struct option *options, int option) {
    while (options->name && options->val != option)
        options++;
    return options->name ? options->name : "";
}

int tool_options(const char *command, int argc, char **argv, const struct option *options,
                 tool_set_fn *set, void *config, bool *help) {
    tool_getopt_reset();
    for (int option; (option = tool_getopt(command, argc, argv, options)) != -1;) {
        if (option == '?') return EXIT_USAGE;
        *help |= option == 'h';
        int status = option == 'h' ? EXIT_OK
                                   : set(config, option, option_name(options, option), optarg);
        if (status != EXIT_OK) return status;
    }
    if (optind < argc) return tool_usage(command, "unexpected argument '%s'", argv[optind]);
    return EXIT_OK;
}

static bool same(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

static int lesser(int a, int b) { return a < b ? a : b; }

/* Levenshtein distance of two short words, ignoring case; two neighbours that are swapped count as
 * one change. */
static int distance(const char *a, const char *b) {
    enum { LONGEST = 48 };
    size_t m = strlen(a), n = strlen(b);
    if (m > LONGEST || n > LONGEST) return LONGEST;
    int d[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= m; i++)
        for (size_t j = 0; j <= n; j++) {
            if (!i || !j) {
                d[i][j] = (int)(i + j);
                continue;
            }
            d[i][j] = d[i - 1][j - 1] + !same(a[i - 1], b[j - 1]);
            d[i][j] = lesser(d[i][j], lesser(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                d[i][j] = lesser(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[m][n];
}

const char *tool_suggest(const char *given, const char *const *candidates) {
    const char *best = NULL;
    int least = (int)strlen(given) / 3 + 1;
    if (least < 2) least = 2;
    for (; *candidates; candidates++) {
        int d = distance(given, *candidates);
        if (d < least) {
            least = d;
            best = *candidates;
        }
    }
    return best;
}

int tool_unknown(const char *command, const char *option, const char *value,
                 const char *const *names) {
    char all[256] = "";
    for (int i = 0; names[i]; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    const char *meant = tool_suggest(value, names);
    if (meant)
        return tool_usage(command, "--%s: unknown '%s'; did you mean '%s'? (%s)", option, value,
                          meant, all);
    return tool_usage(command, "--%s: unknown '%s' (%s)", option, value, all);
}

bool tool_is_codec(const char *name) {
    const char *codec;
    for (int i = 0; (codec = rill_codec_at(i, NULL)); i++)
        if (!strcmp(codec, name)) return true;
    return !strcmp(name, "auto");
}

bool tool_is_partition(const char *name) {
    return !strcmp(name, "auto") || !strcmp(name, "uniform") || !strcmp(name, "balanced");
}

const char *tool_commit(void) { return RILL_COMMIT; }
