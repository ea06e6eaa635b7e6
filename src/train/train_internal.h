/* What the files of the trainer share.
 *
 *   losses     value and derivatives of one row's loss         loss_table.c
 *   pool       threads of a rank                               train_pool.c
 *   rate       a learning rate from the data                   train_rate.c
 *   weights    lazily regularised weights, optimizer state      train_weights.c
 *   batch      gradient of some rows as pairs                   train_batch.c
 *   exchange   the ranks' gradients summed, at once or later    train_exchange.c
 *   solvers    one epoch each                                   solver_<name>.c
 *   trainer    options, labels, epochs, evaluation              train_*.c
 *   model      weights with labels; LIBLINEAR's file            model_*.c
 */
#ifndef RILL_TRAIN_TRAIN_INTERNAL_H
#define RILL_TRAIN_TRAIN_INTERNAL_H

#include "train/data_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- threads -------------------------------------------------------------------------------- */

typedef struct rill__pool rill__pool;
typedef void rill__pool_part(void *context, int thread, int threads);
/* *out is NULL for one thread, with which all calls work. */
rill_status rill__pool_open(int threads, rill__pool **out);
void rill__pool_close(rill__pool **);
int rill__pool_threads(const rill__pool *);
/* Returns when all threads have done their part. */
void rill__pool_run(rill__pool *, rill__pool_part *, void *context);
/* Where part i of so many begins. */
static inline uint64_t rill__pool_cut(uint64_t n, int i, int threads) {
    return n / (uint64_t)threads * (uint64_t)i +
           n % (uint64_t)threads * (uint64_t)i / (uint64_t)threads;
}

/* ---- losses --------------------------------------------------------------------------------- */

/* y is +1 or -1, or the target in regression; z the decision value. Derivatives are by z. */
typedef struct rill__loss {
    const char *name, *description;
    double (*value)(double z, double y);
    double (*slope)(double z, double y);
    double (*curvature)(double z, double y);
    double most_curvature;      /* 0: the slope jumps, so solvers of second order cannot serve */
    bool regression;            /* y may be any number */
    const char *type, *type_l1; /* LIBLINEAR's solver_type, for the model file */
} rill__loss;
const rill__loss *rill__loss_find(const char *name);

/* ---- weights -------------------------------------------------------------------------------- */

typedef enum rill__optimizer { RILL__PLAIN, RILL__MOMENTUM, RILL__ADAGRAD } rill__optimizer;

typedef struct rill__weights {
    uint64_t n;
    float *w;          /* plain: to be multiplied by scale */
    double lambda, mu; /* of the mean loss: lambda/2 |w|^2 + mu |w|_1 */
    rill__optimizer kind;
    double momentum;
    double scale, shrink; /* plain: product of decays; sum of thresholds / scale */
    double path;          /* others: sum of learning rates */
    double eta;           /* of the last step */
    uint32_t step;        /* since everything was settled */
    float *last;          /* shrink or path when the entry was last written; NULL: not needed */
    float *state;         /* velocity, or sum of squares; NULL with plain */
    uint32_t *last_step;  /* momentum: step when the entry was last written */
} rill__weights;

rill_status rill__weights_init(rill__weights *, uint64_t n, rill__optimizer, double lambda,
                               double mu, double momentum);
void rill__weights_free(rill__weights *);
uint64_t rill__weights_bytes(const rill__weights *);
/* The entry as it is now, whatever was put off. */
float rill__weights_read(const rill__weights *, uint64_t j);
/* All decay by a step of that learning rate. */
void rill__weights_begin(rill__weights *, double eta);
/* The gradient's entries, of the step begun last. idx NULL: all n. */
void rill__weights_apply(rill__weights *, uint64_t n, const uint32_t *idx, const float *gradient);
/* Does what was put off: w is then the weights themselves. */
void rill__weights_settle(rill__weights *);
/* All ranks: those of rank 0, settled. */
void rill__weights_share(rill__weights *, MPI_Comm);
/* Whether w times scale is the weight. */
static inline bool rill__weights_scaled(const rill__weights *s) { return !s->last; }

/* ---- trainer -------------------------------------------------------------------------------- */

typedef struct rill__solver rill__solver;
typedef struct rill__batch rill__batch;
typedef struct rill__exchange rill__exchange;

/* Rows of a data set that take part. */
typedef struct rill__part_rows {
    rill_data_view data;
    const uint64_t *list; /* row numbers; NULL: all */
    uint64_t n;
    const float *target; /* by row number: class, or the value in regression */
} rill__part_rows;

enum { RILL__SCALARS = 8, RILL__MOST_THREADS = 256, RILL__SETTINGS = 1024 };

