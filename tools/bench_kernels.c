/* rill bench kernels: kernels on one core, through public calls, beside the bound that memory sets.
 * Here are the options, and the sums and conversions of streams; bench_kernels_select.c and
 * bench_kernels_codec.c are the other groups.
 *
 * The bound is measured in the same run, in turns with the kernel and from the same level of the
 * memory, with the faster of plain and non-temporal stores (bench_memory.h). "cache" rows repeat on
 * the same data; before each repetition of a "memory" row a larger array is walked through, so that
 * neither the data nor the bound's buffers are left in any cache.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench_kernels.h"
#include "bench_device.h"
#include "launch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 64 };
#define DIM KERNEL_DIM

typedef enum kernel_kind { KERNEL_ADD, KERNEL_SUM, KERNEL_SET, KERNEL_GET } kernel_kind;

typedef struct kernel {
    const char *name;
    kernel_kind kind;
    int inputs;
    uint64_t nnz;    /* of each sparse input; DIM: dense */
    bool into_dense; /* add: the stream added to is dense, and stays so */
    bool evict;
    double goal; /* ns per input element; 0: none */
} kernel;

static const kernel kernels[] = {
    {"add 2 x 20k", KERNEL_ADD, 2, 20000, false, false, 1.2},
    {"add 2 x 160k", KERNEL_ADD, 2, 160000, false, true, 1.8},
    {"add 2 x 1M", KERNEL_ADD, 2, 1000000, false, true, 1.8},
    {"sum 2 x 20k", KERNEL_SUM, 2, 20000, false, false, 1.2},
    {"sum 2 x 160k", KERNEL_SUM, 2, 160000, false, true, 1.8},
    {"sum 2 x 1M", KERNEL_SUM, 2, 1000000, false, true, 1.8},
    {"sum 8 x 160k", KERNEL_SUM, 8, 160000, false, true, 3},
    {"sum 8 x 1M", KERNEL_SUM, 8, 1000000, false, true, 1.5},
    {"sum 64 x 160k", KERNEL_SUM, 64, 160000, false, true, 1.5},
    {"add dense + 160k", KERNEL_ADD, 1, 160000, true, true, 0},
    {"add dense + dense", KERNEL_ADD, 1, DIM, true, true, 0},
    {"set_dense 160k", KERNEL_SET, 1, 160000, false, true, 0},
    {"get_dense 160k", KERNEL_GET, 1, 160000, false, true, 0},
};
#define KERNELS ((int)(sizeof kernels / sizeof *kernels))

void cmd_bench_kernels_help(FILE *out) {
    fputs("usage: rill bench kernels [OPTION...]\n"
          "\n"
          "Times kernels on one core beside the bound that memory sets (reading what must be read "
          "and\n"
          "writing what must be written) and the goals, and checks their results.\n"
          "\n"
          "  --group G      sums (of streams of dimension 2^24, and conversions), select (of 2^24\n"
          "                 values), codecs (of indices and values), all (default)\n"
          "  --type T       f32 (default), f64, f16, bf16; codecs and fused selection: f32 only\n"
          "  --memory M     host (default); cuda: selections on the current device instead, beside "
          "a\n"
          "                 copy there, and checked against the host's\n"
          "  --dim N        with --memory cuda: values (2^24)\n"
          "  --reps N       timed repetitions (15)\n"
          "  --json FILE    one JSON object per kernel and line; - is stdout, without table\n"
          "  --quiet        no table, no progress line\n"
          "  -h, --help     this text\n",
          out);
}

/* ---- one kernel ---------------------------------------------------------------------------- */

typedef struct measured {
    double seconds, p25, p75, bound; /* of one call */
    uint64_t elements, nnz_out;
    size_t reads, writes;
} measured;

/* Bytes of a stream's entries: dense values, or pairs. */
static size_t stream_bytes(const rill_stream *s) {
    size_t size = rill_type_size(rill_stream_type(s));
    return rill_stream_nnz(s) * (rill_stream_is_dense(s) ? size : size + sizeof(uint32_t));
}

