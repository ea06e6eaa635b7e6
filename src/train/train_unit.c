/* The unit of the loss: 1, but of huber the distance from which rows count as outliers; and where
 * it starts.
 *
 * Idea: where it is left open it is taken from the targets' spread, so that their unit does not
 * matter: twice the median distance from the median, which outliers do not move (for normal errors
 * that is 1.35 standard deviations: Huber, Robust estimation of a location parameter, 1964). The
 * targets spread wider than the errors of a good model, so that few rows are taken for outliers
 * that are none. A median over all ranks is found by halving: floats are ordered as their bits are.
 * Cost: 64 passes over the targets, a number summed in each.
 */
#include "train/train_internal.h"

#include <math.h>

/* In the order of floats. */
static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}
static float float_of(uint32_t bits) {
    float x;
    bits = bits >> 31 ? bits & ~(UINT32_C(1) << 31) : ~bits;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The lowest value that at least half of the rows do not exceed, of distances from centre if that
 * is not NULL. */
static rill_status median(const rill_trainer *t, const float *centre, float *out) {
    const rill__part_rows *rows = &t->objective.rows;
    uint32_t low = 0, high = UINT32_MAX;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t below = 0;
        for (uint64_t i = 0; i < rows->n; i++) {
            float y = rows->target[rill__row_at(rows, i)];
            below += bits_of(centre ? fabsf(y - *centre) : y) <= middle;
        }
        RILL_TRY_DATA(rill__sum_u64(t->team.talk, &below, 1));
        if (2 * below >= t->objective.total_rows) high = middle;
        else low = middle + 1;
    }
    *out = float_of(low);
    return RILL_OK;
}

rill_status rill__train_unit(rill_trainer *t) {
    float centre, spread;
    bool huber = !strcmp(t->options.loss, "huber");
    t->objective.unit = huber && t->options.huber_delta > 0 ? t->options.huber_delta : 1;
    if (!huber || !t->objective.regression) return RILL_OK;
    RILL_TRY_DATA(median(t, NULL, &centre));
    t->centre = centre;
    if (t->options.huber_delta > 0) return RILL_OK;
    RILL_TRY_DATA(median(t, &centre, &spread));
    t->objective.unit = spread > 0 ? 2 * (double)spread : 1;
    return RILL_OK;
}
