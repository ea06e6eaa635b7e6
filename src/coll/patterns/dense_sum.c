#include "coll/patterns/dense_sum.h"
#include "coll/patterns/split.h"
#include "stream/part_entries.h"

#include <string.h>

enum { START, DOUBLING, SCATTERING, GATHERING, IN_PIECES };
enum {
    TILE = 4096
}; /* elements that are summed over all parts before the next: they stay in cache */
/* Bytes of a piece: large beside what a message costs, and small beside a range, so that little is
 * left to do when the last one comes; a parcel's, less what is not of the piece (req/parcels.c).
 * Bytes of a range from which it goes in pieces. Parts that a rank is ahead of those that came in,
 * which keep its link busy: with more, what waits in sockets is no longer in the caches when it is
 * read. */
enum { PIECE = (512 << 10) - 4096, LEAST_RANGE = 2 << 20, AHEAD = 16 };

/* ---- costs ---------------------------------------------------------------------------------- */

static double doubling_time(const rill__problem *p, double bytes) {
    int power = 1, rounds = 0;
    for (; power <= p->ranks / 2; power *= 2)
        rounds++;
    double move = p->c->latency + bytes * (p->c->byte + 2 * p->c->copy);
    double add = 3 * bytes * p->c->dense_add;
    return rounds * (move + add) + (power < p->ranks ? 2 * move + add : 0);
}

static double direct_time(const rill__problem *p, double bytes) {
    double share = bytes / p->ranks, others = bytes - share;
    double scatter = p->c->latency + (p->ranks - 2) * p->c->message +
                     others * (p->c->byte + p->c->copy + 3 * p->c->dense_add);
    return scatter + rill__gather_estimate(p, rill__gather_choose(p, share), share) +
           bytes * p->c->copy;
}

double rill__dense_sum_estimate(const rill__problem *p, double bytes) {
    if (p->ranks < 2) return bytes * p->c->copy;
    double doubling = doubling_time(p, bytes), direct = direct_time(p, bytes);
    return doubling < direct ? doubling : direct;
}

/* ---- elements ------------------------------------------------------------------------------- */

static size_t size_of(const rill__dense_sum *x) {
    return x->words ? sizeof(uint64_t) : rill__type_size(x->type);
}

static uint64_t bound(const rill__dense_sum *x, int place) {
    return rill__uniform_bound(x->count, place, x->group.n);
}

static uint64_t range(const rill__dense_sum *x, int place) {
    return bound(x, place + 1) - bound(x, place);
}

/* to[at..at + n) = lower op upper. */
static void add(rill__run *run, const rill__dense_sum *x, uint64_t at, const void *lower,
                const void *upper, uint64_t n) {
    char *to = (char *)x->to + at * size_of(x);
    if (!x->words) {
        rill__run_combine(run, x->type, x->op, to, lower, upper, n);
        return;
    }
    uint64_t *out = (uint64_t *)(void *)to;
    const uint64_t *a = lower, *b = upper;
    for (uint64_t i = 0; i < n; i++)
        out[i] = a[i] | b[i];
}

static void copy(const rill__dense_sum *x, uint64_t at, const void *from, uint64_t n) {
    if (n) memcpy((char *)x->to + at * size_of(x), from, n * size_of(x));
}

/* ---- messages ------------------------------------------------------------------------------- */

static rill_status encode(rill__run *run, const rill__dense_sum *x, const void *array, uint64_t at,
                          uint64_t n, rill__parcel **parcel) {
    const char *start = rill__run_failed(run) ? NULL : (const char *)array + at * size_of(x);
    return rill__run_encode_bytes(run, start, n * size_of(x), parcel);
}

/* The n elements of a message; NULL: it has none, which is recorded. */
static const void *elements(rill__run *run, const rill__dense_sum *x, const rill__message *m,
                            uint64_t n) {
    if (m->header.form == RILL__M_FAILED) return NULL;
    uint64_t words = rill__align8(n * size_of(x)) / sizeof(uint64_t);
    if (m->header.form == RILL__M_AGREE && m->header.count == words) return m->payload;
    rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE,
                                   "malformed message: not the %llu words of a dense sum",
                                   (unsigned long long)words));
    return NULL;
}

/* ---- doubling ------------------------------------------------------------------------------- */

static void take_round(rill__run *run, rill__dense_sum *x, const rill__received *r, int peer,
                       rill__round_kind kind) {
    const void *theirs = elements(run, x, &r->message, x->count);
    if (!theirs) return;
    const rill__header *h = &r->message.header;
    bool result = kind == RILL__ROUND_RESULT_RECEIVE;
    if (result) rill__run_count_anew(run, h, 0);
    else rill__run_count(run, h);
    if (rill__run_failed(run)) return;
    const void *mine = x->counted ? x->to : x->from;
    if (result) copy(x, 0, theirs, x->count);
    else if (peer < x->group.me) add(run, x, 0, theirs, mine, x->count);
    else add(run, x, 0, mine, theirs, x->count);
    x->counted = true;
}

