/* The table on stdout and the JSON records, one object per line.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"
#include "tool_mpi.h"

#include <jansson.h>
#include <string.h>

void bench_report_head(const bench_config *config, const bench_world *world, FILE *out) {
    fprintf(out, "rill %s  %s  %s%s  %d rank%s on %d host%s  %s\n", rill_version(), rill_isa(),
            world->all->mpi ? tool_mpi_library() : world_link_names[world->all->link - 1],
            world->malloc_tuned ? " (malloc tuned)" : "", world->size, world->size == 1 ? "" : "s",
            world->hosts, world->hosts == 1 ? "" : "s", world->cpu);
    fprintf(out, "%s", rill_collective_name(config->collective));
    if (config->collective != RILL_ALLGATHER && config->collective != RILL_BCAST)
        fprintf(out, " %s", bench_operation_names[config->operation]);
    fprintf(out, " of %s, %s, overlap %s; %d repetitions, %s; time of the slowest rank\n",
            bench_type_names[config->type], bench_mode_names[config->mode],
            bench_overlap_names[config->overlap], config->reps,
            config->interleave ? "cases in turns" : "case after case");
}

/* The baseline's median, or a negative number. */
static double baseline(const bench_case *cases, int n) {
    for (int i = 0; i < n; i++)
        if (cases[i].is_mpi && cases[i].state == CASE_READY) return cases[i].median;
    return -1;
}

static double speedup(const bench_case *c, double base) {
    return base > 0 && c->median > 0 ? base / c->median : -1;
}

/* "auto: ring", with what else was asked for. */
static void label(const bench_case *c, char *cell) {
    bool chosen = !strcmp(c->requested, "auto") && c->state == CASE_READY;
    snprintf(cell, TABLE_CELL, "%s%s%s%s%s", c->requested, chosen ? ": " : "",
             chosen ? c->stats.algorithm : "", c->partition ? " " : "",
             c->partition ? c->partition : "");
}

static void codec(const bench_case *c, char *cell) {
    if (c->is_mpi) cell_text(cell, "-");
    else if (c->value_bits) snprintf(cell, TABLE_CELL, "%s %d bit", c->stats.codec, c->value_bits);
    else cell_text(cell, c->stats.codec);
}

void bench_report_group(const bench_config *config, const bench_input *input,
                        const bench_case *cases, int n, uint64_t nnz_in, FILE *out) {
    static const char *const forms[] = {"", "", "  dense input", "  block-sparse input"};
    (void)config;
    char dim[TABLE_CELL], nnz[TABLE_CELL];
    cell_count(dim, input->dim);
    cell_count(nnz, nnz_in);
    fprintf(out, "\ndim %s  density %.4g %%  nnz per rank %s%s\n\n", dim, 100 * input->density, nnz,
            forms[bench_form_of(input->stream)]);
    table t = {.columns = 11,
               .left = 2,
               .head = {"algorithm", "codec", "nnz out", "median", "p25", "p75", "predicted",
                        "sent", "messages", "speedup", "ok"}};
    double base = baseline(cases, n);
    for (int i = 0; i < n; i++) {
        const bench_case *c = &cases[i];
        table_row *row = table_add(&t);
        if (!row) break;
        label(c, row->cell[0]);
        if (c->state != CASE_READY) {
            snprintf(row->note, sizeof row->note, "%s%s%s: %.120s", c->codec ? c->codec : "",
                     c->codec ? "  " : "", c->state == CASE_UNSUPPORTED ? "n/a" : "FAILED",
                     c->detail);
            continue;
        }
        codec(c, row->cell[1]);
        if (c->out_form == FORM_DENSE) cell_text(row->cell[2], "dense");
        else cell_count(row->cell[2], c->nnz_out);
        cell_time(row->cell[3], c->median);
        cell_time(row->cell[4], c->p25);
        cell_time(row->cell[5], c->p75);
        cell_time(row->cell[6], c->predicted > 0 ? c->predicted : -1);
        cell_bytes(row->cell[7], c->is_mpi ? -1 : (double)c->sent);
        if (c->is_mpi) cell_text(row->cell[8], "-");
        else cell_count(row->cell[8], c->messages);
        cell_ratio(row->cell[9], speedup(c, base));
        cell_text(row->cell[10], c->correct ? "yes" : "NO");
    }
    table_print(&t, out);
    table_free(&t);
}

