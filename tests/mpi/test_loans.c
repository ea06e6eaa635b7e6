/* Long messages between ranks of a host over MPI are lent (link/link_mpi_loans.h): that they are
 * where ranks may read each other's memory, that nobody waits for a sender that computes, and that
 * nothing depends on it. More loans in flight than entries that are there at once, messages in
 * parts, what failed calls leave behind, several communicators. */
#include "check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <time.h>

enum { DIM = 200000, LONG = 20000, FLIGHT = 80, LEAST = 4000, GIVE_UP_S = 60 };

/* ---- what MPI is given ----------------------------------------------------------------------- */

static atomic_long longest;

#if defined(RILL_NO_MPI) || defined(SMPI_H)
enum { COUNTED = 0 };
#else
enum { COUNTED = 1 };

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    if (n > atomic_load(&longest)) atomic_store(&longest, n);
    return PMPI_Isend(data, n, type, to, tag, comm, request);
}
#endif

static bool lends;

/* Whether all ranks may read and write each other's memory. */
static void find_out(void) {
#if !defined(RILL_NO_MPI) && !defined(SMPI_H)
    static long word;
    long mine[2] = {getpid(), (long)(uintptr_t)&word}, all[64][2];
    int good = check.size <= 64 && !test_link_is_ucx(), every = 0;
    if (good) MPI_Allgather(mine, 2, MPI_LONG, all, 2, MPI_LONG, MPI_COMM_WORLD);
    for (int i = 0; good && i < check.size; i++) {
        long got = 0;
        struct iovec here = {&got, sizeof got}, there = {(void *)(uintptr_t)all[i][1], sizeof got};
        good = process_vm_readv((pid_t)all[i][0], &here, 1, &there, 1, 0) == sizeof got &&
               process_vm_writev((pid_t)all[i][0], &here, 1, &there, 1, 0) == sizeof got;
    }
    MPI_Allreduce(&good, &every, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    lends = every != 0;
#endif
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct call {
    int n;
    rill_stream *in, *out;
    rill_request *request;
} call;

static uint32_t indices[LONG];
static float values[LONG], got[DIM], want[DIM];

/* n entries, 7 apart, from the rank's number on. */
static void fill(call *c, int rank, int n) {
    c->n = n;
    for (int i = 0; i < n; i++) {
        indices[i] = (uint32_t)(rank + 7 * i);
        values[i] = (float)(1 + i % 5);
    }
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &c->in));
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &c->out));
    CHECK_OK(rill_stream_set_pairs(c->in, (uint64_t)n, indices, values));
}

static void verify(const call *c, int size) {
    long wrong = 0;
    memset(want, 0, sizeof want);
    for (int rank = 0; rank < size; rank++)
        for (int i = 0; i < c->n; i++)
            want[rank + 7 * i] += (float)(1 + i % 5);
    CHECK_OK(rill_stream_get_dense(c->out, got));
    for (int i = 0; i < DIM; i++)
        wrong += got[i] != want[i];
    CHECK_INT(wrong, ==, 0);
}

static void drop(call *c) {
    rill_stream_free(&c->in);
    rill_stream_free(&c->out);
}

static rill_options options(const char *algorithm) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.codec = "raw";
    return o;
}

static const char *const algorithms[] = {"recursive_double", "split_allgather", "ring", "allgather",
                                         "dsar"};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

/* Returns the longest message that MPI was given. */
static long serve(rill_comm *comm, int flight, int n) {
    call calls[FLIGHT];
    int size = rill_comm_size(comm), rank = rill_comm_rank(comm);
    atomic_store(&longest, 0);
    for (int a = 0; a < ALGORITHMS; a++) {
        rill_options o = options(algorithms[a]);
        for (int i = 0; i < flight; i++)
            fill(&calls[i], rank, n);
        for (int i = 0; i < flight; i++)
            CHECK_OK(
                rill_iallreduce(comm, calls[i].in, calls[i].out, RILL_SUM, &o, &calls[i].request));
        for (int i = 0; i < flight; i++) {
            call *c = &calls[rank % 2 ? i : flight - 1 - i];
            CHECK_OK(rill_wait(c->request));
            CHECK_OK(rill_request_free(&c->request));
            verify(c, size);
            drop(c);
        }
    }
    return atomic_load(&longest);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void create(const char *read_bytes, uint64_t split_limit, rill_comm **comm) {
    rill_config config = RILL_CONFIG_INIT;
    config.split_limit = split_limit;
    if (read_bytes) setenv("RILL_READ_BYTES", read_bytes, 1);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, comm));
    unsetenv("RILL_READ_BYTES");
}

