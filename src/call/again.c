#include "call/call.h"

#include <string.h>

/* Looks into a box, of a few dozen cycles each, until a request waits instead: it also looks for
 * notes, and makes way. */
enum { LOOKS = 1000, LOOKS_IF_CROWDED = 1 };

/* ---- is it like the last one? ---------------------------------------------------------------- */

static bool same_text(const char *given, const char *kept) {
    return given ? strcmp(given, kept) == 0 : !*kept;
}

static bool same_options(const rill__again *g, const rill_options *o) {
    const rill_options *k = &g->options;
    if (!o || !g->given) return !o && !g->given;
    return o->size == sizeof *o && o->value_bits == k->value_bits &&
           o->expected_nnz == k->expected_nnz && o->block == k->block &&
           o->allow_bits == k->allow_bits && same_text(o->algorithm, g->names[0]) &&
           same_text(o->codec, g->names[1]) && same_text(o->partition, g->names[2]) &&
           same_text(o->value_scope, g->names[3]);
}

static bool is_like(const rill__again *g, const rill__arguments *a) {
    const rill_stream *in = a->in, *out = a->out;
    if (a->collective != RILL_ALLREDUCE || a->op != g->op || !in || !out || a->feedback)
        return false;
    return in->dim == g->slip.dim && out->dim == g->slip.dim && in->type == g->slip.shape.type &&
           out->type == g->slip.shape.type && in->form == RILL__SPARSE &&
           in->nnz - 1 < g->slip.most && !rill__stream_is_foreign(in) &&
           !rill__stream_is_foreign(out) && same_options(g, a->options);
}

/* Nothing else is under way, and nobody has said anything. */
static bool is_quiet(const rill_comm *comm, const rill__again *g) {
    const rill__engine *e = &comm->engine;
    return !e->active && !e->notes && !e->early && e->seq < e->left_from && e->seq < UINT32_MAX &&
           comm->idle == g->request && rill__plan_stands(&comm->planner, g->key);
}

/* As a request does: boxes tell nothing of who is gone, and of what strangers send. */
static void look_around(rill__engine *e) {
    rill__receive_notes(e);
    rill__peers_poll(e);
}

/* ---- the call -------------------------------------------------------------------------------- */

typedef struct totals {
    uint64_t nnz_sum, nnz_max, sent, received;
} totals;

static bool has_room(const rill__again *g, const rill__piece *piece, uint64_t entries) {
    return entries <= g->limit && entries * g->slip.shape.index_bytes <= piece->idx.capacity &&
           entries * g->slip.value_bytes <= piece->val.capacity;
}

/* A round of the doubling: sum is what this rank has, and then both. */
static bool exchange(rill__engine *e, rill__again *g, int peer, rill__pairs *sum, rill__piece *to,
                     totals *t) {
    rill__pairs theirs;
    uint64_t nnz_sum, nnz_max;
    if (sum->n > g->slip.most) return false;
    size_t sent = rill__slip_send(e, &g->slip, peer, sum, t->nnz_sum, t->nnz_max);
    if (!sent) return false;
    size_t received = rill__slip_receive(e, &g->slip, peer, e->crowded ? LOOKS_IF_CROWDED : LOOKS,
                                         g->room.data, &theirs, &nnz_sum, &nnz_max);
    if (!received || !has_room(g, to, sum->n + theirs.n)) return false;
    bool lower = peer < e->rank;
    const rill__pairs *both[2];
    both[lower] = sum;
    both[!lower] = &theirs;
    sum->n = rill__sum_few(g->slip.host, g->slip.shape, g->op, g->slip.dim, both, to);
    sum->idx = to->idx.data;
    sum->val = to->val.data;
    t->nnz_sum += nnz_sum;
    t->nnz_max = rill__max_u64(t->nnz_max, nnz_max);
    t->sent += sent;
    t->received += received;
    return true;
}

/* All ranks had room for calls of this size; of larger ones they agree that they do
 * (call/commit.c). */
static bool fits(const rill__sizes *most, const totals *t, uint64_t result) {
    return result <= most->result && result <= most->pairs && t->nnz_sum <= most->sum &&
           t->nnz_max <= most->most;
}

static void leave(rill_comm *comm, rill__again *g, uint64_t entries, uint64_t result,
                  const totals *t) {
    rill__engine *e = &comm->engine;
    rill__plan_again(g->key, e->seq, t->nnz_sum, t->nnz_max, result);
    rill__expect *past = &e->past[e->seq % RILL__REMEMBERED];
    *past = g->expect; /* in which nothing was written lately: begin.c says why */
    past->seq = e->seq;
    for (int bit = 1; bit < e->size; bit *= 2)
        rill__slip_taken(e, e->rank ^ bit);
    e->seq++;
    comm->last.sent_bytes = t->sent;
    comm->last.recv_bytes = t->received;
    comm->last.nnz_in = entries;
    comm->last.nnz_out = result;
}

