/* rill/train.h: training on sparse data, on top of rill.h and of nothing else. Its functions are in
 * librill_train.
 *
 * This part: data. A data set is a matrix of sparse rows with one label each, in CSR form, of which
 * every rank has a part. It comes from LIBSVM/svmlight text (plain, gz, xz or zstd) or from the
 * binary form that rill_data_convert writes.
 *
 * As in rill.h every fallible call returns a rill_status, and rill_last_error() has the detail.
 * Whatever is wrong with a file is RILL_ERR_IO, with the file, the line and the token in the
 * detail.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TRAIN_H
#define RILL_TRAIN_H

#include "rill.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- data sets ------------------------------------------------------------------------------ */

typedef struct rill_dataset rill_dataset;

typedef struct rill_data_options {
    size_t size;
    int base;            /* index of the first feature in text: 0 or 1; -1: see below */
    uint64_t dim;        /* least dimension; 0: what the data needs */
    uint64_t read_bytes; /* read buffer of a rank; 0: 4 MiB */
    /* This and what follows is of rill_dataset_load_files_on alone. Not 0: rows are kept in files
     * without a name that are mapped, so that they are page cache, and not memory: data may be
     * larger than memory. They are in this folder, by default that of the first file, or TMPDIR if
     * that is a pipe. */
    int stream;
    const char *folder;
    int hash_bits; /* above 0: as rill_dataset_hash, which data in files do not take later */
    uint64_t hash_seed;
    int normalize; /* not 0: as rill_dataset_normalize */
} rill_data_options;
#define RILL_DATA_OPTIONS_INIT                                                                     \
    { sizeof(rill_data_options), -1, 0, 0, 0, NULL, 0, 0, 0 }

/* What was met on the way; counts are over all ranks, memory is of this rank. */
typedef struct rill_data_report {
    size_t size;
    const char *format; /* "text", "gz", "xz", "zstd" or "binary" */
    uint64_t file_bytes;
    uint64_t lines;         /* of text, all kinds */
    uint64_t blank_lines;   /* skipped: empty, or a comment alone */
    uint64_t rows, entries; /* entries: stored non-zeros, explicit zeros included */
    uint64_t qids;          /* rows with a query, "qid:" in text */
    uint64_t unsorted_rows; /* whose indices had to be sorted */
    uint64_t duplicates;    /* entries added to an earlier one of the same row and index */
    int base;               /* as given or found */
    uint64_t memory_bytes;  /* held by the data set of this rank */
    uint64_t mapped_bytes;  /* used in place in the mapped file: page cache, not memory of ours */
    uint64_t peak_bytes;    /* most that loading held at once on this rank, mapping not counted */
    double seconds;         /* of the slowest rank */
} rill_data_report;
#define RILL_DATA_REPORT_INIT                                                                      \
    { sizeof(rill_data_report), "", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0 }

/* Reads this rank's part of a file. Collective: a failure anywhere is the same status and the same
 * detail on all ranks, with the line counted over all of them.
 *
 * Text. Rank r of P has the byte range [r S/P, (r+1) S/P) of the S bytes and owns the lines that
 * start in it. A compressed file is read by every rank up to the end of its part, which is then a
 * range of the compressed bytes; nobody holds more than a buffer and its own rows. Each line is
 *     label [qid:number] index:value index:value ... [# comment]
 * A query's number is kept for who asks (rill_data_view): training itself only keeps the rows of a
 * query together where rows are held out. Blanks are spaces, tabs and CR; empty lines, lines with
 * only a comment, a missing last newline and a UTF-8 mark at the start are fine, and so are rows
 * without features. Labels and values are decimal numbers, rounded to nearest (values to float,
 * labels to double); NaN, Inf and values that overflow are errors. Indices are below 2^63.
 * Unsorted indices are sorted; of equal ones the values are added, in the order given. base -1: if
 * index 0 occurs on any rank the first feature is 0, else 1.
 *
 * Binary. Rank r has the rows [r R/P, (r+1) R/P). Values are used in the mapped file, which must
 * therefore stay as it is while the data set lives; the options' base has no effect. */
RILL_API rill_status rill_dataset_load_on(rill_comm *, const char *path,
                                          const rill_data_options *or_null, rill_dataset **out);
