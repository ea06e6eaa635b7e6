/* What the records say, in sentences: the head of the page, and the terminal.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report.h"
#include "report_plot.h"
#include "table.h"

#include <math.h>
#include <rill/rill.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void report_where(const report_bench *b, char *text, size_t size) {
    char dim[TABLE_CELL];
    cell_count(dim, (uint64_t)b->dim);
    snprintf(text, size, "%d rank%s on %d host%s, N = %s%s%s%s", b->ranks, b->ranks == 1 ? "" : "s",
             b->hosts, b->hosts == 1 ? "" : "s", dim, *b->set ? " (" : "", b->set,
             *b->set ? ")" : "");
}

/* The same with the density. */
static void exactly(const report_bench *b, char *text, size_t size) {
    char density[48], where[192];
    unit_text(UNIT_PERCENT, b->density, density, sizeof density);
    report_where(b, where, sizeof where);
    snprintf(text, size, "%s, density %s", where, density);
}

/* Peers such as gloo stand beside our algorithms, but auto could not have chosen them. */
static bool is_ours(const char *name) {
    const char *known;
    for (int c = 0; c <= (int)RILL_REDUCER; c++)
        for (int i = 0; (known = rill_algorithm_at((rill_collective)c, i, NULL)); i++)
            if (!strcmp(name, known)) return true;
    return false;
}

double report_auto_ratio(const report_data *d, int first, int end, const report_bench **best) {
    const report_bench *chosen = report_find(d, first, end, "auto"), *other = NULL;
    bool choice = false;
    *best = NULL;
    for (int i = first; chosen && i < end; i++) {
        const report_bench *b = &d->bench[i];
        if (!strcmp(b->requested, "auto") || !is_ours(b->requested) || b->incorrect) continue;
        if (b->value_bits != chosen->value_bits || !(b->median > 0)) continue;
        if (!other) other = b;
        choice |= strcmp(b->requested, other->requested) != 0;
        if (!*best || b->median < (*best)->median) *best = b;
    }
    return choice ? chosen->median / (*best)->median : NAN;
}

static int ascending(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *value, int n) {
    if (!n) return NAN;
    qsort(value, (size_t)n, sizeof *value, ascending);
    return n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

static bool prediction_errors(const report_data *d, report_summary *s) {
    double *error = malloc(((size_t)d->benches + 1) * sizeof *error);
    if (!error) return false;
    for (int pass = 0; pass < 2; pass++) {
        int n = 0;
        for (int i = 0; i < d->benches; i++) {
            const report_bench *b = &d->bench[i];
            if (!(b->predicted > 0 && b->median > 0)) continue;
            if (pass && strcmp(b->requested, "auto")) continue;
            error[n++] = fabs(b->predicted / b->median - 1);
        }
        *(pass ? &s->auto_predicted : &s->predicted) = n;
        *(pass ? &s->auto_error : &s->error) = median(error, n);
    }
    free(error);
    return true;
}

static void weigh_cell(const report_data *d, int first, int end, report_summary *s) {
    const report_bench *chosen = report_find(d, first, end, "auto"), *best;
    const report_bench *dense = report_find(d, first, end, "dense");
    double ratio = report_auto_ratio(d, first, end, &best);
    if (isfinite(ratio) && ratio > 0) {
        s->auto_mean += log(ratio);
        s->auto_within += ratio <= 1.05;
        if (!s->auto_cells++ || ratio > s->auto_worst) {
            s->auto_worst = ratio;
            s->auto_worst_at = chosen;
            s->auto_worst_best = best;
        }
    }
    if (chosen && dense && dense->median > 0 && dense->value_bits == chosen->value_bits) {
        double over = chosen->median / dense->median;
        if (!s->dense_cells++ || over > s->dense_worst) {
            s->dense_worst = over;
            s->dense_worst_at = chosen;
        }
    }
    if (chosen && chosen->speedup < 1) {
        s->lost++;
        if (!s->lost_at || chosen->speedup < s->lost_at->speedup) s->lost_at = chosen;
    }
}

/* Half of the repetitions lie between the quartiles: a median of such a spread says little. */
static void weigh_spread(const report_bench *b, report_summary *s) {
    const double wide = 0.5;
    double apart = (b->p75 - b->p25) / b->median;
    if (!isfinite(apart) || !(b->p25 > 0)) return;
    s->spreads++;
    s->wide += apart > wide;
    if (s->widest_at && apart <= s->widest) return;
    s->widest = apart;
    s->widest_at = b;
}

bool report_summarise(const report_data *d, report_summary *s) {
    memset(s, 0, sizeof *s);
    s->cases = d->benches;
    for (int first = 0, end; first < d->benches; first = end) {
        end = report_cell_end(d, first);
        s->cells++;
        for (int i = first; i < end; i++) {
            const report_bench *b = &d->bench[i];
            s->incorrect += b->incorrect;
            weigh_spread(b, s);
            if (b->incorrect || !strcmp(b->requested, "mpi") || !(b->speedup > 0)) continue;
            if (!s->best || b->speedup > s->best->speedup) s->best = b;
        }
        weigh_cell(d, first, end, s);
    }
    if (s->auto_cells) s->auto_mean = exp(s->auto_mean / s->auto_cells);
    return prediction_errors(d, s);
}

report_run report_run_at(const report_data *d, int run) {
    report_run r = {.first = -1};
    for (int i = 0; i < d->epochs; i++) {
        const report_epoch *e = &d->epoch[i];
        if (e->run != run) continue;
        if (r.first < 0) r.first = i;
        r.end = i + 1;
        r.seconds += e->seconds;
        r.comm_seconds += e->comm_seconds;
        r.sent += e->sent;
        r.last = e;
    }
    return r;
}

int report_slowest_run(const report_data *d) {
    int slowest = -1;
    double most = 0;
    for (int i = 0; d->runs.n > 1 && i < d->runs.n; i++) {
        report_run r = report_run_at(d, i);
        double each = r.seconds / (r.end - r.first);
        if (each > most) {
            most = each;
            slowest = i;
        }
    }
    return slowest;
}

/* ---- sentences ----------------------------------------------------------------------------- */

/* Adds to a line, as far as there is room. */
__attribute__((format(printf, 2, 3))) static void append(char *line, const char *format, ...) {
    size_t used = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, REPORT_LINE - used, format, arguments);
    va_end(arguments);
}

