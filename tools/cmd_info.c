/* rill info: what this build of the library has, and what it runs on.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "tool.h"
#include "tool_mpi.h"

#include <jansson.h>
#include <rill/rill.h>
#include <rill/train.h>
#include <stdlib.h>
#include <string.h>

/* Variables that the tool alone looks at, behind those of the library's settings. */
static const rill_setting own[] = {
    {.environment = "RILL_MPIRUN",
     .description = "tool: the launcher and its options, instead of the one found"},
};
enum { OWN = sizeof own / sizeof *own };

/* The i-th setting that the environment can have; false past the end. */
static bool variable_at(int i, rill_setting *setting) {
    *setting = (rill_setting)RILL_SETTING_INIT;
    for (int k = 0; rill_setting_at(k, setting); k++)
        if (setting->environment && i-- == 0) return true;
    if (i >= OWN) return false;
    *setting = own[i];
    return true;
}

enum { OPERATIONS = 4 };
static const rill_op *const operations[OPERATIONS] = {RILL_SUM, RILL_MIN, RILL_MAX, RILL_PROD};

void cmd_info_help(FILE *out) {
    fprintf(out, "usage: rill info [--settings | --json]\n"
                 "\n"
                 "Prints the versions of the library and of MPI, the instruction set in use, the\n"
                 "devices whose memory reducers can work in, and the algorithms of each\n"
                 "collective, codecs, types, operations and environment variables.\n"
                 "\n"
                 "  --settings   all settings instead: default, where they can be set, meaning\n"
                 "  --json       one JSON object instead, with the settings\n"
                 "  -h, --help   this text\n");
}

/* What options name, beside algorithms. */
static const struct {
    const char *title, *key;
    const char *(*at)(int i, const char **description);
} tables[] = {
    {"Codecs", "codecs", rill_codec_at},
    {"Selections", "selections", rill_selector_at},
    {"Losses", "losses", rill_loss_at},
    {"Solvers", "solvers", rill_solver_at},
};
enum { TABLES = sizeof tables / sizeof *tables };

enum { DEVICE_TEXT = 300 };

static void print_devices(void) {
    char text[DEVICE_TEXT];
    printf("CUDA devices       ");
    rill_status first = rill_device_at(RILL_CUDA, 0, text, sizeof text);
    if (first != RILL_OK) {
        /* Without the name of the call. */
        const char *why = strstr(rill_last_error(), ": ");
        printf("none (%s)\n", why ? why + 2 : rill_last_error());
        return;
    }
    for (int i = 0; rill_device_at(RILL_CUDA, i, text, sizeof text) == RILL_OK; i++)
        printf("%s%s\n", i ? "                   " : "", text);
}

static json_t *devices_array(void) {
    char text[DEVICE_TEXT];
    json_t *all = json_array();
    for (int i = 0; rill_device_at(RILL_CUDA, i, text, sizeof text) == RILL_OK; i++)
        json_array_append_new(all, json_string(text));
    return all;
}

static void print_text(void) {
    printf("rill               %s (commit %s)\n", rill_version(), tool_commit());
    printf("MPI library        %s\n", tool_mpi_library());
    printf("MPI standard       %s\n", tool_mpi_standard());
    printf("MPI threads        %s\n", tool_mpi_threads());
    printf("instruction set    %s\n", rill_isa());
    print_devices();
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
    for (int t = 0; t < TABLES; t++) {
        printf("\n%s:\n", tables[t].title);
        for (int i = 0; (name = tables[t].at(i, &text)); i++)
            printf("  %-17s%s\n", name, text);
    }
    printf("\nEnvironment:\n");
    rill_setting variable;
    for (int i = 0; variable_at(i, &variable); i++) {
        const char *value = getenv(variable.environment);
        printf("  %-22s%s%s%s%s\n", variable.environment, variable.description,
               value ? " [now: " : "", value ? value : "", value ? "]" : "");
    }
    const char *wrong = tool_settings_error();
    if (wrong) printf("\nNo communicator can be created here: %s.\n", wrong);
}

static const struct {
    unsigned bit;
    const char *name;
} structs[] = {
    {RILL_IN_CONFIG, "rill_config"},
    {RILL_IN_OPTIONS, "rill_options"},
    {RILL_IN_REDUCER_OPTIONS, "rill_reducer_options"},
};
enum { STRUCTS = sizeof structs / sizeof *structs };

static void print_settings(void) {
    rill_setting s = RILL_SETTING_INIT;
    for (int i = 0; rill_setting_at(i, &s); i++) {
        printf("%s%s\n    %s.\n    ", i ? "\n" : "", s.name, s.description);
        if (*s.value) printf("Default: %s. ", s.value);
        const char *before = "Set by ";
        for (int k = 0; k < STRUCTS; k++) {
            if (!(s.structs & structs[k].bit)) continue;
            printf("%s%s", before, structs[k].name);
            before = ", ";
        }
        if (s.info) printf("%sMPI_Info %s", before, s.info);
        if (s.environment) printf("%s%s", s.info || s.structs ? ", " : before, s.environment);
        printf(".\n");
    }
}

static json_t *named(const char *name, const char *description) {
    return json_pack("{s:s, s:s}", "name", name, "description", description);
}

static json_t *settings_array(void) {
    json_t *all = json_array();
    rill_setting s = RILL_SETTING_INIT;
    for (int i = 0; rill_setting_at(i, &s); i++) {
        json_t *in = json_array();
        for (int k = 0; k < STRUCTS; k++)
            if (s.structs & structs[k].bit) json_array_append_new(in, json_string(structs[k].name));
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:o}", "name", s.name,
                                             "description", s.description, "default", s.value,
                                             "environment", s.environment, "info", s.info,
                                             "structs", in));
    }
    return all;
}

static int print_json(void) {
    json_t *types = json_array(), *ops = json_array(), *collectives = json_object();
    json_t *environment = json_object();
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
    rill_setting variable;
    for (int i = 0; variable_at(i, &variable); i++) {
        const char *value = getenv(variable.environment);
        json_object_set_new(environment, variable.environment,
                            value ? json_string(value) : json_null());
    }
    json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}",
                             "version", rill_version(), "commit", tool_commit(), "mpi_library",
                             tool_mpi_library(), "mpi_standard", tool_mpi_standard(), "mpi_threads",
                             tool_mpi_threads(), "isa", rill_isa(), "devices", devices_array(),
                             "types", types, "operations", ops, "algorithms", collectives,
                             "environment", environment, "settings", settings_array());
    for (int t = 0; root && t < TABLES; t++) {
        json_t *rows = json_array();
        for (int i = 0; (name = tables[t].at(i, &text)); i++)
            json_array_append_new(rows, named(name, text));
        json_object_set_new(root, tables[t].key, rows);
    }
    int failed = !root || json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return failed ? EXIT_FAILED : EXIT_OK;
}

int cmd_info(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"settings", no_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    bool json = false, settings = false;
    tool_getopt_reset();
    for (int c; (c = tool_getopt("info", argc, argv, options)) != -1;) {
        if (c == '?') return EXIT_USAGE;
        if (c == 'h') {
            if (tool_speaks()) cmd_info_help(stdout);
            return EXIT_OK;
        }
        json |= c == 'j';
        settings |= c == 's';
    }
    if (json && settings) return tool_usage("info", "--settings is a part of --json");
    if (optind < argc) return tool_usage("info", "unexpected argument '%s'", argv[optind]);
    tool_mpi_begin(TOOL_MULTIPLE);
    if (!tool_speaks()) return EXIT_OK;
    if (json) return print_json();
    if (settings) print_settings();
    else print_text();
    return EXIT_OK;
}
