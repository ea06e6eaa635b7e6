#include "core/core.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE = 2 << 20 }; /* bytes of a huge page */

/* With overcommit malloc grants what the machine does not have, and the process dies on first
 * touch. More than the physical memory is refused here, where the caller still gets an error. */
static bool exceeds_memory(size_t bytes) {
    if (bytes < (size_t)1 << 30) return false;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && bytes / (size_t)page >= (size_t)pages;
}

void *rill__aligned_alloc(size_t bytes) {
    size_t padded;
    if (__builtin_add_overflow(bytes, (size_t)(RILL__SLACK + 63), &padded)) return NULL;
    if (exceeds_memory(padded)) return NULL;
    if (padded < HUGE) return aligned_alloc(64, padded & ~(size_t)63);
    /* Sums touch large buffers at random: on small pages they would miss the TLB all the time. */
    void *data = aligned_alloc(HUGE, (padded + HUGE - 1) & ~(size_t)(HUGE - 1));
#ifdef MADV_HUGEPAGE
    if (data) madvise(data, padded & ~(size_t)(HUGE - 1), MADV_HUGEPAGE); /* a wish, no more */
#endif
    return data;
}

rill_status rill__buffer_allocate(rill__buffer *buffer, size_t bytes) {
    /* A quarter more than asked for, so that sizes that creep up do not reallocate each call. */
    size_t capacity;
    if (__builtin_add_overflow(bytes, bytes / 4 + 256, &capacity)) capacity = bytes;
    void *data = rill__aligned_alloc(capacity);
    if (!data)
        return rill__fail(RILL_ERR_MEMORY, "out of memory: %zu bytes for a buffer", capacity);
    free(buffer->data);
    buffer->data = data;
    buffer->capacity = capacity;
    return RILL_OK;
}

void rill__buffer_free(rill__buffer *buffer) {
    free(buffer->data);
    buffer->data = NULL;
    buffer->capacity = 0;
}
