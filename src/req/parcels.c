/* Parcels: the memory of messages, which stays with the communicator.
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

#define LEAST ((size_t)1 << LEAST_BITS)

enum {
    SLAB = RILL__HUGE,
    SLAB_HEAD = 64,         /* of its own */
    LEAST_SHARED = 4 << 10, /* messages of less MPI copies through memory of its own */
    LEAST_BITS = 9,         /* of the bytes that a parcel of the lowest tier takes */
    SMALL = 3,              /* tier of 4 KiB */
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
static size_t room_of(unsigned tier) { return (LEAST << tier) - SLAB_HEAD - RILL__SLACK; }

/* The lowest whose parcels have room for bytes. */
static unsigned tier_for(size_t bytes) {
    size_t all = bytes + SLAB_HEAD + RILL__SLACK;
    if (all <= LEAST) return 0;
    unsigned tier = 64 - (unsigned)__builtin_clzll(all - 1) - LEAST_BITS;
    return tier < RILL__PARCEL_TIERS ? tier : RILL__PARCEL_TIERS - 1;
}

/* The highest that the parcel has the room of. */
static unsigned tier_of(const rill__parcel *parcel) {
    size_t all = parcel->buffer.capacity + SLAB_HEAD + RILL__SLACK;
    if (all < LEAST) return 0;
    unsigned tier = 63 - (unsigned)__builtin_clzll(all) - LEAST_BITS;
    return tier < RILL__PARCEL_TIERS ? tier : RILL__PARCEL_TIERS - 1;
}

static rill_status make_room(rill__engine *engine, rill__parcel *parcel, size_t bytes) {
    size_t room = room_of(tier_for(bytes));
    void *data = bytes > LEAST_SHARED && room <= MOST_SHARED ? from_slab(engine, room + RILL__SLACK)
                                                             : NULL;
    if (data) {
        rill__buffer_free(&parcel->buffer);
        parcel->buffer = (rill__buffer){.data = data, .capacity = room};
        parcel->in_slab = true;
    } else if (room < bytes || rill__buffer_allocate_exactly(&parcel->buffer, room) != RILL_OK) {
        if (tier_for(bytes) == 0) return RILL_ERR_MEMORY; /* all of its parcels have that room */
        RILL_TRY(rill__buffer_allocate_exactly(&parcel->buffer, bytes));
    }
    parcel->tier = (uint8_t)tier_of(parcel);
    return RILL_OK;
}

static rill__parcel *pop(rill__engine *engine, unsigned tier) {
    rill__parcel *parcel = engine->free_parcels[tier];
    engine->free_parcels[tier] = parcel->next;
    if (!parcel->next) engine->free_tiers &= ~(UINT64_C(1) << tier);
    return parcel;
}

/* None is large enough: the largest that can grow does, so that the pool does not collect parcels
 * that are too small. Those in slabs cannot: they stay, for smaller messages. */
static __attribute__((noinline)) rill__parcel *too_small(rill__task *task, size_t bytes) {
    rill__engine *engine = task->engine;
    rill__parcel *spare = task->spare;
    if (spare && spare->buffer.capacity >= bytes) {
        task->spare = spare->next;
        return spare;
    }
    for (uint64_t rest = engine->free_tiers; rest;) {
        unsigned top = 63 - (unsigned)__builtin_clzll(rest);
        if (!engine->free_parcels[top]->in_slab) return pop(engine, top);
        rest &= ~(UINT64_C(1) << top);
    }
    rill__parcel *parcel = rill__calloc(1, sizeof *parcel);
    if (!parcel) rill__fail(RILL_ERR_MEMORY, "out of memory for a parcel");
    return parcel;
}

static __attribute__((noinline)) rill__parcel *grown(rill__engine *engine, rill__parcel *parcel,
                                                     size_t bytes) {
    return make_room(engine, parcel, bytes) == RILL_OK ? parcel : NULL;
}

/* One of the lowest tier that is large enough: so messages find their parcels in whatever order
 * they come. What is rare is out of line: small calls take two parcels. */
