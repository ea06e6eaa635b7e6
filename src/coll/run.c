/* What algorithms may do, on top of a task's messages. */
#include "coll/outside.h"

#include <string.h>

rill_status rill__run_fail(rill__run *run, rill_status status) {
    return rill__task_fail(run->outside->task, status);
}

/* ---- memory --------------------------------------------------------------------------------- */

void *rill__run_memory(rill__run *run, size_t bytes) {
    rill__parcel *parcel = rill__parcel_take(run->outside->task, bytes);
    if (parcel) return parcel->buffer.data;
    rill__task_fail(run->outside->task, RILL_ERR_MEMORY);
    return NULL;
}

void *rill__run_alloc(rill__run *run, size_t n, size_t size) {
    size_t bytes;
    rill__parcel *parcel = rill__size_mul(n, size, &bytes)
                               ? rill__parcel_take(run->outside->task, bytes)
                               : NULL;
    if (!parcel) {
        rill__task_fail(run->outside->task,
                        rill__fail(RILL_ERR_MEMORY, "out of memory: %zu times %zu bytes", n, size));
        return NULL;
    }
    return memset(parcel->buffer.data, 0, bytes);
}

/* ---- messages ------------------------------------------------------------------------------- */

rill_status rill__run_encode(rill__run *run, const rill__coding *coding, const rill__part *part,
                             rill__parcel **out) {
    return rill__encode(run->outside->task, coding, part, out);
}

rill_status rill__run_encode_bytes(rill__run *run, const void *from, size_t bytes,
                                   rill__parcel **out) {
    return rill__encode_bytes(run->outside->task, from, bytes, out);
}

rill_status rill__run_encode_room(rill__run *run, size_t bytes, rill__parcel **out, void **to) {
    return rill__encode_room(run->outside->task, bytes, out, to);
}

rill_status rill__run_bundle(rill__run *run, int n, const void *const *start, rill__parcel **out) {
    return rill__encode_bundle(run->outside->task, n, start, out);
}

rill_status rill__run_unbundle(rill__run *run, const rill__message *bundle, size_t *offset,
                               rill__message *message) {
    return rill__message_next(bundle, run->outside->task->engine->seal, &run->outside->task->expect,
                              offset, message);
}

rill_status rill__run_send_parcel(rill__run *run, int to, int lane, rill__parcel *parcel) {
    return rill__send_parcel(run->outside->task, to, lane, parcel);
}

rill_status rill__run_send(rill__run *run, int to, int lane, const rill__coding *coding,
                           const rill__part *part) {
    rill__parcel *parcel;
    RILL_TRY(rill__encode(run->outside->task, coding, part, &parcel));
    return rill__send_parcel(run->outside->task, to, lane, parcel);
}

rill_status rill__own_message(const rill__parcel *parcel, rill__message *m) {
    return rill__message_parse(rill__parcel_message(parcel), parcel->bytes, 0, NULL, false, m);
}

rill__part rill__run_decode(rill__run *run, const void *bytes, size_t size) {
    rill__message message;
    if (rill__run_failed(run) ||
        rill__message_parse(bytes, size, 0, NULL, false, &message) != RILL_OK)
        return rill__part_empty(0, run->dim);
    return rill__run_part(run, &message);
}

rill__part rill__run_own_part(rill__run *run, const rill__parcel *parcel) {
    return rill__run_decode(run, rill__parcel_message(parcel), parcel->bytes);
}

size_t rill__parcel_bytes(const rill__parcel *parcel) { return parcel->bytes; }

bool rill__run_sends_done(rill__run *run) { return rill__sends_done(run->outside->task); }

void rill__run_release_sent(rill__run *run) { rill__sends_release(run->outside->task); }

void rill__run_release(rill__run *run, rill__parcel *parcel) {
    rill__parcel_release(run->outside->task, parcel);
}

rill_status rill__run_receive(rill__run *run, int from, int lane, rill__received *r) {
    r->from = from;
    return rill__receive(run->outside->task, from == RILL__FROM_ANY ? RILL__ANY : from, lane,
                         &r->message, &r->parcel, &r->from);
}

