/* How the connections of the watch come about. All at once, each by steps that never wait: the
 * lower rank connects to one of the other's addresses after the other until one answers with the
 * key of the job.
 *
 * A rank may die meanwhile. Until it has all connections it listens: if all of its addresses
 * refuse, over and over, it is dead. Who awaits its call looks for its listener, too, after a
 * while. */
#include "link/watch_own.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* Callers whose greeting is not whole yet. Where there are more the oldest goes, after a while in
 * which a peer would have greeted; it tries again, and strangers cannot keep it out for long. */
enum { CALLERS = 64 };
#define HASTE 0.2
/* Seconds for one address, and for whoever is behind it, or calls, to greet. */
#define PATIENCE 3.0
#define COURTESY 15.0
/* Seconds before a caller is looked for, between tries and looks, and of refusals that mean
 * death. */
#define BEFORE_LOOK 1.0
#define PAUSE 0.01
#define BETWEEN_LOOKS 0.5
#define REFUSED 2.0

typedef struct greeting {
    char magic[8];
    uint8_t key[RILL__JOB_KEY];
    uint32_t from, to;
} greeting;

typedef enum stage { IDLE, CONNECTS, GREETS, AWAITS, DONE } stage;

/* A connection on its way; to a peer, or from a caller. */
typedef struct attempt {
    int fd;
    int poll; /* its place in the last poll; 0: it was not there */
    stage stage;
    int address;  /* the next to try */
    double until; /* of this try */
    size_t done;  /* bytes of the greeting */
    int refused;  /* tries in a row, */
    double since; /* from then on */
    greeting text;
} attempt;

typedef struct rill__watch_connecting {
    rill__watch *w;
    const char *all; /* addresses */
    size_t stride;
    const uint8_t *key;
    const bool *same_host;
    attempt *peers; /* those of higher ranks */
    attempt callers[CALLERS];
    struct pollfd *polls;
    int next_caller;
    int missing;
    double began;
} connecting;

static const rill__watch_address *address_of(const connecting *c, int rank) {
    return (const void *)(c->all + (size_t)rank * c->stride);
}

static greeting greet(const connecting *c, int to) {
    greeting g = {.magic = "RILLWCH", .from = (uint32_t)c->w->rank, .to = (uint32_t)to};
    memcpy(g.key, c->key, sizeof g.key);
    return g;
}

static bool is_greeting(const connecting *c, const greeting *g) {
    return memcmp(g->magic, "RILLWCH", sizeof g->magic) == 0 &&
           memcmp(g->key, c->key, sizeof g->key) == 0 && g->to == (uint32_t)c->w->rank &&
           g->from < (uint32_t)c->w->ranks;
}

static void give_up(attempt *a) {
    if (a->fd >= 0) close(a->fd);
    a->fd = -1;
    a->stage = IDLE;
}

/* A try has come to nothing. Only a refusal is the word of the other's host. */
static void count_refusal(attempt *a, int error) {
    if (error != ECONNREFUSED) a->refused = 0;
    else if (!a->refused++) a->since = rill__tcp_clock();
}

/* ---- to higher ranks ------------------------------------------------------------------------- */

/* Addresses in turn, over and over: the other may not have come to accept yet. */
static void begin(const connecting *c, attempt *a, int rank) {
    static const rill__tcp_address loopback = {.family = 4, .bytes = {127, 0, 0, 1}};
    const rill__watch_address *to = address_of(c, rank);
    int n = to->n <= RILL__WATCH_ADDRESSES ? to->n : 0, own = c->same_host[rank];
    int turn = a->address++ % (n + own > 0 ? n + own : 1);
    if (n + own == 0) return;
    rill__socket_address made = rill__tcp_make(turn < own ? &loopback : &to->at[turn - own],
                                               to->port);
    a->until = rill__tcp_clock() + PATIENCE;
    a->fd = rill__tcp_connect(&made);
    a->done = 0;
    if (a->fd >= 0) {
        a->stage = CONNECTS;
        return;
    }
    count_refusal(a, errno);
    a->until = rill__tcp_clock() + PAUSE;
}

