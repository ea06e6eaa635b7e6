#include "core/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LINKS = 40, TRIES = 200, WAIT_NS = 10 * 1000 * 1000 }; /* 2 s for another writer */

/* ---- where it goes -------------------------------------------------------------------------- */

static char *join(const char *folder, size_t length, const char *name) {
    size_t more = strlen(name) + 1;
    char *joined = malloc(length + more);
    if (!joined) return NULL;
    memcpy(joined, folder, length);
    memcpy(joined + length, name, more);
    return joined;
}

/* Bytes of the folder's name with its slash. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Links below /proc, such as /dev/stdout, are open files and not names. */
static bool in_proc(const char *path) {
    char real[PATH_MAX], *folder = join(path, folder_length(path), ".");
    bool yes = folder && realpath(folder, real) && !strncmp(real, "/proc/", 6);
    free(folder);
    return yes;
}

/* *target: what the links of path end in, which need not be there; NULL: not a name that can be
 * given. */
static int follow(const char *path, char **target) {
    char *at = join(path, strlen(path), "");
    for (int i = 0; at; i++) {
        char to[PATH_MAX];
        struct stat about;
        if (lstat(at, &about) || !S_ISLNK(about.st_mode)) break;
        bool open_file = in_proc(at);
        ssize_t n = open_file ? 0 : readlink(at, to, sizeof to - 1);
        int error = open_file || n >= 0 ? 0 : errno;
        if (i == MOST_LINKS) error = ELOOP;
        char *next = NULL;
        if (!error && !open_file) {
            to[n] = '\0';
            next = join(at, to[0] == '/' ? 0 : folder_length(at), to);
            if (!next) error = ENOMEM;
        }
        free(at);
        at = next;
        if (error || open_file) {
            *target = NULL;
            return error;
        }
    }
    *target = at;
    return at ? 0 : ENOMEM;
}

static void pause_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL); }

/* Whether the file is ours alone, and still the one of that name. Where there are no locks, it is.
 */
static bool is_ours(int fd, const char *name) {
    struct stat open_one, named;
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) return false;
    return !fstat(fd, &open_one) && !stat(name, &named) && open_one.st_ino == named.st_ino &&
           open_one.st_dev == named.st_dev;
}

/* A file that a writer which was killed has left goes away; one that is being written does not. */
static int remove_left_over(const char *name) {
    struct stat about;
    int fd = open(name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? 0 : errno;
    int error = 0;
    if (fstat(fd, &about) || !S_ISREG(about.st_mode)) error = EEXIST;
    else if (!is_ours(fd, name)) error = EBUSY;
    else if (unlink(name)) error = errno;
    close(fd);
    return error;
}

static int create(const char *name, mode_t mode, int *out) {
    for (int i = 0; i < TRIES; i++) {
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd >= 0 && is_ours(fd, name)) {
            *out = fd;
            return 0;
        }
        if (fd >= 0) close(fd);
        else if (errno != EEXIST) return errno;
        int error = remove_left_over(name);
        if (error == EBUSY) pause_a_little();
        else if (error) return error;
    }
    return EBUSY;
}

/* ---- open ----------------------------------------------------------------------------------- */

/* Owner, group and rights of the file that is replaced, as far as they are ours to give; nobody
 * gets more than before. */
static void keep_rights(int fd, const struct stat *old) {
    mode_t mode = old->st_mode & 07777;
    if (fchown(fd, old->st_uid, old->st_gid)) {
        mode &= 0777;
        if (fchown(fd, (uid_t)-1, old->st_gid)) mode &= ~(mode_t)070 | (mode & 07) << 3;
    }
    if (fchmod(fd, mode)) return; /* a file system without rights */
}

static int open_beside(rill__outfile *out, const struct stat *old) {
    int fd = -1;
    out->partial = join(out->target, strlen(out->target), ".partial");
    if (!out->partial) return ENOMEM;
    /* One that must not be written must not be replaced either. */
    if (old && faccessat(AT_FDCWD, out->target, W_OK, AT_EACCESS)) return errno;
    int error = create(out->partial, old ? 0600 : 0666, &fd);
    if (error) return error;
    if (old) keep_rights(fd, old);
    if (!error && !(out->stream = fdopen(fd, "w+b"))) error = errno;
    if (!error) return 0;
    close(fd);
    unlink(out->partial);
    return error;
}

static int open_as_it_is(rill__outfile *out, const char *path, bool append) {
    out->stream = fopen(path, append ? "abe" : "wbe");
    return out->stream ? 0 : errno;
}

