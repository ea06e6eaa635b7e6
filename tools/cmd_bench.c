/* rill bench: times collectives against MPI's dense ones, checking every result.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"
#include "launch.h"
#include "tool_mpi.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void cmd_bench_help(FILE *out) {
    fputs(
        "usage: rill bench [OPTION...]\n"
        "       rill bench kernels [OPTION...]\n"
        "       rill bench reducer [OPTION...]\n"
        "       rill bench overlap [OPTION...]\n"
        "\n"
        "Times sparse collectives against MPI's own on dense vectors (the row 'mpi', on which\n"
        "the speedups are based) and checks every result against a dense oracle. It starts its\n"
        "ranks itself (2), unless a launcher has. 'mpi' runs where MPI has started them.\n"
        "\n"
        "On which ranks:\n"
        "  --ranks P              ranks to start (2)\n"
        "  --link L               what carries rill's messages: mpi (ranks by mpirun), ucx\n"
        "                         (processes that rill starts), local (threads of one process);\n"
        "                         default: mpi where rill was built with it, else ucx\n"
        "  --hostfile FILE        hosts to start them on, HOST slots=N a line: by ssh, or mpirun\n"
        "\n"
        "What runs (lists are separated by commas):\n"
        "  --collective C         allreduce (default), reduce, reduce_scatter, allgather, bcast\n"
        "  --algorithm LIST       names from 'rill info', auto, mpi, or all (default)\n"
        "  --codec LIST           names from 'rill info', auto, or all\n"
        "  --value-bits LIST      bits per value in messages: 0 (as they are), 16, 8, 4, 2\n"
        "  --partition LIST       uniform, balanced\n"
        "  --expected-nnz K       hint: expected non-zeros of the result\n"
        "  --block B              entries come in whole blocks of B (embedding rows)\n"
        "  --nonblocking          the non-blocking form, and wait\n"
        "  --persistent           the persistent form: start and wait are timed\n"
        "\n"
        "On what:\n"
        "  --dim LIST             dimensions: 16777216, 2^24, 16M (of 1024), 1e6 (2^20)\n"
        "  --density LIST         non-zeros of a rank per dimension: 0.01, 1% (1%)\n"
        "  --nnz LIST             or their number\n"
        "  --op OP                sum (default), min, max, prod\n"
        "  --type T               f32 (default), f64, f16, bf16\n"
        "  --overlap O            supports of the ranks: uniform (random, default), none, full\n"
        "                         (the same), zipf (skewed to low indices), clustered (in a\n"
        "                         sixteenth of the indices)\n"
        "  --form F               of the input stream: auto (default), sparse, dense, block\n"
        "  --seed N               of supports and values (1)\n"
        "\n"
        "How:\n"
        "  --reps N               timed repetitions (20)\n"
        "  --warmup N             repetitions before (3)\n"
        "  --order O              interleaved: one repetition of each case in turn (default);\n"
        "                         blocks: case after case, caches warm\n"
        "  --no-baseline          without 'mpi', unless it is named\n"
        "  --no-malloc-tuning     leave malloc alone; the baseline then pays page faults\n"
        "  --json FILE            one JSON object per case and line; - is stdout, without table\n"
        "  --dump PREFIX          write each rank's input: PREFIX-<dim>-<nnz>-<rank>.idx (uint64)\n"
        "                         and .val (of the type)\n"
        "  --quiet                no table, no progress line\n"
        "  -h, --help             this text\n"
        "\n"
        "Environment: RILL_MPIRUN, a launcher and its options instead of the one found; RILL_SSH,\n"
        "the same for ssh.\n"
        "Exit status: 0, 1 if a case failed or was incorrect, 2 for wrong usage.\n"
        "\n"
        "Example: rill bench --ranks 4 --dim 2^24 --density 0.1%,1% --json out.jsonl\n",
        out);
}

/* The value of a line "key : value" in a file of /proc; empty if there is none. */
static void proc_value(const char *path, const char *key, char *value, size_t size) {
    value[0] = '\0';
    FILE *file = fopen(path, "r");
    if (!file) return;
    char line[256];
    while (!value[0] && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(value, size, "%s", colon);
    }
    fclose(file);
}