static void both_ways(void) {
    rill_comm *comm = NULL;
    bool counts = COUNTED && check.size > 1 && !getenv("RILL_HOSTS_OF") && !test_link_is_ucx();
    check_case("long messages are lent");
    create(NULL, 0, &comm);
    for (int flight = 1; flight <= FLIGHT; flight += FLIGHT - 1) {
        long sent = serve(comm, flight, flight == 1 ? LONG : 3000);
        if (counts && lends) CHECK_INT(sent, <, LEAST);
    }
    CHECK_OK(rill_comm_free(&comm));
    check_case("and not where that is not wanted");
    create("0", 0, &comm);
    long sent = serve(comm, 2, LONG);
    if (counts) CHECK_INT(sent, >=, LEAST);
    CHECK_OK(rill_comm_free(&comm));
}

static void in_parts(void) {
    check_case("parts of messages are lent");
    rill_comm *comm = NULL;
    create(NULL, 16384, &comm);
    serve(comm, 3, LONG);
    CHECK_OK(rill_comm_free(&comm));
}

/* One rank sums something else: what the others have lent to it is not wanted. */
static void leftovers(void) {
    check_case("loans of calls that failed");
    rill_comm *comm = NULL;
    rill_stream *other = NULL;
    if (check.size < 2) return;
    create(NULL, 0, &comm);
    CHECK_OK(rill_stream_create(RILL_F32, DIM + 1, &other));
    for (int i = 0; i < 2 * ALGORITHMS; i++) {
        call c;
        rill_options o = options(algorithms[i % ALGORITHMS]);
        fill(&c, check.rank, LONG);
        bool mine = check.rank == i % check.size;
        CHECK_STATUS(rill_allreduce(comm, mine ? other : c.in, mine ? other : c.out, RILL_SUM, &o),
                     RILL_ERR_MISMATCH);
        CHECK_OK(rill_allreduce(comm, c.in, c.out, RILL_SUM, &o));
        verify(&c, check.size);
        drop(&c);
    }
    rill_stream_free(&other);
    CHECK_OK(rill_comm_free(&comm));
}

static void several(void) {
    check_case("several communicators");
    rill_comm *comm[2] = {NULL, NULL};
    create(NULL, 0, &comm[0]);
    CHECK_OK(rill_comm_dup(comm[0], NULL, &comm[1]));
    serve(comm[1], 2, LONG);
    CHECK_OK(rill_comm_free(&comm[0]));
    serve(comm[1], 2, LONG);
    CHECK_OK(rill_comm_free(&comm[1]));
}

/* ---- a sender that computes ------------------------------------------------------------------ */

#if !defined(RILL_NO_MPI) && !defined(SMPI_H)
static atomic_int arrived; /* at the sender: the root writes to it without MPI */

static void tell_sender(long process, long address) {
    int yes = 1;
    struct iovec here = {&yes, sizeof yes}, there = {(void *)(uintptr_t)address, sizeof yes};
    CHECK(process_vm_writev((pid_t)process, &here, 1, &there, 1, 0) == sizeof yes);
}

/* Rank 1 starts its part of a sum, and is in no call until rank 0 has the result. */
static void absent_sender(void) {
    check_case("nobody waits for a sender that computes");
    rill_comm *comm = NULL;
    call c;
    rill_options o = options("tree");
    long mine[2] = {getpid(), (long)(uintptr_t)&arrived}, theirs[2];
    int done = 0;
    if (!lends || check.size != 2 || getenv("RILL_HOSTS_OF")) return;
    create(NULL, 0, &comm);
    fill(&c, check.rank, LONG);
    CHECK_OK(rill_reduce(comm, c.in, c.out, RILL_SUM, 0, &o)); /* the first one agrees on more */
    CHECK_OK(rill_reduce(comm, c.in, c.out, RILL_SUM, 0, &o));
    MPI_Sendrecv(mine, 2, MPI_LONG, 1 - check.rank, 0, theirs, 2, MPI_LONG, 1 - check.rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK_OK(rill_ireduce(comm, c.in, c.out, RILL_SUM, 0, &o, &c.request));
    if (check.rank == 1) {
        for (int i = 0; i < 10; i++)
            CHECK_OK(rill_test(c.request, &done));
        time_t end = time(NULL) + GIVE_UP_S;
        while (!atomic_load(&arrived) && time(NULL) < end)
            usleep(1000);
        CHECK_INT(atomic_load(&arrived), ==, 1);
    }
    CHECK_OK(rill_wait(c.request));
    if (check.rank == 0) tell_sender(theirs[0], theirs[1]);
    CHECK_OK(rill_request_free(&c.request));
    if (check.rank == 0) verify(&c, 2);
    drop(&c);
    CHECK_OK(rill_comm_free(&comm));
}
#else
static void absent_sender(void) {}
#endif

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    find_out();
    both_ways();
    in_parts();
    leftovers();
    several();
    absent_sender();
    return check_finish(5);
}
