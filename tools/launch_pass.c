/* See launch_pass.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_SMPI
#include "launch_pass.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whole lines of dashes around a paragraph. */
enum { LEAST_DASHES = 60, LONGEST = 4096 };
/* And a line of its own: that it passes our signal on. */
static const char own[] = "mpirun", of_signal[] = ": Forwarding signal ";
enum { OWN = sizeof own - 1 };

typedef struct filter {
    char held[LONGEST + 1]; /* of a paragraph, or of a line that may become dashes */
    size_t n;
    bool inside; /* a paragraph has begun */
    bool middle; /* of a line that is passed on */
    int *dead;
} filter;

static int put(int to, const char *text, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t some = write(to, text + done, n - done);
        if (some >= 0) done += (size_t)some;
        else if (errno != EINTR) return errno;
    }
    return 0;
}

static void let_go(filter *f) {
    put(STDERR_FILENO, f->held, f->n);
    f->middle = f->n && f->held[f->n - 1] != '\n';
    f->n = 0;
    f->inside = false;
}

/* The last line that is held is dashes. */
static bool ends_in_dashes(const filter *f) {
    size_t dashes = 0, at = f->n - 1; /* the newline */
    while (at && f->held[at - 1] == '-')
        at--, dashes++;
    return dashes >= LEAST_DASHES && (!at || f->held[at - 1] == '\n');
}

/* Whether the paragraph is about ranks that have ended, which we tell ourselves. */
static bool is_known(filter *f) {
    static const char *const known[] = {"noticed that process rank ", "Primary job ",
                                        "exited with non-zero status", NULL};
    const char *rank = strstr(f->held, known[0]);
    if (rank && *f->dead < 0 && sscanf(rank + strlen(known[0]), "%d", f->dead) != 1) *f->dead = -1;
    for (int i = 0; known[i]; i++)
        if (strstr(f->held, known[i])) return true;
    return false;
}

/* Whether what is held can still be left out. */
static bool may_be_known(filter *f) {
    size_t some = f->n < OWN ? f->n : OWN;
    char last = f->held[f->n - 1];
    return f->inside || !memcmp(f->held, own, some) || last == '-' || last == '\n';
}

static void filter_byte(filter *f, char c) {
    if (f->middle || (!f->n && c != '-' && c != *own)) {
        put(STDERR_FILENO, &c, 1);
        f->middle = c != '\n';
        return;
    }
    f->held[f->n++] = c;
    f->held[f->n] = '\0';
    if (f->n == LONGEST || !may_be_known(f)) let_go(f);
    else if (c != '\n') return;
    else if (!f->inside) {
        f->inside = ends_in_dashes(f);
        if (*f->held == *own && strstr(f->held, of_signal)) f->n = 0;
        else if (!f->inside) let_go(f);
    } else if (ends_in_dashes(f)) {
        if (is_known(f)) f->n = 0, f->inside = false;
        else let_go(f);
    }
}

/* How much of a line that is passed on is there: up to its newline, or the end of a bar, behind
 * which the launcher's own words may follow. *bar: it is that. */
static size_t run_of(const char *text, size_t n, bool *bar) {
    *bar = false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') return i;
        *bar = i >= 2 && !memcmp(text + i - 2, "\033[K", 3);
        if (*bar) return i + 1;
    }
    return n;
}

static void filter_some(filter *f, const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        if (!f->middle) {
            filter_byte(f, text[i++]);
            continue;
        }
        bool bar;
        size_t run = run_of(text + i, n - i, &bar);
        put(STDERR_FILENO, text + i, run);
        i += run;
        f->middle = !bar;
        if (!bar && i < n) filter_byte(f, text[i++]); /* its newline */
    }
}

/* false: there is no more. */
static bool pass_some(launch_pass *p, filter *f, int from) {
    char text[1 << 14];
    ssize_t n = read(from, text, sizeof text);
    if (n < 0 && errno == EINTR) return true;
    if (n <= 0) return false;
    if (from == p->err) filter_some(f, text, (size_t)n);
    else if (!p->unwritten) p->unwritten = put(STDOUT_FILENO, text, (size_t)n);
    return true;
}

void launch_pass_on(launch_pass *p) {
    filter f = {.dead = &p->dead};
    struct pollfd wait[2] = {{.fd = p->out, .events = POLLIN}, {.fd = p->err, .events = POLLIN}};
    while (wait[0].fd >= 0 || wait[1].fd >= 0) {
        int ready = poll(wait, 2, p->gone ? 0 : 200);
        if (ready == 0 && p->gone) break;
        if (ready == 0) p->gone = waitpid(p->child, &p->status, WNOHANG) == p->child;
        for (int i = 0; ready > 0 && i < 2; i++)
            if (wait[i].fd >= 0 && wait[i].revents && !pass_some(p, &f, wait[i].fd))
                wait[i].fd = -1;
    }
    let_go(&f);
}
#else
typedef int launch_pass_none; /* a file must not be empty */
#endif
