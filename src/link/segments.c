#include "link/segments.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { NAME = 64 };

/* Nobody guesses it, and nobody meets a name that a process has left when it was killed. */
static void name_segment(const uint64_t key[2], int rank, char name[NAME]) {
    snprintf(name, NAME, "/rill-%016llx%016llx-%d", (unsigned long long)key[0],
             (unsigned long long)key[1], rank);
}

/* Whoever touches more than there is gets SIGBUS: containers have as little as 64 MiB. */
static uint64_t affordable(uint64_t bytes, int ranks) {
    struct statvfs room;
    if (statvfs("/dev/shm", &room) != 0) return bytes;
    uint64_t share = (uint64_t)room.f_bavail * room.f_frsize / 4 / (unsigned)ranks;
    return rill__min_u64(bytes, share);
}

static void *map(int fd, uint64_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* This rank's own, with its pages; its name stays until all have it. False: it can't be had. */
static bool create_own(rill__segments *s, const char *name, int place, uint64_t bytes) {
    int fd = bytes ? shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return false;
    if (posix_fallocate(fd, 0, (off_t)bytes) == 0) s->at[place] = map(fd, bytes);
    close(fd);
    s->bytes[place] = s->at[place] ? bytes : 0;
    if (!s->at[place]) shm_unlink(name);
    return s->at[place] != NULL;
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
                                const rill__hosts *hosts, uint64_t bytes, char **segment,
                                size_t *sizes, bool *shared) {
    int here = hosts->here;
    char name[NAME], other[NAME];
    *shared = false;
    if (!key[0] && !key[1]) return RILL_OK;
    s->at = rill__calloc((size_t)here, sizeof *s->at);
    s->bytes = rill__calloc((size_t)here, sizeof *s->bytes);
    bool room = s->at && s->bytes && segment && sizes && here > 1;
    s->n = s->at && s->bytes ? here : 0;
    name_segment(key, link->rank, name);
    bool there = room && create_own(s, name, hosts->place, affordable(bytes, here));
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
