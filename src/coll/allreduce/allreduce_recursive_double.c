/* recursive_double: the latency-optimal allreduce of sparse streams.
 *
 * Idea. In round t each rank exchanges its partial sum with the rank whose number differs in bit t,
 * and both add, lower ranks first. Partial sums grow, and turn dense where that is cheaper.
 * Source. SSAR_Recursive_double of SparCML (Renggli et al., SC '19, section 5.3.1).
 * Restriction. None; P that is no power of two folds to one and back (two more rounds).
 * Memory. Two partial sums and one message.
 * Cost. sum over rounds t of  latency + bytes(K(2^t)) (byte + 2 copy) + 2 K(2^t) merge,  where K(n)
 * is the expected number of entries in the union of n contributions; where the sum turns dense,
 * plus K(2^(t+1)) scatter + N size dense_add, and from then on 3 N size dense_add instead of the
 * merge. */
#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"

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
    int power = 1, rounds = 0;
    for (; power <= p->ranks / 2; power *= 2)
        rounds++;
    double byte = rill__byte_of_rounds(p, rounds) + p->transcode;
    double limit = (double)rill__dense_switch(p->type, p->dim);
    bool folds = power < p->ranks;
    if (folds)
        time += p->c->latency + rill__input_bytes(p, p->nnz, dim) * byte + 2 * p->nnz * p->c->merge;
    for (int n = 1; n < power; n *= 2) {
        double entries = rill__expected_union(p, n * (folds ? 1.5 : 1));
        double bytes = n == 1            ? rill__input_bytes(p, entries, dim)
                       : entries > limit ? dim * p->value_cost
                                         : rill__pairs_bytes(p, entries, dim);
        time += p->c->latency + bytes * byte;
        time += entries > limit ? 3 * bytes * p->c->dense_add : 2 * entries * p->c->merge;
        double sum = rill__expected_union(p, 2 * n * (folds ? 1.5 : 1));
        if (entries <= limit && sum > limit) time += rill__densify_estimate(p, sum);
    }
    if (folds) time += p->c->latency + rill__form_bytes(p, p->result, dim) * byte;
    return time;
}

static void add(rill__run *run, state *s, const rill__message *message, int peer) {
    rill__run_count(run, &message->header);
    bool lower = peer < run->rank;
    rill__part both[2];
    both[lower] = *s->sum;
    rill__run_part_at(run, message, &both[!lower]);
    int next = s->summed ? 1 - s->last : 0;
    rill__run_sum(run, 0, run->dim, 2, both, false, &run->piece[next]);
    s->sum = &run->piece[next].part;
    s->last = next;
    s->summed = true;
}

/* Where values are coded, or absent ones sent, all ranks must end with the same bits. Both partners
 * go on from what was sent; those who hold the same partial sum round it alike, as if the lowest of
 * them had sent it; and the result goes to a folded rank as it is. */
static rill_status send(rill__run *run, state *s, int peer, rill__round_kind kind) {
    rill__parcel *parcel;
    rill__coding changed;
    const rill__coding *coding = &run->coding;
    if (rill__run_is_lossy(run) && kind != RILL__ROUND_SEND) {
        bool leads;
        changed = *coding;
        coding = &changed;
        if (kind == RILL__ROUND_RESULT_SEND) {
            changed.value = &rill__value_raw;
        } else {
            changed.key.sender = rill__doubling_group(run->rank, run->size, s->round, &leads);
            changed.key.hop = 1 + (uint32_t)s->exchanges++;
            changed.shared = !leads;
        }
    }
    RILL_TRY(rill__run_encode(run, coding, s->sum, &parcel));
    bool turned = run->coding.turns_dense && s->sum == run->input;
    if (kind == RILL__ROUND_EXCHANGE && (turned || rill__run_is_lossy(run))) {
        s->kept = rill__run_own_part(run, parcel);
        s->sum = &s->kept;
    }
    s->is_short = rill__parcel_bytes(parcel) <= RILL__SHORT;
    return rill__run_exchange_send(run, peer, parcel);
}

static rill_status step(rill__run *run) {
    state *s = run->state;
    if (!s->round && !s->sent && !s->summed) s->sum = run->input;
    for (;; s->round++, s->sent = false) {
        int peer;
        rill__round_kind kind = rill__doubling_round(run->rank, run->size, s->round, &peer);
        if (kind == RILL__ROUND_END) break;
        if (kind != RILL__ROUND_RECEIVE && kind != RILL__ROUND_RESULT_RECEIVE && !s->sent) {
            RILL_TRY(send(run, s, peer, kind));
            rill__run_round(run);
            s->sent = true;
        }
        if (kind == RILL__ROUND_SEND || kind == RILL__ROUND_RESULT_SEND) continue;
        rill__received received;
        rill_status status = rill__run_exchange_receive(run, peer, s->is_short, &received);
        if (status != RILL_OK) return status;
        if (rill__received_nothing(&received)) continue;
        if (kind == RILL__ROUND_RESULT_RECEIVE) {
            rill__run_count_anew(run, &received.message.header, 0);
            rill__run_part_at(run, &received.message, &s->kept);
            s->sum = &s->kept;
        } else {
            add(run, s, &received.message, peer);
        }
    }
    bool in_piece = s->summed && s->sum == &run->piece[s->last].part;
    return in_piece ? rill__finish_piece(run, &run->piece[s->last])
                    : rill__finish_parts(run, 1, s->sum);
}

const rill__algorithm rill__allreduce_recursive_double = {
    .name = "recursive_double",
    .description = "SparCML SSAR: partial sums exchanged in log2 P rounds; latency-optimal",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(state),
    .step = step,
    .doubles = true,
};
