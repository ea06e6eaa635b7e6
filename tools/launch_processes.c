/* Ranks without MPI: processes of our own that meet at an address (RILL_RENDEZVOUS). On this host
 * they are children; on another host one ssh runs this program there, which starts that host's
 * ranks (RILL_LAUNCH). A rank that fails ends the others, and so does a signal.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_SMPI
#include "hostfile.h"
#include "launch.h"
#include "launch_children.h"
#include "parse.h"
#include "tool.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Below the ports that systems give to connections, so that none takes it meanwhile. */
enum { FIRST_PORT = 20000, PORTS = 12000, TRIES = 50 };

/* A port that is free on this host now. */
static int find_port(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned draw = (unsigned)getpid() * 2654435761u ^ (unsigned)now.tv_nsec;
    int port = 0;
    for (int i = 0; i < TRIES; i++, draw = draw * 1664525u + 1013904223u) {
        port = FIRST_PORT + (int)(draw >> 8) % PORTS;
        struct sockaddr_in any = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_ANY)};
        int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool is_free = probe < 0 || bind(probe, (struct sockaddr *)&any, sizeof any) == 0;
        if (probe >= 0) close(probe);
        if (is_free) break;
    }
    return port;
}

static bool is_here(const char *host) {
    char name[256] = "";
    if (!strcmp(host, "localhost") || !strcmp(host, "127.0.0.1") || !strcmp(host, "::1"))
        return true;
    gethostname(name, sizeof name - 1);
    size_t length = strcspn(name, ".");
    return !strcmp(host, name) || (!strncmp(host, name, length) && !host[length]);
}

/* ---- the command for another host ------------------------------------------------------------ */

typedef struct text {
    char *at;
    size_t size, room;
    bool failed;
} text;

static void add(text *t, const char *more, size_t n) {
    if (t->size + n + 1 > t->room) {
        size_t room = 2 * t->room + n + 256;
        char *at = realloc(t->at, room);
        t->failed |= !at;
        if (!at) return;
        t->at = at;
        t->room = room;
    }
    memcpy(t->at + t->size, more, n);
    t->at[t->size += n] = '\0';
}

/* As one word of a shell. */
static void add_quoted(text *t, const char *word) {
    add(t, "'", 1);
    for (; *word; word++)
        if (*word == '\'') add(t, "'\\''", 4);
        else add(t, word, 1);
    add(t, "' ", 2);
}

static bool goes_along(const char *variable) {
    static const char *const prefixes[] = {"RILL_",       "UCX_", "MALLOC_", "LD_LIBRARY_PATH=",
                                           "WORLD_SIZE=", NULL};
    if (!strncmp(variable, "RILL_LAUNCH=", 12) || !strncmp(variable, "RILL_SSH=", 9)) return false;
    for (int i = 0; prefixes[i]; i++)
        if (!strncmp(variable, prefixes[i], strlen(prefixes[i]))) return true;
    return false;
}

/* "cd DIR && exec env RILL_LAUNCH=FIRST:COUNT NAME=VALUE... PROGRAM WORDS..."; NULL: no memory. */
static char *remote_command(const launch_job *job, const char *self, int first, int count) {
    text t = {0};
    char place[PATH_MAX], here[64];
    if (getcwd(place, sizeof place)) {
        add(&t, "cd ", 3);
        add_quoted(&t, place);
        add(&t, "&& ", 3);
    }
    add(&t, "exec env ", 9);
    snprintf(here, sizeof here, "RILL_LAUNCH=%d:%d", first, count);
    add_quoted(&t, here);
    for (char **v = environ; *v; v++)
        if (goes_along(*v)) add_quoted(&t, *v);
    add_quoted(&t, self);
    for (int i = 0; i < job->argc; i++)
        add_quoted(&t, job->argv[i]);
    if (!t.failed) return t.at;
    free(t.at);
    return NULL;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* argv of a rank on this host: this program, and the words of the command. */
static char **local_words(const char *self, int argc, char **argv) {
    char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) return NULL;
    words[0] = (char *)(uintptr_t)self;
    memcpy(words + 1, argv, (size_t)argc * sizeof *words);
    return words;
}

