/* The choice of auto: the same on all ranks whatever they contribute, over many calls whose sizes
 * change by orders of magnitude, with forced algorithms in between and several calls in flight.
 *   --calls N   (400) */
#include "runs.h"

#include <stdbool.h>

#define FLIGHT 5

/* Every rank has its own number of entries, which jumps from call to call. */
static test_case changing_case(uint64_t number, int key) {
    static const uint64_t dims[] = {2000, 20011, 200003};
    static const uint64_t gaps[] = {1, 3, 10, 100, 1000, 10000};
    rng r = rng_make(check.seed, 4000 + number);
    test_case c = {.collective = RILL_ALLREDUCE, .seed = rng_next(&r)};
    int algorithms = 0;
    while (case_algorithm(RILL_ALLREDUCE, algorithms))
        algorithms++;
    /* Two of three calls leave the choice to auto. */
    uint64_t pick = rng_below(&r, (uint64_t)algorithms * 3);
    c.algorithm = pick < (uint64_t)algorithms ? case_algorithm(RILL_ALLREDUCE, (int)pick) : "auto";
    c.op = key % 2 ? OP_MAX : OP_SUM;
    c.type = test_types[key % TYPE_COUNT];
    c.dim = dims[key % 3];
    c.gap = gaps[rng_below(&r, 6)];
    c.form = (form)rng_below(&r, FORM_COUNT);
    c.support = (support)rng_below(&r, SUPPORT_COUNT);
    if (c.dim > 100000 && check.size > 4) c.dim = 5003;
    c.partition = case_random_partition(&r);
    c.codec = case_random_codec(&r);
    c.expected_nnz = rng_below(&r, 5) ? 0 : rng_below(&r, c.dim);
    return c;
}

static void same_choice(const rill_stats *s) {
    check_same_on_all_ranks("the algorithm", hash_bytes(1, s->algorithm, strlen(s->algorithm)));
    check_same_on_all_ranks("the codec", hash_bytes(1, s->codec, strlen(s->codec)));
    CHECK(s->predicted_s >= 0 && s->predicted_s < 1000);
}

/* The first calls on a communicator agree on their sizes, and these agreements end in another order
 * on each rank. Sizes that differ by little, over the whole range, so that the choice changes
 * somewhere in between. */
static void first_calls(uint64_t round) {
    enum { MANY = 6, DIM = 4096 };
    check_case("first calls in flight, round %llu", (unsigned long long)round);
    rill_comm *comm = NULL;
    rill_stream *in[MANY] = {0}, *out[MANY] = {0};
    rill_request *requests[MANY] = {0};
    static uint32_t index[DIM];
    static float value[DIM];
    rng r = rng_make(check.seed, 6000 + round);
    uint64_t base = 16 + rng_below(&r, DIM / 2);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    for (int i = 0; i < MANY; i++) {
        uint64_t nnz = base + base * (uint64_t)((i * 5) % MANY) / 200;
        for (uint64_t j = 0; j < nnz; j++) {
            index[j] = (uint32_t)(j * 2 % DIM);
            value[j] = 1;
        }
        CHECK_OK(rill_stream_create(RILL_F32, DIM, &in[i]));
        CHECK_OK(rill_stream_create(RILL_F32, DIM, &out[i]));
        CHECK_OK(rill_stream_set_pairs(in[i], nnz, index, value));
        CHECK_OK(rill_iallreduce(comm, in[i], out[i], RILL_SUM, NULL, &requests[i]));
        if ((i + check.rank) % 3 == 0) CHECK_OK(rill_progress(comm));
    }
    CHECK_OK(rill_waitall(MANY, requests));
    for (int i = 0; i < MANY; i++) {
        rill_stats s = RILL_STATS_INIT;
        CHECK_OK(rill_request_stats(requests[i], &s));
        same_choice(&s);
        CHECK_OK(rill_request_free(&requests[i]));
        CHECK_OK(rill_stream_free(&in[i]));
        CHECK_OK(rill_stream_free(&out[i]));
    }
    CHECK_OK(rill_comm_free(&comm));
}

/* One rounded sum; returns a hash of its bits. */
static uint64_t rounded_sum(rill_comm *comm) {
    enum { DIM = 4096 };
    static float value[DIM];
    rill_stream *s = NULL;
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = "allgather";
    o.value_bits = 4;
    for (int i = 0; i < DIM; i++)
        value[i] = (float)(i * 7 % 101 + check.rank);
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &s));
    CHECK_OK(rill_stream_set_dense(s, value));
    CHECK_OK(rill_allreduce(comm, s, s, RILL_SUM, &o));
    CHECK_OK(rill_stream_get_dense(s, value));
    CHECK_OK(rill_stream_free(&s));
    return hash_bytes(1, value, sizeof value);
}