#ifndef RILL_NO_MPI
RILL_API rill_status rill_dataset_load(MPI_Comm, const char *path, const rill_data_options *or_null,
                                       rill_dataset **out);
#endif
/* Several files, as if they were one: text, compressed or binary. Rank r of P has the range [r S/P,
 * (r+1) S/P) of all their bytes. With one rank "-" is standard input, and a FIFO is read, too: both
 * are copied to a file first. Where features are hashed and base is -1 index 0 must occur in the
 * first buffer, if at all. A binary file has a base of its own; if one is given it must be that.
 * Collective. */
RILL_API rill_status rill_dataset_load_files_on(rill_comm *, const char *const *paths, int n,
                                                const rill_data_options *or_null,
                                                rill_dataset **out);
RILL_API rill_status rill_dataset_free(rill_dataset **); /* NULL and pointer to NULL are fine */
RILL_API rill_status rill_dataset_report(const rill_dataset *, rill_data_report *);

/* The rows of this rank. Row i has the entries row[i] to row[i + 1] of index and value, indices
 * strictly ascending from 0. index32 is NULL for dim > 2^32, and index64 otherwise. Arrays live
 * until the data set is changed or freed, and can be read RILL_SLACK bytes past their end. */
typedef struct rill_data_view {
    size_t size;
    uint64_t dim;
    uint64_t rows, entries;         /* of this rank */
    uint64_t first_row, total_rows; /* rows of lower ranks; of all ranks */
    const uint64_t *row;            /* rows + 1 */
    const uint32_t *index32;
    const uint64_t *index64;
    const float *value;
    const double *label;
    const int64_t *qid;  /* query of each row, or RILL_NO_QID; NULL: no row of this rank has one */
    const float *weight; /* of each row, see rill_dataset_set_weights; NULL: all 1 */
} rill_data_view;
#define RILL_NO_QID INT64_MIN
#define RILL_DATA_VIEW_INIT                                                                        \
    { sizeof(rill_data_view), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL }
RILL_API rill_status rill_dataset_view(const rill_dataset *, rill_data_view *);

/* A data set from arrays, which are checked and copied. dim is the least dimension; entries,
 * first_row and total_rows are not read. index32 or index64 may be given. Collective. */
RILL_API rill_status rill_dataset_create_on(rill_comm *, const rill_data_view *,
                                            rill_dataset **out);
#ifndef RILL_NO_MPI
RILL_API rill_status rill_dataset_create(MPI_Comm, const rill_data_view *, rill_dataset **out);
#endif

/* What rows count: numbers of at least 0, that each row's loss is multiplied by in training. Of
 * this rank's rows, and copied; NULL: all count 1 again. Local, but all ranks must do so. */
RILL_API rill_status rill_dataset_set_weights(rill_dataset *, const double *of_each_row);
/* The same from a file, plain or compressed: a number a line, for each row of the data set of all
 * ranks. Collective: a failure anywhere is everybody's. */
RILL_API rill_status rill_dataset_load_weights_on(rill_comm *, rill_dataset *, const char *path);

/* The following are local; all ranks make the same calls. */

/* Feature j goes to bucket h(j) of 2^bits (1 to 32), times a sign that h gives as well, which keeps
 * inner products unbiased; entries that meet are added. dim becomes 2^bits. (Weinberger et al.,
 * Feature Hashing for Large Scale Multitask Learning, 2009.) */
RILL_API rill_status rill_dataset_hash(rill_dataset *, int bits, uint64_t seed);
/* Scales each row to Euclidean norm 1; rows of norm 0 stay. */
RILL_API rill_status rill_dataset_normalize(rill_dataset *);
/* Drops the features at and above dim, such as those that a model does not know. *dropped (or NULL)
 * gets the entries that went. */
RILL_API rill_status rill_dataset_clip(rill_dataset *, uint64_t dim, uint64_t *dropped);

/* Whether a row is held out for validation, by the number of the row in the file: the same rows
 * whatever the number of ranks. fraction in [0, 1]. Of rows with a query, by the query's number
 * instead, so that they stay together. */
