/* The sections of rill bench: time against density and ranks, bytes against the bound, predicted
 * against measured time, and the table of speedups.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report.h"
#include "report_plot.h"
#include "table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PANELS_SHOWN = 9, SERIES_IN_TABLE = 16 };

static void open_figure(const char *title, const char *more, FILE *out) {
    fputs("<figure><figcaption><b>", out);
    html_text(out, title);
    fputs("</b> ", out);
    html_text(out, more);
    fputs("</figcaption>\n", out);
}

static void legend(const report_data *d, FILE *out) {
    fputs("<div class=\"legend\">", out);
    for (int i = 0; i < d->series.n; i++) {
        bool used = false;
        for (int k = 0; k < d->benches && !used; k++)
            used = d->bench[k].style == i;
        if (used) plot_legend_entry(out, &plot_algorithms, i, d->series.name[i]);
    }
    fputs("</div>\n", out);
}

static void describe(const report_bench *b, plot_point *q) {
    if (!q) return;
    char time[48], sent[48], density[48], ratio[32] = "";
    unit_text(UNIT_SECONDS, b->median, time, sizeof time);
    unit_text(UNIT_BYTES, b->sent, sent, sizeof sent);
    unit_text(UNIT_PERCENT, b->density, density, sizeof density);
    if (b->speedup > 0)
        snprintf(ratio, sizeof ratio, ", %.*f× mpi", b->speedup < 99.5 ? 2 : 0, b->speedup);
    bool chosen = strcmp(b->requested, b->algorithm) != 0;
    snprintf(q->tip, sizeof q->tip, "%s%s%.40s%s%.20s: %s%s; %d ranks, density %s%s%s%s", b->label,
             chosen ? ": " : "", chosen ? b->algorithm : "", *b->codec ? ", " : "", b->codec, time,
             ratio, b->ranks, density, b->sent >= 0 ? ", sent " : "", b->sent >= 0 ? sent : "",
             b->incorrect ? ", INCORRECT" : "");
}

static plot_point *add_time(plot *p, const report_bench *b, double x) {
    plot_point *q = plot_add(p, b->style, b->label, x, b->median);
    if (q) {
        q->low = b->p25;
        q->high = b->p75;
    }
    describe(b, q);
    return q;
}

/* Whether panel i of n is among the few shown at once, evenly spread. */
static bool is_shown(int i, int n) {
    if (n <= PANELS_SHOWN) return true;
    for (int k = 0; k < PANELS_SHOWN; k++)
        if (k * (n - 1) / (PANELS_SHOWN - 1) == i) return true;
    return false;
}

static void open_panels(bool shown, int panels, FILE *out) {
    if (!shown) fprintf(out, "<details><summary>%d more</summary>", panels - PANELS_SHOWN);
    fputs("<div class=\"panels\">\n", out);
}

static void close_panels(bool shown, FILE *out) {
    fputs(shown ? "</div>\n" : "</div></details>\n", out);
}

/* ---- time against density -------------------------------------------------------------------- */

static bool density_panel(const report_data *d, int first, int end, FILE *out) {
    plot p = {.family = &plot_algorithms,
              .lines = true,
              .x = {.label = "density: non-zeros of a rank / N", .unit = UNIT_PERCENT, .log = true},
              .y = {.label = "median time, quartiles", .unit = UNIT_SECONDS, .log = true}};
    char where[192], more[160];
    report_where(&d->bench[first], where, sizeof where);
    for (int i = first; i < end; i++)
        add_time(&p, &d->bench[i], d->bench[i].density);
    bool good, curve = plot_distinct_x(&p) > 1;
    snprintf(more, sizeof more, "%s", d->bench[first].context);
    if (!curve) {
        char density[48];
        unit_text(UNIT_PERCENT, d->bench[first].density, density, sizeof density);
        snprintf(more, sizeof more, "density %s, %s", density, d->bench[first].context);
        p.y.label = "median time, quartiles (log)";
    }
    open_figure(where, more, out);
    good = curve ? plot_write(&p, where, out) : plot_write_rows(&p, where, out);
    fputs("</figure>\n", out);
    plot_free(&p);
    return good;
}

