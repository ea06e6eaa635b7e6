/* Selection on device memory. */
#include "space/cuda.h"

#include <string.h>

static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }
static size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

static rill_status unsupported(const rill__pick *p) {
    return rill__fail(RILL_ERR_UNSUPPORTED, "there is no selection of %s in memory 'cuda'",
                      rill_type_name(p->type));
}

static size_t workspace_of(const rill__cuda_table *t, const rill__pick *p) {
    int type = (int)p->type;
    switch (p->kind) {
    case RILL__PICK_TOPK: return t->topk_workspace(type, p->n, p->k);
    case RILL__PICK_THRESHOLD: return t->threshold_workspace(type, p->n);
    case RILL__PICK_BUCKET: return t->bucket_workspace(type, p->n, (uint32_t)p->group);
    case RILL__PICK_BLOCK: return t->block_workspace(type, p->n, p->group);
    default: return 0;
    }
}

static int select_by(const rill__cuda_table *t, const rill__pick *p, const rill__cuda_select *s,
                     void *stream) {
    switch (p->kind) {
    case RILL__PICK_TOPK: return t->topk(s, p->k, stream);
    case RILL__PICK_THRESHOLD: return t->threshold(s, (uint32_t)p->key, stream);
    case RILL__PICK_BUCKET: return t->bucket(s, (uint32_t)p->group, (uint32_t)p->k, stream);
    case RILL__PICK_BLOCK: return t->block(s, p->group, p->k, stream);
    default: return t->random(s, p->k, p->seed, p->call, stream);
    }
}

static size_t room_to_align(const rill__pick *p, const rill__cuda_select *s) {
    size_t n = !is_aligned(s->dense) + !is_aligned(s->gradient) + !is_aligned(s->residual);
    return n * padded((size_t)p->n * rill__type_size(p->type));
}

/* Arrays that start anywhere are copied to such as the kernels take; there is room. */
static void align(rill__cuda *c, const rill__pick *p, rill__cuda_select *s) {
    size_t bytes = (size_t)p->n * rill__type_size(p->type);
    const void *residual = s->residual, **in[3] = {&s->dense, &s->gradient, &residual};
    if (!room_to_align(p, s)) return;
    char *at = rill__cuda_aligned(c, room_to_align(p, s)), *last = NULL;
    for (int i = 0; i < 3; i++) {
        if (is_aligned(*in[i])) continue;
        rill__cuda_check(c, c->table->copy(at, *in[i], bytes, c->stream), "copy");
        *in[i] = last = at;
        at += padded(bytes);
    }
    if (residual != s->residual) s->residual = last; /* it came last */
}

static void find_least(rill__cuda *c, const rill__pick *p, const void *values, uint64_t n,
                       rill__picked *found) {
    if (!n || c->failed != RILL_OK) return;
    rill__cuda_check(c,
                     c->table->least_key((int)p->type, values, n, (uint64_t *)(void *)c->words,
                                         c->stream),
                     "kernel");
    rill__cuda_see(c, sizeof found->least);
    memcpy(&found->least, c->seen, sizeof found->least);
}

static rill__cuda_select selection_of(rill__cuda *c, const rill__pick *p, rill__cuda_found *found) {
    return (rill__cuda_select){.type = (int)p->type,
                               .guards = p->guards,
                               .n = p->n,
                               .dense = p->dense,
                               .residual = p->dense ? NULL : p->residual,
                               .gradient = p->dense ? NULL : p->gradient,
                               .idx = p->idx,
                               .val = p->val,
                               .room = p->room,
                               .found = found,
                               .workspace = c->workspace,
                               .workspace_bytes = workspace_of(c->table, p)};
}

rill_status rill__cuda_pick_room(rill__cuda *c, const rill__pick *p) {
    rill__cuda_select s = selection_of(c, p, NULL);
    if (p->type == RILL_F64 || p->n > RILL__CUDA_MOST) return unsupported(p);
    if (!rill__cuda_workspace(c, s.workspace_bytes)) return RILL_ERR_MEMORY;
    size_t room = room_to_align(p, &s);
    return !room || rill__cuda_aligned(c, room) ? RILL_OK : RILL_ERR_MEMORY;
}

void rill__cuda_pick_ahead(rill__cuda *c, const rill__pick *p, rill__cuda_found *found) {
    rill__cuda_select s = selection_of(c, p, found);
    align(c, p, &s);
    rill__cuda_check(c, select_by(c->table, p, &s, c->stream), "selection");
    if (!p->dense && s.residual != p->residual)
        rill__cuda_check(c,
                         c->table->copy(p->residual, s.residual,
                                        (size_t)p->n * rill__type_size(p->type), c->stream),
                         "copy");
}

