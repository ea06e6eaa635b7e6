/* Weights whose regularisation is put off, and the state of their optimizer: train_weights.c. */
#ifndef RILL_TRAIN_TRAIN_WEIGHTS_H
#define RILL_TRAIN_TRAIN_WEIGHTS_H

#include "rill/rill.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum rill__optimizer {
    RILL__PLAIN,
    RILL__MOMENTUM,
    RILL__ADAGRAD,
    RILL__FTRL
} rill__optimizer;

typedef struct rill__weights {
    uint64_t n;
    float *w;           /* plain: to be multiplied by scale */
    uint64_t penalised; /* the first of them, which alone decay */
    double lambda, mu;  /* of the mean loss: lambda/2 |w|^2 + mu |w|_1 */
    rill__optimizer kind;
    double momentum;
    double scale, shrink; /* plain: product of decays; sum of thresholds / scale */
    double path;          /* others: sum of learning rates; ftrl: steps, of all epochs */
    double eta;           /* of the last step */
    uint32_t step;        /* since everything was settled */
    float *last;          /* shrink or path when the entry was last written; NULL: not needed */
    float *state;         /* velocity, or sum of squares; NULL with plain */
    float *dual;          /* ftrl: sum of gradients, less what the weights have moved */
    uint32_t *last_step;  /* momentum: step when the entry was last written */
} rill__weights;

/* All n decay, until penalised is set to less. */
rill_status rill__weights_init(rill__weights *, uint64_t n, rill__optimizer, double lambda,
                               double mu, double momentum);
void rill__weights_free(rill__weights *);
uint64_t rill__weights_bytes(const rill__weights *);
/* The entry as it is now, whatever was put off. */
float rill__weights_read(const rill__weights *, uint64_t j);
/* ftrl: goes on from the weights that are there, with steps of that size; the others do so
 * anyway. */
void rill__weights_follow(rill__weights *, double eta);
/* All decay by a step of that learning rate. */
void rill__weights_begin(rill__weights *, double eta);
/* The gradient's entries, of the step begun last. idx NULL: all n. */
void rill__weights_apply(rill__weights *, uint64_t n, const uint32_t *idx, const float *gradient);
/* Does what was put off: w is then the weights themselves. */
void rill__weights_settle(rill__weights *);
/* All ranks: those of rank 0, settled. */
rill_status rill__weights_share(rill__weights *, rill_comm *);
/* Whether w times scale is the weight. */
static inline bool rill__weights_scaled(const rill__weights *s) { return !s->last && !s->dual; }

#endif
