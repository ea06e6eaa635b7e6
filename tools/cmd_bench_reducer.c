/* rill bench reducer: whole training steps, gradient in and update out, against MPI's dense
 * allreduce.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"
#include "bench_device.h"
#include "bench_reducer.h"
#include "launch.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void cmd_bench_reducer_help(FILE *out) {
    fputs(
        "usage: rill bench reducer [OPTION...]\n"
        "\n"
        "Times steps of reducers (feedback, selection, exchange, update) against MPI_Allreduce of\n"
        "the dense gradient (the row 'mpi'), and checks that nothing was lost: ranks x mean\n"
        "updates + residuals = gradients. It starts its ranks itself, unless a launcher has.\n"
        "\n"
        "  --ranks P              ranks to start (2)\n"
        "  --link L               mpi, ucx, local; and --hostfile FILE: see rill bench --help\n"
        "  --dim N                dimension: 16777216, 2^24, 16M, 1e6 (2^20)\n"
        "  --density D            share that is selected: 0.01, 1% (1%)\n"
        "  --k K                  or the number of entries\n"
        "  --algorithm LIST       names from 'rill info' (allreduce and reducer), auto, or all\n"
        "                         (default: all)\n"
        "  --select M             a selection from 'rill info', nonzero, or auto;\n"
        "                         default: suited, what suits the algorithm\n"
        "  --codec C              of indices: a name from 'rill info', or auto (auto)\n"
        "  --value-bits B         0 (as they are), 16, 8, 4, 2 (0)\n"
        "  --partition P          uniform, balanced\n"
        "  --type T               f32 (default), f64, f16, bf16\n"
        "  --memory M             that gradients, residuals and updates are in: host (default),\n"
        "                         cuda (the current device; 'mpi' and the checks use the host)\n"
        "  --support S            large entries are: uniform (default), skewed (in the first\n"
        "                         sixteenth), rows (1 of 64 blocks is not zero)\n"
        "  --block B              entries of a block, for rows, 'block' and 's2' (256)\n"
        "  --balance-trigger X    oktopk: largest share over the mean that is evened out (4)\n"
        "  --lambda L             s2: cells of the sketch per entry of the union (0.5)\n"
        "  --no-feedback          what is not sent is dropped\n"
        "  --update U             dense, stream, both (both)\n"
        "  --steps N              timed steps (20)\n"
        "  --warmup N             steps before (5)\n"
        "  --seed N               of gradients and rounding (1)\n"
        "  --no-baseline          without 'mpi'\n"
        "  --json FILE            one JSON object per case and line; - is stdout, without table\n"
        "  --quiet                no table\n"
        "  -h, --help             this text\n"
        "\n"
        "Example: rill bench reducer --ranks 2 --dim 2^24 --algorithm auto,oktopk,dense\n",
        out);
}

enum {
    OPT_DIM = 256,
    OPT_DENSITY,
    OPT_K,
    OPT_ALGORITHM,
    OPT_SELECT,
    OPT_CODEC,
    OPT_VALUE_BITS,
    OPT_PARTITION,
    OPT_TYPE,
    OPT_MEMORY,
    OPT_SUPPORT,
    OPT_BLOCK,
    OPT_TRIGGER,
    OPT_LAMBDA,
    OPT_NO_FEEDBACK,
    OPT_UPDATE,
    OPT_STEPS,
    OPT_WARMUP,
    OPT_SEED,
    OPT_NO_BASELINE,
    OPT_JSON,
    OPT_QUIET
};

static const struct option options[] = {
    WORLD_OPTIONS,
    {"dim", required_argument, NULL, OPT_DIM},
    {"density", required_argument, NULL, OPT_DENSITY},
    {"k", required_argument, NULL, OPT_K},
    {"algorithm", required_argument, NULL, OPT_ALGORITHM},
    {"select", required_argument, NULL, OPT_SELECT},
    {"codec", required_argument, NULL, OPT_CODEC},
    {"value-bits", required_argument, NULL, OPT_VALUE_BITS},
    {"partition", required_argument, NULL, OPT_PARTITION},
    {"type", required_argument, NULL, OPT_TYPE},
    {"memory", required_argument, NULL, OPT_MEMORY},
    {"support", required_argument, NULL, OPT_SUPPORT},
    {"block", required_argument, NULL, OPT_BLOCK},
    {"balance-trigger", required_argument, NULL, OPT_TRIGGER},
    {"lambda", required_argument, NULL, OPT_LAMBDA},
    {"no-feedback", no_argument, NULL, OPT_NO_FEEDBACK},
    {"update", required_argument, NULL, OPT_UPDATE},
    {"steps", required_argument, NULL, OPT_STEPS},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"seed", required_argument, NULL, OPT_SEED},
    {"no-baseline", no_argument, NULL, OPT_NO_BASELINE},
    {"json", required_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static int bad(const char *name, const char *value, const char *wanted) {
    return tool_usage("bench reducer", "--%s: '%s' is not %s", name, value, wanted);
}

static int one_of(const char *name, const char *value, const char *const *names, int *index) {
    for (*index = 0; names[*index]; ++*index)
        if (!strcmp(names[*index], value)) return EXIT_OK;
    return bad(name, value, "one that 'rill bench reducer --help' names");
}

enum { MOST_NAMES = 64 };

/* Every name of a list is auto, all, or an algorithm's. */
static int check_algorithms(const char *text) {
    const char *names[MOST_NAMES + 1] = {"auto", "all"}, *name;
    int n = 2, status = EXIT_OK;
    for (int i = 0; n < MOST_NAMES && (name = rill_algorithm_at(RILL_ALLREDUCE, i, NULL)); i++)
        names[n++] = name;
    for (int i = 0; n < MOST_NAMES && (name = rill_algorithm_at(RILL_REDUCER, i, NULL)); i++)
        names[n++] = name;
    text_list list;
    if (!list_split(text, ",", &list)) return EXIT_FAILED;
    for (int i = 0; i < list.n && status == EXIT_OK; i++) {
        int at = 0;
        while (names[at] && strcmp(names[at], list.item[i]) != 0)
            at++;
        if (!names[at]) status = tool_unknown("bench reducer", "algorithm", list.item[i], names);
    }
    list_free(&list);
    return status;
}

