/* rill bench kernels: sums and conversions of streams on one core, through public calls, beside
 * the bound that memory sets.
 *
 * The bound of a kernel that must read R bytes and write W is measured in the same run, in turns
 * with the kernel and from the same level of the memory: a copy of min(R, W) bytes (the faster of
 * plain and non-temporal stores; for a kernel that updates in place, an update in place), and a
 * read pass (a vectorised sum) over the rest of R or a fill of the rest of W, on huge pages where
 * there are. "cache" rows repeat on the same data; before each repetition of a "memory" row a
 * larger array is walked through, so that neither the data nor the bound's buffers are left in
 * any cache.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"
#include "launch.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { MOST_INPUTS = 64 };
#define DIM ((uint64_t)1 << 24)
#define EVICTION ((size_t)128 << 20)

typedef enum kernel_kind { KERNEL_ADD, KERNEL_SUM, KERNEL_SET, KERNEL_GET } kernel_kind;

typedef struct kernel {
    const char *name;
    kernel_kind kind;
    int inputs;
    uint64_t nnz;    /* of each sparse input; DIM: dense */
    bool into_dense; /* add: the stream added to is dense, and stays so */
    bool evict;
    double goal; /* ns per input element (LIMITS.md); 0: none */
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
    fputs(
        "usage: rill bench kernels [OPTION...]\n"
        "\n"
        "Times sums and conversions of streams of dimension 2^24 on one core, and the bound that\n"
        "memory sets: reading what must be read and writing what must be written.\n"
        "\n"
        "  --type T       f32 (default), f64, f16, bf16\n"
        "  --reps N       timed repetitions (15)\n"
        "  --json FILE    one JSON object per kernel and line; - is stdout, without table\n"
        "  --quiet        no table, no progress line\n"
        "  -h, --help     this text\n",
        out);
}

typedef struct bench_memory {
    char *evict, *from, *into;
    size_t capacity;
} bench_memory;

/* ---- passes over memory -------------------------------------------------------------------- */

static volatile uint64_t sink; /* keeps the sums from being optimised away */

#define READ_PASS                                                                                  \
    typedef uint64_t lanes __attribute__((vector_size(64), may_alias));                            \
    const lanes *v = (const lanes *)data;                                                          \
    size_t n = bytes / sizeof *v;                                                                  \
    lanes a = {0}, b = {0}, c = {0}, d = {0};                                                      \
    size_t i = 0;                                                                                  \
    for (; i < n / 4 * 4; i += 4) {                                                                \
        a += v[i];                                                                                 \
        b += v[i + 1];                                                                             \
        c += v[i + 2];                                                                             \
        d += v[i + 3];                                                                             \
    }                                                                                              \
    for (; i < n; i++)                                                                             \
        a += v[i];                                                                                 \
    a += b + c + d;                                                                                \
    sink += a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];

static void read_plain(const void *data, size_t bytes) { READ_PASS }
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void read_avx2(const void *data, size_t bytes) { READ_PASS }
__attribute__((target("avx512f"))) static void read_avx512(const void *data, size_t bytes) {
    READ_PASS
}
#endif

static void read_pass(const void *data, size_t bytes) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return read_avx512(data, bytes);
    if (__builtin_cpu_supports("avx2")) return read_avx2(data, bytes);
#endif
    read_plain(data, bytes);
}

typedef uint64_t words __attribute__((vector_size(64), may_alias));

static void copy_plain(char *into, const char *from, size_t bytes) {
    for (size_t i = 0; i + 64 <= bytes; i += 64)
        *(words *)(void *)(into + i) = *(const words *)(const void *)(from + i);
}

static void copy_stream(char *into, const char *from, size_t bytes) {
#if defined(__x86_64__)
    for (size_t i = 0; i + 16 <= bytes; i += 16)
        _mm_stream_si128((__m128i *)(void *)(into + i),
                         _mm_load_si128((const __m128i *)(const void *)(from + i)));
    _mm_sfence();
#else
    memcpy(into, from, bytes);
#endif
}