static rill_status make_input(rill_type type, uint64_t nnz, int which, rill_stream **out) {
    bench_config config = {.type = type, .seed = 1};
    bench_world world = {.rank = which, .size = MOST_INPUTS};
    bench_input input;
    char error[256];
    if (!bench_input_make(&config, &world, DIM, 0, nnz, &input, error, sizeof error)) {
        bench_input_free(&input);
        return RILL_ERR_MEMORY;
    }
    *out = input.stream;
    input.stream = NULL;
    bench_input_free(&input);
    return RILL_OK;
}

/* Random accesses to a dense vector move whole cache lines: the distinct ones of nnz entries. */
static size_t touched_bytes(rill_type type, uint64_t nnz) {
    double per_line = 64.0 / (double)rill_type_size(type), lines = (double)DIM / per_line;
    return (size_t)(64 * lines * (1 - pow(1 - (double)nnz / (double)DIM, per_line)));
}

static rill_status call(const kernel *k, rill_stream *work, rill_stream *const *in, void *dense,
                        double *seconds) {
    rill_status status = RILL_OK;
    const rill_stream *list[MOST_INPUTS];
    for (int i = 0; i < k->inputs; i++)
        list[i] = in[i];
    /* add changes its first operand: start from a copy, outside of the time. */
    if (k->kind == KERNEL_ADD && !k->into_dense) status = rill_stream_copy(work, in[0]);
    if (status != RILL_OK) return status;
    double start = world_clock();
    switch (k->kind) {
    case KERNEL_ADD: status = rill_stream_add(work, in[k->inputs - 1], RILL_SUM); break;
    case KERNEL_SUM: status = rill_stream_sum(work, k->inputs, list, RILL_SUM); break;
    case KERNEL_SET: status = rill_stream_set_dense(work, dense); break;
    case KERNEL_GET: status = rill_stream_get_dense(in[0], dense); break;
    }
    *seconds = world_clock() - start;
    return status;
}

/* What must be read and written, now that the result is known. */
static void traffic(const kernel *k, rill_type type, const rill_stream *work,
                    rill_stream *const *in, measured *m) {
    size_t dense = DIM * rill_type_size(type), inputs = 0;
    m->elements = 0;
    for (int i = 0; i < k->inputs; i++) {
        inputs += stream_bytes(in[i]);
        m->elements += rill_stream_nnz(in[i]);
    }
    m->reads = inputs;
    m->writes = stream_bytes(work);
    m->nnz_out = rill_stream_nnz(work);
    if (k->into_dense && k->nnz == DIM) {
        m->reads += dense;
        m->elements += DIM;
    } else if (k->into_dense) {
        m->writes = touched_bytes(type, k->nnz);
        m->reads += m->writes;
    } else if (k->kind == KERNEL_SET) {
        m->reads = dense;
        m->elements = DIM;
    } else if (k->kind == KERNEL_GET) {
        m->writes = dense;
        m->elements = DIM;
        m->nnz_out = DIM;
    }
}