RILL_API int rill_row_is_held_out(uint64_t global_row, double fraction, uint64_t seed);
/* The rows of this rank, as numbers from 0, in two lists; both arrays have room for all rows.
 * held_out may be NULL when fraction is 0. */
RILL_API rill_status rill_dataset_split(const rill_dataset *, double fraction, uint64_t seed,
                                        uint64_t *train, uint64_t *train_rows, uint64_t *held_out,
                                        uint64_t *held_out_rows);
/* The rows of this rank, as numbers from 0, in one of so many parts (2 or more) of about the same
 * size: fold is from 0. The same rows whatever the number of ranks, and rows of a query in one
 * part. list has room for all rows. */
RILL_API rill_status rill_dataset_fold(const rill_dataset *, int fold, int folds, uint64_t seed,
                                       uint64_t *list, uint64_t *n);
/* Puts the list in the order of an epoch: a permutation by seed, epoch and first row of this part.
 * The result depends on the order that the list comes in: start each epoch from the same. */
RILL_API rill_status rill_dataset_shuffle(const rill_dataset *, uint64_t seed, uint64_t epoch,
                                          uint64_t *list, uint64_t n);

/* ---- files ---------------------------------------------------------------------------------- */

/* Called now and then with how far it is; total 0: unknown. Not 0 stops the call with
 * RILL_ERR_STATE. */
typedef int rill_data_progress(void *context, uint64_t done, uint64_t total);

typedef struct rill_convert_options {
    size_t size;
    int binary; /* 1: write binary, 0: text, -1: the other one of what the input is */
    int base;   /* as in rill_data_options */
    rill_data_progress *progress;
    void *context;
} rill_convert_options;
#define RILL_CONVERT_OPTIONS_INIT                                                                  \
    { sizeof(rill_convert_options), -1, -1, NULL, NULL }

/* Rewrites a file in the other form, in one pass and bounded memory; not collective. Values and
 * labels keep their bits. The output appears under its name when it is complete. The report's
 * memory figures are peak_bytes only; *out_bytes (or NULL) gets the size of the output. */
RILL_API rill_status rill_data_convert(const char *in, const char *out,
                                       const rill_convert_options *or_null,
                                       rill_data_report *report_or_null, uint64_t *out_bytes);

typedef struct rill_generate_options {
    size_t size;
    const char *shape; /* "url" or "webspam": a name from rill_generate_shape_at */
    uint64_t samples, seed;
    int binary;                   /* 0: text */
    int threads;                  /* 0: one per core, at most 16; the bytes do not depend on it */
    rill_data_progress *progress; /* in rows */
    void *context;
} rill_generate_options;
#define RILL_GENERATE_OPTIONS_INIT                                                                 \
    { sizeof(rill_generate_options), NULL, 0, 1, 0, 0, NULL, NULL }

typedef struct rill_generate_report {
    size_t size;
    uint64_t dim, rows, entries, bytes;
    uint64_t positive;      /* rows with label +1 */
    uint64_t distinct_1000; /* features in the first 1,000 rows, 0 if there are fewer rows */
    uint64_t distinct_8000; /* the same of 8,000 */
} rill_generate_report;
#define RILL_GENERATE_REPORT_INIT                                                                  \
    { sizeof(rill_generate_report), 0, 0, 0, 0, 0, 0, 0 }

/* Writes data in the shape of a published set, from a counter-based generator: the same bytes for
 * the same shape, samples and seed, and n samples are the first n of more. Path "-": standard
 * output, for text. Not collective. */
RILL_API rill_status rill_data_generate(const char *path, const rill_generate_options *,
                                        rill_generate_report *or_null);
/* The i-th shape: NULL past the end. */
RILL_API const char *rill_generate_shape_at(int i, const char **description);

/* ---- models --------------------------------------------------------------------------------- */

/* A linear model: one column of weights for two classes and for regression, else one per class. */
typedef struct rill_model rill_model;

