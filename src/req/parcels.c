/* Blocks: the memory of messages, which stays with the communicator.
 *
 * Between ranks of a host MPI has the kernel copy a message from one process to the other, and the
 * kernel looks up every page of it: from huge pages a call takes 15 to 35 % less time than from
 * small ones. A large parcel has huge pages of its own (core/memory.c); smaller ones share them, in
 * slabs that live as long as the communicator. */
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

/* The first slab is the one that had most room when one was added. Only where it makes messages
 * faster. */
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

/* Powers of two, so that sizes that creep up leave no more behind than they take; less a little, so
 * that a slab holds them, and that they do not all start at the same place in the caches. */
static size_t room_for(size_t bytes) {
    size_t room = LEAST_SHARED;
    while (room - SLAB_HEAD < bytes + RILL__SLACK)
        room *= 2;
    return room - SLAB_HEAD;
}

static rill_status make_room(rill__engine *engine, rill__parcel *parcel, size_t bytes) {
    size_t room = bytes > LEAST_SHARED && bytes < MOST_SHARED ? room_for(bytes) : 0;
    void *data = room && room <= MOST_SHARED ? from_slab(engine, room) : NULL;
    if (!data) return rill__buffer_reserve(&parcel->buffer, bytes);
    rill__buffer_free(&parcel->buffer);
    parcel->buffer = (rill__buffer){.data = data, .capacity = room - RILL__SLACK};
    parcel->in_slab = true;
    return RILL_OK;
}

/* The smallest free parcel that is large enough; else the largest that can grow does, so that the
 * pool does not collect blocks that are too small. Those in slabs cannot: they stay, for smaller
 * messages. */
static rill__parcel *from_pool(rill__engine *engine, size_t bytes) {
    rill__parcel *head = engine->free_parcels;
    if (head && head->buffer.capacity >= bytes && head->buffer.capacity <= 4 * bytes + 4096) {
        engine->free_parcels = head->next;
        return head;
    }
    rill__parcel **best = NULL, **largest = NULL;
    for (rill__parcel **at = &engine->free_parcels; *at; at = &(*at)->next) {
        size_t capacity = (*at)->buffer.capacity;
        if (capacity >= bytes && (!best || capacity < (*best)->buffer.capacity)) best = at;
        if (!(*at)->in_slab && (!largest || capacity > (*largest)->buffer.capacity)) largest = at;
    }
    rill__parcel **at = best ? best : largest;
    if (!at) return rill__calloc(1, sizeof(rill__parcel));
    rill__parcel *parcel = *at;
    *at = parcel->next;
    return parcel;
}

rill__parcel *rill__parcel_take(rill__task *task, size_t bytes) {
    rill__parcel *parcel = from_pool(task->engine, bytes);
    if (!parcel) {
        rill__fail(RILL_ERR_MEMORY, "out of memory for a parcel");
        return NULL;
    }
    parcel->users = 1;
    parcel->skip = 0;
    parcel->bytes = bytes;
    parcel->next = task->held;
    task->held = parcel;
    bool fits = parcel->buffer.data && bytes <= parcel->buffer.capacity;
    return fits || make_room(task->engine, parcel, bytes) == RILL_OK ? parcel : NULL;
}

void rill__parcel_return(rill__engine *engine, rill__parcel *parcel) {
    if (--parcel->users > 0) return;
    rill__parcel **list = parcel->for_note ? &engine->note_parcels : &engine->free_parcels;
    parcel->next = *list;
    *list = parcel;
}

rill_status rill__parcels_reserve(rill__engine *engine, int n, size_t bytes) {
    for (const rill__parcel *b = engine->free_parcels; b && n > 0; b = b->next)
        n -= b->buffer.capacity >= bytes;
    for (; n > 0; n--) {
        rill__parcel *parcel = rill__calloc(1, sizeof *parcel);
        if (!parcel || rill__buffer_reserve(&parcel->buffer, bytes) != RILL_OK) {
            free(parcel);
            return rill__fail(RILL_ERR_MEMORY, "out of memory for a parcel");
        }
        parcel->users = 1;
        rill__parcel_return(engine, parcel);
    }
    return RILL_OK;
}

void rill__parcels_free(rill__engine *engine) {
    while (engine->free_parcels) {
        rill__parcel *parcel = engine->free_parcels;
        engine->free_parcels = parcel->next;
        if (!parcel->in_slab) rill__buffer_free(&parcel->buffer);
        free(parcel);
    }
    /* What MPI has not given back it may still write to: that is lost, as its parcels are. */
    while (engine->slabs && !engine->orphans.n && !engine->lent) {
        struct rill__slab *slab = engine->slabs;
        engine->slabs = slab->next;
        rill__unmap_huge(slab, SLAB);
    }
}