struct rill_trainer {
    MPI_Comm mpi;
    int rank, ranks;
    rill_train_options options; /* names point to tables or copies */
    const rill__loss *loss;
    const rill__solver *solver;
    void *solver_state;
    bool regression;
    int labels, columns;
    double *label;        /* [0] is the positive one of two; else ascending */
    double *class_weight; /* of each label; NULL: all 1 */
    uint64_t features, n; /* n: features * columns */
    rill__weights weights;
    const rill_dataset *set;             /* trained on */
    rill_dataset *biased, *biased_valid; /* copies with the bias feature, if asked for */
    rill__part_rows train, valid;
    bool has_valid;
    uint64_t *order; /* the train rows, in the order of the epoch */
    uint64_t *train_list, *valid_list;
    float *train_target, *valid_target;
    uint64_t total_rows;           /* that are trained on, over all ranks */
    uint64_t epoch, step;          /* done */
    double lr;                     /* current base, which bold-driver moves */
    double scalars[RILL__SCALARS]; /* what is kept from epoch to epoch, see below */
    float *backup;                 /* bold-driver: weights of the last good epoch */
    uint64_t comm_bytes;           /* of this epoch and rank */
    double comm_seconds, wait_seconds;
    rill_comm *comm; /* of exact sums; NULL: not needed yet */
    bool told;       /* all ranks know that this call has failed */
    rill__pool *pool;
    uint64_t *feature_cut; /* threads + 1: features of each thread, by load */
    const char *algorithm;
    char *names[9]; /* copies of the options' texts */
    int name_count;
};

enum {                      /* scalars */
       RILL__FIRST_NORM,    /* newton: of the gradient */
       RILL__BOLD_BEST,     /* bold-driver: lowest objective */
       RILL__VALID_BEST,    /* lowest validation loss, */
       RILL__VALID_BEST_AT, /* and after how many epochs */
};

struct rill__solver {
    const char *name, *description;
    bool smooth;      /* needs a loss with curvature */
    bool no_l1;       /* cannot do l1 */
    bool own_weights; /* uses weights.w alone: plain */
    rill_status (*open)(rill_trainer *);
    /* Sums of this rank: *loss over the samples met (times row weights), *samples, *steps. */
    rill_status (*epoch)(rill_trainer *, double *loss, uint64_t *samples, uint64_t *steps,
                         int *converged);
    void (*close)(rill_trainer *);
    uint64_t (*bytes)(const rill_trainer *);
    /* A file beside the checkpoint, for what ranks do not share; NULL: there is none. */
    rill_status (*save)(rill_trainer *, const char *path);
    rill_status (*load)(rill_trainer *, const char *path);
};
extern const rill__solver rill__solver_sgd, rill__solver_scd, rill__solver_newton;
const rill__solver *rill__solver_find(const char *name);

/* The side that a row takes in a column's problem. */
static inline double rill__row_y(const rill_trainer *t, float target, int column) {
    if (t->regression) return target;
    if (t->columns == 1) return target == 0 ? 1 : -1;
    return target == (float)column ? 1 : -1;
}
static inline double rill__row_weight(const rill_trainer *t, float target) {
    return t->class_weight && target >= 0 ? t->class_weight[(int)target] : 1;
}
static inline uint64_t rill__row_at(const rill__part_rows *rows, uint64_t i) {
    return rows->list ? rows->list[i] : i;
}
/* z[column] of a row under plain weights. */
void rill__row_decide(const rill_data_view *, uint64_t row, const float *w, int columns, double *z);

rill_status rill__train_options(rill_trainer *, const rill_train_options *);
rill_status rill__train_labels(rill_trainer *);
rill_status rill__train_weigh(rill_trainer *);
rill_status rill__train_weigh_alone(rill_trainer *, const char *text); /* its part that asks no other rank */
rill_status rill__train_targets(const rill_trainer *, const rill_data_view *, float **target);
/* How a failure of one rank becomes everybody's, between the start of an epoch and its end. Who fails leaves the call
 * that it is in, refuses those that the others may be in or come to (rill__train_refuse, rill__exchange_refuse), and
 * goes to the next agreement: that is what stands before every other use of t->mpi in between. All ranks meet there, since those whose
 * call was refused come, too; after one that failed nobody goes to another. */
rill_status rill__train_agree(rill_trainer *, rill_status mine);
/* The next calls on t->comm, so many, fail on the others. Does not wait. */
void rill__train_refuse(rill_trainer *, int calls);
/* After a failure that all ranks know: t->comm goes, and all have rank 0's weights. Keeps the message. */
void rill__train_recover(rill_trainer *);
/* Agrees on the status, then sums over the ranks. */
rill_status rill__train_sum(rill_trainer *, rill_status mine, double *values, int n);
/* Rows of a rank in a step, where the options leave it open: so few that there are 250 steps in an epoch,
 * up to the hundred that make a step worth its exchange. */
