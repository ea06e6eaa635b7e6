/* The memory that calls need after their last message, when a failure would be this rank's alone.
 *
 * A call that ends with an agreement on the status (call/commit.c) may allocate until then. It
 * leaves behind what it asked for, and a quarter more: pieces, streams of its own, parcels of
 * messages. Calls up to its sizes then ask for no more. But results take the memory of pieces with
 * them, and users bring new streams: so each call sees to it, before its first message, that all of
 * it is there. */
#include "call/call.h"

#include <string.h>

static rill__rooms *rooms_of(rill_request *r) {
    if (r->persistent) return r->joint ? &r->joint->rooms : &r->commits.rooms;
    return r->plan.key ? &r->plan.key->commits.rooms : NULL;
}

typedef struct room {
    rill__buffer *idx, *val; /* NULL: there is none */
} room;

static room room_at(rill_request *r, rill__room_name name) {
    rill__run *run = &r->run;
    rill__outside *outside = &r->outside;
    switch (name) {
    case RILL__ROOM_PIECE0: return (room){&run->piece[0].idx, &run->piece[0].val};
    case RILL__ROOM_PIECE1: return (room){&run->piece[1].idx, &run->piece[1].val};
    case RILL__ROOM_LISTS: return (room){&run->piece[0].list, &run->piece[1].list};
    case RILL__ROOM_SCRATCH: return (room){NULL, &run->scratch};
    case RILL__ROOM_SPARE: return (room){&outside->spare.idx, &outside->spare.val};
    case RILL__ROOM_THIRD: return (room){&outside->third.idx, &outside->third.val};
    case RILL__ROOM_OUT:
        return outside->out ? (room){&outside->out->idx, &outside->out->val} : (room){0};
    default:
        return outside->out ? (room){&outside->out->spare_idx, &outside->out->spare_val}
                            : (room){0};
    }
}

static bool is_own(rill__room_name name) {
    return name != RILL__ROOM_OUT && name != RILL__ROOM_TURN;
}

/* ---- before the first message ------------------------------------------------------------- */

/* What is in the user's stays: it may be the input, or what is kept if the call fails. */
static rill_status widen(rill__buffer *buffer, size_t bytes, bool own) {
    if (!buffer || bytes <= buffer->capacity) return RILL_OK;
    rill__buffer larger = {.memory = buffer->memory};
    RILL_TRY(rill__buffer_allocate_exactly(&larger, bytes));
    if (!own && buffer->capacity) memcpy(larger.data, buffer->data, buffer->capacity);
    rill__buffer_free(buffer);
    *buffer = larger;
    return RILL_OK;
}

/* Pieces and scratch memory are all that small calls need, and are mostly there. */
static bool has_pieces(const rill_request *r, const rill__rooms *rooms) {
    const rill__run *run = &r->run;
    unsigned these = 1u << RILL__ROOM_PIECE0 | 1u << RILL__ROOM_PIECE1 | 1u << RILL__ROOM_SCRATCH;
    return !(rooms->used & ~these) &&
           run->piece[0].idx.capacity >= rooms->at[RILL__ROOM_PIECE0].idx &&
           run->piece[0].val.capacity >= rooms->at[RILL__ROOM_PIECE0].val &&
           run->piece[1].idx.capacity >= rooms->at[RILL__ROOM_PIECE1].idx &&
           run->piece[1].val.capacity >= rooms->at[RILL__ROOM_PIECE1].val &&
           run->scratch.capacity >= rooms->at[RILL__ROOM_SCRATCH].val &&
           r->task.receives.capacity >= rooms->receives;
}

static __attribute__((noinline)) rill_status reserve(rill_request *r, const rill__rooms *rooms) {
    /* Who only receives tells nobody of a failure: then only what must be, must be. */
    bool one_way = r->collective == RILL_BCAST || r->collective == RILL_REDUCE;
    for (unsigned rest = rooms->used; rest; rest &= rest - 1) {
        rill__room_name name = (rill__room_name)__builtin_ctz(rest);
        if (one_way && !is_own(name)) continue;
        room to = room_at(r, name);
        RILL_TRY(widen(to.idx, rooms->at[name].idx, is_own(name)));
        RILL_TRY(widen(to.val, rooms->at[name].val, is_own(name)));
    }
    return rooms->receives > r->task.receives.capacity
               ? rill__transfers_reserve(&r->task.receives, rooms->receives)
               : RILL_OK;
}

rill_status rill__rooms_reserve(rill_request *r) {
    const rill__rooms *rooms = rooms_of(r);
    return !rooms || has_pieces(r, rooms) ? RILL_OK : reserve(r, rooms);
}

/* ---- before an agreement ------------------------------------------------------------------ */