typedef struct rill_model_view {
    size_t size;
    const char *solver_type; /* LIBLINEAR's name, such as "L2R_LR" */
    int regression;          /* the decision value is the prediction; there are no labels */
    int probability;         /* decision values give probabilities: logistic, or calibrated */
    uint64_t features;
    int columns;         /* of weights */
    int labels;          /* 2 with one column, else as many as columns; 0 in regression */
    const double *label; /* with one column a decision value above 0 means label[0] */
    double bias;         /* value of one more feature of every row; below 0: there is none */
    const double
        *weight; /* weight[feature * columns + column]; last the bias, where there is one */
} rill_model_view;
#define RILL_MODEL_VIEW_INIT                                                                       \
    { sizeof(rill_model_view), "", 0, 0, 0, 0, 0, NULL, 0.0, NULL }

/* LIBLINEAR's text format, read and written; weights keep their bits. The file appears under its
 * name when it is complete; a device or a FIFO is written into. Neither is collective. */
RILL_API rill_status rill_model_load(const char *path, rill_model **out);
RILL_API rill_status rill_model_save(const rill_model *, const char *path);
RILL_API rill_status rill_model_free(rill_model **);
RILL_API rill_status rill_model_look(const rill_model *, rill_model_view *);

/* How a model was made. Files of LIBLINEAR do not say: loss is "" then. Lines behind the weights,
 * where LIBLINEAR does not read, keep it in ours. A trainer's model has all of it but hash, base,
 * normalize, entries and checksum, which only who prepared the data knows. */
typedef struct rill_model_about {
    size_t size;
    const char *loss, *scale; /* names as in rill_train_options, as long as the model */
    const char *multiclass;   /* "softmax", "ovr", "" */
    double C;
    int intercept;
    int hash_bits; /* 0: features were not hashed */
    uint64_t hash_seed;
    int normalize;
    uint64_t rows, entries; /* trained on; of the data */
    uint64_t checksum;      /* of the data: rill_dataset_checksum */
    double huber_delta;     /* 0: another loss */
    int base;               /* index of the first feature in text: 0 or 1; -1: unknown */
} rill_model_about;
#define RILL_MODEL_ABOUT_INIT                                                                      \
    { sizeof(rill_model_about), "", "", "", 0.0, 0, 0, 0, 0, 0, 0, 0, 0.0, -1 }
RILL_API rill_status rill_model_get_about(const rill_model *, rill_model_about *);
RILL_API rill_status rill_model_set_about(rill_model *, const rill_model_about *);
/* Of this rank's rows, by their numbers in the file: the sum over the ranks, modulo 2^64, does not
 * depend on their number. Local. */
RILL_API rill_status rill_dataset_checksum(const rill_dataset *, uint64_t *out);

/* Of this rank's rows: columns decision values each, and the predicted labels (either may be NULL).
 * Features that the model does not know count as 0. Local. */
RILL_API rill_status rill_model_predict(const rill_model *, const rill_dataset *, double *decision,
                                        double *predicted);
/* Probabilities of the labels, in their order, from the decision values of a row. */
RILL_API rill_status rill_model_probabilities(const rill_model *, const double *decision,
                                              double *probability);

/* Makes decision values give probabilities, by Platt's sigmoids: the most likely ones for these
 * rows' labels. decision has those of this rank's rows, columns each, of models that have not seen
 * them (rows of other folds). Collective. */
RILL_API rill_status rill_model_calibrate_on(rill_comm *, rill_model *, const rill_dataset *,
                                             const double *decision);

typedef struct rill_metrics {
    size_t size;
    uint64_t rows;
    double accuracy; /* share of right labels; NaN in regression */
    double auc;      /* area under the ROC curve of label[0]; NaN unless there are two classes */
    double mse;      /* mean squared error; NaN in classification */
    double log_loss; /* mean of -log of the label's probability; NaN if there are none */
    double r2;       /* 1 - mse / variance of the targets; NaN in classification */
    uint64_t
        unknown_rows; /* whose label the model does not know: they are wrong, and have no loss */
    double unknown_label; /* the lowest of these */
} rill_metrics;
#define RILL_METRICS_INIT                                                                          \
    { sizeof(rill_metrics), 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0 }
/* Over the rows of all ranks; the same on all of them. Collective. */
RILL_API rill_status rill_model_evaluate_on(rill_comm *, const rill_model *, const rill_dataset *,
                                            rill_metrics *);
#ifndef RILL_NO_MPI
RILL_API rill_status rill_model_evaluate(MPI_Comm, const rill_model *, const rill_dataset *,
                                         rill_metrics *);
#endif

