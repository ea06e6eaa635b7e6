/* The section of rill train: loss and accuracy against time and against bytes, where the time went.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report.h"
#include "report_plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a curve shows. */
typedef enum measure { LOSS, ACCURACY } measure;

static void describe(const report_data *d, const report_epoch *e, double seconds, double sent,
                     plot_point *q) {
    if (!q) return;
    char time[48], bytes[48], loss[48], accuracy[48];
    unit_text(UNIT_SECONDS, seconds, time, sizeof time);
    unit_text(UNIT_BYTES, sent, bytes, sizeof bytes);
    unit_text(UNIT_PLAIN, e->loss, loss, sizeof loss);
    unit_text(UNIT_PERCENT, e->accuracy, accuracy, sizeof accuracy);
    snprintf(q->tip, sizeof q->tip, "%s, epoch %.0f: loss %s, accuracy %s; %s, %s sent so far",
             d->runs.name[e->run], e->epoch, loss, accuracy, time, bytes);
}

/* Runs that differ by more than a factor of 30 are told apart on a logarithmic axis only. */
static bool needs_log(const report_data *d, bool bytes) {
    double least = INFINITY, most = 0;
    for (int i = 0; i < d->runs.n; i++) {
        report_run r = report_run_at(d, i);
        double total = bytes ? r.sent : r.seconds;
        if (!(total > 0)) continue;
        least = fmin(least, total);
        most = fmax(most, total);
    }
    return most > 30 * least;
}

static bool curve(const report_data *d, measure what, bool bytes, FILE *out) {
    plot p = {.family = &plot_runs,
              .lines = true,
              .x = {.label = bytes ? "sent by all ranks so far" : "time in training so far",
                    .unit = bytes ? UNIT_BYTES : UNIT_SECONDS,
                    .log = needs_log(d, bytes),
                    .from_zero = true},
              .y = {.label = what == LOSS ? "training loss" : "validation accuracy",
                    .unit = what == LOSS ? UNIT_PLAIN : UNIT_PERCENT}};
    double seconds = 0, sent = 0;
    for (int i = 0; i < d->epochs; i++) {
        const report_epoch *e = &d->epoch[i];
        if (!i || e->run != e[-1].run) seconds = sent = 0;
        seconds += e->seconds;
        sent += e->sent;
        describe(d, e, seconds, sent,
                 plot_add(&p, e->run, d->runs.name[e->run], bytes ? sent : seconds,
                          what == LOSS ? e->loss : e->accuracy));
    }
    bool good = !p.failed;
    if (p.points) {
        char title[96];
        snprintf(title, sizeof title, "%s against %s", what == LOSS ? "Loss" : "Accuracy",
                 bytes ? "bytes sent" : "time");
        fprintf(out, "<figure><figcaption><b>%s</b> a point is an epoch%s</figcaption>\n", title,
                p.x.log ? "; logarithmic" : "");
        good = plot_write(&p, title, out);
        fputs("</figure>\n", out);
    }
    plot_free(&p);
    return good;
}

static bool time_figure(const report_data *d, FILE *out) {
    static const char *const parts[] = {"computing", "communicating"};
    plot_bar *bar = calloc((size_t)d->runs.n, sizeof *bar);
    if (!bar) return false;
    bool good = true;
    int n = 0;
    for (int i = 0; i < d->runs.n; i++) {
        report_run r = report_run_at(d, i);
        if (!(r.comm_seconds >= 0 && r.seconds > 0)) continue;
        double epochs = r.end - r.first;
        char time[48];
        unit_text(UNIT_SECONDS, r.seconds / epochs, time, sizeof time);
        bar[n] = (plot_bar){.name = d->runs.name[i],
                            .part = {fmax(r.seconds - r.comm_seconds, 0) / epochs,
                                     r.comm_seconds / epochs}};
        snprintf(bar[n].text, sizeof bar[n].text, "%.20s, %.0f %%", time,
                 100 * r.comm_seconds / r.seconds);
        n++;
    }
    if (n) {
        fputs("<figure><figcaption><b>Where an epoch's time goes</b> mean over the epochs, and the "
              "share "
              "of communication</figcaption>\n",
              out);
        good = plot_write_bars(bar, n, parts, 2, UNIT_SECONDS, "time of an epoch",
                               "Time of an epoch in computing and communicating", out);
        fputs("</figure>\n", out);
    }
    free(bar);
    return good;
}

