/* Errands of a reducer in a device's memory (coll/away.h): its selection is coded there, and what
 * comes from all ranks is decoded and summed there. Only messages cross the bus, and the host's
 * processors copy them.
 *
 * The selection is not copied to the host where the last step went this way: should the planner
 * choose another way for this one, it is fetched then. What coding loses stays on the device until
 * the step is over, as the parts that a call returns stay on the host.
 * Restriction: pairs of the largest entries, in calls that sum exactly; index codes that the space
 * has kernels for; fewer entries than the switch to dense. What else comes is the host's affair.
 * Memory: on the device, the lost values beside what the reducer has; a message's room in
 * page-locked memory. The rest is in the selection's workspace (space/space_cuda_codes.c). */
#include "reduce/reducer.h"

#include <stdlib.h>
#include <string.h>

/* ---- whether -------------------------------------------------------------------------------- */

static bool can_work(const rill_reducer *r) {
    const rill_stream *s = r->selected;
    return r->space->codes && r->choice == RILL__SEND_SELECTED && r->failed == RILL_OK &&
           r->collective == RILL_ALLREDUCE && r->comm->engine.size > 1 && s->form == RILL__SPARSE &&
           s->index_bytes == 4 && s->nnz <= rill__dense_switch(r->type, r->dim);
}

bool rill__reducer_stays_away(rill_reducer *r) {
    r->coder.away.lacks_input = r->coder.expects && can_work(r);
    return r->coder.away.lacks_input;
}

/* ---- encode --------------------------------------------------------------------------------- */

static rill__codes codes_of(const rill__index_codec *index, const rill__value_codec *value) {
    return (rill__codes){.index = index->code, .value = value->code, .bits = value->bits};
}

static rill_status encode(rill_reducer *r, rill__errand *e) {
    rill__coder *c = &r->coder;
    const rill__coding *coding = &e->coding;
    uint64_t n = e->part->n;
    size_t room = n ? coding->index->bound(4, n, e->part->range) : 0;
    size_t values = n ? coding->value->bound(r->type, n) : 0;
    bool keeps = r->feedback.options.keeps && coding->value->bits;
    if (keeps && n) RILL_TRY(rill__buffer_reserve(&c->lost, n * rill__type_size(r->type)));
    RILL_TRY(rill__buffer_reserve(&c->payload, rill__align8(room) + values));
    rill__encode_task task = {.codes = codes_of(coding->index, coding->value),
                              .type = r->type,
                              .n = n,
                              .first = e->part->first,
                              .range = e->part->range,
                              .idx = r->selected->idx.data,
                              .val = r->selected->val.data,
                              .index_room = room,
                              .value_bytes = values,
                              .fits = keeps,
                              .lost = keeps ? c->lost.data : NULL,
                              .out = c->payload.data};
    if (coding->value->keyed) task.quant = rill__quant_stream_make(&coding->key);
    RILL_TRY(r->space->codes->encode(r->space, &task));
    memcpy(e->payload, c->payload.data, task.out_bytes);
    e->index_size = task.index_bytes;
    e->value_size = values;
    c->loses = keeps;
    return RILL_OK;
}

/* ---- sum ------------------------------------------------------------------------------------ */

/* Whether all of them are such as the space can read, and the sum stays sparse. */
static bool suits(const rill_reducer *r, const rill__errand *e) {
    uint64_t all = 0;
    for (int i = 0; i < e->n; i++) {
        const rill__header *h = &e->messages[i].header;
        const rill__index_codec *index = rill__index_codec_by_id(h->index_codec);
        if (h->form != RILL__M_SPARSE || h->index_bytes != 4 || !index ||
            index->code == RILL__INDEX_NONE)
            return false;
        all += h->count;
    }
    return all <= rill__dense_switch(r->type, r->dim);
}

static rill_status malformed(int rank) {
    return rill__fail(RILL_ERR_MESSAGE,
                      "malformed message: size of the indices of rank %d does not fit the count",
                      rank);
}

/* Entries of the table of chunks. */
static uint64_t chunks_in(const rill__header *h) {
    const rill__index_codec *index = rill__index_codec_by_id(h->index_codec);
    return index->find_chunks && h->count ? (h->count - 1) / index->chunk + 2 : 0;
}

