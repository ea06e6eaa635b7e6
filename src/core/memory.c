#include "core/core.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE = RILL__HUGE };

bool (*rill__memory_refuses)(size_t bytes);

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
    if (exceeds_memory(padded) || rill__memory_refused(padded)) return NULL;
    if (padded < HUGE) return aligned_alloc(64, padded & ~(size_t)63);
    /* Sums touch large buffers at random: on small pages they would miss the TLB all the time. */
    void *data = aligned_alloc(HUGE, (padded + HUGE - 1) & ~(size_t)(HUGE - 1));
#ifdef MADV_HUGEPAGE
    if (data) madvise(data, padded & ~(size_t)(HUGE - 1), MADV_HUGEPAGE); /* a wish, no more */
#endif
    return data;
}

/* Buffers of a huge page and more have a mapping of their own: what malloc hands out again has been
 * cut in small pages before, now and then, and is then slower by a fifth for as long as it lives.
 * Sanitizers see only what malloc gave. */
#if defined(__SANITIZE_ADDRESS__)
#define MAPS false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define MAPS false
#endif
#endif
#if !defined(MAPS) && defined(MADV_HUGEPAGE) && defined(MAP_ANONYMOUS)
#define MAPS true
#elif !defined(MAPS)
#define MAPS false
#endif

/* Bytes of the mapping for a buffer; 0: it is malloc's. */
static size_t mapped_bytes(size_t capacity) {
    size_t padded;
    if (!MAPS || __builtin_add_overflow(capacity, (size_t)RILL__SLACK + HUGE - 1, &padded))
        return 0;
    return padded < 2 * (size_t)HUGE ? 0 : padded & ~(size_t)(HUGE - 1);
}

void *rill__map_huge(size_t bytes) {
    size_t more = bytes + HUGE;
    if (!MAPS || exceeds_memory(more) || rill__memory_refused(bytes)) return NULL;
    char *at = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    size_t before = (HUGE - (uintptr_t)at % HUGE) % HUGE, after = HUGE - before;
    if (before) munmap(at, before);
    if (after) munmap(at + before + bytes, after);
#ifdef MADV_HUGEPAGE
    madvise(at + before, bytes, MADV_HUGEPAGE); /* a wish, no more */
#endif
    return at + before;
}

void rill__unmap_huge(void *at, size_t bytes) { munmap(at, bytes); }

static void *allocate(const rill__memory *memory, size_t capacity) {
    if (memory) return memory->allocate(memory, capacity);
    size_t mapping = mapped_bytes(capacity);
    return mapping ? rill__map_huge(mapping) : rill__aligned_alloc(capacity);
}

rill_status rill__buffer_allocate_exactly(rill__buffer *buffer, size_t bytes) {
    void *data = allocate(buffer->memory, bytes);
    if (!data) return rill__fail(RILL_ERR_MEMORY, "out of memory: %zu bytes for a buffer", bytes);
    rill__buffer_free(buffer);
    buffer->data = data;
    buffer->capacity = bytes;
    return RILL_OK;
}

rill_status rill__buffer_allocate(rill__buffer *buffer, size_t bytes) {
    /* A quarter more than asked for, so that sizes that creep up do not reallocate each call. */
    size_t capacity, part = buffer->memory && buffer->memory->scarce ? 16 : 4;
    if (!__builtin_add_overflow(bytes, bytes / part + 256, &capacity) &&
        rill__buffer_allocate_exactly(buffer, capacity) == RILL_OK)
        return RILL_OK;
    /* It may be the quarter that is not to be had. */
    return rill__buffer_allocate_exactly(buffer, bytes);
}

rill_status rill__buffer_reserve_exact(rill__buffer *buffer, size_t bytes) {
    if (bytes <= buffer->capacity && buffer->data) return RILL_OK;
    void *data = allocate(buffer->memory, bytes);
    if (!data) return rill__fail(RILL_ERR_MEMORY, "out of memory: %zu bytes for a vector", bytes);
    rill__buffer_free(buffer);
    buffer->data = data;
    buffer->capacity = bytes;
    return RILL_OK;
}

void rill__buffer_free(rill__buffer *buffer) {
    bool ours = buffer->data && !buffer->memory;
    size_t mapping = ours ? mapped_bytes(buffer->capacity) : 0;
    if (buffer->data && buffer->memory)
        buffer->memory->release(buffer->memory, buffer->data, buffer->capacity);
    else if (mapping) rill__unmap_huge(buffer->data, mapping);
    else free(buffer->data);
    buffer->data = NULL;
    buffer->capacity = 0;
}
