/* Tries of C ahead of the search.
 *
 * Idea: the search asks for one C after the other, and large data have one split: one rank would
 * try, and the others wait. So with the C that is asked for, they try those that the search may ask
 * for next, in the order of how likely that is. The search itself does not change: it finds some
 * answers there already. A try does not depend on another one, nor on who makes it, so that the
 * choice is the same with any number of ranks.
 * Restriction: not where tries start from the weights of the one before.
 * Memory: 64 answers. Cost: tries that are not asked for, on ranks that would wait.
 */
#include "train/train_ahead.h"

#include <math.h>
#include <string.h>

static const double factor = 10;

static bool same(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

const rill__try *rill__ahead_find(const rill__ahead *a, double C, double decay, const char *scale) {
    for (int i = 0; i < a->n && i < RILL__TRIES_KEPT; i++) {
        const rill__try *t = &a->made[i];
        if (t->C == C && t->decay == decay && same(t->scale, scale)) return t;
    }
    return NULL;
}

void rill__ahead_keep(rill__ahead *a, const rill__try *t) {
    a->made[a->n++ % RILL__TRIES_KEPT] = *t;
}

/* Products are made as the search makes them, so that their bits are the same. */
int rill__ahead_plan(double C, double middle, double by, bool refines, int most, double *out) {
    const double step = sqrt(factor), up = C * factor, down = C * (1 / factor);
    const double begin[] = {C, up, down, C * step, up * factor, C / step, up * step, up / step};
    const double walk[] = {C,           middle * step, C * by,  middle / step,
                           C * by * by, C * step,      C / step};
    const double plain_begin[] = {C, up, down, up * factor}, plain[] = {C, C * by, C * by * by};
    const double *from = by == 0 ? (refines ? begin : plain_begin) : refines ? walk : plain;
    int all = by == 0 ? (refines ? 8 : 4) : refines ? 7 : 3, n = 0;
    for (int i = 0; i < all && n < most; i++) {
        bool known = false;
        for (int k = 0; k < n; k++)
            known |= out[k] == from[i];
        if (!known) out[n++] = from[i];
    }
    return n;
}
