/* What a socket can bring: the rendezvous on both sides, the greetings and words of the watch,
 * notes and the words of a shrink. Whoever is at the other end, nothing waits for ever, no
 * connection stays open, and without the key nobody is taken for a rank.
 *
 * The input is a byte that says what is tried, a byte of choices, then what comes: pieces of two
 * bytes of length (and flags) and so many bytes. A piece is what a connection brings, or a message.
 * Sockets and the clock are pretended: see the wrapped functions. */
#include "fuzz.h"
#include "link/rendezvous.h"
#include "link/subset.h"
#include "link/watch_own.h"
#include "req/request.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = 10000, SOCKETS = 400, PATIENCE = 3, BYTES = 24, MOST_CALLS = 200000 };

static const uint8_t key[RILL__JOB_KEY] = "a key of 16 byte";

/* ---- sockets and time ------------------------------------------------------------------------ */

typedef struct pipe_end {
    bool open, watched;
    uint32_t rank; /* of epoll */
    const uint8_t *at;
    size_t left;
    bool ends; /* the other side closes; else it is silent from then on */
} pipe_end;

static struct {
    bool inside; /* else all is real */
    const uint8_t *data;
    size_t left;
    pipe_end sockets[SOCKETS];
    int n, open;
    double now;
    long calls;
} world;

static pipe_end *end_of(int fd) {
    return world.inside && fd >= FIRST && fd < FIRST + world.n ? &world.sockets[fd - FIRST] : NULL;
}

/* The next piece of the input; NULL: there is none. */
static const uint8_t *next_piece(size_t *bytes, unsigned *flags) {
    if (world.left < 2) return NULL;
    unsigned head = world.data[0] | (unsigned)world.data[1] << 8;
    const uint8_t *piece = world.data + 2;
    *flags = head >> 10;
    *bytes = head & 1023;
    if (*bytes > world.left - 2) *bytes = world.left - 2;
    world.data += 2 + *bytes;
    world.left -= 2 + *bytes;
    return piece;
}

static int new_end(bool listener) {
    pipe_end p = {.open = true};
    unsigned flags = 0;
    if (!listener) p.at = next_piece(&p.left, &flags);
    if ((!listener && !p.at) || world.n == SOCKETS) {
        errno = EAGAIN;
        return -1;
    }
    p.ends = flags & 1;
    world.sockets[world.n] = p;
    world.open++;
    return FIRST + world.n++;
}

static void pass(double seconds) {
    world.now += seconds;
    MUST(++world.calls < MOST_CALLS); /* else it would wait for ever */
}

static bool readable(const pipe_end *p) { return p->left || p->ends; }

/* Before it is connected or bound a socket is nothing yet. */
int __wrap_socket(int, int, int);
int __wrap_bind(int, const struct sockaddr *, socklen_t);
int __wrap_listen(int, int);
int __wrap_connect(int, const struct sockaddr *, socklen_t);
int __wrap_getsockname(int, struct sockaddr *, socklen_t *);
int __wrap_getsockopt(int, int, int, void *, socklen_t *);
int __wrap_setsockopt(int, int, int, const void *, socklen_t);
int __wrap_accept4(int, struct sockaddr *, socklen_t *, int);
ssize_t __wrap_recv(int, void *, size_t, int);
ssize_t __wrap_send(int, const void *, size_t, int);
int __wrap_poll(struct pollfd *, nfds_t, int);
int __wrap_epoll_ctl(int, int, int, struct epoll_event *);
int __wrap_epoll_wait(int, struct epoll_event *, int, int);
int __wrap_close(int);
int __wrap_usleep(useconds_t);
int __wrap_clock_gettime(clockid_t, struct timespec *);
int __real_close(int);
int __real_poll(struct pollfd *, nfds_t, int);
int __real_usleep(useconds_t);
int __real_clock_gettime(clockid_t, struct timespec *);

