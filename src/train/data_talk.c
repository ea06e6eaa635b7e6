/* What ranks tell each other: a status, a few numbers, bytes of different lengths. By gathers of
 * bytes, so that sums have one order whatever the link, and without memory that a rank may lack.
 */
#include "train/data_internal.h"

#include <string.h>
#include <time.h>

enum { DETAIL = 512, ROOM = 1 << 15 }; /* bytes of a gather, on the stack */

double rill__now(void) {
    if (rill__mpi_simulated()) return rill__mpi_seconds();
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- numbers -------------------------------------------------------------------------------- */

typedef union number {
    uint64_t u64;
    double f64;
} number;

typedef void combine_fn(number *into, const number *from);

static void sum_u64(number *into, const number *from) { into->u64 += from->u64; }
static void sum_f64(number *into, const number *from) { into->f64 += from->f64; }
static void most_u64(number *into, const number *from) {
    if (from->u64 > into->u64) into->u64 = from->u64;
}
static void least_u64(number *into, const number *from) {
    if (from->u64 < into->u64) into->u64 = from->u64;
}
static void most_f64(number *into, const number *from) {
    if (from->f64 > into->f64) into->f64 = from->f64;
}

/* One value, of the lowest `ranks` ranks. */
static rill_status combine_one(rill_comm *comm, number *value, int ranks, combine_fn *combine) {
    number mine = *value, all[ROOM / sizeof(number)];
    int size = rill_comm_size(comm);
    if (size <= ROOM / (int)sizeof(number)) {
        RILL_TRY_DATA(rill_comm_gather_bytes(comm, &mine, sizeof mine, all));
        for (int r = 0; r < ranks; r++)
            if (r) combine(value, &all[r]);
            else *value = all[0];
        return RILL_OK;
    }
    for (int r = 0; r < size; r++) { /* more than there is room for: one after the other */
        number other = mine;
        RILL_TRY_DATA(rill_comm_bcast_bytes(comm, &other, sizeof other, r));
        if (r >= ranks) continue;
        if (r) combine(value, &other);
        else *value = other;
    }
    return RILL_OK;
}

static rill_status combine_all(rill_comm *comm, void *values, int n, combine_fn *combine) {
    int size = rill_comm_size(comm);
    number mine[64], all[ROOM / sizeof(number)];
    const int most = (int)(sizeof mine / sizeof *mine);
    char *at = values; /* doubles or integers */
    while (n) {
        int some = n < most ? n : most;
        if (some > ROOM / (int)sizeof(number) / size) some = 1;
        size_t bytes = (size_t)some * sizeof *mine;
        memcpy(mine, at, bytes);
        if (some == 1) RILL_TRY_DATA(combine_one(comm, mine, size, combine));
        else {
            RILL_TRY_DATA(rill_comm_gather_bytes(comm, mine, bytes, all));
            memcpy(mine, all, bytes);
            for (int i = some; i < size * some; i++)
                combine(&mine[i % some], &all[i]);
        }
        memcpy(at, mine, bytes);
        at += bytes;
        n -= some;
    }
    return RILL_OK;
}

rill_status rill__sum_u64(rill_comm *comm, uint64_t *values, int n) {
    return combine_all(comm, values, n, sum_u64);
}
rill_status rill__most_u64(rill_comm *comm, uint64_t *values, int n) {
    return combine_all(comm, values, n, most_u64);
}
rill_status rill__sum_f64(rill_comm *comm, double *values, int n) {
    return combine_all(comm, values, n, sum_f64);
}
rill_status rill__most_f64(rill_comm *comm, double *values, int n) {
    return combine_all(comm, values, n, most_f64);
}

rill_status rill__sum_before(rill_comm *comm, uint64_t mine, uint64_t *sum) {
    number value = {.u64 = mine};
    int rank = rill_comm_rank(comm);
    RILL_TRY_DATA(combine_one(comm, &value, rank, sum_u64));
    *sum = rank ? value.u64 : 0;
    return RILL_OK;
}

/* ---- a status ------------------------------------------------------------------------------- */

rill_status rill__data_agree(rill_comm *comm, rill_status mine) {
    enum { FIRST_HAND, TOLD, NONE };
    char text[DETAIL];
    int status = mine;
    /* A text that begins with a rank is what that rank told: its own words are better. */
    uint64_t order = mine == RILL_OK                          ? NONE
                     : strncmp(rill_last_error(), "rank ", 5) ? FIRST_HAND
                                                              : TOLD;
    snprintf(text, sizeof text, "%s", rill_last_error());
    number first = {.u64 = order << 32 | (uint64_t)rill_comm_rank(comm)};
    RILL_TRY_DATA(combine_all(comm, &first, 1, least_u64));
    if (first.u64 >> 32 == NONE) return RILL_OK;
    int rank = (int)(first.u64 & UINT32_MAX);
    RILL_TRY_DATA(rill_comm_bcast_bytes(comm, &status, sizeof status, rank));
    RILL_TRY_DATA(rill_comm_bcast_bytes(comm, text, sizeof text, rank));
    text[DETAIL - 1] = '\0';
    return rill_error_set((rill_status)status, text);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Piece after piece of each rank, as many bytes as there is room for all of them. */
rill_status rill__gather_all(rill_comm *comm, const void *mine, const uint64_t *bytes, void *all) {
    char room[ROOM], piece[ROOM];
    int size = rill_comm_size(comm), rank = rill_comm_rank(comm);
    uint64_t most = 0, each = ROOM / (uint64_t)size;
    if (!each)
        return rill__data_fail(RILL_ERR_UNSUPPORTED, "%d ranks are more than %d", size, (int)ROOM);
    for (int r = 0; r < size; r++)
        if (bytes[r] > most) most = bytes[r];
    for (uint64_t at = 0; at < most; at += each) {
        memset(piece, 0, (size_t)each);
        if (at < bytes[rank]) {
            uint64_t n = bytes[rank] - at < each ? bytes[rank] - at : each;
            memcpy(piece, (const char *)mine + at, (size_t)n);
        }
        RILL_TRY_DATA(rill_comm_gather_bytes(comm, piece, (size_t)each, room));
        uint64_t first = 0;
        for (int r = 0; all && r < size; first += bytes[r++]) {
            if (at >= bytes[r]) continue;
            uint64_t n = bytes[r] - at < each ? bytes[r] - at : each;
            memcpy((char *)all + first + at, room + (uint64_t)r * each, (size_t)n);
        }
    }
    return RILL_OK;
}
