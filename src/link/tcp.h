/* TCP for connections that are few and idle: the rendezvous of processes (link/rendezvous.h) and
 * the watch for death (link/watch.h). All sockets here close on exec. */
#ifndef RILL_LINK_TCP_H
#define RILL_LINK_TCP_H

#include "core/core.h"

#include <netinet/in.h>
#include <sys/socket.h>

typedef union rill__socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} rill__socket_address;

/* An interface's address, as another host may use it. */
typedef struct rill__tcp_address {
    uint8_t family; /* 4 or 6 */
    uint8_t bytes[16];
} rill__tcp_address;

double rill__tcp_clock(void); /* seconds */
/* Listens on all interfaces, or on one address; port 0: any, and *port says which. -1: errno. */
int rill__tcp_listen(const rill__socket_address *or_null, uint16_t *port);
/* A connection that somebody else began, non-blocking; -1: none. */
int rill__tcp_accept(int listener);
/* Begins one: non-blocking, and through when it can be written. -1: errno. */
int rill__tcp_connect(const rill__socket_address *);
rill__socket_address rill__tcp_make(const rill__tcp_address *, uint16_t port);
/* What connect ended with: 0, or an errno. */
int rill__tcp_outcome(int fd);
/* Without waiting: bytes read or written, 0: none yet, -1: the other side is gone or an error. */
long rill__tcp_read(int fd, void *, size_t bytes);
long rill__tcp_write(int fd, const void *, size_t bytes);
/* Waits until it can be read (or written), at most until that time; false: it can't. */
bool rill__tcp_wait(int fd, bool to_write, double until);
/* All of it, or false: the other side is gone, or the time is over. */
bool rill__tcp_read_all(int fd, void *, size_t bytes, double until);
bool rill__tcp_write_all(int fd, const void *, size_t bytes, double until);
/* Of this host: those of the interfaces that UCX_NET_DEVICES names if it names any, else all but
 * loopback, else loopback. Returns how many. */
int rill__tcp_addresses(rill__tcp_address *, int room);

#endif
