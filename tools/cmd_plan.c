/* rill plan: the table of predicted times, and the choice.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "parse.h"
#include "plan_learned.h"
#include "table.h"
#include "tool.h"
#include "tool_mpi.h"
#include "world.h"

#include <jansson.h>
#include <rill/rill.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1 << 20, MOST_ROWS = 64, DEFAULT_RANKS = 8 };

typedef struct config {
    rill_plan_query query;
    double density;
    uint64_t nnz;
    bool density_given, nnz_given;
    bool json;
    bool learns; /* show what was learned, and go by it */
    learned learned;
} config;

void cmd_plan_help(FILE *out) {
    fprintf(
        out,
        "usage: rill plan [OPTION...]\n"
        "\n"
        "Prints what the planner expects each algorithm to take, and which it would choose.\n"
        "Nothing is run. What a message, a byte and a sum cost comes from the profile that\n"
        "'rill tune' wrote for the nearest number of ranks and hosts, else from built-in\n"
        "constants; with --learned from what calls on this machine have shown.\n"
        "\n"
        "The sum:\n"
        "  --ranks P            ranks (default 8)\n"
        "  --hosts H            hosts that they are on (default: one for each rank)\n"
        "  --dim N              dimension, such as 1000000, 2^24, 16M (default 2^20)\n"
        "  --density D          share of entries that each rank has (default 1%%)\n"
        "  --nnz K              the same as a number\n"
        "  --result K           entries of the result (default: as of uniform supports)\n"
        "  --type T             f32 (default), f64, f16, bf16\n"
        "  --collective C       allreduce (default), reduce, reduce_scatter, allgather, bcast,\n"
        "                       or reducer: the algorithms that give the K largest of the sum\n"
        "\n"
        "How it may be sent:\n"
        "  --codec C            auto (default), or a name from 'rill info'\n"
        "  --value-bits B       0 (as they are, default), 16, 8, 4, 2\n"
        "  --allow-bits B       the planner may choose so few bits per value\n"
        "  --partition P        auto (default), uniform, balanced\n"
        "  --block B            entries of a block, where entries come in whole blocks\n"
        "\n"
        "The machine:\n"
        "  --profile FILE       instead of the one that programs would find; none: built in\n"
        "  --learned            what calls on this machine have shown, and predictions by it;\n"
        "                       ranks and hosts are those that were last learned of\n"
        "  --rate R             rate of the network per host, such as 100mbit, 1gbit\n"
        "  --latency S          of a message, in seconds, such as 25e-6\n"
        "  --link L             how ranks are connected: mpi (default), ucx, local\n"
        "  --memory M           cuda: of a reducer whose vectors are on the GPUs of all ranks\n"
        "  --json               one JSON object instead of the table\n"
        "  -h, --help           this text\n"
        "\n"
        "Example:\n"
        "  rill plan --ranks 8 --dim 2^24 --density 0.781%% --rate 1gbit\n");
}

static bool parse_rate(const char *text, double *bits) {
    static const struct {
        const char *unit;
        double bits;
    } units[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}};
    char *end;
    *bits = strtod(text, &end);
    if (end == text || !(*bits > 0)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].unit) == 0) {
            *bits *= units[i].bits;
            return *bits >= 1 && *bits <= 1e15;
        }
    return false;
}

static bool parse_type(const char *text, rill_type *type) {
    for (int t = 0; rill_type_size((rill_type)t); t++)
        if (strcmp(rill_type_name((rill_type)t), text) == 0) {
            *type = (rill_type)t;
            return true;
        }
    return false;
}

static bool parse_collective(const char *text, rill_collective *collective) {
    for (int c = 0; c <= (int)RILL_REDUCER; c++)
        if (strcmp(rill_collective_name((rill_collective)c), text) == 0) {
            *collective = (rill_collective)c;
            return true;
        }
    return false;
}

static const char *const memory_names[] = {[RILL_HOST] = "host", [RILL_CUDA] = "cuda"};

static bool parse_memory(const char *text, rill_memory *memory) {
    for (int m = RILL_HOST; m <= (int)RILL_CUDA; m++)
        if (strcmp(memory_names[m], text) == 0) {
            *memory = (rill_memory)m;
            return true;
        }
    return false;
}

static bool parse_seconds(const char *text, double *seconds) {
    char *end;
    *seconds = strtod(text, &end);
    return end != text && !*end && *seconds > 0 && *seconds < 1000;
}

enum option_id {
    RANKS = 256,
    HOSTS,
    DIM,
    DENSITY,
    NNZ,
    RESULT,
    TYPE,
    COLLECTIVE,
    CODEC,
    VALUE_BITS,
    ALLOW_BITS,
    PARTITION,
    BLOCK,
    PROFILE,
    LEARNED,
    RATE,
    LATENCY,
    LINK,
    MEMORY,
    JSON
};

static bool is_link(const char *text) {
    for (const char *const *name = world_link_names; *name; name++)
        if (!strcmp(*name, text)) return true;
    return false;
}

