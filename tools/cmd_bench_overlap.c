/* rill bench overlap: how much of an allreduce hides behind computation.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench_overlap.h"
#include "launch.h"
#include "tool_mpi.h"

#include <jansson.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

void cmd_bench_overlap_help(FILE *out) {
    fputs(
        "usage: rill bench overlap [OPTION...]\n"
        "\n"
        "Starts a non-blocking allreduce, computes for as long as the allreduce alone takes, and\n"
        "waits: overlap = 1 - (both - compute) / pure. The computation is arithmetic without\n"
        "memory traffic. Results are checked. It starts its ranks itself, by mpirun without\n"
        "binding: a progress thread needs a core of its own.\n"
        "\n"
        "  --ranks P              ranks to start (2)\n"
        "  --link L               mpi, ucx, local; and --hostfile FILE: see rill bench --help\n"
        "  --dim N                dimension: 16777216, 2^24, 16M, 1e6 (2^24)\n"
        "  --nnz K                non-zeros of a rank (2^20, or the dimension)\n"
        "  --density D            or their share: 0.01, 1%\n"
        "  --algorithm LIST       names from 'rill info', auto, or all (auto)\n"
        "  --progress LIST        who advances the request meanwhile: thread (the\n"
        "                         communicator's progress thread), poll (the computation stops\n"
        "                         for rill_progress now and then), none; default: all three\n"
        "  --poll-interval US     of poll, in microseconds (50)\n"
        "  --codec C              of indices: a name from 'rill info', or auto (auto)\n"
        "  --value-bits B         0 (as they are), 16, 8, 4, 2 (0)\n"
        "  --type T               f32 (default), f64, f16, bf16\n"
        "  --reps N               repetitions of each of the three times (20)\n"
        "  --warmup N             calls before (3)\n"
        "  --seed N               of supports and values (1)\n"
        "  --json FILE            one JSON object per case and line; - is stdout, without table\n"
        "  --quiet                no table\n"
        "  -h, --help             this text\n"
        "\n"
        "Example: rill bench overlap --ranks 2 --dim 2^24 --nnz 2^20 --algorithm auto,dense\n",
        out);
}

enum {
    OPT_DIM = 256,
    OPT_NNZ,
    OPT_DENSITY,
    OPT_ALGORITHM,
    OPT_PROGRESS,
    OPT_POLL,
    OPT_CODEC,
    OPT_VALUE_BITS,
    OPT_TYPE,
    OPT_REPS,
    OPT_WARMUP,
    OPT_SEED,
    OPT_JSON,
    OPT_QUIET
};

static const struct option options[] = {
    WORLD_OPTIONS,
    {"dim", required_argument, NULL, OPT_DIM},
    {"nnz", required_argument, NULL, OPT_NNZ},
    {"density", required_argument, NULL, OPT_DENSITY},
    {"algorithm", required_argument, NULL, OPT_ALGORITHM},
    {"progress", required_argument, NULL, OPT_PROGRESS},
    {"poll-interval", required_argument, NULL, OPT_POLL},
    {"codec", required_argument, NULL, OPT_CODEC},
    {"value-bits", required_argument, NULL, OPT_VALUE_BITS},
    {"type", required_argument, NULL, OPT_TYPE},
    {"reps", required_argument, NULL, OPT_REPS},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"seed", required_argument, NULL, OPT_SEED},
    {"json", required_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"help", no_argument, NULL, 'h'},
    {0},
};

/* ---- options ------------------------------------------------------------------------------ */

static int bad(const char *name, const char *value, const char *wanted) {
    return tool_usage("bench overlap", "--%s: '%s' is not %s", name, value, wanted);
}

static int index_of(const char *value, const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], value)) return i;
    return -1;
}

static int set_option(void *config, int option, const char *name, const char *value) {
    overlap_config *c = config;
    bool ok = true;
    int index;
    const char *wanted = "a count over 0";
    if (world_option("bench overlap", option, value, &c->bench.where, &index)) return index;
    switch (option) {
    case OPT_DIM: ok = parse_count(value, &c->dim) && c->dim; break;
    case OPT_NNZ: ok = parse_count(value, &c->nnz) && c->nnz; break;
    case OPT_DENSITY:
        wanted = "a fraction above 0, such as 0.01 or 1%";
        ok = parse_fraction(value, &c->density) && c->density > 0;
        break;
    case OPT_ALGORITHM: c->algorithms = value; break;
    case OPT_PROGRESS: c->progress = value; break;
    case OPT_POLL: ok = parse_int(value, 1, 1000000, &c->poll_us); break;
    case OPT_CODEC:
        wanted = TOOL_CODEC;
        ok = tool_is_codec(value);
        c->codec = value;
        break;
    case OPT_VALUE_BITS:
        wanted = PARSE_BITS;
        ok = parse_bits(value, &c->value_bits);
        break;
    case OPT_TYPE:
        wanted = "one of f32, f64, f16, bf16";
        index = index_of(value, bench_type_names);
        ok = index >= 0;
        if (ok) c->bench.type = (rill_type)index;
        break;
    case OPT_REPS: ok = parse_int(value, 1, 1 << 24, &c->bench.reps); break;
    case OPT_WARMUP:
        wanted = "a count";
        ok = parse_int(value, 0, 1 << 24, &c->bench.warmup);
        break;
    case OPT_SEED:
        wanted = "a number";
        ok = parse_count(value, &c->bench.seed);
        break;
    case OPT_JSON: c->bench.json_path = value; break;
    case OPT_QUIET: c->bench.quiet = true; break;
    }
    return ok ? EXIT_OK : bad(name, value, wanted);
}