static uint64_t available_memory(void) {
    char text[64];
    proc_value("/proc/meminfo", "MemAvailable", text, sizeof text);
    uint64_t kib = strtoull(text, NULL, 10);
    return kib ? kib << 10 : UINT64_MAX / 2;
}

/* What does not fit shall fail in malloc, where it is one case's error, and not meet the kernel's
 * killer. Sanitizers map terabytes in advance: no limit for those. */
static void limit_memory(uint64_t bytes) {
#if defined(RLIMIT_DATA) && !defined(RILL_TOOL_SMPI)
    char text[64];
    proc_value("/proc/self/status", "VmData", text, sizeof text);
    uint64_t used = strtoull(text, NULL, 10) << 10;
    struct rlimit limit;
    if (!used || used >> 40 || getrlimit(RLIMIT_DATA, &limit)) return;
    if (limit.rlim_cur > used + bytes) limit.rlim_cur = used + bytes;
    setrlimit(RLIMIT_DATA, &limit);
#else
    (void)bytes;
#endif
}

/* Hosts, and the most ranks that one has. */
static bool count_hosts(bench_world *world) {
    char name[256] = "";
    if (world->all->mpi) tool_mpi_host(name, sizeof name);
    else gethostname(name, sizeof name - 1);
    char(*names)[sizeof name] = calloc((size_t)world->size, sizeof name);
    if (!names) return false;
    world_gather(world->all, name, sizeof name, names);
    int first = 1, here = 0;
    for (int r = 0; r < world->size; r++) {
        if (strcmp(names[r], name) != 0) continue;
        here++;
        if (r < world->rank) first = 0;
    }
    free(names);
    world->hosts = world_int(world->all, first, WORLD_SUM);
    world->ranks_per_host = world_int(world->all, here, WORLD_MAX);
    return true;
}

