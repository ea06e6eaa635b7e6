/* Who is gone: see link/watch.h. */
#include "link/watch_own.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* A host that is lost: probes begin after IDLE seconds, and COUNT in vain are enough. */
enum { KEEP_IDLE = 10, KEEP_EVERY = 5, KEEP_COUNT = 3 };
_Static_assert(KEEP_IDLE + KEEP_COUNT * KEEP_EVERY == RILL__WATCH_SILENCE, "as documented");

enum { EVENTS = 16 };

/* All that a connection ever says. */
static const char goodbye = 'L', stay_out = 'G';

/* ---- forks ----------------------------------------------------------------------------------- */

/* A connection ends when all processes that have it close it: a child that was forked, and knows
 * nothing of it, would keep its dead parent alive. So children close what they inherit. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t at_fork = PTHREAD_ONCE_INIT;
static rill__watch *all_watches;

static void before_fork(void) { pthread_mutex_lock(&all_lock); }
static void after_fork(void) { pthread_mutex_unlock(&all_lock); }

static void close_all(const rill__watch *w) {
    for (int i = 0; i < w->ranks; i++)
        if (w->fds[i] >= 0) close(w->fds[i]);
    if (w->listener >= 0) close(w->listener);
    if (w->events >= 0) close(w->events);
}

static void in_child(void) {
    for (rill__watch *w = all_watches; w; w = w->next) {
        close_all(w);
        memset(w->fds, -1, (size_t)w->ranks * sizeof *w->fds);
        w->listener = w->events = -1;
    }
    all_watches = NULL;
    pthread_mutex_unlock(&all_lock);
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

static void enlist(rill__watch *w) {
    pthread_once(&at_fork, watch_forks);
    pthread_mutex_lock(&all_lock);
    w->next = all_watches;
    all_watches = w;
    pthread_mutex_unlock(&all_lock);
}

static void delist(const rill__watch *w) {
    pthread_mutex_lock(&all_lock);
    rill__watch **at = &all_watches;
    while (*at && *at != w)
        at = &(*at)->next;
    if (*at) *at = w->next;
    pthread_mutex_unlock(&all_lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

rill_status rill__watch_create(int rank, int ranks, rill__watch **out, rill__watch_address *mine) {
    rill__watch *w = rill__calloc(1, sizeof *w);
    if (w) w->fds = rill__malloc((size_t)ranks * sizeof *w->fds);
    if (w) w->states = rill__calloc((size_t)ranks, sizeof *w->states);
    if (w) w->connecting = rill__watch_connecting_new(ranks);
    if (!w || !w->fds || !w->states || !w->connecting) {
        if (w) free(w->fds), free(w->states), rill__watch_connecting_free(w->connecting);
        free(w);
        return rill__fail(RILL_ERR_MEMORY, "out of memory for the watch of %d ranks", ranks);
    }
    memset(w->fds, -1, (size_t)ranks * sizeof *w->fds);
    memset(mine, 0, sizeof *mine);
    w->rank = rank;
    w->ranks = ranks;
    w->listener = rill__tcp_listen(NULL, &mine->port);
    w->events = w->listener >= 0 ? epoll_create1(EPOLL_CLOEXEC) : -1;
    enlist(w);
    if (w->events < 0) {
        rill_status status = rill__fail(RILL_ERR_IO, "no socket to listen on: %s", strerror(errno));
        rill__watch_free(w);
        return status;
    }
    mine->n = (uint8_t)rill__tcp_addresses(mine->at, RILL__WATCH_ADDRESSES);
    *out = w;
    return RILL_OK;
}

void rill__watch_free(rill__watch *w) {
    if (!w) return;
    delist(w);
    close_all(w);
    free(w->fds);
    free(w->states);
    rill__watch_connecting_free(w->connecting);
    free(w);
}

rill_status rill__watch_take(rill__watch *w, int rank, int fd) {
    int on = 1, idle = KEEP_IDLE, every = KEEP_EVERY, count = KEEP_COUNT;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank};
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    w->fds[rank] = fd;
    w->there++;
    if (epoll_ctl(w->events, EPOLL_CTL_ADD, fd, &event) == 0) return RILL_OK;
    return rill__fail(RILL_ERR_IO, "rank %d cannot be watched: %s", rank, strerror(errno));
}

/* ---- looking --------------------------------------------------------------------------------- */

static void end(rill__watch *w, int rank, int state) {
    if (w->fds[rank] >= 0) close(w->fds[rank]); /* which takes it out of epoll, too */
    w->fds[rank] = -1;
    if (w->states[rank] != RILL__WATCH_THERE) return;
    w->states[rank] = (uint8_t)state;
    w->there--;
    w->lost += state != RILL__WATCH_LEFT;
}

static void look_at(rill__watch *w, int rank) {
    char text[EVENTS];
    ssize_t n = w->fds[rank] < 0 ? 0 : recv(w->fds[rank], text, sizeof text, MSG_DONTWAIT);
    for (ssize_t i = 0; i < n; i++) {
        w->told_out |= text[i] == stay_out;
        if (text[i] != goodbye || w->states[rank] != RILL__WATCH_THERE) continue;
        w->states[rank] = RILL__WATCH_LEFT;
        w->there--;
    }
    if (n > 0) return;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    bool reset = n == 0 || errno == ECONNRESET || errno == EPIPE; /* its host has told */
    end(w, rank, reset ? RILL__WATCH_GONE : RILL__WATCH_SILENT);
}

int rill__watch_poll(rill__watch *w) {
    struct epoll_event events[EVENTS];
    if (w->events < 0) return w->lost;
    int n = epoll_wait(w->events, events, EVENTS, 0);
    for (int i = 0; i < n; i++)
        look_at(w, (int)events[i].data.u32);
    return w->lost;
}

int rill__watch_state(const rill__watch *w, int rank) { return w->states[rank]; }

void rill__watch_leave(rill__watch *w) {
    for (int i = 0; i < w->ranks && !w->said_left; i++)
        if (w->fds[i] >= 0) rill__tcp_write(w->fds[i], &goodbye, 1);
    w->said_left = true;
}

void rill__watch_tell_out(rill__watch *w, int rank) {
    if (w->fds[rank] >= 0) rill__tcp_write(w->fds[rank], &stay_out, 1);
}

bool rill__watch_told_out(const rill__watch *w) { return w->told_out; }

bool rill__watch_all_left(const rill__watch *w) { return w->there == 0; }
