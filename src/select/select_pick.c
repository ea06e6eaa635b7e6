/* The methods where the vectors lie in a space that has kernels for them (space/pick.h). What they
 * give is what their host code gives, to the bit. */
#include "select/select.h"

#include <math.h>

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

rill_status rill__pick_topk(rill_selector *s, rill__source source, rill_stream *out) {
    rill__picked found;
    rill__pick p = {.kind = RILL__PICK_TOPK, .k = s->k};
    return rill__pick_run(s, source, &p, s->k, out, &found);
}

rill_status rill__pick_random(rill_selector *s, rill__source source, rill_stream *out) {
    rill__picked found;
    rill__pick p = {.kind = RILL__PICK_RANDOM, .k = s->k, .seed = s->seed, .call = s->calls};
    return rill__pick_run(s, source, &p, s->k, out, &found);
}

rill_status rill__pick_bucket(rill_selector *s, rill__source source, rill_stream *out) {
    rill__picked found;
    uint64_t k = rill__max_u64(1, (uint64_t)floor(s->density * (double)s->bucket + 0.5));
    rill__pick p = {.kind = RILL__PICK_BUCKET, .k = k, .group = s->bucket};
    uint64_t buckets = s->dim / s->bucket + (s->dim % s->bucket != 0);
    return rill__pick_run(s, source, &p, rill__min_u64(buckets * k, s->dim), out, &found);
}

rill_status rill__pick_block(rill_selector *s, rill__source source, rill_stream *out) {
    rill__picked found;
    uint64_t n = s->dim / s->block + (s->dim % s->block != 0);
    uint64_t want = rill__max_u64(1, (uint64_t)floor(s->density * (double)n + 0.5));
    rill__pick p = {.kind = RILL__PICK_BLOCK, .k = want, .group = s->block};
    return rill__pick_run(s, source, &p, rill__min_u64(want * s->block, s->dim), out, &found);
}