/* ---- training ------------------------------------------------------------------------------- */

/* Minimises  C sum_i c_i loss(y_i, w x_i) + l2/2 |w|^2 + l1 |w|_1  over the rows of all ranks; c_i
 * is the weight of the row's class. With l2 = 1 and l1 = 0 this is LIBLINEAR's objective. Every
 * rank has all of the weights and its own rows. With more than two labels the logistic loss is the
 * cross entropy of the softmax of the classes' decision values; other losses, and "ovr", have one
 * problem per class, against the rest: objective and loss are their sums then. */
typedef struct rill_train_options {
    size_t size;
    const char *loss;   /* a name from rill_loss_at; NULL: "logistic", in regression "squared" */
    const char *solver; /* a name from rill_solver_at; "auto": see rill_trainer_look; NULL: "sgd" */
    /* "classify", "regress"; NULL: regress under the loss "squared" with more than two different
     * labels, and where loss is NULL, too, and the labels look like numbers: some have a fraction,
     * or there are more than 30, with fewer than 5 rows each or with about as many rows as their
     * neighbours, where not all have; else classify. */
    const char *task;
    double C, l2, l1;
    double bias; /* value of one more feature of every row; below 0: none. See intercept */
    const char *class_weights; /* "balanced", or "label:weight,..."; NULL: all 1 */
    double valid_fraction; /* share of the rows to hold out, if there is no other validation set */
    uint64_t seed;

    /* sgd */
    const char *optimizer; /* "plain", "momentum", "adagrad"; NULL: "adagrad" */
    const char *schedule;  /* "constant", "1/t", "step", "bold-driver"; NULL: "1/t" */
    double lr;             /* learning rate; 0: with adagrad 0.5, else worked out from the data */
    /* "1/t": lr / (1 + decay * epochs done so far, with their fraction). Below 0: 0.25, and
     * rill_trainer_choose_C looks for a better one. */
    double decay;
    double step_factor; /* "step": factor of every step_epochs epochs */
    uint64_t step_epochs;
    double momentum;
    uint64_t
        batch; /* rows of a rank in a step; 0: rows of all ranks / ranks / 250, from 1 to 100 */
    /* Steps between two averages of the ranks' models, of adagrad or plain; 0: sum each gradient.
     * RILL_STEPS_AUTO, with adagrad and batch 0: by the network, which may set the batch, too. */
    uint64_t local_steps;
    int staleness; /* the sum of step t is applied in step t + staleness; 0: at once */

    /* what travels: the gradient's exact sum, or what a reducer makes of it */
    const char *algorithm; /* of the sum ("dense" is MPI's way), or of the reducer "topk" */
    const char *codec;
    const char *reducer; /* "oktopk", "gtopk", "spardl", "s2", "topk"; NULL: exact */
    double density;      /* of the reducer */
    int value_bits;      /* 0 raw, 16, 8, 4, 2 */

    uint64_t coordinates; /* scd: of a rank in a step */
    double tolerance;     /* newton: done when |gradient| is this share of the first; 0: never */

    int threads; /* of a rank; the bits of the results do not depend on it. MPI must have been
                  * started with MPI_THREAD_FUNNELED for more than one */
    int profile; /* not 0: a barrier before each exchange tells waiting for slower ranks from it */

    int intercept; /* not 0: there is a bias, 1 if it has no value, which is not regularised */
    /* What each feature is divided by: "none" (NULL), "max": its largest magnitude, "std": its
     * standard deviation. Weights and penalties are those of the scaled features, but in models. An
     * intercept makes features that are the same in all rows count nothing. "rows": each row is
     * divided by its Euclidean length instead, and so does the model with rows that it meets. */
    const char *scale;
    const char *multiclass; /* "softmax", "ovr": one against the rest; NULL: softmax with the loss
                             * "logistic", but ovr with the solver scd */
    double huber_delta; /* of the loss "huber": where squares end; 0: 2 times the median distance of
                         * the targets from their median */
    uint64_t window;    /* rows are shuffled within so many neighbours; 0: within all */
    int folds, fold;    /* above 0: holds out that one, from 0, of so many parts of the same size;
                         * instead of valid_fraction, by the seed */
    /* Called on its rank a few times a second within an epoch, with the units of work that the rank
     * has done and has to do; of newton those are products with the Hessian, and total is 0, as
     * nobody knows how many it takes. Not 0, on any rank, ends the epoch after the step on all: see
     * rill_trainer_epoch. NULL: not called.
     * In rill_trainer_choose_C: before each training, with their number so far, and total 0; not 0
     * ends that call with RILL_ERR_STATE on all ranks. */
    rill_data_progress *progress;
    void *context;
    uint64_t steps; /* newton: done after so many; 0: where the tolerance says */
} rill_train_options;
#define RILL_STEPS_AUTO UINT64_MAX
#define RILL_TRAIN_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(rill_train_options), NULL, NULL, NULL, 1.0, 1.0, 0.0, -1.0, NULL, 0.0, 1, NULL,     \
            NULL, 0.0, 0.25, 0.5, 5, 0.9, 0, 0, 0, NULL, NULL, NULL, 0.01, 0, 100, 0.0, 1, 0, 0,   \
            NULL, NULL, 0.0, 0, 0, 0, NULL, NULL, 0                                                \
    }