static void forget(rill__outfile *out) {
    free(out->target);
    free(out->partial);
    *out = (rill__outfile){.stream = NULL};
}

/* Whether only the folder is in the way of a file that may be written. */
static bool is_closed_folder(const rill__outfile *out, int error) {
    return (error == EACCES || error == EPERM || error == EROFS) &&
           !faccessat(AT_FDCWD, out->target, W_OK, AT_EACCESS);
}

static int open_output(rill__outfile *out, const char *path, bool append) {
    struct stat about;
    bool there = !stat(path, &about);
    if (!there && errno != ENOENT) return errno;
    if (there && S_ISDIR(about.st_mode)) return EISDIR;
    if (there && (append || !S_ISREG(about.st_mode))) return open_as_it_is(out, path, append);
    int error = follow(path, &out->target);
    if (error) return error;
    if (out->target) error = open_beside(out, there ? &about : NULL);
    if (out->target && !(there && is_closed_folder(out, error))) return error;
    forget(out);
    return open_as_it_is(out, path, append);
}

static int begin(const char *path, bool append, rill__outfile *out) {
    *out = (rill__outfile){.standard = !strcmp(path, "-")};
    int error = 0;
    if (out->standard) out->stream = stdout;
    else error = open_output(out, path, append);
    if (error) forget(out);
    errno = error; /* what it is at the end tells why a stream has failed */
    return error;
}

int rill__outfile_open(const char *path, rill__outfile *out) { return begin(path, false, out); }
int rill__outfile_append(const char *path, rill__outfile *out) { return begin(path, true, out); }

FILE *rill__outfile_scratch(const rill__outfile *beside) {
    if (!beside->target) return tmpfile();
    char *name = join(beside->target, strlen(beside->target), ".XXXXXX");
    int fd = name ? mkostemp(name, O_CLOEXEC) : -1, error = name ? errno : ENOMEM;
    FILE *file = NULL;
    if (fd >= 0) {
        unlink(name); /* goes away with the process, whatever happens */
        file = fdopen(fd, "w+b");
        error = errno;
        if (!file) close(fd);
    }
    free(name);
    errno = error;
    return file;
}

/* ---- write and close ------------------------------------------------------------------------ */

static int failed(rill__outfile *out) {
    if (!out->error) out->error = errno ? errno : EIO;
    return out->error;
}

int rill__outfile_write(rill__outfile *out, const void *data, size_t n) {
    if (n && fwrite(data, 1, n, out->stream) != n) return failed(out);
    return out->error;
}

/* Some file systems have nothing to flush, and say so. */
static bool reaches_disk(int fd) {
    return !fsync(fd) || errno == EINVAL || errno == ENOTSUP || errno == ENOSYS || errno == EROFS;
}

static int flush(rill__outfile *out) {
    if (fflush(out->stream) || ferror(out->stream)) return failed(out);
    return out->error;
}

/* The name must reach the disk too; that it is there is what counts. */
static void flush_folder(const char *path) {
    char *folder = join(path, folder_length(path), ".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

/* While the file is open its lock keeps others from the name. */
static int take_place(rill__outfile *out) {
    if (!reaches_disk(fileno(out->stream)) || rename(out->partial, out->target)) return failed(out);
    flush_folder(out->target);
    free(out->partial);
    out->partial = NULL;
    return 0;
}

int rill__outfile_line(rill__outfile *out, const char *line) {
    if (out->error) return out->error;
    struct stat about;
    int fd = fileno(out->stream);
    bool regular = !fstat(fd, &about) && S_ISREG(about.st_mode);
    rill__outfile_write(out, line, strlen(line));
    if (!out->error) rill__outfile_write(out, "\n", 1);
    if (!out->error) flush(out);
    if (!out->error) return out->partial ? take_place(out) : 0;
    /* Half a line would be taken for damage by who reads it. */
    if (regular && !out->standard && ftruncate(fd, about.st_size)) return out->error;
    return out->error;
}

int rill__outfile_close(rill__outfile *out, bool keep) {
    if (!out->stream) return 0;
    if (keep) flush(out);
    /* A file that has taken its place has reached the disk before: what fails after that is no
     * failure of it. */
    bool placed = keep && !out->error && out->partial && take_place(out) == 0;
    bool counts = keep && !placed && !out->standard;
    if (counts && !out->error && !reaches_disk(fileno(out->stream))) failed(out);
    if (out->partial) unlink(out->partial);
    if (!out->standard && fclose(out->stream) && counts) failed(out);
    int error = keep ? out->error : 0;
    forget(out);
    return error;
}