/* "auto: ring, elias_fano". */
static void choice(const report_bench *b, char *text, size_t size) {
    bool chosen = strcmp(b->requested, b->algorithm) != 0;
    snprintf(text, size, "%s%s%s%s%s%s", b->label, chosen || *b->codec ? " (" : "",
             chosen ? b->algorithm : "", chosen && *b->codec ? ", " : "", b->codec,
             chosen || *b->codec ? ")" : "");
}

static int bench_words(const report_summary *s, char (*line)[REPORT_LINE], int most) {
    char at[288], what[160], time[48], base[48], ratio[TABLE_CELL];
    int n = 0;
    if (most < 8 || !s->cases) return 0;
    snprintf(line[n], REPORT_LINE, "%d result%s of %d setting%s; ", s->cases,
             s->cases == 1 ? "" : "s", s->cells, s->cells == 1 ? "" : "s");
    if (s->incorrect) append(line[n++], "%d INCORRECT.", s->incorrect);
    else append(line[n++], "none is marked incorrect.");
    if (s->wide) {
        exactly(s->widest_at, at, sizeof at);
        snprintf(line[n++], REPORT_LINE,
                 "WIDE SPREAD: the quartiles of %d of %d medians are more than half the median "
                 "apart, most of %s at %s: %.1fx. Measure these again, with more repetitions or "
                 "on a machine that does nothing else.",
                 s->wide, s->spreads, s->widest_at->label, at, s->widest);
    }
    if (s->best) {
        exactly(s->best, at, sizeof at);
        choice(s->best, what, sizeof what);
        cell_ratio(ratio, s->best->speedup);
        unit_text(UNIT_SECONDS, s->best->median, time, sizeof time);
        unit_text(UNIT_SECONDS, s->best->median * s->best->speedup, base, sizeof base);
        snprintf(line[n++], REPORT_LINE, "Best speedup over mpi: %s, %s against %s, by %s at %s.",
                 ratio, time, base, what, at);
    }
    if (s->auto_cells) {
        snprintf(line[n++], REPORT_LINE,
                 "auto against the best fixed choice, %d setting%s: %.3fx in the geometric mean, "
                 "within 5 %% in %d.",
                 s->auto_cells, s->auto_cells == 1 ? "" : "s", s->auto_mean, s->auto_within);
        exactly(s->auto_worst_at, at, sizeof at);
        if (s->auto_worst > 1.05)
            snprintf(line[n++], REPORT_LINE, "auto lost most at %s: %.2fx of %s.", at,
                     s->auto_worst, s->auto_worst_best->label);
    }
    if (s->dense_cells) {
        exactly(s->dense_worst_at, at, sizeof at);
        snprintf(line[n++], REPORT_LINE, "auto against dense: at most %.2fx, at %s.",
                 s->dense_worst, at);
    }
    if (s->lost) {
        exactly(s->lost_at, at, sizeof at);
        snprintf(line[n++], REPORT_LINE,
                 "auto took longer than mpi in %d setting%s, most at %s: %.2fx.", s->lost,
                 s->lost == 1 ? "" : "s", at, 1 / s->lost_at->speedup);
    }
    if (s->predicted) {
        snprintf(line[n], REPORT_LINE, "Predicted times: median error %.0f %% of %d results",
                 100 * s->error, s->predicted);
        if (s->auto_predicted)
            append(line[n], ", %.0f %% where auto chose (%d)", 100 * s->auto_error,
                   s->auto_predicted);
        append(line[n++], ".");
    }
    return n;
}

