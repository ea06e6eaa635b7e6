/* Data balancing of oktopk: owners whose region has many of the entries that passed the threshold
 * hand some on, so that the allgather moves equal shares.
 *
 * Put together in the order of the indices, the shares of all ranks are one list of T entries. Rank
 * j gets those from T j / P to T (j+1) / P of it. All know the sizes, so all know who sends what to
 * whom, and nothing is announced. Entries that stay are copied only. Cost: an agreement on P words;
 * then one round, in which a rank receives at most T / P entries. */
#include "coll/topk/topk_oktopk.h"

bool rill__balance_needed(const uint64_t *sizes, int ranks, double trigger) {
    uint64_t sum = 0, most = 0;
    for (int i = 0; i < ranks; i++) {
        sum += sizes[i];
        most = rill__max_u64(most, sizes[i]);
    }
    return (double)most * ranks > trigger * (double)sum;
}

/* What rank i has of what rank j gets, as [*from, *to) of the list. */
static bool overlap(const rill__balance *b, int ranks, int i, int j, uint64_t *from, uint64_t *to) {
    uint64_t sum = b->starts[ranks];
    *from = rill__max_u64(b->starts[i], rill__uniform_bound(sum, j, ranks));
    *to = rill__min_u64(b->starts[i + 1], rill__uniform_bound(sum, j + 1, ranks));
    return *from < *to;
}

/* Entries [from, to) of a share, in the smallest range. */
static rill__part part_of(rill__shape shape, const rill__share *s, uint64_t from, uint64_t to) {
    rill__part whole = rill__share_part(s);
    return rill__part_entries(shape, &whole, from, to);
}

static rill_status send_away(rill__run *run, rill__balance *b, const rill__share *s) {
    int ranks = run->size, me = run->rank;
    for (int d = 1; d < ranks; d++) {
        int to = (me + d) % ranks;
        uint64_t from, end;
        if (!overlap(b, ranks, me, to, &from, &end)) continue;
        rill__part part = part_of(run->shape, s, from - b->starts[me], end - b->starts[me]);
        RILL_TRY(rill__run_send(run, to, RILL__LANE_A, &run->coding, &part));
    }
    rill__run_round(run);
    uint64_t sum = b->starts[ranks];
    uint64_t room = rill__uniform_bound(sum, me + 1, ranks) - rill__uniform_bound(sum, me, ranks);
    b->out.idx = rill__run_memory(run, (room + 1) * run->shape.index_bytes);
    b->out.val = rill__run_memory(run, (room + 1) * rill__type_size(run->shape.type));
    return b->out.idx && b->out.val ? RILL_OK : RILL_ERR_MEMORY;
}

static rill_status collect(rill__run *run, rill__balance *b, const rill__share *s) {
    int ranks = run->size, me = run->rank;
    for (; b->next < ranks; b->next++) {
        uint64_t from, end;
        if (!overlap(b, ranks, b->next, me, &from, &end)) continue;
        rill__part part = rill__part_empty(0, 0);
        if (b->next == me) {
            part = part_of(run->shape, s, from - b->starts[me], end - b->starts[me]);
        } else {
            rill__received received;
            rill_status status = rill__run_receive(run, b->next, RILL__LANE_A, &received);
            if (status != RILL_OK) return status;
            if (!rill__received_nothing(&received)) part = rill__run_part(run, &received.message);
            if (!rill__run_failed(run) && (part.form != RILL__SPARSE || part.n != end - from))
                rill__run_fail(run,
                               rill__fail(RILL_ERR_MESSAGE,
                                          "rank %d sent another share than announced", b->next));
        }
        if (rill__run_failed(run)) continue;
        rill__part_append_to(run->shape, &part, b->out.idx, b->out.val, b->out.n);
        b->out.n += part.n;
    }
    return RILL_OK;
}

static rill_status begin(rill__run *run, rill__balance *b, const rill__share *s) {
    size_t ranks = (size_t)run->size;
    b->sizes = rill__run_alloc(run, ranks, sizeof *b->sizes);
    b->starts = rill__run_alloc(run, ranks + 1, sizeof *b->starts);
    if (!b->sizes || !b->starts) return RILL_ERR_MEMORY;
    b->sizes[run->rank] = s->n;
    rill__agree_start(&b->agree, 0, b->sizes, ranks);
    b->begun = true;
    return RILL_OK;
}

rill_status rill__balance_step(rill__run *run, rill__balance *b, rill__share *s) {
    int ranks = run->size;
    if (!b->begun) RILL_TRY(begin(run, b, s));
    if (!b->agreed) {
        rill_status status = rill__run_agree(run, &b->agree);
        if (status != RILL_OK) return status;
        b->agreed = true;
        if (rill__run_failed(run)) return RILL_OK; /* and so has everybody's */
        if (!rill__balance_needed(b->sizes, ranks, run->feedback->options.balance_trigger))
            return RILL_OK;
        for (int i = 0; i < ranks; i++)
            b->starts[i + 1] = b->starts[i] + b->sizes[i];
        RILL_TRY(send_away(run, b, s));
        b->moving = true;
    }
    if (!b->moving) return RILL_OK;
    rill_status status = collect(run, b, s);
    if (status == RILL_OK) *s = b->out;
    return status;
}
