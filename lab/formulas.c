#include "formulas.h"
#include "coll/run.h"
#include "inputs.h"
#include "stream/blocks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PAIR = 8, VALUE = 4, NUMBER = 8 }; /* bytes */
/* Of hier: ranks of a host that sum, and indices that each has at least. */
enum { SUMMERS = 8, LEAST_RANGE = 16384 };

/* ---- counted from the inputs ---------------------------------------------------------------- */

typedef struct inputs {
    const formula_call *call;
    uint32_t *index; /* k of each rank */
    uint32_t *seen;  /* of each index: the last union that has it */
    uint32_t number; /* of the union */
} inputs;

static void *memory(uint64_t n) {
    void *at = calloc(n, sizeof(uint32_t));
    if (at) return at;
    fprintf(stderr, "out of memory\n");
    exit(1);
}

static inputs make_inputs(const formula_call *call) {
    inputs x = {.call = call};
    x.index = memory((uint64_t)call->ranks * call->k);
    x.seen = memory(call->dim);
    for (int r = 0; r < call->ranks; r++)
        for (uint64_t i = 0; i < call->k; i++)
            x.index[(uint64_t)r * call->k + i] = (uint32_t)input_index(call->dim, call->k,
                                                                       call->seed, r, i, NULL);
    return x;
}

static void free_inputs(inputs *x) {
    free(x->index);
    free(x->seen);
}

/* The first of a rank's entries at or above an index. */
static uint64_t lower(const inputs *x, int rank, uint64_t index) {
    const uint32_t *of = x->index + (uint64_t)rank * x->call->k;
    uint64_t from = 0, to = x->call->k;
    while (from < to) {
        uint64_t middle = (from + to) / 2;
        if (of[middle] < index) from = middle + 1;
        else to = middle;
    }
    return from;
}

/* Entries (units of some) of a rank in a range that the union has not yet; it has them then. */
static uint64_t join(inputs *x, int rank, uint64_t first, uint64_t end, uint64_t unit) {
    const uint32_t *of = x->index + (uint64_t)rank * x->call->k;
    uint64_t fresh = 0, stop = lower(x, rank, end);
    for (uint64_t i = lower(x, rank, first); i < stop; i++) {
        uint32_t *seen = &x->seen[of[i] / unit];
        fresh += *seen != x->number;
        *seen = x->number;
    }
    return fresh;
}

static uint64_t unite(inputs *x, int from, int to, uint64_t first, uint64_t end, uint64_t unit) {
    uint64_t all = 0;
    x->number++;
    for (int r = from; r < to; r++)
        all += join(x, r, first, end, unit);
    return all;
}

/* A sum of a range is sparse, or dense where it has too many entries. */
static double sum_bytes(uint64_t entries, uint64_t range) {
    bool dense = entries > rill__dense_switch(RILL_F32, range);
    return dense ? VALUE * (double)range : PAIR * (double)entries;
}

static uint64_t bound(uint64_t dim, int i, int n) { return rill__uniform_bound(dim, i, n); }

/* Every group of ranks (a host, or one rank) sends the others its sum of their ranges. */
static double split_bytes(inputs *x, int each) {
    int groups = x->call->ranks / each;
    double bytes = 0;
    for (int g = 0; g < groups; g++)
        for (int to = 0; to < groups; to++)
            if (to != g)
                bytes += PAIR * (double)unite(x, g * each, (g + 1) * each,
                                              bound(x->call->dim, to, groups),
                                              bound(x->call->dim, to + 1, groups), 1);
    return bytes;
}

/* The sums of all ranges, each sent as often as there are others. */
static double gather_bytes(inputs *x, int groups, bool dense) {
    uint64_t dim = x->call->dim;
    double bytes = 0;
    for (int j = 0; j < groups; j++) {
        uint64_t first = bound(dim, j, groups), end = bound(dim, j + 1, groups);
        bytes += dense ? VALUE * (double)(end - first)
                       : sum_bytes(unite(x, 0, x->call->ranks, first, end, 1), end - first);
    }
    return (groups - 1) * bytes;
}

static double doubling_bytes(inputs *x) {
    int ranks = x->call->ranks;
    double bytes = 0;
    if (ranks & (ranks - 1)) return 0; /* other formulas */
    for (int n = 1; n < ranks; n *= 2)
        for (int r = 0; r < ranks; r += n)
            bytes += n * sum_bytes(unite(x, r, r + n, 0, x->call->dim, 1), x->call->dim);
    return bytes;
}

/* The sum of range j starts at rank j + 1 and takes in a rank in each round. */
static double ring_bytes(inputs *x) {
    int ranks = x->call->ranks;
    double bytes = 0;
    for (int j = 0; j < ranks; j++) {
        uint64_t first = bound(x->call->dim, j, ranks), end = bound(x->call->dim, j + 1, ranks);
        uint64_t entries = 0;
        x->number++;
        for (int n = 1; n < ranks; n++) {
            entries += join(x, (j + n) % ranks, first, end, 1);
            bytes += sum_bytes(entries, end - first);
        }
    }
    return bytes + gather_bytes(x, ranks, false);
}

