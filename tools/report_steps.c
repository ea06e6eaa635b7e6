/* The sections of rill bench reducer and rill bench kernels.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report.h"
#include "report_plot.h"
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BARS = 40 };

static void number_cell(FILE *out, const json_t *o, const char *key, plot_unit unit) {
    char text[48];
    double value = report_number(o, key);
    unit_text(unit, value, text, sizeof text);
    html_cell(out, "n", isfinite(value) ? text : "");
}

static void count_cell(FILE *out, const json_t *o, const char *key) {
    char text[TABLE_CELL] = "";
    double value = report_number(o, key);
    if (value >= 0 && value < 1e18) cell_count(text, (uint64_t)value);
    html_cell(out, "n", text);
}

static void ratio_cell(FILE *out, double value) {
    char text[48] = "";
    if (value > 0 && isfinite(value))
        snprintf(text, sizeof text, "%.*f×", value < 99.5 ? 2 : 0, value);
    html_cell(out, "n", text);
}

static void correct_cell(FILE *out, const json_t *o) {
    const json_t *correct = json_object_get(o, "correct");
    html_cell(out, json_is_false(correct) ? "wrong" : "",
              json_is_false(correct)  ? "no"
              : json_is_true(correct) ? "yes"
                                      : "");
}

/* ---- steps of reducers ----------------------------------------------------------------------- */

static bool step_bars(const report_data *d, FILE *out) {
    static const char *const parts[] = {"select", "exchange", "update", "not told apart"};
    int n = (int)json_array_size(d->reducers);
    if (n > MOST_BARS) n = MOST_BARS;
    plot_bar *bar = calloc((size_t)n, sizeof *bar);
    char(*name)[REPORT_LABEL] = calloc((size_t)n, sizeof *name);
    bool good = bar && name;
    for (int i = 0; i < n && good; i++) {
        const json_t *o = json_array_get(d->reducers, (size_t)i);
        double median = report_number(o, "median_s"), speedup = report_number(o, "speedup");
        double told = 0;
        static const char *const keys[] = {"select_s", "exchange_s", "update_s"};
        for (int k = 0; k < 3; k++) {
            double value = report_number(o, keys[k]);
            if (value > 0) told += bar[i].part[k] = value;
        }
        /* The parts are means, the whole a median: they need not add up. */
        if (!(told > 0)) bar[i].part[3] = median;
        bool stream = !strcmp(report_text(o, "update"), "stream");
        snprintf(name[i], sizeof name[i], "%.40s%s", report_text(o, "requested"),
                 stream ? " (stream)" : "");
        bar[i].name = name[i];
        char time[24];
        unit_text(UNIT_SECONDS, median, time, sizeof time);
        if (speedup > 0) snprintf(bar[i].text, sizeof bar[i].text, "%s, %.1f×", time, speedup);
        else snprintf(bar[i].text, sizeof bar[i].text, "%s", time);
    }
    if (good) {
        fputs("<figure class=\"wide\"><figcaption><b>A training step</b> mean time of its parts; "
              "median "
              "of the whole and speedup over mpi beside the bar</figcaption>\n",
              out);
        good = plot_write_bars(bar, n, parts, 4, UNIT_SECONDS, "time of a step",
                               "Time of a training step", out);
        fputs("</figure>\n", out);
    }
    free(bar);
    free(name);
    return good;
}

