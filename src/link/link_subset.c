/* See link/subset.h. Every function of the table is the shared link's, with ranks and tags
 * translated, under a lock of its own where there are threads: engines that share a link do not
 * share theirs. Collectives are by messages, since not all ranks of the shared link take part. */
#include "link/subset.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Tags of the collectives, above those of calls (req/notes.c). */
enum { TAG_COLLECTIVE = RILL__EPOCH_TAGS - 4, POLLS_BETWEEN_LOOKS = 64 };

typedef struct deferred {
    void (*call)(void *);
    void *context;
    struct deferred *next;
} deferred;

typedef struct shared {
    rill__link *link;
    pthread_mutex_t lock;
    int users;
    unsigned highest; /* epoch */
    deferred *deferred;
} shared;

typedef struct subset {
    rill__link link; /* first */
    shared *shared;
    int epoch;
    int *ranks;    /* of the shared link, by this link's */
    int *places;   /* the other way; -1: not one of these */
    uint8_t *fate; /* of the shared link's ranks */
} subset;

static const rill__link_table table;

static subset *subset_of(rill__link *link) { return (subset *)link; }
bool rill__is_subset(const rill__link *link) { return link->table == &table; }

static void lock(subset *s) {
    if (s->link.threads) pthread_mutex_lock(&s->shared->lock);
}
static void unlock(subset *s) {
    if (s->link.threads) pthread_mutex_unlock(&s->shared->lock);
}

static const rill__link_table *under(const subset *s) { return s->shared->link->table; }
static int tag_of(const subset *s, int tag) {
    return tag < 0 ? tag - s->epoch : tag + s->epoch * RILL__EPOCH_TAGS;
}
static int rank_of(const subset *s, int rank) { return rank < 0 ? rank : s->ranks[rank]; }

/* ---- messages -------------------------------------------------------------------------------- */

static rill_status send(rill__link *link, int to, int tag, const void *data, size_t bytes,
                        rill__wire *wire) {
    subset *s = subset_of(link);
    lock(s);
    rill_status status = under(s)->send(s->shared->link, rank_of(s, to), tag_of(s, tag), data,
                                        bytes, wire);
    unlock(s);
    return status;
}

/* A message of this epoch by a rank that is none of it: by one that was given up. */
static rill_status drop(subset *s, const rill__arrival *found) {
    rill__wire wire;
    rill_status status = under(s)->receive(s->shared->link, found, found->tag, NULL, true, &wire);
    return status == RILL_OK ? RILL_IN_PROGRESS : status;
}

static rill_status probe(rill__link *link, int source, int tag, int tries, rill__arrival *arrival) {
    subset *s = subset_of(link);
    lock(s);
    rill_status status = under(s)->probe(s->shared->link, rank_of(s, source), tag_of(s, tag), tries,
                                         arrival);
    if (status == RILL_OK && s->places[arrival->source] < 0) status = drop(s, arrival);
    if (status == RILL_OK) {
        arrival->source = s->places[arrival->source];
        arrival->tag -= s->epoch * RILL__EPOCH_TAGS;
    }
    unlock(s);
    return status;
}

static rill_status receive(rill__link *link, const rill__arrival *arrival, int tag, void *into,
                           bool soon, rill__wire *wire) {
    subset *s = subset_of(link);
    rill__arrival there = *arrival;
    there.source = rank_of(s, arrival->source);
    there.tag = tag_of(s, arrival->tag);
    lock(s);
    rill_status status = under(s)->receive(s->shared->link, &there, tag_of(s, tag), into, soon,
                                           wire);
    unlock(s);
    return status;
}

static rill_status post(rill__link *link, int source, int tag, void *into, size_t room,
                        rill__wire *wire) {
    subset *s = subset_of(link);
    lock(s);
    rill_status status = under(s)->post(s->shared->link, rank_of(s, source), tag_of(s, tag), into,
                                        room, wire);
    unlock(s);
    return status;
}

static rill_status test(rill__link *link, rill__wire *wire, size_t *bytes) {
    subset *s = subset_of(link);
    lock(s);
    rill_status status = under(s)->test(s->shared->link, wire, bytes);
    unlock(s);
    return status;
}

static void cancel(rill__link *link, rill__wire *wire, bool *came) {
    subset *s = subset_of(link);
    lock(s);
    under(s)->cancel(s->shared->link, wire, came);
    unlock(s);
}

static double clock_of(rill__link *link) {
    subset *s = subset_of(link);
    return under(s)->clock(s->shared->link);
}

