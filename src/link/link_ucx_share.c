/* Memory that ranks of a host share, by POSIX: see share in link/link.h. */
#include "link/hosts.h"
#include "link/link_ucx_own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { NAME = 64 };

typedef rill__link_ucx own_link;

/* Nobody guesses it, and nobody meets a name that a process has left when it was killed. */
static void name_segment(const own_link *own, int rank, char name[NAME]) {
    uint64_t key[2];
    memcpy(key, own->job, sizeof key);
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

/* This rank's own, with its pages; its name stays until all have it. 0 bytes: it can't be had. */
static uint64_t create_own(own_link *own, int place, uint64_t bytes) {
    char name[NAME];
    name_segment(own, own->link.rank, name);
    int fd = bytes ? shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return 0;
    int error = posix_fallocate(fd, 0, (off_t)bytes);
    own->mapped[place] = error ? NULL : map(fd, bytes);
    own->mapped_bytes[place] = own->mapped[place] ? bytes : 0;
    close(fd);
    return own->mapped_bytes[place];
}

static bool open_other(own_link *own, int rank, int place, uint64_t bytes) {
    char name[NAME];
    struct stat info;
    name_segment(own, rank, name);
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    if (fstat(fd, &info) == 0 && (uint64_t)info.st_size >= bytes)
        own->mapped[place] = map(fd, bytes);
    own->mapped_bytes[place] = own->mapped[place] ? bytes : 0;
    close(fd);
    return own->mapped[place] != NULL;
}

void rill__ucx_unshare(rill__link *link) {
    own_link *own = rill__ucx_of(link);
    for (int i = 0; i < own->n_mapped; i++)
        if (own->mapped[i]) munmap(own->mapped[i], own->mapped_bytes[i]);
    free(own->mapped);
    free(own->mapped_bytes);
    own->mapped = NULL;
    own->mapped_bytes = NULL;
    own->n_mapped = 0;
}

/* Whether all ranks of this host have all of its segments, by what every rank has said. */
static bool all_have(const own_link *own, const rill__hosts *hosts) {
    bool all = true;
    for (int i = 0; i < hosts->here; i++)
        all &= own->link.values[hosts->ranks[i]] != 0;
    return all;
}

rill_status rill__ucx_share(rill__link *link, const rill__hosts *hosts, uint64_t bytes,
                            char **segment, size_t *sizes, bool *shared) {
    own_link *own = rill__ucx_of(link);
    int here = hosts->here;
    char name[NAME];
    *shared = false;
    own->mapped = rill__calloc((size_t)here, sizeof *own->mapped);
    own->mapped_bytes = rill__calloc((size_t)here, sizeof *own->mapped_bytes);
    bool room = own->mapped && own->mapped_bytes && segment && sizes && here > 1;
    own->n_mapped = own->mapped && own->mapped_bytes ? here : 0;
    double mine = room ? (double)create_own(own, hosts->place, affordable(bytes, here)) : 0;
    rill_status status = rill__ucx_allgather(link, &mine, sizeof mine, link->values);
    double good = status == RILL_OK && mine != 0 && all_have(own, hosts);
    for (int i = 0; good != 0 && i < here; i++)
        if (i != hosts->place &&
            !open_other(own, hosts->ranks[i], i, (uint64_t)link->values[hosts->ranks[i]]))
            good = 0;
    if (status == RILL_OK) status = rill__ucx_allgather(link, &good, sizeof good, link->values);
    name_segment(own, link->rank, name);
    if (mine != 0) shm_unlink(name);
    *shared = status == RILL_OK && good != 0 && all_have(own, hosts);
    for (int i = 0; *shared && i < here; i++) {
        segment[i] = own->mapped[i];
        sizes[i] = own->mapped_bytes[i];
    }
    if (!*shared) rill__ucx_unshare(link);
    return status;
}
