/* rill tune: measures machine and network, and writes the profile that the planner reads.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "launch.h"
#include "parse.h"
#include "tool.h"
#include "world.h"

#include <rill/rill.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 65536 };

typedef struct config {
    text_list ranks;
    world_options where;
    rill_tune_options tune;
} config;

void cmd_tune_help(FILE *out) {
    fprintf(out,
            "usage: rill tune [OPTION...]\n"
            "       mpirun -n P ... rill tune [OPTION...]\n"
            "\n"
            "Measures sparse sums of many sizes by every algorithm, for less than a minute, and\n"
            "writes what messages, bytes, sums and codecs cost here into a profile. Later runs\n"
            "find it by themselves, and algorithm 'auto' chooses by it. A profile has an entry\n"
            "for each number of ranks and hosts that was tuned; the nearest serves for others.\n"
            "Where all ranks have a GPU, what it takes to code and to sum is measured, too.\n"
            "Run it as the programs will run that use it: on the same hosts, with as many ranks.\n"
            "\n"
            "  --ranks P,...   start so many ranks, one after the other (default 2,4)\n"
            "  --link L        mpi, ucx, local; and --hostfile FILE: see rill bench --help\n"
            "  --seconds S     time for each (default 50)\n"
            "  --profile FILE  the profile to write; default: RILL_PROFILE, else rill/profile in\n"
            "                  the user's configuration folder (XDG_CONFIG_HOME or ~/.config)\n"
            "  -h, --help      this text\n"
            "\n"
            "Example:\n"
            "  rill tune --ranks 2,4,8\n"
            "  mpirun -n 8 --hostfile hosts rill tune\n"
            "  rill plan --ranks 8 --dim 2^24 --density 1%%\n");
}

static int parse(int argc, char **argv, config *c, bool *help) {
    static const struct option options[] = {{"ranks", required_argument, NULL, 'r'},
                                            {"link", required_argument, NULL, WORLD_OPT_LINK},
                                            {"hostfile", required_argument, NULL,
                                             WORLD_OPT_HOSTFILE},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"profile", required_argument, NULL, 'p'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *ranks = "2,4";
    tool_getopt_reset();
    for (int o; (o = tool_getopt("tune", argc, argv, options)) != -1;) {
        char *end;
        int status;
        if (world_option("tune", o, optarg, &c->where, &status)) {
            if (status != EXIT_OK) return status;
            continue;
        }
        switch (o) {
        case '?': return EXIT_USAGE;
        case 'h': *help = true; return EXIT_OK;
        case 'r': ranks = optarg; break;
        case 'p': c->tune.profile = optarg; break;
        default:
            c->tune.seconds = strtod(optarg, &end);
            if (end == optarg || *end || !(c->tune.seconds >= 1 && c->tune.seconds <= 3600))
                return tool_usage("tune", "--seconds '%s' is not a number from 1 to 3600", optarg);
        }
    }
    if (optind < argc) return tool_usage("tune", "unexpected argument '%s'", argv[optind]);
    if (!list_split(ranks, ",", &c->ranks)) {
        tool_error("out of memory");
        return EXIT_FAILED;
    }
    for (int i = 0, p; i < c->ranks.n; i++)
        if (!parse_int(c->ranks.item[i], 2, MOST_RANKS, &p))
            return tool_usage("tune", "--ranks '%s' is not a number from 2 to %d", c->ranks.item[i],
                              MOST_RANKS);
    return EXIT_OK;
}

static void show(double share, const char *what, void *context) {
    (void)context;
    if (launch_progress()) fprintf(stderr, "\r%3.0f %%  %s\033[K", share * 100, what);
}

static int tune(const tool_world *w, const void *context) {
    const config *c = context;
    rill_tune_options options = c->tune;
    rill_comm *comm = NULL;
    rill_tune_report report = RILL_TUNE_REPORT_INIT;
    launch_tune_malloc();
    options.progress = show;
    /* RILL_PROFILE may name the file that is to be written. */
    const char *named = getenv("RILL_PROFILE");
    char kept[4096] = "";
    if (named && strcmp(named, "none") != 0) snprintf(kept, sizeof kept, "%s", named);
    if (!options.profile && *kept) options.profile = kept;
    if (w->rank == 0) setenv("RILL_PROFILE", "none", 1);
    rill_status status = world_comm(w, NULL, &comm);
    if (status == RILL_OK) status = rill_tune(comm, &options, &report);
    if (launch_progress() && tool_speaks()) fprintf(stderr, "\r\033[K");
    int ranks = rill_comm_size(comm);
    if (status != RILL_OK) tool_error("%s", rill_last_error());
    else if (tool_speaks())
        printf("%d ranks: %d kinds of calls; latency %.1f us, %.3g Gbit/s per rank; the model is "
               "off by "
               "%.0f %% (median), and corrected where it was measured\nwritten to %s\n",
               ranks, report.measured, report.latency_s * 1e6, report.bits_per_second / 1e9,
               report.median_error * 100, report.profile);
    if (status == RILL_OK && report.device && tool_speaks())
        printf("what the GPU takes to code and to sum was measured, too\n");
    rill_comm_free(&comm);
    return status == RILL_OK ? EXIT_OK : EXIT_FAILED;
}

/* Under a launcher once, else for each number of ranks. */
static int tune_all(config *c, int argc, char **argv) {
    int status = EXIT_OK;
    for (int i = 0; i < c->ranks.n && status == EXIT_OK; i++) {
        bool started = launch_under() != UNDER_NOTHING;
        c->where.ranks = 0;
        if (!started) parse_int(c->ranks.item[i], 2, MOST_RANKS, &c->where.ranks);
        status = world_run(&(world_job){.command = "tune",
                                        .options = &c->where,
                                        .ranks = 2,
                                        .argc = argc,
                                        .argv = argv,
                                        .tune_malloc = true,
                                        .run = tune,
                                        .context = c});
        if (started) break;
    }
    return status;
}

int cmd_tune(int argc, char **argv) {
    config c = {.tune = RILL_TUNE_OPTIONS_INIT};
    bool help = false;
    int status = parse(argc, argv, &c, &help);
    if (help) {
        if (tool_speaks()) cmd_tune_help(stdout);
    } else if (status == EXIT_OK) {
        status = tune_all(&c, argc, argv);
    }
    list_free(&c.ranks);
    return status;
}