static uint64_t ticks_of(rill__link *link) {
    rill__link *below = subset_of(link)->shared->link;
    return below->ticks(below);
}

static rill_status usable(rill__link *link) {
    subset *s = subset_of(link);
    return under(s)->usable ? under(s)->usable(s->shared->link) : RILL_OK;
}

static void idle(rill__link *link, unsigned polls) {
    subset *s = subset_of(link);
    under(s)->idle(s->shared->link, polls);
}

static void unhelp(rill__link *link) {
    subset *s = subset_of(link);
    if (under(s)->unhelp) under(s)->unhelp(s->shared->link);
}

static void unshare_all(rill__link *link) {
    subset *s = subset_of(link);
    lock(s);
    if (under(s)->unshare) under(s)->unshare(s->shared->link);
    unlock(s);
}

/* ---- who has died ---------------------------------------------------------------------------- */

static bool failed(rill__link *link, uint8_t *fate) {
    subset *s = subset_of(link);
    bool raised = false;
    lock(s);
    under(s)->failed(s->shared->link, s->fate);
    unlock(s);
    for (int i = 0; i < link->ranks; i++) {
        if (fate[i] >= s->fate[s->ranks[i]]) continue;
        fate[i] = s->fate[s->ranks[i]];
        raised = true;
    }
    return raised;
}