static bool step_section(const report_data *d, FILE *out) {
    if (!json_array_size(d->reducers)) return true;
    fputs("<section id=\"steps\"><h2>Training steps of reducers</h2>\n", out);
    if (!step_bars(d, out)) return false;
    fputs(
        "<div class=\"scroll\"><table><thead><tr><th>requested</th><th>algorithm</th><th>codec</th>"
        "<th>update</th><th>select</th><th>support</th><th class=\"n\">ranks</th><th "
        "class=\"n\">N</th>"
        "<th class=\"n\">density</th><th class=\"n\">median</th><th class=\"n\">speedup</th>"
        "<th class=\"n\">select</th><th class=\"n\">exchange</th><th class=\"n\">update</th>"
        "<th class=\"n\">selected</th><th class=\"n\">sent</th><th class=\"n\">received</th>"
        "<th>correct</th></tr></thead><tbody>\n",
        out);
    size_t i;
    json_t *o;
    json_array_foreach(d->reducers, i, o) {
        char codec[64];
        double bits = report_number(o, "value_bits");
        snprintf(codec, sizeof codec, "%.30s", report_text(o, "codec"));
        if (bits > 0 && bits <= 64)
            snprintf(codec, sizeof codec, "%.30s %.0f bit", report_text(o, "codec"), bits);
        fputs("<tr>", out);
        html_cell(out, "", report_text(o, "requested"));
        html_cell(out, "", report_text(o, "algorithm"));
        html_cell(out, "", codec);
        html_cell(out, "", report_text(o, "update"));
        html_cell(out, "", report_text(o, "select"));
        html_cell(out, "", report_text(o, "support"));
        count_cell(out, o, "ranks");
        count_cell(out, o, "dim");
        number_cell(out, o, "density", UNIT_PERCENT);
        number_cell(out, o, "median_s", UNIT_SECONDS);
        ratio_cell(out, report_number(o, "speedup"));
        number_cell(out, o, "select_s", UNIT_SECONDS);
        number_cell(out, o, "exchange_s", UNIT_SECONDS);
        number_cell(out, o, "update_s", UNIT_SECONDS);
        count_cell(out, o, "selected");
        number_cell(out, o, "sent_bytes_max", UNIT_BYTES);
        number_cell(out, o, "recv_bytes_max", UNIT_BYTES);
        correct_cell(out, o);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div></section>\n", out);
    return true;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* "memory, heavy, 1 %": what the kernel worked on. */
static void kernel_input(const json_t *o, char *text, size_t size) {
    char share[48] = "";
    double value = report_number(o, "share"), bits = report_number(o, "value_bits");
    if (isnan(value)) value = report_number(o, "density");
    if (isfinite(value)) unit_text(UNIT_PERCENT, value, share, sizeof share);
    else if (bits > 0 && bits <= 64) snprintf(share, sizeof share, "%.0f bit", bits);
    const char *part[] = {report_text(o, "from"), report_text(o, "data"), report_text(o, "type"),
                          share};
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (!*part[i] || used >= size) continue;
        int n = snprintf(text + used, size - used, "%s%.30s", used ? ", " : "", part[i]);
        used += n > 0 ? (size_t)n : 0;
    }
}

static void goal_cell(FILE *out, const json_t *o) {
    const json_t *goals = json_object_get(o, "goals");
    size_t n = json_array_size(goals), met = 0;
    double limit = report_number(o, "goal_ns"), value = report_number(o, "ns_per_element");
    if (limit > 0 && isfinite(value)) {
        n++;
        met += value <= limit;
    }
    for (size_t i = 0; i < json_array_size(goals); i++)
        met += json_is_true(json_object_get(json_array_get(goals, i), "met"));
    char text[48] = "";
    if (n) snprintf(text, sizeof text, "%zu of %zu", met, n);
    html_cell(out, met < n ? "n slow" : "n", text);
}

static void kernel_row(const json_t *o, FILE *out) {
    char text[160];
    fputs("<tr>", out);
    html_cell(out, "", report_text(o, "group"));
    html_cell(out, "", report_text(o, "kernel"));
    kernel_input(o, text, sizeof text);
    html_cell(out, "", text);
    count_cell(out, o, "elements");
    bool coded = json_object_get(o, "encode_s") != NULL;
    number_cell(out, o, coded ? "encode_s" : "median_s", UNIT_SECONDS);
    number_cell(out, o, "decode_s", UNIT_SECONDS);
    number_cell(out, o, "ns_per_element", UNIT_PLAIN);
    number_cell(out, o, "gb_per_s", UNIT_PLAIN);
    ratio_cell(out, report_number(o, "ratio_to_bound"));
    number_cell(out, o, "excess_bits", UNIT_PLAIN);
    goal_cell(out, o);
    correct_cell(out, o);
    fputs("</tr>\n", out);
}

static void kernel_section(const report_data *d, FILE *out) {
    if (!json_array_size(d->kernels)) return;
    fputs(
        "<section id=\"kernels\"><h2>Kernels</h2>\n<p>On one core. The bound is what reading and "
        "writing the "
        "same bytes takes.</p>\n<div class=\"scroll "
        "tall\"><table><thead><tr><th>group</th><th>kernel</th><th>on</th>"
        "<th class=\"n\">elements</th><th class=\"n\">time, encode</th><th class=\"n\">decode</th>"
        "<th class=\"n\">ns / element</th><th class=\"n\">GB/s</th><th class=\"n\">of the "
        "bound</th>"
        "<th class=\"n\">bits over entropy</th><th class=\"n\">goals "
        "met</th><th>correct</th></tr></thead><tbody>\n",
        out);
    size_t i;
    json_t *o;
    json_array_foreach(d->kernels, i, o) kernel_row(o, out);
    fputs("</tbody></table></div></section>\n", out);
}

bool report_section_steps(const report_data *d, FILE *out) {
    if (!step_section(d, out)) return false;
    kernel_section(d, out);
    return true;
}
