/* rill report: records of rill bench and logs of rill train as one page with plots.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report.h"
#include "tool.h"
#include "tool_progress.h"

#include <stdlib.h>
#include <string.h>

typedef struct report_config {
    const char *output, *title;
    bool quiet, help;
} report_config;

void cmd_report_help(FILE *out) {
    fputs("usage: rill report [NAME=]FILE... [OPTION...]\n"
          "\n"
          "Makes one HTML page of what 'rill bench --json' (also 'bench reducer' and 'bench\n"
          "kernels') and 'rill train --log' have written: time against density and against ranks,\n"
          "bytes against the information bound, predicted against measured time, a table of\n"
          "speedups over mpi; loss and accuracy against time and bytes. The page needs no\n"
          "network, follows the reader's light or dark setting and fits a phone. The main\n"
          "figures are printed as well. - is standard input.\n"
          "\n"
          "Files that complete each other make one plot; files that measured the same are kept\n"
          "apart by their names, and NAME=FILE gives a better one. Files of one NAME belong\n"
          "together.\n"
          "\n"
          "  -o, --output FILE   default report.html; appears when it is complete\n"
          "  --title TEXT        of the page\n"
          "  --quiet             print nothing\n"
          "  -h, --help          this text\n"
          "\n"
          "Example: rill report 100mbit=slow.json 1gbit=fast.json -o networks.html\n",
          out);
}

static int set_option(void *context, int option, const char *value) {
    report_config *c = context;
    switch (option) {
    case 'o': c->output = value; break;
    case 't': c->title = value; break;
    case 'q': c->quiet = true; break;
    case 'h': c->help = true; break;
    default: return EXIT_USAGE;
    }
    return EXIT_OK;
}

static int make(const report_config *c, int words, const char *const *word) {
    report_data data;
    report_summary summary;
    bool good = report_read(&data, words, word);
    if (good) {
        good = report_cells(&data) && report_summarise(&data, &summary);
        if (!good) tool_error("report: out of memory");
    }
    if (good) good = report_write(&data, &summary, c->title, c->output);
    if (good && !c->quiet && strcmp(c->output, "-")) { /* else the page is on stdout */
        report_terminal(&data, &summary);
        printf("\n%s\n", c->output);
    }
    report_free(&data);
    return good ? EXIT_OK : EXIT_FAILED;
}

int cmd_report(int argc, char **argv) {
    static const struct option options[] = {{"output", required_argument, NULL, 'o'},
                                            {"title", required_argument, NULL, 't'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    report_config config = {.output = "report.html"};
    const char **word = malloc((size_t)argc * sizeof *word);
    int n = 0, status = EXIT_FAILED;
    if (!word) tool_error("report: out of memory");
    else status = tool_words("report", argc, argv, options, argc, word, &n, set_option, &config);
    if (status == EXIT_OK && config.help) {
        if (tool_speaks()) cmd_report_help(stdout);
    } else if (status == EXIT_OK && !n) {
        status = tool_usage("report", "which files?");
    } else if (status == EXIT_OK && !*config.output) {
        status = tool_usage("report", "--output: '' is not a file");
    } else if (status == EXIT_OK && tool_speaks()) { /* under a launcher rank 0 does it */
        status = make(&config, n, word);
    }
    free(word);
    return status;
}
