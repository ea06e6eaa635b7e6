/* What the files of the smooth function share: objective_smooth.c, objective_hessian.c. */
#ifndef RILL_TRAIN_OBJECTIVE_SMOOTH_H
#define RILL_TRAIN_OBJECTIVE_SMOOTH_H

#include "train/objective.h"

struct rill__smooth {
    const rill__objective *objective;
    rill__team *team;
    const rill_options *how;
    const float *w;
    double ww, wd, dd; /* squared norms of w and of the direction, and their product */
    /* By row and column: decision values; what a vector makes of the rows, such as the change along
     * the direction, or slopes. Losses, by row or their sum so far. */
    double *z, *along, *loss;
    bool by_row;      /* of losses */
    float *curvature; /* under softmax probabilities */
    double *of_bias;  /* by column: sums of the bias, then of its diagonal; as many of a row that is
                       * tried, by thread */
    /* Of one column: a vector by number, times the factors, and beside each of its values the sum of
     * the same feature, 0 between calls. NULL: vectors are short, or threads share them. */
    float *pair;
    float *folded;       /* a vector by number, times the factors */
    float *sums[2];      /* by number, 0 between calls, of a vector and a diagonal; NULL: places are
                       * numbers, or, of a diagonal, folded will do */
    rill_stream *stream; /* of all weights; NULL where vectors are by place */
};

#endif
