/* Axes of plots: ranges, ticks, and how values are written on them; texts in HTML.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report_plot.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

double axis_at(const plot_axis *a, double value) {
    if (a->log) return log(value / a->lo) / log(a->hi / a->lo);
    return (value - a->lo) / (a->hi - a->lo);
}

static void add_tick(plot_axis *a, double value) {
    double slack = a->log ? 0 : 1e-9 * (a->hi - a->lo);
    double factor = a->log ? 1 + 1e-9 : 1;
    if (value < a->lo / factor - slack || value > a->hi * factor + slack) return;
    if (a->ticks < PLOT_TICKS) a->tick[a->ticks++] = value;
}

/* A little room beyond the data, and at least a factor of two. */
static void fit_log(plot_axis *a, double lo, double hi) {
    double room = fmax(pow(hi / lo, 0.04), 1.05);
    if (hi / lo < 2) room = sqrt(2 * lo / hi);
    a->lo = lo / room;
    a->hi = hi * room;
    double decades = log10(a->hi / a->lo);
    int first = (int)floor(log10(a->lo)), last = (int)ceil(log10(a->hi));
    int step = decades > 14 ? 3 : decades > 7 ? 2 : 1;
    for (int e = first; e <= last; e++) {
        if (step > 1 && ((e % step) + step) % step) continue;
        double decade = pow(10, e);
        add_tick(a, decade);
        if (decades < 0.8) add_tick(a, 1.5 * decade);
        if (decades < 2) add_tick(a, 2 * decade);
        if (decades < 0.8) add_tick(a, 3 * decade);
        else if (decades >= 2 && decades < 3) add_tick(a, 3 * decade);
        if (decades < 2) add_tick(a, 5 * decade);
        if (decades < 0.8) add_tick(a, 7 * decade);
    }
}

/* Counts of ranks: powers of two. */
static void fit_powers(plot_axis *a, double lo, double hi) {
    a->lo = lo / 1.12;
    a->hi = hi * 1.12;
    if (hi / lo < 2) a->hi = lo * 2.2;
    int step = log2(a->hi / a->lo) > 9 ? 2 : 1;
    for (int e = 0; e < 48; e += step)
        add_tick(a, ldexp(1, e));
}

static void fit_linear(plot_axis *a, double lo, double hi) {
    if (a->from_zero && lo > 0) lo = 0;
    double spread = hi - lo > 0 ? hi - lo : fmax(fabs(hi), 1e-3) * 0.1;
    a->lo = a->from_zero && lo == 0 ? 0 : lo - 0.06 * spread;
    a->hi = hi + 0.06 * spread;
    double raw = (a->hi - a->lo) / 5, power = pow(10, floor(log10(raw)));
    double step = raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10;
    step *= power;
    double first = ceil(a->lo / step - 1e-9);
    for (int i = 0; i < PLOT_TICKS; i++)
        add_tick(a, (first + i) * step);
}

/* Beyond these an axis has no use for a value, and its arithmetic would overflow. */
static double within(double value, double least, double most) {
    return fmin(fmax(value, least), most);
}

void axis_fit(plot_axis *a, double lo, double hi) {
    const double most = a->log ? 1e30 : 1e100, least = a->log ? 1 / most : -most;
    lo = within(lo, least, most);
    hi = within(hi, lo, most);
    a->ticks = 0;
    if (a->log && a->unit == UNIT_COUNT) fit_powers(a, lo, hi);
    else if (a->log) fit_log(a, lo, hi);
    else fit_linear(a, lo, hi);
}

/* With the largest of the units (in rising order) that leaves at least one. */
static void scaled(double value, const double *scale, const char *const *name, int n, char *text,
                   size_t size) {
    int i = 0;
    while (i + 1 < n && fabs(value) >= scale[i + 1] * 0.9995)
        i++;
    double v = value / scale[i];
    /* %g would write 1000 in three digits as 1e+03. */
    if (fabs(v) >= 999.5 && fabs(v) < 1e6) snprintf(text, size, "%.0f %s", v, name[i]);
    else snprintf(text, size, "%.3g %s", v, name[i]);
}

void unit_text(plot_unit unit, double value, char *text, size_t size) {
    static const double second[] = {1e-9, 1e-6, 1e-3, 1}, byte[] = {1, 1e3, 1e6, 1e9, 1e12};
    static const char *const seconds[] = {"ns", "µs", "ms", "s"};
    static const char *const bytes[] = {"B", "kB", "MB", "GB", "TB"};
    if (!isfinite(value)) snprintf(text, size, "–");
    else if (value == 0) snprintf(text, size, "0");
    else if (unit == UNIT_SECONDS) scaled(value, second, seconds, 4, text, size);
    else if (unit == UNIT_BYTES) scaled(value, byte, bytes, 5, text, size);
    else if (unit == UNIT_PERCENT) snprintf(text, size, "%.4g %%", 100 * value);
    else if (fabs(value) >= 999.5 && fabs(value) < 1e6) snprintf(text, size, "%.0f", value);
    else snprintf(text, size, "%.4g", value);
}

/* ---- texts --------------------------------------------------------------------------------- */

/* Bytes of the character at s if it is well-formed UTF-8 and not a control character, else 0. */
static int character(const unsigned char *s) {
    if (*s < 0x80) return *s >= 0x20 && *s != 0x7F;
    int n = (*s & 0xE0) == 0xC0 ? 2 : (*s & 0xF0) == 0xE0 ? 3 : (*s & 0xF8) == 0xF0 ? 4 : 0;
    unsigned code = n ? *s & (0x7Fu >> n) : 0;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (s[i] & 0x3Fu);
    }
    static const unsigned least[] = {0, 0, 0xA0, 0x800, 0x10000}; /* 0x80 to 0x9F are controls */
    bool text = code >= least[n] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    bool turns = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    return n && text && !turns ? n : 0;
}

static void write_text(FILE *out, const char *text, bool html, int most) {
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        if (!most--) {
            fputs("…", out);
            return;
        }
        int n = character(s);
        const char *entity = !html        ? NULL
                             : *s == '&'  ? "&amp;"
                             : *s == '<'  ? "&lt;"
                             : *s == '>'  ? "&gt;"
                             : *s == '"'  ? "&quot;"
                             : *s == '\'' ? "&#39;"
                                          : NULL;
        if (!n) fputs(*s == '\n' && html ? " " : "\xEF\xBF\xBD", out);
        else if (entity) fputs(entity, out);
        else fwrite(s, 1, (size_t)n, out);
        s += n ? n : 1;
    }
}

void html_text(FILE *out, const char *text) { write_text(out, text, true, -1); }

void html_short(FILE *out, const char *text, int most) { write_text(out, text, true, most); }

void plain_text(FILE *out, const char *text) { write_text(out, text, false, -1); }

void html_cell(FILE *out, const char *kind, const char *text) {
    fprintf(out, "<td%s%s%s>", *kind ? " class=\"" : "", kind, *kind ? "\"" : "");
    html_text(out, text);
    fputs("</td>", out);
}