static bool density_section(const report_data *d, FILE *out) {
    int panels = 0;
    for (int first = 0; first < d->benches; first = report_panel_end(d, first))
        panels++;
    fputs("<section id=\"density\"><h2>Time against density</h2>\n"
          "<p>Median time of the slowest rank; bars span the quartiles. Lower is better. "
          "<code>mpi</code> is <code>MPI_Allreduce</code> of dense buffers.</p>\n",
          out);
    legend(d, out);
    bool good = true;
    for (int shown = 1; shown >= 0 && good; shown--) {
        if (!shown && panels <= PANELS_SHOWN) break;
        open_panels(shown, panels, out);
        int n = 0;
        for (int first = 0, end; first < d->benches && good; first = end) {
            end = report_panel_end(d, first);
            if (is_shown(n++, panels) == shown) good = density_panel(d, first, end, out);
        }
        close_panels(shown, out);
    }
    fputs("</section>\n", out);
    return good;
}

/* ---- time against ranks ---------------------------------------------------------------------- */

/* One host, or so many ranks on each. */
static int placement(const report_bench *b) { return b->hosts == 1 ? 0 : b->ranks / b->hosts; }

static int compare_scaling(const report_bench *a, const report_bench *b) {
    int c = strcmp(a->set, b->set);
    if (!c) c = strcmp(a->context, b->context);
    if (!c) c = placement(a) - placement(b);
    if (!c) c = (a->dim > b->dim) - (a->dim < b->dim);
    return c ? c : (a->density > b->density) - (a->density < b->density);
}

static int by_scaling(const void *left, const void *right) {
    const report_bench *const *a = left, *const *b = right;
    int c = compare_scaling(*a, *b);
    return c ? c : (*a > *b) - (*a < *b);
}

static bool ranks_panel(const report_bench *const *b, int n, FILE *out) {
    plot p = {.family = &plot_algorithms,
              .lines = true,
              .x = {.label = "ranks", .unit = UNIT_COUNT, .log = true},
              .y = {.label = "median time, quartiles", .unit = UNIT_SECONDS, .log = true}};
    char title[320], dim[TABLE_CELL], density[48], place[48] = "one host";
    for (int i = 0; i < n; i++)
        add_time(&p, b[i], b[i]->ranks);
    cell_count(dim, (uint64_t)b[0]->dim);
    unit_text(UNIT_PERCENT, b[0]->density, density, sizeof density);
    if (placement(b[0]))
        snprintf(place, sizeof place, "%d rank%s a host", placement(b[0]),
                 placement(b[0]) == 1 ? "" : "s");
    snprintf(title, sizeof title, "N = %s, density %s, %s%s%s%s", dim, density, place,
             *b[0]->set ? " (" : "", b[0]->set, *b[0]->set ? ")" : "");
    open_figure(title, b[0]->context, out);
    bool good = plot_write(&p, title, out);
    fputs("</figure>\n", out);
    plot_free(&p);
    return good;
}

static bool ranks_section(const report_data *d, FILE *out) {
    const report_bench **b = malloc((size_t)d->benches * sizeof *b);
    int *start = malloc(((size_t)d->benches + 1) * sizeof *start), *stop, panels = 0;
    stop = malloc(((size_t)d->benches + 1) * sizeof *stop);
    bool good = b && start && stop;
    for (int i = 0; good && i < d->benches; i++)
        b[i] = &d->bench[i];
    if (good) qsort(b, (size_t)d->benches, sizeof *b, by_scaling);
    for (int first = 0, end; good && first < d->benches; first = end) {
        bool varies = false;
        for (end = first; end < d->benches && !compare_scaling(b[first], b[end]); end++)
            varies |= b[end]->ranks != b[first]->ranks;
        if (!varies) continue;
        start[panels] = first;
        stop[panels++] = end;
    }
    if (good && panels) {
        fputs("<section id=\"ranks\"><h2>Time against ranks</h2>\n", out);
        legend(d, out);
        for (int shown = 1; shown >= 0 && good; shown--) {
            if (!shown && panels <= PANELS_SHOWN) break;
            open_panels(shown, panels, out);
            for (int i = 0; i < panels && good; i++)
                if (is_shown(i, panels) == shown)
                    good = ranks_panel(b + start[i], stop[i] - start[i], out);
            close_panels(shown, out);
        }
        fputs("</section>\n", out);
    }
    free(b);
    free(start);
    free(stop);
    return good;
}

/* ---- bytes and predictions ------------------------------------------------------------------- */

