/* Starting the tool on several ranks: finds the launcher that belongs to the MPI library at hand,
 * runs it with this very program, and explains how it ended.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "launch.h"
#include "parse.h"
#include "tool.h"

#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__GLIBC__) && !defined(SMPI_H) /* SimGrid makes malloc a macro */
#include <malloc.h>
#endif

#define MMAP_THRESHOLD "1073741824"
#define TRIM_THRESHOLD "4294967296"
#define PROGRESS "RILL_BENCH_PROGRESS"

bool launch_tune_malloc(void) {
    if (getenv("MALLOC_MMAP_THRESHOLD_")) return true;
#if defined(__GLIBC__) && !defined(SMPI_H)
    /* As the environment would, where a launcher of the user's started us without it. */
    return mallopt(M_MMAP_THRESHOLD, 1 << 30) && mallopt(M_TRIM_THRESHOLD, -1);
#else
    return false;
#endif
}

bool launch_progress(void) { return isatty(STDERR_FILENO) || getenv(PROGRESS); }

#ifdef SMPI_H
/* In SimGrid all ranks are contexts of one process: there is nothing to start. */
bool launch_is_under(void) { return true; }

int launch_ranks(int ranks, int argc, char **argv, bool tune_malloc) {
    (void)ranks, (void)argc, (void)argv, (void)tune_malloc;
    return EXIT_FAILED;
}
#else

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

bool launch_is_under(void) {
    static const char *const marks[] = {
        "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD", NULL};
    for (int i = 0; marks[i]; i++)
        if (getenv(marks[i])) return true;
    return false;
}

#if defined(OPEN_MPI)
static char *const launchers[] = {"mpirun.openmpi", "mpirun", NULL};
static const char *const library = "Open MPI";
static const char *const package = "openmpi-bin";
#elif defined(MPICH_VERSION)
static char *const launchers[] = {"mpirun.mpich", "mpiexec.hydra", "mpirun", NULL};
static const char *const library = "MPICH";
static const char *const package = "mpich";
#else
static char *const launchers[] = {"mpiexec", "mpirun", NULL};
static const char *const library = "this MPI library";
static const char *const package = "its launcher";
#endif