static rill_status select_entries(rill__cuda *c, const rill__pick *p, rill__picked *found) {
    rill__cuda_found result = {0, 0};
    RILL_TRY(rill__cuda_pick_room(c, p));
    rill__cuda_pick_ahead(c, p, (rill__cuda_found *)(void *)c->words);
    rill__cuda_see(c, sizeof result);
    if (c->failed != RILL_OK) return RILL_OK;
    memcpy(&result, c->seen, sizeof result);
    found->count = result.count;
    found->nonfinite = result.nonfinite;
    if (p->wants_least) find_least(c, p, p->val, rill__min_u64(result.count, p->room), found);
    return RILL_OK;
}

/* Where the pairs that pass a steered threshold are put, behind the workspace of either selection:
 * there are more of them than the result has room for. */
typedef struct passing {
    char *work;
    size_t work_bytes;
    void *idx, *val;
    uint32_t *place; /* of the k largest among them */
} passing;

static rill_status room_for_passing(rill__cuda *c, const rill__pick *p, passing *r) {
    const rill__cuda_table *t = c->table;
    int type = (int)p->type;
    size_t size = rill__type_size(p->type), idx = padded(4 * (size_t)p->limit),
           val = padded(size * (size_t)p->limit), place = padded(4 * (size_t)p->k);
    size_t work = padded(
        rill__max_u64(t->threshold_workspace(type, p->n), t->topk_workspace(type, p->limit, p->k)));
    char *at = rill__cuda_workspace(c, work + idx + val + place);
    if (!at) return RILL_ERR_MEMORY;
    *r = (passing){at, work, at + work, at + work + idx,
                   (uint32_t *)(void *)(at + work + idx + val)};
    return RILL_OK;
}

/* The k largest of n pairs by their values, in p's arrays; the others go back. */
static void cut(rill__cuda *c, const rill__pick *p, const passing *r, uint64_t n) {
    const rill__cuda_table *t = c->table;
    int type = (int)p->type;
    rill__cuda_select s = {.type = type,
                           .n = n,
                           .dense = r->val,
                           .idx = r->place,
                           .val = p->val,
                           .room = p->k,
                           .found = (rill__cuda_found *)(void *)c->words,
                           .workspace = r->work,
                           .workspace_bytes = r->work_bytes};
    int error = t->topk(&s, p->k, c->stream);
    if (!error) error = t->gather(RILL__CUDA_F32, r->idx, r->place, p->k, p->idx, c->stream);
    if (!error && p->residual)
        error = t->assign(type, 4, p->residual, 0, r->idx, r->val, n, c->stream);
    if (!error && p->residual)
        error = t->clear_where(type, p->residual, p->idx, p->k, NULL, 0, 0, c->stream);
    rill__cuda_check(c, error, "selection");
}

static rill_status select_steered(rill__cuda *c, const rill__pick *p, rill__picked *found) {
    const rill__cuda_table *t = c->table;
    rill__pick all = *p;
    passing r;
    RILL_TRY(room_for_passing(c, p, &r));
    all.kind = RILL__PICK_THRESHOLD;
    all.idx = r.idx;
    all.val = r.val;
    all.room = p->limit;
    RILL_TRY(select_entries(c, &all, found));
    uint64_t n = rill__min_u64(found->count, p->limit);
    if (c->failed != RILL_OK || !n) return RILL_OK;
    if (found->count > p->limit) {
        if (p->residual)
            rill__cuda_check(c,
                             t->assign((int)p->type, 4, p->residual, 0, r.idx, r.val, n, c->stream),
                             "kernel");
    } else if (n <= p->k) {
        int error = t->copy(p->idx, r.idx, 4 * (size_t)n, c->stream);
        if (!error) error = t->copy(p->val, r.val, rill__type_size(p->type) * (size_t)n, c->stream);
        if (!error) error = t->stream_wait(c->stream); /* a pick is over on return */
        rill__cuda_check(c, error, "copy");
    } else {
        cut(c, p, &r, n);
        find_least(c, p, p->val, p->k, found);
    }
    return RILL_OK;
}

rill_status rill__cuda_pick(const rill__space *space, const rill__pick *p, rill__picked *found) {
    rill__cuda *c = rill__cuda_of(space);
    if (p->type == RILL_F64 || p->n > RILL__CUDA_MOST) return unsupported(p);
    return p->kind == RILL__PICK_STEERED ? select_steered(c, p, found)
                                         : select_entries(c, p, found);
}