/* What has reached a rank of shares [from, to) from those that are multiples of apart before it. */
static double section_bytes(inputs *x, int rank, int apart, int from, int to) {
    int ranks = x->call->ranks;
    uint64_t first = bound(x->call->dim, from, ranks), end = bound(x->call->dim, to, ranks);
    uint64_t entries = 0;
    x->number++;
    for (int before = 0; before < ranks; before += apart)
        entries += join(x, (rank - before + ranks) % ranks, first, end, 1);
    return apart < ranks ? sum_bytes(entries, end - first) : PAIR * (double)entries;
}

/* In the round of a distance d, d shares leave: one message, or two where they go on at share 0. */
static double halves_bytes(inputs *x, double *messages) {
    int ranks = x->call->ranks;
    double bytes = 0;
    if (ranks & (ranks - 1)) return 0; /* other formulas */
    for (int d = ranks / 2; d; d /= 2)
        for (int r = 0; r < ranks; r++) {
            int from = (r + d) % ranks, over = from + d - ranks;
            bytes += section_bytes(x, r, 2 * d, from, over > 0 ? ranks : from + d);
            if (over > 0) bytes += section_bytes(x, r, 2 * d, 0, over);
            *messages += over > 0 ? 2 : 1;
        }
    return bytes + gather_bytes(x, ranks, false);
}

/* A message with blocks tells their size, too. */
static double blocks_of(const formula_call *c, double blocks, uint64_t range) {
    bool dense = blocks * (double)c->block > (double)rill__blocks_switch(RILL_F32, c->block, range);
    double each = NUMBER + VALUE * (double)c->block;
    return dense ? VALUE * (double)range : NUMBER + each * blocks;
}

static double blocks_bytes(inputs *x) {
    const formula_call *c = x->call;
    uint64_t blocks = (c->dim + c->block - 1) / c->block;
    double bytes = 0;
    for (int to = 0; to < c->ranks; to++) {
        uint64_t first = bound(blocks, to, c->ranks) * c->block;
        uint64_t end = bound(blocks, to + 1, c->ranks) * c->block, range = end - first;
        for (int r = 0; r < c->ranks; r++)
            if (r != to)
                bytes += blocks_of(c, (double)unite(x, r, r + 1, first, end, c->block), range);
        double sum = (double)unite(x, 0, c->ranks, first, end, c->block);
        bytes += (c->ranks - 1) * blocks_of(c, sum, range);
    }
    return bytes;
}

static int summers(const formula_call *c) {
    uint64_t most = c->per_host < SUMMERS ? (uint64_t)c->per_host : SUMMERS;
    uint64_t ranges = c->dim / LEAST_RANGE < most ? c->dim / LEAST_RANGE : most;
    return ranges ? (int)ranges : 1;
}

/* Among hosts. Within one, entries lie in shared memory, and messages tell where. */
static double hier_bytes(inputs *x) {
    int n = x->call->per_host;
    return split_bytes(x, n) + gather_bytes(x, x->call->ranks / n, false);
}

static double hier_parts(const formula_call *c) {
    int n = c->per_host, hosts = c->ranks / n, m = summers(c);
    double within = n > 1 ? n * m - m + m - 1 + n - 1 : 0;
    return hosts * within + 2.0 * hosts * (hosts - 1);
}

/* ---- formulas ------------------------------------------------------------------------------- */

/* Entries that n contributions unite to. */
static double expected(const formula_call *c, double n) {
    double dim = (double)c->dim;
    return dim * (1 - pow(1 - (double)c->k / dim, n));
}

static double expected_sum(const formula_call *c, double n) {
    double dim = (double)c->dim, entries = expected(c, n);
    return entries > 0.45 * dim ? VALUE * dim : PAIR * entries;
}

static double closed_hier(const formula_call *c) {
    double hosts = c->ranks / (double)c->per_host;
    return (hosts - 1) * (expected_sum(c, c->per_host) + expected_sum(c, c->ranks));
}

static double closed_doubling(const formula_call *c) {
    double bytes = 0;
    for (int n = 1; n < c->ranks; n *= 2)
        bytes += c->ranks * expected_sum(c, n);
    return bytes;
}

static double closed_halves(const formula_call *c) {
    double bytes = (c->ranks - 1) * expected_sum(c, c->ranks);
    for (int n = 1; n < c->ranks; n *= 2)
        bytes += c->ranks * expected_sum(c, n) / (2 * n);
    return bytes;
}

static double closed_ring(const formula_call *c) {
    double bytes = (c->ranks - 1) * expected_sum(c, c->ranks);
    for (int n = 1; n < c->ranks; n++)
        bytes += expected_sum(c, n);
    return bytes;
}

