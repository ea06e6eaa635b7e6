/* Ranks of one process: mailboxes, and the table of the local link. See link/local.h. */
#include "link/local_group.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A copy of this size costs less than the hand-over of a large message. */
enum { COPIED = 8 << 10 };
/* Other ranks that a waiting one helps at a time. */
enum { HELPED = 16 };

enum { WAITS, IN_HAND, TAKEN }; /* state of a lent message */

typedef rill__local_link local_link;
typedef rill__local_helper helper;

static local_link *local_of(rill__link *link) { return rill__local_of(link); }
rill__local_group *rill__local_group_of(rill__link *link) { return local_of(link)->group; }

/* ---- messages -------------------------------------------------------------------------------- */

static rill__local_message *message_new(rill__local_group *group, size_t bytes) {
    rill__local_message *m = malloc(sizeof *m + bytes);
    if (m) {
        m->owned = m->reserve = false;
    } else if (bytes <= RILL__RESERVED) {
        pthread_mutex_lock(&group->lock);
        m = group->reserve;
        if (m) group->reserve = m->lent_next;
        pthread_mutex_unlock(&group->lock);
    }
    return m;
}

static void message_free(rill__local_group *group, rill__local_message *m) {
    if (m->owned) free((void *)(uintptr_t)m->data);
    m->owned = false;
    if (!m->reserve) {
        free(m);
        return;
    }
    pthread_mutex_lock(&group->lock);
    m->lent_next = group->reserve;
    group->reserve = m;
    pthread_mutex_unlock(&group->lock);
}

void rill__local_drop(rill__local_group *group, rill__local_message *m) {
    if (m->lent) atomic_store_explicit(&m->state, TAKEN, memory_order_release);
    else message_free(group, m);
}

/* The receiver is through with it. */
static void message_taken(rill__local_group *group, rill__local_message *m) {
    if (group->in_world) group->world.taken(group->world.context, m);
    rill__local_drop(group, m);
}

void rill__local_arrive(rill__local_group *group, rill__local_message *m) {
    if (!rill__mailbox_put(&group->boxes[m->to], m)) message_taken(group, m);
}

static rill_status send(rill__link *link, int to, int tag, const void *data, size_t bytes,
                        rill__wire *wire) {
    local_link *l = local_of(link);
    rill__local_group *group = l->group;
    wire->word = 0;
    if (l->lost && l->fate[to]) return RILL_OK;
    bool lent = bytes > l->copied && tag % RILL__EPOCH_TAGS < RILL__LOCAL_URGENT;
    rill__local_message *m = message_new(group, lent ? 0 : bytes);
    if (!m) return rill__fail(RILL_ERR_MEMORY, "out of memory for a message of %zu bytes", bytes);
    m->source = link->rank;
    m->to = to;
    m->tag = tag;
    m->bytes = bytes;
    m->lent = lent;
    m->data = lent ? data : (const char *)(m + 1);
    atomic_init(&m->state, WAITS);
    if (lent) {
        m->lent_next = l->lent;
        l->lent = m;
        wire->word = (uint64_t)(uintptr_t)m;
    } else if (bytes) {
        memcpy(m + 1, data, bytes);
    }
    if (group->in_world) group->world.sent(group->world.context, m);
    else rill__local_arrive(group, m);
    return RILL_OK;
}

static void forget_lent(local_link *l, const rill__local_message *m) {
    rill__local_message **at = &l->lent;
    while (*at != m)
        at = &(*at)->lent_next;
    *at = m->lent_next;
}

/* The message has left its mailbox, and is this rank's alone. */
static void take(local_link *l, rill__local_message *m, void *into, size_t room) {
    size_t bytes = m->bytes < room ? m->bytes : room;
    if (bytes) memcpy(into, m->data, bytes);
    message_taken(l->group, m);
}

static void look(local_link *l) {
    if (l->group->in_world) l->group->world.look(l->group->world.context, l->link.rank);
}

/* Posted receives have the first claim on what has come. */
static void match_posted(local_link *l, rill__mailbox *box) {
    for (rill__posted *p = box->posted; p; p = p->next) {
        rill__local_message *m = p->done ? NULL : rill__mailbox_find(box, p->source, p->tag);
        if (!m) continue;
        rill__mailbox_remove(box, m);
        atomic_store_explicit(&m->state, IN_HAND, memory_order_relaxed);
        p->bytes = m->bytes;
        p->done = true;
        take(l, m, p->into, p->room);
    }
}

static rill_status probe(rill__link *link, int source, int tag, int tries, rill__arrival *arrival) {
    local_link *l = local_of(link);
    rill__mailbox *box = &l->group->boxes[link->rank];
    look(l);
    while (rill__mailbox_empty(box) && --tries > 0)
        continue;
    if (rill__mailbox_empty(box)) return RILL_IN_PROGRESS;
    rill__mailbox_lock(box);
    if (box->posted) match_posted(l, box);
    rill__local_message *m = rill__mailbox_find(box, source, tag);
    if (m) {
        arrival->source = m->source;
        arrival->tag = m->tag;
        arrival->bytes = m->bytes;
        arrival->word = (uint64_t)(uintptr_t)m;
    }
    rill__mailbox_unlock(box);
    return m ? RILL_OK : RILL_IN_PROGRESS;
}

