/* The methods where the vectors lie in a space that has kernels for them (space/pick.h). What they
 * give is what their host code gives, to the bit. */
#include "select/select.h"

#include <string.h>

rill_status rill__pick_supported(const rill_selector *s) {
    const char *name = s->method->name, *space = s->space->name;
    if (!s->method->ask)
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

rill_status rill__pick_there(rill_selector *s, rill__source source, rill_stream *out) {
    if (s->method->pick) return s->method->pick(s, source, out);
    rill__picked found;
    uint64_t room;
    rill__pick p = s->method->ask(s, &room);
    return rill__pick_run(s, source, &p, room, out, &found);
}

/* ---- ahead of what is selected from --------------------------------------------------------- */

rill__ahead rill__pick_can_ahead(const char *method) {
    const rill__select_method *m = rill__select_method_named(method);
    return m ? m->ahead : RILL__NOT_AHEAD;
}

void rill__pick_ahead(const rill_selector *s, rill__pick *p) {
    uint64_t room;
    *p = s->method->ask(s, &room);
    p->type = s->shape.type;
    p->guards = s->guards;
    p->n = s->dim;
    p->room = room;
}

bool rill__pick_looks(const rill_selector *s) { return s->method->note; }

void rill__pick_note(rill_selector *s, const rill__picked *found, uint64_t passed, uint64_t above) {
    s->skipped = s->guards && found->nonfinite;
    if (s->method->note) s->method->note(s, found, passed, above);
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
