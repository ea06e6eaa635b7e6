/* See link/rendezvous.h. */
#include "link/rendezvous.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Callers whose greeting is not whole yet. Where there are more the oldest goes, after a while in
 * which a rank would have greeted. */
enum { CALLERS = 64 };
#define HASTE 0.2
/* Seconds for a caller to greet, and between tries to connect. */
#define COURTESY 15.0
#define PAUSE 0.05
enum { ADDRESS = 256, MOST_BYTES = 1 << 26, TEXT = 160 };

/* What a rank sends first, and before its bytes in each allgather. */
typedef struct greeting {
    char magic[8];
    uint32_t rank, ranks;
} greeting;
typedef struct parcel {
    char magic[8];
    uint64_t bytes;
} parcel;
/* Rank 0's answer to each of them. */
typedef struct answer {
    char magic[8];
    int32_t status;
    char text[TEXT];
} answer;

static const char greets[8] = "RILLRV1", brings[8] = "RILLRV2", answers[8] = "RILLRV3";

struct rill__rendezvous {
    int rank, ranks;
    double patience;
    int *fds; /* of rank 0: of each rank; of another: [0] is rank 0's */
};

typedef struct caller {
    int fd, poll; /* and its place in the last poll */
    double until;
    size_t done;
    greeting text;
} caller;

/* ---- addresses ------------------------------------------------------------------------------- */

static rill_status split(const char *address, char host[ADDRESS], const char **port) {
    const char *colon = strrchr(address, ':');
    size_t length = colon ? (size_t)(colon - address) : 0;
    bool bracketed = length >= 2 && address[0] == '[' && address[length - 1] == ']';
    if (bracketed) address++, length -= 2;
    if (!colon || !length || length >= ADDRESS || !colon[1] ||
        (!bracketed && memchr(address, ':', length)))
        return rill__fail(RILL_ERR_ARGUMENT,
                          "the rendezvous '%s' is not HOST:PORT (or [IPV6]:PORT)", address);
    memcpy(host, address, length);
    host[length] = '\0';
    *port = colon + 1;
    return RILL_OK;
}

static rill_status look_up(const char *address, struct addrinfo **out) {
    char host[ADDRESS];
    const char *port = "";
    RILL_TRY(split(address, host, &port));
    char *end;
    long number = strtol(port, &end, 10);
    if (*end || number < 1 || number > 65535)
        return rill__fail(RILL_ERR_ARGUMENT,
                          "the rendezvous '%s' has no port from 1 to 65535 after the colon",
                          address);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int code = getaddrinfo(host, port, &hints, out);
    if (code == 0) return RILL_OK;
    return rill__fail(RILL_ERR_IO, "the rendezvous '%s': %s", address, gai_strerror(code));
}

