/* The reader of model files on any text: it refuses it, or gives a model with finite weights and
 * labels that has probabilities where its type promises them. */
#include "fuzz.h"
#include "train/train_internal.h"

#include <math.h>
#include <stdio.h>

static rill_model *read_text(const void *data, size_t size) {
    rill_model *model = NULL;
    FILE *file = fmemopen((void *)(uintptr_t)data, size, "r");
    MUST(file);
    rill_status status = rill__model_read(file, "input", size, &model);
    MUST((status == RILL_OK) == (model != NULL));
    fclose(file);
    return model;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    rill_model *model = read_text(data, size);
    if (!model) return 0;
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    MUST(rill_model_look(model, &view) == RILL_OK);
    MUST(view.columns >= 1 && view.features >= 1);
    MUST(view.labels == 0 ? view.regression : view.labels >= 1);
    uint64_t rows = view.features + (view.bias >= 0);
    double sum = 0;
    for (uint64_t i = 0; i < rows * (uint64_t)view.columns; i++) {
        MUST(isfinite(view.weight[i]));
        sum += view.weight[i];
    }
    for (int i = 0; i < view.labels; i++)
        MUST(isfinite(view.label[i]));
    double *z = calloc((size_t)view.columns, sizeof *z);
    double *p = calloc((size_t)view.columns + 1, sizeof *p);
    MUST(z && p);
    if (view.probability) MUST(rill_model_probabilities(model, z, p) == RILL_OK);
    MUST(!isnan(sum) && p[0] >= 0 && p[0] <= 1);
    free(z);
    free(p);
    rill_model_free(&model);
    return 0;
}
