/* The methods where the vectors lie in a space that has kernels for them (space/pick.h). What they
 * give is what their host code gives, to the bit. */
#include "select/select.h"

#include <math.h>
#include <string.h>

rill_status rill__pick_supported(const rill_selector *s) {
    const char *name = s->method->name, *space = s->space->name;
    if (!s->method->pick)
        return rill__fail(RILL_ERR_UNSUPPORTED, "method '%s' cannot select in memory '%s'", name,
                          space);
    if (s->shape.type == RILL_F64)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "method '%s' cannot select of f64 in memory '%s': f32, f16, bf16", name,
                          space);
    if (s->shape.index_bytes != 4)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "method '%s' cannot select of more than 2^32 entries in memory '%s'",
                          name, space);
    if (s->method == &rill__select_bucket && s->bucket > RILL__PICK_BUCKET_MOST)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "method 'bucket' in memory '%s': bucket %llu is above %d", space,
                          (unsigned long long)s->bucket, (int)RILL__PICK_BUCKET_MOST);
    return RILL_OK;
}

rill_status rill__pick_run(rill_selector *s, rill__source source, rill__pick *p, uint64_t room,
                           rill_stream *out, rill__picked *found) {
    RILL_TRY(rill__stream_reserve_pairs(out, room));
    p->type = s->shape.type;
    p->guards = s->guards;
    p->n = s->dim;
    p->dense = source.residual ? NULL : source.dense;
    p->residual = source.residual;
    p->gradient = source.gradient;
    p->idx = out->idx.data;
    p->val = out->val.data;
    p->room = room;
    RILL_TRY(s->space->pick(s->space, p, found));
    if (source.gradient) s->fed = true;
    if (source.gradient && s->guards && found->nonfinite) s->skipped = true;
    out->nnz = rill__min_u64(found->count, room);
    return RILL_OK;
}

/* ---- what is asked for, and the most pairs that it gives ------------------------------------ */

static rill__pick of_topk(const rill_selector *s, uint64_t *room) {
    *room = s->k;
    return (rill__pick){.kind = RILL__PICK_TOPK, .k = s->k};
}

static rill__pick of_random(const rill_selector *s, uint64_t *room) {
    *room = s->k;
    return (rill__pick){.kind = RILL__PICK_RANDOM, .k = s->k, .seed = s->seed, .call = s->calls};
}

static rill__pick of_bucket(const rill_selector *s, uint64_t *room) {
    uint64_t k = rill__max_u64(1, (uint64_t)floor(s->density * (double)s->bucket + 0.5));
    uint64_t buckets = s->dim / s->bucket + (s->dim % s->bucket != 0);
    *room = rill__min_u64(buckets * k, s->dim);
    return (rill__pick){.kind = RILL__PICK_BUCKET, .k = k, .group = s->bucket};
}

static rill__pick of_block(const rill_selector *s, uint64_t *room) {
    uint64_t n = s->dim / s->block + (s->dim % s->block != 0);
    uint64_t want = rill__max_u64(1, (uint64_t)floor(s->density * (double)n + 0.5));
    *room = rill__min_u64(want * s->block, s->dim);
    return (rill__pick){.kind = RILL__PICK_BLOCK, .k = want, .group = s->block};
}

static rill_status run(rill_selector *s, rill__source source, rill__pick p, uint64_t room,
                       rill_stream *out) {
    rill__picked found;
    return rill__pick_run(s, source, &p, room, out, &found);
}

rill_status rill__pick_topk(rill_selector *s, rill__source source, rill_stream *out) {
    uint64_t room;
    rill__pick p = of_topk(s, &room);
    return run(s, source, p, room, out);
}

rill_status rill__pick_random(rill_selector *s, rill__source source, rill_stream *out) {
    uint64_t room;
    rill__pick p = of_random(s, &room);
    return run(s, source, p, room, out);
}

rill_status rill__pick_bucket(rill_selector *s, rill__source source, rill_stream *out) {
    uint64_t room;
    rill__pick p = of_bucket(s, &room);
    return run(s, source, p, room, out);
}

rill_status rill__pick_block(rill_selector *s, rill__source source, rill_stream *out) {
    uint64_t room;
    rill__pick p = of_block(s, &room);
    return run(s, source, p, room, out);
}

/* ---- ahead of what is selected from --------------------------------------------------------- */

rill__ahead rill__pick_can_ahead(const char *method) {
    const rill__select_method *m = rill__select_method_named(method);
    if (m == &rill__select_topk || m == &rill__select_bucket || m == &rill__select_block)
        return RILL__AHEAD;
    return m == &rill__select_random || m == &rill__select_threshold ? RILL__AHEAD_IN_TURN
                                                                     : RILL__NOT_AHEAD;
}

void rill__pick_ahead(const rill_selector *s, rill__pick *p) {
    uint64_t room;
    *p = s->method == &rill__select_bucket      ? of_bucket(s, &room)
         : s->method == &rill__select_block     ? of_block(s, &room)
         : s->method == &rill__select_random    ? of_random(s, &room)
         : s->method == &rill__select_threshold ? rill__threshold_ahead(s, &room)
                                                : of_topk(s, &room);
    p->type = s->shape.type;
    p->guards = s->guards;
    p->n = s->dim;
    p->room = room;
}

bool rill__pick_looks(const rill_selector *s) { return s->method == &rill__select_threshold; }

void rill__pick_note(rill_selector *s, const rill__picked *found, uint64_t passed, uint64_t above) {
    s->skipped = s->guards && found->nonfinite;
    if (rill__pick_looks(s)) rill__threshold_note(s, found, passed, above);
    s->calls++;
}

uint64_t rill__pick_sift(const rill_selector *s, uint64_t n, void *idx, void *val, uint64_t floor) {
    uint32_t *at = idx;
    char *values = val;
    uint64_t left = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (rill__key_at(s, val, i) < floor) continue;
        at[left] = at[i];
        memmove(values + left++ * s->size, values + i * s->size, s->size);
    }
    return left;
}
