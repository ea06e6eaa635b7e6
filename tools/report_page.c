/* The page: head, summary, sections, where the data comes from; written whole or not at all.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report.h"
#include "report_plot.h"
#include "tool.h"
#include "tool_output.h"

#include <errno.h>
#include <math.h>
#include <rill/rill.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 64 };

static void tile(FILE *out, const char *kind, const char *figure, const char *text) {
    fprintf(out, "<div class=\"tile %s\"><b>", kind);
    html_text(out, figure);
    fputs("</b><span>", out);
    html_text(out, text);
    fputs("</span></div>\n", out);
}

static void bench_tiles(const report_summary *s, FILE *out) {
    char figure[48], text[200];
    if (s->best) {
        snprintf(figure, sizeof figure, "%.*f×", s->best->speedup < 99.5, s->best->speedup);
        snprintf(text, sizeof text, "best speedup over mpi (%s)", s->best->label);
        tile(out, "good", figure, text);
    }
    if (s->auto_cells) {
        snprintf(figure, sizeof figure, "%.2f×", s->auto_mean);
        snprintf(text, sizeof text,
                 "auto over the best fixed choice, geometric mean of %d; worst %.2f×",
                 s->auto_cells, s->auto_worst);
        tile(out, s->auto_mean <= 1.05 ? "good" : "", figure, text);
    }
    if (s->predicted) {
        bool chosen = s->auto_predicted > 0;
        snprintf(figure, sizeof figure, "%.0f %%", 100 * (chosen ? s->auto_error : s->error));
        snprintf(text, sizeof text, "median error of predicted times%s",
                 chosen ? " where auto chose" : "");
        tile(out, "", figure, text);
    }
    if (s->cases) {
        snprintf(figure, sizeof figure, "%d", s->incorrect);
        snprintf(text, sizeof text, "incorrect of %d results", s->cases);
        tile(out, s->incorrect ? "bad" : "good", figure, text);
    }
}

static void train_tiles(const report_data *d, FILE *out) {
    char figure[48], text[256];
    int slowest = report_slowest_run(d), fastest = -1;
    if (slowest < 0) return;
    report_run s = report_run_at(d, slowest), f = s;
    for (int i = 0; i < d->runs.n; i++) {
        report_run r = report_run_at(d, i);
        if (!(r.seconds > 0)) continue;
        if (fastest < 0 || r.seconds / (r.end - r.first) < f.seconds / (f.end - f.first)) {
            fastest = i;
            f = r;
        }
    }
    if (fastest < 0 || fastest == slowest) return;
    double each = s.seconds / (s.end - s.first), least = f.seconds / (f.end - f.first);
    snprintf(figure, sizeof figure, "%.*f×", each < 99.5 * least, each / least);
    snprintf(text, sizeof text, "faster epochs: %s against %s", d->runs.name[fastest],
             d->runs.name[slowest]);
    tile(out, "good", figure, text);
    double bytes = s.sent / (s.end - s.first) / (f.sent / (f.end - f.first));
    if (bytes > 1 && isfinite(bytes)) {
        snprintf(figure, sizeof figure, "%.*f×", bytes < 99.5, bytes);
        snprintf(text, sizeof text, "fewer bytes sent an epoch by %s", d->runs.name[fastest]);
        tile(out, "good", figure, text);
    }
}

static bool write_summary(const report_data *d, const report_summary *s, FILE *out) {
    char(*line)[REPORT_LINE] = malloc(MOST_WORDS * sizeof *line);
    if (!line) return false;
    fputs("<div class=\"tiles\">\n", out);
    bench_tiles(s, out);
    train_tiles(d, out);
    fputs("</div>\n<ul class=\"words\">\n", out);
    int n = report_words(d, s, line, MOST_WORDS);
    for (int i = 0; i < n; i++) {
        fputs("<li>", out);
        html_text(out, line[i]);
        fputs("</li>\n", out);
    }
    fputs("</ul>\n", out);
    free(line);
    return true;
}

static void write_menu(const report_data *d, FILE *out) {
    fputs("<nav>", out);
    if (d->epochs) fputs("<a href=\"#training\">Training</a> ", out);
    if (d->benches)
        fputs("<a href=\"#density\">Density</a> <a href=\"#models\">Bytes and predictions</a> "
              "<a href=\"#speedups\">Speedups</a> ",
              out);
    if (json_array_size(d->reducers)) fputs("<a href=\"#steps\">Steps</a> ", out);
    if (json_array_size(d->kernels)) fputs("<a href=\"#kernels\">Kernels</a> ", out);
    fputs("<a href=\"#data\">Data</a></nav>\n", out);
}

static void write_origin(const report_data *d, FILE *out) {
    fputs("<section id=\"data\"><h2>Where the data comes from</h2>\n<div "
          "class=\"scroll\"><table><thead><tr>"
          "<th>name</th><th>file</th><th "
          "class=\"n\">records</th><th>taken</th><th>commit</th><th>MPI</th><th>CPU</th>"
          "</tr></thead><tbody>\n",
          out);
    for (int i = 0; i < d->sources; i++) {
        const report_source *s = &d->source[i];
        char text[160];
        fputs("<tr>", out);
        html_cell(out, "", s->name);
        html_cell(out, "", s->path);
        int used = s->bench + s->reducers + s->kernels + s->epochs;
        snprintf(text, sizeof text, "%d", used);
        if (s->unknown) snprintf(text, sizeof text, "%d (%d left out)", used, s->unknown);
        html_cell(out, "n", text);
        snprintf(text, sizeof text, "%.30s", s->first_date ? s->first_date : "");
        if (s->first_date && strcmp(s->first_date, s->last_date))
            snprintf(text, sizeof text, "%.30s to %.30s", s->first_date, s->last_date);
        html_cell(out, "", text);
        snprintf(text, sizeof text, "%.50s%s", s->commit ? s->commit : "",
                 s->commits_differ ? " and others" : "");
        html_cell(out, "", text);
        html_cell(out, "", s->mpi_library ? s->mpi_library : "");
        html_cell(out, "", s->cpu ? s->cpu : "");
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div></section>\n", out);
}

static bool write_page(const report_data *d, const report_summary *s, const char *title,
                       FILE *out) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>",
          out);
    html_text(out, title);
    fprintf(out, "</title>\n<style>\n%s</style></head>\n<body><main>\n<h1>", report_css);
    html_text(out, title);
    fputs("</h1>\n", out);
    write_menu(d, out);
    bool good = write_summary(d, s, out) && report_section_train(d, out) &&
                report_section_bench(d, s, out) && report_section_steps(d, out);
    write_origin(d, out);
    fprintf(
        out,
        "<footer>Written by <code>rill report</code>, rill %s, commit %s. Times are medians of the "
        "slowest rank unless said "
        "otherwise.</footer>\n</main>\n<script>\n%s</script>\n</body></html>\n",
        rill_version(), tool_commit(), report_js);
    return good;
}

/* A title that says what is in it. */
static const char *usual_title(const report_data *d) {
    if (d->epochs && !d->benches) return "rill: training runs";
    if (!d->epochs) return "rill: measured";
    return "rill: measured, and trained";
}

bool report_write(const report_data *d, const report_summary *s, const char *title,
                  const char *path) {
    rill__outfile out;
    int error = rill__outfile_open(path, &out);
    if (!error) {
        bool complete = write_page(d, s, title ? title : usual_title(d), out.stream);
        error = rill__outfile_close(&out, complete);
        if (!complete) error = ENOMEM;
    }
    if (error) tool_error("report: cannot write '%s': %s", path, strerror(error));
    return !error;
}
