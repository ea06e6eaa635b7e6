/* Blocks: the memory of messages, which stays with the communicator.
 *
 * Between ranks of a host MPI has the kernel copy a message from one process to the other, and the kernel looks up
 * every page of it: from huge pages a call takes 15 to 35 % less time than from small ones. A large block has huge
 * pages of its own (core/memory.c); smaller ones share them, in slabs that live as long as the communicator. */
#include "req/request.h"

#include <stdlib.h>

struct rill__slab {
    struct rill__slab *next;
    size_t used;
};

enum {
    SLAB = RILL__HUGE,
    SLAB_HEAD = 64,         /* of its own */
    LEAST_SHARED = 4 << 10, /* messages of less MPI copies through memory of its own */
    MOST_SHARED = SLAB - SLAB_HEAD,
};

/* The first slab is the one that had most room when one was added. Only where it makes messages faster. */
static void *from_slab(rill__engine *engine, size_t bytes) {
    if (!engine->link->copies_pages) return NULL;
    struct rill__slab *slab = engine->slabs;
    if (!slab || SLAB - slab->used < bytes) {
        struct rill__slab *fresh = rill__map_huge(SLAB);
        if (!fresh) return NULL;
        fresh->used = SLAB_HEAD;
        struct rill__slab **at = slab && slab->used < SLAB_HEAD + bytes ? &slab->next
                                                                        : &engine->slabs;
        fresh->next = *at;
        *at = slab = fresh;
    }
    void *data = (char *)slab + slab->used;
    slab->used += bytes;
    return data;
}

/* Powers of two, so that sizes that creep up leave no more behind than they take; less a little, so that a slab holds
 * them, and that they do not all start at the same place in the caches. */
static size_t room_for(size_t bytes) {
    size_t room = LEAST_SHARED;
    while (room - SLAB_HEAD < bytes + RILL__SLACK)
        room *= 2;
    return room - SLAB_HEAD;
}

static rill_status make_room(rill__engine *engine, rill__block *block, size_t bytes) {
    size_t room = bytes > LEAST_SHARED && bytes < MOST_SHARED ? room_for(bytes) : 0;
    void *data = room && room <= MOST_SHARED ? from_slab(engine, room) : NULL;
    if (!data) return rill__buffer_reserve(&block->buffer, bytes);
    rill__buffer_free(&block->buffer);
    block->buffer = (rill__buffer){.data = data, .capacity = room - RILL__SLACK};
    block->in_slab = true;
    return RILL_OK;
}

/* The smallest free block that is large enough; else the largest that can grow does, so that the pool does not collect
 * blocks that are too small. Those in slabs cannot: they stay, for smaller messages. */
static rill__block *from_pool(rill__engine *engine, size_t bytes) {
    rill__block *head = engine->free_blocks;
    if (head && head->buffer.capacity >= bytes && head->buffer.capacity <= 4 * bytes + 4096) {
        engine->free_blocks = head->next;
        return head;
    }
    rill__block **best = NULL, **largest = NULL;
    for (rill__block **at = &engine->free_blocks; *at; at = &(*at)->next) {
        size_t capacity = (*at)->buffer.capacity;
        if (capacity >= bytes && (!best || capacity < (*best)->buffer.capacity)) best = at;
        if (!(*at)->in_slab && (!largest || capacity > (*largest)->buffer.capacity)) largest = at;
    }
    rill__block **at = best ? best : largest;
    if (!at) return rill__calloc(1, sizeof(rill__block));
    rill__block *block = *at;
    *at = block->next;
    return block;
}

rill__block *rill__block_take(rill__task *task, size_t bytes) {
    rill__block *block = from_pool(task->engine, bytes);
    if (!block) {
        rill__fail(RILL_ERR_MEMORY, "out of memory for a block");
        return NULL;
    }
    block->users = 1;
    block->skip = 0;
    block->bytes = bytes;
    block->next = task->held;
    task->held = block;
    bool fits = block->buffer.data && bytes <= block->buffer.capacity;
    return fits || make_room(task->engine, block, bytes) == RILL_OK ? block : NULL;
}

void rill__block_return(rill__engine *engine, rill__block *block) {
    if (--block->users > 0) return;
    rill__block **list = block->for_note ? &engine->note_blocks : &engine->free_blocks;
    block->next = *list;
    *list = block;
}

rill_status rill__blocks_reserve(rill__engine *engine, int n, size_t bytes) {
    for (const rill__block *b = engine->free_blocks; b && n > 0; b = b->next)
        n -= b->buffer.capacity >= bytes;
    for (; n > 0; n--) {
        rill__block *block = rill__calloc(1, sizeof *block);
        if (!block || rill__buffer_reserve(&block->buffer, bytes) != RILL_OK) {
            free(block);
            return rill__fail(RILL_ERR_MEMORY, "out of memory for a block");
        }
        block->users = 1;
        rill__block_return(engine, block);
    }
    return RILL_OK;
}

void rill__blocks_free(rill__engine *engine) {
    while (engine->free_blocks) {
        rill__block *block = engine->free_blocks;
        engine->free_blocks = block->next;
        if (!block->in_slab) rill__buffer_free(&block->buffer);
        free(block);
    }
    /* What MPI has not given back it may still write to: that is lost, as its blocks are. */
    while (engine->slabs && !engine->orphans.n && !engine->lent) {
        struct rill__slab *slab = engine->slabs;
        engine->slabs = slab->next;
        rill__unmap_huge(slab, SLAB);
    }
}
