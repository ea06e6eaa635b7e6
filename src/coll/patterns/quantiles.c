#include "coll/patterns/quantiles.h"

#include <math.h>

/* The share below x, which lies in a segment of the spread. */
static double share_below(const rill__part *in, unsigned width, const rill__spread *s, double w,
                          int segment, uint64_t x) {
    uint64_t first = s->at[segment], last = s->at[segment + 1];
    double inside = last > first ? (double)(x - first) / (double)(last - first) : 1;
    rill__shape shape = {.index_bytes = width};
    double entries = (double)rill__part_below(shape, in, x) / (double)in->n;
    return w * entries + (1 - w) * (segment + inside) / RILL__SPREAD;
}

void rill__mixed_quantiles(const rill__part *in, unsigned width, const rill__spread *s, int size,
                           uint64_t *bounds) {
    double w = 1 / (1 + sqrt((double)s->entries / (double)in->n));
    int segment = 0;
    for (int i = 1; i < size; i++) {
        double wanted = (double)i / size;
        while (segment < RILL__SPREAD - 1 &&
               share_below(in, width, s, w, segment, s->at[segment + 1]) < wanted)
            segment++;
        uint64_t low = s->at[segment], high = s->at[segment + 1];
        while (low < high) { /* the least that has the share below it, or the segment's end */
            uint64_t middle = low + (high - low) / 2;
            if (share_below(in, width, s, w, segment, middle) < wanted) low = middle + 1;
            else high = middle;
        }
        bounds[i] = low;
    }
}