static rill_status read_message(const rill__message *m, int rank, uint64_t *chunk,
                                rill__coded_pairs *out) {
    const rill__header *h = &m->header;
    const rill__index_codec *index = rill__index_codec_by_id(h->index_codec);
    const rill__value_codec *value = rill__value_codec_by_id(h->value_codec);
    *out = (rill__coded_pairs){.codes = codes_of(index, value),
                               .n = h->count,
                               .first = h->first,
                               .range = h->range,
                               .bytes = m->payload,
                               .index_bytes = h->index_size,
                               .value_bytes = h->value_size,
                               .chunk = chunk,
                               .n_chunk = chunks_in(h)};
    if (!h->count) return RILL_OK;
    size_t bound = rill__align8(index->bound(4, h->count, h->range));
    bool exact = out->codes.index == RILL__INDEX_RAW;
    if (!h->index_size || h->index_size > bound || (exact && h->index_size != bound))
        return malformed(rank);
    if (index->find_chunks)
        RILL_TRY(index->find_chunks(m->payload, h->index_size, h->count, h->range, chunk));
    const char *values = m->payload + h->index_size;
    return value->check ? value->check(values, h->value_size, h->count) : RILL_OK;
}

static rill_status read_all(rill_reducer *r, const rill__errand *e) {
    rill__coder *c = &r->coder;
    uint64_t chunks = 0;
    for (int i = 0; i < e->n; i++)
        chunks += chunks_in(&e->messages[i].header);
    if (e->n > c->capacity) {
        rill__coded_pairs *list = rill__realloc(c->list, (size_t)e->n * sizeof *list);
        if (list) c->list = list;
        rill__pairs *pairs = rill__realloc(c->pairs, (size_t)e->n * sizeof *pairs);
        if (pairs) c->pairs = pairs;
        if (!list || !pairs)
            return rill__fail(RILL_ERR_MEMORY, "out of memory for %d messages", e->n);
        c->capacity = e->n;
    }
    RILL_TRY(rill__buffer_reserve(&c->chunks, (chunks + 1) * sizeof(uint64_t)));
    uint64_t *chunk = c->chunks.data;
    for (int i = 0; i < e->n; i++) {
        RILL_TRY(read_message(&e->messages[i], i, chunk, &c->list[i]));
        chunk += c->list[i].n_chunk;
        c->pairs[i] = (rill__pairs){.n = c->list[i].n};
    }
    return RILL_OK;
}

static rill_status sum(rill_reducer *r, rill__errand *e) {
    rill__coder *c = &r->coder;
    e->suits = suits(r, e);
    if (!e->suits) return RILL_OK;
    RILL_TRY(read_all(r, e));
    rill__sum_task task = {.type = r->type,
                           .dim = r->dim,
                           .n = e->n,
                           .list = c->list,
                           .tiles = rill__sum_prefers_tiles(r->dim, e->n, c->pairs)};
    RILL_TRY(r->space->codes->sum_begin(r->space, &task));
    rill_stream *to = r->target.stream ? r->target.stream : r->landed;
    rill_stream_clear(to); /* a void step's absent entries are NaN */
    RILL_TRY(rill__stream_reserve_pairs(to, task.entries));
    RILL_TRY(r->space->codes->sum_end(r->space, &task, to->idx.data, to->val.data));
    to->nnz = e->entries = task.entries;
    return RILL_OK;
}

static rill_status work(void *reducer, rill__errand *e) {
    rill_reducer *r = reducer;
    switch (e->kind) {
    case RILL__ERRAND_ENCODE: return encode(r, e);
    case RILL__ERRAND_SUM: return sum(r, e);
    default: return rill_stream_copy(r->staged, r->selected);
    }
}

/* ---- the step ------------------------------------------------------------------------------- */

void rill__reducer_offer_errands(rill_reducer *r) {
    rill__coder *c = &r->coder;
    c->loses = false;
    c->away.summed = false;
    r->feedback.away = NULL;
    if (r->entering != r->staged || !can_work(r)) return;
    c->away.run = work;
    c->away.given = rill__reducer_news;
    c->away.whom = r;
    c->away.apart = r->now != r->request; /* its thread is there for that */
    r->feedback.away = &c->away;
}

/* The call's output counts entries that it does not have, in the place of the last result. */
void rill__reducer_forget_sum(rill_reducer *r) {
    if (!r->coder.away.summed) return;
    rill_stream_clear(r->result);
    r->moving.has_last = false;
}

/* As the parts that a call returns. */
void rill__reducer_add_lost(rill_reducer *r) {
    const rill__coder *c = &r->coder;
    if (!c->loses || !r->selected->nnz) return;
    rill__part lost = rill__stream_part(r->selected);
    lost.val = c->lost.data;
    rill__part_add_to(rill__stream_shape(r->selected), &lost, r->residual.data, NULL,
                      RILL__EVERYWHERE);
    r->residual_is_zero = false;
}

void rill__reducer_init_coder(rill_reducer *r) {
    r->coder.lost = rill__space_buffer(r->space);
    r->coder.payload.memory = r->space->page_locked;
}

void rill__reducer_free_coder(rill_reducer *r) {
    rill__coder *c = &r->coder;
    rill__buffer_free(&c->lost);
    rill__buffer_free(&c->payload);
    rill__buffer_free(&c->chunks);
    free(c->list);
    free(c->pairs);
}
