/* rill bench, inside: what is asked for (config), where it runs (world), what goes in (input), and
 * one measured way to do it (case). The way of a run:
 *
 *   bench_options  -> config      bench_input   -> supports, values, the input stream
 *   bench_case     -> what runs   bench_oracle  -> dense check of every result
 *   bench_group    -> verify, warm up, time all cases of one (dim, density) in turns
 *   bench_report   -> table and JSON
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_BENCH_H
#define RILL_TOOL_BENCH_H

#include "parse.h"
#include "table.h"
#include "tool.h"
#include "tool_output.h"
#include "world.h"

#include <rill/rill.h>
#include <stdbool.h>
#include <stdint.h>

enum { ROOT = 0 };

typedef enum bench_overlap {
    OVERLAP_UNIFORM,
    OVERLAP_NONE,
    OVERLAP_FULL,
    OVERLAP_ZIPF,
    OVERLAP_CLUSTERED
} bench_overlap;
typedef enum bench_mode { MODE_BLOCKING, MODE_NONBLOCKING, MODE_PERSISTENT } bench_mode;
typedef enum bench_form { FORM_AUTO, FORM_SPARSE, FORM_DENSE, FORM_BLOCK } bench_form;
typedef enum bench_operation {
    OPERATION_SUM,
    OPERATION_MIN,
    OPERATION_MAX,
    OPERATION_PROD
} bench_operation;

extern const char *const bench_overlap_names[]; /* NULL-terminated, by enum value; likewise: */
extern const char *const bench_mode_names[];
extern const char *const bench_form_names[];
extern const char *const bench_operation_names[];
extern const char *const bench_type_names[]; /* by rill_type */

/* An algorithm or codec to run; from_all: because of "all", so that it may be unsupported. */
typedef struct bench_choice {
    char *name;
    bool from_all;
} bench_choice;

typedef struct bench_choices {
    int n;
    bench_choice *item;
} bench_choices;

typedef struct bench_config {
    world_options where;
    rill_collective collective;
    rill_type type;
    bench_operation operation;
    bench_overlap overlap;
    bench_mode mode;
    bench_form form;
    int dims, densities, nnzs, bits;
    uint64_t *dim;
    double *density;
    uint64_t *nnz; /* per rank, instead of densities */
    int *value_bits;
    bench_choices algorithms, codecs, partitions;
    uint64_t expected_nnz, seed;
    uint64_t block; /* supports are of whole blocks, and the library is told; 0: not given */
    int reps, warmup;
    bool baseline, tune_malloc, interleave, quiet;
    bool overlap_given;
    const char *json_path, *dump_prefix;
} bench_config;

/* Why there is no baseline. */
const char *bench_why_no_mpi(void);

/* Returns EXIT_OK, or the status to leave with after the message. *help: only help is wanted. */
int bench_options(int argc, char **argv, bench_config *, bool *help);
void bench_config_free(bench_config *);

typedef struct bench_world {
    const tool_world *all;
    int rank, size, hosts, ranks_per_host;
    uint64_t memory; /* bytes available on the host that has least */
    bool malloc_tuned;
    char cpu[96], date[32];
} bench_world;

/* ---- input: bench_input.c ------------------------------------------------------------------ */

typedef struct bench_input {
    uint64_t dim, nnz;   /* nnz of this rank */
    double density;      /* as asked for */
    uint64_t *index;     /* sorted, unique */
    void *value;         /* of the type; exactly summable, see bench_values.c */
    rill_stream *stream; /* the same as a stream */
} bench_input;

bench_form bench_form_of(const rill_stream *);

/* On failure returns false with a message in error. Local, not collective. */
bool bench_input_make(const bench_config *, const bench_world *, uint64_t dim, double density,
                      uint64_t nnz, bench_input *, char *error, size_t size);
void bench_input_free(bench_input *);

/* ---- values: bench_values.c ---------------------------------------------------------------- */

/* What rank contributes at index. Sums, products and so on over all ranks are exact in type. */
double bench_value(rill_type, bench_operation, int ranks, int rank, uint64_t index, uint64_t seed);
/* The largest magnitude that a result may have. */
double bench_value_bound(rill_type, bench_operation, int ranks);
double bench_neutral(bench_operation);
const rill_op *bench_rill_op(bench_operation);

void bench_store(rill_type, void *array, uint64_t i, double value);
void bench_fill(rill_type, void *array, uint64_t n, double value);
void bench_to_double(rill_type, const void *array, uint64_t n, double *out);

/* ---- cases: bench_case.c ------------------------------------------------------------------- */

typedef enum bench_state { CASE_READY, CASE_UNSUPPORTED, CASE_FAILED } bench_state;

typedef struct bench_mpi bench_mpi; /* bench_mpi.h */

typedef struct bench_case {
    const char *requested, *codec, *partition; /* as asked for; NULL: not given */
    int value_bits;
    bool is_mpi, may_be_unsupported;
    bench_state state;
    char detail[320]; /* why it is not ready, or what was wrong */
    bool checked, correct;

    rill_comm *comm; /* one per case: neither failures nor statistics cross over */
    rill_stream *out;
    rill_request *request;
    uint64_t first, count; /* reduce_scatter: this rank's range */
    void *send, *receive;  /* mpi */
    bench_mpi *mpi;

    rill_stats stats; /* of this rank's last run */
    double *times;    /* per repetition; of this rank, then of the slowest */

    /* Over all ranks, once measured. */
    double median, p25, p75, predicted;
    uint64_t sent, received, messages, rounds, nnz_in, nnz_out;
    bench_form out_form; /* FORM_SPARSE, FORM_BLOCK; FORM_DENSE if it is dense on a rank */
} bench_case;

/* All cases of a group. *n = 0 and a message in error on failure. Collective. */
bench_case *bench_cases_make(const bench_config *, const bench_world *, const bench_input *, int *n,
                             char *error, size_t size);
void bench_cases_free(bench_case *, int n);

/* One call of the collective, with the time it took on this rank. Collective. */
rill_status bench_case_run(const bench_config *, const bench_world *, const bench_input *,
                           bench_case *, double *seconds);

/* ---- oracle: bench_oracle.c ---------------------------------------------------------------- */

/* Compares the result of every ready case with a dense reduction of the inputs: sets checked,
 * correct, and detail where it differs. Collective. False when out of memory. */
bool bench_oracle(const bench_config *, const bench_world *, const bench_input *, bench_case *,
                  int n);

/* The text of the lowest rank that is not ok, on all ranks; returns whether all are ok. */
bool bench_agree(const bench_world *, bool ok, char *text, size_t size);

/* ---- groups: bench_group.c ----------------------------------------------------------------- */

/* Runs, checks and times all cases. Collective. False: could not go on; says why. */
bool bench_group_run(const bench_config *, const bench_world *, const bench_input *, bench_case *,
                     int n, const char *label);
/* A line on the terminal, now and then; NULL wipes it off. */
void bench_progress(const bench_config *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Linear interpolation between order statistics; sorts. */
double bench_quantile(double *values, int n, double q);

/* ---- report: bench_report.c ---------------------------------------------------------------- */

void bench_report_head(const bench_config *, const bench_world *, FILE *);
void bench_report_group(const bench_config *, const bench_input *, const bench_case *, int n,
                        uint64_t nnz_in, FILE *);
/* Failures have been reported. */
bool bench_report_json(const bench_config *, const bench_world *, const bench_input *,
                       const bench_case *, int n, tool_records *);

#endif
