/* See launch_children.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_SMPI
#include "launch_children.h"
#include "launch.h"
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

/* Seconds: ranks that learn of a failure of another by themselves may say what they know; who was
 * asked to end may do so. */
static const double grace = 2, patience = 2;
enum { TICK_MS = 50 };

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
enum { SIGNALS = sizeof signals / sizeof *signals };

static volatile sig_atomic_t caught; /* a signal that asks us to end */

static void on_signal(int number) {
    if (number != SIGCHLD) caught = number; /* that one is there to end a poll */
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool children_open(children *all, int most, int leash, bool gentle) {
    *all = (children){.one = calloc((size_t)most, sizeof *all->one),
                      .most = most,
                      .leash = leash,
                      .gentle = gentle};
    struct sigaction action = {.sa_handler = on_signal};
    for (int i = 0; i < SIGNALS; i++)
        sigaction(signals[i], &action, NULL);
    return all->one != NULL;
}

void children_close(children *all) {
    for (int i = 0; i < all->n; i++)
        if (all->one[i].leash >= 0) close(all->one[i].leash);
    free(all->one);
    *all = (children){0};
}

/* ---- starting -------------------------------------------------------------------------------- */

static void become(const char *rank, int input, int death, pid_t parent, bool gentle,
                   char **words) {
    for (int i = 0; i < SIGNALS; i++)
        signal(signals[i], SIG_DFL);
    if (gentle) signal(SIGINT, SIG_IGN); /* a terminal's Ctrl-C is the parent's to pass on */
    if (gentle && rank) setenv(LAUNCH_STARTED, "1", 1);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, death); /* if we are killed, the ranks must go as well */
#else
    (void)death;
#endif
    if (getppid() != parent) _exit(127);
    if (rank) setenv("RANK", rank, 1);
    if (input >= 0) dup2(input, STDIN_FILENO);
    execvp(words[0], words);
    fprintf(stderr, "rill: cannot run %s: %s\n", words[0], strerror(errno));
    _exit(127);
}

static bool start(children *all, child made, int input, int death, char **words) {
    char text[16];
    snprintf(text, sizeof text, "%d", made.rank);
    fflush(NULL);
    pid_t parent = getpid();
    made.pid = fork();
    if (made.pid == 0)
        become(made.rank >= 0 ? text : NULL, input, death, parent, all->gentle, words);
    int error = errno;
    if (input >= 0) close(input);
    if (made.pid > 0) {
        all->one[all->n++] = made;
        return true;
    }
    tool_error("cannot start %s: %s", words[0], strerror(error));
    return false;
}

bool children_start_rank(children *all, int rank, char **words) {
    /* Rank 0 reads what we would. */
    int input = rank == 0 && all->leash < 0 ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    return start(all, (child){.rank = rank, .leash = -1}, input, SIGKILL, words);
}

bool children_start_host(children *all, const char *host, char **words) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        tool_error("cannot start %s: %s", words[0], strerror(errno));
        return false;
    }
    bool ok = start(all, (child){.rank = -1, .host = host, .leash = ends[1]}, ends[0], SIGTERM,
                    words);
    if (!ok) close(ends[1]);
    return ok;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void end_all(children *all, int number) {
    for (int i = 0; i < all->n; i++) {
        child *c = &all->one[i];
        if (c->gone) continue;
        if (c->leash >= 0) {
            close(c->leash);
            c->leash = -1;
        } else if (c->rank >= 0 || number == SIGKILL) {
            kill(c->pid, number);
        }
    }
}

static void ask_all(children *all) {
    all->asked = true;
    for (int i = 0; i < all->n; i++) {
        const child *c = &all->one[i];
        if (c->gone) continue;
        if (c->rank >= 0) kill(c->pid, SIGUSR1);
        else if (c->leash >= 0 && write(c->leash, "s", 1) < 0)
            tool_error("host %s: cannot be asked to end", c->host);
    }
}

/* The exit status of a child that was not told to end; says what it did not say itself. */
static int judge(const child *c, int status, bool asked) {
    char name[300];
    if (asked && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1) return EXIT_FAILED;
    if (c->rank >= 0) snprintf(name, sizeof name, "rank %d", c->rank);
    else snprintf(name, sizeof name, "host %s", c->host);
    if (WIFEXITED(status) && WEXITSTATUS(status) <= EXIT_USAGE) return WEXITSTATUS(status);
    if (WIFEXITED(status)) tool_error("%s: ended with status %d", name, WEXITSTATUS(status));
    else
        tool_error("%s was ended by signal %d (%s%s); the others are ended, too", name,
                   WTERMSIG(status), strsignal(WTERMSIG(status)),
                   WTERMSIG(status) == SIGKILL ? ": out of memory?" : "");
    return EXIT_FAILED;
}

static bool leash_is_cut(children *all) {
    char byte;
    ssize_t n;
    struct pollfd input = {.fd = all->leash, .events = POLLIN};
    if (all->leash < 0) {
        poll(NULL, 0, TICK_MS);
        return false;
    }
    if (poll(&input, 1, TICK_MS) <= 0) return false;
    n = read(all->leash, &byte, 1);
    if (n > 0 && !all->asked) ask_all(all);
    return n <= 0;
}

/* Takes in those that have ended; how many are left. */
static int reap(children *all, bool told, int *first) {
    int left = 0;
    for (int i = 0; i < all->n; i++) {
        child *c = &all->one[i];
        int status;
        if (c->gone) continue;
        if (waitpid(c->pid, &status, WNOHANG) != c->pid) {
            left++;
            continue;
        }
        c->gone = true;
        int code = told ? EXIT_OK : judge(c, status, all->asked);
        if (!*first) *first = code;
    }
    return left;
}

/* A signal that has come is no more than a question. */
static bool is_gentle(const children *all) {
    return all->gentle && !all->asked && caught != SIGHUP;
}

int children_wait(children *all, bool good) {
    int first = good ? EXIT_OK : EXIT_FAILED;
    bool told = false, killed = false;
    double deadline = 0;
    while (reap(all, told || (caught && !is_gentle(all)), &first)) {
        if (caught && is_gentle(all)) {
            caught = 0;
            ask_all(all);
        }
        if (first && !deadline) deadline = now() + (good ? grace : 0);
        bool cut = !told && leash_is_cut(all);
        if (told) poll(NULL, 0, TICK_MS);
        if (cut && !first) first = EXIT_FAILED;
        if (!told && ((caught && !is_gentle(all)) || cut || (deadline && now() > deadline))) {
            told = true;
            deadline = now() + patience;
            end_all(all, SIGTERM);
        } else if (told && !killed && now() > deadline) {
            killed = true;
            end_all(all, SIGKILL);
        }
    }
    for (int i = 0; i < SIGNALS; i++)
        signal(signals[i], SIG_DFL);
    if (caught) raise(caught);
    return first;
}
#else
typedef int launch_children_none; /* a file must not be empty */
#endif
