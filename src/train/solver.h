/* What a solver is, and what it is handed: an objective, weights to improve, the ranks to do it
 * with. */
#ifndef RILL_TRAIN_SOLVER_H
#define RILL_TRAIN_SOLVER_H

#include "train/objective.h"
#include "train/train_watch.h"

typedef struct rill__job {
    const rill__objective *objective;
    rill__weights *weights; /* settled between epochs */
    rill__team *team;
    const rill_train_options *options;
    const float *start; /* what the bias, of each column, starts from; all other weights from 0 */
    uint64_t epoch;     /* done */
    double share;      /* of the next one, which was ended early: see rill__watch; in checkpoints */
    double lr;         /* current base, which bold-driver moves */
    double warm;       /* not 0: weights come from a model; in checkpoints */
    bool near;         /* newton begins close to the optimum */
    double kept, last; /* numbers of the solver's, which checkpoints keep */
    rill__watch watch;
    void *state; /* the solver's */
} rill__job;

/* What an epoch was, on this rank. */
typedef struct rill__epoch {
    double loss; /* sum over the samples met, times row weights */
    uint64_t samples, steps;
    int converged;
    double share; /* of the epoch, where it was ended early; else 1. newton's is 0 then, and nothing
                   * has changed */
} rill__epoch;

typedef struct rill__solver {
    const char *name, *description;
    bool smooth;        /* needs a loss with curvature */
    bool no_l1;         /* cannot do l1 */
    bool plain_weights; /* no optimizer: weights.w alone, which an epoch's loss belongs to */
    bool separate;      /* needs one problem for each column */
    bool adaptive;      /* adagrad's weights, whatever the optimizer */
    bool follows;       /* weights follow the sum of gradients: see RILL__FTRL */
    bool stochastic;    /* can do a reducer, staleness, local steps, coded values */
    rill_status (*open)(rill__job *);
    rill_status (*epoch)(rill__job *, rill__epoch *);
    void (*close)(rill__job *);
    uint64_t (*bytes)(const rill__job *);
    /* Before a checkpoint, on all ranks: state of which each has a part. NULL: all have all. */
    rill_status (*complete)(rill__job *);
    /* A file beside the checkpoint, for what ranks do not share; NULL: there is none. */
    rill_status (*save)(rill__job *, const char *path);
    rill_status (*load)(rill__job *, const char *path);
} rill__solver;
extern const rill__solver rill__solver_sgd, rill__solver_scd, rill__solver_newton,
    rill__solver_hybrid, rill__solver_ftrl;
/* Sets weights to what training starts from. */
static inline void rill__job_start(const rill__job *job, float *w) {
    const rill__objective *o = job->objective;
    for (uint64_t j = 0; j < o->n; j++)
        w[j] = j < o->penalised ? 0 : job->start[j - o->penalised];
}
/* At the i-th row of an epoch: where a window begins the next one is asked for. */
static inline void rill__job_foresee(const rill__job *job, uint64_t i) {
    uint64_t window = job->options->window;
    if (window && i % window == 0) rill__dataset_foresee(job->objective->set, i + window, window);
}
const rill__solver *rill__solver_find(const char *name);

#endif