static bool start_host(children *all, const launch_job *job, const char *self, const char *host,
                       int first, int count) {
    const char *how = getenv("RILL_SSH");
    text_list ssh = {0};
    char *command = remote_command(job, self, first, count);
    bool ok = command && list_split(how && *how ? how : "ssh -o BatchMode=yes", " \t", &ssh);
    char **words = ok ? calloc((size_t)ssh.n + 3, sizeof *words) : NULL;
    if (words) {
        memcpy(words, ssh.item, (size_t)ssh.n * sizeof *words);
        words[ssh.n] = (char *)(uintptr_t)host;
        words[ssh.n + 1] = command;
        ok = children_start_host(all, host, words);
    } else {
        tool_error("out of memory");
        ok = false;
    }
    free(words);
    free(command);
    list_free(&ssh);
    return ok;
}

static bool start_ranks(children *all, const char *self, int argc, char **argv, int first,
                        int count) {
    char **words = local_words(self, argc, argv);
    bool ok = words != NULL;
    if (!ok) tool_error("out of memory");
    for (int i = 0; i < count && ok; i++)
        ok = children_start_rank(all, first + i, words);
    free(words);
    return ok;
}

/* All ranks, host after host. */
static bool start_all(children *all, const launch_job *job, const hostfile *hosts, int ranks,
                      const char *self) {
    if (!hosts->n) return start_ranks(all, self, job->argc, job->argv, 0, ranks);
    bool ok = true;
    for (int i = 0, first = 0; i < hosts->n && first < ranks && ok; i++) {
        const hostfile_host *host = &hosts->host[i];
        int count = host->slots < ranks - first ? host->slots : ranks - first;
        if (is_here(host->name)) ok = start_ranks(all, self, job->argc, job->argv, first, count);
        else ok = start_host(all, job, self, host->name, first, count);
        first += count;
    }
    return ok;
}

/* Where rank 0 will listen, for all to see. */
static void set_meeting(const hostfile *hosts, int ranks) {
    char address[300], count[16], own[256] = "127.0.0.1";
    const char *host = own;
    if (hosts->n > 1 && is_here(hosts->host[0].name)) gethostname(own, sizeof own - 1);
    else if (hosts->n && !is_here(hosts->host[0].name)) host = hosts->host[0].name;
    bool six = strchr(host, ':') != NULL;
    snprintf(address, sizeof address, "%s%s%s:%d", six ? "[" : "", host, six ? "]" : "",
             find_port());
    snprintf(count, sizeof count, "%d", ranks);
    setenv("RILL_RENDEZVOUS", address, 1);
    setenv("WORLD_SIZE", count, 1);
}

int launch_processes(const launch_job *job) {
    char self[PATH_MAX];
    hostfile hosts = {0};
    if (!launch_self(self, sizeof self)) return EXIT_FAILED;
    if (job->hostfile && !hostfile_read(job->command, job->hostfile, &hosts)) return EXIT_FAILED;
    int ranks = job->ranks ? job->ranks : hosts.slots;
    if (hosts.n && ranks > hosts.slots) {
        int slots = hosts.slots;
        hostfile_free(&hosts);
        return tool_usage(job->command, "--ranks: %d are more than the %d slots of %s", ranks,
                          slots, job->hostfile);
    }
    set_meeting(&hosts, ranks);
    if (launch_progress()) setenv("RILL_BENCH_PROGRESS", "1", 0);
    children all;
    int status = EXIT_FAILED;
    if (!children_open(&all, ranks, -1, job->gentle)) tool_error("out of memory");
    else status = children_wait(&all, start_all(&all, job, &hosts, ranks, self));
    children_close(&all);
    hostfile_free(&hosts);
    return status;
}

bool launch_here(int argc, char **argv, int *status) {
    const char *range = getenv("RILL_LAUNCH");
    char self[PATH_MAX];
    int first, count;
    if (!range) return false;
    *status = EXIT_FAILED;
    if (sscanf(range, "%d:%d", &first, &count) != 2 || first < 0 || count < 1) {
        tool_error("RILL_LAUNCH = '%s' is not FIRST:COUNT; it is set by rill for itself", range);
        return true;
    }
    unsetenv("RILL_LAUNCH");
    if (!launch_self(self, sizeof self)) return true;
    children all;
    /* The end of standard input is that of the connection. */
    if (!children_open(&all, count, STDIN_FILENO, true)) tool_error("out of memory");
    else *status = children_wait(&all, start_ranks(&all, self, argc - 1, argv + 1, first, count));
    children_close(&all);
    return true;
}
#else
typedef int launch_processes_none; /* a file must not be empty */
#endif
