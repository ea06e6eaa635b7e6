/* rill bench kernels, codecs. Indices: bits each beside the entropy of a random support, and G
 * indices per second each way, in cache: 64K indices of 4 or 8 bytes among as many as the density
 * says. Values: QSGD
 * of 2^24 f32 beside the traffic it needs, with cold caches: one read and one packed write to
 * quantize; the levels read, the values read and written to dequantize and add.
 *
 * Every first result is checked: indices come back as they were, values within one level, and
 * dequantize-add adds what dequantize gives.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- indices ------------------------------------------------------------------------------- */

enum { INDICES = 1 << 16, CALLS = 8 };
#define CACHED ((size_t)1 << 20)

/* excess: bits over the entropy; rate: G indices/s each way. 0: no goal. */
typedef struct index_goals {
    const char *codec;
    double excess, rate, rate_dense; /* rate_dense: at 10 % */
} index_goals;

static const double densities[] = {0.0001, 0.001, 0.01, 0.1};
enum { DENSITIES = sizeof densities / sizeof *densities };

/* Of the codec at a row of the library's table; most have none. */
static index_goals goals_of(int row) {
    static const index_goals known[] = {{"bitpack", 1.6, 4, 4},
                                        {"elias_fano", 0.6, 2, 1.5},
                                        {"rice", 0.13, 0.5, 0.5}};
    index_goals none = {.codec = rill_codec_at(row, NULL)};
    for (size_t i = 0; none.codec && i < sizeof known / sizeof *known; i++)
        if (strcmp(none.codec, known[i].codec) == 0) return known[i];
    return none;
}

typedef struct coded {
    uint64_t range;
    size_t size;
    double bits, entropy;
    double encode, encode_min, decode, decode_min; /* seconds of one call */
    const char *wrong;
} coded;

/* log2 of the number of supports, per index. */
static double entropy(double range, double n) {
    return (lgamma(range + 1) - lgamma(n + 1) - lgamma(range - n + 1)) / log(2) / n;
}

static bool draw_indices(uint64_t range, unsigned width, void *idx) {
    bench_config config = {.type = RILL_F32, .seed = 1};
    bench_world world = {.size = 1};
    bench_input input;
    char error[256];
    bool ok = bench_input_make(&config, &world, range, 0, INDICES, &input, error, sizeof error);
    for (int i = 0; ok && i < INDICES; i++) {
        if (width == 8) ((uint64_t *)idx)[i] = input.index[i];
        else ((uint32_t *)idx)[i] = (uint32_t)input.index[i];
    }
    bench_input_free(&input);
    return ok;
}

static rill_status measure_indices(const kernel_run *run, const char *codec, unsigned width,
                                   double density, coded *c) {
    size_t bound = 0, bytes = INDICES * width;
    c->range = (uint64_t)(INDICES / density + 0.5);
    rill_status status = rill_indices_bound(codec, width, INDICES, c->range, &bound);
    if (status != RILL_OK) return status;
    void *idx = bench_huge_alloc(bytes), *back = bench_huge_alloc(bytes);
    char *out = bench_huge_alloc(bound);
    double *times = calloc(2 * (size_t)run->reps, sizeof *times), *decodes = times + run->reps;
    if (!idx || !back || !out || !times || !draw_indices(c->range, width, idx))
        status = RILL_ERR_MEMORY;
    int calls = bound <= CACHED ? CALLS : 1;
    for (int r = -1; r < run->reps && status == RILL_OK; r++) {
        double start = world_clock(), middle, end;
        for (int i = 0; i < calls && status == RILL_OK; i++)
            status = rill_indices_encode(codec, width, idx, INDICES, 0, c->range, out, &c->size);
        middle = world_clock();
        for (int i = 0; i < calls && status == RILL_OK; i++)
            status = rill_indices_decode(codec, width, out, c->size, INDICES, 0, c->range, back);
        end = world_clock();
        if (r < 0) {
            if (memcmp(idx, back, bytes) != 0) c->wrong = "the indices come back different";
            else if (c->size > bound) c->wrong = "longer than its bound";
            memset(back, 0, bytes);
            continue;
        }
        times[r] = (middle - start) / calls;
        decodes[r] = (end - middle) / calls;
    }
    if (status == RILL_OK) {
        c->encode = bench_quantile(times, run->reps, 0.5);
        c->decode = bench_quantile(decodes, run->reps, 0.5);
        c->encode_min = times[0]; /* sorted by now */
        c->decode_min = decodes[0];
        c->bits = 8.0 * (double)c->size / INDICES;
        c->entropy = entropy((double)c->range, INDICES);
    }
    bench_huge_free(idx, bytes);
    bench_huge_free(back, bytes);
    bench_huge_free(out, bound);
    free(times);
    return status;
}