int __wrap_socket(int family, int type, int protocol) {
    (void)family, (void)type, (void)protocol;
    return new_end(true);
}
int __wrap_bind(int fd, const struct sockaddr *at, socklen_t n) {
    (void)fd, (void)at, (void)n;
    return 0;
}
int __wrap_listen(int fd, int backlog) {
    (void)fd, (void)backlog;
    return 0;
}
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t n) {
    pipe_end *p = end_of(fd);
    unsigned flags = 0;
    (void)to, (void)n;
    MUST(p && p->open);
    p->at = next_piece(&p->left, &flags);
    p->ends = flags & 1;
    if (p->at) return 0;
    errno = ECONNREFUSED;
    pass(0.01);
    return -1;
}
int __wrap_getsockname(int fd, struct sockaddr *at, socklen_t *n) {
    (void)fd, (void)at, (void)n;
    return 0;
}
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *n) {
    (void)fd, (void)level, (void)name, (void)n;
    *(int *)value = 0;
    return 0;
}
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n) {
    (void)fd, (void)level, (void)name, (void)value, (void)n;
    return 0;
}
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *n, int flags) {
    (void)from, (void)n, (void)flags;
    MUST(end_of(fd) && end_of(fd)->open);
    return new_end(false);
}
ssize_t __wrap_recv(int fd, void *data, size_t bytes, int flags) {
    pipe_end *p = end_of(fd);
    (void)flags;
    MUST(p && p->open);
    pass(1e-5);
    if (!p->left && p->ends) return 0;
    errno = EAGAIN;
    if (!p->left) return -1;
    size_t n = 1 + (size_t)world.calls * 7 % 40;
    if (n > bytes) n = bytes;
    if (n > p->left) n = p->left;
    memcpy(data, p->at, n);
    p->at += n;
    p->left -= n;
    return (ssize_t)n;
}
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags) {
    const pipe_end *p = end_of(fd);
    static volatile uint8_t sum;
    (void)flags;
    MUST(p && p->open);
    pass(1e-5);
    for (size_t i = 0; i < bytes; i++) /* all of it must be there */
        sum = sum ^ ((const uint8_t *)data)[i];
    errno = EPIPE;
    return p->ends && !p->left ? -1 : (ssize_t)bytes;
}
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout) {
    int ready = 0;
    if (!world.inside) return __real_poll(fds, n, timeout);
    for (nfds_t i = 0; i < n; i++) {
        const pipe_end *p = end_of(fds[i].fd);
        fds[i].revents = 0;
        MUST(fds[i].fd < 0 || (p && p->open));
        if (!p) continue;
        if ((fds[i].events & POLLIN) && readable(p)) fds[i].revents |= POLLIN;
        if (fds[i].events & POLLOUT) fds[i].revents |= POLLOUT;
        ready += fds[i].revents != 0;
    }
    pass(ready ? 1e-4 : 1e-3 * (timeout > 0 ? timeout : 1));
    return ready;
}
int __wrap_epoll_ctl(int events, int operation, int fd, struct epoll_event *event) {
    pipe_end *p = end_of(fd);
    (void)events, (void)operation;
    MUST(p && p->open);
    p->watched = true;
    p->rank = event->data.u32;
    return 0;
}
int __wrap_epoll_wait(int events, struct epoll_event *out, int most, int timeout) {
    int n = 0;
    (void)events, (void)timeout;
    pass(1e-4);
    for (int i = 0; i < world.n && n < most; i++) {
        const pipe_end *p = &world.sockets[i];
        if (p->open && p->watched && readable(p)) out[n++].data.u32 = p->rank;
    }
    return n;
}
int __wrap_close(int fd) {
    pipe_end *p = end_of(fd);
    if (!p) return __real_close(fd);
    MUST(p->open);
    p->open = false;
    world.open--;
    return 0;
}
int __wrap_usleep(useconds_t us) {
    if (!world.inside) return __real_usleep(us);
    pass(1e-6 * us);
    return 0;
}
int __wrap_clock_gettime(clockid_t id, struct timespec *out) {
    if (!world.inside) return __real_clock_gettime(id, out);
    out->tv_sec = (time_t)world.now;
    out->tv_nsec = (long)((world.now - (double)out->tv_sec) * 1e9);
    return 0;
}

