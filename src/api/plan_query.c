/* rill_plan: what the planner would do, without a communicator. */
#include "api/comm.h"
#include "coll/patterns/mpi_allreduce.h"
#include "core/isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CALL "rill_plan: "
enum { MOST_RANKS = 1 << 24 }; /* include/rill/rill.h names it */

static rill_status check(const rill_plan_query *q) {
    if (q->ranks < 1)
        return rill__fail(RILL_ERR_ARGUMENT, CALL "ranks = %d is not positive", q->ranks);
    if (q->ranks > MOST_RANKS) /* the estimates count rounds and messages in int */
        return rill__fail(RILL_ERR_ARGUMENT, CALL "ranks = %d is over %d", q->ranks, MOST_RANKS);
    if (q->hosts < 1 || q->hosts > q->ranks)
        return rill__fail(RILL_ERR_ARGUMENT, CALL "hosts = %d is not from 1 to %d, the ranks",
                          q->hosts, q->ranks);
    if ((int)q->collective < 0 || (int)q->collective >= RILL__TABLES)
        return rill__fail(RILL_ERR_ARGUMENT, CALL "collective = %d is unknown", (int)q->collective);
    if (!rill_type_size(q->type))
        return rill__fail(RILL_ERR_ARGUMENT, CALL "type = %d is unknown", (int)q->type);
    if (q->nnz > q->dim)
        return rill__fail(RILL_ERR_ARGUMENT, CALL "nnz = %llu is more than dim = %llu",
                          (unsigned long long)q->nnz, (unsigned long long)q->dim);
    if (!(q->latency_s >= 0 && q->latency_s < INFINITY))
        return rill__fail(RILL_ERR_ARGUMENT, CALL "latency_s = %g is negative or not finite",
                          q->latency_s);
    if (q->memory != RILL_HOST && q->memory != RILL_CUDA)
        return rill__fail(RILL_ERR_ARGUMENT, CALL "memory = %d is unknown", (int)q->memory);
    if (!(q->bits_per_second >= 0 && q->bits_per_second < INFINITY))
        return rill__fail(RILL_ERR_ARGUMENT, CALL "bits_per_second = %g is negative or not finite",
                          q->bits_per_second);
    if (q->link && strcmp(q->link, "mpi") && strcmp(q->link, "ucx") && strcmp(q->link, "local"))
        return rill__fail(RILL_ERR_ARGUMENT, CALL "link = '%s' is not mpi, ucx or local", q->link);
    return RILL_OK;
}

/* Ranks per processor, where all hosts are like this one. */
static double crowding_of(int most_per_host) {
    double crowding = (double)most_per_host / rill__processors();
    return crowding > 1 ? crowding : 1;
}

static rill_status load(const rill_plan_query *q, rill__planner *planner) {
    const char *named = q->profile ? q->profile : getenv("RILL_PROFILE");
    rill__profile *profile = &planner->profile;
    double crowding = crowding_of(planner->most_per_host);
    bool there = false;
    rill__seating seating = {q->ranks, q->hosts, planner->together, crowding};
    RILL_TRY(rill__profile_find(named ? named : "", &seating, profile, &planner->device, &there));
    bool built_in = !there;
    if (built_in)
        rill__constants_default(&profile->constants, q->hosts, planner->together, crowding);
    if (q->latency_s > 0 || q->bits_per_second > 0) {
        /* Another network than the profile's: what was measured there does not hold. */
        profile->points = 0;
        rill__network network = {.latency = q->latency_s > 0 ? q->latency_s : 25e-6,
                                 .rate = q->bits_per_second > 0 ? q->bits_per_second : 1e10};
        if (built_in) rill__constants_network(&profile->constants, &network);
        if (q->latency_s > 0) profile->constants.latency = q->latency_s;
        if (q->bits_per_second > 0) {
            profile->constants.byte = 8 / q->bits_per_second;
            profile->constants.mpi_byte = 2 * profile->constants.byte;
        }
    }
    return RILL_OK;
}

