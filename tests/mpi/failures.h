/* What tests/mpi/test_failures.c does at each point: the n-th allocation or file call of one rank
 * fails (with tests/failing/fail_preload.c), for n = 1, 2, ... until the call runs through.
 * Whatever n is, all ranks return in time, all of them with RILL_OK or none, and those that failed
 * say why. */
#ifndef RILL_TESTS_FAILURES_H
#define RILL_TESTS_FAILURES_H

#include "cases.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

enum { FAIL_MEMORY = 0, FAIL_FILES = 1 };
enum { FAIL_ONCE = 0, FAIL_FROM = 1, FAIL_SHORT = 2, FAIL_MODES = 3 };
static const char *const fail_mode_names[FAIL_MODES] = {"", " and all after it", ", cut short,"};

typedef struct scenario {
    char name[100];
    void (*attempt)(const struct scenario *); /* one call, armed between fail_on and fail_off */
    int quick, files; /* files: calls on files fail as well, not allocations only */
    rill_collective collective;
    const char *algorithm, *select;
    int bits, form, step;
    int momentum;
    int reads;   /* dense sums read the memory of other ranks */
    int plain;   /* nothing fails: a call within another scenario */
    long stride; /* between the points tried where not all are; 0: every one */
} scenario;

static struct {
    int (*arm)(int kind, int mode, long n);
    long (*hits)(void);
    int rank, kind, mode; /* what fails, and where */
    long at;
    long points, refused; /* points tried; scenarios that are refused even without a failure */
    int hit;              /* of this attempt, on the failing rank */
    rill_comm *comm;
    char folder[200], path[240]; /* of files */
} failing;

/* ---- arming and agreeing --------------------------------------------------------------------- */

static inline void fail_on(void) {
    rill_error_set(RILL_OK, "");
    if (check.rank == failing.rank) failing.arm(failing.kind, failing.mode, failing.at);
}
static inline void fail_off(void) {
    failing.arm(0, 0, 0);
    if (check.rank == failing.rank && failing.hits() > 0) failing.hit = 1;
}

/* A line of its own for each; all are counted, and printed up to a limit. */
__attribute__((format(printf, 1, 2))) static inline void violated(const char *format, ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (++check.failures <= 200) fprintf(stderr, "VIOLATION %s: %s\n", check.where, text);
}

/* Disarms. Whether the call was right on all ranks; it must be so on all or on none, with a text
 * where it was not. */
static inline int fail_agreed(const char *call, rill_status status) {
    enum { MOST = 64 };
    fail_off();
    check.checks++;
    int mine[2] = {(int)status, status != RILL_OK && !rill_last_error()[0]}, all[2 * MOST];
    MPI_Allgather(mine, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD);
    int right = 0, mute = 0, at = 0;
    char list[12 * MOST] = "";
    for (int i = 0; i < check.size && i < MOST; i++) {
        right += all[2 * i] == RILL_OK;
        mute += all[2 * i + 1];
        at += snprintf(list + at, sizeof list - (size_t)at, " %d", all[2 * i]);
    }
    if (right && right < check.size && check.rank == 0)
        violated("%s: the ranks' statuses differ:%s", call, list);
    if (mute && check.rank == 0) violated("%s: failed without a text on %d ranks", call, mute);
    return right == check.size;
}