static bool positive(const char *text, double *value) {
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return !errno && end != text && !*end && *value > 0 && *value < 1e300;
}

static int set_option(void *config, int option, const char *name, const char *value) {
    reducer_config *c = config;
    static const char *const updates[] = {"dense", "stream", "both", NULL};
    int index = 0;
    bool ok = true;
    const char *wanted = "a count";
    if (world_option("bench reducer", option, value, &c->where, &index)) return index;
    switch (option) {
    case OPT_DIM: ok = parse_count(value, &c->dim) && c->dim; break;
    case OPT_DENSITY:
        wanted = "a fraction above 0, such as 0.01 or 1%";
        ok = parse_fraction(value, &c->density) && c->density > 0;
        break;
    case OPT_K: ok = parse_count(value, &c->k) && c->k; break;
    case OPT_ALGORITHM:
        free(c->algorithms);
        c->algorithms = strdup(value);
        return c->algorithms ? check_algorithms(value) : EXIT_FAILED;
    case OPT_SELECT: c->select = strcmp(value, "suited") ? value : NULL; break;
    case OPT_CODEC:
        wanted = TOOL_CODEC;
        ok = tool_is_codec(value);
        c->codec = value;
        break;
    case OPT_VALUE_BITS:
        wanted = PARSE_BITS;
        ok = parse_bits(value, &c->value_bits);
        break;
    case OPT_PARTITION:
        wanted = TOOL_PARTITION;
        ok = tool_is_partition(value);
        c->partition = value;
        break;
    case OPT_TYPE:
        if (one_of(name, value, bench_type_names, &index)) return EXIT_USAGE;
        c->type = (rill_type)index;
        break;
    case OPT_MEMORY:
        if (one_of(name, value, bench_memory_names, &index)) return EXIT_USAGE;
        c->memory = (rill_memory)index;
        break;
    case OPT_SUPPORT:
        if (one_of(name, value, reducer_support_names, &index)) return EXIT_USAGE;
        c->support = (reducer_support)index;
        break;
    case OPT_BLOCK: ok = parse_count(value, &c->block) && c->block; break;
    case OPT_TRIGGER:
        wanted = "a positive number";
        ok = positive(value, &c->trigger);
        break;
    case OPT_LAMBDA:
        wanted = "a positive number";
        ok = positive(value, &c->lambda);
        break;
    case OPT_NO_FEEDBACK: c->feedback = false; break;
    case OPT_UPDATE:
        if (one_of(name, value, updates, &index)) return EXIT_USAGE;
        c->dense_updates = index != 1;
        c->stream_updates = index != 0;
        break;
    case OPT_STEPS: ok = parse_int(value, 1, 1 << 24, &c->steps); break;
    case OPT_WARMUP: ok = parse_int(value, 0, 1 << 24, &c->warmup); break;
    case OPT_SEED: ok = parse_count(value, &c->seed); break;
    case OPT_NO_BASELINE: c->baseline = false; break;
    case OPT_JSON: c->json_path = value; break;
    case OPT_QUIET: c->quiet = true; break;
    }
    return ok ? EXIT_OK : bad(name, value, wanted);
}