static bool in_path(const char *program) {
    const char *path = getenv("PATH");
    if (!path) path = "/usr/local/bin:/usr/bin:/bin";
    while (*path) {
        size_t n = strcspn(path, ":");
        char file[PATH_MAX];
        int length = snprintf(file, sizeof file, "%.*s/%s", (int)n, path, program);
        if (length < (int)sizeof file && access(file, X_OK) == 0) return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static int cores(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static int explain(int status, const char *launcher) {
    if (WIFEXITED(status)) {
        int code = WEXITSTATUS(status);
        if (code <= EXIT_USAGE) return code;
        if (code > 128 && code < 128 + 65 && code != 132) {
            tool_error("a rank was ended by signal %d (%s)%s", code - 128, strsignal(code - 128),
                       code == 128 + SIGKILL ? ": out of memory?" : "");
            return EXIT_FAILED;
        }
        tool_error("%s failed with status %d", launcher, code);
        return EXIT_FAILED;
    }
    tool_error("%s was ended by signal %d (%s)", launcher, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    return EXIT_FAILED;
}

/* What the ranks print goes on to standard output, and a failure of that is noticed: launchers drop
 * it. Ends when they have closed the pipe, or the launcher has gone (*status is its own then). 0 or
 * an errno. */
static int pass_on(int from, pid_t child, int *status, bool *gone) {
    char text[1 << 14];
    int error = 0;
    for (struct pollfd wait = {.fd = from, .events = POLLIN};;) {
        int ready = poll(&wait, 1, *gone ? 0 : 200);
        if (ready == 0 && *gone) return error;
        if (ready == 0) *gone = waitpid(child, status, WNOHANG) == child;
        if (ready <= 0) continue;
        ssize_t n = read(from, text, sizeof text);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return error;
        for (ssize_t done = 0; !error && done < n;) {
            ssize_t some = write(STDOUT_FILENO, text + done, (size_t)(n - done));
            if (some >= 0) done += some;
            else if (errno != EINTR) error = errno;
        }
    }
}

static int spawn(char **words) {
    int ends[2] = {-1, -1};
    /* A terminal takes all, and is the launcher's to write to. */
    if (!isatty(STDOUT_FILENO) && pipe2(ends, O_CLOEXEC)) {
        tool_error("cannot start %s: %s", words[0], strerror(errno));
        return EXIT_FAILED;
    }
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        if (ends[1] >= 0) dup2(ends[1], STDOUT_FILENO);
#ifdef __linux__
        /* If we are killed, the ranks must go as well. */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(127);
#endif
        execvp(words[0], words);
        fprintf(stderr, "rill: cannot run %s: %s\n", words[0], strerror(errno));
        _exit(127);
    }
    if (child < 0) {
        tool_error("cannot start %s: %s", words[0], strerror(errno));
        return EXIT_FAILED;
    }
    /* Ctrl-C goes to the launcher too, which cleans up; wait for that. */
    signal(SIGINT, SIG_IGN);
    int status, unwritten = 0;
    bool gone = false;
    if (ends[0] >= 0) {
        close(ends[1]);
        unwritten = pass_on(ends[0], child, &status, &gone);
        close(ends[0]);
    }
    while (!gone && waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return EXIT_FAILED;
    int code = explain(status, words[0]);
    if (unwritten) tool_error("standard output: cannot be written: %s", strerror(unwritten));
    return unwritten && code == EXIT_OK ? EXIT_FAILED : code;
}

int launch_ranks(int ranks, int argc, char **argv, bool tune_malloc) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) {
        tool_error("cannot find this program (/proc/self/exe): %s; start it under mpirun",
                   strerror(errno));
        return EXIT_FAILED;
    }
    self[n] = '\0';

    text_list user = {0};
    const char *override = getenv("RILL_MPIRUN");
    if (override && !list_split(override, " \t", &user)) return EXIT_FAILED;
    char **words = calloc((size_t)user.n + (size_t)argc + 16, sizeof *words);
    if (!words) {
        tool_error("out of memory");
        return EXIT_FAILED;
    }
    int k = 0;
    char count[16];
    snprintf(count, sizeof count, "%d", ranks);
    for (int i = 0; i < user.n; i++)
        words[k++] = user.item[i];
    for (int i = 0; !k && launchers[i]; i++)
        if (in_path(launchers[i])) words[k++] = launchers[i];
    if (!k) {
        tool_error("no launcher for %s in PATH (looked for %s, %s): install %s, or set RILL_MPIRUN",
                   library, launchers[0], launchers[1], package);
        free(words);
        return EXIT_FAILED;
    }
#ifdef OPEN_MPI
    if (!user.n) {
        words[k++] = "-q"; /* explain() says what is to be said */
        words[k++] = "--oversubscribe";
        if (geteuid() == 0) words[k++] = "--allow-run-as-root";
        if (ranks > cores()) {
            words[k++] = "--bind-to";
            words[k++] = "none";
        }
    }
#else
    (void)cores;
#endif
    words[k++] = "-n";
    words[k++] = count;
    words[k++] = self;
    for (int i = 0; i < argc; i++)
        words[k++] = argv[i];

    if (tune_malloc) {
        setenv("MALLOC_MMAP_THRESHOLD_", MMAP_THRESHOLD, 0);
        setenv("MALLOC_TRIM_THRESHOLD_", TRIM_THRESHOLD, 0);
    }
    if (isatty(STDERR_FILENO)) setenv(PROGRESS, "1", 0);
    fflush(NULL);
    int status = spawn(words);
    free(words);
    list_free(&user);
    return status;
}
#endif