/* One step of a connection to a rank. */
static rill_status advance(connecting *c, attempt *a, int rank) {
    if (a->stage == CONNECTS) {
        int error = rill__tcp_outcome(a->fd);
        count_refusal(a, error);
        if (error || rank < c->w->rank) { /* that one calls: it is enough that it listens */
            give_up(a);
            a->until = rill__tcp_clock() + (error ? PAUSE : BETWEEN_LOOKS);
            return RILL_OK;
        }
        a->stage = GREETS;
        a->until = rill__tcp_clock() + COURTESY;
        a->text = greet(c, rank);
    }
    char *text = (char *)&a->text;
    if (a->stage == GREETS) {
        long n = rill__tcp_write(a->fd, text + a->done, sizeof a->text - a->done);
        if (n < 0) give_up(a);
        if (n <= 0 || (a->done += (size_t)n) < sizeof a->text) return RILL_OK;
        a->stage = AWAITS;
        a->done = 0;
        return RILL_OK;
    }
    long n = rill__tcp_read(a->fd, text + a->done, sizeof a->text - a->done);
    if (n < 0) give_up(a);
    if (n <= 0 || (a->done += (size_t)n) < sizeof a->text) return RILL_OK;
    if (!is_greeting(c, &a->text) || a->text.from != (uint32_t)rank) {
        give_up(a);
        return RILL_OK;
    }
    a->stage = DONE;
    c->missing--;
    return rill__watch_take(c->w, rank, a->fd);
}

/* ---- from lower ranks ------------------------------------------------------------------------ */

static void accept_all(connecting *c) {
    for (;; c->next_caller++) {
        attempt *a = &c->callers[c->next_caller % CALLERS];
        if (a->fd >= 0 && a->until - COURTESY + HASTE > rill__tcp_clock()) return;
        int fd = rill__tcp_accept(c->w->listener);
        if (fd < 0) return;
        give_up(a);
        *a = (attempt){.fd = fd, .stage = AWAITS, .until = rill__tcp_clock() + COURTESY};
    }
}

