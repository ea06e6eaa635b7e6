/* recursive_double: the latency-optimal allreduce of sparse streams.
 *
 * Idea. In round t each rank exchanges its partial sum with the rank whose number differs in bit t,
 * and both add, lower ranks first. Partial sums grow, and turn dense where that is cheaper.
 * Source. SSAR_Recursive_double of SparCML (Renggli et al., SC '19, section 5.3.1).
 * Restriction. None; P that is no power of two folds to one and back (two more rounds).
 * Memory. Two partial sums and one message.
 * Cost. sum over rounds t of  latency + bytes(K(2^t)) (byte + 2 copy) + 2 K(2^t) merge,  where K(n) is
 *   the expected number of entries in the union of n contributions; where the sum turns dense, plus
 *   K(2^(t+1)) scatter + N size dense_add, and from then on 3 N size dense_add instead of the merge. */
#include "coll/allreduce/allreduce.h"

typedef struct state {
    int round, exchanges;
    bool sent, summed;
    bool is_short;         /* the message sent last: that of the partner will be, too */
    int last;              /* piece that holds the sum */
    const rill__part *sum; /* the input, a piece's, or kept */
    rill__part kept;
} state;

static const char *supports(const rill__problem *p) {
    (void)p;
    return NULL;
}

static double estimate(const rill__problem *p) {
    double time = p->c->overhead + rill__prepare_estimate(p), dim = (double)p->dim;
    int power = 1;
    while (power <= p->ranks / 2)
        power *= 2;
    double limit = (double)rill__dense_switch(p->type, p->dim);
    bool folds = power < p->ranks;
    if (folds)
        time += p->c->latency + rill__input_bytes(p, p->nnz, dim) * (p->c->byte + p->handle) +
                2 * p->nnz * p->c->merge;
    for (int n = 1; n < power; n *= 2) {
        double entries = rill__expected_union(p, n * (folds ? 1.5 : 1));
        double bytes = n == 1            ? rill__input_bytes(p, entries, dim)
                       : entries > limit ? dim * p->value_cost
                                         : rill__pairs_bytes(p, entries, dim);
        time += p->c->latency + bytes * (p->c->byte + p->handle);
        time += entries > limit ? 3 * bytes * p->c->dense_add : 2 * entries * p->c->merge;
        double sum = rill__expected_union(p, 2 * n * (folds ? 1.5 : 1));
        if (entries <= limit && sum > limit) time += rill__densify_estimate(p, sum);
    }
    if (folds)
        time += p->c->latency + rill__form_bytes(p, p->result, dim) * (p->c->byte + p->handle);
    return time;
}

static void add(rill_request *r, state *s, const rill__message *message, int peer) {
    rill__add_nnz(r, &message->header);
    bool lower = peer < r->task.engine->rank;
    rill__part both[2];
    both[lower] = *s->sum;
    rill__received_part_at(&r->task, message, &both[!lower]);
    int next = s->summed ? 1 - s->last : 0;
    rill__request_sum(r, 0, r->task.expect.dim, 2, both, false, &r->piece[next]);
    s->sum = &r->piece[next].part;
    s->last = next;
    s->summed = true;
}

/* Where values are coded, or absent ones sent, all ranks must end with the same bits. Both partners go on from what was
 * sent; those who hold the same partial sum round it alike, as if the lowest of them had sent it; and
 * the result goes to a folded rank as it is. */
static rill_status send(rill_request *r, state *s, int peer, rill__round_kind kind) {
    rill__block *block;
    if (kind == RILL__ROUND_EXCHANGE) {
        bool leads;
        r->task.sender = rill__doubling_group(r->task.engine->rank, r->task.engine->size, s->round,
                                              &leads);
        r->task.shares_errors = !leads;
        r->task.hops = 1 + (uint32_t)s->exchanges++;
    }
    if (kind == RILL__ROUND_RESULT_SEND) r->task.coding.value = &rill__value_raw;
    RILL_TRY(rill__encode(&r->task, s->sum, &block));
    bool turned = r->task.sends_dense && s->sum == &r->input;
    if (kind == RILL__ROUND_EXCHANGE && (turned || rill__request_is_lossy(r))) {
        s->kept = rill__own_part(r, block);
        s->sum = &s->kept;
    }
    s->is_short = block->bytes <= RILL__SHORT;
    return rill__exchange_send(&r->task, peer, block);
}

static rill_status step(rill_request *r) {
    state *s = r->state.data;
    rill__engine *engine = r->task.engine;
    if (!s->round && !s->sent && !s->summed) s->sum = &r->input;
    for (;; s->round++, s->sent = false) {
        int peer;
        rill__round_kind kind = rill__doubling_round(engine->rank, engine->size, s->round, &peer);
        if (kind == RILL__ROUND_END) break;
        if (kind != RILL__ROUND_RECEIVE && kind != RILL__ROUND_RESULT_RECEIVE && !s->sent) {
            RILL_TRY(send(r, s, peer, kind));
            r->task.rounds++;
            s->sent = true;
        }
        if (kind == RILL__ROUND_SEND || kind == RILL__ROUND_RESULT_SEND) continue;
        rill__message message;
        rill__block *block;
        rill_status status = rill__exchange_receive(&r->task, peer, s->is_short, &message, &block);
        if (status != RILL_OK) return status;
        if (message.header.form == RILL__M_FAILED) continue;
        if (kind == RILL__ROUND_RESULT_RECEIVE) {
            r->task.nnz_sum = message.header.nnz_sum;
            r->task.nnz_max = message.header.nnz_max;
            rill__received_part_at(&r->task, &message, &s->kept);
            s->sum = &s->kept;
        } else {
            add(r, s, &message, peer);
        }
    }
    bool own = s->summed && s->sum == &r->piece[s->last].part;
    return own ? rill__finish_piece(r, &r->piece[s->last]) : rill__finish_parts(r, 1, s->sum);
}

const rill__algorithm rill__allreduce_recursive_double = {
    .name = "recursive_double",
    .description = "SparCML SSAR: partial sums exchanged in log2 P rounds; latency-optimal",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
};
