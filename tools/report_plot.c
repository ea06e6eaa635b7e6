/* Plots as inline SVG: points with quartiles, lines, labels at the ends of the lines.
 *
 * Coordinates are of a viewBox 440 wide, which a phone shows at about 0.8 of its size. Colours are
 * classes, so that the style sheet can change them with the reader's preference.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report_plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLOURS = 8, MARKERS = 8, DASHES = 3 };
enum { WIDTH = 440, HEIGHT = 300, LEFT = 58, TOP = 24, BOTTOM = 42, RIGHT = 12, NAMES = 112 };
enum { MOST_LABELS = 14, LABEL_STEP = 13, LABEL_CHARACTERS = 16 };

const plot_family plot_algorithms = {'a', 2}, plot_runs = {'r', 0};

/* Paths around the origin: circle, square, triangles, diamond, cross, plus, bow tie. */
static const char *const markers[MARKERS] = {
    "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "M-3.3-3.3h6.6v6.6h-6.6z",
    "M0-4.4L4.2 3.2H-4.2z",
    "M0-4.6L4.6 0L0 4.6L-4.6 0z",
    "M0 4.4L4.2-3.2H-4.2z",
    "M-4-2.4L-2.4-4L0-1.6L2.4-4L4-2.4L1.6 0L4 2.4L2.4 4L0 1.6L-2.4 4L-4 2.4L-1.6 0z",
    "M-1.2-4.4h2.4v3.2h3.2v2.4h-3.2v3.2h-2.4v-3.2h-3.2v-2.4h3.2z",
    "M-4-3.8L4 3.8V-3.8L-4 3.8z",
};

void plot_style_class(const plot_family *f, int style, char *text, size_t size) {
    int k = style - f->reserved;
    if (k < 0) snprintf(text, size, "%s", style ? "auto" : "base");
    else snprintf(text, size, "c%d d%d", k % COLOURS, k / COLOURS % DASHES);
}

void plot_marker(FILE *out, const plot_family *f, int style, double x, double y, const char *tip) {
    int k = style - f->reserved;
    const char *path = markers[k >= 0 ? (k + k / COLOURS * 3 + 2) % MARKERS : style ? 0 : 1];
    fprintf(out, "<path class=\"m\" transform=\"translate(%.1f %.1f)\" d=\"%s\">", x, y, path);
    if (tip && *tip) {
        fputs("<title>", out);
        html_text(out, tip);
        fputs("</title>", out);
    }
    fputs("</path>", out);
}

void plot_legend_entry(FILE *out, const plot_family *f, int style, const char *name) {
    char class[32];
    plot_style_class(f, style, class, sizeof class);
    fprintf(out,
            "<span class=\"key s %s\" data-s=\"%c%d\"><svg viewBox=\"0 0 28 12\">"
            "<path class=\"l\" d=\"M1 6H27\"/>",
            class, f->letter, style);
    plot_marker(out, f, style, 14, 6, NULL);
    fputs("</svg>", out);
    html_text(out, name);
    fputs("</span>\n", out);
}

/* ---- points -------------------------------------------------------------------------------- */

static bool shows(const plot_axis *a, double value) {
    return isfinite(value) && (!a->log || value > 0);
}

plot_point *plot_add(plot *p, int style, const char *label, double x, double y) {
    if (!shows(&p->x, x) || !shows(&p->y, y)) return NULL;
    if (p->points == p->capacity) {
        int capacity = p->capacity ? 2 * p->capacity : 32;
        plot_point *grown = realloc(p->point, (size_t)capacity * sizeof *grown);
        if (!grown) {
            p->failed = true;
            return NULL;
        }
        p->point = grown;
        p->capacity = capacity;
    }
    plot_point *q = &p->point[p->points];
    *q = (plot_point){.style = style,
                      .order = p->points++,
                      .label = label,
                      .x = x,
                      .y = y,
                      .low = NAN,
                      .high = NAN};
    return q;
}

int plot_distinct_x(const plot *p) {
    for (int i = 1; i < p->points; i++)
        if (p->point[i].x != p->point[0].x) return 2;
    return p->points > 0;
}

void plot_free(plot *p) {
    free(p->point);
    p->point = NULL;
    p->points = p->capacity = 0;
}

