/* What the files of the rill tool share: commands, exit statuses, messages.
 *
 * The tool is a program like any other on top of librill: it includes the public header only. A
 * command is a row of the table in rill_main.c; it gets its own argv (argv[0] is its name) and
 * returns an exit status. Only rank 0 speaks, except for a rank's own failure.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_H
#define RILL_TOOL_H

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* What threads of a rank may call MPI; more than needed makes it slower. */
typedef enum tool_threads {
    TOOL_SINGLE,
    TOOL_FUNNELED,
    TOOL_SERIALIZED,
    TOOL_MULTIPLE
} tool_threads;

typedef struct tool_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
    void (*help)(FILE *);
    tool_threads threads;
} tool_command;

int cmd_info(int argc, char **argv);
void cmd_info_help(FILE *);
int cmd_bench(int argc, char **argv);
void cmd_bench_help(FILE *);
int cmd_bench_kernels(int argc, char **argv);
void cmd_bench_kernels_help(FILE *);
int cmd_tune(int argc, char **argv);
void cmd_tune_help(FILE *);
int cmd_plan(int argc, char **argv);
void cmd_plan_help(FILE *);
int cmd_gen(int argc, char **argv);
void cmd_gen_help(FILE *);
int cmd_convert(int argc, char **argv);
void cmd_convert_help(FILE *);
int cmd_train(int argc, char **argv);
void cmd_train_help(FILE *);
int cmd_predict(int argc, char **argv);
void cmd_predict_help(FILE *);
int cmd_model(int argc, char **argv);
void cmd_model_help(FILE *);
int cmd_report(int argc, char **argv);
void cmd_report_help(FILE *);
int cmd_bench_reducer(int argc, char **argv);
void cmd_bench_reducer_help(FILE *);
int cmd_bench_overlap(int argc, char **argv);
void cmd_bench_overlap_help(FILE *);

/* Whether this rank prints: false on those other than 0. */
bool tool_speaks(void);
void tool_set_speaks(bool);
/* "rill: " and the text on stderr, on the rank that speaks. */
void tool_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same with a hint at the command's help; returns EXIT_USAGE. */
int tool_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* getopt_long with our messages: returns the option's value, -1 at the end, or '?' after it has
 * reported an unknown option, a missing or a superfluous argument. */
int tool_getopt(const char *command, int argc, char **argv, const struct option *options);
/* All options of a command without other words: set gets each with its name. *help: --help was
 * among them. */
typedef int tool_set_fn(void *config, int option, const char *name, const char *value);
int tool_options(const char *command, int argc, char **argv, const struct option *options,
                 tool_set_fn *set, void *config, bool *help);
/* Starts a new scan. */
void tool_getopt_reset(void);

/* What is wrong with the settings in the environment, in words, or NULL: for commands without a
 * communicator, whose creation would say so. */
const char *tool_settings_error(void);

/* The name among candidates (NULL-terminated) that was probably meant, or NULL. */
const char *tool_suggest(const char *given, const char *const *candidates);
/* Wrong usage: an option has a name that is none of these (up to NULL). */
int tool_unknown(const char *command, const char *option, const char *value,
                 const char *const *names);
/* Names that options of several commands have; "auto" is one, too. */
#define TOOL_CODEC "auto or a codec that 'rill info' names"
#define TOOL_PARTITION "auto, uniform or balanced"
bool tool_is_codec(const char *name);
bool tool_is_partition(const char *name);

/* The commit that the tool was built from, or "unknown". */
const char *tool_commit(void);

#endif