/* ---- what is tried --------------------------------------------------------------------------- */

static void meet(int rank, int ranks) {
    rill__rendezvous *r = NULL;
    char mine[BYTES] = "rank", all[4 * BYTES];
    rill_status status = rill__rendezvous_open("127.0.0.1:7777", rank, ranks, PATIENCE, &r);
    MUST((status == RILL_OK) == (r != NULL));
    for (int turn = 0; turn < 2 && status == RILL_OK; turn++) {
        memset(all, 0xEE, sizeof all);
        status = rill__rendezvous_allgather(r, mine, sizeof mine, all);
        MUST(status != RILL_OK || rank || memcmp(all, mine, sizeof mine) == 0);
    }
    MUST(status <= RILL_OK && status >= RILL_ERR_PEER);
    rill__rendezvous_close(r);
}

static void watch(int rank, int ranks) {
    rill__watch *w = NULL;
    rill__watch_address all[4];
    bool same_host[4] = {true, true, true, true};
    memset(all, 0, sizeof all);
    MUST(rill__watch_create(rank, ranks, &w, &all[rank]) == RILL_OK);
    rill_status status = rill__watch_connect(w, all, sizeof *all, key, same_host,
                                             world.now + PATIENCE);
    MUST(status == RILL_OK || status == RILL_ERR_PEER);
    for (int i = 0; status == RILL_OK && i < ranks; i++)
        MUST(i == rank || w->fds[i] >= 0);
    int lost = 0;
    for (int i = 0; status == RILL_OK && i < 20; i++) {
        int now = rill__watch_poll(w), there = 0, gone = 0;
        MUST(now >= lost && now < ranks);
        lost = now;
        for (int k = 0; k < ranks; k++) {
            there += k != rank && rill__watch_state(w, k) == RILL__WATCH_THERE;
            gone += rill__watch_state(w, k) >= RILL__WATCH_SILENT;
        }
        MUST(gone == lost && rill__watch_all_left(w) == (there == 0));
        if (i == 5) rill__watch_tell_out(w, (rank + 1) % ranks);
        if (i == 10) rill__watch_leave(w);
    }
    rill__watch_free(w);
}

/* ---- a link that brings the input ------------------------------------------------------------ */

typedef struct bringer {
    rill__link link; /* first */
    double values[4 * RILL__LINK_VALUES];
    atomic_uint_least64_t strangers;
    const uint8_t *piece;
    size_t bytes;
    unsigned flags;
    uint64_t pieces, sealed;
} bringer;