static rill_status step_doubling(rill__run *run, rill__dense_sum *x) {
    for (;; x->round++, x->sent = 0) {
        int peer;
        rill__round_kind kind = rill__doubling_round(x->group.me, x->group.n, x->round, &peer);
        if (kind == RILL__ROUND_END) return RILL_OK;
        int rank = rill__group_rank(&x->group, peer);
        if (kind != RILL__ROUND_RECEIVE && kind != RILL__ROUND_RESULT_RECEIVE && !x->sent) {
            rill__parcel *parcel;
            const void *mine = x->counted ? x->to : x->from;
            RILL_TRY(encode(run, x, mine, 0, x->count, &parcel));
            RILL_TRY(rill__run_send_parcel(run, rank, RILL__LANE_A, parcel));
            rill__run_round(run);
            x->sent = 1;
        }
        if (kind == RILL__ROUND_SEND || kind == RILL__ROUND_RESULT_SEND) continue;
        rill__received received;
        rill_status status = rill__run_receive(run, rank, RILL__LANE_A, &received);
        if (status != RILL_OK) return status;
        take_round(run, x, &received, peer, kind);
    }
}

/* ---- direct --------------------------------------------------------------------------------- */

/* Others' parts of their ranges leave, no more than a window ahead of what comes in (split.h). */
static rill_status send_parts(rill__run *run, rill__dense_sum *x) {
    while (x->sent < x->group.n - 1 && x->sent < x->collect.received + RILL__SPLIT_WINDOW) {
        int to = (x->group.me + ++x->sent) % x->group.n;
        rill__parcel *parcel;
        RILL_TRY(encode(run, x, x->from, bound(x, to), range(x, to), &parcel));
        RILL_TRY(rill__run_send_parcel(run, rill__group_rank(&x->group, to), RILL__LANE_A, parcel));
    }
    return RILL_OK;
}

static const void *piece_of(const rill__dense_sum *x, uint64_t first) {
    return x->from ? (const char *)x->from + first * size_of(x) : NULL; /* of a failed call */
}

/* All elements from first on of the sum, place after place. */
static void sum_parts(rill__run *run, const rill__dense_sum *x, uint64_t first, uint64_t all,
                      const void *mine, const void **parts) {
    size_t size = size_of(x);
    if (rill__run_failed(run)) return;
    parts[x->group.me] = mine;
    for (uint64_t at = 0, n; at < all; at += n) {
        n = rill__min_u64(TILE, all - at);
        const char *sum = (const char *)parts[0] + at * size;
        for (int i = 1; i < x->group.n; i++) {
            add(run, x, first + at, sum, (const char *)parts[i] + at * size, n);
            sum = (const char *)x->to + (first + at) * size;
        }
    }
}

static rill_status step_scattering(rill__run *run, rill__dense_sum *x) {
    for (;;) {
        rill__received received;
        RILL_TRY(send_parts(run, x));
        rill_status status = rill__collect_next(run, &x->collect, &received);
        if (status != RILL_OK) return status;
        if (received.place < 0) break;
        x->parts[received.place] = elements(run, x, &received.message, range(x, x->group.me));
        if (!x->parts[received.place]) continue;
        x->heard.nnz_sum += received.message.header.nnz_sum;
        x->heard.nnz_max = rill__most_of(x->heard.nnz_max, received.message.header.nnz_max);
    }
    rill__run_count(run, &x->heard); /* now that all messages of this rank alone have left */
    uint64_t first = bound(x, x->group.me);
    sum_parts(run, x, first, range(x, x->group.me), piece_of(x, first), x->parts);
    rill__parcel *mine;
    rill__problem among = *run->problem;
    among.ranks = x->group.n;
    double share = (double)x->count * (double)size_of(x) / x->group.n;
    RILL_TRY(encode(run, x, x->to, bound(x, x->group.me), range(x, x->group.me), &mine));
    return rill__gather_start_among(run, &x->gather, &x->group, rill__gather_choose(&among, share),
                                    mine);
}

static void take_sums(rill__run *run, const rill__dense_sum *x) {
    for (int i = 0; i < x->group.n; i++) {
        if (i == x->group.me) continue;
        const void *sum = elements(run, x, &x->gather.messages[i], range(x, i));
        if (rill__run_failed(run)) return;
        if (sum) copy(x, bound(x, i), sum, range(x, i));
        else
            rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE, "rank %d sent no data",
                                           rill__group_rank(&x->group, i)));
    }
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* Messages of a pair and a lane come in the order in which they were sent, and each is received by
 * its source: so its number tells which piece it has. */