static double closed_block(const formula_call *c) {
    double all = ceil((double)c->dim / (double)c->block), some = fmin((double)c->k, all);
    double sum = all * (1 - pow(1 - some / all, c->ranks)), others = c->ranks - 1;
    double split = some * (NUMBER + VALUE * (double)c->block) + c->ranks * NUMBER;
    return others * split +
           others * c->ranks * blocks_of(c, sum / c->ranks, c->dim / (uint64_t)c->ranks);
}

static bool allreduce_formula(const char *name, const formula_call *c, formula *f) {
    double ranks = c->ranks, others = ranks - 1, dim = (double)c->dim;
    double pairs = PAIR * (double)c->k, sum = expected_sum(c, ranks);
    inputs x = make_inputs(c);
    *f = (formula){.parts = 2 * ranks * others};
    if (strcmp(name, "allgather") == 0) {
        f->words = "2k(P-1)";
        f->closed = f->exact = ranks * others * pairs;
        f->parts = ranks * others;
    } else if (strcmp(name, "recursive_double") == 0) {
        f->words = "sum over t < log2 P of 2K(2^t)";
        f->closed = closed_doubling(c);
        f->exact = doubling_bytes(&x);
        f->parts = f->exact > 0 ? ranks * log2(ranks) : 0;
    } else if (strcmp(name, "split_allgather") == 0) {
        f->words = "(2k + 2K)(P-1)/P";
        f->closed = others * (pairs + sum);
        f->exact = split_bytes(&x, 1) + gather_bytes(&x, c->ranks, false);
    } else if (strcmp(name, "dsar") == 0) {
        f->words = "(2k + N)(P-1)/P";
        f->closed = others * (pairs + VALUE * dim);
        f->exact = split_bytes(&x, 1) + gather_bytes(&x, c->ranks, true);
    } else if (strcmp(name, "recursive_halving") == 0) {
        double messages = 0;
        f->words = "sum over t < log2 P of K(2^t)/2^t, + 2K(P-1)/P";
        f->closed = closed_halves(c);
        f->exact = halves_bytes(&x, &messages);
        f->parts = f->exact > 0 ? messages + ranks * others : 0;
    } else if (strcmp(name, "ring") == 0) {
        f->words = "sum over n < P of 2K(n)/P, + 2K(P-1)/P";
        f->closed = closed_ring(c);
        f->exact = ring_bytes(&x);
    } else if (strcmp(name, "block") == 0) {
        f->words = "(k + K)(b + 2)(P-1)/P of blocks, + 4(P-1)";
        f->closed = closed_block(c);
        f->exact = blocks_bytes(&x);
    } else if (strcmp(name, "hier") == 0) {
        f->words = "(2K(P/H) + 2K)(H-1)/H of a leader";
        f->closed = closed_hier(c);
        f->exact = hier_bytes(&x);
        f->parts = hier_parts(c);
    } else if (strcmp(name, "dense") == 0) {
        /* By doubling, or by owners of ranges (dense_sum.h): the number of messages tells. */
        double rounds = ceil(log2(ranks));
        bool doubled = c->parts == (uint64_t)(ranks * rounds);
        f->words = doubled ? "N log2 P" : "2N(P-1)/P";
        f->closed = f->exact = VALUE * dim * (doubled ? ranks * rounds : 2 * others);
        f->parts = doubled ? ranks * rounds : f->parts;
        f->in_words = true;
    }
    free_inputs(&x);
    return f->words != NULL;
}

static bool reducer_formula(const char *name, const formula_call *c, formula *f) {
    double ranks = c->ranks, others = ranks - 1, pairs = PAIR * (double)c->k;
    *f = (formula){0};
    if (strcmp(name, "gtopk") == 0) {
        f->words = "4k(P-1)/P in the mean";
        f->closed = f->exact = 2 * others * pairs;
        f->parts = 2 * others;
    } else if (strcmp(name, "spardl") == 0) {
        f->words = "4k(P-1)/P";
        f->closed = f->exact = 2 * others * pairs;
    } else if (strcmp(name, "oktopk") == 0) {
        f->words = "at most 6k(P-1)/P";
        f->closed = 3 * others * pairs;
        f->most = true;
    } else if (strcmp(name, "s2") == 0) {
        double arrays = (double)c->dim / 8 + VALUE * 0.5 * (double)c->result;
        double rounds = ceil(log2(ranks));
        /* Three agreements, and two sums, by doubling or by owners of ranges (dense_sum.h): the
         * number of messages tells. */
        bool doubled = c->parts == (uint64_t)(5 * ranks * rounds);
        f->words = doubled ? "(N/32 + U/2) log2 P" : "2(N/32 + U/2)(P-1)/P";
        f->closed = arrays * (doubled ? ranks * rounds : 2 * others);
        f->parts = 3 * ranks * rounds + 2 * (doubled ? ranks * rounds : 2 * ranks * others);
        f->in_words = true;
    }
    return f->words != NULL;
}

bool formula_of(const char *algorithm, bool reducer, const formula_call *c, formula *f) {
    return reducer ? reducer_formula(algorithm, c, f) : allreduce_formula(algorithm, c, f);
}
