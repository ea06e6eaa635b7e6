/* Preloaded under tests/mpi/test_failures: the n-th allocation, or the n-th call on a file, that
 * librill.so or librill_train.so makes in this process fails. Calls from anywhere else (MPI, the
 * test, the C library) never do: what counts is the return address. The test finds rill_fail_arm
 * and rill_fail_hits with dlsym. With RILL_FAIL_TRACE in the environment each failure prints the
 * calls that led to it. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALLOCATIONS = 0, FILES = 1 };
/* ONCE: the n-th fails; FROM: and all after it; SHORT: the n-th write writes half, without an
 * error. */
enum { ONCE = 0, FROM = 1, SHORT = 2 };

static struct {
    int kind, mode;
    long at; /* 0: nothing fails */
    atomic_long seen, hits;
    int libraries; /* found */
    struct {
        uintptr_t first, end;
    } library[2]; /* librill.so, librill_train.so */
} armed;

static int find_library(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size;
    (void)unused;
    const char *name = info->dlpi_name;
    if (!name || (!strstr(name, "/librill.so") && !strstr(name, "/librill_train.so"))) return 0;
    uintptr_t lowest = UINTPTR_MAX, highest = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        uintptr_t end = first + info->dlpi_phdr[i].p_memsz;
        if (first < lowest) lowest = first;
        if (end > highest) highest = end;
    }
    armed.library[armed.libraries].first = lowest;
    armed.library[armed.libraries++].end = highest;
    return armed.libraries == 2;
}

static int is_watched(uintptr_t at) {
    for (int i = 0; i < armed.libraries; i++)
        if (at >= armed.library[i].first && at < armed.library[i].end) return 1;
    return 0;
}

/* n = 0 disarms. Returns whether there are both libraries to watch. */
int rill_fail_arm(int kind, int mode, long n);
long rill_fail_hits(void);

int rill_fail_arm(int kind, int mode, long n) {
    if (!armed.libraries) dl_iterate_phdr(find_library, NULL);
    armed.at = 0;
    armed.kind = kind;
    armed.mode = mode;
    if (n) armed.seen = armed.hits = 0;
    armed.at = n;
    return armed.libraries == 2;
}

/* Failures since it was armed last, also after it was disarmed. */
long rill_fail_hits(void) { return armed.hits; }

static int hit(int kind, const void *caller) {
    if (!armed.at || kind != armed.kind || !is_watched((uintptr_t)caller)) return 0;
    long n = atomic_fetch_add(&armed.seen, 1) + 1;
    if (n != armed.at && !(armed.mode == FROM && n > armed.at)) return 0;
    atomic_fetch_add(&armed.hits, 1);
    if (getenv("RILL_FAIL_TRACE")) {
        void *frames[20];
        backtrace_symbols_fd(frames, backtrace(frames, 20), 2);
    }
    errno = kind == ALLOCATIONS ? ENOMEM : ENOSPC;
    return 1;
}
#define HIT(kind) hit((kind), __builtin_return_address(0))

/* The next function of that name, in a variable of its type. */
#define REAL(name)                                                                                 \
    static __typeof__(&name) real;                                                                 \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

/* ---- allocations ----------------------------------------------------------------------------- */

/* dlsym allocates: what serves it must not ask it. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t n) { return HIT(ALLOCATIONS) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return HIT(ALLOCATIONS) ? NULL : __libc_calloc(n, size); }
void *realloc(void *old, size_t n) { return HIT(ALLOCATIONS) ? NULL : __libc_realloc(old, n); }
void *aligned_alloc(size_t to, size_t n) {
    return HIT(ALLOCATIONS) ? NULL : __libc_memalign(to, n);
}
int posix_memalign(void **out, size_t to, size_t n) {
    if (HIT(ALLOCATIONS)) return ENOMEM;
    *out = __libc_memalign(to, n);
    return *out ? 0 : ENOMEM;
}
char *strdup(const char *text) {
    if (HIT(ALLOCATIONS)) return NULL;
    size_t n = strlen(text) + 1;
    char *copy = __libc_malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}
ssize_t getline(char **line, size_t *room, FILE *file) {
    REAL(getline);
    return HIT(ALLOCATIONS) ? -1 : real(line, room, file);
}
void *mmap(void *at, size_t n, int protection, int flags, int file, off_t offset) {
    REAL(mmap);
    return HIT(ALLOCATIONS) ? MAP_FAILED : real(at, n, protection, flags, file, offset);
}

/* ---- files: opened, written, closed, renamed ------------------------------------------------- */

