/* Ranks that are gone. A thread cannot die alone: with threads they are those that were given up,
 * and in a world (link/world.h) those that it has killed, too. */
#include "link/local_group.h"

bool rill__local_failed(rill__link *link, uint8_t *fate) {
    rill__local_link *l = rill__local_of(link);
    bool raised = false;
    rill__local_group *group = l->group;
    bool told = group->in_world && group->world.fates(group->world.context, link->rank, l->fate);
    if (!told && !l->lost) return false;
    for (int i = 0; i < link->ranks; i++) {
        l->lost |= l->fate[i] != RILL__LIVES;
        raised |= fate[i] < l->fate[i];
        if (fate[i] < l->fate[i]) fate[i] = l->fate[i];
    }
    return raised;
}

void rill__local_give_up(rill__link *link, int rank) {
    rill__local_link *l = rill__local_of(link);
    if (l->fate[rank] == RILL__LIVES) l->fate[rank] = RILL__SILENT;
    l->lost = true;
}

rill_status rill__local_gone(int rank) {
    return rill__fail(RILL_ERR_PEER, "rank %d is gone", rank);
}
