#include "coll/patterns/host_sum.h"
#include "coll/outside.h"
#include "link/reach.h"

#include <string.h>

enum { PIECE = 1 << 19 }; /* bytes: the cache has room for some of them */
enum { LINE = 64 };       /* copies take less time between equal places in a line */
enum { PATIENCE = 10 };   /* times the link's, for memory that can't be read */
enum { FROM, TO, WORDS }; /* of a message: where arrays lie */

/* ---- costs ---------------------------------------------------------------------------------- */

double rill__host_sum_estimate(const rill__problem *p, double bytes) {
    double others = bytes * (p->ranks - 1) / p->ranks;
    return 3 * (p->c->host_latency + (p->ranks - 2) * p->c->message) +
           others * (p->c->host_byte + 3 * p->c->dense_add);
}

/* As they do it: the first and the last byte of it. */
bool rill__host_sum_can_lend(const rill__run *run, const void *from, size_t bytes) {
    const rill__reach *reach = &run->outside->task->engine->reach;
    uint64_t at = (uint64_t)(uintptr_t)from;
    char byte;
    return !bytes || (rill__reach_read(reach, run->rank, at, &byte, 1) &&
                      rill__reach_read(reach, run->rank, at + bytes - 1, &byte, 1));
}

/* ---- ranges --------------------------------------------------------------------------------- */

static uint64_t bound(const rill__run *run, const rill__host_sum *x, int place) {
    return rill__uniform_bound(x->count, place, run->size);
}

static uint64_t range(const rill__run *run, const rill__host_sum *x, int place) {
    return bound(run, x, place + 1) - bound(run, x, place);
}

static const rill__group everybody = {.n = 0};

/* ---- messages ------------------------------------------------------------------------------- */

static rill_status tell_all(rill__run *run, int lane, const void *words, size_t bytes) {
    rill__parcel *parcel;
    RILL_TRY(rill__run_encode_bytes(run, words, bytes, &parcel));
    for (int i = 1; i < run->size; i++)
        RILL_TRY(rill__run_send_parcel(run, (run->rank + i) % run->size, lane, parcel));
    rill__run_round(run);
    return RILL_OK;
}

/* Words of a message; NULL: it has none, which is recorded. */
static const void *words_of(rill__run *run, const rill__received *r, uint64_t n) {
    if (rill__received_nothing(r)) return NULL;
    const rill__header *h = &r->message.header;
    if (h->form == RILL__M_AGREE && h->count == n) return r->message.payload;
    rill__run_fail(run, rill__fail(RILL_ERR_MESSAGE,
                                   "malformed message: not the %llu words of a sum on one host",
                                   (unsigned long long)n));
    return NULL;
}

/* ---- stages --------------------------------------------------------------------------------- */

static rill_status start(rill__run *run, rill__host_sum *x) {
    x->reading = -1;
    x->place = rill__run_alloc(run, (size_t)run->size, sizeof *x->place);
    x->piece = rill__run_memory(run, PIECE + 2 * LINE);
    if (x->piece) x->piece = (char *)x->piece + (LINE - (uintptr_t)x->piece % LINE);
    if (!x->place) return RILL_ERR_MEMORY;
    uint64_t words[WORDS] = {(uint64_t)(uintptr_t)x->from, (uint64_t)(uintptr_t)x->to};
    RILL_TRY(rill__collect_start(run, &x->collect, &everybody, RILL__LANE_A));
    return tell_all(run, RILL__LANE_A, words, sizeof words);
}

static rill_status hear_places(rill__run *run, rill__host_sum *x) {
    for (;;) {
        rill__received received;
        rill_status status = rill__collect_next(run, &x->collect, &received);
        if (status != RILL_OK) return status;
        if (received.place < 0) break;
        const void *words = words_of(run, &received, WORDS);
        if (!words) continue;
        memcpy(x->place[received.place], words, sizeof *x->place);
        x->heard.nnz_sum += received.message.header.nnz_sum;
        x->heard.nnz_max = rill__most_of(x->heard.nnz_max, received.message.header.nnz_max);
    }
    rill__run_count(run, &x->heard);
    return RILL_OK;
}

/* Reads from a rank's memory. RILL_IN_PROGRESS: it can't be read. What ends the call is on its way
 * then, or there is something that nobody thought of, which must not be waited for. */