static void update(char *into, const char *from, size_t bytes) {
    for (size_t i = 0; i + 64 <= bytes; i += 64)
        *(words *)(void *)(into + i) += *(const words *)(const void *)(from + i);
}

enum { PLAIN, STREAM, IN_PLACE };

static double bound_pass(const bench_memory *m, size_t reads, size_t writes, int kind) {
    double start = MPI_Wtime();
    size_t both = reads < writes ? reads : writes;
    if (kind == IN_PLACE) {
        update(m->into, m->from, writes);
        both = reads < 2 * writes ? reads : 2 * writes;
    } else if (kind == STREAM) copy_stream(m->into, m->from, both);
    else copy_plain(m->into, m->from, both);
    if (reads > both) read_pass(m->from + (both & ~(size_t)63), (reads - both) & ~(size_t)63);
    if (writes > both) memset(m->into + both, 1, writes - both);
    return MPI_Wtime() - start;
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
    double start = MPI_Wtime();
    switch (k->kind) {
    case KERNEL_ADD: status = rill_stream_add(work, in[k->inputs - 1], RILL_SUM); break;
    case KERNEL_SUM: status = rill_stream_sum(work, k->inputs, list, RILL_SUM); break;
    case KERNEL_SET: status = rill_stream_set_dense(work, dense); break;
    case KERNEL_GET: status = rill_stream_get_dense(in[0], dense); break;
    }
    *seconds = MPI_Wtime() - start;
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
        for (int kind = PLAIN; kind <= STREAM; kind++) {
            if (k->evict) read_pass(memory->evict, EVICTION);
            bound[kind] = bound_pass(memory, m->reads, m->writes, k->into_dense ? IN_PLACE : kind);
        }
        if (k->evict) read_pass(memory->evict, EVICTION);
        status = call(k, work, in, dense, &seconds);
        if (r < 0) continue;
        times[r] = seconds;
        plain[r] = bound[PLAIN];
        stream[r] = bound[STREAM];
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

static bool write_record(FILE *out, const kernel *k, rill_type type, int reps, const measured *m) {
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:I, s:I, s:f, s:f, s:f, "
        "s:i, "
        "s:s, s:s}",
        "kernel", k->name, "from", k->evict ? "memory" : "cache", "type", bench_type_names[type],
        "inputs", k->inputs + (k->into_dense ? 1 : 0), "dim", (json_int_t)DIM, "elements",
        (json_int_t)m->elements, "nnz_out", (json_int_t)m->nnz_out, "median_s", m->seconds, "p25_s",
        m->p25, "p75_s", m->p75, "ns_per_element", 1e9 * m->seconds / (double)m->elements,
        "goal_ns", k->goal > 0 && type == RILL_F32 ? json_real(k->goal) : json_null(), "read_bytes",
        (json_int_t)m->reads, "written_bytes", (json_int_t)m->writes, "gb_per_s",
        1e-9 * (double)(m->reads + m->writes) / m->seconds, "bound_s", m->bound, "ratio_to_bound",
        m->seconds / m->bound, "reps", reps, "isa", rill_isa(), "commit", tool_commit());
    bool ok = o && !json_dumpf(o, out, JSON_COMPACT | JSON_REAL_PRECISION(10));
    json_decref(o);
    fputc('\n', out);
    return ok && fflush(out) == 0;
}

static bool memory_make(rill_type type, bench_memory *m) {
    /* Two dense inputs, or 64 sparse ones of 160k pairs. */
    m->capacity = 2 * DIM * rill_type_size(type) + ((size_t)128 << 20);
    size_t page = (size_t)2 << 20;
    m->evict = aligned_alloc(page, EVICTION);
    m->from = aligned_alloc(page, m->capacity);
    m->into = aligned_alloc(page, m->capacity);
    if (!m->evict || !m->from || !m->into) return false;
#ifdef MADV_HUGEPAGE
    madvise(m->from, m->capacity, MADV_HUGEPAGE);
    madvise(m->into, m->capacity, MADV_HUGEPAGE);
#endif
    memset(m->evict, 1, EVICTION);
    memset(m->from, 1, m->capacity);
    memset(m->into, 1, m->capacity);
    return true;
}

