/* Results of rill bench into cells: the same question, asked of several algorithms.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double report_bound(double n, double k, double bits) {
    if (!(k > 0 && k <= n)) return 0;
    double choose = (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / M_LN2;
    return (fmax(choose, 0) + k * bits) / 8;
}

static int order(double a, double b) { return (a > b) - (a < b); }

static int compare_panel(const report_bench *a, const report_bench *b) {
    int c = strcmp(a->set, b->set);
    if (!c) c = strcmp(a->context, b->context);
    if (!c) c = order(a->ranks, b->ranks);
    if (!c) c = order(a->hosts, b->hosts);
    return c ? c : order(a->dim, b->dim);
}

static int compare_cell(const report_bench *a, const report_bench *b) {
    int c = compare_panel(a, b);
    return c ? c : order(a->density, b->density);
}

static int compare(const void *left, const void *right) {
    const report_bench *a = left, *b = right;
    int c = compare_cell(a, b);
    if (!c) c = order(a->style, b->style);
    if (!c) c = order(a->source, b->source);
    return c ? c : order(a->median, b->median);
}

static int compare_name(const void *left, const void *right) {
    const report_bench *a = left, *b = right;
    int c = compare_cell(a, b);
    if (!c) c = order(a->source, b->source);
    if (!c) c = strcmp(a->label, b->label);
    return c ? c : strcmp(a->partition, b->partition);
}

static int compare_order(const void *left, const void *right) {
    const report_bench *a = left, *b = right;
    return order(a->order, b->order);
}

/* A record names the partition that was used, asked for or not. It is part of a series' name only
 * where the same was run with several. */
static bool name_series(report_data *d) {
    report_names several = {0};
    bool good = true;
    qsort(d->bench, (size_t)d->benches, sizeof *d->bench, compare_name);
    for (int i = 1; i < d->benches && good; i++) {
        const report_bench *a = &d->bench[i - 1], *b = &d->bench[i];
        if (!compare_cell(a, b) && a->source == b->source && !strcmp(a->label, b->label) &&
            strcmp(a->partition, b->partition))
            good = report_name(&several, a->label) >= 0;
    }
    qsort(d->bench, (size_t)d->benches, sizeof *d->bench, compare_order);
    for (int i = 0; i < d->benches && good; i++) {
        report_bench *b = &d->bench[i];
        bool named = false;
        for (int k = 0; k < several.n && !named; k++)
            named = !strcmp(several.name[k], b->label);
        size_t used = strlen(b->label);
        if (named && *b->partition)
            snprintf(b->label + used, sizeof b->label - used, " %s", b->partition);
        good = (b->style = report_name(&d->series, b->label)) >= 0;
    }
    free(several.name);
    return good;
}

int report_panel_end(const report_data *d, int first) {
    int end = first + 1;
    while (end < d->benches && !compare_panel(&d->bench[first], &d->bench[end]))
        end++;
    return end;
}

int report_cell_end(const report_data *d, int first) {
    int end = first + 1;
    while (end < d->benches && !compare_cell(&d->bench[first], &d->bench[end]))
        end++;
    return end;
}

const report_bench *report_find(const report_data *d, int first, int end, const char *requested) {
    for (int i = first; i < end; i++)
        if (!strcmp(d->bench[i].requested, requested)) return &d->bench[i];
    return NULL;
}

/* Files that measured the same thing are different networks, machines or versions: then the
 * file becomes part of the setting. Files that complete each other are one sweep. */
static bool files_conflict(const report_data *d) {
    for (int i = 1; i < d->benches; i++) {
        const report_bench *a = &d->bench[i - 1], *b = &d->bench[i];
        if (!compare_cell(a, b) && a->style == b->style && a->source != b->source) return true;
    }
    return false;
}

bool report_cells(report_data *d) {
    if (!d->benches) return true;
    if (!name_series(d)) return false;
    qsort(d->bench, (size_t)d->benches, sizeof *d->bench, compare);
    if (files_conflict(d)) {
        for (int i = 0; i < d->benches; i++) {
            report_bench *b = &d->bench[i];
            const report_source *s = &d->source[b->source];
            if (s->named) continue;
            char network[REPORT_LABEL];
            memcpy(network, b->set, sizeof network);
            snprintf(b->set, sizeof b->set, "%.40s%s%.20s", s->name, *network ? ", " : "", network);
        }
        qsort(d->bench, (size_t)d->benches, sizeof *d->bench, compare);
    }
    for (int first = 0, end; first < d->benches; first = end) {
        end = report_cell_end(d, first);
        const report_bench *base = report_find(d, first, end, "mpi");
        for (int i = first; i < end; i++) {
            report_bench *b = &d->bench[i];
            if (!(b->speedup > 0))
                b->speedup = base && b->median > 0 ? base->median / b->median : NAN;
            bool sum = !strcmp(b->collective, "allreduce") && !strcmp(b->op, "sum");
            double others = b->dim * -expm1((b->ranks - 1) * log1p(-fmin(b->nnz_in / b->dim, 1)));
            b->bound = sum && b->ranks > 1 && !strcmp(b->overlap, "uniform")
                           ? report_bound(b->dim, fmin(others, b->dim), b->value_width)
                           : NAN;
        }
    }
    return true;
}
