/* block: split_allgather of whole blocks.
 *
 * Idea. Entries come in blocks (the rows of an embedding). Each rank owns a range of blocks; it
 * gets the non-zero blocks of that range from all others, adds them as dense vectors, lower ranks
 * first, and the sums are gathered by all. Numbers of blocks travel instead of indices, as a bitmap
 * or however they are smallest, so that an index costs 1/block per entry.
 * Source. OmniReduce (Fei et al., SIGCOMM 2021), whose aggregators are here the ranks themselves;
 * the exchange is that of SparCML's SSAR_Split_allgather.
 * Restriction. All ranks must have the same block size. Pairs cost the whole of every block that
 * they touch, so "auto" takes it only where the option block says that entries come in blocks.
 * Memory. The messages received: the blocks of the range, then the result.
 * Cost, for k entries in blocks of b, of which a number takes i bytes, and K in the result:
 *        (P-1) latency + k (P-1)/P (value + i/b) (byte + 2 copy)   split
 *      + k size dense_add                                          sum of P parts of k/P entries
 *      + gather of K/P entries of value + i/b                      see patterns/gather.h
 *      + K value 2 copy                                            concatenation */
#include "coll/allreduce/allreduce.h"
#include "coll/cost.h"
#include "coll/patterns/split_gather.h"

#include <math.h>

static const char *supports(const rill__problem *p) {
    return p->block ? NULL : "needs the option block: entries of a block";
}

/* The same problem with the share of a block's number as the cost of an index. */
static rill__problem in_blocks(const rill__problem *p) {
    rill__problem q = *p;
    double all = (double)rill__blocks_in(p->dim, p->block);
    double some = fmin(ceil(p->nnz / (double)p->block), all);
    q.index_cost = 0;
    if (some >= 1 && p->nnz >= 1) {
        const rill__index_codec *codec = rill__index_codec_choose(8, (uint64_t)some, (uint64_t)all);
        q.index_cost = codec->message_bits(8, (uint64_t)some, (uint64_t)all) / 8 / p->nnz;
    }
    return q;
}

static double owned_bytes(const rill__problem *p) {
    return rill__form_bytes(p, p->result / p->ranks, (double)p->dim / p->ranks) +
           (double)(RILL__SHORT_BYTES + sizeof p->block);
}

static double estimate(const rill__problem *p) {
    rill__problem q = in_blocks(p);
    double bytes = owned_bytes(&q), size = (double)rill__type_size(p->type);
    return p->c->overhead + rill__split_estimate(&q) + p->nnz * size * p->c->dense_add +
           rill__gather_estimate(p, rill__gather_choose(p, bytes), bytes) +
           (p->ranks + 1) * bytes * p->transcode;
}

/* Each message has the codec that suits it; all ranks tell that of the first sum with blocks. */
static const rill__index_codec *first_codec(const rill__run *run, const rill__gather *g) {
    for (int i = 0; i < run->size; i++) {
        const rill__header *h = &g->messages[i].header;
        if (h->form == RILL__M_BLOCKS && h->count) return rill__index_codec_by_id(h->index_codec);
    }
    return &rill__codec_raw;
}

static rill_status step(rill__run *run) {
    rill__split_gather *s = run->state;
    if (!s->begun) {
        rill__problem q = in_blocks(run->problem);
        s->split.unit = run->block;
        rill__split_gather_begin(run, s, &q, false);
    }
    rill_status status = rill__split_gather_step(run, s);
    if (status == RILL_OK && !rill__run_failed(run) && !run->coding.forced)
        run->used_codec = first_codec(run, &s->gather);
    return status;
}

const rill__algorithm rill__allreduce_block = {
    .name = "block",
    .description = "OmniReduce: non-zero blocks to owners that sum them densely, allgather",
    .supports = supports,
    .estimate = estimate,
    .state_size = sizeof(rill__split_gather),
    .step = step,
    .takes_blocks = true,
};