static rill_status settings_of(const rill_comm *comm, const rill_plan_query *q, rill__settings *s) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = "auto";
    o.codec = q->codec;
    o.partition = q->partition;
    o.value_bits = q->value_bits;
    o.allow_bits = q->allow_bits;
    o.block = q->block;
    o.expected_nnz = q->result;
    RILL_TRY(rill__settings_resolve(comm, q->collective, &o, s));
    s->on_devices = q->memory == RILL_CUDA;
    return RILL_OK;
}

/* The choice is among all rows, also those that there is no room for. */
static int list(const rill__planner *planner, const rill__settings *settings,
                const rill__problem *p, rill_plan_row *rows, int capacity) {
    int n = 0;
    rill__candidate best = {.algorithm = NULL};
    rill_plan_row beyond;
    if (p->ranks > 1) rill__plan_best(planner, settings, p, &best);
    for (int i = 0; rill__algorithm_at(p->collective, i); i++) {
        const rill__algorithm *a = rill__algorithm_at(p->collective, i);
        rill__candidate next = {.algorithm = a, .problem = *p};
        rill__problem *way = &next.problem;
        rill_plan_row *row = n < capacity ? &rows[n++] : &beyond;
        *row = (rill_plan_row){.algorithm = a->name, .codec = "", .partition = ""};
        row->refuses = a->supports(p);
        if (row->refuses) continue;
        row->seconds = next.time = p->ranks == 1 ? planner->profile.constants.overhead
                                                 : rill__plan_way(planner, settings, a, way);
        row->codec = way->codec->name;
        row->partition = way->partition == RILL__BALANCED ? "balanced" : "uniform";
        row->value_bits = way->value_bits;
        row->sums = way->away ? RILL_CUDA : RILL_HOST;
        if (!best.algorithm && rill__plan_considers(a, p)) best = next;
        row->chosen = a == best.algorithm;
    }
    return n;
}

/* An older program's query is shorter: what it does not have is as unset. */
rill_status rill_plan(const rill_plan_query *given, rill_plan_row *rows, int capacity, int *n) {
    rill_plan_query whole = RILL_PLAN_QUERY_INIT, *query = &whole;
    if (!given || !n || (!rows && capacity > 0))
        return rill__fail(RILL_ERR_ARGUMENT, CALL "query, rows or n is NULL");
    *n = 0;
    if (given->size < offsetof(rill_plan_query, result))
        return rill__fail(RILL_ERR_ARGUMENT, CALL "query.size %zu: use RILL_PLAN_QUERY_INIT",
                          given->size);
    memcpy(query, given, rill__min_u64(given->size, sizeof whole));
    RILL_TRY(check(query));
    rill_comm *comm = rill__calloc(1, sizeof *comm); /* settings and planner of one, nothing else */
    if (!comm) return rill__fail(RILL_ERR_MEMORY, CALL "out of memory");
    rill__planner *planner = &comm->planner;
    planner->hosts = query->hosts;
    planner->sums_bits = rill__space_adds_bits(rill__host());
    planner->mpi_sums = query->link ? strcmp(query->link, "mpi") == 0 : rill__mpi_is_built_in();
    planner->most_per_host = (query->ranks + query->hosts - 1) / query->hosts;
    planner->together = planner->most_per_host;
    bool processes = !query->link || strcmp(query->link, "local") != 0;
    planner->read_bytes = processes && query->hosts == 1 ? rill__comm_read_bytes(query->ranks) : 0;
    planner->shares = processes;
    rill__settings settings;
    rill_status status = load(query, planner);
    if (status == RILL_OK) status = settings_of(comm, query, &settings);
    if (status == RILL_OK) {
        rill__observed seen = {.known = true, .nnz_max = query->nnz};
        if (__builtin_mul_overflow(query->nnz, (uint64_t)query->ranks, &seen.nnz_sum))
            seen.nnz_sum = UINT64_MAX;
        rill__problem p = rill__plan_problem(planner, &settings, query->collective, query->ranks,
                                             query->dim, query->type, RILL_SUM, &seen);
        if (query->collective == RILL_REDUCER) p.k = (double)query->nnz;
        *n = list(planner, &settings, &p, rows, capacity);
    }
    free(comm);
    return status;
}
