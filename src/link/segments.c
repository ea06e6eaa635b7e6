#include "link/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { NAME = 64 };

/* Nobody guesses it, and nobody meets a name that a process has left when it was killed. */
static void name_segment(const uint64_t key[2], int rank, char name[NAME]) {
    snprintf(name, NAME, "/rill-%016llx%016llx-%d", (unsigned long long)key[0],
             (unsigned long long)key[1], rank);
}

/* Whoever touches more than there is gets SIGBUS: containers have as little as 64 MiB. A host's
 * ranks take a quarter of what is left, at most. */
static bool affordable(uint64_t bytes, int ranks) {
    struct statvfs room;
    if (statvfs("/dev/shm", &room) != 0) return true;
    return bytes <= (uint64_t)room.f_bavail * room.f_frsize / 4 / (unsigned)ranks;
}

static void *map(int fd, uint64_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Of a file: who writes beyond gets a signal. */
static uint64_t longest_file(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 ? (uint64_t)limit.rlim_cur : UINT64_MAX;
}

bool rill__segments_grow(rill__segments *s, uint64_t bytes) {
    if (bytes <= s->has) return true;
    if (bytes > s->bytes[s->place] || bytes > longest_file() || !affordable(bytes - s->has, s->n))
        return false;
    int error = EINTR;
    for (int tries = 0; error == EINTR && tries < 8; tries++)
        error = posix_fallocate(s->file, (off_t)s->has, (off_t)(bytes - s->has));
    if (error == 0) s->has = bytes;
    return error == 0;
}

/* This rank's own: addresses for all that it may have, so that growing is its own matter, and pages
 * for what it has at once. Its name stays until all have it. False: it can't be had. */
static bool create_own(rill__segments *s, const char *name, rill__share_bytes bytes) {
    int place = s->place;
    bytes.most = rill__min_u64(bytes.most, longest_file());
    s->file = bytes.most >= bytes.now && bytes.most
                  ? shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600)
                  : -1;
    if (s->file < 0) return false;
    if (ftruncate(s->file, (off_t)bytes.most) == 0) s->at[place] = map(s->file, bytes.most);
    s->bytes[place] = s->at[place] ? bytes.most : 0;
    if (s->at[place] && rill__segments_grow(s, bytes.now)) return true;
    shm_unlink(name);
    return false;
}

static bool open_other(rill__segments *s, const char *name, int place, uint64_t bytes) {
    struct stat info;
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    if (fstat(fd, &info) == 0 && (uint64_t)info.st_size >= bytes) s->at[place] = map(fd, bytes);
    close(fd);
    s->bytes[place] = s->at[place] ? bytes : 0;
    return s->at[place] != NULL;
}

void rill__segments_close(rill__segments *s) {
    for (int i = 0; i < s->n; i++)
        if (s->at[i]) munmap(s->at[i], s->bytes[i]);
    free(s->at);
    free(s->bytes);
    if (s->n && s->file >= 0) close(s->file);
    *s = (rill__segments){.n = 0};
}

/* Whether all ranks of this host have all of its segments, by what every rank has said. */
static bool all_have(const double *said, const rill__hosts *hosts) {
    bool all = true;
    for (int i = 0; i < hosts->here; i++)
        all &= said[hosts->ranks[i]] != 0;
    return all;
}

rill_status rill__segments_open(rill__segments *s, rill__link *link, const uint64_t key[2],
                                const rill__hosts *hosts, rill__share_bytes bytes, char **segment,
                                size_t *sizes, bool *shared) {
    int here = hosts->here;
    char name[NAME], other[NAME];
    *shared = false;
    if (!key[0] && !key[1]) return RILL_OK;
    s->at = rill__calloc((size_t)here, sizeof *s->at);
    s->bytes = rill__calloc((size_t)here, sizeof *s->bytes);
    bool room = s->at && s->bytes && segment && sizes && here > 1;
    s->n = s->at && s->bytes ? here : 0;
    s->place = hosts->place;
    s->file = -1;
    s->has = 0;
    name_segment(key, link->rank, name);
    bool there = room && create_own(s, name, bytes);
    double mine = there ? (double)s->bytes[hosts->place] : 0;
    rill_status status = link->table->allgather(link, &mine, sizeof mine, link->values);
    double good = status == RILL_OK && there && all_have(link->values, hosts);
    for (int i = 0; good != 0 && i < here; i++) {
        if (i == hosts->place) continue;
        name_segment(key, hosts->ranks[i], other);
        if (!open_other(s, other, i, (uint64_t)link->values[hosts->ranks[i]])) good = 0;
    }
    if (status == RILL_OK) status = link->table->allgather(link, &good, sizeof good, link->values);
    if (there) shm_unlink(name);
    *shared = status == RILL_OK && good != 0 && all_have(link->values, hosts);
    for (int i = 0; *shared && i < here; i++) {
        segment[i] = s->at[i];
        sizes[i] = s->bytes[i];
    }
    if (!*shared) rill__segments_close(s);
    return status;
}
