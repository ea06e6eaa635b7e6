/* link_probe serve: takes in messages and answers each with one byte.
 * link_probe send PEER TIMES BYTES...: for each size sends that many messages to a server, one
 * after the other, and prints the median time in microseconds, from the first byte sent until the
 * answer. lab/cluster measures the links of its hosts with it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 5201, CHUNK = 1 << 18, MOST_TIMES = 1000 };
enum { CONNECT_TRIES = 500, TRY_EVERY_US = 10000 };

static void fail(const char *what) {
    fprintf(stderr, "link_probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void send_all(int to, const char *data, size_t bytes) {
    while (bytes) {
        ssize_t n = send(to, data, bytes < CHUNK ? bytes : CHUNK, MSG_NOSIGNAL);
        if (n < 0) fail("send");
        bytes -= (size_t)n; /* what the chunk contains is of no interest */
    }
}

/* False: the other side is done. */
static int receive_all(int from, char *data, size_t bytes) {
    while (bytes) {
        ssize_t n = recv(from, data, bytes < CHUNK ? bytes : CHUNK, 0);
        if (n < 0) fail("recv");
        if (n == 0) return 0;
        bytes -= (size_t)n;
    }
    return 1;
}

static void no_delay(int socket) {
    int one = 1;
    if (setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) fail("TCP_NODELAY");
}

/* A message starts with its size. */
static void serve_one(int from, char *chunk) {
    no_delay(from);
    for (uint64_t bytes; receive_all(from, (char *)&bytes, sizeof bytes);) {
        if (!receive_all(from, chunk, bytes - sizeof bytes)) break;
        send_all(from, chunk, 1);
    }
    close(from);
}

static void serve(char *chunk) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0) fail("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&any, sizeof any)) fail("bind");
    if (listen(listener, 8)) fail("listen");
    for (;;) {
        int from = accept(listener, NULL, NULL);
        if (from < 0) fail("accept");
        serve_one(from, chunk);
    }
}

/* The server may not have got as far as to listen. */
static int connect_to(const char *peer) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (inet_pton(AF_INET, peer, &to.sin_addr) != 1) fail(peer);
    for (int i = 0; i < CONNECT_TRIES; i++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (s < 0) fail("socket");
        if (connect(s, (struct sockaddr *)&to, sizeof to) == 0) {
            no_delay(s);
            return s;
        }
        close(s);
        usleep(TRY_EVERY_US);
    }
    fail("connect");
    return -1;
}

static double message_us(int to, char *chunk, uint64_t bytes) {
    double start = now_us();
    uint64_t head = bytes > sizeof head ? bytes : sizeof head;
    send_all(to, (char *)&head, sizeof head);
    send_all(to, chunk, head - sizeof head);
    if (!receive_all(to, chunk, 1)) fail("the receiver is gone");
    return now_us() - start;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_us(int to, char *chunk, uint64_t bytes, int times) {
    double us[MOST_TIMES];
    for (int i = 0; i < times; i++)
        us[i] = message_us(to, chunk, bytes);
    qsort(us, (size_t)times, sizeof *us, ascending);
    return us[times / 2];
}

int main(int argc, char **argv) {
    char *chunk = calloc(1, CHUNK);
    if (!chunk) fail("calloc");
    if (argc == 2 && !strcmp(argv[1], "serve")) serve(chunk);
    int times = argc > 4 && !strcmp(argv[1], "send") ? atoi(argv[3]) : 0;
    if (times < 1 || times > MOST_TIMES) {
        fprintf(stderr, "usage: link_probe serve | link_probe send PEER TIMES BYTES...\n");
        return 2;
    }
    int to = connect_to(argv[2]);
    for (int i = 4; i < argc; i++)
        printf("%.1f%s", median_us(to, chunk, strtoull(argv[i], NULL, 10), times),
               i + 1 < argc ? " " : "\n");
    close(to);
    free(chunk);
    return 0;
}