typedef struct rill_train_report {
    size_t size;
    uint64_t epoch;      /* done so far */
    uint64_t samples;    /* of all ranks, in this epoch */
    uint64_t steps;      /* of this epoch */
    double loss;         /* mean over the samples as they were met (sgd), or of the model reached */
    double objective;    /* of the model reached; NaN where it was not computed */
    double seconds;      /* of the slowest rank, evaluation not counted */
    double comm_seconds; /* of that, blocked in communication: mean over the ranks */
    double eval_seconds; /* of validation and objective */
    uint64_t sent_bytes; /* by all ranks, in this epoch */
    uint64_t memory_bytes; /* of this rank: weights, state and buffers, data not counted */
    double lr;             /* at the end of the epoch */
    double valid_loss;     /* NaN if there is no validation set, as the next two */
    double valid_accuracy, valid_auc;
    const char *algorithm; /* of the last exchange */
    int converged;
    double wait_seconds; /* in the barriers of a profile: mean over the ranks; part of seconds, not
                          * of comm_seconds */
    int stopped;         /* not 0: progress has ended this epoch early */
} rill_train_report;
#define RILL_TRAIN_REPORT_INIT                                                                     \
    {                                                                                              \
        sizeof(rill_train_report), 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0.0, 0.0, 0.0, "", \
            0, 0.0, 0                                                                              \
    }

/* All calls on a trainer are collective; a failure on one rank is everybody's. The data sets must
 * stay as they are while it lives. */
typedef struct rill_trainer rill_trainer;
RILL_API rill_status rill_trainer_create_on(rill_comm *, const rill_dataset *train,
                                            const rill_dataset *valid_or_null,
                                            const rill_train_options *or_null, rill_trainer **out);
#ifndef RILL_NO_MPI
RILL_API rill_status rill_trainer_create(MPI_Comm, const rill_dataset *train,
                                         const rill_dataset *valid_or_null,
                                         const rill_train_options *or_null, rill_trainer **out);
#endif
RILL_API rill_status rill_trainer_free(rill_trainer **);
/* What training does, where options have left it open. The solver "auto" is sgd with l1, with a
 * loss without curvature, and with a reducer, staleness, local steps or coded values; else newton
 * up to 30 million entries of all ranks, times classes; else hybrid. A tolerance of 0 is 1e-6
 * then, by C if that is above 1, and 1e-3 above half a million entries of all ranks, times classes.
 * Names live as long as the trainer. */
typedef struct rill_train_look {
    size_t size;
    const char *task, *loss, *solver, *scale;
    const char *multiclass; /* "softmax", "ovr"; "": two classes, or regression */
    int labels;             /* 0 in regression */
    uint64_t rows;          /* of all ranks, to train on */
    uint64_t features;      /* without the bias */
    double bias;            /* below 0: there is none */
    int intercept;
    uint64_t batch, local_steps;
} rill_train_look;
#define RILL_TRAIN_LOOK_INIT                                                                       \
    { sizeof(rill_train_look), "", "", "", "", "", 0, 0, 0, -1.0, 0, 0, 0 }