static bool bytes_figure(const report_data *d, FILE *out) {
    plot p = {.family = &plot_algorithms,
              .square = true,
              .diagonal = "the bound",
              .x = {.label = "information bound B", .unit = UNIT_BYTES, .log = true},
              .y = {.label = "sent by the busiest rank", .unit = UNIT_BYTES, .log = true}};
    for (int i = 0; i < d->benches; i++) {
        const report_bench *b = &d->bench[i];
        plot_point *q = plot_add(&p, b->style, b->label, b->bound, b->sent);
        describe(b, q);
        size_t used = q ? strlen(q->tip) : 0;
        if (q)
            snprintf(q->tip + used, sizeof q->tip - used, " = %.2f of the bound%s",
                     b->sent / b->bound, b->modelled ? " (by formula)" : "");
    }
    bool good = true;
    if (p.points) {
        open_figure("Bytes against the information bound", "", out);
        good = plot_write(&p, "Bytes sent against the information bound", out);
        fputs("<p>A rank can't know the sum before it has received what the P&nbsp;&minus;&nbsp;1 "
              "others have "
              "between them: K&nbsp;=&nbsp;N&thinsp;(1&nbsp;&minus;&nbsp;(1&nbsp;&minus;&nbsp;k/N)"
              "<sup>P&minus;1</sup>) entries, if each of their supports of k is as likely as any "
              "other. "
              "What is received was sent, so the busiest rank sends at least</p>"
              "<p class=\"formula\">B = log<sub>2</sub>&thinsp;C(N, K)&thinsp;/&thinsp;8 + "
              "K&thinsp;w&thinsp;/&thinsp;8 bytes,</p>"
              "<p>the entropy of the indices and w bits a value (the type's, or the value bits "
              "asked for). "
              "Shown for sums of uniform supports. Traffic of <code>mpi</code> is a formula, not "
              "counted.</p>",
              out);
        fputs("</figure>\n", out);
    } else good = !p.failed;
    plot_free(&p);
    return good;
}

static bool predicted_figure(const report_data *d, const report_summary *s, FILE *out) {
    plot p = {.family = &plot_algorithms,
              .square = true,
              .band = 0.2,
              .diagonal = "as predicted",
              .x = {.label = "measured median", .unit = UNIT_SECONDS, .log = true},
              .y = {.label = "predicted time", .unit = UNIT_SECONDS, .log = true}};
    for (int i = 0; i < d->benches; i++) {
        const report_bench *b = &d->bench[i];
        if (!(b->predicted > 0)) continue;
        plot_point *q = plot_add(&p, b->style, b->label, b->median, b->predicted);
        describe(b, q);
        size_t used = q ? strlen(q->tip) : 0;
        if (q)
            snprintf(q->tip + used, sizeof q->tip - used, "; predicted %+.0f %%",
                     100 * (b->predicted / b->median - 1));
    }
    bool good = !p.failed;
    if (p.points) {
        open_figure("Predicted against measured time", "", out);
        good = plot_write(&p, "Predicted against measured time", out);
        fprintf(out,
                "<p>The band is &plusmn;20&nbsp;%%. Median error |predicted / measured &minus; 1|: "
                "<b>%.0f&nbsp;%%</b> of %d results",
                100 * s->error, s->predicted);
        if (s->auto_predicted)
            fprintf(out, "; <b>%.0f&nbsp;%%</b> of the %d where <code>auto</code> chose",
                    100 * s->auto_error, s->auto_predicted);
        fputs(".</p></figure>\n", out);
    }
    plot_free(&p);
    return good;
}

/* ---- table ----------------------------------------------------------------------------------- */

static void speedup_cell(const report_data *d, int first, int end, int style, double most,
                         FILE *out) {
    const report_bench *b = NULL;
    for (int i = first; i < end; i++)
        if (d->bench[i].style == style && (!b || d->bench[i].median < b->median)) b = &d->bench[i];
    char text[64] = "";
    const char *kind = "n";
    if (b && !strcmp(b->requested, "mpi")) unit_text(UNIT_SECONDS, b->median, text, sizeof text);
    else if (b && b->speedup > 0) {
        snprintf(text, sizeof text,
                 b->speedup < 9.995   ? "%.2f×"
                 : b->speedup < 99.95 ? "%.1f×"
                                      : "%.0f×",
                 b->speedup);
        kind = b->speedup < 1 ? "n slow" : b->speedup == most ? "n best" : "n";
    } else if (b) unit_text(UNIT_SECONDS, b->median, text, sizeof text);
    if (b && b->incorrect) {
        kind = "n wrong";
        strcat(text, " wrong");
    }
    html_cell(out, kind, text);
}