static void run_words(const report_data *d, int run, int slowest, char *line) {
    report_run r = report_run_at(d, run);
    int epochs = r.end - r.first;
    char seconds[48], sent[48];
    unit_text(UNIT_SECONDS, r.seconds, seconds, sizeof seconds);
    snprintf(line, REPORT_LINE, "%s: %d epoch%s in %s", d->runs.name[run], epochs,
             epochs == 1 ? "" : "s", seconds);
    if (r.comm_seconds >= 0 && r.seconds > 0)
        append(line, ", %.0f %% of it communication", 100 * r.comm_seconds / r.seconds);
    unit_text(UNIT_BYTES, r.sent, sent, sizeof sent);
    if (r.sent >= 0) append(line, "; %s sent", sent);
    if (isfinite(r.last->loss)) append(line, "; loss %.5g", r.last->loss);
    if (isfinite(r.last->accuracy)) append(line, ", accuracy %.2f %%", 100 * r.last->accuracy);
    if (slowest >= 0 && run != slowest && r.seconds > 0) {
        report_run s = report_run_at(d, slowest);
        append(line, "; an epoch is %.1fx faster than %s's",
               s.seconds / (s.end - s.first) / (r.seconds / epochs), d->runs.name[slowest]);
    }
    append(line, ".");
}

int report_words(const report_data *d, const report_summary *s, char (*line)[REPORT_LINE],
                 int most) {
    int n = bench_words(s, line, most), unknown = 0, slowest = report_slowest_run(d);
    for (int i = 0; i < d->runs.n && n < most - 3; i++)
        run_words(d, i, slowest, line[n++]);
    int reducers = (int)json_array_size(d->reducers), kernels = (int)json_array_size(d->kernels);
    if (reducers && n < most)
        snprintf(line[n++], REPORT_LINE, "%d training step%s of rill bench reducer.", reducers,
                 reducers == 1 ? "" : "s");
    if (kernels && n < most)
        snprintf(line[n++], REPORT_LINE, "%d result%s of rill bench kernels.", kernels,
                 kernels == 1 ? "" : "s");
    for (int i = 0; i < d->sources; i++)
        unknown += d->source[i].unknown;
    if (unknown && n < most)
        snprintf(line[n++], REPORT_LINE, "%d record%s of no known kind left out.", unknown,
                 unknown == 1 ? " was" : "s were");
    return n;
}

/* ---- terminal ------------------------------------------------------------------------------ */

enum { MOST_ROWS = 24 };

/* The fastest of each setting, and auto beside it. */
static void add_cell(const report_data *d, int first, int end, table_row *row) {
    const report_bench *b = NULL, *fixed;
    for (int i = first; i < end; i++)
        if (!d->bench[i].incorrect && (!b || d->bench[i].median < b->median)) b = &d->bench[i];
    if (!b) b = &d->bench[first];
    snprintf(row->cell[0], TABLE_CELL, "%.22s%s", b->label, b->incorrect ? " (WRONG)" : "");
    cell_count(row->cell[1], (uint64_t)b->ranks);
    cell_count(row->cell[2], (uint64_t)b->hosts);
    cell_count(row->cell[3], (uint64_t)b->dim);
    snprintf(row->cell[4], TABLE_CELL, "%.4g %%", 100 * b->density);
    cell_time(row->cell[5], b->median);
    cell_ratio(row->cell[6], b->speedup);
    cell_ratio(row->cell[7], report_auto_ratio(d, first, end, &fixed));
    snprintf(row->cell[8], TABLE_CELL, "%.31s", b->set);
}

static void print_cells(const report_data *d, const report_summary *s) {
    table t = {.columns = 8,
               .left = 1,
               .head = {"fastest", "ranks", "hosts", "dim", "density", "median", "speedup",
                        "auto / best", "set"}};
    for (int i = 0; i < d->benches; i++)
        if (*d->bench[i].set) t.columns = 9;
    for (int first = 0, end; first < d->benches && t.rows < MOST_ROWS; first = end) {
        end = report_cell_end(d, first);
        table_row *row = table_add(&t);
        if (!row) break;
        add_cell(d, first, end, row);
    }
    char *text = NULL;
    size_t size = 0;
    FILE *buffer = open_memstream(&text, &size);
    if (buffer) {
        table_print(&t, buffer);
        if (s->cells > t.rows) fprintf(buffer, "... and %d more in the page\n", s->cells - t.rows);
        fclose(buffer);
        char *end;
        for (char *line = text; line && (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            plain_text(stdout, line);
            putchar('\n');
        }
        free(text);
    }
    table_free(&t);
}

void report_terminal(const report_data *d, const report_summary *s) {
    enum { MOST = 64 };
    static char line[MOST][REPORT_LINE];
    int n = report_words(d, s, line, MOST);
    for (int i = 0; i < n; i++) {
        plain_text(stdout, line[i]);
        putchar('\n');
    }
    if (!s->cells) return;
    putchar('\n');
    print_cells(d, s);
}
