/* Vectors of a model, on huge pages where they are large.
 *
 * Idea: rows touch vectors at random, and on small pages they miss the TLB for most entries. Only
 * the huge pages that lie whole within a block are asked for, so that no memory becomes resident
 * that is not the vector's, and malloc's own free() serves. It is a wish: where the kernel has no
 * huge pages, or keeps them to itself, all goes on as before.
 */
#include "train/data_internal.h"

#include <stdlib.h>
#include <sys/mman.h>

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