static json_t *real_or_null(double value) { return value >= 0 ? json_real(value) : json_null(); }

static json_t *text_or_null(const char *text) { return text ? json_string(text) : json_null(); }

static json_t *record(const bench_config *config, const bench_world *world,
                      const bench_input *input, const bench_case *c, double base) {
    json_t *times = json_array();
    for (int i = 0; i < config->reps; i++)
        json_array_append_new(times, json_real(c->times[i]));
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:i, s:s, s:s, s:i, s:i, s:I, s:f, s:I, s:I, s:f, s:f, s:f, s:o}",
        "requested", c->requested, "algorithm", c->stats.algorithm, "codec", c->stats.codec,
        "value_bits", c->value_bits, "op", bench_operation_names[config->operation], "type",
        bench_type_names[config->type], "ranks", world->size, "hosts", world->hosts, "dim",
        (json_int_t)input->dim, "density", input->density, "nnz_in", (json_int_t)c->nnz_in,
        "nnz_out", (json_int_t)c->nnz_out, "median_s", c->median, "p25_s", c->p25, "p75_s", c->p75,
        "predicted_s", real_or_null(c->predicted));
    json_t *more = json_pack("{s:I, s:I, s:I, s:I, s:o, s:b, s:s}", "sent_bytes_max",
                             (json_int_t)c->sent, "recv_bytes_max", (json_int_t)c->received,
                             "messages_max", (json_int_t)c->messages, "rounds",
                             (json_int_t)c->rounds, "speedup", real_or_null(speedup(c, base)),
                             "correct", c->correct, "commit", tool_commit());
    json_t *extra = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:s, s:s, s:s, s:b, s:s, s:s, s:s, s:s, s:I, s:i, "
        "s:I, "
        "s:I, s:o}",
        "collective", rill_collective_name(config->collective), "overlap",
        bench_overlap_names[config->overlap], "mode", bench_mode_names[config->mode], "form",
        bench_form_names[config->form], "order", config->interleave ? "interleaved" : "blocks",
        "requested_codec", text_or_null(c->codec), "partition",
        text_or_null(c->partition || c->is_mpi ? c->partition : c->stats.partition), "in_form",
        bench_form_names[bench_form_of(input->stream)], "out_form", bench_form_names[c->out_form],
        "traffic", c->is_mpi ? "model" : "counted", "malloc_tuned", world->malloc_tuned,
        "mpi_library", tool_mpi_library(), "isa", rill_isa(), "cpu", world->cpu, "date",
        world->date, "expected_nnz", (json_int_t)config->expected_nnz, "warmup", config->warmup,
        "seed", (json_int_t)config->seed, "block", (json_int_t)config->block, "times_s", times);
    if (!o || !more || !extra) {
        json_decref(o);
        json_decref(more);
        json_decref(extra);
        return NULL;
    }
    json_object_update(o, more);
    json_object_update(o, extra);
    if (!c->correct) json_object_set_new(o, "detail", json_string(c->detail));
    json_object_set_new(o, "link", json_string(world_link_names[world->all->link - 1]));
    json_decref(more);
    json_decref(extra);
    return o;
}

bool bench_report_json(const bench_config *config, const bench_world *world,
                       const bench_input *input, const bench_case *cases, int n,
                       tool_records *out) {
    double base = baseline(cases, n);
    bool good = true;
    for (int i = 0; tool_records_wanted(out) && good && i < n; i++)
        if (cases[i].state == CASE_READY)
            good = tool_records_put(out, record(config, world, input, &cases[i], base), 10);
    return good;
}