int open(const char *path, int flags, ...) {
    REAL(open);
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return armed.mode != SHORT && HIT(FILES) ? -1 : real(path, flags, mode);
}
FILE *fopen(const char *path, const char *mode) {
    REAL(fopen);
    return armed.mode != SHORT && HIT(FILES) ? NULL : real(path, mode);
}
ssize_t write(int file, const void *data, size_t n) {
    REAL(write);
    if (!HIT(FILES)) return real(file, data, n);
    return armed.mode == SHORT ? real(file, data, n / 2) : -1;
}
ssize_t pwrite(int file, const void *data, size_t n, off_t at) {
    REAL(pwrite);
    if (!HIT(FILES)) return real(file, data, n, at);
    return armed.mode == SHORT ? real(file, data, n / 2, at) : -1;
}
/* What a failed write leaves: ferror. (glibc's bit for it.) */
static int spoil_stream(FILE *file) {
    enum { ERROR_SEEN = 0x20 };
    if (file) file->_flags |= ERROR_SEEN;
    errno = ENOSPC;
    return EOF;
}
size_t fwrite(const void *data, size_t size, size_t n, FILE *file) {
    REAL(fwrite);
    if (!HIT(FILES)) return real(data, size, n, file);
    if (armed.mode == SHORT) return real(data, size, n / 2, file);
    spoil_stream(file);
    return 0;
}
int fputs(const char *text, FILE *file) {
    REAL(fputs);
    return armed.mode != SHORT && HIT(FILES) ? spoil_stream(file) : real(text, file);
}
int fprintf(FILE *file, const char *format, ...) {
    if (armed.mode != SHORT && HIT(FILES)) return spoil_stream(file);
    va_list rest;
    va_start(rest, format);
    int n = vfprintf(file, format, rest);
    va_end(rest);
    return n;
}
int fflush(FILE *file) {
    REAL(fflush);
    return armed.mode != SHORT && HIT(FILES) ? spoil_stream(file) : real(file);
}
/* What is closed is closed, with or without an error. */
int fclose(FILE *file) {
    REAL(fclose);
    int code = real(file);
    return armed.mode != SHORT && HIT(FILES) ? EOF : code;
}
int close(int file) {
    REAL(close);
    int code = real(file);
    return armed.mode != SHORT && HIT(FILES) ? -1 : code;
}
int fsync(int file) {
    REAL(fsync);
    return armed.mode != SHORT && HIT(FILES) ? -1 : real(file);
}
int rename(const char *from, const char *to) {
    REAL(rename);
    return armed.mode != SHORT && HIT(FILES) ? -1 : real(from, to);
}

/* ---- MPI's files: collective calls are made, so that the other ranks are not left alone ------ */

static int spoil(int code, const void *caller) {
    return armed.mode != SHORT && hit(FILES, caller) ? MPI_ERR_NO_SPACE : code;
}
#define SPOIL(call) spoil((call), __builtin_return_address(0))

int MPI_File_write_at(MPI_File file, MPI_Offset at, const void *data, int n, MPI_Datatype type,
                      MPI_Status *status) {
    if (!HIT(FILES)) return PMPI_File_write_at(file, at, data, n, type, status);
    if (armed.mode != SHORT) return MPI_ERR_NO_SPACE;
    return PMPI_File_write_at(file, at, data, n / 2, type, status);
}
int MPI_File_write_at_all(MPI_File file, MPI_Offset at, const void *data, int n, MPI_Datatype type,
                          MPI_Status *status) {
    int failed = HIT(FILES);
    int code = PMPI_File_write_at_all(file, at, data, failed ? n / 2 : n, type, status);
    return failed && armed.mode != SHORT ? MPI_ERR_NO_SPACE : code;
}
int MPI_File_sync(MPI_File file) { return SPOIL(PMPI_File_sync(file)); }
int MPI_File_set_size(MPI_File file, MPI_Offset size) {
    return SPOIL(PMPI_File_set_size(file, size));
}
int MPI_File_close(MPI_File *file) { return SPOIL(PMPI_File_close(file)); }