RILL_API rill_status rill_trainer_look(const rill_trainer *, rill_train_look *);
/* Before the first epoch: weights of a model of the same task, which knows all labels of the data
 * and has no more features. The hybrid leaves out its passes then. */
RILL_API rill_status rill_trainer_start(rill_trainer *, const rill_model *);
/* One pass over the data (sgd, and the first of hybrid), over the coordinates (scd), or one step
 * (newton). Where progress has ended it early (report.stopped) it does not count, and there is no
 * validation; rill_trainer_save keeps how far it was, and the next call goes on there. Sums that
 * were under way are taken in before: rounding may differ from a pass without a stop. The schedule
 * bold-driver judges whole epochs, and is not ended within one. */
RILL_API rill_status rill_trainer_epoch(rill_trainer *, rill_train_report *or_null);
/* Epochs done, those before a checkpoint included. */
RILL_API uint64_t rill_trainer_epochs(const rill_trainer *);
/* Epochs since the validation loss was lowest, those before a checkpoint included; 0 without
 * validation rows. */
RILL_API uint64_t rill_trainer_stale_epochs(const rill_trainer *);
/* The objective, and the mean loss (or NULL), of the weights as they are. */
RILL_API rill_status rill_trainer_objective(rill_trainer *, double *objective, double *loss);
/* A copy of the model as it is. Local. */
RILL_API rill_status rill_trainer_model(const rill_trainer *, rill_model **out);
/* Everything that the next epochs depend on, in one file that is replaced as a whole, and of a
 * reducer a second one, named by the epoch. A trainer of the same data, options and number of ranks
 * that loads it goes on bit by bit as the saved one would have. A failure of one rank is
 * everybody's: the old checkpoint, or the trainer as it was, stays. */
RILL_API rill_status rill_trainer_save(rill_trainer *, const char *path);
RILL_API rill_status rill_trainer_load(rill_trainer *, const char *path);

/* Of a checkpoint, also an earlier version's: C, decay, scale, solver, multiclass, bias, intercept,
 * batch and local_steps that it was trained with; other options stay. So that a run that is resumed
 * need not choose them again. Local. */
RILL_API rill_status rill_checkpoint_options(const char *path, rill_train_options *);

/* A C for these data and options, whose own C is not read: found by short trainings on part of the
 * rows, each judged by its loss on another part; rows that the options hold out are not used. Where
 * the options' scale is "auto", which rill_trainer_create does not take, that is chosen with it.
 * Where their decay is below 0 and the optimizer is adagrad under "1/t", the C found is also tried
 * at a constant rate. With too few rows C is 1, the scale "max", and tries is 0. Collective, the
 * same result on all ranks. */
typedef struct rill_C_choice {
    size_t size;
    double C;
    int tries;
    /* C of each try with the scale taken, and its loss on rows that were not trained on */
    double tried[16], loss[16];
    uint64_t rows; /* of all ranks, trained on in a try */
    double seconds;
    double decay;           /* 0 where that was better, else that of the options */
    double tried_decay[16]; /* of each try */
    const char *scale;      /* that of the options, unless it is "auto" */
    double scale_loss[3];   /* the lowest of "none", "max" and "std"; 0: not tried */
    double rows_loss;       /* and of "rows" */
    uint64_t steps;         /* of newton, after which rows held out were predicted best; 0: at its
                             * end, or the training will not be newton's */
} rill_C_choice;
#define RILL_C_CHOICE_INIT                                                                         \
    { sizeof(rill_C_choice), 1.0, 0, {0.0}, {0.0}, 0, 0.0, 0.25, {0.0}, "none", {0.0}, 0.0, 0 }
RILL_API rill_status rill_trainer_choose_C_on(rill_comm *, const rill_dataset *train,
                                              const rill_train_options *or_null, rill_C_choice *);
#ifndef RILL_NO_MPI
RILL_API rill_status rill_trainer_choose_C(MPI_Comm, const rill_dataset *train,
                                           const rill_train_options *or_null, rill_C_choice *);
#endif

/* The i-th of each: NULL past the end. */
RILL_API const char *rill_loss_at(int i, const char **description);
RILL_API const char *rill_solver_at(int i, const char **description);

#ifdef __cplusplus
}
#endif
#endif
