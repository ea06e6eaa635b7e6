/* Checks for programs under mpirun: they print both operands, the rank, the seed and the case, and
 * go on, so that ranks stay in step; check_finish makes the exit status. A rank that hangs prints
 * its case and ends the job. */
#ifndef RILL_TESTS_CHECK_H
#define RILL_TESTS_CHECK_H

#include "../support/test_link.h"
#include "../support/values.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
/* MPI's components stay loaded. LeakSanitizer asks whose each frame of what MPI leaks is, and reads
 * the process's map anew for each that is nobody's: half of what a rank takes to start and end. */
int dlclose(void *handle);
int dlclose(void *handle) {
    (void)handle;
    return 0;
}
#endif

static struct {
    const char *program;
    int rank, size;
    uint64_t seed;
    long checks, cases, failures;
    unsigned patience; /* seconds that one case may take */
    char where[320];   /* the case, for messages */
} check;

static inline void check_hang(int signal_number) {
    static const char text[] = ": hangs, giving up\n";
    (void)signal_number;
    ssize_t n = write(2, check.where, strlen(check.where));
    n += write(2, text, sizeof text - 1);
    _exit(n < 0 ? 3 : 2); /* mpirun ends the other ranks */
}

/* Begins a case: its description goes into every message about it. */
__attribute__((format(printf, 1, 2))) static inline void check_case(const char *format, ...) {
    int n = snprintf(check.where, sizeof check.where, "%s: rank %d of %d, seed %llu, ",
                     check.program, check.rank, check.size, (unsigned long long)check.seed);
    va_list args;
    va_start(args, format);
    vsnprintf(check.where + n, sizeof check.where - (size_t)n, format, args);
    va_end(args);
    check.cases++;
    alarm(check.patience);
}

static inline const char *check_argument(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return i + 1 < argc ? argv[i + 1] : "";
    return NULL;
}
static inline uint64_t check_number(int argc, char **argv, const char *name, uint64_t otherwise) {
    const char *text = check_argument(argc, argv, name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Starts MPI; --seed N and --patience SECONDS are read here, and --hosts TEXT, --shared BYTES and
 * --mail BYTES, which are the settings hosts_of, shared_bytes and mail_bytes of all communicators,
 * and --link ucx (see test_link.h). Between hosts that are pretended there is no network to
 * measure. */
static inline int check_init_thread(int *argc, char ***argv, int wanted) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(argc, argv, wanted, &provided);
    const char *hosts = check_argument(*argc, *argv, "--hosts");
    const char *shared = check_argument(*argc, *argv, "--shared");
    const char *mail = check_argument(*argc, *argv, "--mail");
    const char *link = check_argument(*argc, *argv, "--link");
    if (link) setenv("RILL_TEST_LINK", link, 1);
    if (hosts) setenv("RILL_HOSTS_OF", hosts, 1);
    if (hosts) setenv("RILL_PROFILE", "none", 0);
    if (shared) setenv("RILL_SHARED_BYTES", shared, 1);
    if (mail) setenv("RILL_MAIL_BYTES", mail, 1);
    const char *slash = strrchr((*argv)[0], '/');
    check.program = slash ? slash + 1 : (*argv)[0];
    MPI_Comm_rank(MPI_COMM_WORLD, &check.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &check.size);
    check.seed = check_number(*argc, *argv, "--seed", 1);
    check.patience = (unsigned)check_number(*argc, *argv, "--patience", 60);
    signal(SIGALRM, check_hang);
    return provided;
}
static inline void check_init(int *argc, char ***argv) {
    check_init_thread(argc, argv, MPI_THREAD_SINGLE);
}

__attribute__((format(printf, 3, 4))) static inline void check_failed(const char *file, int line,
                                                                      const char *format, ...) {
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s\n  %s:%d: %s\n", check.where, file, line, text);
    if (++check.failures >= 25) {
        fprintf(stderr, "%s: too many failures, giving up\n", check.program);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

#define CHECK(condition)                                                                           \
    ((void)check.checks++,                                                                         \
     (condition) ? 1 : (check_failed(__FILE__, __LINE__, "%s", #condition), 0))

#define CHECK_INT(a, op, b)                                                                        \
    check_int(__FILE__, __LINE__, #a " " #op " " #b, (long long)(a), (long long)(b),               \
              (long long)(a)op(long long)(b))
static inline int check_int(const char *file, int line, const char *text, long long a, long long b,
                            int holds) {
    check.checks++;
    if (!holds) check_failed(file, line, "%s: %lld, %lld", text, a, b);
    return holds;
}

#define CHECK_NUMBER(a, b) check_number_same(__FILE__, __LINE__, #a " same as " #b, (a), (b))
static inline int check_number_same(const char *file, int line, const char *text, double a,
                                    double b) {
    check.checks++;
    if (!value_same(a, b)) check_failed(file, line, "%s: %.17g, %.17g", text, a, b);
    return value_same(a, b);
}

#define CHECK_STRING(a, b) check_string(__FILE__, __LINE__, #a " same as " #b, (a), (b))
static inline int check_string(const char *file, int line, const char *text, const char *a,
                               const char *b) {
    check.checks++;
    int same = a && b && strcmp(a, b) == 0;
    if (!same) check_failed(file, line, "%s: \"%s\", \"%s\"", text, a ? a : "NULL", b ? b : "NULL");
    return same;
}

#define CHECK_STATUS(call, expected) check_status(__FILE__, __LINE__, #call, (call), (expected))
#define CHECK_OK(call) CHECK_STATUS(call, RILL_OK)
static inline int check_status(const char *file, int line, const char *text, rill_status got,
                               rill_status expected) {
    check.checks++;
    if (got != expected)
        check_failed(file, line, "%s: %d (%s: %s), expected %d (%s)", text, (int)got,
                     rill_strerror(got), rill_last_error(), (int)expected, rill_strerror(expected));
    return got == expected;
}
/* The detail of the last failure names something. */
#define CHECK_DETAIL(text) check_detail(__FILE__, __LINE__, (text))
static inline int check_detail(const char *file, int line, const char *text) {
    check.checks++;
    int has = strstr(rill_last_error(), text) != NULL;
    if (!has) check_failed(file, line, "the detail \"%s\" lacks \"%s\"", rill_last_error(), text);
    return has;
}

/* Ends MPI and gives the exit status: 0 if no rank failed and at least so many cases ran. */
static inline int check_finish(long least_cases) {
    alarm(check.patience);
    long total[2], mine[2] = {check.failures, check.checks};
    MPI_Allreduce(mine, total, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    int failed = total[0] > 0 || total[1] == 0 || check.cases < least_cases;
    if (check.rank == 0)
        printf("%s: %s: %d ranks, %ld cases, %ld checks, %ld failures%s\n", check.program,
               failed ? "FAILED" : "ok", check.size, check.cases, total[1], total[0],
               check.cases < least_cases ? " (fewer cases than expected)" : "");
    MPI_Finalize();
    return failed;
}

/* Reports a test that can't run here; 77 means "skipped" to the runner. */
static inline int check_skip(const char *why) {
    if (check.rank == 0) printf("%s: skipped: %s\n", check.program, why);
    MPI_Finalize();
    return 77;
}

#endif
