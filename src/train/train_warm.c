/* A trainer that starts from a model: weights of the same labels and features, in the trainer's
 * units. */
#include "train/train_internal.h"

#include <stdlib.h>

/* The model's column, and its sign, for each of ours. */
static rill_status match_labels(const rill_trainer *t, const rill_model *m, int *column,
                                double *sign) {
    const rill__objective *o = &t->objective;
    *sign = 1;
    if (m->regression != o->regression)
        return rill__data_fail(RILL_ERR_MISMATCH, "the model is one of %s, the training one of %s",
                               m->regression ? "regression" : "classes",
                               o->regression ? "regression" : "classes");
    column[0] = 0;
    for (int i = 0; i < o->labels; i++) {
        int at = 0;
        while (at < m->labels && m->label[at] != t->label[i])
            at++;
        if (at == m->labels)
            return rill__data_fail(RILL_ERR_MISMATCH, "the model does not know the label %g",
                                   t->label[i]);
        column[i] = at;
    }
    if ((m->columns == 1) != (o->columns == 1))
        return rill__data_fail(RILL_ERR_MISMATCH, "the model has %d labels, the data have %d",
                               m->labels, o->labels);
    if (!o->regression && o->columns == 1) {
        *sign = column[0] == 0 ? 1 : -1;
        column[0] = 0;
    }
    return RILL_OK;
}

static rill_status start_alone(rill_trainer *t, const rill_model *m, int *column) {
    const rill__objective *o = &t->objective;
    uint64_t features = o->features - (o->bias >= 0), columns = (uint64_t)o->columns;
    double sign;
    if (t->job.epoch)
        return rill__data_fail(RILL_ERR_STATE, "rill_trainer_start: after %llu epochs",
                               (unsigned long long)t->job.epoch);
    RILL_TRY_DATA(match_labels(t, m, column, &sign));
    if (m->by_length != (o->rows.factor != NULL))
        return rill__data_fail(RILL_ERR_MISMATCH, "the model's scale is %s, the training's %s",
                               m->by_length ? "rows" : "not rows", t->options.scale);
    if (m->features > features)
        return rill__data_fail(RILL_ERR_MISMATCH, "the model has %llu features, the data have %llu",
                               (unsigned long long)m->features, (unsigned long long)features);
    if (m->bias >= 0 && o->bias < 0)
        return rill__data_fail(RILL_ERR_MISMATCH, "the model has a bias, the training has none");
    for (uint64_t j = 0; j < o->features; j++)
        for (uint64_t c = 0; c < columns; c++) {
            bool bias = j == features;
            uint64_t from = bias ? m->features : j;
            float factor = bias ? 1 : rill__factor(o, j);
            bool there = bias ? m->bias >= 0 : j < m->features && factor > 0;
            double w = there ? m->weight[from * (uint64_t)m->columns + (uint64_t)column[c]] : 0;
            if (bias && there) w *= m->bias / (o->bias > 0 ? o->bias : 1);
            if (bias && !there) continue;
            t->weights.w[j * columns + c] = (float)(sign * w / (factor > 0 ? factor : 1));
        }
    if (t->weights.dual) rill__weights_follow(&t->weights, t->job.lr);
    if (t->backup) memcpy(t->backup, t->weights.w, (size_t)o->n * sizeof *t->backup);
    t->job.warm = 1;
    return RILL_OK;
}

rill_status rill_trainer_start(rill_trainer *t, const rill_model *m) {
    if (!t) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_start: trainer is NULL");
    int *column = malloc(((size_t)t->objective.labels + 1) * sizeof *column);
    rill_status status = !column ? rill__data_memory("labels")
                         : !m    ? rill__data_fail(RILL_ERR_ARGUMENT,
                                                   "rill_trainer_start: model is NULL")
                                 : start_alone(t, m, column);
    free(column);
    return rill__data_agree(t->team.talk, status);
}