/* The answer is as short as a socket's buffer always takes. */
static rill_status hear(connecting *c, attempt *a) {
    long n = rill__tcp_read(a->fd, (char *)&a->text + a->done, sizeof a->text - a->done);
    if (n < 0) give_up(a);
    if (n <= 0 || (a->done += (size_t)n) < sizeof a->text) return RILL_OK;
    int from = is_greeting(c, &a->text) ? (int)a->text.from : -1;
    greeting answer = greet(c, from);
    if (from < 0 || from >= c->w->rank ||
        rill__tcp_write(a->fd, &answer, sizeof answer) != (long)sizeof answer) {
        give_up(a);
        return RILL_OK;
    }
    if (c->w->fds[from] >= 0) { /* it has given up the one before */
        close(c->w->fds[from]);
        c->w->there--;
        c->missing++;
    }
    int fd = a->fd;
    a->fd = -1;
    a->stage = IDLE;
    c->missing--;
    return rill__watch_take(c->w, from, fd);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void list_one(connecting *c, attempt *a, bool open, int *n) {
    a->poll = open ? *n : 0;
    if (!open) return;
    c->polls[(*n)++] = (struct pollfd){.fd = a->fd,
                                       .events = a->stage == AWAITS ? POLLIN : POLLOUT};
}

/* Open ones alone: poll takes no more entries than a process may open files. */
static int list(connecting *c) {
    int n = 0;
    c->polls[n++] = (struct pollfd){.fd = c->w->listener, .events = POLLIN};
    for (int i = 0; i < CALLERS; i++)
        list_one(c, &c->callers[i], c->callers[i].fd >= 0, &n);
    for (int i = 0; i < c->w->ranks; i++) {
        attempt *a = &c->peers[i];
        list_one(c, a, a->stage != IDLE && a->stage != DONE, &n);
    }
    return n;
}

static bool is_ready(const connecting *c, const attempt *a) {
    return a->poll && c->polls[a->poll].revents;
}

static bool is_dead(const connecting *c, int rank, double now) {
    const attempt *a = &c->peers[rank];
    int n = address_of(c, rank)->n + c->same_host[rank];
    return a->refused >= 2 * n && a->refused && now - a->since > REFUSED;
}

/* Whoever has had a connection and lost it makes another one; else it is dead. */
static rill_status look_back(connecting *c, double now) {
    rill__watch *w = c->w;
    rill__watch_poll(w);
    for (int i = 0; i < w->ranks; i++) {
        if (i == w->rank) continue;
        if (w->states[i] == RILL__WATCH_LEFT)
            return rill__fail(RILL_ERR_PEER, "rank %d has given up while ranks connect", i);
        if (w->states[i] != RILL__WATCH_THERE) {
            w->states[i] = RILL__WATCH_THERE;
            w->lost--;
            c->missing++;
            c->peers[i].stage = IDLE;
            c->peers[i].fd = -1;
        }
        if (w->fds[i] < 0 && is_dead(c, i, now))
            return rill__fail(RILL_ERR_PEER, "rank %d is gone while ranks connect", i);
    }
    return RILL_OK;
}

/* Whether to try to reach that rank: a higher one, or one that should have called by now. */
static bool is_due(const connecting *c, int rank, double now) {
    return rank > c->w->rank ||
           (rank < c->w->rank && c->w->fds[rank] < 0 && now > c->began + BEFORE_LOOK);
}

static rill_status step(connecting *c) {
    double now = rill__tcp_clock();
    RILL_TRY(look_back(c, now));
    for (int i = 0; i < CALLERS; i++)
        if (c->callers[i].fd >= 0 && now > c->callers[i].until) give_up(&c->callers[i]);
    for (int i = 0; i < c->w->ranks; i++) {
        attempt *a = &c->peers[i];
        if (a->stage != DONE && a->stage != IDLE && now > a->until) {
            count_refusal(a, ETIMEDOUT);
            give_up(a);
        }
        if (a->stage == IDLE && now > a->until && is_due(c, i, now)) begin(c, a, i);
    }
    int n = list(c);
    if (poll(c->polls, (nfds_t)n, 10) < 0 && errno != EINTR)
        return rill__fail(RILL_ERR_IO, "poll: %s", strerror(errno));
    for (int i = 0; i < CALLERS; i++)
        if (is_ready(c, &c->callers[i])) RILL_TRY(hear(c, &c->callers[i]));
    for (int i = 0; i < c->w->ranks; i++) {
        attempt *a = &c->peers[i];
        if (is_ready(c, a)) RILL_TRY(advance(c, a, i));
        if (i > c->w->rank && a->stage == IDLE && a->poll) a->until = now + PAUSE;
    }
    accept_all(c);
    return RILL_OK;
}

static rill_status not_reached(const connecting *c) {
    int rank = 0;
    while (rank == c->w->rank || c->w->fds[rank] >= 0)
        rank++;
    return rill__fail(RILL_ERR_PEER,
                      "rank %d: no TCP connection with rank %d came about (a firewall? "
                      "UCX_NET_DEVICES chooses the interface)",
                      c->w->rank, rank);
}

rill__watch_connecting *rill__watch_connecting_new(int ranks) {
    connecting *c = rill__calloc(1, sizeof *c);
    if (c) c->peers = rill__calloc((size_t)ranks, sizeof *c->peers);
    if (c) c->polls = rill__calloc((size_t)ranks + CALLERS + 1, sizeof *c->polls);
    if (c && c->peers && c->polls) return c;
    rill__watch_connecting_free(c);
    return NULL;
}

void rill__watch_connecting_free(rill__watch_connecting *c) {
    if (c) free(c->peers), free(c->polls);
    free(c);
}

rill_status rill__watch_connect(rill__watch *w, const rill__watch_address *all, size_t stride,
                                const uint8_t key[RILL__JOB_KEY], const bool *same_host,
                                double until) {
    connecting *c = w->connecting;
    rill_status status = RILL_OK;
    c->w = w, c->all = (const char *)all, c->stride = stride;
    c->key = key, c->same_host = same_host;
    c->missing = w->ranks - 1;
    c->began = rill__tcp_clock();
    for (int i = 0; i < CALLERS; i++)
        c->callers[i].fd = -1;
    for (int i = 0; i < w->ranks; i++)
        c->peers[i].fd = -1;
    while (status == RILL_OK && c->missing)
        status = rill__tcp_clock() < until ? step(c) : not_reached(c);
    for (int i = 0; i < CALLERS; i++)
        give_up(&c->callers[i]);
    for (int i = 0; i < w->ranks; i++)
        if (c->peers[i].stage != DONE) give_up(&c->peers[i]);
    rill__watch_connecting_free(c);
    w->connecting = NULL;
    close(w->listener);
    w->listener = -1;
    return status;
}