void rill__run_part_at(rill__run *run, const rill__message *message, rill__part *part) {
    rill__received_part_at(run->outside->task, message, part);
}

rill_status rill__run_exchange_send(rill__run *run, int to, rill__parcel *parcel) {
    return rill__exchange_send(run->outside->task, to, parcel);
}

rill_status rill__run_exchange_receive(rill__run *run, int from, bool short_likely,
                                       rill__received *r) {
    r->from = from;
    return rill__exchange_receive(run->outside->task, from, short_likely, &r->message, &r->parcel);
}

rill_status rill__run_agree(rill__run *run, rill__agree *agree) {
    return rill__agree_step(run->outside->task, agree);
}

rill_status rill__run_agree_reserve(rill__run *run) {
    return rill__agree_reserve(run->outside->task);
}

void rill__run_round(rill__run *run) { run->outside->task->rounds++; }

void rill__run_count(rill__run *run, const rill__header *h) {
    rill__task *task = run->outside->task;
    task->nnz_sum += h->nnz_sum;
    task->nnz_max = rill__most_of(task->nnz_max, h->nnz_max);
}

void rill__run_count_anew(rill__run *run, const rill__header *h, uint64_t more) {
    rill__task *task = run->outside->task;
    task->nnz_sum = h->nnz_sum + more;
    task->nnz_max = rill__most_of(h->nnz_max, more | (task->nnz_max & ~RILL__ENTRIES));
}

void rill__run_remembers(rill__run *run, const void *memory, size_t bytes) {
    const unsigned char *at = memory;
    uint32_t hash = UINT32_C(2166136261);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT32_C(16777619);
    run->outside->task->expect.memory = (uint16_t)(hash ^ hash >> 16);
}

/* ---- sums and endings ----------------------------------------------------------------------- */

/* An operation of the user's leaves the reason where it could not do its work. */
static rill_status check_op(const rill_op *op) {
    if (!op || op->kind != RILL__USER || !rill__has_reason()) return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT, "op '%s' failed", op->name);
}

void rill__run_sum(rill__run *run, uint64_t first, uint64_t range, int n, const rill__part *parts,
                   bool force_dense, rill__piece *piece) {
    if (!rill__run_failed(run)) {
        if (n > run->outside->asked.parts) run->outside->asked.parts = n;
        rill_status status = rill__sum_parts(run->shape, run->op, first, range, n, parts,
                                             force_dense, &run->scratch, piece);
        if (status == RILL_OK) status = check_op(run->op);
        if (status == RILL_OK) return;
        rill__run_fail(run, status);
    }
    piece->part = rill__part_empty(first, range);
}

void rill__run_combine(rill__run *run, rill_type type, const rill_op *op, void *out,
                       const void *lower, const void *upper, uint64_t n) {
    rill__values_combine_to(type, op, out, lower, upper, n);
    rill_status status = check_op(op);
    if (status != RILL_OK) rill__run_fail(run, status);
}

rill_status rill__run_assemble(rill__run *run, int n, const rill__part *parts, rill__part *whole) {
    rill_stream *spare = &run->outside->spare;
    spare->type = run->shape.type;
    spare->index_bytes = run->shape.index_bytes;
    spare->dim = run->dim;
    RILL_TRY(rill__stream_assemble(spare, run->fill, n, parts, false, 0));
    *whole = rill__stream_part(spare);
    return RILL_OK;
}

rill__part rill__run_result(const rill__run *run) { return rill__stream_part(run->outside->out); }

/* The next call of this kind will ask for as much (call/rooms.c). */
static void note_room(rill__run *run, rill__room_name name, const rill__buffer *idx,
                      const rill__buffer *val) {
    rill__rooms *asked = &run->outside->asked;
    asked->used |= 1u << name;
    asked->at[name].idx = idx->asked;
    asked->at[name].val = val->asked;
}

static rill_status hand_over(rill__run *run, rill__piece *piece) {
    note_room(run, piece == &run->piece[0] ? RILL__ROOM_PIECE0 : RILL__ROOM_PIECE1, &piece->idx,
              &piece->val);
    rill__stream_adopt(run->outside->out, run->fill, piece);
    return RILL_OK;
}