static bool report_indices(const kernel_run *run, const index_goals *codec, unsigned width,
                           double density, const coded *c, table *t) {
    double per_call = 1e-9 * INDICES, rate = density < 0.1 ? codec->rate : codec->rate_dense;
    kernel_goal goals[] = {
        {"bits over the entropy", c->bits - c->entropy, codec->excess, false},
        {"encode G indices/s", per_call / c->encode, rate, true},
        {"decode G indices/s", per_call / c->decode, rate, true},
    };
    const char *from = c->size <= CACHED ? "cache" : "memory";
    table_row *row = table_add(t);
    if (row) {
        cell_text(row->cell[0], codec->codec);
        cell_text(row->cell[1], from);
        snprintf(row->cell[2], TABLE_CELL, "%u", width);
        snprintf(row->cell[3], TABLE_CELL, "%g %%", 100 * density);
        snprintf(row->cell[4], TABLE_CELL, "%.2f", c->bits);
        snprintf(row->cell[5], TABLE_CELL, "%.2f", c->entropy);
        snprintf(row->cell[6], TABLE_CELL, "%.2f", goals[0].value);
        kernel_goal_cell(row->cell[7], goals[0]);
        for (int i = 1; i < 3; i++) {
            double least = i == 1 ? c->encode_min : c->decode_min;
            snprintf(row->cell[5 + 3 * i], TABLE_CELL, "%.2f", goals[i].value);
            snprintf(row->cell[6 + 3 * i], TABLE_CELL, "%.2f", per_call / least);
            kernel_goal_cell(row->cell[7 + 3 * i], goals[i]);
        }
        cell_text(row->cell[14], c->wrong ? "NO" : "yes");
    }
    if (!tool_records_wanted(run->json)) return true;
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:i, s:f, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
                  "s:f, s:f, s:o, s:b, "
                  "s:i, s:s, s:s}",
                  "group", "codecs", "kernel", codec->codec, "from", from, "index_bytes",
                  (int)width, "density", density, "elements", (int)INDICES, "range",
                  (json_int_t)c->range, "coded_bytes", (json_int_t)c->size, "bits_per_index",
                  c->bits, "entropy_bits", c->entropy, "excess_bits", goals[0].value, "encode_s",
                  c->encode, "encode_min_s", c->encode_min, "decode_s", c->decode, "decode_min_s",
                  c->decode_min, "encode_g_per_s", goals[1].value, "decode_g_per_s", goals[2].value,
                  "goals", kernel_goals_json(3, goals), "correct", !c->wrong, "reps", run->reps,
                  "isa", rill_isa(), "commit", tool_commit());
    return kernel_write(run->json, o);
}

static int run_indices(const kernel_run *run, const bench_config *progress) {
    table t = {.columns = 15,
               .left = 2,
               .head = {"index codec", "from", "bytes", "density", "bits", "entropy", "excess",
                        "goal", "encode G/s", "best", "goal", "decode G/s", "best", "goal",
                        "correct"}};
    int status = EXIT_OK;
    int codecs = 0;
    while (rill_codec_at(codecs, NULL))
        codecs++;
    for (int i = 0; i < 2 * codecs * DENSITIES; i++) {
        index_goals codec = goals_of(i / DENSITIES % codecs);
        unsigned width = i < codecs * DENSITIES ? 4 : 8;
        double density = densities[i % DENSITIES];
        coded c = {0};
        bench_progress(progress, "%s %g %%", codec.codec, 100 * density);
        rill_status s = measure_indices(run, codec.codec, width, density, &c);
        if (s != RILL_OK) {
            status = kernel_failed(codec.codec, s);
            continue;
        }
        if (c.wrong) {
            tool_error("bench kernels: %s at %g %%: %s", codec.codec, 100 * density, c.wrong);
            status = EXIT_FAILED;
        }
        if (!report_indices(run, &codec, width, density, &c, &t)) status = EXIT_FAILED;
    }
    bench_progress(progress, NULL);
    kernel_table(run, &t, "codecs of 65,536 indices; bits per index, and G indices per second");
    table_free(&t);
    return status;
}

/* ---- values -------------------------------------------------------------------------------- */

