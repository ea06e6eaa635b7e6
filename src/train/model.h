/* Weights with labels, and LIBLINEAR's file of them: model_file.c, model_predict.c. */
#ifndef RILL_TRAIN_MODEL_H
#define RILL_TRAIN_MODEL_H

#include "train/data_internal.h"

enum { RILL__MODEL_WORD = 24, RILL__ABOUT = 1024 };

struct rill_model {
    char solver_type[32];
    bool regression, probability;
    double *sigmoid; /* A and B of each column; NULL: probabilities are those of the loss */
    int sigmoids;    /* of them read */
    bool softmax;    /* probabilities are those of all columns together */
    bool by_length;  /* rows are divided by their length */
    uint64_t features;
    int columns, labels;
    double *label;
    double bias;
    double *weight;         /* (features + (bias >= 0)) * columns */
    rill_model_about about; /* but for the names, which follow; "": unknown */
    char loss[RILL__MODEL_WORD], scale[RILL__MODEL_WORD], multiclass[RILL__MODEL_WORD];
};
/* The lines behind the weights: model_about.c. Nothing is printed of a model that knows nothing; a
 * line is changed in reading, and false means that it is wrong. */
void rill__model_print_about(const rill_model *, char *text, size_t size);
bool rill__model_read_about(rill_model *, char *line);
/* The line of a column's sigmoid. */
void rill__model_print_sigmoid(const rill_model *, int column, char *text, size_t size);
/* A model of so many bytes of text at most. */
rill_status rill__model_read(FILE *, const char *path, uint64_t bytes, rill_model **out);
rill_status rill__model_create(uint64_t features, int columns, int labels, double bias,
                               rill_model **out);
/* Area under the ROC curve over all ranks; positive[i] != 0 marks label[0]. */
rill_status rill__train_auc(rill_comm *, uint64_t n, const double *score, const uint8_t *positive,
                            double *auc);

#endif