static bool take(config *c, int option, const char *text) {
    rill_plan_query *q = &c->query;
    switch (option) {
    case RANKS: return parse_int(text, 1, MOST_RANKS, &q->ranks);
    case HOSTS: return parse_int(text, 1, MOST_RANKS, &q->hosts);
    case DIM: return parse_count(text, &q->dim) && q->dim > 0;
    case DENSITY: c->density_given = true; return parse_fraction(text, &c->density);
    case NNZ: c->nnz_given = true; return parse_count(text, &c->nnz);
    case RESULT: return parse_count(text, &q->result);
    case TYPE: return parse_type(text, &q->type);
    case COLLECTIVE: return parse_collective(text, &q->collective);
    case VALUE_BITS: return parse_bits(text, &q->value_bits);
    case ALLOW_BITS: return parse_bits(text, &q->allow_bits);
    case BLOCK: return parse_count(text, &q->block);
    case RATE: return parse_rate(text, &q->bits_per_second);
    case LATENCY: return parse_seconds(text, &q->latency_s);
    case LINK: q->link = text; return is_link(text);
    case MEMORY: return parse_memory(text, &q->memory);
    case CODEC: q->codec = text; return tool_is_codec(text);
    case PARTITION: q->partition = text; return tool_is_partition(text);
    case PROFILE: q->profile = text; return true;
    case LEARNED: c->learns = true; return true;
    default: c->json = true; return true;
    }
}

/* What take() would have taken. */
static const char *wanted(int option) {
    switch (option) {
    case RANKS: return "a number of ranks";
    case HOSTS: return "a number of hosts";
    case DIM: return "a dimension of 1 or more, such as 16777216, 2^24, 16M or 1e6";
    case DENSITY: return "a fraction from 0 to 1, such as 0.01 or 1%";
    case TYPE: return "f32, f64, f16 or bf16";
    case COLLECTIVE: return "allreduce, reduce, reduce_scatter, allgather, bcast or reducer";
    case VALUE_BITS:
    case ALLOW_BITS: return PARSE_BITS;
    case LINK: return "mpi, ucx or local";
    case MEMORY: return "host or cuda";
    case CODEC: return TOOL_CODEC;
    case PARTITION: return TOOL_PARTITION;
    case RATE: return "a rate, such as 100mbit or 1gbit";
    case LATENCY: return "a number of seconds, such as 25e-6";
    default: return "a count";
    }
}

static void complete(config *c) {
    rill_plan_query *q = &c->query;
    if (!q->ranks) q->ranks = DEFAULT_RANKS;
    if (!q->hosts) q->hosts = q->ranks;
    q->nnz = c->nnz_given ? c->nnz : (uint64_t)((double)q->dim * c->density + 0.5);
}