/* After rill_comm_forget calls repeat those on a new communicator: random rounding, and the
 * agreement on sizes that a first call needs. */
static void forget(void) {
    check_case("a communicator that forgets");
    rill_comm *comm = NULL;
    rill_stream *in = NULL, *out = NULL;
    rill_request *request = NULL;
    rill_stats s = RILL_STATS_INIT;
    uint64_t sums[2][2], messages[3];
    float one = 1;
    uint32_t at = 5;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++)
            sums[i][k] = rounded_sum(comm);
        CHECK_OK(rill_comm_forget(comm));
    }
    CHECK(sums[0][0] == sums[1][0] && sums[0][1] == sums[1][1]);
    if (check.size > 1) CHECK(sums[0][0] != sums[0][1]);
    CHECK_OK(rill_stream_create(RILL_F32, 1000, &in));
    CHECK_OK(rill_stream_create(RILL_F32, 1000, &out));
    CHECK_OK(rill_stream_set_pairs(in, 1, &at, &one));
    for (int i = 0; i < 3; i++) { /* the first, a later one, the first again */
        if (i == 2) CHECK_OK(rill_comm_forget(comm));
        CHECK_OK(rill_allreduce(comm, in, out, RILL_SUM, NULL));
        CHECK_OK(rill_comm_stats(comm, &s));
        messages[i] = s.messages;
    }
    CHECK_INT(messages[2], ==, messages[0]);
    if (check.size > 1) CHECK_INT(messages[1], <, messages[0]);
    if (check.rank > 0) MPI_Barrier(MPI_COMM_WORLD); /* rank 0's cannot be complete before */
    CHECK_OK(rill_iallreduce(comm, in, out, RILL_SUM, NULL, &request));
    if (check.rank == 0) {
        if (check.size > 1) CHECK_STATUS(rill_comm_forget(comm), RILL_ERR_STATE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK_OK(rill_wait(request));
    CHECK_OK(rill_request_free(&request));
    CHECK_STATUS(rill_comm_forget(NULL), RILL_ERR_ARGUMENT);
    CHECK_OK(rill_stream_free(&in));
    CHECK_OK(rill_stream_free(&out));
    CHECK_OK(rill_comm_free(&comm));
}

/* Of the first call of a kind whose algorithm is given nothing is known, and nothing predicted;
 * where the planner chooses it has asked. */
static void predictions(void) {
    rill_comm *comm = NULL;
    rill_stream *s = NULL;
    uint32_t at[3] = {1, 5, 9 + (uint32_t)check.rank};
    float one[3] = {1, 1, 1};
    check_case("predictions of first calls");
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    for (int given = 0; given < 2; given++) {
        rill_options o = RILL_OPTIONS_INIT;
        if (given) o.algorithm = "recursive_double";
        for (int call = 0; call < 3; call++) {
            rill_stats stats = RILL_STATS_INIT;
            CHECK_OK(rill_stream_create(RILL_F32, 3000 + (uint64_t)given, &s));
            CHECK_OK(rill_stream_set_pairs(s, 3, at, one));
            CHECK_OK(rill_allreduce(comm, s, s, RILL_SUM, &o));
            CHECK_OK(rill_comm_stats(comm, &stats));
            if (check.size > 1) CHECK((stats.predicted_s > 0) == (!given || call > 0));
            CHECK_OK(rill_stream_free(&s));
        }
    }
    CHECK_OK(rill_comm_free(&comm));
}

/* Several ranks share a host; taken as true of hosts that are pretended. */
static int has_use_for_hier(const char *pretended) {
    MPI_Comm host;
    int here = 1, most = 1;
    if (pretended) return strcmp(pretended, "1") != 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    MPI_Allreduce(&here, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return most > 1;
}

/* Sends the same sum three times, blocking, with balanced bounds; returns the bytes that the
 * busiest rank sent in the first and in the last. */
static void send_thrice(bool forget, uint64_t most[2]) {
    enum { DIM = 1000000, FREQUENT = 2000, RARE = 2000 };
    static uint32_t index[FREQUENT + RARE];
    static float value[FREQUENT + RARE];
    rill_comm *comm = NULL;
    rill_stream *in = NULL, *out = NULL;
    rill_options o = RILL_OPTIONS_INIT;
    rng r = rng_make(check.seed, 7000 + (uint64_t)check.rank);
    for (uint32_t i = 0; i < FREQUENT + RARE; i++) { /* rare: each rank has its own */
        uint32_t step = (uint32_t)(i - FREQUENT) * 400 + (uint32_t)check.rank % 400;
        index[i] = i < FREQUENT ? i : 100000 + step;
        value[i] = 1 + (float)rng_below(&r, 16); /* sums are exact in any order */
    }
    o.algorithm = "split_allgather";
    o.codec = "raw";
    o.partition = "balanced";
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &in));
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &out));
    CHECK_OK(rill_stream_set_pairs(in, FREQUENT + RARE, index, value));
    uint64_t bits = 0;
    for (int call = 0; call < 3; call++) {
        rill_stats stats = RILL_STATS_INIT;
        if (forget) CHECK_OK(rill_comm_forget(comm));
        CHECK_OK(rill_allreduce(comm, in, out, RILL_SUM, &o));
        CHECK_OK(rill_comm_stats(comm, &stats));
        uint64_t now = hash_bytes(1, rill_stream_values(out), rill_stream_nnz(out) * 4);
        now = hash_bytes(now, rill_stream_indices32(out), rill_stream_nnz(out) * 4);
        if (!call) bits = now;
        CHECK(now == bits);
        check_same_on_all_ranks("the sum", now);
        MPI_Allreduce(&stats.sent_bytes, &most[call > 0], 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    }
    CHECK_OK(rill_stream_free(&in));
    CHECK_OK(rill_stream_free(&out));
    CHECK_OK(rill_comm_free(&comm));
}