static uint64_t piece_bound(const rill__dense_sum *x, int place, int piece) {
    return bound(x, place) + rill__uniform_bound(range(x, place), piece, x->pieces);
}

static uint64_t piece_range(const rill__dense_sum *x, int place, int piece) {
    return piece_bound(x, place, piece + 1) - piece_bound(x, place, piece);
}

/* [at, at + n) of this rank's entries. */
static void densify(const rill__run *run, const rill__dense_sum *x, uint64_t at, uint64_t n,
                    void *to) {
    rill__part slice = rill__part_slice(run->shape, x->sparse, at, n);
    rill__part_fill_to(run->shape, &slice, x->fill, to);
}

static rill_status encode_piece(rill__run *run, const rill__dense_sum *x, uint64_t at, uint64_t n,
                                rill__parcel **parcel) {
    void *to;
    if (!x->sparse) return encode(run, x, x->from, at, n, parcel);
    RILL_TRY(rill__run_encode_room(run, n * size_of(x), parcel, &to));
    if (to) densify(run, x, at, n, to);
    return RILL_OK;
}

/* The first pieces of all others' ranges leave, then the second, within the window. */
static rill_status send_pieces(rill__run *run, rill__dense_sum *x) {
    int others = x->group.n - 1;
    for (; x->sent < others * x->pieces && x->sent < x->came + AHEAD; x->sent++) {
        int piece = x->sent / others, to = (x->group.me + 1 + x->sent % others) % x->group.n;
        rill__parcel *parcel;
        RILL_TRY(
            encode_piece(run, x, piece_bound(x, to, piece), piece_range(x, to, piece), &parcel));
        RILL_TRY(rill__run_send_parcel(run, rill__group_rank(&x->group, to), RILL__LANE_A, parcel));
    }
    return RILL_OK;
}

/* The parts of a place for my range: as many as are there. */
static rill_status take_pieces(rill__run *run, rill__dense_sum *x, int place) {
    int *n = &x->parts_of[place];
    for (; *n < x->pieces; ++*n, x->came++) {
        rill__received received;
        rill_status status = rill__run_receive(run, rill__group_rank(&x->group, place),
                                               RILL__LANE_A, &received);
        if (status != RILL_OK) return status == RILL_IN_PROGRESS ? RILL_OK : status;
        const void *part = elements(run, x, &received.message, piece_range(x, x->group.me, *n));
        x->parts[*n * x->group.n + place] = part;
        x->held[*n * x->group.n + place] = received.parcel;
        if (!part || *n) continue;
        x->heard.nnz_sum += received.message.header.nnz_sum;
        x->heard.nnz_max = rill__most_of(x->heard.nnz_max, received.message.header.nnz_max);
    }
    return RILL_OK;
}

/* The same of its sums. */
static rill_status take_piece_sums(rill__run *run, rill__dense_sum *x, int place) {
    int *n = &x->sums_of[place];
    for (; *n < x->pieces; ++*n) {
        rill__received received;
        uint64_t all = piece_range(x, place, *n);
        rill_status status = rill__run_receive(run, rill__group_rank(&x->group, place),
                                               RILL__LANE_B, &received);
        if (status != RILL_OK) return status == RILL_IN_PROGRESS ? RILL_OK : status;
        const void *sum = elements(run, x, &received.message, all);
        if (sum && !rill__run_failed(run)) copy(x, piece_bound(x, place, *n), sum, all);
        rill__run_release(run, received.parcel);
    }
    return RILL_OK;
}

static bool has_all_parts(const rill__dense_sum *x, int piece) {
    bool all = true;
    for (int i = 0; i < x->group.n; i++)
        all &= i == x->group.me || x->parts_of[i] > piece;
    return all;
}

/* Pieces of my range that are complete: their sums leave. */
static rill_status sum_pieces(rill__run *run, rill__dense_sum *x) {
    int me = x->group.me;
    for (; x->summed < x->pieces && has_all_parts(x, x->summed); x->summed++) {
        uint64_t first = piece_bound(x, me, x->summed), all = piece_range(x, me, x->summed);
        rill__parcel *parcel, **held = x->held + x->summed * x->group.n;
        if (x->sparse && !rill__run_failed(run)) densify(run, x, first, all, x->mine);
        sum_parts(run, x, first, all, x->sparse ? x->mine : piece_of(x, first),
                  x->parts + x->summed * x->group.n);
        for (int i = 0; i < x->group.n; i++)
            if (held[i]) rill__run_release(run, held[i]);
        RILL_TRY(encode(run, x, x->to, first, all, &parcel));
        if (x->summed == 0) rill__run_round(run);
        for (int i = 1; i < x->group.n; i++)
            RILL_TRY(rill__run_send_parcel(run, rill__group_rank(&x->group, (me + i) % x->group.n),
                                           RILL__LANE_B, parcel));
    }
    return RILL_OK;
}

