/* Starting the tool on several ranks by mpirun: finds the launcher that belongs to the MPI library
 * at hand, runs it with this very program, and explains how it ended. And what has started this
 * process.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "launch.h"
#include "launch_pass.h"
#include "parse.h"
#include "tool.h"
#include "tool_mpi.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__GLIBC__) && !defined(RILL_TOOL_SMPI) /* SimGrid makes malloc a macro */
#include <malloc.h>
#endif

#define MMAP_THRESHOLD "1073741824"
#define TRIM_THRESHOLD "4294967296"
#define PROGRESS "RILL_BENCH_PROGRESS"

bool launch_tune_malloc(void) {
    if (getenv("MALLOC_MMAP_THRESHOLD_")) return true;
#if defined(__GLIBC__) && !defined(RILL_TOOL_SMPI)
    /* As the environment would, where a launcher of the user's started us without it. */
    return mallopt(M_MMAP_THRESHOLD, 1 << 30) && mallopt(M_TRIM_THRESHOLD, -1);
#else
    return false;
#endif
}

void launch_tune_environment(void) {
    setenv("MALLOC_MMAP_THRESHOLD_", MMAP_THRESHOLD, 0);
    setenv("MALLOC_TRIM_THRESHOLD_", TRIM_THRESHOLD, 0);
}

bool launch_progress(void) { return isatty(STDERR_FILENO) || getenv(PROGRESS); }

#ifdef RILL_TOOL_SMPI
/* In SimGrid all ranks are contexts of one process: there is nothing to start. */
launch_kind launch_under(void) { return UNDER_MPI; }
void launch_look(int argc, char **argv) { (void)argc, (void)argv; }
bool launch_here(int argc, char **argv, int *status) {
    (void)argc, (void)argv, (void)status;
    return false;
}
#else

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

static launch_kind kind;

launch_kind launch_under(void) { return kind; }

/* --link mpi is among the words. */
static bool asks_for_mpi(int argc, char **argv) {
    bool asks = false;
    for (int i = 1; i < argc; i++) {
        const char *value = !strncmp(argv[i], "--link=", 7) ? argv[i] + 7
                            : !strcmp(argv[i], "--link") && argv[i + 1] ? argv[i + 1]
                                                                        : NULL;
        if (value) asks = !strcmp(value, "mpi");
    }
    return asks;
}

