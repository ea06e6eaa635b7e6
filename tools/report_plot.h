/* Plots of rill report as inline SVG, and HTML that is safe whatever the texts are.
 *
 * A plot takes points, series by series, finds its axes and writes itself. Colours and markers
 * belong to the number of a series (its style), so that an algorithm looks the same in every plot
 * of the page.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_REPORT_PLOT_H
#define RILL_TOOL_REPORT_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { PLOT_TICKS = 16, PLOT_TIP = 400 };

typedef enum plot_unit {
    UNIT_PLAIN,
    UNIT_COUNT,
    UNIT_SECONDS,
    UNIT_BYTES,
    UNIT_PERCENT /* of a fraction */
} plot_unit;

/* ---- axes --------------------------------------------------------------------------------- */
typedef struct plot_axis {
    const char *label;
    plot_unit unit;
    bool log;
    bool from_zero; /* linear only */
    double lo, hi;
    int ticks;
    double tick[PLOT_TICKS];
} plot_axis;

/* Range and ticks for values from lo to hi; of a logarithmic axis they are positive. */
void axis_fit(plot_axis *, double lo, double hi);
/* Where a value is: 0 at lo, 1 at hi. */
double axis_at(const plot_axis *, double value);
/* "10 µs", "0.1 %". */
void unit_text(plot_unit, double value, char *text, size_t size);

/* ---- styles ------------------------------------------------------------------------------- */
/* What a style is drawn with. A family keeps the styles of algorithms and of training runs apart.
 */
typedef struct plot_family {
    char letter;  /* of the elements that its legend switches */
    int reserved; /* styles that have a look of their own: baseline, auto */
} plot_family;
extern const plot_family plot_algorithms, plot_runs;
void plot_style_class(const plot_family *, int style, char *text, size_t size);
void plot_marker(FILE *, const plot_family *, int style, double x, double y, const char *tip);
/* A line of markers and names, whose entries switch series on and off. */
void plot_legend_entry(FILE *, const plot_family *, int style, const char *name);

/* ---- plots -------------------------------------------------------------------------------- */
typedef struct plot_point {
    int style, order;
    const char *label; /* of the series; not copied */
    double x, y, low, high;
    char tip[PLOT_TIP];
} plot_point;

typedef struct plot {
    const plot_family *family;
    plot_axis x, y;
    bool lines;           /* joins the points of a series */
    bool square;          /* both axes have the same range, with the diagonal */
    double band;          /* shade so much on either side of the diagonal: 0.2 */
    const char *diagonal; /* what it says */
    bool failed;          /* out of memory */
    int points, capacity;
    plot_point *point;
} plot;

/* Points that an axis can't show (NAN, or not positive on a logarithmic one) are left out. The
 * result is to be given a tip, unless it is NULL. */
plot_point *plot_add(plot *, int style, const char *label, double x, double y);
/* False when out of memory, then or before. */
bool plot_write(plot *, const char *title, FILE *);
/* Different values of x, up to two. */
int plot_distinct_x(const plot *);
void plot_free(plot *);

/* Rows of a marker each, with quartiles: times of one setting. Takes y as time; x is not used. */
bool plot_write_rows(plot *, const char *title, FILE *);

enum { BAR_PARTS = 4 };
typedef struct plot_bar {
    const char *name;
    double part[BAR_PARTS];
    char text[48]; /* behind the bar */
} plot_bar;
/* Horizontal bars of stacked parts. False when out of memory. */
bool plot_write_bars(const plot_bar *, int bars, const char *const *part_names, int parts,
                     plot_unit, const char *label, const char *title, FILE *);

/* ---- HTML --------------------------------------------------------------------------------- */
void html_text(FILE *, const char *text); /* escaped; what is not UTF-8 or not printable replaced */
void html_short(FILE *, const char *text, int most);        /* so many characters of it, and ... */
void html_cell(FILE *, const char *kind, const char *text); /* <td class=kind> */
void plain_text(FILE *, const char *text); /* for a terminal: control characters replaced */

#endif