enum { BUCKET = 1024 };
#define VALUE_BYTES (KERNEL_DIM * sizeof(float))
static const double quantize_goal = 2.2, add_goal = 1.15;

typedef struct passes {
    double seconds, least, p25, p75, bound, bound_least; /* of one call */
} passes;

typedef struct quantized {
    size_t size;
    passes quantize, add;
    const char *wrong;
} quantized;

typedef struct value_arrays {
    float *in, *sum, *base;
    char *out;
    size_t bound; /* bytes of out */
} value_arrays;

/* Values within one level of the input; sum = base + the same values, but for rounding. Leaves
 * those values in base. */
static rill_status check_values(int bits, value_arrays a, size_t size, const char **wrong) {
    memcpy(a.base, a.in, VALUE_BYTES);
    memcpy(a.sum, a.base, VALUE_BYTES);
    rill_status status = rill_values_decode(RILL_F32, bits, a.out, size, KERNEL_DIM, 1, a.sum);
    if (status != RILL_OK) return status;
    status = rill_values_decode(RILL_F32, bits, a.out, size, KERNEL_DIM, 0, a.base);
    if (status != RILL_OK) return status;
    for (uint64_t first = 0; first < KERNEL_DIM; first += BUCKET) {
        double most = 0, level;
        for (uint64_t i = first; i < first + BUCKET; i++)
            most = fmax(most, fabs((double)a.in[i]));
        level = most / ((1 << (bits - 1)) - 1);
        for (uint64_t i = first; i < first + BUCKET; i++) {
            double in = a.in[i], value = a.base[i];
            if (!(fabs(value - in) <= level * (1 + 1e-5)))
                *wrong = "a value is off by over a level";
            if (!(fabs(a.sum[i] - (in + value)) <= 1e-6 * most)) *wrong = "a wrong sum";
        }
    }
    return RILL_OK;
}

static void summarise(double *times, double *plain, double *stream, int reps, passes *p) {
    p->seconds = bench_quantile(times, reps, 0.5);
    p->p25 = bench_quantile(times, reps, 0.25);
    p->p75 = bench_quantile(times, reps, 0.75);
    p->least = times[0]; /* sorted by now */
    p->bound = bench_quantile(plain, reps, 0.5);
    p->bound_least = plain[0];
    if (!stream) return;
    p->bound = fmin(p->bound, bench_quantile(stream, reps, 0.5));
    p->bound_least = fmin(p->bound_least, stream[0]);
}

static rill_status measure_values(const kernel_run *run, int bits, value_arrays a, quantized *q) {
    const bench_memory *m = run->memory;
    int reps = run->reps;
    double *times = calloc(5 * (size_t)reps, sizeof *times);
    if (!times) return RILL_ERR_MEMORY;
    double *plain = times + reps, *stream = plain + reps, *adds = stream + reps,
           *both = adds + reps;
    rill_status status = rill_values_encode(RILL_F32, bits, a.in, KERNEL_DIM, 1, 0, a.out,
                                            &q->size);
    if (status == RILL_OK) status = check_values(bits, a, q->size, &q->wrong);
    for (int r = 0; r < reps && status == RILL_OK; r++) {
        bench_evict(m);
        plain[r] = bench_bound_pass(m, VALUE_BYTES, q->size, BOUND_PLAIN);
        bench_evict(m);
        stream[r] = bench_bound_pass(m, VALUE_BYTES, q->size, BOUND_STREAM);
        bench_evict(m);
        double start = world_clock();
        status = rill_values_encode(RILL_F32, bits, a.in, KERNEL_DIM, 1, 0, a.out, &q->size);
        times[r] = world_clock() - start;
        if (status != RILL_OK) break;
        bench_evict(m);
        both[r] = bench_bound_pass(m, q->size + VALUE_BYTES, VALUE_BYTES, BOUND_IN_PLACE);
        bench_evict(m);
        start = world_clock();
        status = rill_values_decode(RILL_F32, bits, a.out, q->size, KERNEL_DIM, 1, a.sum);
        adds[r] = world_clock() - start;
    }
    if (status == RILL_OK) {
        summarise(times, plain, stream, reps, &q->quantize);
        summarise(adds, both, NULL, reps, &q->add);
    }
    free(times);
    return status;
}

