/* What bench/full_host runs on each rank of a host: how fast all of them at once read and copy
 * memory, each its own and all the same, which sets the bound of a sum; and what the host allows.
 * Each repetition has other memory, which the caches have lost since it was written.
 * One line of JSON. Arguments: MiB that each rank copies, entries of each rank, of the sum. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <immintrin.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { REPS = 9, HUGE_PAGE = 2 << 20, PAIR = 8, LINE = 64 };
/* Bytes that all ranks go through before they come back to the same. */
#define ROUND (UINT64_C(1) << 30)

static int rank, ranks;

static void *memory(size_t bytes) {
    char *at = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
    if (at == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 1);
    at += HUGE_PAGE - (uintptr_t)at % HUGE_PAGE;
    madvise(at, bytes, MADV_HUGEPAGE);
    return memset(at, rank + 1, bytes);
}

/* One piece of memory that all ranks see; each writes, and so places, its share of it. */
static char *shared(size_t bytes, int huge) {
    char name[64];
    snprintf(name, sizeof name, "/rill-full-host-%d-%d", (int)getppid(), huge);
    int fd = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) MPI_Abort(MPI_COMM_WORLD, 1);
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 1);
    if (huge) madvise(at, bytes, MADV_HUGEPAGE);
    MPI_Barrier(MPI_COMM_WORLD);
    shm_unlink(name);
    close(fd);
    size_t share = bytes / (size_t)ranks;
    memset(at + share * (size_t)rank, rank + 1, share);
    MPI_Barrier(MPI_COMM_WORLD);
    return at;
}

static volatile int64_t kept;
static void read_all(void *to, const void *from, size_t bytes) {
    __m128i sum[4] = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128(),
                      _mm_setzero_si128()};
    for (const __m128i *at = from, *end = at + bytes / 16; at < end; at += 4)
        for (int i = 0; i < 4; i++)
            sum[i] = _mm_add_epi64(sum[i], _mm_load_si128(at + i));
    for (int i = 1; i < 4; i++)
        sum[0] = _mm_add_epi64(sum[0], sum[i]);
    kept = _mm_cvtsi128_si64(sum[0]);
    (void)to;
}
static void copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
/* In the pieces in which owners of ranges have them. */
static void copy_pieces(void *to, const void *from, size_t bytes) {
    size_t piece = bytes / (size_t)ranks;
    for (int i = 0; i < ranks; i++) {
        size_t at = piece * (size_t)((rank + i) % ranks);
        memcpy((char *)to + at, (const char *)from + at, piece);
    }
}
/* Past the caches. */
static void stream(void *to, const void *from, size_t bytes) {
    const __m128i *in = from;
    for (__m128i *out = to, *end = out + bytes / 16; out < end; out += 4, in += 4)
        for (int i = 0; i < 4; i++)
            _mm_stream_si128(out + i, _mm_load_si128(in + i));
    _mm_sfence();
}

static uint64_t theirs[4096];
static int pids[4096];
static int reads = 1;
static size_t place;
/* As much from every other rank, by the kernel. */
static void read_others(void *to, const void *from, size_t bytes) {
    size_t piece = bytes / (size_t)ranks;
    (void)from;
    for (int i = 0; i < ranks; i++) {
        int other = (rank + i) % ranks;
        size_t at = piece * (size_t)other;
        struct iovec here = {(char *)to + at, piece};
        struct iovec there = {(char *)(uintptr_t)theirs[other] + place + at, piece}; /* NOLINT */
        if (process_vm_readv(pids[other], &here, 1, &there, 1, 0) != (ssize_t)piece) reads = 0;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of so many bytes that memory has beside each other. */
static size_t places_of(size_t bytes) {
    size_t n = (size_t)(ROUND / bytes / (size_t)ranks);
    return n < 2 ? 2 : n > 2000 ? 2000 : n;
}

typedef void pass(void *to, const void *from, size_t bytes);
/* Bytes a second that all ranks together read, or copy: the median of times of the slowest. */
static double rate(pass *how, void *to, const void *from, size_t bytes) {
    double times[REPS];
    size_t places = places_of(bytes);
    for (size_t i = 0; i < places; i++)
        how((char *)to + i * bytes, from ? (const char *)from + i * bytes : NULL, bytes);
    for (int i = 0; i < REPS; i++) {
        size_t at = (size_t)i % places * bytes;
        place = at;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime(), mine, slowest;
        how((char *)to + at, from ? (const char *)from + at : NULL, bytes);
        mine = MPI_Wtime() - start;
        MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        times[i] = slowest;
    }
    qsort(times, REPS, sizeof *times, ascending);
    return (double)bytes * ranks / times[REPS / 2];
}

static double most(double a, double b) { return a > b ? a : b; }

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4 || ranks > 4096) MPI_Abort(MPI_COMM_WORLD, 2);
    size_t unit = (size_t)LINE * (size_t)ranks;
    size_t bytes = (size_t)(atof(argv[1]) * (1 << 20)) / unit * unit;
    double own = atof(argv[2]) * PAIR, all = atof(argv[3]) * PAIR;
    size_t arena = bytes * places_of(bytes);
    char *from = memory(arena), *to = memory(arena);
    char *together = shared(arena, 0), *huge = shared(arena, 1);
    uint64_t address = (uint64_t)(uintptr_t)from;
    int pid = (int)getpid();
    MPI_Allgather(&address, 1, MPI_UINT64_T, theirs, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    MPI_Allgather(&pid, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
    double reading = rate(read_all, to, from, bytes), copying = rate(copy, to, from, bytes);
    double streaming = rate(stream, to, from, bytes);
    double pieces = rate(copy_pieces, to, together, bytes);
    double past = rate(stream, to, together, bytes), on_huge = rate(stream, to, huge, bytes);
    double others = rate(read_others, to, NULL, bytes);
    MPI_Allreduce(MPI_IN_PLACE, &reads, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    /* Each reads what it gives; the sum is written once, and each copies it. */
    double best = most(copying, streaming), together_best = most(pieces, most(past, on_huge));
    double bound = (own * ranks) / reading + all * (ranks + 1) / best;
    double bound_shared = (own * ranks) / reading + all * (ranks + 1) / together_best;
    if (rank == 0)
        printf("{\"ranks\":%d,\"mib\":%.3g,\"read_gb_s\":%.3g,\"copy_gb_s\":%.3g,"
               "\"stream_gb_s\":%.3g,\"shared_pieces_gb_s\":%.3g,\"shared_stream_gb_s\":%.3g,"
               "\"shared_huge_stream_gb_s\":%.3g,\"readv_gb_s\":%.3g,\"readv_allowed\":%s,"
               "\"bound_ms\":%.4g,\"bound_shared_ms\":%.4g}\n",
               ranks, (double)bytes / (1 << 20), reading / 1e9, copying / 1e9, streaming / 1e9,
               pieces / 1e9, past / 1e9, on_huge / 1e9, others / 1e9, reads ? "true" : "false",
               1e3 * bound, 1e3 * bound_shared);
    MPI_Finalize();
    return 0;
}
