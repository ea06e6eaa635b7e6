/* The reader of training checkpoints on any bytes: it refuses them and leaves the trainer as it
 * was, or takes exactly what they say. Checksum, settings and magic would keep fuzzed bytes out:
 * the first byte says which of them are put right before. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz.h"
#include "train/train_internal.h"

#include <math.h>

enum {
    FEATURES = 5,
    HEAD = 8 + 9 * 8 + 8 + RILL__SCALARS * 8,
    WEIGHTS = HEAD + RILL__SETTINGS + 2 * 8,
    WHOLE = WEIGHTS + 2 * FEATURES * 4 + 8
};

static rill_trainer *make(float *w, float *state, double *label) {
    rill_trainer *t = calloc(1, sizeof *t);
    MUST(t);
    t->options = (rill_train_options)RILL_TRAIN_OPTIONS_INIT;
    t->options.loss = "logistic";
    t->options.solver = "sgd";
    t->options.optimizer = "adagrad";
    t->options.schedule = "1/t";
    t->team.ranks = t->objective.columns = 1;
    t->objective.labels = 2;
    t->label = label;
    t->objective.features = t->objective.n = FEATURES;
    t->objective.total_rows = 10;
    t->weights.n = FEATURES;
    t->weights.w = w;
    t->weights.state = state;
    return t;
}

/* What the reader compares, as the trainer would have written it. */
static void put_right(const rill_trainer *t, uint8_t *data, size_t size, unsigned what) {
    uint64_t numbers[7] = {1, 1, FEATURES, 1, 2, 1, RILL__SETTINGS}, sum;
    if (size < WHOLE) return;
    if (what & 2) {
        memcpy(data, "RILLTRAI", 8);
        memcpy(data + 8, numbers, sizeof numbers);
    }
    if (what & 4) {
        memset(data + HEAD, 0, RILL__SETTINGS);
        rill__trainer_describe(t, (char *)data + HEAD);
        memcpy(data + HEAD + RILL__SETTINGS, t->label, 2 * sizeof(double));
    }
    if (what & 1) {
        sum = XXH64(data, size - 8, 0);
        memcpy(data + size - 8, &sum, 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size < 2) return 0;
    float w[FEATURES] = {0}, state[FEATURES] = {0};
    double label[2] = {1, -1};
    rill_trainer *t = make(w, state, label);
    uint8_t *data = room_for(size - 1);
    memcpy(data, input + 1, size - 1);
    put_right(t, data, size - 1, input[0]);
    if (rill__trainer_restore(t, "input", data, size - 1) == RILL_OK) {
        MUST(isfinite(t->job.lr) && rill_trainer_stale_epochs(t) <= t->job.epoch);
        MUST(!memcmp(w, data + WEIGHTS, sizeof w));
        MUST(!memcmp(state, data + WEIGHTS + sizeof w, sizeof state));
    } else
        for (int i = 0; i < FEATURES; i++)
            MUST(w[i] == 0 && state[i] == 0);
    free(data);
    free(t);
    return 0;
}
