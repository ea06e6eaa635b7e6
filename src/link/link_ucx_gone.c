/* The link over UCX: who is gone. See link/link_ucx.h. */
#include "link/link_ucx_own.h"

/* Seconds that the watch has, to say why a message could not be sent. The system that closes what a
 * dead process had open closes one connection after the other, and may be busy. */
#define WATCH_PATIENCE 2.0

typedef rill__link_ucx own_link;

rill_status rill__ucx_lost(int rank) { return rill__fail(RILL_ERR_PEER, "rank %d is gone", rank); }

/* Nothing reaches it any more. Where its endpoints handle errors, that ends what is under way: no
 * late bytes go to memory that has another use by then. */
static void lose(own_link *own, int rank) {
    if (own->lost[rank]) return;
    own->lost[rank] = true;
    if (own->first_lost < 0) own->first_lost = rank;
    rill__ucx_disconnect(own, rank);
}

void rill__ucx_broke(own_link *own, int rank) {
    if (!own->lost[rank]) own->broken[rank] = rill__tcp_clock();
    lose(own, rank);
}

/* Who closes waits for the others; but not where a rank is gone, and then it does not come back. */
static bool is_out(const own_link *own, int rank) {
    int state = rill__watch_state(own->watch, rank);
    return state >= RILL__WATCH_SILENT || (state == RILL__WATCH_LEFT && own->first_lost >= 0);
}

bool rill__ucx_look(own_link *own) {
    int lost = rill__watch_poll(own->watch);
    if (lost > own->watched_lost || own->first_lost >= 0) {
        own->watched_lost = lost;
        for (int i = 0; i < own->link.ranks; i++)
            if (i != own->link.rank && is_out(own, i)) lose(own, i);
    }
    return own->first_lost >= 0;
}

/* What the watch says, or should have said by now. */
static rill__fate fate_of(const own_link *own, int rank) {
    int state = rill__watch_state(own->watch, rank);
    if (state == RILL__WATCH_GONE) return RILL__DEAD;
    if (state != RILL__WATCH_THERE || own->given_up[rank]) return RILL__SILENT;
    bool late = rill__tcp_clock() - own->broken[rank] > WATCH_PATIENCE;
    return late ? RILL__SILENT : RILL__LIVES;
}

bool rill__ucx_failed(rill__link *link, uint8_t *fate) {
    own_link *own = rill__ucx_of(link);
    if (!rill__ucx_look(own) && !rill__watch_told_out(own->watch)) return false;
    bool told = rill__watch_told_out(own->watch);
    if (told && fate[link->rank] < RILL__SILENT) fate[link->rank] = RILL__SILENT;
    for (int i = 0; i < link->ranks; i++) {
        uint8_t is = own->lost[i] ? (uint8_t)fate_of(own, i) : RILL__LIVES;
        if (fate[i] < is) fate[i] = is;
        told |= is != RILL__LIVES;
    }
    return told;
}

/* Without the thread the others may wait until this rank comes back. */
void rill__ucx_survive(rill__link *link) {
    own_link *own = rill__ucx_of(link);
    if (!own->has_thread) own->survived = true; /* before there is one that reads it */
    (void)rill__ucx_go_on(own);
}

/* Its connection of the watch stays open: its end would look like the death of this rank. A message
 * could stand behind others that it has not taken yet. */
void rill__ucx_give_up(rill__link *link, int rank) {
    own_link *own = rill__ucx_of(link);
    if (!own->given_up[rank]) rill__watch_tell_out(own->watch, rank);
    own->given_up[rank] = true;
    lose(own, rank);
}