static rill_status measure(const kernel *k, rill_type type, int reps, const bench_memory *memory,
                           measured *m) {
    rill_stream *in[MOST_INPUTS] = {0}, *work = NULL;
    void *dense = NULL;
    double *times = calloc(3 * (size_t)reps, sizeof *times), seconds, bound[2];
    double *plain = times + reps, *stream = plain + reps;
    rill_status status = times ? rill_stream_create(type, DIM, &work) : RILL_ERR_MEMORY;
    for (int i = 0; i < k->inputs && status == RILL_OK; i++)
        status = make_input(type, k->nnz, i, &in[i]);
    if (status == RILL_OK && k->into_dense) {
        status = rill_stream_copy(work, in[0]);
        if (status == RILL_OK) status = rill_stream_to_dense(work);
        if (status == RILL_OK && k->nnz == DIM) status = rill_stream_to_dense(in[0]);
    }
    if (status == RILL_OK && (k->kind == KERNEL_SET || k->kind == KERNEL_GET)) {
        dense = malloc(DIM * rill_type_size(type));
        status = dense ? rill_stream_get_dense(in[0], dense) : RILL_ERR_MEMORY;
    }
    /* One call to warm up and learn the sizes; then call and bound in turns. */
    if (status == RILL_OK) status = call(k, work, in, dense, &seconds);
    if (status == RILL_OK) traffic(k, type, work, in, m);
    if (status == RILL_OK && (m->reads > memory->capacity || m->writes > memory->capacity))
        status = RILL_ERR_MEMORY;
    for (int r = -1; r < reps && status == RILL_OK; r++) {
        for (int kind = BOUND_PLAIN; kind <= BOUND_STREAM; kind++) {
            if (k->evict) bench_evict(memory);
            bound[kind] = bench_bound_pass(memory, m->reads, m->writes,
                                           k->into_dense ? BOUND_IN_PLACE : (bench_bound)kind);
        }
        if (k->evict) bench_evict(memory);
        status = call(k, work, in, dense, &seconds);
        if (r < 0) continue;
        times[r] = seconds;
        plain[r] = bound[BOUND_PLAIN];
        stream[r] = bound[BOUND_STREAM];
    }
    if (status == RILL_OK) {
        m->seconds = bench_quantile(times, reps, 0.5);
        m->p25 = bench_quantile(times, reps, 0.25);
        m->p75 = bench_quantile(times, reps, 0.75);
        m->bound = fmin(bench_quantile(plain, reps, 0.5), bench_quantile(stream, reps, 0.5));
    }
    for (int i = 0; i < k->inputs; i++)
        rill_stream_free(&in[i]);
    rill_stream_free(&work);
    free(dense);
    free(times);
    return status;
}

/* ---- report -------------------------------------------------------------------------------- */

static void add_row(table *t, const kernel *k, rill_type type, const measured *m) {
    table_row *row = table_add(t);
    if (!row) return;
    double ns = 1e9 * m->seconds / (double)m->elements;
    cell_text(row->cell[0], k->name);
    cell_text(row->cell[1], k->evict ? "memory" : "cache");
    cell_count(row->cell[2], m->elements);
    if (m->nnz_out == DIM) cell_text(row->cell[3], "dense");
    else cell_count(row->cell[3], m->nnz_out);
    cell_time(row->cell[4], m->seconds);
    snprintf(row->cell[5], TABLE_CELL, "%.2f", ns);
    if (k->goal > 0 && type == RILL_F32)
        snprintf(row->cell[6], TABLE_CELL, "%.1f %s", k->goal, ns <= k->goal ? "met" : "NOT met");
    else cell_text(row->cell[6], "-");
    snprintf(row->cell[7], TABLE_CELL, "%.1f", 1e-9 * (double)(m->reads + m->writes) / m->seconds);
    cell_time(row->cell[8], m->bound);
    cell_ratio(row->cell[9], m->seconds / m->bound);
}

static bool write_record(tool_records *out, const kernel *k, rill_type type, int reps,
                         const measured *m) {
    if (!tool_records_wanted(out)) return true;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:I, "
                          "s:I, s:f, s:f, s:f, "
                          "s:i, "
                          "s:s, s:s}",
                          "group", "sums", "kernel", k->name, "from", k->evict ? "memory" : "cache",
                          "type", bench_type_names[type], "inputs",
                          k->inputs + (k->into_dense ? 1 : 0), "dim", (json_int_t)DIM, "elements",
                          (json_int_t)m->elements, "nnz_out", (json_int_t)m->nnz_out, "median_s",
                          m->seconds, "p25_s", m->p25, "p75_s", m->p75, "ns_per_element",
                          1e9 * m->seconds / (double)m->elements, "goal_ns",
                          k->goal > 0 && type == RILL_F32 ? json_real(k->goal) : json_null(),
                          "read_bytes", (json_int_t)m->reads, "written_bytes",
                          (json_int_t)m->writes, "gb_per_s",
                          1e-9 * (double)(m->reads + m->writes) / m->seconds, "bound_s", m->bound,
                          "ratio_to_bound", m->seconds / m->bound, "reps", reps, "isa", rill_isa(),
                          "commit", tool_commit());
    return kernel_write(out, o);
}

