#include "coll/patterns/host_parts.h"
#include "coll/outside.h"

#include <string.h>

_Static_assert((int)RILL__HOST_WORDS == (int)RILL__SHARED_WORDS, "words of shared memory");

/* Between ranks of a host bytes are cheaper than coding, and nothing may be lost. By message as
 * in shared memory, whose room is a matter of chance: in the same form, and so with the same
 * bits. */
static const rill__coding as_it_is = {.index = &rill__codec_raw,
                                      .value = &rill__value_raw,
                                      .key = {.hop = RILL__NEXT_HOP}};

/* The rank at a place. */
static int rank_at(const rill__run *run, rill__circle circle, int place) {
    return circle == RILL__THIS_HOST ? run->hosts->ranks[place] : place;
}

static bool is_here(const rill__run *run, int rank) {
    return run->hosts->host_of[rank] == run->hosts->mine;
}

/* Those at places [from, to) who read what this rank puts into shared memory. */
static int readers_of(const rill__run *run, rill__circle circle, int from, int to) {
    int n = 0;
    for (int i = from; i < to; i++) {
        int rank = rank_at(run, circle, i);
        n += rank != run->rank && is_here(run, rank);
    }
    return n;
}

static rill_status give(rill__run *run, rill__circle circle, int from, int to, int lane,
                        const rill__part *part, bool ranges) {
    rill__shared *memory = &run->outside->task->engine->shared;
    int readers = readers_of(run, circle, from, to);
    uint64_t words[RILL__SHARED_WORDS];
    rill__parcel *parcel = NULL;
    if (from == to || (to == from + 1 && rank_at(run, circle, from) == run->rank)) return RILL_OK;
    rill__run_round(run);
    bool shared = readers && !rill__run_failed(run) &&
                  rill__shared_put(memory, run->shape, part, readers, words);
    for (int i = from; i < to; i++) {
        int rank = rank_at(run, circle, i);
        if (rank == run->rank) continue;
        if (shared && is_here(run, rank)) {
            RILL_TRY(rill__send_words(run->outside->task, rank, lane, words, RILL__SHARED_WORDS));
        } else if (ranges) {
            uint64_t first = rill__uniform_bound(part->range, i - from, to - from);
            uint64_t end = rill__uniform_bound(part->range, i - from + 1, to - from);
            rill__part slice = rill__part_slice(run->shape, part, first, end - first);
            RILL_TRY(rill__run_send(run, rank, lane, &as_it_is, &slice));
        } else {
            if (!parcel) RILL_TRY(rill__run_encode(run, &as_it_is, part, &parcel));
            RILL_TRY(rill__run_send_parcel(run, rank, lane, parcel));
        }
    }
    return RILL_OK;
}

rill_status rill__host_give(rill__run *run, rill__circle circle, int from, int to, int lane,
                            const rill__part *part) {
    return give(run, circle, from, to, lane, part, false);
}

rill_status rill__host_give_ranges(rill__run *run, rill__circle circle, int from, int to, int lane,
                                   const rill__part *part) {
    return give(run, circle, from, to, lane, part, true);
}

/* The entries of the range. */
static rill_status read_shared(rill__run *run, uint64_t first, uint64_t range,
                               rill__host_part *taken) {
    rill__part whole;
    RILL_TRY(rill__shared_get(&run->outside->task->engine->shared, taken->place, run->shape,
                              run->dim, taken->words, &whole));
    taken->shared = true;
    if (first < whole.first || range > whole.range || first - whole.first > whole.range - range)
        return rill__fail(RILL_ERR_MESSAGE, "a part in shared memory has another range");
    taken->part = rill__part_slice(run->shape, &whole, first, range);
    return RILL_OK;
}

static rill_status read_message(rill__run *run, const rill__message *message, uint64_t first,
                                uint64_t range, rill__host_part *taken) {
    if (message->header.form == RILL__M_AGREE) {
        if (message->header.count != RILL__SHARED_WORDS)
            return rill__fail(RILL_ERR_MESSAGE, "a message does not tell where its part lies");
        memcpy(taken->words, message->payload, sizeof taken->words);
        return read_shared(run, first, range, taken);
    }
    rill__part part = rill__run_part(run, message);
    if (part.first != first || part.range != range)
        return rill__fail(RILL_ERR_MESSAGE, "a message has another range than expected");
    taken->part = part;
    return RILL_OK;
}

/* Of a rank among those of this host; past the last: it is on another. */
static int place_here(const rill__run *run, int rank) {
    rill__group here = {run->hosts->here, run->hosts->place, run->hosts->ranks};
    int place = rill__group_place(&here, rank);
    return place < 0 ? here.n : place;
}

rill_status rill__host_take(rill__run *run, rill__circle circle, int place, int lane,
                            uint64_t first, uint64_t range, rill__host_part *taken,
                            rill__header *header) {
    rill__received received;
    int rank = rank_at(run, circle, place);
    rill_status status = rill__run_receive(run, rank, lane, &received);
    if (status != RILL_OK) return status;
    *header = received.message.header;
    taken->part = rill__part_empty(first, range);
    taken->place = place_here(run, rank);
    taken->shared = false;
    if (header->form == RILL__M_FAILED) return RILL_OK;
    status = read_message(run, &received.message, first, range, taken);
    return status == RILL_OK ? RILL_OK : rill__run_fail(run, status);
}

void rill__host_check(rill__run *run, rill__host_part *taken) {
    if (!taken->shared || taken->part.form != RILL__SPARSE ||
        rill__part_is_sound(run->shape, &taken->part))
        return;
    taken->part = rill__part_empty(taken->part.first, taken->part.range);
    rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE,
                                   "an index in shared memory is out of order or range"));
}

void rill__host_release(rill__run *run, const rill__host_part *taken) {
    if (taken->shared)
        rill__shared_release(&run->outside->task->engine->shared, taken->place, taken->words);
}