static bool report_values(const kernel_run *run, const char *name, int bits, const quantized *q,
                          bool add, table *t) {
    const passes *p = add ? &q->add : &q->quantize;
    kernel_goal g = {"times the traffic", p->seconds / p->bound, add ? add_goal : quantize_goal,
                     false};
    size_t reads = VALUE_BYTES + (add ? q->size : 0), writes = add ? VALUE_BYTES : q->size;
    double gb = 1e-9 * (double)(reads + writes) / p->seconds;
    table_row *row = table_add(t);
    if (row) {
        cell_text(row->cell[0], name);
        cell_text(row->cell[1], "memory");
        snprintf(row->cell[2], TABLE_CELL, "%d", bits);
        cell_bytes(row->cell[3], (double)q->size);
        cell_time(row->cell[4], p->seconds);
        cell_time(row->cell[5], p->least);
        snprintf(row->cell[6], TABLE_CELL, "%.1f", gb);
        cell_time(row->cell[7], p->bound);
        cell_ratio(row->cell[8], g.value);
        kernel_goal_cell(row->cell[9], g);
        cell_ratio(row->cell[10], p->least / p->bound_least);
        cell_text(row->cell[11], q->wrong ? "NO" : "yes");
    }
    if (!tool_records_wanted(run->json)) return true;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, "
                          "s:f, s:f, s:f, s:f, s:o, s:b, "
                          "s:i, s:s, s:s}",
                          "group", "codecs", "kernel", name, "from", "memory", "type", "f32",
                          "value_bits", bits, "elements", (json_int_t)KERNEL_DIM, "coded_bytes",
                          (json_int_t)q->size, "median_s", p->seconds, "min_s", p->least, "p25_s",
                          p->p25, "p75_s", p->p75, "ns_per_element",
                          1e9 * p->seconds / (double)KERNEL_DIM, "read_bytes", (json_int_t)reads,
                          "written_bytes", (json_int_t)writes, "gb_per_s", gb, "bound_s", p->bound,
                          "ratio_to_bound", g.value, "ratio_of_minima", p->least / p->bound_least,
                          "goals", kernel_goals_json(1, &g), "correct", !q->wrong, "reps",
                          run->reps, "isa", rill_isa(), "commit", tool_commit());
    return kernel_write(run->json, o);
}

static bool value_arrays_make(value_arrays *a) {
    if (rill_values_bound(RILL_F32, 8, KERNEL_DIM, &a->bound) != RILL_OK) return false;
    a->in = bench_huge_alloc(VALUE_BYTES);
    a->sum = bench_huge_alloc(VALUE_BYTES);
    a->base = bench_huge_alloc(VALUE_BYTES);
    a->out = bench_huge_alloc(a->bound);
    if (!a->in || !a->sum || !a->base || !a->out) return false;
    uint64_t state = 1;
    for (uint64_t i = 0; i < KERNEL_DIM; i++)
        a->in[i] = (float)kernel_draw_normal(&state);
    return true;
}

static int run_values(const kernel_run *run, const bench_config *progress) {
    table t = {.columns = 12,
               .left = 2,
               .head = {"value codec", "from", "bits", "coded", "median", "min", "GB/s",
                        "memory bound", "ratio", "goal", "by minima", "correct"}};
    value_arrays a = {0};
    int status = EXIT_OK;
    if (!value_arrays_make(&a)) status = kernel_failed("qsgd", RILL_ERR_MEMORY);
    for (int bits = 8; bits >= 2 && status == EXIT_OK; bits /= 2) {
        quantized q = {0};
        bench_progress(progress, "qsgd %d", bits);
        rill_status s = measure_values(run, bits, a, &q);
        if (s != RILL_OK) {
            status = kernel_failed("qsgd", s);
            break;
        }
        if (q.wrong) {
            tool_error("bench kernels: qsgd of %d bits: %s", bits, q.wrong);
            status = EXIT_FAILED;
        }
        if (!report_values(run, "qsgd quantize", bits, &q, false, &t) ||
            !report_values(run, "qsgd dequantize-add", bits, &q, true, &t))
            status = EXIT_FAILED;
    }
    bench_progress(progress, NULL);
    kernel_table(run, &t, "QSGD of 2^24 f32; ratio to the traffic it needs");
    table_free(&t);
    bench_huge_free(a.in, VALUE_BYTES);
    bench_huge_free(a.sum, VALUE_BYTES);
    bench_huge_free(a.base, VALUE_BYTES);
    bench_huge_free(a.out, a.bound);
    return status;
}

int kernel_codecs(const kernel_run *run) {
    bench_config progress = {.quiet = run->quiet};
    int indices = run_indices(run, &progress), values = run_values(run, &progress);
    return indices == EXIT_OK ? values : indices;
}