static bool take_address(const struct addrinfo *one, rill__socket_address *to) {
    if (one->ai_addrlen > sizeof *to || (one->ai_family != AF_INET && one->ai_family != AF_INET6))
        return false;
    memset(to, 0, sizeof *to);
    memcpy(to, one->ai_addr, one->ai_addrlen);
    return true;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static void reply(int fd, rill_status status, const char *text, double patience) {
    answer a = {.status = status};
    memcpy(a.magic, answers, sizeof a.magic);
    snprintf(a.text, sizeof a.text, "%s", text);
    rill__tcp_write_all(fd, &a, sizeof a, rill__tcp_clock() + patience);
}

/* The greeting is whole. */
static void judge(rill__rendezvous *r, caller *c, int *missing) {
    const greeting *g = &c->text;
    char text[TEXT] = "";
    bool ours = memcmp(g->magic, greets, sizeof greets) == 0;
    if (ours && g->ranks != (uint32_t)r->ranks)
        snprintf(text, sizeof text, "rank 0 expects %d ranks, this one %u", r->ranks, g->ranks);
    else if (ours && (g->rank == 0 || g->rank >= g->ranks))
        snprintf(text, sizeof text, "rank %u of %u is none", g->rank, g->ranks);
    else if (ours && r->fds[g->rank] >= 0)
        snprintf(text, sizeof text, "there is a rank %u already", g->rank);
    if (ours && !*text) {
        r->fds[g->rank] = c->fd;
        --*missing;
    } else {
        if (ours) reply(c->fd, RILL_ERR_MISMATCH, text, 0);
        close(c->fd);
    }
    c->fd = -1;
}

static void hear(rill__rendezvous *r, caller *c, int *missing) {
    long n = rill__tcp_read(c->fd, (char *)&c->text + c->done, sizeof c->text - c->done);
    if (n < 0) {
        close(c->fd);
        c->fd = -1;
    }
    if (n > 0 && (c->done += (size_t)n) == sizeof c->text) judge(r, c, missing);
}

static int listen_at(const struct addrinfo *all, const char *address, rill_status *status) {
    int fd = -1;
    errno = EADDRNOTAVAIL;
    for (const struct addrinfo *one = all; one && fd < 0; one = one->ai_next) {
        rill__socket_address at;
        uint16_t port;
        if (take_address(one, &at)) fd = rill__tcp_listen(&at, &port);
    }
    *status = fd >= 0 ? RILL_OK
                      : rill__fail(RILL_ERR_IO, "rank 0 cannot listen at '%s': %s", address,
                                   strerror(errno));
    return fd;
}

static rill_status missing_ranks(const rill__rendezvous *r, int missing, double seconds) {
    int first = 1;
    while (first < r->ranks - 1 && r->fds[first] >= 0)
        first++;
    return rill__fail(RILL_ERR_PEER, "%d of %d ranks did not come within %.0f s: rank %d, for one",
                      missing, r->ranks, seconds, first);
}

static void serve_callers(rill__rendezvous *r, caller *callers, const struct pollfd *polls,
                          int *missing) {
    for (int i = 0; i < CALLERS; i++) {
        if (callers[i].fd < 0) continue;
        if (polls[callers[i].poll].revents) hear(r, &callers[i], missing);
        if (callers[i].fd >= 0 && rill__tcp_clock() > callers[i].until) {
            close(callers[i].fd);
            callers[i].fd = -1;
        }
    }
}

/* Entries for open files alone: poll takes no more than a process may open. A listener that nobody
 * can be let in by would be ready all the time. Returns the callers. */
static int wait_for_callers(caller *callers, int listener, bool full, struct pollfd *polls) {
    int n = 0;
    polls[n++] = (struct pollfd){.fd = full ? -1 : listener, .events = POLLIN};
    for (int i = 0; i < CALLERS; i++) {
        if (callers[i].fd < 0) continue;
        callers[i].poll = n;
        polls[n++] = (struct pollfd){.fd = callers[i].fd, .events = POLLIN};
    }
    poll(polls, (nfds_t)n, 100);
    return n - 1;
}

static bool no_more_files(void) { return errno == EMFILE || errno == ENFILE; }

static rill_status gather_ranks(rill__rendezvous *r, int listener) {
    caller callers[CALLERS];
    struct pollfd polls[CALLERS + 1];
    int next = 0, missing = r->ranks - 1;
    bool full = false;
    double until = rill__tcp_clock() + r->patience;
    rill_status status = RILL_OK;
    for (int i = 0; i < CALLERS; i++)
        callers[i].fd = -1;
    while (missing && status == RILL_OK && rill__tcp_clock() < until) {
        int open = wait_for_callers(callers, listener, full, polls);
        if (full && !open)
            status = rill__fail(RILL_ERR_IO,
                                "%d of %d ranks have come, and this process may open no more "
                                "files (ulimit -n)",
                                r->ranks - missing, r->ranks);
        full = false;
        serve_callers(r, callers, polls, &missing);
        for (;; next++) {
            caller *c = &callers[next % CALLERS];
            if (c->fd >= 0 && c->until - COURTESY + HASTE > rill__tcp_clock()) break;
            int fd = rill__tcp_accept(listener);
            if (fd < 0) {
                full = no_more_files();
                break;
            }
            if (c->fd >= 0) close(c->fd);
            *c = (caller){.fd = fd, .until = rill__tcp_clock() + COURTESY};
        }
    }
    for (int i = 0; i < CALLERS; i++)
        if (callers[i].fd >= 0) close(callers[i].fd);
    if (status != RILL_OK) return status;
    return missing ? missing_ranks(r, missing, r->patience) : RILL_OK;
}

/* All are there, or all that are there hear why not. */
static rill_status receive_all(rill__rendezvous *r, const char *address,
                               const struct addrinfo *all) {
    rill_status status;
    int listener = listen_at(all, address, &status);
    if (listener < 0) return status;
    status = gather_ranks(r, listener);
    close(listener);
    char text[TEXT] = "";
    if (status != RILL_OK) snprintf(text, sizeof text, "%s", rill_last_error());
    for (int i = 1; i < r->ranks; i++)
        if (r->fds[i] >= 0) reply(r->fds[i], status, text, 1);
    if (status != RILL_OK) rill__set_error(text);
    return status;
}

/* ---- the others ------------------------------------------------------------------------------ */

static rill_status gone(const char *what) {
    return rill__fail(RILL_ERR_PEER, "the rendezvous is gone while %s", what);
}

/* RILL_IN_PROGRESS: there is none, and there will be none on this connection. */
static rill_status hear_answer(const rill__rendezvous *r, double until) {
    answer a;
    if (!rill__tcp_read_all(r->fds[0], &a, sizeof a, until) ||
        memcmp(a.magic, answers, sizeof answers) != 0)
        return RILL_IN_PROGRESS;
    a.text[TEXT - 1] = '\0';
    if (a.status == RILL_OK) return RILL_OK;
    rill_status status = a.status < 0 && a.status >= RILL_ERR_PEER ? (rill_status)a.status
                                                                   : RILL_ERR_MESSAGE;
    return rill__fail(status, "rank 0: %s", a.text);
}

/* A connection that is made; -1: none this time. full: no file can be opened for one. */
static int try_all(const struct addrinfo *all, bool *full) {
    for (const struct addrinfo *one = all; one; one = one->ai_next) {
        rill__socket_address to;
        errno = 0;
        int fd = take_address(one, &to) ? rill__tcp_connect(&to) : -1;
        *full = fd < 0 && no_more_files();
        if (fd < 0) continue;
        if (rill__tcp_wait(fd, true, rill__tcp_clock() + COURTESY) && rill__tcp_outcome(fd) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

/* Again and again: rank 0 may come late, and may drop a caller where strangers crowd its door. */
static rill_status go_there(rill__rendezvous *r, const char *address, const struct addrinfo *all) {
    double until = rill__tcp_clock() + r->patience;
    greeting g = {.rank = (uint32_t)r->rank, .ranks = (uint32_t)r->ranks};
    bool reached = false, full = false;
    memcpy(g.magic, greets, sizeof g.magic);
    while (rill__tcp_clock() < until) {
        r->fds[0] = try_all(all, &full);
        if (full)
            return rill__fail(RILL_ERR_IO,
                              "rank %d: this process may open no more files (ulimit -n)", r->rank);
        if (r->fds[0] >= 0) {
            reached = true;
            /* Rank 0 waits as long for others, and tells how that ended. */
            rill_status status = rill__tcp_write_all(r->fds[0], &g, sizeof g, until)
                                     ? hear_answer(r, until + COURTESY)
                                     : RILL_IN_PROGRESS;
            if (status != RILL_IN_PROGRESS) return status;
            close(r->fds[0]);
            r->fds[0] = -1;
        }
        usleep((useconds_t)(PAUSE * 1e6));
    }
    if (reached) return gone("ranks come together");
    return rill__fail(RILL_ERR_PEER, "rank %d: nobody listens at the rendezvous '%s'", r->rank,
                      address);
}

/* ---- all ------------------------------------------------------------------------------------- */

rill_status rill__rendezvous_open(const char *address, int rank, int ranks, double patience,
                                  rill__rendezvous **out) {
    struct addrinfo *all = NULL;
    rill__rendezvous *r = rill__calloc(1, sizeof *r);
    if (r) r->fds = rill__malloc((size_t)ranks * sizeof *r->fds);
    if (!r || !r->fds) {
        free(r);
        return rill__fail(RILL_ERR_MEMORY, "out of memory for a rendezvous of %d ranks", ranks);
    }
    memset(r->fds, -1, (size_t)ranks * sizeof *r->fds);
    r->rank = rank;
    r->ranks = ranks;
    r->patience = patience;
    rill_status status = ranks > 1 ? look_up(address, &all) : RILL_OK;
    if (status == RILL_OK && ranks > 1)
        status = rank == 0 ? receive_all(r, address, all) : go_there(r, address, all);
    if (all) freeaddrinfo(all);
    if (status == RILL_OK) *out = r;
    else rill__rendezvous_close(r);
    return status;
}

void rill__rendezvous_close(rill__rendezvous *r) {
    if (!r) return;
    int n = r->rank == 0 ? r->ranks : 1;
    for (int i = 0; i < n; i++)
        if (r->fds[i] >= 0) close(r->fds[i]);
    free(r->fds);
    free(r);
}

/* Rank 0: what a rank brings. */
static rill_status take(const rill__rendezvous *r, int rank, size_t bytes, void *to, double until) {
    parcel p;
    if (!rill__tcp_read_all(r->fds[rank], &p, sizeof p, until))
        return rill__fail(RILL_ERR_PEER, "rank %d is gone, or silent", rank);
    if (memcmp(p.magic, brings, sizeof brings) != 0 || p.bytes != bytes)
        return rill__fail(RILL_ERR_MISMATCH, "rank %d brings %llu bytes, rank 0 %zu", rank,
                          (unsigned long long)p.bytes, bytes);
    if (!rill__tcp_read_all(r->fds[rank], to, bytes, until))
        return rill__fail(RILL_ERR_PEER, "rank %d is gone, or silent", rank);
    return RILL_OK;
}

static rill_status collect(rill__rendezvous *r, const void *mine, size_t bytes, char *all) {
    double until = rill__tcp_clock() + r->patience;
    rill_status status = RILL_OK;
    char text[TEXT] = "";
    memcpy(all, mine, bytes);
    for (int i = 1; i < r->ranks && status == RILL_OK; i++)
        status = take(r, i, bytes, all + (size_t)i * bytes, until);
    if (status != RILL_OK) snprintf(text, sizeof text, "%s", rill_last_error());
    for (int i = 1; i < r->ranks; i++) {
        reply(r->fds[i], status, text, r->patience);
        if (status == RILL_OK && !rill__tcp_write_all(r->fds[i], all, (size_t)r->ranks * bytes,
                                                      rill__tcp_clock() + r->patience))
            status = rill__fail(RILL_ERR_PEER, "rank %d is gone", i);
    }
    if (*text) rill__set_error(text);
    return status;
}

rill_status rill__rendezvous_allgather(rill__rendezvous *r, const void *mine, size_t bytes,
                                       void *all) {
    if (bytes > MOST_BYTES)
        return rill__fail(RILL_ERR_ARGUMENT, "%zu bytes are too many for a rendezvous", bytes);
    if (r->rank == 0) return collect(r, mine, bytes, all);
    double until = rill__tcp_clock() + r->patience;
    parcel p = {.bytes = bytes};
    memcpy(p.magic, brings, sizeof p.magic);
    if (!rill__tcp_write_all(r->fds[0], &p, sizeof p, until) ||
        !rill__tcp_write_all(r->fds[0], mine, bytes, until))
        return rill__fail(RILL_ERR_PEER, "rank 0 is gone from the rendezvous");
    rill_status status = hear_answer(r, until + COURTESY);
    if (status == RILL_IN_PROGRESS) return gone("ranks exchange addresses");
    RILL_TRY(status);
    if (rill__tcp_read_all(r->fds[0], all, (size_t)r->ranks * bytes, until + COURTESY))
        return RILL_OK;
    return rill__fail(RILL_ERR_PEER, "rank 0 is gone from the rendezvous");
}