/* Names are checked before ranks are started for them. */
static int check_lists(const overlap_config *c) {
    text_list list;
    int status = EXIT_OK;
    if (!list_split(c->progress, ",", &list)) return EXIT_FAILED;
    for (int i = 0; i < list.n && status == EXIT_OK; i++)
        if (index_of(list.item[i], overlap_progress_names) < 0)
            status = bad("progress", list.item[i], "one of thread, poll, none");
    list_free(&list);
    if (status != EXIT_OK || !list_split(c->algorithms, ",", &list)) return status;
    for (int i = 0; i < list.n && status == EXIT_OK; i++) {
        const char *known, *given = list.item[i];
        bool found = !strcmp(given, "auto") || !strcmp(given, "all");
        for (int a = 0; !found && (known = rill_algorithm_at(RILL_ALLREDUCE, a, NULL)); a++)
            found = !strcmp(given, known);
        if (!found) status = bad("algorithm", given, "an allreduce that 'rill info' names");
    }
    list_free(&list);
    return status;
}

static int finish(overlap_config *c) {
    if (c->density > 0 && c->nnz)
        return tool_usage("bench overlap", "--density and --nnz: only one of them can be given");
    if (c->density > 0) c->nnz = (uint64_t)llround(c->density * (double)c->dim);
    else if (!c->nnz) c->nnz = c->dim < (uint64_t)1 << 20 ? c->dim : (uint64_t)1 << 20;
    if (!c->nnz) c->nnz = 1;
    if (c->nnz > c->dim)
        return tool_usage("bench overlap", "--nnz: %llu is more than the dimension %llu",
                          (unsigned long long)c->nnz, (unsigned long long)c->dim);
    c->density = (double)c->nnz / (double)c->dim;
    return check_lists(c);
}

static int read_options(int argc, char **argv, overlap_config *c, bool *help) {
    *c = (overlap_config){.bench = {.reps = 20, .warmup = 3, .seed = 1},
                          .dim = (uint64_t)1 << 24,
                          .algorithms = "auto",
                          .progress = "thread,poll,none",
                          .poll_us = 50};
    int status = tool_options("bench overlap", argc, argv, options, set_option, c, help);
    return status == EXIT_OK ? finish(c) : status;
}

/* ---- report ------------------------------------------------------------------------------- */

typedef struct report {
    const overlap_config *config;
    bench_world world;
    bench_input input;
    int cpus; /* that a rank may use, the fewest of any */
    table rows;
    tool_records json;
    int status;
} report;

static void add_row(report *p, const overlap_result *r) {
    table_row *row = table_add(&p->rows);
    if (!row) return;
    cell_text(row->cell[0], r->c.requested);
    if (r->c.state != CASE_READY) {
        snprintf(row->note, sizeof row->note, "%.150s", r->c.detail);
        return;
    }
    cell_text(row->cell[1], r->c.stats.algorithm);
    cell_text(row->cell[2], overlap_progress_names[r->progress]);
    cell_time(row->cell[3], r->pure);
    cell_time(row->cell[4], r->compute);
    cell_time(row->cell[5], r->both);
    snprintf(row->cell[6], TABLE_CELL, "%.1f %%", r->percent);
    cell_text(row->cell[7], r->c.correct ? "yes" : "NO");
}

static void write_json(report *p, const overlap_result *r) {
    const overlap_config *c = p->config;
    if (!tool_records_wanted(&p->json) || r->c.state != CASE_READY) return;
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:i, s:I, s:f, s:I, s:I, s:s, s:i, s:i, s:i}",
                  "kind", "overlap", "requested", r->c.requested, "algorithm", r->c.stats.algorithm,
                  "codec", r->c.stats.codec, "value_bits", c->value_bits, "type",
                  rill_type_name(c->bench.type), "ranks", p->world.size, "dim", (json_int_t)c->dim,
                  "density", c->density, "nnz_in", (json_int_t)r->c.stats.nnz_in, "nnz_out",
                  (json_int_t)r->c.stats.nnz_out, "progress", overlap_progress_names[r->progress],
                  "poll_us", r->progress == PROGRESS_POLL ? c->poll_us : 0, "reps", c->bench.reps,
                  "cpus_per_rank", p->cpus);
    json_t *more = json_pack("{s:f, s:f, s:f, s:f, s:b, s:s, s:s, s:s}", "t_pure_s", r->pure,
                             "t_compute_s", r->compute, "t_both_s", r->both, "overlap", r->percent,
                             "correct", r->c.correct, "mpi_library", tool_mpi_library(), "isa",
                             rill_isa(), "commit", tool_commit());
    bool whole = o && more && !json_object_update(o, more);
    json_decref(more);
    if (!tool_records_put(&p->json, whole ? o : NULL, 9)) p->status = EXIT_FAILED;
    if (!whole) json_decref(o);
}