bool rill__again_run(rill_comm *comm, const rill__arguments *a) {
    rill__again *g = &comm->again;
    rill__engine *e = &comm->engine;
    if (!is_like(g, a)) return false;
    if (!(e->seq % RILL__CALLS_BETWEEN_LOOKS)) look_around(e);
    if (!is_quiet(comm, g)) return false;
    uint64_t started = rill__ticks(e->link), entries = a->in->nnz;
    totals t = {entries, entries, 0, 0};
    rill__pairs sum = rill__stream_pairs(a->in);
    int turn = 0;
    for (int bit = 1; bit < e->size; bit *= 2, turn = !turn)
        if (!exchange(e, g, e->rank ^ bit, &sum, &g->piece[turn], &t)) return false;
    if (!fits(&g->key->commits.sizes, &t, sum.n)) return false;
    static const unsigned char zero[8] = {0};
    rill__stream_adopt(a->out, zero, &g->piece[!turn]);
    leave(comm, g, entries, sum.n, &t);
    comm->last_elapsed = rill__ticks(e->link) - started;
    g->runs = true;
    return true;
}

/* ---- the last one ---------------------------------------------------------------------------- */

static bool keep_text(char *kept, const char *given) {
    if (given && (!*given || strlen(given) >= RILL__AGAIN_NAME)) return false;
    strcpy(kept, given ? given : "");
    return true;
}

static bool keep_options(rill__again *g, const rill_options *o) {
    g->given = o != NULL;
    if (!o) return true;
    if (o->size != sizeof *o) return false;
    g->options = *o;
    return keep_text(g->names[0], o->algorithm) && keep_text(g->names[1], o->codec) &&
           keep_text(g->names[2], o->partition) && keep_text(g->names[3], o->value_scope);
}

static bool keep_memory(rill__again *g) {
    g->limit = rill__min_u64(rill__dense_switch(g->slip.shape.type, g->slip.dim), 2 * g->slip.most);
    for (int i = 0; i < 2; i++)
        if (rill__buffer_reserve(&g->piece[i].idx, g->limit * g->slip.shape.index_bytes) < 0 ||
            rill__buffer_reserve(&g->piece[i].val, g->limit * g->slip.value_bytes) < 0)
            return false;
    return rill__buffer_reserve(&g->room, rill__slip_room(&g->slip)) == RILL_OK;
}

/* Boxes for all partners, of whom each has one in every round. */
static bool has_partners(const rill__engine *e) {
    if (e->size & (e->size - 1)) return false;
    for (int bit = 1; bit < e->size; bit *= 2)
        if (!rill__mail_from(e, e->rank ^ bit)) return false;
    return e->size > 1;
}

/* Its messages are slips, and so will be those of the next. */
static bool writes_slips(const rill_request *r) {
    const rill__coding *coding = &r->run.coding;
    return r->collective == RILL_ALLREDUCE && r->blocking && !r->feedback && !r->sequel.complete &&
           !r->comm->defaults.check && r->op->kind != RILL__USER && !r->plan.block &&
           coding->value == &rill__value_raw && !coding->turns_dense &&
           (!coding->forced || coding->index == &rill__codec_raw) &&
           r->plan.problem.partition != RILL__BALANCED && r->out->form == RILL__SPARSE &&
           !rill__stream_is_foreign(r->in) && !rill__stream_is_foreign(r->out);
}

void rill__again_keep(rill_request *r, const rill_options *options) {
    rill__again *g = &r->comm->again;
    if (r->nnz_in > RILL__AGAIN_MOST || !r->plan.algorithm || !r->plan.algorithm->doubles) return;
    if (!rill__task_failed(&r->task) && has_partners(r->task.engine) && writes_slips(r) &&
        rill__slip_make(&g->slip, &r->task, RILL__AGAIN_MOST) && keep_options(g, options) &&
        keep_memory(g)) {
        g->op = r->op;
        g->key = r->comm->planner.recent;
        g->expect = r->task.expect;
        g->request = r;
        g->runs = false;
        g->on = g->key && g->key->commits.twice & r->plan.way;
    }
}

void rill__again_free(rill__again *g) {
    rill__piece_free(&g->piece[0]);
    rill__piece_free(&g->piece[1]);
    rill__buffer_free(&g->room);
}