static rill_status receive(rill__link *link, const rill__arrival *arrival, int tag, void *into,
                           bool soon, rill__wire *wire) {
    local_link *l = local_of(link);
    rill__mailbox *box = &l->group->boxes[link->rank];
    rill__local_message *m = (rill__local_message *)(uintptr_t)arrival->word;
    (void)tag, (void)soon;
    wire->word = 0;
    rill__mailbox_lock(box);
    rill__mailbox_remove(box, m);
    atomic_store_explicit(&m->state, IN_HAND, memory_order_relaxed);
    rill__mailbox_unlock(box);
    take(l, m, into, into ? arrival->bytes : 0);
    return RILL_OK;
}

/* ---- wires: a lent message, or (odd) a posted receive ---------------------------------------- */

static rill_status post(rill__link *link, int source, int tag, void *into, size_t room,
                        rill__wire *wire) {
    rill__mailbox *box = &local_of(link)->group->boxes[link->rank];
    rill__posted *p = malloc(sizeof *p);
    wire->word = 0;
    if (!p) return rill__fail(RILL_ERR_MEMORY, "out of memory for a receive");
    *p = (rill__posted){.source = source, .tag = tag, .into = into, .room = room};
    rill__posted **last = &box->posted; /* of this rank alone: no lock */
    while (*last)
        last = &(*last)->next;
    *last = p;
    wire->word = (uint64_t)(uintptr_t)p | 1;
    return RILL_OK;
}

static void end_posted(rill__mailbox *box, rill__posted *p) {
    rill__posted **at = &box->posted;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    free(p);
}

/* What was lent stays readable: the receiver gets a copy, since this rank's memory goes. */
static void settle(local_link *l, rill__local_message *m) {
    rill__mailbox *box = &l->group->boxes[m->to];
    rill__mailbox_lock(box);
    int state = atomic_load_explicit(&m->state, memory_order_acquire);
    if (state == WAITS) {
        char *copy = malloc(m->bytes);
        if (copy) memcpy(copy, m->data, m->bytes);
        else m->bytes = 0; /* malformed, which is an error for who receives it */
        m->data = copy;
        m->owned = true;
        m->lent = false;
    }
    rill__mailbox_unlock(box);
    if (state == WAITS) return;
    while (atomic_load_explicit(&m->state, memory_order_acquire) != TAKEN)
        sched_yield(); /* another thread is copying */
    message_free(l->group, m);
}

static rill_status test_posted(local_link *l, rill__wire *wire, size_t *bytes) {
    rill__mailbox *box = &l->group->boxes[l->link.rank];
    rill__posted *p = (rill__posted *)(uintptr_t)(wire->word & ~UINT64_C(1));
    look(l);
    if (!p->done && !rill__mailbox_empty(box)) {
        rill__mailbox_lock(box);
        match_posted(l, box);
        rill__mailbox_unlock(box);
    }
    if (!p->done && !(l->lost && l->fate[p->source])) return RILL_IN_PROGRESS;
    if (!p->done) {
        int source = p->source;
        end_posted(box, p);
        wire->word = 0;
        return rill__local_gone(source);
    }
    size_t came = p->bytes;
    bool cut = came > p->room;
    end_posted(box, p);
    wire->word = 0;
    if (bytes) *bytes = came;
    if (cut) return rill__fail(RILL_ERR_MESSAGE, "a message of %zu bytes was cut", came);
    return RILL_OK;
}

static rill_status test(rill__link *link, rill__wire *wire, size_t *bytes) {
    if (!wire->word) return RILL_OK;
    if (local_of(link)->left) {
        wire->word = 0;
        return RILL_OK;
    }
    if (wire->word & 1) return test_posted(local_of(link), wire, bytes);
    rill__local_message *m = (rill__local_message *)(uintptr_t)wire->word;
    local_link *l = local_of(link);
    if (atomic_load_explicit(&m->state, memory_order_acquire) != TAKEN) {
        int to = m->to;
        if (!l->lost || !l->fate[to]) return RILL_IN_PROGRESS;
        forget_lent(l, m);
        settle(l, m);
        wire->word = 0;
        return rill__local_gone(to);
    }
    forget_lent(l, m);
    message_free(local_of(link)->group, m);
    wire->word = 0;
    return RILL_OK;
}

