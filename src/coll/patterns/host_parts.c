#include "coll/patterns/host_parts.h"

#include <string.h>

/* Between ranks of a host bytes are cheaper than coding, and nothing may be lost. */
static rill__coding go_raw(rill_request *r) {
    rill__coding coding = r->task.coding;
    r->task.coding.index = &rill__codec_raw;
    r->task.coding.value = &rill__value_raw;
    return coding;
}

static rill_status give(rill_request *r, int from, int to, int lane, const rill__part *part,
                        bool ranges) {
    rill__engine *engine = r->task.engine;
    const rill__hosts *hosts = &engine->hosts;
    int me = hosts->place, readers = to - from - (me >= from && me < to);
    uint64_t words[RILL__SHARED_WORDS];
    rill__block *block = NULL;
    if (!readers) return RILL_OK;
    r->task.rounds++;
    bool shared = !rill__task_failed(&r->task) &&
                  rill__shared_put(&engine->shared, r->task.shape, part, readers, words);
    for (int i = from; i < to; i++) {
        int rank = hosts->ranks[i];
        if (i == me) continue;
        if (shared) {
            RILL_TRY(rill__send_words(&r->task, rank, lane, words, RILL__SHARED_WORDS));
        } else if (ranges) {
            uint64_t first = rill__uniform_bound(part->range, i - from, to - from);
            uint64_t end = rill__uniform_bound(part->range, i - from + 1, to - from);
            rill__part slice = rill__part_slice(r->task.shape, part, first, end - first);
            RILL_TRY(rill__send(&r->task, rank, lane, &slice));
        } else {
            if (!block) RILL_TRY(rill__encode(&r->task, part, &block));
            RILL_TRY(rill__send_block(&r->task, rank, lane, block));
        }
    }
    return RILL_OK;
}

/* By message as in shared memory, whose room is a matter of chance: in the same form, and so with the same bits. */
static rill_status give_as_it_is(rill_request *r, int from, int to, int lane,
                                 const rill__part *part, bool ranges) {
    rill__coding coding = go_raw(r);
    bool sends_dense = r->task.sends_dense;
    r->task.sends_dense = false;
    rill_status status = give(r, from, to, lane, part, ranges);
    r->task.sends_dense = sends_dense;
    r->task.coding = coding;
    return status;
}

rill_status rill__host_give(rill_request *r, int from, int to, int lane, const rill__part *part) {
    return give_as_it_is(r, from, to, lane, part, false);
}

rill_status rill__host_give_ranges(rill_request *r, int from, int to, int lane,
                                   const rill__part *part) {
    return give_as_it_is(r, from, to, lane, part, true);
}

/* The entries of the range; a part in shared memory is checked as a message is. */
static rill_status read_shared(rill_request *r, uint64_t first, uint64_t range,
                               rill__host_part *taken) {
    rill__part whole;
    RILL_TRY(rill__shared_get(&r->task.engine->shared, taken->place, r->task.shape,
                              r->task.expect.dim, taken->words, &whole));
    taken->shared = true;
    if (first < whole.first || range > whole.range || first - whole.first > whole.range - range)
        return rill__fail(RILL_ERR_MESSAGE, "a part in shared memory has another range");
    rill__part part = rill__part_slice(r->task.shape, &whole, first, range);
    if (part.form == RILL__SPARSE && part.n &&
        rill__kernels_get()->check(r->task.shape.index_bytes, part.idx, part.n, first, range) <
            part.n)
        return rill__fail(RILL_ERR_MESSAGE, "an index in shared memory is out of order or range");
    taken->part = part;
    return RILL_OK;
}

static rill_status read_message(rill_request *r, const rill__message *message, uint64_t first,
                                uint64_t range, rill__host_part *taken) {
    if (message->header.form == RILL__M_AGREE) {
        if (message->header.count != RILL__SHARED_WORDS)
            return rill__fail(RILL_ERR_MESSAGE, "a message does not tell where its part lies");
        memcpy(taken->words, message->payload, sizeof taken->words);
        return read_shared(r, first, range, taken);
    }
    rill__part part = rill__received_part(&r->task, message);
    if (part.first != first || part.range != range)
        return rill__fail(RILL_ERR_MESSAGE, "a message has another range than expected");
    taken->part = part;
    return RILL_OK;
}

rill_status rill__host_take(rill_request *r, int place, int lane, uint64_t first, uint64_t range,
                            rill__host_part *taken, rill__header *header) {
    rill__message message;
    rill__block *block;
    rill_status status = rill__receive(&r->task, r->task.engine->hosts.ranks[place], lane, &message,
                                       &block, NULL);
    if (status != RILL_OK) return status;
    *header = message.header;
    taken->part = rill__part_empty(first, range);
    taken->place = place;
    taken->shared = false;
    if (header->form == RILL__M_FAILED) return RILL_OK;
    status = read_message(r, &message, first, range, taken);
    return status == RILL_OK ? RILL_OK : rill__task_fail(&r->task, status);
}

void rill__host_release(rill_request *r, const rill__host_part *taken) {
    if (taken->shared) rill__shared_release(&r->task.engine->shared, taken->place, taken->words);
}
