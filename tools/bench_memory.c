/* Passes over memory, timed beside kernels: what reading and writing alone would take.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench_memory.h"
#include "world.h"

#include <rill/rill.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#define EVICTION ((size_t)128 << 20)

static volatile uint64_t sink; /* keeps the sums from being optimised away */

#define READ_PASS                                                                                  \
    typedef uint64_t lanes __attribute__((vector_size(64), may_alias));                            \
    const lanes *v = (const lanes *)data;                                                          \
    size_t n = bytes / sizeof *v;                                                                  \
    lanes a = {0}, b = {0}, c = {0}, d = {0};                                                      \
    size_t i = 0;                                                                                  \
    for (; i < n / 4 * 4; i += 4) {                                                                \
        a += v[i];                                                                                 \
        b += v[i + 1];                                                                             \
        c += v[i + 2];                                                                             \
        d += v[i + 3];                                                                             \
    }                                                                                              \
    for (; i < n; i++)                                                                             \
        a += v[i];                                                                                 \
    a += b + c + d;                                                                                \
    sink += a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];

static void read_plain(const void *data, size_t bytes) { READ_PASS }
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void read_avx2(const void *data, size_t bytes) { READ_PASS }
__attribute__((target("avx512f"))) static void read_avx512(const void *data, size_t bytes) {
    READ_PASS
}
#endif

void bench_read_pass(const void *data, size_t bytes) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return read_avx512(data, bytes);
    if (__builtin_cpu_supports("avx2")) return read_avx2(data, bytes);
#endif
    read_plain(data, bytes);
}

typedef uint64_t words __attribute__((vector_size(64), may_alias));

static void copy_plain(char *into, const char *from, size_t bytes) {
    for (size_t i = 0; i + 64 <= bytes; i += 64)
        *(words *)(void *)(into + i) = *(const words *)(const void *)(from + i);
}

static void copy_stream(char *into, const char *from, size_t bytes) {
#if defined(__x86_64__)
    for (size_t i = 0; i + 16 <= bytes; i += 16)
        _mm_stream_si128((__m128i *)(void *)(into + i),
                         _mm_load_si128((const __m128i *)(const void *)(from + i)));
    _mm_sfence();
#else
    memcpy(into, from, bytes);
#endif
}

#define UPDATE                                                                                     \
    for (size_t i = 0; i + 64 <= bytes; i += 64)                                                   \
        *(words *)(void *)(into + i) += *(const words *)(const void *)(from + i);

static void update_plain(char *into, const char *from, size_t bytes) { UPDATE }
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void update_avx512(char *into, const char *from,
                                                             size_t bytes) {
    UPDATE
}
#endif

static void update(char *into, const char *from, size_t bytes) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return update_avx512(into, from, bytes);
#endif
    update_plain(into, from, bytes);
}

double bench_bound_pass(const bench_memory *m, size_t reads, size_t writes, bench_bound kind) {
    double start = world_clock();
    if (kind == BOUND_IN_PLACE) {
        /* What is written is read as well; the rest of the reads comes from elsewhere. */
        size_t other = reads > writes ? reads - writes : 0,
               paired = other < writes ? other : writes;
        paired &= ~(size_t)63;
        update(m->into, m->from, paired);
        update(m->into + paired, m->into + paired, writes - paired);
        if (other > paired) bench_read_pass(m->from + paired, (other - paired) & ~(size_t)63);
        return world_clock() - start;
    }
    size_t both = reads < writes ? reads : writes;
    if (kind == BOUND_STREAM) copy_stream(m->into, m->from, both);
    else copy_plain(m->into, m->from, both);
    if (reads > both) bench_read_pass(m->from + (both & ~(size_t)63), (reads - both) & ~(size_t)63);
    if (writes > both) memset(m->into + both, 1, writes - both);
    return world_clock() - start;
}

void bench_evict(const bench_memory *m) { bench_read_pass(m->evict, EVICTION); }

#define HUGE_PAGE ((size_t)2 << 20)

static size_t huge_size(size_t bytes) {
    return (bytes + RILL_SLACK + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

void *bench_huge_alloc(size_t bytes) {
    size_t size = huge_size(bytes);
    char *all = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
    if (all == MAP_FAILED) return NULL;
    size_t before = HUGE_PAGE - (uintptr_t)all % HUGE_PAGE;
    char *data = all + before;
    munmap(all, before);
    if (before < HUGE_PAGE) munmap(data + size, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
    madvise(data, size, MADV_HUGEPAGE);
#endif
    memset(data, 1, size);
    return data;
}

void bench_huge_free(void *data, size_t bytes) {
    if (data) munmap(data, huge_size(bytes));
}

bool bench_memory_make(size_t capacity, bench_memory *m) {
    m->capacity = capacity;
    m->evict = bench_huge_alloc(EVICTION);
    m->from = bench_huge_alloc(capacity);
    m->into = bench_huge_alloc(capacity);
    return m->evict && m->from && m->into;
}

void bench_memory_free(bench_memory *m) {
    bench_huge_free(m->evict, EVICTION);
    bench_huge_free(m->from, m->capacity);
    bench_huge_free(m->into, m->capacity);
    *m = (bench_memory){0};
}
