/* rill: one binary, one table of commands.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "launch.h"
#include "tool.h"
#include "tool_mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <rill/rill.h>
#include <stdlib.h>
#include <string.h>

static const tool_command commands[] = {
    {"info", "algorithms, codecs, instruction set, MPI and environment", cmd_info, cmd_info_help,
     TOOL_MULTIPLE},
    {"bench", "time collectives against MPI, every result checked", cmd_bench, cmd_bench_help,
     TOOL_SINGLE},
    {"tune", "measure this machine and network for the planner", cmd_tune, cmd_tune_help,
     TOOL_SINGLE},
    {"plan", "what the planner expects each algorithm to take", cmd_plan, cmd_plan_help,
     TOOL_SINGLE},
    {"gen", "write data in the shape of published sets", cmd_gen, cmd_gen_help, TOOL_SINGLE},
    {"convert", "data sets from svmlight text to the binary form and back", cmd_convert,
     cmd_convert_help, TOOL_SINGLE},
    {"train", "train linear models on sparse data, on one rank or many", cmd_train, cmd_train_help,
     TOOL_FUNNELED},
    {"predict", "apply a model: accuracy, losses, AUC, labels, probabilities", cmd_predict,
     cmd_predict_help, TOOL_SINGLE},
    {"model", "what is in a model: how it was made, its largest weights", cmd_model, cmd_model_help,
     TOOL_SINGLE},
    {"report", "one page with plots of what bench and train have written", cmd_report,
     cmd_report_help, TOOL_SINGLE},
};
#define COMMANDS ((int)(sizeof commands / sizeof *commands))

static void main_help(FILE *out) {
    fprintf(out, "usage: rill COMMAND [OPTION...]\n"
                 "\n"
                 "Sparse collectives for distributed machine learning.\n"
                 "\n"
                 "Commands:\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-16s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "  %-16s %s\n", "bench kernels",
            "time sums, selection and codecs alone, on one core");
    fprintf(out, "  %-16s %s\n", "bench reducer", "time whole training steps against MPI");
    fprintf(out, "  %-16s %s\n", "bench overlap", "how much of a call hides behind computation");
    fprintf(out, "\n"
                 "  rill help COMMAND, rill COMMAND --help   what a command does and its options\n"
                 "  rill --version                           version, commit and MPI library\n"
                 "\n"
                 "Exit status: 0 success, 1 a run or a check failed, 2 wrong usage.\n");
}

static const tool_command *find_command(const char *name) {
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].name, name)) return &commands[i];
    return NULL;
}

static int unknown_command(const char *name) {
    const char *names[COMMANDS + 2];
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    names[COMMANDS] = "help";
    names[COMMANDS + 1] = NULL;
    const char *meant = tool_suggest(name, names);
    if (meant) tool_error("unknown command '%s'; did you mean '%s'?", name, meant);
    else tool_error("unknown command '%s'; 'rill --help' lists them", name);
    return EXIT_USAGE;
}

static int help_for(int argc, char **argv) {
    if (argc < 2) {
        if (tool_speaks()) main_help(stdout);
        return EXIT_OK;
    }
    const tool_command *c = find_command(argv[1]);
    if (!c) return unknown_command(argv[1]);
    if (argc > 2 && !strcmp(argv[1], "bench") && !strcmp(argv[2], "kernels")) {
        if (tool_speaks()) cmd_bench_kernels_help(stdout);
        return EXIT_OK;
    }
    if (argc > 2 && !strcmp(argv[1], "bench") && !strcmp(argv[2], "reducer")) {
        if (tool_speaks()) cmd_bench_reducer_help(stdout);
        return EXIT_OK;
    }
    if (argc > 2 && !strcmp(argv[1], "bench") && !strcmp(argv[2], "overlap")) {
        if (tool_speaks()) cmd_bench_overlap_help(stdout);
        return EXIT_OK;
    }
    if (tool_speaks()) c->help(stdout);
    return EXIT_OK;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        if (tool_speaks()) main_help(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) return help_for(1, argv);
    if (!strcmp(name, "help")) return help_for(argc - 1, argv + 1);
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        if (tool_speaks())
            printf("rill %s\ncommit %s\n%s\n", rill_version(), tool_commit(), tool_mpi_library());
        return EXIT_OK;
    }
    if (name[0] == '-') {
        static const char *const options[] = {"--help", "--version", NULL};
        const char *meant = tool_suggest(name, options);
        if (meant) tool_error("unknown option '%s'; did you mean '%s'?", name, meant);
        else tool_error("unknown option '%s'; 'rill --help' lists commands and options", name);
        return EXIT_USAGE;
    }
    const tool_command *c = find_command(name);
    return c ? c->run(argc - 1, argv + 1) : unknown_command(name);
}

/* What MPI is to give: more where a progress thread is measured. */
static tool_threads threads_of(int argc, char **argv) {
    const tool_command *c = argc > 1 ? find_command(argv[1]) : NULL;
    bool overlap = argc > 2 && !strcmp(argv[1], "bench") && !strcmp(argv[2], "overlap");
    if (overlap) return TOOL_MULTIPLE;
    return c ? c->threads : TOOL_SINGLE;
}

/* A standard stream that is closed leaves its number to the first file that is opened, and what is
 * printed would go there. A folder takes it, which can be neither read nor written, nor opened to
 * be written (/dev/stdout). */
static void hold_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/", O_RDONLY) != fd) return;
}

int main(int argc, char **argv) {
    int status;
    hold_standard_streams();
    if (launch_here(argc, argv, &status)) return status;
    /* Under a launcher the rank comes first, so that usage errors are reported by one only. */
    launch_look(argc, argv);
    if (launch_under() == UNDER_MPI) tool_mpi_begin(threads_of(argc, argv));
    status = dispatch(argc, argv);
    errno = 0;
    if (fflush(stdout) || ferror(stdout)) {
        int why = errno; /* 0: it failed before */
        if (status == EXIT_OK) status = EXIT_FAILED;
        tool_error("standard output: cannot be written%s%s", why ? ": " : "",
                   why ? strerror(why) : "");
    }
    tool_mpi_end();
    return status;
}