static int parse(int argc, char **argv, config *c, bool *help) {
    static const struct option options[] = {{"ranks", required_argument, NULL, RANKS},
                                            {"hosts", required_argument, NULL, HOSTS},
                                            {"dim", required_argument, NULL, DIM},
                                            {"density", required_argument, NULL, DENSITY},
                                            {"nnz", required_argument, NULL, NNZ},
                                            {"result", required_argument, NULL, RESULT},
                                            {"type", required_argument, NULL, TYPE},
                                            {"collective", required_argument, NULL, COLLECTIVE},
                                            {"codec", required_argument, NULL, CODEC},
                                            {"value-bits", required_argument, NULL, VALUE_BITS},
                                            {"allow-bits", required_argument, NULL, ALLOW_BITS},
                                            {"partition", required_argument, NULL, PARTITION},
                                            {"block", required_argument, NULL, BLOCK},
                                            {"profile", required_argument, NULL, PROFILE},
                                            {"learned", no_argument, NULL, LEARNED},
                                            {"rate", required_argument, NULL, RATE},
                                            {"latency", required_argument, NULL, LATENCY},
                                            {"link", required_argument, NULL, LINK},
                                            {"memory", required_argument, NULL, MEMORY},
                                            {"json", no_argument, NULL, JSON},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int index = 0;
    tool_getopt_reset();
    for (int o; (o = tool_getopt("plan", argc, argv, options)) != -1;) {
        if (o == '?') return EXIT_USAGE;
        if (o == 'h') {
            *help = true;
            return EXIT_OK;
        }
        if (take(c, o, optarg)) continue;
        for (index = 0; options[index].val != o;)
            index++;
        return tool_usage("plan", "--%s: '%s' is not %s", options[index].name, optarg, wanted(o));
    }
    if (optind < argc) return tool_usage("plan", "unexpected argument '%s'", argv[optind]);
    rill_plan_query *q = &c->query;
    if (c->learns && q->profile)
        return tool_usage("plan", "--learned and --profile are two places of constants");
    if (c->nnz_given && c->density_given)
        return tool_usage("plan", "--density and --nnz: only one of them can be given");
    if (c->nnz > q->dim)
        return tool_usage("plan", "--nnz: %llu is more than the dimension %llu",
                          (unsigned long long)c->nnz, (unsigned long long)q->dim);
    if (q->result > q->dim)
        return tool_usage("plan", "--result: %llu is more than the dimension %llu",
                          (unsigned long long)q->result, (unsigned long long)q->dim);
    if (c->learns) return EXIT_OK;
    complete(c);
    if (q->hosts > q->ranks)
        return tool_usage("plan", "--hosts: %d are more than the %d ranks", q->hosts, q->ranks);
    return EXIT_OK;
}

/* What was learned takes the place of a profile. */
static int look_up_learned(config *c) {
    rill_plan_query *q = &c->query;
    learned *l = &c->learned;
    const char *link = q->link ? q->link : tool_mpi_built() ? "mpi" : "ucx";
    if (!learned_find(link, q->hosts, l)) {
        tool_error("nothing has been learned with link %s yet: there is no file for it in %s", link,
                   *l->folder ? l->folder : "the user's folder");
        return EXIT_FAILED;
    }
    if (!learned_read(q->ranks, l)) {
        tool_error("%s has nothing that was learned", l->path);
        return EXIT_FAILED;
    }
    q->profile = l->path;
    if (!q->ranks) q->ranks = l->ranks;
    if (!q->hosts) q->hosts = l->hosts;
    complete(c);
    return EXIT_OK;
}

static void print_table(const config *c, const rill_plan_row *rows, int n) {
    const rill_plan_query *q = &c->query;
    table t = {.columns = q->memory == RILL_HOST ? 5 : 6,
               .head = {"algorithm", "predicted", "codec", "value bits", "partition", "sums in"},
               .left = 1};
    char nnz[TABLE_CELL], dim[TABLE_CELL];
    cell_count(nnz, q->nnz);
    cell_count(dim, q->dim);
    printf("%s of %s of %s %s on %d ranks, %d host%s\n\n", rill_collective_name(q->collective), nnz,
           dim, rill_type_name(q->type), q->ranks, q->hosts, q->hosts == 1 ? "" : "s");
    for (int i = 0; i < n; i++) {
        table_row *row = table_add(&t);
        if (!row) break;
        snprintf(row->cell[0], TABLE_CELL, "%s%s", rows[i].chosen ? "* " : "  ", rows[i].algorithm);
        if (rows[i].refuses) {
            snprintf(row->note, sizeof row->note, "%s", rows[i].refuses);
            continue;
        }
        cell_time(row->cell[1], rows[i].seconds);
        cell_text(row->cell[2], rows[i].codec);
        if (rows[i].value_bits) snprintf(row->cell[3], TABLE_CELL, "%d", rows[i].value_bits);
        else cell_text(row->cell[3], "as they are");
        cell_text(row->cell[4], rows[i].partition);
        if (q->memory != RILL_HOST) cell_text(row->cell[5], memory_names[rows[i].sums]);
    }
    table_print(&t, stdout);
    table_free(&t);
    printf("\n* what 'auto' takes\n");
}

static int print_json(const config *c, const rill_plan_row *rows, int n) {
    const rill_plan_query *q = &c->query;
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const rill_plan_row *r = &rows[i];
        json_t *row = r->refuses
                          ? json_pack("{s:s, s:s}", "algorithm", r->algorithm, "refuses",
                                      r->refuses)
                          : json_pack("{s:s, s:f, s:s, s:i, s:s, s:b, s:s}", "algorithm",
                                      r->algorithm, "predicted_s", r->seconds, "codec", r->codec,
                                      "value_bits", r->value_bits, "partition", r->partition,
                                      "chosen", r->chosen, "summed_in", memory_names[r->sums]);
        json_array_append_new(list, row);
    }
    json_t *root = json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:o}", "collective",
                             rill_collective_name(q->collective), "type", rill_type_name(q->type),
                             "ranks", q->ranks, "hosts", q->hosts, "dim", (json_int_t)q->dim, "nnz",
                             (json_int_t)q->nnz, "algorithms", list);
    if (root && c->learns) json_object_set_new(root, "learned", learned_json(&c->learned));
    int failed = !root || json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return failed ? EXIT_FAILED : EXIT_OK;
}

int cmd_plan(int argc, char **argv) {
    config c = {.query = RILL_PLAN_QUERY_INIT, .density = 0.01};
    c.query.ranks = c.query.hosts = 0;
    c.query.dim = 1 << 20;
    bool help = false;
    int status = parse(argc, argv, &c, &help);
    if (status != EXIT_OK) return status;
    if (!tool_speaks()) return EXIT_OK;
    if (help) {
        cmd_plan_help(stdout);
        return EXIT_OK;
    }
    if (c.learns && look_up_learned(&c) != EXIT_OK) return EXIT_FAILED;
    rill_plan_row rows[MOST_ROWS];
    int n = 0;
    if (rill_plan(&c.query, rows, MOST_ROWS, &n) != RILL_OK) {
        tool_error("%s", rill_last_error());
        return EXIT_FAILED;
    }
    if (c.json) return print_json(&c, rows, n);
    if (c.learns) learned_print(&c.learned);
    print_table(&c, rows, n);
    return EXIT_OK;
}