static void speedup_row(const report_data *d, int first, int end, const int *column, int columns,
                        bool contexts, FILE *out) {
    const report_bench *b = &d->bench[first], *fixed;
    char text[64];
    double most = NAN, ratio = report_auto_ratio(d, first, end, &fixed);
    for (int i = first; i < end; i++)
        if (strcmp(d->bench[i].requested, "mpi") && !d->bench[i].incorrect)
            most = fmax(most, d->bench[i].speedup);
    fputs("<tr>", out);
    if (contexts) html_cell(out, "", b->context);
    snprintf(text, sizeof text, "%d", b->ranks);
    html_cell(out, "n", text);
    snprintf(text, sizeof text, "%d", b->hosts);
    html_cell(out, "n", text);
    cell_count(text, (uint64_t)b->dim);
    html_cell(out, "n", text);
    unit_text(UNIT_PERCENT, b->density, text, sizeof text);
    html_cell(out, "n", text);
    for (int i = 0; i < columns; i++)
        speedup_cell(d, first, end, column[i], most, out);
    snprintf(text, sizeof text, "%.2f", ratio);
    html_cell(out, ratio > 1.05 ? "n slow" : "n", isfinite(ratio) ? text : "");
    fputs("</tr>\n", out);
}

/* One table of the results from first to end, all of one set. */
static void speedup_table(const report_data *d, int first, int end, FILE *out) {
    int column[SERIES_IN_TABLE], columns = 0, left_out = 0;
    bool contexts = false;
    for (int i = first; i < end; i++)
        contexts |= strcmp(d->bench[i].context, d->bench[first].context) != 0;
    for (int s = 0; s < d->series.n; s++) {
        bool used = false;
        for (int i = first; i < end && !used; i++)
            used = d->bench[i].style == s;
        if (used && columns < SERIES_IN_TABLE) column[columns++] = s;
        else left_out += used;
    }
    fputs("<h3>", out);
    html_text(out, d->bench[first].set);
    if (!contexts) {
        fputs(*d->bench[first].set ? ": " : "", out);
        html_text(out, d->bench[first].context);
    }
    fputs("</h3>\n", out);
    if (left_out) fprintf(out, "<p>%d more series are in the plots only.</p>\n", left_out);
    fputs("<div class=\"scroll tall\"><table><thead><tr>", out);
    if (contexts) fputs("<th>what</th>", out);
    fputs("<th class=\"n\">ranks</th><th class=\"n\">hosts</th><th class=\"n\">N</th>"
          "<th class=\"n\">density</th>",
          out);
    for (int i = 0; i < columns; i++) {
        fputs("<th class=\"n\">", out);
        html_text(out, d->series.name[column[i]]);
        fputs("</th>", out);
    }
    fputs("<th class=\"n\">auto / best fixed</th></tr></thead><tbody>\n", out);
    for (int next; first < end; first = next) {
        next = report_cell_end(d, first);
        speedup_row(d, first, next, column, columns, contexts, out);
    }
    fputs("</tbody></table></div>\n", out);
}

static void table_section(const report_data *d, FILE *out) {
    fputs("<section id=\"speedups\"><h2>Speedup over <code>mpi</code></h2>\n<p>The baseline's "
          "median over the case's; <code>mpi</code> itself is given as time. The best of a row is "
          "bold, what is slower than <code>mpi</code> in the other colour.</p>\n",
          out);
    for (int first = 0, end; first < d->benches; first = end) {
        for (end = first; end < d->benches && !strcmp(d->bench[first].set, d->bench[end].set);)
            end++;
        speedup_table(d, first, end, out);
    }
    fputs("</section>\n", out);
}

static void wrong_section(const report_data *d, const report_summary *s, FILE *out) {
    if (!s->incorrect) return;
    fputs("<section id=\"incorrect\"><h2>Incorrect results</h2><ul>\n", out);
    for (int i = 0; i < d->benches; i++) {
        const report_bench *b = &d->bench[i];
        if (!b->incorrect) continue;
        char where[192], density[48];
        report_where(b, where, sizeof where);
        unit_text(UNIT_PERCENT, b->density, density, sizeof density);
        fputs("<li><b>", out);
        html_text(out, b->label);
        fprintf(out, "</b>, ");
        html_text(out, where);
        fprintf(out, ", density %s, ", density);
        html_text(out, b->context);
        fputs(*b->detail ? ": " : "", out);
        html_text(out, b->detail);
        fputs("</li>\n", out);
    }
    fputs("</ul></section>\n", out);
}

bool report_section_bench(const report_data *d, const report_summary *s, FILE *out) {
    if (!d->benches) return true;
    wrong_section(d, s, out);
    if (!density_section(d, out) || !ranks_section(d, out)) return false;
    fputs("<section id=\"models\"><h2>Bytes and predictions</h2>\n", out);
    legend(d, out);
    fputs("<div class=\"panels two\">\n", out);
    bool good = bytes_figure(d, out) && predicted_figure(d, s, out);
    fputs("</div></section>\n", out);
    table_section(d, out);
    return good;
}