static rill_status step_pieces(rill__run *run, rill__dense_sum *x) {
    bool all = true;
    rill__run_release_sent(run);
    RILL_TRY(send_pieces(run, x));
    for (int i = 1; i < x->group.n; i++) {
        int place = (x->group.me + x->group.n - i) % x->group.n;
        RILL_TRY(take_pieces(run, x, place));
        RILL_TRY(take_piece_sums(run, x, place));
        all &= x->sums_of[place] == x->pieces;
    }
    RILL_TRY(sum_pieces(run, x));
    if (!all || x->summed < x->pieces || x->sent < (x->group.n - 1) * x->pieces)
        return RILL_IN_PROGRESS;
    rill__run_count(run, &x->heard);
    return RILL_OK;
}

/* Pieces of the longest range; 1: it is sent whole. All ranks know these alike. */
static int pieces_of(const rill__run *run, const rill__dense_sum *x) {
    double share = (double)x->count * (double)size_of(x) / x->group.n;
    if (run->hosts->n < 2 || share < LEAST_RANGE || share >= (double)PIECE * INT16_MAX) return 1;
    return (int)(share / PIECE) + 1;
}

static rill_status start_pieces(rill__run *run, rill__dense_sum *x) {
    size_t n = (size_t)x->group.n;
    x->stage = IN_PIECES;
    x->parts = rill__run_alloc(run, n * (size_t)x->pieces, sizeof *x->parts);
    x->parts_of = rill__run_alloc(run, 2 * n, sizeof *x->parts_of);
    x->held = rill__run_alloc(run, n * (size_t)x->pieces, sizeof *x->held);
    if (!x->parts || !x->parts_of || !x->held) return RILL_ERR_MEMORY;
    x->sums_of = x->parts_of + n;
    if (x->sparse) { /* without it the rank takes part with messages that say so */
        uint64_t most = range(x, x->group.me) / (uint64_t)x->pieces + 1;
        x->mine = rill__run_memory(run, most * size_of(x));
    }
    rill__run_round(run);
    return RILL_OK;
}

/* ---- the sum -------------------------------------------------------------------------------- */

/* By what all ranks know alike: a failed one, too, must take the same way. */
static bool doubles(const rill__run *run, const rill__dense_sum *x) {
    rill__problem among = *run->problem;
    among.ranks = x->group.n;
    double bytes = (double)x->count * (double)size_of(x);
    return x->group.n == 1 || doubling_time(&among, bytes) < direct_time(&among, bytes);
}

bool rill__dense_sum_in_pieces(const rill__run *run, const rill__dense_sum *x) {
    rill__dense_sum all = *x;
    all.group = rill__run_group(run, &x->group);
    return !doubles(run, &all) && pieces_of(run, &all) > 1;
}

static rill_status start(rill__run *run, rill__dense_sum *x) {
    x->group = rill__run_group(run, &x->group);
    x->stage = DOUBLING;
    if (doubles(run, x)) return RILL_OK;
    x->pieces = pieces_of(run, x);
    if (x->pieces > 1) return start_pieces(run, x);
    x->stage = SCATTERING;
    x->parts = rill__run_alloc(run, (size_t)x->group.n, sizeof *x->parts);
    if (!x->parts) return RILL_ERR_MEMORY;
    RILL_TRY(rill__collect_start(run, &x->collect, &x->group, RILL__LANE_A));
    rill__run_round(run);
    return RILL_OK;
}

rill_status rill__dense_sum_step(rill__run *run, rill__dense_sum *x) {
    rill_status status;
    if (x->stage == START) RILL_TRY(start(run, x));
    if (x->stage == DOUBLING) {
        status = step_doubling(run, x);
        if (status == RILL_OK && x->group.n == 1 && !rill__run_failed(run))
            copy(x, 0, x->from, x->count);
        return status;
    }
    if (x->stage == IN_PIECES) return step_pieces(run, x);
    if (x->stage == SCATTERING) {
        status = step_scattering(run, x);
        if (status != RILL_OK) return status;
        x->stage = GATHERING;
    }
    status = rill__gather_step(run, &x->gather);
    if (status == RILL_OK) take_sums(run, x);
    return status;
}