void rill__rooms_begin(rill_request *r) {
    rill__run *run = &r->run;
    r->outside.asked.used = 0;
    r->outside.asked.parts = 0;
    run->piece[0].idx.asked = run->piece[0].val.asked = run->piece[0].list.asked = 0;
    run->piece[1].idx.asked = run->piece[1].val.asked = run->piece[1].list.asked = 0;
    run->scratch.asked = 0;
}

static size_t more(size_t bytes) { return bytes + bytes / 4 + 256; }

/* Messages that the call has sent and received, parts of split ones counted. */
static int transfers_of(const rill__task *task) {
    uint64_t n = 0, limit = task->engine->split_limit;
    for (const rill__parcel *p = task->held; p; p = p->next)
        n += 1 + more(p->bytes) / limit;
    return n < INT32_MAX ? (int)n : INT32_MAX;
}

static void raise_room(rill__rooms *rooms, rill__room_name name, size_t idx, size_t val) {
    rooms->used |= 1u << name;
    rooms->at[name].idx = rill__max_u64(rooms->at[name].idx, idx);
    rooms->at[name].val = rill__max_u64(rooms->at[name].val, val);
}

/* What the call has asked for, and a quarter more. */
static void learn(rill_request *r, rill__rooms *rooms) {
    const rill__rooms *asked = &r->outside.asked;
    for (int i = 0; i < RILL__ROOMS; i++) {
        rill__room_name name = (rill__room_name)i;
        room at = room_at(r, name);
        bool used = asked->used >> i & 1;
        size_t idx = used ? asked->at[i].idx : 0, val = used ? asked->at[i].val : 0;
        if (name <= RILL__ROOM_LAST_PIECE) { /* what was not given away tells, too */
            if (at.idx) idx = rill__max_u64(idx, at.idx->asked);
            val = rill__max_u64(val, at.val->asked);
        }
        if (idx || val) raise_room(rooms, name, more(idx), more(val));
    }
}

/* What a call of these sizes may ask for instead. A sum that is given away is the last: of inputs
 * that overlap less it has more entries, and it may turn dense. Two parts have no more than the
 * result each. */
static void foresee(rill_request *r, const rill__sizes *size, rill__rooms *rooms) {
    const rill__rooms *asked = &r->outside.asked;
    rill__shape shape = r->run.shape;
    uint64_t dim = r->run.dim, limit = rill__dense_switch(shape.type, dim), pairs = size->sum;
    unsigned gives = asked->used & (1u << RILL__ROOM_PIECE0 | 1u << RILL__ROOM_PIECE1);
    int parts = r->collective == RILL_ALLGATHER ? r->run.size : asked->parts;
    if (parts == 2) pairs = rill__min_u64(pairs, 2 * rill__min_u64(size->result, limit));
    if (parts && (gives || r->collective == RILL_REDUCE_SCATTER)) {
        rill__sum_bytes most = rill__sum_room(shape, dim, parts, gives ? pairs : 0);
        for (unsigned rest = gives; rest; rest &= rest - 1)
            raise_room(rooms, (rill__room_name)__builtin_ctz(rest), most.idx, most.val);
        raise_room(rooms, RILL__ROOM_SCRATCH, 0, most.scratch);
        /* Where a sum turns dense, its values and the scratch memory change places. */
        for (int i = 0; i < 2 && (pairs > limit || !gives); i++)
            if (rooms->used >> (RILL__ROOM_PIECE0 + i) & 1)
                raise_room(rooms, (rill__room_name)(RILL__ROOM_PIECE0 + i), 0, most.scratch);
    }
    if (r->collective == RILL_REDUCER && size->result > limit) { /* dense, and then pairs again */
        size_t bytes = dim * rill__type_size(shape.type);
        raise_room(rooms, RILL__ROOM_OUT, 0, bytes);
        raise_room(rooms, RILL__ROOM_TURN, dim * shape.index_bytes, bytes);
    }
}

rill_status rill__rooms_keep(rill_request *r, const rill__sizes *size) {
    rill__rooms *rooms = rooms_of(r);
    if (!rooms) return RILL_OK;
    learn(r, rooms);
    foresee(r, size, rooms);
    for (unsigned rest = rooms->used; rest; rest &= rest - 1) {
        rill__room_name name = (rill__room_name)__builtin_ctz(rest);
        room at = room_at(r, name);
        if (!is_own(name)) continue;
        RILL_TRY(widen(at.idx, rooms->at[name].idx, true));
        RILL_TRY(widen(at.val, rooms->at[name].val, true));
    }
    rooms->receives = (int)rill__max_u64((uint64_t)rooms->receives,
                                         (uint64_t)transfers_of(&r->task));
    RILL_TRY(rill__transfers_reserve(&r->task.receives, rooms->receives - r->task.receives.n));
    return rill__parcels_keep(&r->task);
}