static void give_up(rill__link *link, int rank) {
    subset *s = subset_of(link);
    lock(s);
    under(s)->give_up(s->shared->link, rank_of(s, rank));
    unlock(s);
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Nothing has come for a while: whom it should come from may be gone. */
static rill_status look(rill__link *link, unsigned polls) {
    subset *s = subset_of(link);
    idle(link, polls);
    if (polls % POLLS_BETWEEN_LOOKS) return RILL_OK;
    lock(s);
    under(s)->failed(s->shared->link, s->fate);
    unlock(s);
    for (int i = 0; i < link->ranks; i++)
        if (s->fate[s->ranks[i]]) return rill__fail(RILL_ERR_PEER, "rank %d is gone", i);
    return RILL_OK;
}

static rill_status take(rill__link *link, int from, void *into, size_t bytes) {
    rill__arrival came;
    rill__wire wire;
    rill_status status;
    unsigned polls = 0;
    while ((status = probe(link, from, TAG_COLLECTIVE, 1, &came)) == RILL_IN_PROGRESS)
        RILL_TRY(look(link, ++polls));
    RILL_TRY(status);
    if (came.bytes != bytes)
        return rill__fail(RILL_ERR_MISMATCH, "%zu bytes instead of %zu from rank %d", came.bytes,
                          bytes, from);
    RILL_TRY(receive(link, &came, TAG_COLLECTIVE, into, false, &wire));
    while ((status = test(link, &wire, NULL)) == RILL_IN_PROGRESS)
        RILL_TRY(look(link, ++polls));
    return status;
}

static rill_status give(rill__link *link, int to, const void *data, size_t bytes) {
    rill__wire wire;
    rill_status status;
    unsigned polls = 0;
    RILL_TRY(send(link, to, TAG_COLLECTIVE, data, bytes, &wire));
    while ((status = test(link, &wire, NULL)) == RILL_IN_PROGRESS)
        RILL_TRY(look(link, ++polls));
    return status;
}

/* Rank 0 gathers and gives all to all: collectives of a link are rare and small. */
static rill_status bcast(rill__link *link, void *data, size_t bytes, int root) {
    if (link->rank != root) return take(link, root, data, bytes);
    for (int i = 0; i < link->ranks; i++)
        if (i != root) RILL_TRY(give(link, i, data, bytes));
    return RILL_OK;
}

static rill_status allgather(rill__link *link, const void *mine, size_t bytes, void *all) {
    if (link->rank) {
        RILL_TRY(give(link, 0, mine, bytes));
    } else {
        memcpy(all, mine, bytes);
        for (int i = 1; i < link->ranks; i++)
            RILL_TRY(take(link, i, (char *)all + (size_t)i * bytes, bytes));
    }
    return bcast(link, all, (size_t)link->ranks * bytes, 0);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void free_subset(subset *s) {
    free(s->ranks);
    free(s->places);
    free(s->fate);
    free(s->link.values);
    free(s);
}

static rill_status close_link(rill__link *link) {
    subset *s = subset_of(link);
    shared *h = s->shared;
    lock(s);
    bool last = --h->users == 0;
    unlock(s);
    free_subset(s);
    if (!last) return RILL_OK;
    rill_status status = h->link->table->close(h->link);
    while (h->deferred) {
        deferred *one = h->deferred;
        h->deferred = one->next;
        one->call(one->context);
        free(one);
    }
    pthread_mutex_destroy(&h->lock);
    free(h);
    return status;
}

static rill_status another(rill__link *link, rill__link *together, rill__link **out) {
    subset *s = subset_of(link);
    if (under(s)->another) return under(s)->another(s->shared->link, together, out);
    return rill__fail(RILL_ERR_UNSUPPORTED, "the link %s can't be opened once more",
                      under(s)->name);
}

static const rill__link_table table = {
    .name = "subset",
    .send = send,
    .probe = probe,
    .receive = receive,
    .post = post,
    .test = test,
    .cancel = cancel,
    .allgather = allgather,
    .bcast = bcast,
    .another = another,
    .clock = clock_of,
    .usable = usable,
    .idle = idle,
    .unhelp = unhelp,
    .unshare = unshare_all,
    .close = close_link,
    .failed = failed,
    .give_up = give_up,
};

/* Room for as many ranks as the link has. */
static subset *make(shared *h) {
    subset *s = rill__calloc(1, sizeof *s);
    size_t ranks = (size_t)h->link->ranks;
    if (!s) return NULL;
    s->link = *h->link; /* what it can do is what the shared one can */
    s->link.table = &table;
    s->link.has_mpi = false;
    if (s->link.ticks) s->link.ticks = ticks_of;
    s->link.values = rill__calloc(ranks * RILL__LINK_VALUES, sizeof *s->link.values);
    s->shared = h;
    s->ranks = rill__calloc(ranks, sizeof *s->ranks);
    s->places = rill__calloc(ranks, sizeof *s->places);
    s->fate = rill__calloc(ranks, sizeof *s->fate);
    if (s->link.values && s->ranks && s->places && s->fate) return s;
    free_subset(s);
    return NULL;
}

static void number(subset *s, int n, unsigned epoch) {
    s->epoch = (int)epoch;
    s->link.ranks = n;
    for (int i = 0; i < s->shared->link->ranks; i++)
        s->places[i] = -1;
    for (int i = 0; i < n; i++)
        s->places[s->ranks[i]] = i;
    s->link.rank = s->places[s->shared->link->rank];
}

rill_status rill__subset_wrap(rill__link **link) {
    if (rill__is_subset(*link)) return RILL_OK;
    shared *h = rill__calloc(1, sizeof *h);
    if (h) h->link = *link;
    subset *s = h ? make(h) : NULL;
    if (!s || pthread_mutex_init(&h->lock, NULL) != 0) {
        if (s) free_subset(s);
        free(h);
        return rill__fail(RILL_ERR_MEMORY, "out of memory for a link");
    }
    h->users = 1;
    for (int i = 0; i < h->link->ranks; i++)
        s->ranks[i] = i;
    number(s, h->link->ranks, 0);
    *link = &s->link;
    return RILL_OK;
}

rill_status rill__subset_reserve(rill__link *of, rill__link **out) {
    subset *s = make(subset_of(of)->shared);
    *out = s ? &s->link : NULL;
    return s ? RILL_OK : rill__fail(RILL_ERR_MEMORY, "out of memory for a link");
}

void rill__subset_cancel(rill__link *link) {
    if (link) free_subset(subset_of(link));
}

void rill__subset_open(rill__link *link, const rill__link *of, const int *ranks, int n,
                       unsigned epoch) {
    subset *s = subset_of(link);
    const subset *from = (const subset *)of;
    for (int i = 0; i < n; i++)
        s->ranks[i] = from->ranks[ranks[i]];
    number(s, n, epoch);
    lock(s);
    s->shared->users++;
    if (epoch > s->shared->highest) s->shared->highest = epoch;
    if (under(s)->survive) under(s)->survive(s->shared->link);
    unlock(s);
}

unsigned rill__subset_epoch(rill__link *link, unsigned at_least) {
    subset *s = subset_of(link);
    lock(s);
    if (at_least > s->shared->highest) s->shared->highest = at_least;
    unsigned highest = s->shared->highest;
    unlock(s);
    return highest;
}

bool rill__subset_defer(rill__link *link, void (*call)(void *), void *context) {
    subset *s = subset_of(link);
    deferred *one = rill__malloc(sizeof *one);
    if (!one) return false;
    one->call = call;
    one->context = context;
    lock(s);
    one->next = s->shared->deferred;
    s->shared->deferred = one;
    unlock(s);
    return true;
}
