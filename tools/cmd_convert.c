/* rill convert: data sets from text to the binary form and back.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "parse.h"
#include "table.h"
#include "tool.h"
#include "tool_progress.h"

#include <rill/train.h>
#include <string.h>

typedef struct convert_config {
    rill_convert_options options;
    const char *in, *out;
    bool quiet, help;
} convert_config;

void cmd_convert_help(FILE *out) {
    fprintf(out,
            "usage: rill convert IN OUT [OPTION...]\n"
            "\n"
            "Rewrites a data set: LIBSVM/svmlight text (also gz, xz, zstd) in the binary form,\n"
            "which loads without parsing, or the binary form as text. Values keep their bits.\n"
            "\n"
            "  --to FORMAT    text or binary; default: the other one of what IN is\n"
            "  --base BASE    index of the first feature in text: 0, 1 or auto (default:\n"
            "                 0 if index 0 occurs, else 1)\n"
            "  --quiet        neither figures nor a progress line\n"
            "  -h, --help     this text\n");
}

static int set_option(void *context, int option, const char *value) {
    convert_config *config = context;
    switch (option) {
    case 't':
        if (strcmp(value, "text") && strcmp(value, "binary"))
            return tool_usage("convert", "--to: '%s' is not text or binary", value);
        config->options.binary = !strcmp(value, "binary");
        break;
    case 'b':
        if (!strcmp(value, "auto")) config->options.base = -1;
        else if (!parse_int(value, 0, 1, &config->options.base))
            return tool_usage("convert", "--base: '%s' is not 0, 1 or auto", value);
        break;
    case 'q': config->quiet = true; break;
    case 'h': config->help = true; break;
    default: return EXIT_USAGE;
    }
    return EXIT_OK;
}

static int read_options(int argc, char **argv, convert_config *config) {
    static const struct option options[] = {{"to", required_argument, NULL, 't'},
                                            {"base", required_argument, NULL, 'b'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *words[2];
    int n = 0,
        status = tool_words("convert", argc, argv, options, 2, words, &n, set_option, config);
    if (status != EXIT_OK || config->help) return status;
    if (n < 2)
        return tool_usage("convert", "%s",
                          n ? "where to? OUT is missing" : "IN and OUT are missing");
    config->in = words[0];
    config->out = words[1];
    return EXIT_OK;
}

static void print_report(const convert_config *config, const rill_data_report *r, uint64_t bytes) {
    char size[2][TABLE_CELL];
    cell_bytes(size[0], (double)r->file_bytes);
    cell_bytes(size[1], (double)bytes);
    printf("%s: %s, %s, %llu rows, %llu entries, indices from %d\n", config->in, r->format, size[0],
           (unsigned long long)r->rows, (unsigned long long)r->entries, r->base);
    if (r->qids) printf("%llu rows have a query ('qid')\n", (unsigned long long)r->qids);
    if (r->unsorted_rows)
        printf("note: the indices of %llu rows were sorted\n",
               (unsigned long long)r->unsorted_rows);
    if (r->duplicates)
        printf("note: %llu values were added to others of the same row and index\n",
               (unsigned long long)r->duplicates);
    printf("%s: %s in %.2f s (%.0f MB/s of input)\n", config->out, size[1], r->seconds,
           r->seconds > 0 ? (double)r->file_bytes / 1e6 / r->seconds : 0.0);
}

int cmd_convert(int argc, char **argv) {
    convert_config config = {.options = RILL_CONVERT_OPTIONS_INIT};
    int status = read_options(argc, argv, &config);
    if (status != EXIT_OK || !tool_speaks()) return status; /* under a launcher rank 0 does it */
    if (config.help) {
        cmd_convert_help(stdout);
        return EXIT_OK;
    }
    tool_progress_state progress = {.what = "bytes"};
    rill_data_report report = RILL_DATA_REPORT_INIT;
    uint64_t bytes = 0;
    if (!config.quiet) {
        config.options.progress = tool_progress;
        config.options.context = &progress;
    }
    rill_status converted = rill_data_convert(config.in, config.out, &config.options, &report,
                                              &bytes);
    tool_progress_end(&progress);
    if (converted != RILL_OK) {
        tool_error("convert: %s", rill_last_error());
        return EXIT_FAILED;
    }
    if (!config.quiet) print_report(&config, &report, bytes);
    return EXIT_OK;
}