static int by_series(const void *left, const void *right) {
    const plot_point *a = left, *b = right;
    if (a->style != b->style) return a->style < b->style ? -1 : 1;
    if (a->x != b->x) return a->x < b->x ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

/* ---- frame --------------------------------------------------------------------------------- */

typedef struct frame {
    double left, right, top, bottom; /* of the area of the data */
} frame;

static double at_x(const plot *p, const frame *f, double x) {
    return f->left + axis_at(&p->x, x) * (f->right - f->left);
}

static double at_y(const plot *p, const frame *f, double y) {
    return f->bottom - axis_at(&p->y, y) * (f->bottom - f->top);
}

static void fit(plot *p) {
    double lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < p->points; i++) {
        const plot_point *q = &p->point[i];
        bool bars = shows(&p->y, q->low) && shows(&p->y, q->high);
        lo[0] = fmin(lo[0], q->x);
        hi[0] = fmax(hi[0], q->x);
        lo[1] = fmin(lo[1], bars ? fmin(q->y, q->low) : q->y);
        hi[1] = fmax(hi[1], bars ? fmax(q->y, q->high) : q->y);
    }
    if (p->square) {
        lo[0] = lo[1] = fmin(lo[0], lo[1]);
        hi[0] = hi[1] = fmax(hi[0], hi[1]);
    }
    axis_fit(&p->x, lo[0], hi[0]);
    axis_fit(&p->y, lo[1], hi[1]);
}

static void write_axes(const plot *p, const frame *f, FILE *out) {
    char text[48];
    fputs("<g class=\"grid\">", out);
    for (int i = 0; i < p->x.ticks; i++)
        fprintf(out, "<path d=\"M%.1f %.1fV%.1f\"/>", at_x(p, f, p->x.tick[i]), f->top, f->bottom);
    for (int i = 0; i < p->y.ticks; i++)
        fprintf(out, "<path d=\"M%.1f %.1fH%.1f\"/>", f->left, at_y(p, f, p->y.tick[i]), f->right);
    fputs("</g><g class=\"tick\">", out);
    double free_from = -INFINITY;
    for (int i = 0; i < p->x.ticks; i++) {
        unit_text(p->x.unit, p->x.tick[i], text, sizeof text);
        double x = at_x(p, f, p->x.tick[i]), half = 3.2 * (double)strlen(text) + 2;
        if (x - half < free_from) continue;
        free_from = x + half;
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>", x,
                f->bottom + 15, text);
    }
    for (int i = 0; i < p->y.ticks; i++) {
        unit_text(p->y.unit, p->y.tick[i], text, sizeof text);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>", f->left - 6,
                at_y(p, f, p->y.tick[i]) + 4, text);
    }
    fprintf(out, "</g><path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>", f->left, f->top,
            f->bottom, f->right);
    fprintf(out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", f->right,
            f->bottom + 34);
    html_text(out, p->x.label);
    fprintf(out, "</text><text class=\"label\" x=\"2\" y=\"13\">");
    html_text(out, p->y.label);
    fputs("</text>", out);
}

/* y = x, and the band around it, cut off at the frame by an inner svg. */
static void write_diagonal(const plot *p, const frame *f, FILE *out) {
    double w = f->right - f->left, h = f->bottom - f->top;
    fprintf(out, "<svg x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">", f->left, f->top, w,
            h);
    if (p->band > 0) {
        double up = log(1 + p->band) / log(p->y.hi / p->y.lo) * h;
        double down = log(1 - p->band) / log(p->y.hi / p->y.lo) * h;
        fprintf(out, "<path class=\"band\" d=\"M0 %.1fL%.1f %.1fV%.1fL0 %.1fz\"/>", h - up, w, -up,
                -down, h - down);
    }
    fprintf(out, "<path class=\"diagonal\" d=\"M0 %.1fL%.1f 0\"/></svg>", h, w);
    if (!p->diagonal) return;
    double turn = -atan2(h, w) * 180 / 3.14159265358979;
    fprintf(out, "<text class=\"label\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">",
            f->left + 0.12 * w, f->bottom - 0.12 * h + 18, turn);
    html_text(out, p->diagonal);
    fputs("</text>", out);
}

/* ---- series -------------------------------------------------------------------------------- */

static void write_bar(const plot *p, const frame *f, const plot_point *q, FILE *out) {
    if (!shows(&p->y, q->low) || !shows(&p->y, q->high) || q->high <= q->low) return;
    fprintf(out, "<path class=\"q\" d=\"M%.1f %.1fV%.1f\"/>", at_x(p, f, q->x), at_y(p, f, q->low),
            at_y(p, f, q->high));
}

static int series_end(const plot *p, int first) {
    int end = first + 1;
    while (end < p->points && p->point[end].style == p->point[first].style)
        end++;
    return end;
}