rill__parcel *rill__parcel_take(rill__task *task, size_t bytes) {
    rill__engine *engine = task->engine;
    unsigned tier = tier_for(bytes);
    uint64_t fit = engine->free_tiers >> tier << tier;
    rill__parcel *parcel = fit ? pop(engine, (unsigned)__builtin_ctzll(fit))
                               : too_small(task, bytes);
    if (!parcel) return NULL;
    parcel->users = 1;
    parcel->skip = 0;
    parcel->bytes = parcel->buffer.asked = bytes;
    parcel->next = task->held;
    task->held = parcel;
    bool fits = parcel->buffer.data && bytes <= parcel->buffer.capacity;
    return fits ? parcel : grown(engine, parcel, bytes);
}

static rill__parcel *make_parcel(rill__engine *engine, size_t bytes) {
    rill__parcel *parcel = rill__calloc(1, sizeof *parcel);
    if (parcel && make_room(engine, parcel, bytes) == RILL_OK) return parcel;
    free(parcel);
    rill__fail(RILL_ERR_MEMORY, "out of memory for a parcel");
    return NULL;
}

/* A new one for the pool. */
static rill_status add_parcel(rill__engine *engine, size_t bytes) {
    rill__parcel *parcel = make_parcel(engine, bytes);
    if (!parcel) return RILL_ERR_MEMORY;
    parcel->users = 1;
    rill__parcel_return(engine, parcel);
    return RILL_OK;
}

/* Calls beside this one count on what is in the pool: these are apart from it. */
rill_status rill__parcels_reserve(rill__task *task, int n, size_t bytes) {
    rill__parcel **kept = &task->engine->kept_parcels[RILL__FOR_AGREEMENTS];
    for (const rill__parcel *p = task->spare; p; p = p->next)
        n--;
    for (; n > 0; n--) {
        rill__parcel *parcel = *kept ? *kept : make_parcel(task->engine, bytes);
        if (!parcel) return RILL_ERR_MEMORY;
        if (parcel == *kept) *kept = parcel->next;
        parcel->purpose = RILL__FOR_AGREEMENTS;
        parcel->users = 1;
        parcel->next = task->spare;
        task->spare = parcel;
    }
    return RILL_OK;
}

rill_status rill__parcels_keep(rill__task *task) {
    rill__engine *engine = task->engine;
    int lack[RILL__PARCEL_TIERS] = {0}, used[RILL__PARCEL_TIERS] = {0}, more = 0;
    for (const rill__parcel *b = task->held; b; b = b->next) {
        size_t bytes = b->buffer.asked;
        used[tier_for(bytes + bytes / 4)]++;
        lack[b->tier]--;
    }
    /* Small ones are cheap; how many there are, and how large, depends on how they are coded. */
    for (unsigned tier = 0; tier < RILL__PARCEL_TIERS; tier++) {
        lack[tier] += used[tier];
        if (used[tier] && tier <= SMALL) lack[tier + 1] += used[tier] / 4 + 2;
    }
    for (unsigned tier = 0; tier < RILL__PARCEL_TIERS; tier++)
        for (const rill__parcel *b = engine->free_parcels[tier]; b; b = b->next)
            lack[tier]--;
    /* What a tier has too many of serves those below it. */
    for (unsigned tier = RILL__PARCEL_TIERS; tier-- > 0;)
        for (more += lack[tier]; more > 0; more--)
            RILL_TRY(add_parcel(engine, room_of(tier)));
    return RILL_OK;
}

void rill__parcel_release(rill__task *task, rill__parcel *parcel) {
    rill__parcel **at = &task->held;
    while (*at && *at != parcel)
        at = &(*at)->next;
    if (!*at) return;
    *at = parcel->next;
    rill__parcel_return(task->engine, parcel);
}

static void free_parcel(rill__parcel *parcel) {
    if (!parcel->in_slab) rill__buffer_free(&parcel->buffer);
    free(parcel);
}

void rill__parcels_free(rill__engine *engine) {
    while (engine->free_tiers)
        free_parcel(pop(engine, (unsigned)__builtin_ctzll(engine->free_tiers)));
    for (int i = 0; i < RILL__PURPOSES; i++)
        while (engine->kept_parcels[i]) {
            rill__parcel *parcel = engine->kept_parcels[i];
            engine->kept_parcels[i] = parcel->next;
            free_parcel(parcel);
        }
    /* What MPI has not given back it may still write to: that is lost, as its parcels are. */
    while (engine->slabs && !engine->orphans.n && !engine->lent) {
        struct rill__slab *slab = engine->slabs;
        engine->slabs = slab->next;
        rill__unmap_huge(slab, SLAB);
    }
}
