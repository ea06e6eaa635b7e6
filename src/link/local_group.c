/* The ranks of a process as a group: its memory, and what they do together outside of calls. */
#include "link/local_group.h"
#include "link/hosts.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Messages of the reserve for each rank. */
enum { RESERVED_EACH = 2 };

/* ---- life ------------------------------------------------------------------------------------ */

void rill__local_group_free(rill__local_group *group) {
    for (int i = 0; i < group->ranks; i++) {
        if (group->boxes) rill__mailbox_destroy(&group->boxes[i]);
        if (group->helpers) pthread_mutex_destroy(&group->helpers[i].lock);
        if (group->segments) free(group->segments[i]);
    }
    pthread_mutex_destroy(&group->lock);
    free(group->boxes);
    free(group->helpers);
    free(group->segments);
    free(group->brought);
    free(group->reserve_memory);
    free(group);
}

static bool group_fill(rill__local_group *group) {
    size_t n = (size_t)group->ranks, each = sizeof(rill__local_message) + RILL__RESERVED;
    group->boxes = calloc(n, sizeof *group->boxes);
    group->helpers = calloc(n, sizeof *group->helpers);
    group->segments = calloc(n, sizeof *group->segments);
    group->brought = calloc(n, sizeof *group->brought);
    group->reserve_memory = calloc(n * RESERVED_EACH, each);
    if (!group->boxes || !group->helpers) {
        free(group->boxes), free(group->helpers);
        group->boxes = NULL, group->helpers = NULL;
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        rill__mailbox_init(&group->boxes[i]);
        pthread_mutex_init(&group->helpers[i].lock, NULL);
    }
    for (size_t i = 0; group->reserve_memory && i < n * RESERVED_EACH; i++) {
        rill__local_message *m = (rill__local_message *)(group->reserve_memory + i * each);
        m->reserve = true;
        m->lent_next = group->reserve;
        group->reserve = m;
    }
    return group->segments && group->brought && group->reserve_memory;
}

rill__local_group *rill__local_group_new(int ranks, const rill__local_world *world) {
    rill__local_group *group = calloc(1, sizeof *group);
    if (!group) return NULL;
    group->ranks = ranks;
    group->in_world = world != NULL;
    if (world) group->world = *world;
    pthread_mutex_init(&group->lock, NULL);
    if (group_fill(group)) return group;
    rill__local_group_free(group);
    return NULL;
}

/* ---- collectives of the link itself ---------------------------------------------------------- */

static void pause_in(rill__local_link *l) {
    rill__local_group *group = l->group;
    if (group->in_world) group->world.idle(group->world.context, l->link.rank);
    else if (l->pause) l->pause(l->pause_context);
    else sched_yield();
}

static rill_status first_gone(const rill__local_link *l) {
    int rank = 0;
    while (rank < l->link.ranks - 1 && !l->fate[rank])
        rank++;
    return rill__local_gone(rank);
}

/* Until all have come here; with what they bring, or, as others may still read that, without. */
static rill_status meet(rill__local_link *l, bool brings, const void *mine) {
    rill__local_group *group = l->group;
    pthread_mutex_lock(&group->lock);
    bool all = group->open == group->ranks;
    uint64_t turn = group->turns;
    if (brings) group->brought[l->link.rank] = mine;
    if (all && ++group->arrived == group->ranks) {
        group->arrived = 0;
        group->turns++;
        if (group->in_world) group->world.met(group->world.context);
    }
    while (all && group->turns == turn) {
        pthread_mutex_unlock(&group->lock);
        pause_in(l);
        rill__local_failed(&l->link, l->fate);
        pthread_mutex_lock(&group->lock);
        all = group->open == group->ranks || group->turns != turn;
        if (!l->lost || group->turns != turn) continue;
        pthread_mutex_unlock(&group->lock);
        return first_gone(l);
    }
    pthread_mutex_unlock(&group->lock);
    return all ? RILL_OK : rill__fail(RILL_ERR_STATE, "another rank has freed its communicator");
}

rill_status rill__local_allgather(rill__link *link, const void *mine, size_t bytes, void *all) {
    rill__local_link *l = rill__local_of(link);
    RILL_TRY(meet(l, true, mine));
    for (int i = 0; i < link->ranks; i++)
        memcpy((char *)all + (size_t)i * bytes, l->group->brought[i], bytes);
    return meet(l, false, NULL);
}

rill_status rill__local_bcast(rill__link *link, void *data, size_t bytes, int root) {
    rill__local_link *l = rill__local_of(link);
    RILL_TRY(meet(l, true, data));
    if (link->rank != root) memcpy(data, l->group->brought[root], bytes);
    return meet(l, false, NULL);
}

/* Rank 0 makes all of them; they are of one process. */
rill_status rill__local_another(rill__link *link, rill__link *together, rill__link **out) {
    rill__link **links = NULL;
    if (rill__local_of(link)->group->in_world)
        return rill__fail(RILL_ERR_UNSUPPORTED, "ranks of a world have one link");
    if (together->rank == 0) {
        links = rill__calloc((size_t)together->ranks, sizeof(rill__link *));
        if (links && rill__local_create(together->ranks, NULL, links) != RILL_OK) {
            free(links);
            links = NULL;
        }
    }
    RILL_TRY(together->table->bcast(together, &links, sizeof links, 0));
    if (!links)
        return rill__fail(RILL_ERR_MEMORY, "out of memory for %d local ranks", together->ranks);
    *out = links[together->rank];
    rill_status status = rill__link_most(together, NULL, 0); /* all have taken theirs */
    if (together->rank == 0) free(links);
    if (status == RILL_OK) return RILL_OK;
    (*out)->table->leave(*out);
    (*out)->table->close(*out);
    *out = NULL;
    return status;
}

/* ---- shared memory: it is all shared --------------------------------------------------------- */

/* Segments stay until the last rank leaves, so that nobody reads what is gone. */
rill_status rill__local_share(rill__link *link, const struct rill__hosts *hosts,
                              rill__share_bytes bytes, char **segment, size_t *sizes,
                              bool *shared) {
    rill__local_link *l = rill__local_of(link);
    char **own = &l->group->segments[link->rank];
    if (!*own) *own = rill__aligned_alloc(bytes.most);
    const char *mine = segment && sizes ? *own : NULL;
    RILL_TRY(meet(l, true, mine));
    *shared = true;
    for (int i = 0; i < hosts->here; i++) {
        *shared &= l->group->brought[hosts->ranks[i]] != NULL;
        if (!mine) continue;
        segment[i] = l->group->segments[hosts->ranks[i]];
        sizes[i] = bytes.most;
    }
    return meet(l, false, NULL);
}

void rill__local_unshare(rill__link *link) { (void)link; }
