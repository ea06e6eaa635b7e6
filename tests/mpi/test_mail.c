/* Small messages between ranks of a host by mail (req/mail.h): that they go by it, and that nothing
 * depends on it. More calls in flight than there are boxes, messages around every limit, what
 * failed calls leave behind, several communicators, and a host without room for it. */
#include "check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>

enum { DIM = 1000, FLIGHT = 12, WARM = 12 };

/* ---- what goes over the link ----------------------------------------------------------------- */

/* Messages of calls. Notes have a tag above: who waits for long asks what the others are in. */
static atomic_long sends;
enum { TAGS_OF_CALLS = 32000 };

#if defined(RILL_NO_MPI) || defined(SMPI_H)
enum { COUNTED = 0 };
#else
enum { COUNTED = 1 };

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    if (tag < TAGS_OF_CALLS) atomic_fetch_add(&sends, 1);
    return PMPI_Isend(data, n, type, to, tag, comm, request);
}
#endif

static void create(const char *mail, rill_comm **comm) {
    setenv("RILL_MAIL_BYTES", mail, 1);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, comm));
    unsetenv("RILL_MAIL_BYTES");
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct call {
    int n;
    rill_stream *in, *out;
    rill_request *request;
} call;

/* n entries from the rank's number on, so that ranks share most of them. */
static void fill(call *c, int rank, int n) {
    uint32_t index[DIM];
    double value[DIM];
    c->n = n;
    for (int i = 0; i < n; i++) {
        index[i] = (uint32_t)(rank + i);
        value[i] = 1 + i % 7;
    }
    CHECK_OK(rill_stream_create(RILL_F64, DIM, &c->in));
    CHECK_OK(rill_stream_create(RILL_F64, DIM, &c->out));
    CHECK_OK(rill_stream_set_pairs(c->in, (uint64_t)n, index, value));
}

static void verify(const call *c, int size) {
    double got[DIM], want[DIM] = {0};
    long wrong = 0;
    for (int rank = 0; rank < size; rank++)
        for (int i = 0; i < c->n; i++)
            want[rank + i] += 1 + i % 7;
    CHECK_OK(rill_stream_get_dense(c->out, got));
    for (int i = 0; i < DIM; i++)
        wrong += got[i] != want[i];
    CHECK_INT(wrong, ==, 0);
}

static void drop(call *c) {
    rill_stream_free(&c->in);
    rill_stream_free(&c->out);
}

static rill_options doubling(void) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = "recursive_double";
    return o;
}

/* Calls with messages of any length, blocking or many at once, ended in the order given. */
static void serve(rill_comm *comm, int flight) {
    call calls[FLIGHT];
    rill_options o = doubling();
    int size = rill_comm_size(comm), rank = rill_comm_rank(comm);
    for (int n = 1; n <= DIM - size; n = n * 2 + 3) {
        for (int i = 0; i < flight; i++)
            fill(&calls[i], rank, i % 2 ? n : 1);
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
}

/* Messages of this rank's small calls that went over the link. */
static long over_the_link(rill_comm *comm) {
    rill_options o = doubling();
    long before = 0;
    call c;
    fill(&c, rill_comm_rank(comm), 16);
    for (int i = 0; i < 2 * WARM; i++) { /* the first ones also agree on how they end */
        if (i == WARM) before = atomic_load(&sends);
        CHECK_OK(rill_allreduce(comm, c.in, c.out, RILL_SUM, &o));
    }
    verify(&c, rill_comm_size(comm));
    drop(&c);
    return atomic_load(&sends) - before;
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void lengths(const char *mail, bool is_used) {
    check_case("mail of up to %s bytes", mail);
    rill_comm *comm = NULL;
    create(mail, &comm);
    long sent = over_the_link(comm);
    if (COUNTED && !test_link_is_ucx() && check.size > 1) {
        if (is_used && !getenv("RILL_HOSTS_OF")) CHECK_INT(sent, ==, 0);
        else if (!is_used) CHECK_INT(sent, >=, WARM);
    }
    serve(comm, 1);
    serve(comm, FLIGHT);
    CHECK_OK(rill_comm_free(&comm));
}

/* One rank sums something else: what the others had sent to it stays in its boxes. */
static void leftovers(void) {
    check_case("mail of calls that failed");
    rill_comm *comm = NULL;
    rill_stream *other = NULL;
    rill_options o = doubling();
    if (check.size < 2) return;
    create("4096", &comm);
    CHECK_OK(rill_stream_create(RILL_F64, DIM + 1, &other));
    for (int i = 0; i < 9; i++) {
        call c;
        fill(&c, check.rank, 5);
        bool mine = check.rank == i % check.size;
        CHECK_STATUS(rill_allreduce(comm, mine ? other : c.in, mine ? other : c.out, RILL_SUM, &o),
                     RILL_ERR_MISMATCH);
        for (int k = 0; k < i % 3; k++)
            CHECK_OK(rill_allreduce(comm, c.in, c.out, RILL_SUM, &o));
        if (i % 3) verify(&c, check.size);
        drop(&c);
    }
    serve(comm, FLIGHT);
    rill_stream_free(&other);
    CHECK_OK(rill_comm_free(&comm));
}

static void several(void) {
    check_case("several communicators");
    rill_comm *comm[3] = {NULL, NULL, NULL};
    create("4096", &comm[0]);
    create("300", &comm[1]);
    CHECK_OK(rill_comm_dup(comm[0], NULL, &comm[2]));
    serve(comm[2], 2);
    CHECK_OK(rill_comm_free(&comm[0]));
    serve(comm[2], 2);
    serve(comm[1], 2);
    CHECK_OK(rill_comm_free(&comm[2]));
    serve(comm[1], 2);
    CHECK_OK(rill_comm_free(&comm[1]));
}

/* The last rank may write no files, so that it has no memory to share: nobody on its host has. */
static void no_room(void) {
    check_case("no room for boxes on one rank");
    struct rlimit old, none;
    rill_comm *comm = NULL;
    if (!COUNTED || check.size < 2 || test_link_is_ucx()) return; /* UCX needs some */
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    none = old;
    none.rlim_cur = 1;
    signal(SIGXFSZ, SIG_IGN);
    if (check.rank == check.size - 1) CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    create("4096", &comm);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK_INT(over_the_link(comm), >=, WARM);
    serve(comm, 2);
    CHECK_OK(rill_comm_free(&comm));
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    lengths("4096", true);
    lengths("0", false);
    lengths("1", false);
    lengths("500", true);
    lengths("20000", true);
    leftovers();
    several();
    no_room();
    return check_finish(8);
}
