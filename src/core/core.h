/* What every part of the library uses: status macros, buffers with slack, small arithmetic. */
#ifndef RILL_CORE_CORE_H
#define RILL_CORE_CORE_H

#include "rill/rill.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Sets the thread's detail (printf style) and returns the status, so that a failure is one line:
 *     return rill__fail(RILL_ERR_ARGUMENT, "root %d is not a rank (0 to %d)", root, size - 1); */
rill_status rill__fail(rill_status, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rill__set_error(const char *text); /* restores a detail that was kept elsewhere */
/* Details of a rank that shares its thread with others (link/world.h): what the thread has from now
 * on; NULL: its own. Returns what it had. */
typedef struct rill__error {
    char last[512];   /* detail of the last failure */
    char reason[512]; /* what the next failure is to say; empty: what it says by itself */
} rill__error;
rill__error *rill__error_use(rill__error *);
bool rill__has_reason(void); /* rill_error_set has given this thread's next failure its detail */

#define RILL_TRY(expression)                                                                       \
    do {                                                                                           \
        rill_status rill__try_status = (expression);                                               \
        if (rill__try_status < 0) return rill__try_status;                                         \
    } while (0)

/* Memory of the library, all of which a test can refuse: where the hook returns true the allocation
 * fails. It is set while no other thread is in the library. free() frees. */
extern bool (*rill__memory_refuses)(size_t bytes);
static inline bool rill__memory_refused(size_t bytes) {
    return rill__memory_refuses && rill__memory_refuses(bytes);
}
static inline void *rill__malloc(size_t bytes) {
    return rill__memory_refused(bytes) ? NULL : malloc(bytes);
}
static inline void *rill__calloc(size_t n, size_t bytes) {
    return rill__memory_refused(n * bytes) ? NULL : calloc(n, bytes);
}
static inline void *rill__realloc(void *at, size_t bytes) {
    return rill__memory_refused(bytes) ? NULL : realloc(at, bytes);
}

/* SIMD kernels load and store whole registers: every array of ours is readable and writable this
 * many bytes past its end. */
#define RILL__SLACK 128

/* Where buffers come from. allocate gives 64-byte aligned memory with RILL__SLACK bytes past its
 * end, or NULL; release gets the same number of bytes. */
typedef struct rill__memory rill__memory;
struct rill__memory {
    void *(*allocate)(const rill__memory *, size_t bytes);
    void (*release)(const rill__memory *, void *, size_t bytes);
    bool scarce; /* buffers have less to spare */
};

/* A growable array of bytes that keeps its memory. data is 64-byte aligned and has RILL__SLACK
 * bytes past capacity. */
typedef struct rill__buffer {
    void *data;
    size_t capacity;
    const rill__memory *memory; /* NULL: the host's */
    size_t asked;               /* most bytes that were asked for since this was 0 */
} rill__buffer;

rill_status rill__buffer_allocate(rill__buffer *, size_t bytes);
rill_status rill__buffer_allocate_exactly(rill__buffer *, size_t bytes); /* none to spare */
/* Room for bytes; the old contents are lost if it has to grow. */
static inline rill_status rill__buffer_reserve(rill__buffer *buffer, size_t bytes) {
    if (bytes >= buffer->asked) buffer->asked = bytes | 1; /* also for nothing there is an array */
    return bytes <= buffer->capacity && buffer->data ? RILL_OK
                                                     : rill__buffer_allocate(buffer, bytes);
}
/* The same without a reserve, for what keeps its size. */
rill_status rill__buffer_reserve_exact(rill__buffer *, size_t bytes);
void rill__buffer_free(rill__buffer *);
/* Huge pages, where the system has them. NULL: none, or (with sanitizers, which would see no
 * bounds) not wanted. */
enum { RILL__HUGE = 2 << 20 };      /* bytes of one */
void *rill__map_huge(size_t bytes); /* a multiple of RILL__HUGE, and aligned to it */
void rill__unmap_huge(void *, size_t bytes);
void *rill__aligned_alloc(size_t bytes); /* 64-byte aligned with slack, or NULL; free() frees */

/* rill_type_size, for inner paths. */
static inline size_t rill__type_size(rill_type type) {
    static const unsigned char sizes[4] = {4, 8, 2, 2};
    return (unsigned)type < 4 ? sizes[type] : 0;
}

/* Multiplies sizes; false on overflow. */
static inline bool rill__size_mul(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline uint64_t rill__min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t rill__max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline size_t rill__align8(size_t n) { return (n + 7) & ~(size_t)7; }

/* Indices of 4 or 8 bytes. */
static inline uint64_t rill__index_at(unsigned index_bytes, const void *idx, uint64_t i) {
    return index_bytes == 4 ? ((const uint32_t *)idx)[i] : ((const uint64_t *)idx)[i];
}
static inline void rill__index_put(unsigned index_bytes, void *idx, uint64_t i, uint64_t index) {
    if (index_bytes == 4) ((uint32_t *)idx)[i] = (uint32_t)index;
    else ((uint64_t *)idx)[i] = index;
}
/* Position of the first of the ascending indices [low, high) that is at least bound. */
static inline uint64_t rill__index_lower_bound(unsigned index_bytes, const void *idx, uint64_t low,
                                               uint64_t high, uint64_t bound) {
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (rill__index_at(index_bytes, idx, middle) < bound) low = middle + 1;
        else high = middle;
    }
    return low;
}

#endif
