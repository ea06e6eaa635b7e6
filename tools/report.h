/* rill report: what its files share.
 *
 * Files become records (report_read.c), records become cells with speedups and bounds
 * (report_cells.c) and sentences (report_words.c). A section writes itself as HTML: report_bench.c,
 * report_train.c, report_steps.c; with plots of report_plot.c and report_bars.c. report_page.c puts
 * the page together.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_REPORT_H
#define RILL_TOOL_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { REPORT_LABEL = 64, REPORT_LINE = 640 };

typedef struct report_source {
    const char *path;
    char name[REPORT_LABEL]; /* as it is shown: the user's, or made from the path */
    bool named;              /* by the user: NAME=FILE */
    int bench, reducers, kernels, epochs, unknown;
    const char *first_date, *last_date, *commit, *cpu, *mpi_library; /* NULL: not said */
    bool commits_differ;
} report_source;

/* One result of rill bench. Numbers that are not there are NAN, texts "". */
typedef struct report_bench {
    int source, order; /* order: as it was read */
    const char *requested, *algorithm, *codec, *collective, *op, *overlap, *partition, *detail;
    int value_bits, ranks, hosts;
    double value_width; /* bits of a value in messages */
    double dim, density, nnz_in, median, p25, p75, predicted, sent;
    double speedup;           /* over the baseline of the same cell */
    double bound;             /* bytes the busiest rank has to send, see report_bound */
    bool incorrect, modelled; /* modelled: the traffic was not counted */
    int style;                /* of its series, in report_data.series */
    char label[REPORT_LABEL]; /* of its series: "auto 4 bit" */
    char set[REPORT_LABEL];   /* which network or file, where that matters */
    char context[96];         /* "allreduce sum of f32, overlap uniform" */
} report_bench;

typedef struct report_epoch {
    int source, run;
    double epoch, loss, accuracy, auc, seconds, comm_seconds, sent;
    json_t *json;
} report_epoch;

typedef struct report_names {
    int n, capacity;
    char (*name)[REPORT_LABEL];
} report_names;

typedef struct report_data {
    int sources;
    report_source *source;
    json_t *kept; /* every value that was read: texts point into it */
    int benches, bench_capacity;
    report_bench *bench; /* sorted by cell once report_cells has run */
    int epochs, epoch_capacity;
    report_epoch *epoch;
    json_t *reducers, *kernels; /* arrays */
    report_names series;        /* of bench: 0 is mpi, 1 is auto */
    report_names runs;          /* of train */
} report_data;

/* ---- reading: false after a message that names file and line --------------------------------- */
bool report_read(report_data *, int words, const char *const *word);
void report_free(report_data *);
double report_number(const json_t *object, const char *key);    /* or NAN */
const char *report_text(const json_t *object, const char *key); /* or "" */
int report_name(report_names *, const char *name);              /* its number, added; -1: memory */

/* ---- cells: results that answer the same question -------------------------------------------- */
/* Sorts, names sets and series, fills speedups and bounds. False when out of memory. */
bool report_cells(report_data *);
/* The end of the range of results from first on in the same panel (set, context, ranks, hosts,
 * dim), or cell (also density). */
int report_panel_end(const report_data *, int first);
int report_cell_end(const report_data *, int first);
const report_bench *report_find(const report_data *, int first, int end, const char *requested);
/* log2 C(n, k) / 8 + k bits / 8: bytes for k of n entries, when every support is as likely. */
double report_bound(double n, double k, double bits);

/* ---- sentences ---------------------------------------------------------------------------- */
typedef struct report_summary {
    int cells, cases, incorrect;
    const report_bench *best;
    int auto_cells,
        auto_within; /* with fixed choices beside auto; within 5 % of the best of them */
    double auto_mean, auto_worst; /* auto over best fixed: geometric mean, maximum */
    const report_bench *auto_worst_at, *auto_worst_best;
    int dense_cells; /* with auto and dense */
    double dense_worst;
    const report_bench *dense_worst_at;
    int lost; /* cells where auto took longer than mpi */
    const report_bench *lost_at;
    int predicted, auto_predicted;
    double error, auto_error; /* median of |predicted / measured - 1| */
    int spreads, wide;        /* results with quartiles; and with such that are wide apart */
    double widest;            /* their distance, as a share of the median, */
    const report_bench *widest_at;
} report_summary;

/* False when out of memory. */
bool report_summarise(const report_data *, report_summary *);
/* auto's time over that of the best fixed choice in the cell, and that choice; NAN unless there was
 * a choice of two or more. */
double report_auto_ratio(const report_data *, int first, int end, const report_bench **best);
/* Sentences, one a line; how many. */
int report_words(const report_data *, const report_summary *, char (*line)[REPORT_LINE], int most);
void report_terminal(const report_data *, const report_summary *);
/* "8 ranks on 1 host, N = 16,777,216", and the set if there are several. */
void report_where(const report_bench *, char *text, size_t size);

typedef struct report_run {
    int first, end; /* in report_data.epoch */
    double seconds, comm_seconds, sent;
    const report_epoch *last;
} report_run;
report_run report_run_at(const report_data *, int run);
/* The run by whose time the others are measured: the slowest per epoch; -1 with fewer than two. */
int report_slowest_run(const report_data *);

/* ---- page ---------------------------------------------------------------------------------- */
/* False after a message. */
bool report_write(const report_data *, const report_summary *, const char *title, const char *path);
bool report_section_bench(const report_data *, const report_summary *, FILE *);
bool report_section_train(const report_data *, FILE *);
bool report_section_steps(const report_data *, FILE *);
extern const char report_css[], report_js[];

#endif