static int run_sums(const kernel_run *run) {
    int status = EXIT_OK;
    bench_config progress = {.quiet = run->quiet};
    table t = {.columns = 10,
               .left = 2,
               .head = {"kernel", "from", "elements in", "nnz out", "median", "ns/element", "goal",
                        "GB/s", "memory bound", "ratio"}};
    for (int i = 0; i < KERNELS && status == EXIT_OK; i++) {
        measured m = {0};
        bench_progress(&progress, "%s", kernels[i].name);
        rill_status s = measure(&kernels[i], run->type, run->reps, run->memory, &m);
        if (s != RILL_OK) {
            status = kernel_failed(kernels[i].name, s);
            break;
        }
        add_row(&t, &kernels[i], run->type, &m);
        if (!write_record(run->json, &kernels[i], run->type, run->reps, &m)) status = EXIT_FAILED;
    }
    bench_progress(&progress, NULL);
    if (status == EXIT_OK) kernel_table(run, &t, "sums and conversions of streams");
    table_free(&t);
    return status;
}

/* ---- all groups ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(const kernel_run *);
} groups[] = {{"sums", run_sums}, {"select", kernel_select}, {"codecs", kernel_codecs}};
enum { GROUPS = sizeof groups / sizeof *groups };

double kernel_draw(uint64_t *state) { /* splitmix64 */
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return ((double)(x >> 12) + 0.5) * 0x1p-52;
}

double kernel_draw_normal(uint64_t *state) {
    double radius = sqrt(-2 * log(kernel_draw(state)));
    return radius * cos(2 * acos(-1) * kernel_draw(state));
}

bool kernel_write(tool_records *out, json_t *record) { return tool_records_put(out, record, 10); }

int kernel_failed(const char *name, rill_status status) {
    tool_error("bench kernels: %s: %s: %s", name, rill_strerror(status), rill_last_error());
    return EXIT_FAILED;
}

void kernel_table(const kernel_run *run, const table *t, const char *title) {
    if (!run->out) return;
    fprintf(run->out, "%s\n\n", title);
    table_print(t, run->out);
    fputc('\n', run->out);
}

bool kernel_goal_met(kernel_goal g) { return g.at_least ? g.value >= g.limit : g.value <= g.limit; }

void kernel_goal_cell(char *cell, kernel_goal g) {
    if (g.limit > 0)
        snprintf(cell, TABLE_CELL, "%s %g %s", g.at_least ? ">=" : "<=", g.limit,
                 kernel_goal_met(g) ? "met" : "NOT met");
    else cell_text(cell, "-");
}

json_t *kernel_goals_json(int n, const kernel_goal *goals) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        if (goals[i].limit > 0)
            json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:b, s:b}", "what",
                                                  goals[i].what, "value", goals[i].value, "limit",
                                                  goals[i].limit, "at_least", goals[i].at_least,
                                                  "met", kernel_goal_met(goals[i])));
    return list;
}

static int run_groups(kernel_run *run, int group) {
    bench_memory memory = {0};
    int status = EXIT_OK;
    /* Two dense inputs, or 64 sparse ones of 160k pairs. */
    size_t capacity = 2 * DIM * rill_type_size(run->type) + ((size_t)128 << 20);
    const char *wrong = tool_settings_error();
    if (wrong) {
        tool_error("bench kernels: %s", wrong);
        return EXIT_FAILED;
    }
    if (!bench_memory_make(capacity, &memory)) {
        tool_error("bench kernels: out of memory");
        status = EXIT_FAILED;
    }
    run->memory = &memory;
    if (run->out && status == EXIT_OK)
        fprintf(run->out, "rill %s  %s  %s values, one core, median of %d repetitions\n\n",
                rill_version(), rill_isa(), bench_type_names[run->type], run->reps);
    /* All groups run, even if one fails. */
    for (int i = 0; i < GROUPS && memory.into; i++)
        if ((group == GROUPS || group == i) && groups[i].run(run) != EXIT_OK) status = EXIT_FAILED;
    bench_memory_free(&memory);
    return status;
}