/* Indices that all ranks have are few of the sum: bounds that are even in the inputs alone leave an
 * owner of rare ones with more to send than others, until a result has been seen. */
static void bounds_learn(void) {
    uint64_t most[2];
    check_case("bounds from the last result");
    send_thrice(false, most);
    if (check.size >= 4) CHECK(10 * most[1] < 9 * most[0]);
    check_case("bounds that are forgotten");
    send_thrice(true, most);
    CHECK(most[0] == most[1]);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    uint64_t calls = check_number(argc, argv, "--calls", 400), number = 0;
    rill_comm *comm = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    rng r = rng_make(check.seed, 3);
    char seen[16][32] = {{0}};
    int kinds = 0;
    for (uint64_t round = 0; round < calls / 4; round++)
        first_calls(round);
    forget();
    predictions();
    while (number < calls) {
        /* The same few keys (dim, type, op) again and again, or rarely one of many (evicted). */
        int flight = 1 + (int)rng_below(&r, FLIGHT);
        test_run runs[FLIGHT];
        for (int i = 0; i < flight; i++) {
            int key = (int)rng_below(&r, 8);
            test_case c = changing_case(number + (uint64_t)i, key);
            if (rng_below(&r, 6) == 0) c.dim = 100 + rng_below(&r, 300);
            case_announce(&c, (long)number + i);
            runs[i] = run_make(&c);
        }
        for (int i = 0; i < flight; i++) {
            case_announce(&runs[i].c, (long)number + i);
            CHECK_OK(run_call(&runs[i], comm, rng_below(&r, 3) ? RUN_NONBLOCKING : RUN_BLOCKING));
            if (runs[i].request) continue;
            rill_stats stats = RILL_STATS_INIT;
            CHECK_OK(rill_comm_stats(comm, &stats));
            same_choice(&stats);
        }
        for (int i = 0; i < flight; i++) {
            test_run *run = &runs[(i + check.rank) % flight];
            if (run->request) CHECK_OK(rill_wait(run->request));
        }
        for (int i = 0; i < flight; i++) {
            case_announce(&runs[i].c, (long)number + i);
            run_verify(&runs[i]);
            if (runs[i].request) {
                rill_stats stats = RILL_STATS_INIT;
                CHECK_OK(rill_request_stats(runs[i].request, &stats));
                same_choice(&stats);
                int k = 0;
                if (strcmp(runs[i].c.algorithm, "auto") == 0) {
                    while (k < kinds && strcmp(seen[k], stats.algorithm) != 0)
                        k++;
                    if (k == kinds && kinds < 16)
                        snprintf(seen[kinds++], sizeof seen[0], "%s", stats.algorithm);
                }
            }
            run_free(&runs[i]);
        }
        number += (uint64_t)flight;
        if (check.failures) break; /* ranks may have lost step */
    }
    if (!check.failures) bounds_learn();
    check_case("what auto chose");
    if (check.size > 1 && !check.failures) CHECK_INT(kinds, >=, 2);
    int used = has_use_for_hier(check_argument(argc, argv, "--hosts"));
    for (int k = 0; k < kinds && !used; k++)
        CHECK(strcmp(seen[k], "hier") != 0);
    if (check.rank == 0)
        for (int k = 0; k < kinds; k++)
            printf("%s%s", k ? ", " : "auto chose ", seen[k]);
    if (check.rank == 0) printf("\n");
    if (!check.failures) CHECK_OK(rill_comm_free(&comm));
    return cases_finish(10);
}
