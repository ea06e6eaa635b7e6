/* Files without a name: arrays that grow in them and are mapped then, and the bytes of a pipe. */
#include "core/text.h"
#include "train/data_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SPOOL_BUFFER = 1 << 20 };

static int open_temporary(const char *folder) {
    char name[4096];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    rill__print(name, sizeof name, "%s/rill-XXXXXX", folder);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd >= 0) unlink(name);
    return fd;
}

/* 0 is no descriptor of ours. */
rill_status rill__spool_open(rill__spool *s, const char *folder) {
    int fd = open_temporary(folder);
    if (fd == 0) {
        fd = dup(0);
        close(0);
    }
    if (fd < 0)
        return rill__data_fail(RILL_ERR_IO, "%s: no temporary file can be made there: %s", folder,
                               strerror(errno));
    s->fd = fd;
    s->folder = strdup(folder);
    s->buffer = malloc(SPOOL_BUFFER);
    return s->buffer && s->folder ? RILL_OK : rill__data_memory("a temporary file");
}

static rill_status put_bytes(int fd, const char *folder, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes) {
        ssize_t done = write(fd, at, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return rill__data_fail(RILL_ERR_IO, "%s: a temporary file cannot be written there: %s",
                                   folder, strerror(done ? errno : ENOSPC));
        at += done;
        bytes -= (size_t)done;
    }
    return RILL_OK;
}

rill_status rill__spool_put(rill__spool *s, const void *data, uint64_t bytes) {
    const uint8_t *at = data;
    s->bytes += bytes;
    while (bytes) {
        size_t n = SPOOL_BUFFER - s->used < bytes ? SPOOL_BUFFER - s->used : (size_t)bytes;
        memcpy(s->buffer + s->used, at, n);
        s->used += n;
        at += n;
        bytes -= n;
        if (s->used < SPOOL_BUFFER) continue;
        RILL_TRY_DATA(put_bytes(s->fd, s->folder, s->buffer, s->used));
        s->used = 0;
    }
    return RILL_OK;
}

rill_status rill__spool_map(rill__spool *s) {
    static const char zeros[RILL_SLACK];
    RILL_TRY_DATA(rill__spool_put(s, zeros, sizeof zeros));
    RILL_TRY_DATA(put_bytes(s->fd, s->folder, s->buffer, s->used));
    free(s->buffer);
    s->buffer = NULL;
    void *map = mmap(NULL, (size_t)s->bytes, PROT_READ, MAP_SHARED, s->fd, 0);
    if (map == MAP_FAILED)
        return rill__data_fail(RILL_ERR_IO, "%s: a temporary file cannot be mapped: %s", s->folder,
                               strerror(errno));
    s->map = map;
    return RILL_OK;
}

void rill__spool_close(rill__spool *s) {
    if (s->map) munmap(s->map, (size_t)s->bytes);
    if (s->fd > 0) close(s->fd);
    free(s->buffer);
    free(s->folder);
    *s = (rill__spool){0};
}

static void foresee(const rill__spool *s, uint64_t from, uint64_t to) {
    uint64_t page = 4096, first = from / page * page;
    if (s->map && to > first && to <= s->bytes)
        madvise((char *)s->map + first, (size_t)(to - first), MADV_WILLNEED);
}

void rill__dataset_foresee(const rill_dataset *set, uint64_t first, uint64_t rows) {
    const rill__rows *r = &set->rows;
    if (!r->mapped || first >= r->rows) return;
    uint64_t last = r->rows - first < rows ? r->rows : first + rows;
    foresee(&set->spool[RILL__SPOOL_INDEX], 4 * r->start[first], 4 * r->start[last]);
    foresee(&set->spool[RILL__SPOOL_VALUE], 4 * r->start[first], 4 * r->start[last]);
}

const char *rill__spool_folder(const rill_data_options *o, const char *path, char *name,
                               size_t size) {
    if (o->folder) return o->folder;
    struct stat about;
    const char *slash = strrchr(path, '/'), *other = getenv("TMPDIR");
    if (stat(path, &about) || !S_ISREG(about.st_mode)) return other ? other : "/var/tmp";
    if (!slash) return ".";
    rill__print(name, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return name;
}

/* A pipe's bytes in a file. */
rill_status rill__copy_pipe(const char *path, const rill_data_options *o, rill__file *file) {
    char name[4096], *buffer = malloc(SPOOL_BUFFER);
    bool standard = !strcmp(path, "-");
    const char *folder = rill__spool_folder(o, path, name, sizeof name);
    int from = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    int to = buffer && from >= 0 ? open_temporary(folder) : -1;
    rill_status status = RILL_OK;
    if (!buffer) status = rill__data_memory("a pipe");
    else if (from < 0 || to < 0)
        status = rill__data_fail(RILL_ERR_IO, "%s: %s: %s", from < 0 ? path : folder,
                                 from < 0 ? "cannot be opened"
                                          : "no temporary file can be made there",
                                 strerror(errno));
    *file = (rill__file){.path = standard ? "standard input" : path, .fd = to};
    while (status == RILL_OK) {
        ssize_t got = read(from, buffer, SPOOL_BUFFER);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            status = rill__data_fail(RILL_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
        if (got <= 0) break;
        status = put_bytes(to, folder, buffer, (size_t)got);
        file->size += (uint64_t)got;
    }
    if (from > 0) close(from);
    free(buffer);
    return status;
}
