/* Class weights on any text: it is refused, or every label has a weight that is a finite number of
 * at least 0, and the labels that the text does not name have 1. */
#include "fuzz.h"
#include "train/train_internal.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static double two[] = {1, -1}, five[] = {-3, 0, 0.5, 7, 1e30};
    if (!size) return 0;
    bool binary = data[0] % 2 == 0;
    char *text = malloc(size); /* of the rest, and its end */
    MUST(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    rill_trainer *t = calloc(1, sizeof *t);
    MUST(t);
    t->team.ranks = 1;
    t->label = binary ? two : five;
    t->objective.labels = binary ? 2 : 5;
    t->objective.columns = binary ? 1 : 5;
    if (strcmp(text, "balanced") != 0) { /* which counts rows, of which there are none */
        rill_status status = rill__train_weigh_alone(t, text);
        MUST(status == RILL_OK || status == RILL_ERR_ARGUMENT);
        MUST(status == RILL_OK || *rill_last_error());
        for (int c = 0; status == RILL_OK && c < t->objective.labels; c++)
            MUST(isfinite(t->objective.class_weight[c]) && t->objective.class_weight[c] >= 0);
        for (int c = 0;
             status == RILL_OK && c < t->objective.labels && !strpbrk(text, "0123456789"); c++)
            MUST(t->objective.class_weight[c] == 1);
    }
    free(t->objective.class_weight);
    free(t);
    free(text);
    return 0;
}