static int run_kernels(rill_type type, int reps, FILE *json, FILE *out, bool quiet) {
    bench_memory memory = {0};
    int status = EXIT_OK;
    bench_config progress = {.quiet = quiet};
    table t = {.columns = 10,
               .left = 2,
               .head = {"kernel", "from", "elements in", "nnz out", "median", "ns/element", "goal",
                        "GB/s", "memory bound", "ratio"}};
    if (!memory_make(type, &memory)) {
        tool_error("bench kernels: out of memory");
        status = EXIT_FAILED;
    }
    for (int i = 0; i < KERNELS && status == EXIT_OK; i++) {
        measured m = {0};
        bench_progress(&progress, "%s", kernels[i].name);
        rill_status s = measure(&kernels[i], type, reps, &memory, &m);
        if (s != RILL_OK) {
            tool_error("bench kernels: %s: %s: %s", kernels[i].name, rill_strerror(s),
                       rill_last_error());
            status = EXIT_FAILED;
            break;
        }
        add_row(&t, &kernels[i], type, &m);
        if (json && !write_record(json, &kernels[i], type, reps, &m)) {
            tool_error("bench kernels: --json: writing failed");
            status = EXIT_FAILED;
        }
    }
    bench_progress(&progress, NULL);
    if (out && status == EXIT_OK) {
        fprintf(out,
                "rill %s  %s  %s values, dimension 2^24, one core, median of %d repetitions\n\n",
                rill_version(), rill_isa(), bench_type_names[type], reps);
        table_print(&t, out);
    }
    table_free(&t);
    free(memory.evict);
    free(memory.from);
    free(memory.into);
    return status;
}

int cmd_bench_kernels(int argc, char **argv) {
    static const struct option options[] = {{"type", required_argument, NULL, 't'},
                                            {"reps", required_argument, NULL, 'r'},
                                            {"json", required_argument, NULL, 'j'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int type = RILL_F32, reps = 15;
    const char *path = NULL;
    bool quiet = false, found;
    tool_getopt_reset();
    for (int c; (c = tool_getopt("bench kernels", argc, argv, options)) != -1;)
        switch (c) {
        case 't':
            found = false;
            for (int i = 0; bench_type_names[i]; i++)
                if (!strcmp(bench_type_names[i], optarg)) {
                    type = i;
                    found = true;
                }
            if (!found)
                return tool_usage("bench kernels", "--type: unknown '%s' (f32, f64, f16, bf16)",
                                  optarg);
            break;
        case 'r':
            if (!parse_int(optarg, 1, 1 << 20, &reps))
                return tool_usage("bench kernels", "--reps: '%s' is not a number of 1 or more",
                                  optarg);
            break;
        case 'j': path = optarg; break;
        case 'q': quiet = true; break;
        case 'h':
            if (tool_speaks()) cmd_bench_kernels_help(stdout);
            return EXIT_OK;
        default: return EXIT_USAGE;
        }
    if (optind < argc) return tool_usage("bench kernels", "unexpected argument '%s'", argv[optind]);
    tool_mpi_begin(MPI_THREAD_SINGLE);
    if (!tool_speaks()) return EXIT_OK;
    launch_tune_malloc();
    bool to_stdout = path && !strcmp(path, "-");
    FILE *json = !path ? NULL : to_stdout ? stdout : fopen(path, "w");
    if (path && !json) return tool_usage("bench kernels", "--json: cannot write '%s'", path);
    int status = run_kernels((rill_type)type, reps, json, quiet || to_stdout ? NULL : stdout,
                             quiet || to_stdout);
    if (json && !to_stdout && fclose(json)) status = EXIT_FAILED;
    return status;
}