static rill_status read_from(rill__run *run, rill__host_sum *x, int rank, uint64_t from, void *to,
                             size_t bytes) {
    rill__engine *engine = run->outside->task->engine;
    if (rill__reach_read(&engine->reach, rank, from, to, bytes)) return RILL_OK;
    double now = engine->table->clock(engine->link);
    if (!x->waits) x->since = now;
    x->waits = true;
    if (now - x->since <= PATIENCE * engine->link->patience) return RILL_IN_PROGRESS;
    return rill__run_fail(run, rill__fail(RILL_ERR_STATE,
                                          "rank %d: its memory can't be read any more", rank));
}

/* All of a piece was read. One rank's part of it alone is no progress: it is read again and again
 * where another's can't be, and who moves on does not look for who is gone. */
static rill_status have_read(rill__run *run, rill__host_sum *x) {
    run->outside->task->moved = true;
    x->waits = false;
    return RILL_OK;
}

/* n elements from first on, of all ranks in turn. The first ones are where the sum will be. */
static rill_status add_piece(rill__run *run, rill__host_sum *x, uint64_t first, uint64_t n) {
    size_t size = rill__type_size(x->type), at = first * size, bytes = n * size;
    const char *mine = (const char *)x->from + at;
    char *sum = (char *)x->to + at;
    for (int i = 0; i < run->size; i++) {
        char *piece = (char *)x->piece + (x->place[i][FROM] + at) % LINE;
        const void *next = i == run->rank ? mine : piece;
        void *to = i ? piece : sum;
        if (i != run->rank) {
            rill_status status = read_from(run, x, i, x->place[i][FROM] + at, to, bytes);
            if (status != RILL_OK || rill__run_failed(run)) return status;
        }
        const void *lower = i == 1 && run->rank == 0 ? mine : sum;
        if (i) rill__run_combine(run, x->type, x->op, sum, lower, next, n);
    }
    return have_read(run, x);
}

static rill_status add_range(rill__run *run, rill__host_sum *x) {
    uint64_t all = range(run, x, run->rank), most = PIECE / rill__type_size(x->type);
    while (x->done < all && !rill__run_failed(run)) {
        uint64_t n = rill__min_u64(most, all - x->done);
        rill_status status = add_piece(run, x, bound(run, x, run->rank) + x->done, n);
        if (status != RILL_OK) return status;
        x->done += n;
    }
    x->done = 0;
    RILL_TRY(rill__collect_start(run, &x->collect, &everybody, RILL__LANE_B));
    return tell_all(run, RILL__LANE_B, NULL, 0);
}

/* The range of that owner, who has summed it. */
static rill_status read_range(rill__run *run, rill__host_sum *x, int owner) {
    size_t size = rill__type_size(x->type), at = bound(run, x, owner) * size;
    if (rill__run_failed(run)) return RILL_OK;
    rill_status status = read_from(run, x, owner, x->place[owner][TO] + at, (char *)x->to + at,
                                   range(run, x, owner) * size);
    return status != RILL_OK || rill__run_failed(run) ? status : have_read(run, x);
}

static rill_status read_ranges(rill__run *run, rill__host_sum *x) {
    for (;; x->reading = -1) {
        rill_status status;
        if (x->reading < 0) {
            rill__received received;
            status = rill__collect_next(run, &x->collect, &received);
            if (status != RILL_OK) return status;
            if (received.place < 0) break;
            if (!words_of(run, &received, 0)) continue;
            x->reading = received.place;
        }
        status = read_range(run, x, x->reading);
        if (status != RILL_OK) return status;
    }
    RILL_TRY(rill__collect_start(run, &x->collect, &everybody, RILL__LANE_A));
    return tell_all(run, RILL__LANE_A, NULL, 0);
}

static rill_status hear_farewells(rill__run *run, rill__host_sum *x) {
    for (;;) {
        rill__received received;
        rill_status status = rill__collect_next(run, &x->collect, &received);
        if (status != RILL_OK || received.place < 0) return status;
        words_of(run, &received, 0);
    }
}

rill_status rill__host_sum_step(rill__run *run, rill__host_sum *x) {
    static rill_status (*const stages[])(rill__run *, rill__host_sum *) = {start, hear_places,
                                                                           add_range, read_ranges,
                                                                           hear_farewells};
    for (; x->stage < (int)(sizeof stages / sizeof *stages); x->stage++) {
        rill_status status = stages[x->stage](run, x);
        if (status != RILL_OK) return status;
    }
    return RILL_OK;
}
