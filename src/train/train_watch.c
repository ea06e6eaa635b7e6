/* Idea: ranks look together, at shares of their work that all know: each agrees on whether somebody
 * wants to stop, and on how long the slowest took since the last look. From that all work out the
 * same next share, a fifth of a second away, and remember the pace for the next epoch: one that is
 * shorter has no look at all. A look begins with an agreement, as everything on talk does within an
 * epoch (train_team.h). Sums are not touched: the bits of a model do not depend on it.
 * Cost: two gathers of a few bytes for a look.
 */
#include "train/train_watch.h"

static const double first = 1e-9, between = 0.2; /* a share; seconds */
static const double most_growth = 8;

void rill__watch_begin(rill__watch *w, double share) {
    w->at = w->before = share;
    w->next = share + (w->pace > 0 ? w->pace : first);
    w->looked = rill__now();
    w->stop = w->endless = false;
}

static rill_status look(rill__watch *w, rill__team *team, uint64_t done, uint64_t total) {
    double share = total ? (double)done / (double)total : 0;
    bool ends = w->tell && w->tell(w->context, done, w->endless ? 0 : total);
    double told[3] = {ends, rill__now() - w->looked, share};
    RILL_TRY_DATA(rill__team_agree(team, RILL_OK));
    RILL_TRY_DATA(rill__most_f64(team->talk, told, 3));
    w->at = w->next; /* where all ranks are, by units of their own */
    double furthest = fmax(fmin(told[2], 1), w->next), way = furthest - w->before;
    double growth = told[1] > 0 ? fmin(between / told[1], most_growth) : most_growth;
    w->stop = told[0] > 0 && !w->firm;
    w->pace = fmax(way * growth, first);
    w->before = furthest;
    w->next = furthest + w->pace;
    w->looked = rill__now();
    return RILL_OK;
}

rill_status rill__watch_look(rill__watch *w, rill__team *team, uint64_t done, uint64_t total) {
    while (!w->stop && w->next < 1 && (double)done >= w->next * (double)total)
        RILL_TRY_DATA(look(w, team, done, total));
    return RILL_OK;
}