static rill_status bring_send(rill__link *link, int to, int tag, const void *data, size_t bytes,
                              rill__wire *wire) {
    MUST(to >= 0 && to < link->ranks && to != link->rank && tag >= 0 && (data || !bytes));
    wire->word = 0;
    return RILL_OK;
}
static rill_status bring_probe(rill__link *link, int source, int tag, int tries,
                               rill__arrival *arrival) {
    static const int tags[] = {RILL__TAG_NOTE, RILL__TAG_PEERS, RILL__TAG_SHRINK, RILL__TAG_SHRINK};
    bringer *b = (bringer *)link;
    (void)source, (void)tries;
    pass(1e-3);
    if (!b->piece) b->piece = next_piece(&b->bytes, &b->flags);
    if (!b->piece || tags[b->flags & 3] != tag) return RILL_IN_PROGRESS;
    arrival->source = 1 + (int)(b->flags >> 3 & 1);
    arrival->tag = tag;
    arrival->bytes = b->bytes;
    return RILL_OK;
}
static rill_status bring_receive(rill__link *link, const rill__arrival *arrival, int tag,
                                 void *into, bool soon, rill__wire *wire) {
    bringer *b = (bringer *)link;
    (void)soon;
    MUST(b->piece && arrival->bytes == b->bytes);
    wire->word = 0;
    bool sealed = b->flags & 4;
    if (into) memcpy(into, b->piece, b->bytes);
    if (into && sealed && tag == RILL__TAG_SHRINK && b->bytes >= 32)
        memcpy((char *)into + 24, &link->key, sizeof link->key);
    else if (into && sealed && tag != RILL__TAG_SHRINK && b->bytes >= 5)
        memcpy(into, &link->key, 5);
    else sealed = false;
    b->pieces++;
    b->sealed += sealed;
    b->piece = NULL;
    return RILL_OK;
}
static rill_status bring_test(rill__link *link, rill__wire *wire, size_t *bytes) {
    (void)link, (void)wire, (void)bytes;
    return RILL_OK;
}
static double bring_clock(rill__link *link) {
    (void)link;
    return world.now;
}
static void bring_idle(rill__link *link, unsigned polls) {
    (void)link, (void)polls;
    pass(1e-2);
}
static bool bring_failed(rill__link *link, uint8_t *fate) {
    (void)link, (void)fate;
    return false;
}
static void bring_give_up(rill__link *link, int rank) {
    MUST(rank >= 0 && rank < link->ranks && rank != link->rank);
}
static rill_status bring_close(rill__link *link) {
    (void)link;
    return RILL_OK;
}

static const rill__link_table bring_table = {.name = "bringer",
                                             .send = bring_send,
                                             .probe = bring_probe,
                                             .receive = bring_receive,
                                             .test = bring_test,
                                             .clock = bring_clock,
                                             .idle = bring_idle,
                                             .close = bring_close,
                                             .failed = bring_failed,
                                             .give_up = bring_give_up};

/* Notes, then an agreement with ranks that answer anything. Without the key nothing is believed. */
static void agree(unsigned choice) {
    static rill__engine engine;
    static bringer b;
    memset(&engine, 0, sizeof engine);
    b = (bringer){.link = {.table = &bring_table, .rank = 0, .ranks = 3, .message_limit = 1 << 20}};
    b.link.values = b.values;
    b.link.key = UINT64_C(0x1234567890abcdef);
    b.link.strangers = &b.strangers;
    rill__link *link = &b.link;
    MUST(rill__subset_wrap(&link) == RILL_OK && rill__engine_init(&engine, link) == RILL_OK);
    engine.peers.timeout = 1;
    for (int i = 0; i < 3; i++)
        rill__receive_notes(&engine);
    if (!b.sealed) {
        MUST(b.strangers == b.pieces && !engine.notes && !engine.peers.revoked);
        for (int i = 0; i < 3; i++)
            MUST(!engine.received[i] && !engine.announced[i] && !engine.peers.fate[i]);
    }
    if (choice & 1) {
        int ranks[3], n = 0;
        unsigned epoch = 0;
        rill__peers_revoke(&engine, false);
        rill_status status = rill__shrink_agree(&engine, RILL_OK, choice & 2, ranks, &n, &epoch);
        if (status == RILL_OK) MUST(n > 0 && n <= 3 && ranks[0] == 0 && epoch < RILL__EPOCHS);
        if (!b.sealed) MUST(status == ((choice & 2) ? RILL_OK : RILL_ERR_STATE));
    }
    MUST(rill__orphans_done(&engine));
    rill__engine_free(&engine);
    MUST(link->table->close(link) == RILL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    memset(&world, 0, sizeof world);
    world.data = data + 2;
    world.left = size - 2;
    world.now = 100;
    world.inside = true;
    unsigned choice = data[1];
    int ranks = 2 + (int)(choice & 1);
    switch (data[0] % 5) {
    case 0: meet(0, ranks); break;
    case 1: meet(1, ranks); break;
    case 2: watch(0, ranks); break;
    case 3: watch(ranks - 1, ranks); break;
    default: agree(choice); break;
    }
    MUST(world.open == 0);
    world.inside = false;
    return 0;
}
