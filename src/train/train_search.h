/* The search for C: what its files share. train_choose.c asks for tries, train_try.c makes them. */
#ifndef RILL_TRAIN_TRAIN_SEARCH_H
#define RILL_TRAIN_TRAIN_SEARCH_H

#include "train/train_ahead.h"
#include "train/train_internal.h"
#include "train/train_ridge.h"

enum { RILL__MOST_SPLITS = 10, RILL__MOST_SCALES = 4 };
#define RILL__GAIN 0.005 /* of the loss: less is none */
#define RILL__LEAST_C 1e-4
#define RILL__MOST_C 1e6

typedef struct rill__search {
    rill_comm *comm, *alone; /* alone: of one rank, for tries */
    int rank, ranks;         /* that splits are dealt out to */
    rill_dataset *sample;
    rill_train_options options;
    uint64_t seed; /* of the first split */
    int splits;
    bool open;                     /* the options leave the solver and its end open */
    bool newton;                   /* tries are its steps, else sgd's or scd's epochs */
    bool few;                      /* the sample is small: everything can be tried */
    double entries;                /* of all ranks' rows */
    double doubt;                  /* share of rows whose label may be another one */
    bool path;                     /* tries are newton's paths: the loss is asked after each step */
    double along[RILL__TRY_STEPS]; /* sums over splits, by step */
    uint64_t steps;                /* of the last try: where it was best; 0: at its end */
    bool wide;                     /* few rows, more features: any large C fits them all */
    bool dense;                    /* most features are in most rows */
    bool alike, same;              /* see rill__columns_alike */
    double length;                 /* mean squared length of rows; 0: all have about the same */
    float *kept[RILL__MOST_SPLITS]; /* newton: weights that the last try of a split has reached */
    /* Of scales, by their names, and splits whose tries are exact; NULL: newton's. */
    rill__ridge *ridge[RILL__MOST_SCALES][RILL__MOST_SPLITS];
    rill_C_choice *choice;
    double best; /* loss */
    double bare; /* loss of the intercept alone; 0: not known yet */
    rill_data_progress *tell;
    void *context;
    uint64_t trainings; /* of this rank */
    bool stopped;       /* by some rank's */
    rill__ahead ahead;
    double by; /* factor of the walk; 0: it begins */
} rill__search;

/* All ranks: the loss on held-out rows, also into the choice; infinite once that has all tries. */
rill_status rill__try_one(rill__search *, double C, double decay, double *loss);
/* Tries no longer start from the weights of earlier ones. */
void rill__try_cool(rill__search *);
void rill__try_end(rill__search *);

#endif