/* A call that nothing keeps from being right. Collective, as all of these. */
static inline int fail_free_call(const char *call, rill_status status) {
    int ok = fail_agreed(call, status);
    if (!ok && status != RILL_OK) violated("%s: %d (%s)", call, (int)status, rill_last_error());
    return ok;
}
static inline int same_bits(const char *what, const void *data, size_t bytes) {
    uint64_t h = hash_bytes(7, data, bytes), both[2] = {h, ~h}, most[2];
    MPI_Allreduce(both, most, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    check.checks++;
    if (most[0] != ~most[1] && check.rank == 0) violated("%s differs between ranks", what);
    return most[0] == ~most[1];
}

/* ---- communicators --------------------------------------------------------------------------- */

static inline void need_comm(void) {
    if (!failing.comm)
        fail_free_call("a new communicator", rill_comm_create(MPI_COMM_WORLD, NULL, &failing.comm));
}
static inline void drop_comm(void) {
    if (failing.comm) fail_free_call("rill_comm_free", rill_comm_free(&failing.comm));
    failing.comm = NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

static inline void make_folder(void) {
    if (check.rank == 0) {
        const char *parent = getenv("TMPDIR");
        snprintf(failing.folder, sizeof failing.folder, "%s/rill-failures-%ld",
                 parent && *parent ? parent : "/tmp", (long)getpid());
        mkdir(failing.folder, 0700);
    }
    MPI_Bcast(failing.folder, sizeof failing.folder, MPI_BYTE, 0, MPI_COMM_WORLD);
    snprintf(failing.path, sizeof failing.path, "%s/file", failing.folder);
}
/* Files in the folder, on rank 0; those with a name are removed if clear. */
static inline int count_files(int clear) {
    int n = 0;
    DIR *folder = opendir(failing.folder);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (e->d_name[0] == '.') continue;
        char name[520];
        snprintf(name, sizeof name, "%s/%s", failing.folder, e->d_name);
        if (clear) remove(name);
        n++;
    }
    if (folder) closedir(folder);
    return n;
}
static inline void clear_files(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) count_files(1);
    MPI_Barrier(MPI_COMM_WORLD);
}
/* Hash of a file's bytes, 0 if there is none; rank 0's, on all ranks. */
static inline uint64_t file_hash(const char *path) {
    uint64_t h = 0;
    FILE *f = check.rank == 0 ? fopen(path, "rb") : NULL;
    if (f) {
        static char part[4096];
        h = 1;
        for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
            h = hash_bytes(h, part, n);
        fclose(f);
    }
    MPI_Bcast(&h, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return h;
}
/* After a write that failed: what was there is there, and nothing besides. */
static inline void files_as_before(uint64_t before, int count) {
    uint64_t now = file_hash(failing.path);
    check.checks++;
    if (check.rank != 0) return;
    if (now != before) violated("the file that was there is %s", now ? "another" : "gone");
    if (count_files(0) != count)
        violated("%d files are in the folder, not %d", count_files(0), count);
}

/* ---- the loop over points -------------------------------------------------------------------- */

typedef struct fail_range {
    long from, to;
    int rank, kind, mode; /* -1: as the scenario has it */
} fail_range;

static inline int fail_attempt(const scenario *s) {
    check_case("%s, %s %ld%s of rank %d fails", s->name,
               failing.kind == FAIL_FILES ? "file call" : "allocation", failing.at,
               fail_mode_names[failing.mode], failing.rank);
    failing.hit = 0;
    s->attempt(s);
    fail_off();
    MPI_Bcast(&failing.hit, 1, MPI_INT, failing.rank, MPI_COMM_WORLD);
    if (failing.hit) failing.points++;
    return failing.hit;
}

static inline void fail_points(const scenario *s, int rank, int kind, int mode, long stride,
                               const fail_range *range) {
    enum { MOST_POINTS = 20000 };
    failing.rank = rank;
    failing.kind = kind;
    failing.mode = mode;
    for (failing.at = range->from; failing.at <= range->to; failing.at += stride) {
        if (failing.at > MOST_POINTS) {
            if (check.rank == 0) violated("no end after %d points", MOST_POINTS);
            break;
        }
        if (!fail_attempt(s)) break;
    }
}

static inline void fail_scenario(const scenario *s, int every, const fail_range *range) {
    int ranks[3] = {1, 0, check.size - 1};
    int n = range->rank >= 0 ? 1 : !every ? 1 : check.size > 2 ? 3 : 2;
    if (range->rank >= 0) ranks[0] = range->rank;
    for (int i = 0; i < n; i++)
        for (int kind = FAIL_MEMORY; kind <= (s->files ? FAIL_FILES : FAIL_MEMORY); kind++)
            for (int mode = 0; mode < FAIL_MODES; mode++) {
                if (range->kind >= 0 && kind != range->kind) continue;
                if (range->mode >= 0 && mode != range->mode) continue;
                if (mode == FAIL_SHORT && kind != FAIL_FILES) continue;
                if (mode == FAIL_FROM && (!every || i > 0) && range->mode < 0) continue;
                fail_points(s, ranks[i], kind, mode, every || !s->stride ? 1 : s->stride, range);
            }
    drop_comm();
}

#endif
