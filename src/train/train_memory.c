/* Vectors of a model: on huge pages where they are large, and none where memory is too little.
 *
 * Idea: rows touch vectors at random, and on small pages they miss the TLB for most entries. Only
 * the huge pages that lie whole within a block are asked for, so that no memory becomes resident
 * that is not the vector's, and malloc's own free() serves. It is a wish: where the kernel has no
 * huge pages, or keeps them to itself, all goes on as before.
 * Kernels promise more memory than they have, and end programs that take it. So what a long model
 * needs at least, for all ranks of a host, is compared with what is free there.
 */
#include "train/data_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { HUGE = 2 << 20 };

static void *on_huge_pages(void *data, size_t bytes) {
#ifdef MADV_HUGEPAGE
    /* A processor keeps the pages of smaller vectors in mind anyway. */
    if (!data || bytes < 2 * (size_t)HUGE) return data;
    size_t before = (size_t)(-(uintptr_t)data % HUGE); /* the first whole huge page */
    size_t whole = (bytes - before) / HUGE * HUGE;
    madvise((char *)data + before, whole, MADV_HUGEPAGE);
#else
    (void)bytes;
#endif
    return data;
}

void *rill__vector(uint64_t n, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
    return on_huge_pages(malloc(bytes), bytes);
}

void *rill__vector_zeros(uint64_t n, size_t size) {
    return on_huge_pages(calloc((size_t)n, size), (size_t)n * size);
}

/* ---- room for a model ------------------------------------------------------------------------ */

enum { LONG_MODEL = 1 << 25 }; /* weights: shorter ones always fit */

/* Bytes that can be had now; 0: nobody says. */
static uint64_t free_bytes(void) {
    unsigned long long kilobytes = 0;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) break;
    if (file) fclose(file);
    return (uint64_t)kilobytes * 1024;
}

static uint64_t host_number(void) {
    char name[256] = {0};
    uint64_t number = 5381;
    if (gethostname(name, sizeof name - 1)) return 0;
    for (const char *c = name; *c; c++)
        number = number * 33 + (unsigned char)*c;
    return number;
}

/* The least of what is free and what processes may take. */
static double room_of(uint64_t ranks) {
    static const int limits[] = {RLIMIT_AS, RLIMIT_DATA};
    double has = (double)free_bytes();
    for (int i = 0; i < 2; i++) {
        struct rlimit limit;
        if (getrlimit((unsigned)limits[i], &limit) || limit.rlim_cur == RLIM_INFINITY) continue;
        double allowed = (double)limit.rlim_cur * (double)ranks;
        if (has == 0 || allowed < has) has = allowed;
    }
    return has;
}

static rill_status look_for_room(uint64_t weights, uint64_t bytes, uint64_t ranks) {
    double need = (double)weights * (double)bytes * (double)ranks, has = room_of(ranks);
    if (has == 0 || need <= has) return RILL_OK;
    return rill__data_fail(
        RILL_ERR_MEMORY,
        "out of memory: a model of %llu weights takes at least %.0f GB for the %llu rank%s of a "
        "host, and %.0f GB are free",
        (unsigned long long)weights, need / 1e9, (unsigned long long)ranks, ranks == 1 ? "" : "s",
        has / 1e9);
}

rill_status rill__room_for(rill_comm *comm, uint64_t weights, uint64_t bytes) {
    if (weights < LONG_MODEL) return RILL_OK;
    int size = rill_comm_size(comm);
    uint64_t mine = host_number(), ranks = 0, *all = calloc((size_t)size, sizeof *all);
    rill_status status = rill__data_agree(comm, all ? RILL_OK : rill__data_memory("hosts"));
    if (status == RILL_OK) status = rill_comm_gather_bytes(comm, &mine, sizeof mine, all);
    for (int r = 0; status == RILL_OK && r < size; r++)
        ranks += all[r] == mine;
    free(all);
    if (status == RILL_OK) status = look_for_room(weights, bytes, ranks);
    return rill__data_agree(comm, status);
}