static int read_options(int argc, char **argv, reducer_config *c, bool *help) {
    *c = (reducer_config){.dim = 1 << 20,
                          .density = 0.01,
                          .seed = 1,
                          .steps = 20,
                          .warmup = 5,
                          .stream_updates = true,
                          .dense_updates = true,
                          .baseline = true,
                          .feedback = true};
    return tool_options("bench reducer", argc, argv, options, set_option, c, help);
}

/* ---- report ------------------------------------------------------------------------------- */

typedef struct report {
    const tool_world *world;
    table rows;
    tool_records json;
    double mpi, traffic[2]; /* seconds: of the baseline; for a dense update, for a stream */
    int ranks, status;
} report;

static void add_row(report *p, const reducer_config *c, const reducer_result *r) {
    table_row *row = table_add(&p->rows);
    if (!row) return;
    cell_text(row->cell[0], r->requested);
    if (!r->ran) {
        snprintf(row->note, sizeof row->note, "%.150s", r->detail);
        return;
    }
    bool mpi = !strcmp(r->requested, "mpi"), stream = !strcmp(r->update, "stream");
    bool away = c->memory != RILL_HOST &&
                strcmp(r->stats.summed_in, bench_memory_names[c->memory]) == 0;
    char ran[64];
    snprintf(ran, sizeof ran, "%s%s", r->stats.algorithm, away ? ", sums there" : "");
    cell_text(row->cell[1], ran);
    cell_text(row->cell[2], r->update);
    cell_time(row->cell[3], r->median);
    if (p->mpi > 0) cell_ratio(row->cell[4], p->mpi / r->median);
    if (mpi) return;
    cell_time(row->cell[5], r->select);
    cell_time(row->cell[6], r->exchange);
    cell_time(row->cell[7], r->finish);
    if (p->traffic[stream] > 0) cell_ratio(row->cell[8], r->median / p->traffic[stream]);
    cell_count(row->cell[9], (uint64_t)(r->selected + 0.5));
    cell_bytes(row->cell[10], (double)r->sent);
    cell_bytes(row->cell[11], (double)r->received);
    cell_text(row->cell[12], r->correct ? "yes" : "NO");
}

static void write_json(report *p, const reducer_config *c, const reducer_result *r) {
    if (!tool_records_wanted(&p->json) || !r->ran) return;
    bool stream = !strcmp(r->update, "stream");
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:i, s:I, s:f, s:I, s:s, s:s, s:f, s:f, s:f}", "kind",
        "reducer", "requested", r->requested, "algorithm", r->stats.algorithm, "codec",
        r->stats.codec, "select", c->select ? c->select : "suited", "value_bits", c->value_bits,
        "type", rill_type_name(c->type), "ranks", p->ranks, "dim", (json_int_t)c->dim, "density",
        c->k ? (double)c->k / (double)c->dim : c->density, "k", (json_int_t)c->k, "support",
        reducer_support_names[c->support], "update", r->update, "median_s", r->median, "p25_s",
        r->p25, "p75_s", r->p75);
    json_t *more = json_pack(
        "{s:s, s:s, s:f, s:f, s:f, s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:b, s:s}",
        "memory", bench_memory_names[c->memory], "summed_in", r->stats.summed_in, "select_s",
        r->select, "exchange_s", r->exchange, "update_s", r->finish, "predicted_s",
        r->stats.predicted_s > 0 ? json_real(r->stats.predicted_s) : json_null(), "selected",
        r->selected, "nnz_out", (json_int_t)r->stats.nnz_out, "sent_bytes_max", (json_int_t)r->sent,
        "recv_bytes_max", (json_int_t)r->received, "messages_max", (json_int_t)r->messages,
        "rounds", (json_int_t)r->rounds, "collision_error", r->stats.collision_error, "traffic_s",
        p->traffic[stream], "speedup", p->mpi > 0 ? p->mpi / r->median : 0.0, "correct", r->correct,
        "commit", tool_commit());
    bool whole = o && more && !json_object_update(o, more);
    json_decref(more);
    if (!tool_records_put(&p->json, whole ? o : NULL, 9)) p->status = EXIT_FAILED;
    if (!whole) json_decref(o);
}