/* ---- options ------------------------------------------------------------------------------- */

typedef struct given {
    int type, reps, group, memory;
    uint64_t dim;
    const char *path;
    bool quiet, help;
} given;

static int index_of(const char *const *names, const char *name) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

static int set_option(given *g, int option, const char *value) {
    static const char command[] = "bench kernels";
    switch (option) {
    case 'g':
        for (g->group = 0; g->group < GROUPS && strcmp(groups[g->group].name, value) != 0;)
            g->group++;
        if (g->group == GROUPS && strcmp(value, "all") != 0)
            return tool_usage(command, "--group: unknown '%s' (sums, select, codecs, all)", value);
        break;
    case 't':
        if ((g->type = index_of(bench_type_names, value)) < 0)
            return tool_usage(command, "--type: unknown '%s' (f32, f64, f16, bf16)", value);
        break;
    case 'm':
        if ((g->memory = index_of(bench_memory_names, value)) < 0)
            return tool_usage(command, "--memory: unknown '%s' (host, cuda)", value);
        break;
    case 'd':
        if (!parse_count(value, &g->dim) || !g->dim || g->dim > UINT64_C(1) << 32)
            return tool_usage(command, "--dim: '%s' is not a count from 1 to 2^32", value);
        break;
    case 'r':
        if (!parse_int(value, 1, 1 << 20, &g->reps))
            return tool_usage(command, "--reps: '%s' is not a number of 1 or more", value);
        break;
    case 'j': g->path = value; break;
    case 'q': g->quiet = true; break;
    case 'h': g->help = true; break;
    default: return EXIT_USAGE;
    }
    return EXIT_OK;
}

static int read_options(int argc, char **argv, given *g) {
    static const struct option options[] = {{"group", required_argument, NULL, 'g'},
                                            {"type", required_argument, NULL, 't'},
                                            {"memory", required_argument, NULL, 'm'},
                                            {"dim", required_argument, NULL, 'd'},
                                            {"reps", required_argument, NULL, 'r'},
                                            {"json", required_argument, NULL, 'j'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    bool grouped = false;
    tool_getopt_reset();
    for (int c; !g->help && (c = tool_getopt("bench kernels", argc, argv, options)) != -1;) {
        int status = set_option(g, c, optarg);
        grouped = grouped || c == 'g';
        if (status != EXIT_OK) return status;
    }
    if (g->help) return EXIT_OK;
    if (optind < argc) return tool_usage("bench kernels", "unexpected argument '%s'", argv[optind]);
    if (g->memory == RILL_HOST && g->dim)
        return tool_usage("bench kernels", "--dim: only with --memory cuda");
    if (g->memory != RILL_HOST && grouped)
        return tool_usage("bench kernels", "--group: not with --memory cuda");
    return EXIT_OK;
}

int cmd_bench_kernels(int argc, char **argv) {
    given g = {.type = RILL_F32, .reps = 15, .group = GROUPS, .memory = RILL_HOST};
    int status = read_options(argc, argv, &g);
    if (status != EXIT_OK) return status;
    if (g.help && tool_speaks()) cmd_bench_kernels_help(stdout);
    if (g.help || !tool_speaks()) return EXIT_OK;
    launch_tune_malloc();
    bool to_stdout = g.path && !strcmp(g.path, "-"), quiet = g.quiet || to_stdout;
    tool_records json = {.command = "bench kernels", .option = "json", .path = g.path};
    if (!tool_records_open(&json, false)) return EXIT_USAGE;
    kernel_run run = {.type = (rill_type)g.type,
                      .reps = g.reps,
                      .json = &json,
                      .out = quiet ? NULL : stdout,
                      .quiet = quiet,
                      .where = (rill_memory)g.memory,
                      .dim = g.dim ? g.dim : KERNEL_DIM};
    status = run.where == RILL_HOST ? run_groups(&run, g.group) : kernel_device(&run);
    if (!tool_records_close(&json, status == EXIT_OK)) status = EXIT_FAILED;
    return status;
}
