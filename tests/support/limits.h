/* Failures of this process alone that need no rights: writes past a size, opening a file. */
#ifndef RILL_TESTS_LIMITS_H
#define RILL_TESTS_LIMITS_H

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static inline void limit_set(int what, rlim_t most) {
    struct rlimit now;
    getrlimit(what, &now);
    now.rlim_cur = most < now.rlim_max ? most : now.rlim_max;
    setrlimit(what, &now);
}

/* Files end at so many bytes; 0: as before. A write past it fails with EFBIG. */
static inline void limit_files(unsigned bytes) {
    signal(SIGXFSZ, SIG_IGN);
    limit_set(RLIMIT_FSIZE, bytes ? bytes : RLIM_INFINITY);
}

/* No file can be opened; or again. */
static inline void limit_opening(int on) {
    static rlim_t before;
    struct rlimit now;
    int fd;
    if (on) {
        getrlimit(RLIMIT_NOFILE, &now);
        before = now.rlim_cur;
        fd = open("/", O_RDONLY);
        close(fd);
        limit_set(RLIMIT_NOFILE, (rlim_t)fd);
    } else limit_set(RLIMIT_NOFILE, before);
}

/* A device of our own, like /dev/null (3) or /dev/full (7), which a test must not put at risk. 0:
 * not allowed here. */
static inline int make_device(const char *path, unsigned number) {
    if (mknod(path, S_IFCHR | 0666, makedev(1, number)) != 0) return 0;
    int fd = open(path, O_WRONLY);
    if (fd >= 0) close(fd);
    else unlink(path);
    return fd >= 0;
}

#endif