static bool world_make(const bench_config *config, const tool_world *all, bench_world *world) {
    world->all = all;
    world->rank = all->rank;
    world->size = all->size;
    if (!count_hosts(world)) return false;
    uint64_t memory = available_memory();
    world_u64(all, &memory, 1, WORLD_MIN);
    world->memory = memory;
    int processes = all->link == LINK_LOCAL ? 1 : world->ranks_per_host;
    bool limits = all->link != LINK_LOCAL || all->rank == 0;
    if (world->memory < UINT64_MAX / 2 && limits)
        limit_memory(world->memory / 10 * 9 / (uint64_t)processes);
    world->malloc_tuned = config->tune_malloc && launch_tune_malloc();
    proc_value("/proc/cpuinfo", "model name", world->cpu, sizeof world->cpu);
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(world->date, sizeof world->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return true;
}

/* Reports failures, and returns the group's exit status. */
static int judge(const bench_case *cases, int n) {
    int status = EXIT_OK;
    for (int i = 0; i < n; i++) {
        const bench_case *c = &cases[i];
        const char *gap = c->codec ? " " : "", *codec = c->codec ? c->codec : "";
        if (c->state == CASE_FAILED)
            tool_error("bench: %s%s%s: %s", c->requested, gap, codec, c->detail);
        else if (c->state == CASE_READY && !c->correct)
            tool_error("bench: %s%s%s: incorrect: %s", c->requested, gap, codec, c->detail);
        else continue;
        status = EXIT_FAILED;
    }
    return status;
}

static int run_group(const bench_config *config, const bench_world *world, uint64_t dim,
                     double density, uint64_t nnz, tool_records *json, FILE *table_out) {
    char error[256] = "", label[96];
    snprintf(label, sizeof label, "dim %llu, nnz %llu", (unsigned long long)dim,
             (unsigned long long)nnz);
    bench_progress(config, "%s: input", label);
    bench_input input;
    bool ok = bench_input_make(config, world, dim, density, nnz, &input, error, sizeof error);
    if (!bench_agree(world, ok, error, sizeof error)) {
        tool_error("bench: %s: %s", label, error);
        bench_input_free(&input);
        return EXIT_FAILED;
    }
    int n, status = EXIT_FAILED;
    bench_case *cases = bench_cases_make(config, world, &input, &n, error, sizeof error);
    if (!bench_agree(world, cases != NULL, error, sizeof error) || !cases) {
        tool_error("bench: %s: %s", label, error);
    } else if (bench_group_run(config, world, &input, cases, n, label)) {
        uint64_t most = input.nnz;
        world_u64(world->all, &most, 1, WORLD_MAX);
        if (table_out) {
            bench_report_group(config, &input, cases, n, most, table_out);
            fflush(table_out);
        }
        status = judge(cases, n);
        if (!bench_report_json(config, world, &input, cases, n, json)) status = EXIT_FAILED;
    }
    bench_cases_free(cases, n);
    bench_input_free(&input);
    return status;
}

const char *bench_why_no_mpi(void) {
    return tool_mpi_built()
               ? "MPI is there only where it has started the ranks: --link mpi, or mpirun"
               : "this rill was built without MPI";
}

/* The non-zeros of a group; checks what depends on the number of ranks. */
static bool group_nnz(const bench_config *config, const bench_world *world, uint64_t dim, int i,
                      double *density, uint64_t *nnz) {
    if (config->nnzs) {
        *nnz = config->nnz[i];
        *density = (double)*nnz / (double)dim;
    } else {
        *density = config->density[i];
        *nnz = (uint64_t)llround(*density * (double)dim);
        if (!*nnz && *density > 0) *nnz = 1;
        if (*nnz > dim) *nnz = dim;
    }
    if (config->overlap != OVERLAP_NONE || *nnz <= dim / (uint64_t)world->size) return true;
    /* A rank may round up: dim 10, 3 ranks, density 1/3. */
    if (*nnz == dim / (uint64_t)world->size + 1 && *density * world->size <= 1) {
        *nnz -= 1;
        return true;
    }
    tool_usage("bench",
               "--overlap: none: %d ranks with %llu non-zeros each have no disjoint supports in "
               "dimension %llu",
               world->size, (unsigned long long)*nnz, (unsigned long long)dim);
    return false;
}

static int run_all(const tool_world *all, const void *context) {
    const bench_config *config = context;
    bench_world world = {0};
    if (!world_make(config, all, &world)) return EXIT_FAILED;
    for (int a = 0; a < config->algorithms.n && !all->mpi; a++) {
        const bench_choice *choice = &config->algorithms.item[a];
        if (!strcmp(choice->name, "mpi") && !choice->from_all)
            return tool_usage("bench", "--algorithm: mpi: %s", bench_why_no_mpi());
    }
    double density;
    uint64_t nnz;
    int kinds = config->nnzs ? config->nnzs : config->densities;
    for (int d = 0; d < config->dims; d++)
        for (int i = 0; i < kinds; i++)
            if (!group_nnz(config, &world, config->dim[d], i, &density, &nnz)) return EXIT_USAGE;

    bool to_stdout = config->json_path && !strcmp(config->json_path, "-");
    tool_records json = {.command = "bench", .option = "json", .path = config->json_path};
    int opened = world.rank != ROOT || tool_records_open(&json, false);
    world_bcast(all, &opened, sizeof opened, ROOT);
    if (!opened) return EXIT_USAGE;
    FILE *table_out = world.rank == ROOT && !config->quiet && !to_stdout ? stdout : NULL;
    if (table_out) bench_report_head(config, &world, table_out);

    int status = EXIT_OK;
    for (int d = 0; d < config->dims; d++)
        for (int i = 0; i < kinds; i++) {
            group_nnz(config, &world, config->dim[d], i, &density, &nnz);
            int one = run_group(config, &world, config->dim[d], density, nnz, &json, table_out);
            if (one > status) status = one;
        }
    if (!tool_records_close(&json, status == EXIT_OK)) status = EXIT_FAILED;
    world_bcast(all, &status, sizeof status, ROOT);
    return status;
}

int cmd_bench(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "kernels")) return cmd_bench_kernels(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "reducer")) return cmd_bench_reducer(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "overlap")) return cmd_bench_overlap(argc - 1, argv + 1);
    bench_config config;
    bool help;
    int status = bench_options(argc, argv, &config, &help);
    if (status == EXIT_OK && help) {
        if (tool_speaks()) cmd_bench_help(stdout);
    } else if (status == EXIT_OK) {
        status = world_run(&(world_job){.command = "bench",
                                        .options = &config.where,
                                        .ranks = 2,
                                        .argc = argc,
                                        .argv = argv,
                                        .tune_malloc = config.tune_malloc,
                                        .run = run_all,
                                        .context = &config});
    }
    bench_config_free(&config);
    return status;
}