void launch_look(int argc, char **argv) {
    static const char *const marks[] = {
        "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "PMI_FD", NULL};
    /* Those that rill_bootstrap_create knows. */
    static const char *const places[][2] = {{"RANK", "WORLD_SIZE"},
                                            {"SLURM_PROCID", "SLURM_NTASKS"},
                                            {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"PMI_RANK", "PMI_SIZE"}};
    bool mpi = tool_mpi_built() && asks_for_mpi(argc, argv);
    for (size_t i = 0; !mpi && getenv("RILL_RENDEZVOUS") && i < sizeof places / sizeof *places; i++)
        if (getenv(places[i][0]) && getenv(places[i][1])) {
            kind = UNDER_RENDEZVOUS;
            tool_set_speaks(atoi(getenv(places[i][0])) == 0);
            return;
        }
    for (int i = 0; tool_mpi_built() && marks[i]; i++)
        if (getenv(marks[i])) kind = UNDER_MPI;
}

bool launch_self(char *path, int size) {
    ssize_t n = readlink("/proc/self/exe", path, (size_t)size - 1);
    if (n >= 0) {
        path[n] = '\0';
        return true;
    }
    tool_error("cannot find this program (/proc/self/exe): %s; start its ranks by yourself",
               strerror(errno));
    return false;
}

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

static int explain(const launch_pass *pass, const char *launcher, bool asked) {
    int status = pass->status;
    if (WIFEXITED(status)) {
        int code = WEXITSTATUS(status), number = code - 128;
        if (code <= EXIT_USAGE) return code;
        if (asked && number == SIGUSR1) { /* it was not in its training yet */
            tool_error("interrupted");
        } else if (number > 0 && number < 65 && code != 132) {
            char name[32] = "a rank";
            if (pass->dead >= 0) snprintf(name, sizeof name, "rank %d", pass->dead);
            tool_error("%s was ended by signal %d (%s%s); the others were ended, too", name, number,
                       strsignal(number), number == SIGKILL ? ": out of memory?" : "");
        } else tool_error("%s failed with status %d", launcher, code);
        return EXIT_FAILED;
    }
    tool_error("%s was ended by signal %d (%s)", launcher, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    return EXIT_FAILED;
}

/* ---- Ctrl-C where ranks end by themselves ---------------------------------------------------- */

static volatile sig_atomic_t launcher_pid, times_asked;

/* The launcher passes SIGUSR1 on to the ranks; it ends them when asked a second time. */
static void ask_launcher(int number) {
    (void)number;
    if (launcher_pid > 0) kill((pid_t)launcher_pid, times_asked++ ? SIGTERM : SIGUSR1);
}

static void become_launcher(const int *out, const int *err, bool gentle, pid_t parent,
                            char **words) {
    if (out[1] >= 0) dup2(out[1], STDOUT_FILENO);
    if (err[1] >= 0) dup2(err[1], STDERR_FILENO);
    if (gentle) {
        setpgid(0, 0); /* a terminal's Ctrl-C is ours to pass on */
        int nothing = isatty(STDIN_FILENO) ? open("/dev/null", O_RDONLY) : -1;
        if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    }
#ifdef __linux__
    /* If we are killed, the ranks must go as well. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
#else
    (void)parent;
#endif
    execvp(words[0], words);
    fprintf(stderr, "rill: cannot run %s: %s\n", words[0], strerror(errno));
    _exit(127);
}

static int cannot_start(const char *launcher) {
    tool_error("cannot start %s: %s", launcher, strerror(errno));
    return EXIT_FAILED;
}

/* read: what it says of its ranks is read. */
static int spawn(char **words, bool gentle, bool read) {
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    /* A terminal takes all, and is the launcher's to write to. */
    if (!isatty(STDOUT_FILENO) && pipe2(out, O_CLOEXEC)) return cannot_start(words[0]);
    if (read && pipe2(err, O_CLOEXEC)) return cannot_start(words[0]);
    pid_t parent = getpid(), child = fork();
    if (child == 0) become_launcher(out, err, gentle, parent, words);
    if (child < 0) return cannot_start(words[0]);
    launcher_pid = child;
    /* Else Ctrl-C goes to the launcher too, which cleans up; wait for that. */
    signal(SIGINT, gentle ? ask_launcher : SIG_IGN);
    if (gentle) signal(SIGTERM, ask_launcher);
    if (out[1] >= 0) close(out[1]);
    if (err[1] >= 0) close(err[1]);
    launch_pass pass = {.out = out[0], .err = err[0], .child = child, .dead = -1};
    launch_pass_on(&pass);
    if (out[0] >= 0) close(out[0]);
    if (err[0] >= 0) close(err[0]);
    while (!pass.gone && waitpid(child, &pass.status, 0) < 0)
        if (errno != EINTR) return EXIT_FAILED;
    int code = explain(&pass, words[0], times_asked > 0);
    if (pass.unwritten)
        tool_error("standard output: cannot be written: %s", strerror(pass.unwritten));
    return pass.unwritten && code == EXIT_OK ? EXIT_FAILED : code;
}

/* The launcher and its options; how many words. 0: there is none. */
static int choose_launcher(const launch_job *job, const text_list *user, char **words) {
    const char *library, *package;
    char *const *launchers = tool_mpi_launchers(&library, &package);
    int k = 0;
    for (int i = 0; i < user->n; i++)
        words[k++] = user->item[i];
    for (int i = 0; !k && launchers[i]; i++)
        if (in_path(launchers[i])) words[k++] = launchers[i];
    if (!k) {
        tool_error(
            "no launcher for %s in PATH (looked for %s, %s): install %s, set RILL_MPIRUN, or "
            "do without MPI: --link ucx",
            library, launchers[0], launchers[1], package);
        return 0;
    }
    if (tool_mpi_is_open() && !user->n) {
        words[k++] = "--oversubscribe";
        if (geteuid() == 0) words[k++] = "--allow-run-as-root";
        if (job->ranks > cores() && !job->hostfile) {
            words[k++] = "--bind-to";
            words[k++] = "none";
        }
    }
    if (job->hostfile) {
        words[k++] = tool_mpi_is_open() ? "--hostfile" : "-f";
        words[k++] = (char *)(uintptr_t)job->hostfile;
    }
    return k;
}

int launch_mpirun(const launch_job *job) {
    char self[PATH_MAX], count[16];
    text_list user = {0};
    const char *override = getenv("RILL_MPIRUN");
    if (!launch_self(self, sizeof self)) return EXIT_FAILED;
    if (override && !list_split(override, " \t", &user)) return EXIT_FAILED;
    char **words = calloc((size_t)user.n + (size_t)job->argc + 16, sizeof *words);
    int k = words ? choose_launcher(job, &user, words) : 0, status = EXIT_FAILED;
    if (!words) tool_error("out of memory");
    if (k) {
        snprintf(count, sizeof count, "%d", job->ranks);
        if (job->ranks) {
            words[k++] = "-n";
            words[k++] = count;
        }
        words[k++] = self;
        for (int i = 0; i < job->argc; i++)
            words[k++] = job->argv[i];
        if (job->unbound) { /* Open MPI 4, and 5 */
            setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
            setenv("PRTE_MCA_hwloc_default_binding_policy", "none", 0);
        }
        if (isatty(STDERR_FILENO)) setenv(PROGRESS, "1", 0);
        fflush(NULL);
        if (job->gentle) setenv(LAUNCH_STARTED, "1", 1);
        status = spawn(words, job->gentle, tool_mpi_is_open() && !user.n);
    }
    free(words);
    list_free(&user);
    return status;
}
#endif
