/* Plots in rows: times of the algorithms in one setting, and bars of stacked parts.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report_plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 440, VALUES = 58, ROW = 22, FOOT = 44, TOP = 6, NAME_CHARACTERS = 26 };

static int by_time(const void *left, const void *right) {
    const plot_point *a = left, *b = right;
    if (a->y != b->y) return a->y < b->y ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

static void open_svg(double height, const char *title, FILE *out) {
    fprintf(out, "<svg class=\"plot\" viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"", WIDTH,
            height);
    html_text(out, title);
    fputs("\">\n", out);
}

static void write_scale(const plot_axis *a, double left, double right, double bottom, FILE *out) {
    char text[48];
    double free_from = -INFINITY;
    for (int i = 0; i < a->ticks; i++) {
        double x = left + axis_at(a, a->tick[i]) * (right - left);
        unit_text(a->unit, a->tick[i], text, sizeof text);
        double half = 3.2 * (double)strlen(text) + 2;
        fprintf(out, "<g class=\"grid\"><path d=\"M%.1f %dV%.1f\"/></g>", x, TOP, bottom);
        if (x - half < free_from) continue;
        free_from = x + half;
        fprintf(
            out,
            "<g class=\"tick\"><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text></g>", x,
            bottom + 15, text);
    }
    fprintf(out,
            "<path class=\"axis\" d=\"M%.1f %dV%.1f\"/><text class=\"label\" x=\"%.1f\" "
            "y=\"%.1f\" text-anchor=\"end\">",
            left, TOP, bottom, right, bottom + 33);
    html_text(out, a->label);
    fputs("</text>\n", out);
}

/* How wide the column of names has to be, about. */
static double name_width(double widest, const char *name) {
    size_t n = strlen(name);
    return fmax(widest, 6.7 * (double)(n < NAME_CHARACTERS ? n : NAME_CHARACTERS) + 14);
}

/* The name of a row, at the right of its column. */
static void write_name(const char *name, double left, double y, FILE *out) {
    fprintf(out, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", left - 8,
            y + 4);
    html_short(out, name, NAME_CHARACTERS);
    fputs("</text>", out);
}

bool plot_write_rows(plot *p, const char *title, FILE *out) {
    if (p->failed || !p->points) return !p->failed;
    qsort(p->point, (size_t)p->points, sizeof *p->point, by_time);
    double lo = INFINITY, hi = 0, left = 0;
    for (int i = 0; i < p->points; i++) {
        const plot_point *q = &p->point[i];
        left = name_width(left, q->label);
        lo = fmin(lo, q->low > 0 ? fmin(q->low, q->y) : q->y);
        hi = fmax(hi, q->high > 0 ? fmax(q->high, q->y) : q->y);
    }
    axis_fit(&p->y, lo, hi);
    double bottom = TOP + ROW * p->points, right = WIDTH - VALUES;
    open_svg(bottom + FOOT, title, out);
    write_scale(&p->y, left, right, bottom, out);
    for (int i = 0; i < p->points; i++) {
        const plot_point *q = &p->point[i];
        double y = TOP + ROW * (i + 0.5), x = left + axis_at(&p->y, q->y) * (right - left);
        char class[32], text[48];
        plot_style_class(p->family, q->style, class, sizeof class);
        unit_text(p->y.unit, q->y, text, sizeof text);
        fprintf(out, "<g class=\"s %s\" data-s=\"%c%d\">", class, p->family->letter, q->style);
        write_name(q->label, left, y, out);
        if (q->low > 0 && q->high > q->low)
            fprintf(out, "<path class=\"q\" d=\"M%.1f %.1fH%.1f\"/>",
                    left + axis_at(&p->y, q->low) * (right - left), y,
                    left + axis_at(&p->y, q->high) * (right - left));
        plot_marker(out, p->family, q->style, x, y, q->tip);
        fprintf(out,
                "<text class=\"value\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text></g>\n",
                WIDTH - 2, y + 4, text);
    }
    fputs("</svg>\n", out);
    return true;
}

/* The longest bar that is drawn whole: one that is far longer than the others would hide them. */
static double longest_shown(const double *sum, int n) {
    double longest = 0, limit = INFINITY;
    for (int i = 0; i < n && n > 3; i++) {
        int below = 0;
        for (int k = 0; k < n; k++)
            below += sum[k] < sum[i];
        if (below >= n / 2) limit = fmin(limit, 5 * sum[i]);
    }
    for (int i = 0; i < n; i++)
        if (sum[i] <= limit) longest = fmax(longest, sum[i]);
    return longest;
}

/* One bar; where it is longer than the axis, it is cut off with a slash. */
static void write_bar(const plot_bar *b, const char *const *part_names, int parts,
                      const plot_axis *axis, double left, double right, double y, FILE *out) {
    double sum = 0, end = left;
    for (int k = 0; k < parts; k++) {
        if (!(b->part[k] > 0)) continue;
        double from = left + fmin(axis_at(axis, sum), 1) * (right - left);
        sum += b->part[k];
        end = left + fmin(axis_at(axis, sum), 1) * (right - left);
        char text[48];
        unit_text(axis->unit, b->part[k], text, sizeof text);
        fprintf(out,
                "<rect class=\"p%d m\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\">"
                "<title>%s: %s</title></rect>",
                k, from, y + 4, fmax(end - from, 0.5), ROW - 8, part_names[k], text);
    }
    if (axis_at(axis, sum) > 1)
        fprintf(out, "<path class=\"cut\" d=\"M%.1f %.1fl6 %d\"/>", end - 14, y + 2, ROW - 4);
    fprintf(out, "<text class=\"value\" x=\"%.1f\" y=\"%.1f\">", end + 5, y + ROW / 2.0 + 4);
    html_text(out, b->text);
    fputs("</text>\n", out);
}

bool plot_write_bars(const plot_bar *bar, int bars, const char *const *part_names, int parts,
                     plot_unit unit, const char *label, const char *title, FILE *out) {
    enum { BEHIND = 96 };
    double left = 0, *sum = calloc((size_t)bars + 1, sizeof *sum);
    bool used[BAR_PARTS] = {false};
    if (!sum) return false;
    for (int i = 0; i < bars; i++) {
        left = name_width(left, bar[i].name);
        for (int k = 0; k < parts; k++)
            if (bar[i].part[k] > 0) {
                sum[i] += bar[i].part[k];
                used[k] = true;
            }
    }
    double longest = longest_shown(sum, bars);
    free(sum);
    if (!(longest > 0)) return true;
    plot_axis axis = {.label = label, .unit = unit, .from_zero = true};
    axis_fit(&axis, 0, longest);
    double bottom = TOP + ROW * bars, right = WIDTH - BEHIND;
    fputs("<div class=\"legend\">", out);
    for (int k = 0; k < parts; k++)
        if (used[k])
            fprintf(out, "<span class=\"part\"><span class=\"swatch p%d\"></span>%s</span>\n", k,
                    part_names[k]);
    fputs("</div>\n", out);
    open_svg(bottom + FOOT, title, out);
    write_scale(&axis, left, right, bottom, out);
    for (int i = 0; i < bars; i++) {
        write_name(bar[i].name, left, TOP + ROW * (i + 0.5), out);
        write_bar(&bar[i], part_names, parts, &axis, left, right, TOP + ROW * i, out);
    }
    fputs("</svg>\n", out);
    return true;
}