static void run_case(report *p, const char *algorithm, overlap_progress progress, bool may_fail) {
    overlap_result r;
    overlap_measure(p->config, &p->world, &p->input, algorithm, progress, &r);
    if (r.c.state != CASE_READY && !may_fail) {
        tool_error("bench overlap: %s, %s: %s", algorithm, overlap_progress_names[progress],
                   r.c.detail);
        p->status = EXIT_FAILED;
    }
    if (r.c.state == CASE_READY && !r.c.correct) {
        tool_error("bench overlap: %s: incorrect: %s", algorithm, r.c.detail);
        p->status = EXIT_FAILED;
    }
    add_row(p, &r);
    write_json(p, &r);
}

static void run_algorithm(report *p, const char *algorithm, bool may_fail) {
    text_list list;
    if (!list_split(p->config->progress, ",", &list)) return;
    for (int i = 0; i < list.n; i++)
        run_case(p, algorithm, (overlap_progress)index_of(list.item[i], overlap_progress_names),
                 may_fail);
    list_free(&list);
}

static void run_list(report *p) {
    text_list list;
    const char *name;
    if (!list_split(p->config->algorithms, ",", &list)) return;
    for (int i = 0; i < list.n; i++) {
        if (strcmp(list.item[i], "all") != 0) {
            run_algorithm(p, list.item[i], false);
            continue;
        }
        run_algorithm(p, "auto", false);
        for (int a = 0; (name = rill_algorithm_at(RILL_ALLREDUCE, a, NULL)); a++)
            run_algorithm(p, name, true);
    }
    list_free(&list);
}

static int count_cpus(const tool_world *all) {
    int mine = 1;
#ifdef CPU_COUNT
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) mine = CPU_COUNT(&set);
#endif
    return world_int(all, mine, WORLD_MIN);
}

static int run_all(const tool_world *all, const void *context) {
    const overlap_config *c = context;
    const bench_config *b = &c->bench;
    bool to_stdout = b->json_path && !strcmp(b->json_path, "-");
    int opened = 1;
    char error[256] = "";
    report p = {.config = c,
                .world = {.all = all,
                          .rank = all->rank,
                          .size = all->size,
                          .hosts = 1,
                          .ranks_per_host = all->size,
                          .memory = UINT64_MAX / 2},
                .rows = {.columns = 8,
                         .left = 3,
                         .head = {"requested", "ran", "progress", "pure", "compute", "both",
                                  "overlap", "ok"}}};
    p.world.malloc_tuned = launch_tune_malloc();
    p.cpus = count_cpus(all);
    p.json = (tool_records){.command = "bench overlap", .option = "json", .path = b->json_path};
    if (p.world.rank == ROOT) opened = tool_records_open(&p.json, false);
    world_bcast(all, &opened, sizeof opened, ROOT);
    if (!opened) return EXIT_USAGE;
    bool ok = bench_input_make(b, &p.world, c->dim, c->density, c->nnz, &p.input, error,
                               sizeof error);
    if (bench_agree(&p.world, ok, error, sizeof error)) {
        run_list(&p);
    } else {
        tool_error("bench overlap: %s", error);
        p.status = EXIT_FAILED;
    }
    if (p.world.rank == ROOT && !b->quiet && !to_stdout) {
        printf("%d ranks, %d processors for each; dim %llu, %llu non-zeros a rank\n\n",
               p.world.size, p.cpus, (unsigned long long)c->dim, (unsigned long long)c->nnz);
        table_print(&p.rows, stdout);
    }
    table_free(&p.rows);
    bench_input_free(&p.input);
    if (!tool_records_close(&p.json, p.status == EXIT_OK)) p.status = EXIT_FAILED;
    world_bcast(all, &p.status, sizeof p.status, ROOT);
    return p.status;
}

int cmd_bench_overlap(int argc, char **argv) {
    overlap_config config;
    bool help = false;
    int status = read_options(argc, argv, &config, &help);
    if (status == EXIT_OK && help) {
        if (tool_speaks()) cmd_bench_overlap_help(stdout);
    } else if (status == EXIT_OK) {
        /* A rank that is bound to one core has none for its progress thread. */
        status = world_run(&(world_job){.command = "bench overlap",
                                        .options = &config.bench.where,
                                        .ranks = 2,
                                        .argc = argc + 1,
                                        .argv = argv - 1,
                                        .tune_malloc = true,
                                        .unbound = true,
                                        .threads = TOOL_MULTIPLE,
                                        .run = run_all,
                                        .context = &config});
    }
    return status;
}