static void run_row(const report_data *d, int run, int slowest, FILE *out) {
    report_run r = report_run_at(d, run);
    const json_t *o = r.last->json;
    double epochs = r.end - r.first;
    char text[64];
    fputs("<tr>", out);
    html_cell(out, "", d->runs.name[run]);
    html_cell(out, "", report_text(o, "file"));
    snprintf(text, sizeof text, "%.20s, %.20s", report_text(o, "loss_name"),
             report_text(o, "solver"));
    html_cell(out, "", text);
    snprintf(text, sizeof text, "%.30s", report_text(o, "reducer"));
    html_cell(out, "", text);
    html_cell(out, "", report_text(o, "algorithm"));
    unit_text(UNIT_COUNT, report_number(o, "ranks"), text, sizeof text);
    html_cell(out, "n", text);
    snprintf(text, sizeof text, "%.0f", epochs);
    html_cell(out, "n", text);
    unit_text(UNIT_SECONDS, r.seconds / epochs, text, sizeof text);
    html_cell(out, "n", text);
    unit_text(UNIT_SECONDS, r.comm_seconds / epochs, text, sizeof text);
    html_cell(out, "n", text);
    unit_text(UNIT_BYTES, r.sent / epochs, text, sizeof text);
    html_cell(out, "n", text);
    unit_text(UNIT_PLAIN, r.last->loss, text, sizeof text);
    html_cell(out, "n", text);
    unit_text(UNIT_PERCENT, r.last->accuracy, text, sizeof text);
    html_cell(out, "n", text);
    unit_text(UNIT_PLAIN, r.last->auc, text, sizeof text);
    html_cell(out, "n", text);
    if (slowest >= 0) {
        report_run s = report_run_at(d, slowest);
        snprintf(text, sizeof text, "%.2f×", s.seconds / (s.end - s.first) / (r.seconds / epochs));
        html_cell(out, "n", r.seconds > 0 ? text : "–");
        snprintf(text, sizeof text, "%.2f×",
                 s.comm_seconds / (s.end - s.first) / (r.comm_seconds / epochs));
        html_cell(out, "n", r.comm_seconds > 0 && s.comm_seconds > 0 ? text : "–");
    }
    fputs("</tr>\n", out);
}

static void table_of_runs(const report_data *d, FILE *out) {
    int slowest = report_slowest_run(d);
    fputs("<div class=\"scroll\"><table><thead><tr><th>run</th><th>data</th><th>loss, solver</th>"
          "<th>reducer</th><th>algorithm</th><th class=\"n\">ranks</th><th class=\"n\">epochs</th>"
          "<th class=\"n\">an epoch</th><th class=\"n\">in communication</th><th class=\"n\">sent "
          "an epoch</th>"
          "<th class=\"n\">last loss</th><th class=\"n\">accuracy</th><th class=\"n\">AUC</th>",
          out);
    if (slowest >= 0) {
        fputs("<th class=\"n\">epoch, against ", out);
        html_text(out, d->runs.name[slowest]);
        fputs("</th><th class=\"n\">communication</th>", out);
    }
    fputs("</tr></thead><tbody>\n", out);
    for (int i = 0; i < d->runs.n; i++)
        run_row(d, i, slowest, out);
    fputs("</tbody></table></div>\n", out);
}

bool report_section_train(const report_data *d, FILE *out) {
    if (!d->epochs) return true;
    fputs(
        "<section id=\"training\"><h2>Training</h2>\n<p>Times are of the slowest rank, without "
        "evaluation; "
        "communication is what the ranks were blocked in, in the mean.</p>\n<div class=\"legend\">",
        out);
    for (int i = 0; i < d->runs.n; i++)
        plot_legend_entry(out, &plot_runs, i, d->runs.name[i]);
    fputs("</div>\n<div class=\"panels\">\n", out);
    bool good = curve(d, LOSS, false, out) && curve(d, LOSS, true, out) &&
                curve(d, ACCURACY, false, out) && curve(d, ACCURACY, true, out) &&
                time_figure(d, out);
    fputs("</div>\n", out);
    table_of_runs(d, out);
    fputs("</section>\n", out);
    return good;
}