uint64_t rill__train_batch(uint64_t rows, int ranks);
/* The decay of the schedule "1/t", where below 0 stands for a default. */
double rill__train_decay(double decay);
/* Cuts the features between the threads. */
rill_status rill__train_cut_features(rill_trainer *);
/* The entries [*first, *last) of a row that belong to a thread. */
void rill__row_share(const rill_trainer *, uint64_t row, int thread, uint64_t *first,
                     uint64_t *last);
/* All ranks: a learning rate for batches of so many rows, over all ranks. */
rill_status rill__train_rate(rill_trainer *, uint64_t batch, double *lr);
/* Weighted loss summed over this rank's part of the rows. */
rill_status rill__train_loss(const rill_trainer *, const rill__part_rows *, double *loss);
/* All ranks: the objective of settled weights. */
rill_status rill__train_objective(rill_trainer *, double *objective, double *mean_loss);
/* t->comm, as if it were new: an epoch that follows a checkpoint is then planned as one that follows another
 * epoch. All ranks. */
rill_status rill__train_comm(rill_trainer *);
/* Before an exchange: waits for all ranks, if the options ask for it; a failure of one ends it then. */
rill_status rill__train_meet(rill_trainer *);
/* Accounts for an exchange that began at that time. */
void rill__train_account(rill_trainer *, double began, const rill_stats *);
rill_status rill__train_memory(const char *what);
/* What must agree for a run to go on as it was: RILL__SETTINGS bytes. */
void rill__trainer_describe(const rill_trainer *, char *text);
/* A checkpoint's bytes into a trainer; path is for messages. Local. */
rill_status rill__trainer_restore(rill_trainer *, const char *path, const uint8_t *data,
                                  uint64_t bytes);

/* ---- batch ---------------------------------------------------------------------------------- */

typedef struct rill__batch_list {
    uint32_t *idx;
    float *value;
    uint64_t n, room;
} rill__batch_list;

struct rill__batch {
    uint64_t n;    /* entries of the gradient that are not 0 */
    uint32_t *idx; /* unsorted, each once */
    float *value;
    float *gradient;        /* dense; 0 outside of the lists */
    bool keep;              /* gradient is left as it is until rill__batch_clear */
    uint64_t *touched;      /* bits; NULL: scaled weights, as is the next */
    float *now;             /* current weights of the batch's entries */
    int lists;              /* one per thread */
    rill__batch_list *list; /* list[0] starts with all of them once the batch is computed */
    double *z, *loss_of;    /* of each row: decision values, then slopes; loss */
    uint64_t rows_room;
    double loss; /* weighted sum */
};
/* keep: the dense gradient is wanted, not the pairs. */
rill_status rill__batch_open(rill__batch *, const rill_trainer *, bool keep);
void rill__batch_close(rill__batch *);
uint64_t rill__batch_bytes(const rill__batch *, uint64_t n);
/* Gradient of weight * sum over the rows. */
rill_status rill__batch_compute(rill__batch *, const rill_trainer *, const uint64_t *rows,
                                uint64_t n, double weight);
void rill__batch_clear(rill__batch *);

/* ---- exchange ------------------------------------------------------------------------------- */

/* A sum: pairs, or all n values when idx is NULL. */
typedef struct rill__sum_view {
    uint64_t n;
    const uint32_t *idx;
    const float *value;
} rill__sum_view;

/* Exact sums, staleness of them under way at most. */
rill_status rill__exchange_prepare(rill_trainer *); /* once, before the first epoch */
rill_status rill__exchange_open(rill_trainer *, rill__exchange **);
void rill__exchange_close(rill__exchange **);
uint64_t rill__exchange_bytes(const rill__exchange *);
rill_status rill__exchange_put(rill__exchange *, uint64_t n, const uint32_t *idx,
                               const float *value);
/* Instead of put, by a rank that has failed: where MPI sums, the sum tells the others. Returns mine. */
rill_status rill__exchange_refuse(rill__exchange *, rill_status mine);
/* The oldest sum, if more than `pending` are under way; it lives until the next call. */
rill_status rill__exchange_take(rill__exchange *, int pending, bool *has, rill__sum_view *);

/* Dense vectors, for solvers of second order: into = sum over the ranks. */
rill_status rill__exchange_dense(rill_trainer *, rill_stream *, float *vector);

/* ---- model ---------------------------------------------------------------------------------- */

struct rill_model {
    char solver_type[32];
    bool regression, probability;
    uint64_t features;
    int columns, labels;
    double *label;
    double bias;
    double *weight; /* (features + (bias >= 0)) * columns */
};
/* A model of so many bytes of text at most. */
rill_status rill__model_read(FILE *, const char *path, uint64_t bytes, rill_model **out);
rill_status rill__model_create(uint64_t features, int columns, int labels, double bias,
                               rill_model **out);
/* Area under the ROC curve over all ranks; positive[i] != 0 marks label[0]. */
rill_status rill__train_auc(MPI_Comm, uint64_t n, const double *score, const uint8_t *positive,
                            double *auc);

#endif