/* Where the piece would fit into out, and has more room than out, a copy. */
static __attribute__((noinline)) rill_status finish_with_room(rill__run *run, rill__piece *piece) {
    rill_stream *out = run->outside->out;
    rill__part_bytes bytes = rill__part_room(run->shape, &piece->part);
    bool loses = bytes.idx <= out->idx.capacity && bytes.val <= out->val.capacity &&
                 (out->idx.capacity < piece->idx.capacity ||
                  out->val.capacity < piece->val.capacity);
    return loses ? rill__stream_set_part(out, run->fill, &piece->part) : hand_over(run, piece);
}

rill_status rill__finish_piece(rill__run *run, rill__piece *piece) {
    if (rill__run_failed(run)) return RILL_OK;
    return run->outside->keeps_room ? finish_with_room(run, piece) : hand_over(run, piece);
}

rill_status rill__finish_copy(rill__run *run, const rill__part *part) {
    if (rill__run_failed(run)) return RILL_OK;
    rill_stream *out = run->outside->out;
    out->idx.asked = out->val.asked = 0;
    rill_status status = rill__stream_set_part(out, run->fill, part);
    note_room(run, RILL__ROOM_OUT, &out->idx, &out->val);
    return status;
}

/* The result in another form: written to what the stream has to spare, which then changes places.
 */
static rill_status turn(rill__run *run, rill_status (*convert)(rill_stream *)) {
    rill_stream *out = run->outside->out;
    rill__form before = out->form;
    out->spare_idx.asked = out->spare_val.asked = 0;
    rill_status status = convert(out);
    if (out->form != before) note_room(run, RILL__ROOM_TURN, &out->idx, &out->val);
    return status;
}

rill_status rill__finish_dense(rill__run *run) { return turn(run, rill_stream_to_dense); }

rill_status rill__finish_pairs(rill__run *run) { return turn(run, rill_stream_to_sparse); }

static bool lies_in(const void *at, const rill__buffer *buffer) {
    uintptr_t start = (uintptr_t)buffer->data;
    return buffer->data && (uintptr_t)at - start < buffer->capacity;
}

/* The parts may lie in the memory of the input, which may be the result's: then it is put
 * together in the call's own stream and exchanged. */
static rill_status finish_parts(rill__run *run, int n, const rill__part *parts, bool check,
                                int from) {
    if (rill__run_failed(run)) return RILL_OK;
    rill_stream *out = run->outside->out, *to = out;
    rill__room_name name = RILL__ROOM_OUT;
    if (run->in_place) {
        bool borrowed = false;
        for (int i = 0; i < n; i++)
            borrowed |= lies_in(parts[i].val, &run->outside->spare.val);
        name = borrowed ? RILL__ROOM_THIRD : RILL__ROOM_SPARE;
        to = borrowed ? &run->outside->third : &run->outside->spare;
        to->type = out->type;
        to->dim = out->dim;
        to->index_bytes = out->index_bytes;
    }
    to->idx.asked = to->val.asked = 0;
    rill_status status = rill__stream_assemble(to, run->fill, n, parts, check, from);
    note_room(run, name, &to->idx, &to->val);
    if (status == RILL_OK && to != out) rill__stream_exchange(to, out);
    return status;
}

rill_status rill__finish_parts(rill__run *run, int n, const rill__part *parts) {
    return finish_parts(run, n, parts, false, 0);
}

rill_status rill__finish_unchecked(rill__run *run, int n, const rill__part *parts, int from) {
    return finish_parts(run, n, parts, true, from);
}

rill_status rill__finish_range(rill__run *run, uint64_t first, uint64_t count,
                               const rill__part *part) {
    if (rill__run_failed(run)) return RILL_OK;
    uint64_t end = part->first + part->range;
    rill__part parts[3] = {rill__part_empty(0, part->first), *part,
                           rill__part_empty(end, run->dim - end)};
    const rill__outside *outside = run->outside;
    if (outside->first) *outside->first = first;
    if (outside->count) *outside->count = count;
    return rill__finish_parts(run, 3, parts);
}
