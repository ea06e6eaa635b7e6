#include "link/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

double rill__tcp_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static socklen_t length_of(const rill__socket_address *a) {
    return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

static int new_socket(int family) {
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Messages are short, and who waits for one waits for each packet. */
static void prepare(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static int close_and_fail(int fd) {
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int listen_at(const rill__socket_address *at, uint16_t *port) {
    int fd = new_socket(at->any.sa_family), on = 1, off = 0;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->any.sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    rill__socket_address bound = *at;
    socklen_t length = sizeof bound;
    if (bind(fd, &at->any, length_of(at)) || listen(fd, BACKLOG) ||
        getsockname(fd, &bound.any, &length))
        return close_and_fail(fd);
    *port = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    return fd;
}

int rill__tcp_listen(const rill__socket_address *at, uint16_t *port) {
    if (at) return listen_at(at, port);
    rill__socket_address any = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(*port)}};
    int fd = listen_at(&any, port); /* both kinds of addresses */
    if (fd >= 0) return fd;
    any = (rill__socket_address){.v4 = {.sin_family = AF_INET, .sin_port = htons(*port)}};
    return listen_at(&any, port);
}

int rill__tcp_accept(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) prepare(fd);
    return fd;
}

int rill__tcp_connect(const rill__socket_address *to) {
    int fd = new_socket(to->any.sa_family);
    if (fd < 0) return -1;
    prepare(fd);
    if (connect(fd, &to->any, length_of(to)) && errno != EINPROGRESS) return close_and_fail(fd);
    return fd;
}

rill__socket_address rill__tcp_make(const rill__tcp_address *a, uint16_t port) {
    rill__socket_address made;
    memset(&made, 0, sizeof made);
    if (a->family == 6) {
        made.v6.sin6_family = AF_INET6;
        made.v6.sin6_port = htons(port);
        memcpy(&made.v6.sin6_addr, a->bytes, sizeof made.v6.sin6_addr);
    } else {
        made.v4.sin_family = AF_INET;
        made.v4.sin_port = htons(port);
        memcpy(&made.v4.sin_addr, a->bytes, sizeof made.v4.sin_addr);
    }
    return made;
}

int rill__tcp_outcome(int fd) {
    int error = 0;
    socklen_t length = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) ? errno : error;
}

static bool is_for_later(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

long rill__tcp_read(int fd, void *data, size_t bytes) {
    ssize_t n = recv(fd, data, bytes, MSG_DONTWAIT);
    if (n > 0) return (long)n;
    return n < 0 && is_for_later() ? 0 : -1;
}

long rill__tcp_write(int fd, const void *data, size_t bytes) {
    ssize_t n = send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n >= 0 ? (long)n : is_for_later() ? 0 : -1;
}

bool rill__tcp_wait(int fd, bool to_write, double until) {
    struct pollfd one = {.fd = fd, .events = to_write ? POLLOUT : POLLIN};
    for (;;) {
        double left = until - rill__tcp_clock();
        int n = poll(&one, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
        if (n > 0) return true;
        if (left <= 0 || (n < 0 && errno != EINTR)) return false;
    }
}

bool rill__tcp_read_all(int fd, void *data, size_t bytes, double until) {
    for (size_t done = 0; done < bytes;) {
        long n = rill__tcp_read(fd, (char *)data + done, bytes - done);
        if (n < 0 || (n == 0 && !rill__tcp_wait(fd, false, until))) return false;
        done += (size_t)n;
    }
    return true;
}

bool rill__tcp_write_all(int fd, const void *data, size_t bytes, double until) {
    for (size_t done = 0; done < bytes;) {
        long n = rill__tcp_write(fd, (const char *)data + done, bytes - done);
        if (n < 0 || (n == 0 && !rill__tcp_wait(fd, true, until))) return false;
        done += (size_t)n;
    }
    return true;
}

/* ---- interfaces ------------------------------------------------------------------------------ */

/* Whether the list, "eth0,mlx5_0:1", names it. */
static bool is_named(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length)
        if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ',')) return true;
    return false;
}

static bool address_of(const struct ifaddrs *one, rill__tcp_address *to) {
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) return false;
    memset(to, 0, sizeof *to);
    if (one->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)one->ifa_addr;
        to->family = 4;
        memcpy(to->bytes, &v4->sin_addr, 4);
        return true;
    }
    if (one->ifa_addr->sa_family != AF_INET6) return false;
    const struct sockaddr_in6 *v6 = (const void *)one->ifa_addr;
    to->family = 6;
    memcpy(to->bytes, &v6->sin6_addr, 16);
    return !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr); /* these need the name of an interface here */
}

enum { NAMED, OUTER, LOOPBACK };

static int list_kind(const struct ifaddrs *all, int kind, uint8_t family, const char *named,
                     rill__tcp_address *to, int room) {
    int n = 0;
    for (const struct ifaddrs *one = all; one && n < room; one = one->ifa_next) {
        bool inner = (one->ifa_flags & IFF_LOOPBACK) != 0;
        bool wanted = kind == NAMED ? named && is_named(named, one->ifa_name)
                                    : inner == (kind == LOOPBACK);
        if (wanted && address_of(one, &to[n]) && to[n].family == family) n++;
    }
    return n;
}

int rill__tcp_addresses(rill__tcp_address *to, int room) {
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all)) return 0;
    for (int kind = NAMED; kind <= LOOPBACK && n == 0; kind++)
        for (uint8_t family = 4; family <= 6; family += 2)
            n += list_kind(all, kind, family, getenv("UCX_NET_DEVICES"), to + n, room - n);
    freeifaddrs(all);
    return n;
}
