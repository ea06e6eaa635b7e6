/* rill info: what this build of the library has, and what it runs on.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "tool.h"

#include <jansson.h>
#include <mpi.h>
#include <rill/rill.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *meaning;
} variables[] = {
    {"RILL_ALGORITHM", "algorithm, where the call names none"},
    {"RILL_CODEC", "codec, where the call names none"},
    {"RILL_VALUE_BITS", "bits per value in messages: 0 (as they are), 16, 8, 4, 2"},
    {"RILL_EXPECTED_NNZ", "expected non-zeros of the result"},
    {"RILL_ALLOW_BITS", "fewest bits per value that the planner may choose: 0 (none), 16, 8, 4, 2"},
    {"RILL_PARTITION", "partition of the split algorithms: auto, uniform, balanced"},
    {"RILL_BLOCK", "entries of a block, where entries come in whole blocks"},
    {"RILL_CHECK", "1: ranks agree on all arguments before each call"},
    {"RILL_PROGRESS_THREAD", "1: a thread advances requests while the program computes"},
    {"RILL_PROFILE", "profile of this machine, as rill tune writes it; none: built-in constants"},
    {"RILL_SPLIT_LIMIT", "most bytes in one MPI message"},
    {"RILL_SHARED_BYTES", "of each rank, in memory that ranks of a host share; 0: none"},
    {"RILL_HOSTS_OF", "hosts to pretend: 4 ranks each, a list such as 3,1,2, or cyclic:HOSTS"},
    {"RILL_ISA", "most that is used of the instruction set: scalar, avx2, avx512"},
    {"RILL_MPIRUN", "tool: the launcher and its options, instead of the one found"},
};
#define VARIABLES ((int)(sizeof variables / sizeof *variables))

enum { OPERATIONS = 4 };
static const rill_op *const operations[OPERATIONS] = {RILL_SUM, RILL_MIN, RILL_MAX, RILL_PROD};

static const struct {
    int level;
    const char *name;
} levels[] = {
    {MPI_THREAD_SINGLE, "single"},
    {MPI_THREAD_FUNNELED, "funneled"},
    {MPI_THREAD_SERIALIZED, "serialized"},
    {MPI_THREAD_MULTIPLE, "multiple"},
};

static const char *thread_level(void) {
    int level = 0;
    MPI_Query_thread(&level);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (levels[i].level == level) return levels[i].name;
    return "unknown";
}

void cmd_info_help(FILE *out) {
    fprintf(out, "usage: rill info [--json]\n"
                 "\n"
                 "Prints the versions of the library and of MPI, the instruction set in use, and\n"
                 "the algorithms of each collective, codecs, types, operations and environment\n"
                 "variables.\n"
                 "\n"
                 "  --json       one JSON object instead\n"
                 "  -h, --help   this text\n");
}

static void print_text(void) {
    int version, subversion;
    MPI_Get_version(&version, &subversion);
    printf("rill               %s (commit %s)\n", rill_version(), tool_commit());
    printf("MPI library        %s\n", tool_mpi_library());
    printf("MPI standard       %d.%d\n", version, subversion);
    printf("MPI threads        %s\n", thread_level());
    printf("instruction set    %s\n", rill_isa());
    printf("types             ");
    for (int t = 0; rill_type_size((rill_type)t); t++)
        printf(" %s", rill_type_name((rill_type)t));
    printf("\noperations        ");
    for (int i = 0; i < OPERATIONS; i++)
        printf(" %s", rill_op_name(operations[i]));
    printf("\n");
    const char *name, *text;
    for (int c = 0; c <= (int)RILL_REDUCER; c++) {
        printf("\nAlgorithms of %s:\n", rill_collective_name((rill_collective)c));
        for (int i = 0; (name = rill_algorithm_at((rill_collective)c, i, &text)); i++)
            printf("  %-17s%s\n", name, text);
    }
    printf("\nCodecs:\n");
    for (int i = 0; (name = rill_codec_at(i, &text)); i++)
        printf("  %-17s%s\n", name, text);
    printf("\nEnvironment:\n");
    for (int i = 0; i < VARIABLES; i++) {
        const char *value = getenv(variables[i].name);
        printf("  %-22s%s%s%s%s\n", variables[i].name, variables[i].meaning, value ? " [now: " : "",
               value ? value : "", value ? "]" : "");
    }
}

static json_t *named(const char *name, const char *description) {
    return json_pack("{s:s, s:s}", "name", name, "description", description);
}

static int print_json(void) {
    int version, subversion;
    MPI_Get_version(&version, &subversion);
    json_t *types = json_array(), *ops = json_array(), *collectives = json_object();
    json_t *codecs = json_array(), *environment = json_object();
    const char *name, *text;
    for (int t = 0; rill_type_size((rill_type)t); t++)
        json_array_append_new(types, json_string(rill_type_name((rill_type)t)));
    for (int i = 0; i < OPERATIONS; i++)
        json_array_append_new(ops, json_string(rill_op_name(operations[i])));
    for (int c = 0; c <= (int)RILL_REDUCER; c++) {
        json_t *algorithms = json_array();
        for (int i = 0; (name = rill_algorithm_at((rill_collective)c, i, &text)); i++)
            json_array_append_new(algorithms, named(name, text));
        json_object_set_new(collectives, rill_collective_name((rill_collective)c), algorithms);
    }
    for (int i = 0; (name = rill_codec_at(i, &text)); i++)
        json_array_append_new(codecs, named(name, text));
    for (int i = 0; i < VARIABLES; i++) {
        const char *value = getenv(variables[i].name);
        json_object_set_new(environment, variables[i].name,
                            value ? json_string(value) : json_null());
    }
    char standard[32];
    snprintf(standard, sizeof standard, "%d.%d", version, subversion);
    json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "version",
                             rill_version(), "commit", tool_commit(), "mpi_library",
                             tool_mpi_library(), "mpi_standard", standard, "mpi_threads",
                             thread_level(), "isa", rill_isa(), "types", types, "operations", ops,
                             "algorithms", collectives, "codecs", codecs, "environment",
                             environment);
    int failed = !root || json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return failed ? EXIT_FAILED : EXIT_OK;
}

int cmd_info(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    bool json = false;
    tool_getopt_reset();
    for (int c; (c = tool_getopt("info", argc, argv, options)) != -1;) {
        if (c == '?') return EXIT_USAGE;
        if (c == 'h') {
            if (tool_speaks()) cmd_info_help(stdout);
            return EXIT_OK;
        }
        json = true;
    }
    if (optind < argc) return tool_usage("info", "unexpected argument '%s'", argv[optind]);
    tool_mpi_begin(MPI_THREAD_MULTIPLE);
    if (!tool_speaks()) return EXIT_OK;
    if (json) return print_json();
    print_text();
    return EXIT_OK;
}