static void write_series(const plot *p, const frame *f, int first, int end, FILE *out) {
    char class[32];
    plot_style_class(p->family, p->point[first].style, class, sizeof class);
    fprintf(out, "<g class=\"s %s\" data-s=\"%c%d\">", class, p->family->letter,
            p->point[first].style);
    if (p->lines && end - first > 1) {
        fputs("<path class=\"l\" d=\"", out);
        for (int i = first; i < end; i++)
            fprintf(out, "%c%.1f %.1f", i > first ? 'L' : 'M', at_x(p, f, p->point[i].x),
                    at_y(p, f, p->point[i].y));
        fputs("\"/>", out);
    }
    for (int i = first; i < end; i++)
        write_bar(p, f, &p->point[i], out);
    for (int i = first; i < end; i++)
        plot_marker(out, p->family, p->point[i].style, at_x(p, f, p->point[i].x),
                    at_y(p, f, p->point[i].y), p->point[i].tip);
    fputs("</g>\n", out);
}

typedef struct end_label {
    const plot_point *last;
    double x, wanted, y;
} end_label;

static int by_place(const void *left, const void *right) {
    const end_label *a = left, *b = right;
    if (a->x != b->x) return a->x < b->x ? -1 : 1;
    return (a->wanted > b->wanted) - (a->wanted < b->wanted);
}

/* Labels of lines that end together, from top to bottom, are pushed apart. */
static void spread(const frame *f, end_label *label, int n) {
    double floor = f->top + 4;
    for (int i = 0; i < n; i++) {
        label[i].y = fmax(label[i].wanted, floor);
        floor = label[i].y + LABEL_STEP;
    }
    double ceiling = f->bottom + 4;
    for (int i = n - 1; i >= 0; i--) {
        label[i].y = fmin(label[i].y, ceiling);
        ceiling = label[i].y - LABEL_STEP;
    }
}

/* A name beside the last point of each series: behind the plot if the line ends at its edge. */
static void write_names(const plot *p, const frame *f, end_label *label, int n, FILE *out) {
    for (int i = 0; i < n; i++) {
        double x = at_x(p, f, label[i].last->x);
        label[i].x = x > f->right - NAMES / 3 ? f->right + 11 : x + 16;
        label[i].wanted = at_y(p, f, label[i].last->y);
    }
    qsort(label, (size_t)n, sizeof *label, by_place);
    for (int first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && label[end].x == label[first].x;)
            end++;
        spread(f, label + first, end - first);
    }
    for (int i = 0; i < n; i++) {
        const plot_point *q = label[i].last;
        char class[32];
        plot_style_class(p->family, q->style, class, sizeof class);
        fprintf(out,
                "<g class=\"s %s\" data-s=\"%c%d\"><path class=\"lead\" d=\"M%.1f %.1fL%.1f "
                "%.1f\"/><text x=\"%.1f\" y=\"%.1f\">",
                class, p->family->letter, q->style, at_x(p, f, q->x) + 5, label[i].wanted,
                label[i].x - 3, label[i].y, label[i].x, label[i].y + 4);
        html_short(out, q->label, LABEL_CHARACTERS);
        fputs("</text></g>", out);
    }
}

bool plot_write(plot *p, const char *title, FILE *out) {
    if (p->failed || !p->points) return !p->failed;
    qsort(p->point, (size_t)p->points, sizeof *p->point, by_series);
    fit(p);
    end_label label[MOST_LABELS];
    int series = 0;
    for (int first = 0; first < p->points; first = series_end(p, first))
        series++;
    bool named = p->lines && series <= MOST_LABELS;
    frame f = {LEFT, WIDTH - (named ? NAMES : RIGHT), TOP, HEIGHT - BOTTOM};
    fprintf(out, "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH,
            HEIGHT);
    html_text(out, title);
    fputs("\">\n", out);
    write_axes(p, &f, out);
    if (p->square) write_diagonal(p, &f, out);
    fputc('\n', out);
    int n = 0;
    for (int top = 0; top < 2; top++) /* auto goes over the others */
        for (int first = 0, end; first < p->points; first = end) {
            end = series_end(p, first);
            if ((p->point[first].style == p->family->reserved - 1) != top) continue;
            write_series(p, &f, first, end, out);
            if (named) label[n++].last = &p->point[end - 1];
        }
    if (named) {
        fputs("<g class=\"ends\">", out);
        write_names(p, &f, label, n, out);
        fputs("</g>\n", out);
    }
    fputs("</svg>\n", out);
    return true;
}
