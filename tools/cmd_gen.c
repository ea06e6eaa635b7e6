/* rill gen: data in the shape of published sets.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "launch.h"
#include "parse.h"
#include "tool.h"
#include "tool_progress.h"

#include <rill/train.h>
#include <stdlib.h>
#include <string.h>

typedef struct gen_config {
    rill_generate_options options;
    const char *path; /* "-": standard output */
    bool quiet, help;
} gen_config;

void cmd_gen_help(FILE *out) {
    fprintf(out,
            "usage: rill gen SHAPE --samples N [OPTION...]\n"
            "\n"
            "Writes labelled sparse rows with the dimension, row lengths and feature\n"
            "frequencies of a published data set: the same bytes for the same shape, samples\n"
            "and seed. Prints the number of distinct features in the first 1,000 and 8,000 rows.\n"
            "\n"
            "Shapes:\n");
    const char *name, *text;
    for (int i = 0; (name = rill_generate_shape_at(i, &text)); i++)
        fprintf(out, "  %-18s %s\n", name, text);
    fprintf(out, "\n"
                 "Options:\n"
                 "  --samples N        rows, such as 8000 or 1e5\n"
                 "  --seed N           default 1\n"
                 "  -o, --output FILE  default: standard output, for text\n"
                 "  --format FORMAT    text (default) or binary\n"
                 "  --threads N        default: one per core, at most 16\n"
                 "  --quiet            neither figures nor a progress line\n"
                 "  -h, --help         this text\n");
}

static int usage(const char *option, const char *value, const char *wanted) {
    return tool_usage("gen", "--%s: '%s' is not %s", option, value, wanted);
}

static int set_option(void *context, int option, const char *value) {
    gen_config *config = context;
    switch (option) {
    case 'n':
        if (!parse_count(value, &config->options.samples) || !config->options.samples)
            return usage("samples", value, "a number of rows, such as 8000 or 1e5");
        break;
    case 's':
        if (!strcmp(value, "0")) config->options.seed = 0;
        else if (!parse_count(value, &config->options.seed))
            return usage("seed", value, "a number");
        break;
    case 'o': config->path = value; break;
    case 'f':
        if (strcmp(value, "text") && strcmp(value, "binary"))
            return usage("format", value, "text or binary");
        config->options.binary = !strcmp(value, "binary");
        break;
    case 't':
        if (!parse_int(value, 1, 16, &config->options.threads))
            return usage("threads", value, "a number from 1 to 16");
        break;
    case 'q': config->quiet = true; break;
    case 'h': config->help = true; break;
    default: return EXIT_USAGE;
    }
    return EXIT_OK;
}

/* getopt stops at the first word that is no option; -o is short for --output. */
static int read_options(int argc, char **argv, gen_config *config) {
    static const struct option options[] = {
        {"samples", required_argument, NULL, 'n'}, {"seed", required_argument, NULL, 's'},
        {"output", required_argument, NULL, 'o'},  {"format", required_argument, NULL, 'f'},
        {"threads", required_argument, NULL, 't'}, {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},          {0}};
    const char *words[2];
    int n = 0, status = tool_words("gen", argc, argv, options, 1, words, &n, set_option, config);
    if (status != EXIT_OK || config->help) return status;
    if (!n) return tool_usage("gen", "which shape? There are url and webspam");
    config->options.shape = words[0];
    const char *names[8] = {NULL}, *meant;
    bool known = false;
    for (int i = 0; i < 7 && (names[i] = rill_generate_shape_at(i, NULL)); i++)
        known |= !strcmp(names[i], words[0]);
    if (!known && (meant = tool_suggest(words[0], names)))
        return tool_usage("gen", "unknown shape '%s'; did you mean '%s'?", words[0], meant);
    if (!known) return tool_usage("gen", "unknown shape '%s'", words[0]);
    if (!config->options.samples) return tool_usage("gen", "--samples is missing");
    if (config->options.binary && !strcmp(config->path, "-"))
        return tool_usage("gen", "--format binary needs a file: --output FILE");
    return EXIT_OK;
}

static void print_report(const gen_config *config, const rill_generate_report *r) {
    FILE *out = strcmp(config->path, "-") ? stdout : stderr; /* stdout has the data */
    fprintf(out, "%s: %llu rows, dimension %llu, %llu entries (%.1f a row), %.1f %% positive\n",
            config->options.shape, (unsigned long long)r->rows, (unsigned long long)r->dim,
            (unsigned long long)r->entries, (double)r->entries / (double)r->rows,
            100.0 * (double)r->positive / (double)r->rows);
    if (r->distinct_1000)
        fprintf(out, "distinct features in the first 1,000 rows: %llu\n",
                (unsigned long long)r->distinct_1000);
    if (r->distinct_8000)
        fprintf(out, "distinct features in the first 8,000 rows: %llu\n",
                (unsigned long long)r->distinct_8000);
    fprintf(out, "%s: %llu bytes\n", strcmp(config->path, "-") ? config->path : "standard output",
            (unsigned long long)r->bytes);
}

static int generate(gen_config *config) {
    tool_progress_state progress = {.what = "rows"};
    rill_generate_report report = RILL_GENERATE_REPORT_INIT;
    if (!config->quiet) {
        config->options.progress = tool_progress;
        config->options.context = &progress;
    }
    rill_status status = rill_data_generate(config->path, &config->options, &report);
    tool_progress_end(&progress);
    if (status != RILL_OK) {
        tool_error("gen: %s", rill_last_error());
        return EXIT_FAILED;
    }
    if (!config->quiet) print_report(config, &report);
    return EXIT_OK;
}

int cmd_gen(int argc, char **argv) {
    gen_config config = {.options = RILL_GENERATE_OPTIONS_INIT, .path = "-"};
    int status = read_options(argc, argv, &config);
    if (status == EXIT_OK && config.help) {
        if (tool_speaks()) cmd_gen_help(stdout);
    } else if (status == EXIT_OK && tool_speaks()) { /* under a launcher rank 0 does it */
        status = generate(&config);
    }
    return status;
}