static void cancel(rill__link *link, rill__wire *wire, bool *came) {
    *came = false;
    if (!(wire->word & 1) || local_of(link)->left) return;
    rill__posted *p = (rill__posted *)(uintptr_t)(wire->word & ~UINT64_C(1));
    *came = p->done;
    end_posted(&local_of(link)->group->boxes[link->rank], p);
    wire->word = 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static double real_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double clock_of(rill__link *link) {
    const rill__local_group *group = local_of(link)->group;
    return group->in_world ? group->world.clock(group->world.context, link->rank) : real_clock();
}

static uint64_t ticks_of(rill__link *link) { return (uint64_t)(1e9 * clock_of(link)); }

void rill__local_set_helper(rill__link *link, void (*advance)(void *), void *context) {
    helper *h = &local_of(link)->group->helpers[link->rank];
    pthread_mutex_lock(&h->lock);
    h->advance = advance;
    h->context = context;
    pthread_mutex_unlock(&h->lock);
}

static void unhelp(rill__link *link) { rill__local_set_helper(link, NULL, NULL); }

/* A thread that has several ranks would wait for ever for a rank that only it can advance. */
static void help(rill__link *link) {
    local_link *l = local_of(link);
    rill__local_group *group = l->group;
    if (group->in_world) return;
    int n = group->ranks - 1 < HELPED ? group->ranks - 1 : HELPED;
    for (int i = 0; i < n; i++) {
        int other = (int)(atomic_fetch_add_explicit(&l->next_helped, 1, memory_order_relaxed) %
                          (unsigned)group->ranks);
        if (other == link->rank) continue;
        helper *h = &group->helpers[other];
        if (pthread_mutex_trylock(&h->lock) != 0) continue;
        if (h->advance) h->advance(h->context);
        pthread_mutex_unlock(&h->lock);
    }
}

static void idle(rill__link *link, unsigned polls) {
    local_link *l = local_of(link);
    (void)polls;
    if (l->group->in_world) {
        l->group->world.idle(l->group->world.context, link->rank);
    } else {
        help(link);
        sched_yield();
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static void drop_mail(local_link *l) {
    rill__mailbox *box = &l->group->boxes[l->link.rank];
    rill__mailbox_lock(box);
    box->gone = true;
    for (rill__local_message *m = rill__mailbox_any(box); m; m = rill__mailbox_any(box)) {
        rill__mailbox_remove(box, m);
        message_taken(l->group, m);
    }
    rill__mailbox_unlock(box);
    while (box->posted)
        end_posted(box, box->posted);
}

static void leave(rill__link *link) {
    local_link *l = local_of(link);
    if (l->left) return;
    rill__local_set_helper(link, NULL, NULL);
    drop_mail(l);
    while (l->lent) {
        rill__local_message *m = l->lent;
        l->lent = m->lent_next;
        settle(l, m);
    }
    l->left = true;
}

static rill_status close_link(rill__link *link) {
    local_link *l = local_of(link);
    rill__local_group *group = l->group;
    leave(link);
    free(link->values);
    free(l->fate);
    free(l);
    pthread_mutex_lock(&group->lock);
    bool last = --group->open == 0;
    pthread_mutex_unlock(&group->lock);
    if (last && group->in_world) group->world.closed(group->world.context);
    if (last) rill__local_group_free(group);
    return RILL_OK;
}

static const rill__link_table table = {
    .name = "local",
    .send = send,
    .probe = probe,
    .receive = receive,
    .post = post,
    .test = test,
    .cancel = cancel,
    .allgather = rill__local_allgather,
    .bcast = rill__local_bcast,
    .another = rill__local_another,
    .clock = clock_of,
    .idle = idle,
    .help = help,
    .unhelp = unhelp,
    .share = rill__local_share,
    .unshare = rill__local_unshare,
    .leave = leave,
    .close = close_link,
    .failed = rill__local_failed,
    .give_up = rill__local_give_up,
};

static local_link *link_new(rill__local_group *group, int rank) {
    local_link *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->link = (rill__link){
        .table = &table,
        .rank = rank,
        .ranks = group->ranks,
        .threads = !group->in_world,
        .simulated = group->in_world,
        .yields = group->in_world,
        .notes_at_once = true,
        .most_at_once = INT_MAX,
        .message_limit = UINT64_C(1) << 30,
        .host = {1, 1},
        .patience = 0.2,
        .ticks = ticks_of,
    };
    l->link.values = calloc((size_t)group->ranks * RILL__LINK_VALUES, sizeof *l->link.values);
    l->fate = calloc((size_t)group->ranks, sizeof *l->fate);
    l->group = group;
    l->copied = COPIED;
    if (l->link.values && l->fate) return l;
    free(l->link.values);
    free(l->fate);
    free(l);
    return NULL;
}

rill_status rill__local_create(int ranks, const rill__local_world *world, rill__link **links) {
    rill__local_group *group = rill__local_group_new(ranks, world);
    bool good = group != NULL;
    for (int i = 0; i < ranks; i++) {
        local_link *l = good ? link_new(group, i) : NULL;
        links[i] = l ? &l->link : NULL;
        good = l != NULL;
    }
    if (good) {
        group->open = ranks;
        return RILL_OK;
    }
    for (int i = 0; i < ranks; i++) {
        if (links[i]) free(links[i]->values), free(local_of(links[i])->fate);
        free(links[i]);
        links[i] = NULL;
    }
    if (group) rill__local_group_free(group);
    return rill__fail(RILL_ERR_MEMORY, "out of memory for %d local ranks", ranks);
}

void rill__local_set_copied(rill__link *link, size_t most) { local_of(link)->copied = most; }

void rill__local_set_pause(rill__link *link, void (*pause)(void *), void *context) {
    local_of(link)->pause = pause;
    local_of(link)->pause_context = context;
}