static void take(report *p, const reducer_config *c, reducer_result *r, bool may_fail) {
    if (!r->ran && !may_fail) p->status = EXIT_FAILED;
    if (r->ran && !r->correct) {
        tool_error("bench reducer: %s: something was lost: %s", r->requested, r->detail);
        p->status = EXIT_FAILED;
    }
    add_row(p, c, r);
    write_json(p, c, r);
    free(r->times);
}

static void run_algorithm(report *p, const reducer_config *c, const char *name, bool may_fail) {
    reducer_result r;
    for (int stream = 0; stream < 2; stream++) {
        if (!(stream ? c->stream_updates : c->dense_updates)) continue;
        reducer_measure(p->world, c, name, stream, &r);
        take(p, c, &r, may_fail);
        if (!r.ran) break;
    }
}

static void run_list(report *p, const reducer_config *c) {
    text_list list;
    const char *name;
    if (!list_split(c->algorithms ? c->algorithms : "all", ",", &list)) return;
    for (int i = 0; i < list.n; i++) {
        if (strcmp(list.item[i], "all") != 0) {
            run_algorithm(p, c, list.item[i], false);
            continue;
        }
        run_algorithm(p, c, "auto", true);
        for (int a = 0; (name = rill_algorithm_at(RILL_ALLREDUCE, a, NULL)); a++)
            run_algorithm(p, c, name, true);
        for (int a = 0; (name = rill_algorithm_at(RILL_REDUCER, a, NULL)); a++)
            run_algorithm(p, c, name, true);
    }
    list_free(&list);
}

/* On all ranks; else the first that has none says why. */
static bool has_memory(const tool_world *w, rill_memory memory) {
    rill_stream *one = NULL;
    bool here = rill_stream_create_in(memory, -1, RILL_F32, 1, &one) == RILL_OK;
    int without = world_int(w, here ? w->size : w->rank, WORLD_MIN);
    if (without == w->rank)
        tool_error("bench reducer: --memory %s: rank %d: %s", bench_memory_names[memory], w->rank,
                   rill_last_error());
    rill_stream_free(&one);
    return without == w->size;
}

static int run_all(const tool_world *w, const void *context) {
    const reducer_config *c = context;
    int opened = 1;
    bool to_stdout = c->json_path && !strcmp(c->json_path, "-");
    report p = {.world = w,
                .ranks = w->size,
                .rows = {.columns = 13,
                         .left = 3,
                         .head = {"requested", "ran", "update", "step", "vs mpi", "select",
                                  "exchange", "update", "vs memory", "selected", "sent", "received",
                                  "conserves"}}};
    launch_tune_malloc();
    p.json = (tool_records){.command = "bench reducer", .option = "json", .path = c->json_path};
    if (w->rank == 0) opened = tool_records_open(&p.json, false);
    world_bcast(w, &opened, sizeof opened, 0);
    if (!opened) return EXIT_USAGE;
    if (!has_memory(w, c->memory)) return EXIT_FAILED;
    if (c->baseline) {
        reducer_result r;
        if (c->memory == RILL_HOST) { /* what is measured is the host's memory */
            p.traffic[0] = reducer_traffic(w, c, false);
            p.traffic[1] = reducer_traffic(w, c, true);
        }
        if (w->mpi) {
            reducer_measure_mpi(w, c, &r);
            p.mpi = r.ran ? r.median : 0;
            take(&p, c, &r, false);
        }
    }
    run_list(&p, c);
    if (w->rank == 0 && !c->quiet && !to_stdout) table_print(&p.rows, stdout);
    table_free(&p.rows);
    if (!tool_records_close(&p.json, p.status == EXIT_OK)) p.status = EXIT_FAILED;
    world_bcast(w, &p.status, sizeof p.status, 0);
    return p.status;
}

int cmd_bench_reducer(int argc, char **argv) {
    reducer_config config;
    bool help = false;
    int status = read_options(argc, argv, &config, &help);
    if (status == EXIT_OK && help) {
        if (tool_speaks()) cmd_bench_reducer_help(stdout);
    } else if (status == EXIT_OK) {
        /* argv[0] is the word after "bench", which a new process needs as well. */
        status = world_run(&(world_job){.command = "bench reducer",
                                        .options = &config.where,
                                        .ranks = 2,
                                        .argc = argc + 1,
                                        .argv = argv - 1,
                                        .tune_malloc = true,
                                        .run = run_all,
                                        .context = &config});
    }
    free(config.algorithms);
    return status;
}
