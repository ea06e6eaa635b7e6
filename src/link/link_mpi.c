/* The link over MPI: messages are those of a communicator of its own.
 *
 * Sizes come by probing. Nobody else receives on the communicator, so that a probe and the receive
 * after it see the same message. What differs between MPIs, SimGrid's among them, is here and is
 * told as data. */
#include "link/link_mpi.h"

#include "core/text.h"
#include "link/link_mpi_loans.h"
#include "link/segments.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

typedef struct link_mpi {
    rill__link link; /* first */
    MPI_Comm comm;
    rill__segments segments; /* shared memory */
    rill__loans loans;
} link_mpi;

/* Over TCP, Open MPI sends what is above its eager limit (64 KiB) only when the receiver says so,
 * on the connection that the data of the other direction fills: two ranks that exchange a megabyte
 * take turns, and reach half of the rate (docs/results/network.md has the figures). So messages go
 * in parts below that limit. */
#define TCP_PART 61440

#define MESSAGE_LIMIT (UINT64_C(1) << 30) /* counts are ints */

rill_status rill__mpi_error(int code, const char *call) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return rill__fail(RILL_ERR_MPI, "%s: %s", call, text);
}

static inline rill_status checked(int code, const char *call) {
    return code == MPI_SUCCESS ? RILL_OK : rill__mpi_error(code, call);
}

static inline MPI_Comm comm_of(const rill__link *link) { return ((const link_mpi *)link)->comm; }

static inline rill__loans *loans_of(rill__link *link) { return &((link_mpi *)link)->loans; }

MPI_Comm rill__link_mpi_comm(const rill__link *link) { return comm_of(link); }

/* ---- requests as words ----------------------------------------------------------------------- */

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request is a pointer or a number");

/* A request that is through is MPI_REQUEST_NULL: 0 here, and no handle is 0 but that. */
static inline uint64_t word_of(MPI_Request request) {
    uint64_t word = 0;
    if (request != MPI_REQUEST_NULL) memcpy(&word, &request, sizeof request);
    return word;
}

static inline MPI_Request request_of(const rill__wire *wire) {
    MPI_Request request;
    memcpy(&request, &wire->word, sizeof request);
    return request;
}

rill__wire rill__link_mpi_wire(MPI_Request request) { return (rill__wire){word_of(request)}; }

/* ---- messages -------------------------------------------------------------------------------- */

static rill_status send(rill__link *link, int to, int tag, const void *data, size_t bytes,
                        rill__wire *wire) {
    if (bytes >= RILL__LOAN_LEAST && loans_of(link)->reach) {
        rill_status lent = rill__loan_send(loans_of(link), comm_of(link), to, tag, data, bytes,
                                           wire);
        if (lent != RILL_IN_PROGRESS) return lent;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, comm_of(link), &request);
    wire->word = word_of(request);
    return checked(code, "MPI_Isend");
}

static rill_status probe(rill__link *link, int source, int tag, int tries, rill__arrival *arrival) {
    int there = 0, code = MPI_SUCCESS, bytes = 0;
    MPI_Status status;
    rill__loans *loans = loans_of(link);
    if (loans->kept && rill__loan_kept(loans, source, tag, arrival)) return RILL_OK;
    if (source == RILL__ANY) source = MPI_ANY_SOURCE;
    if (tag == RILL__ANY) tag = MPI_ANY_TAG;
    for (; !there && tries && code == MPI_SUCCESS; tries--)
        code = MPI_Iprobe(source, tag, comm_of(link), &there, &status);
    if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Iprobe");
    if (!there) return RILL_IN_PROGRESS;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    arrival->source = status.MPI_SOURCE;
    arrival->tag = status.MPI_TAG;
    arrival->bytes = (size_t)bytes;
    arrival->word = 0;
    if (loans->reach && arrival->bytes == sizeof(rill__loan))
        return rill__loan_found(loans, comm_of(link), arrival);
    return RILL_OK;
}

static rill_status receive(rill__link *link, const rill__arrival *arrival, int tag, void *data,
                           bool soon, rill__wire *wire) {
    MPI_Comm comm = comm_of(link);
    wire->word = 0;
    if (arrival->word) return rill__loan_receive(loans_of(link), arrival, data);
    if (!data) { /* it is cut, which is an error that nobody minds */
        char none[1];
        MPI_Recv(none, 0, MPI_BYTE, arrival->source, tag, comm, MPI_STATUS_IGNORE);
        return RILL_OK;
    }
    if (soon)
        return checked(MPI_Recv(data, (int)arrival->bytes, MPI_BYTE, arrival->source, tag, comm,
                                MPI_STATUS_IGNORE),
                       "MPI_Recv");
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Irecv(data, (int)arrival->bytes, MPI_BYTE, arrival->source, tag, comm, &request);
    wire->word = word_of(request);
    return checked(code, "MPI_Irecv");
}

static rill_status post(rill__link *link, int source, int tag, void *data, size_t room,
                        rill__wire *wire) {
    if (room >= RILL__LOAN_LEAST && loans_of(link)->reach)
        return rill__loan_post(loans_of(link), comm_of(link), source, tag, data, room, wire);
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Irecv(data, (int)room, MPI_BYTE, source, tag, comm_of(link), &request);
    wire->word = word_of(request);
    return checked(code, "MPI_Irecv");
}

static rill_status test(rill__link *link, rill__wire *wire, size_t *bytes) {
    int done = 0, count = 0;
    MPI_Status status;
    if (!wire->word) return RILL_OK;
    if (rill__loan_is(wire)) return rill__loan_test(loans_of(link), comm_of(link), wire, bytes);
    MPI_Request request = request_of(wire);
    int code = MPI_Test(&request, &done, bytes ? &status : MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
        wire->word = 0; /* MPI has ended it */
        return rill__mpi_error(code, "MPI_Test");
    }
    if (!done) return RILL_IN_PROGRESS;
    wire->word = 0;
    if (bytes) {
        MPI_Get_count(&status, MPI_BYTE, &count);
        *bytes = (size_t)count;
    }
    return RILL_OK;
}

static rill_status wait(rill__link *link, rill__wire *wire) {
    if (!wire->word) return RILL_OK;
    if (rill__loan_is(wire)) {
        rill_status status;
        for (unsigned polls = 0; (status = test(link, wire, NULL)) == RILL_IN_PROGRESS; polls++)
            rill__link_yield(link, polls);
        return status;
    }
    MPI_Request request = request_of(wire);
    wire->word = 0;
    return checked(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
}

static void cancel(rill__link *link, rill__wire *wire, bool *came) {
    MPI_Status status;
    int cancelled = 0;
    *came = false;
    if (!wire->word) return;
    if (rill__loan_is(wire)) {
        rill__loan_cancel(loans_of(link), wire, came);
        return;
    }
    MPI_Request request = request_of(wire);
    wire->word = 0;
    MPI_Cancel(&request);
    MPI_Wait(&request, &status); /* local: a message has come, or none will */
    MPI_Test_cancelled(&status, &cancelled);
    *came = !cancelled;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static rill_status allgather(rill__link *link, const void *mine, size_t bytes, void *all) {
    return checked(MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                 comm_of(link)),
                   "MPI_Allgather");
}

static rill_status bcast(rill__link *link, void *data, size_t bytes, int root) {
    return checked(MPI_Bcast(data, (int)bytes, MPI_BYTE, root, comm_of(link)), "MPI_Bcast");
}

static rill_status another(rill__link *link, rill__link *together, rill__link **out) {
    (void)together; /* the same: over MPI nobody shrinks */
    return rill__link_mpi_open(comm_of(link), out);
}

/* ---- time ------------------------------------------------------------------------------------ */

static double wall_clock(rill__link *link) {
    (void)link;
    return MPI_Wtime();
}

static void idle(rill__link *link, unsigned polls) {
    if (link->simulated) return; /* simulated time passes by polls alone */
    rill__link_yield(link, polls);
}

static rill_status usable(rill__link *link) {
    (void)link;
    int down = 0;
    MPI_Finalized(&down);
    return down ? rill__fail(RILL_ERR_STATE, "MPI has been finalised") : RILL_OK;
}

/* ---- shared memory --------------------------------------------------------------------------- */

/* By POSIX, not by a window of MPI's: pages that can't be had are found at creation then, where all
 * ranks can agree to send messages instead. */
static rill_status share_memory(rill__link *link, const rill__hosts *hosts, rill__share_bytes bytes,
                                char **segment, size_t *sizes, bool *shared) {
    link_mpi *own = (link_mpi *)link;
    uint64_t key[2] = {0, 0};
    *shared = false;
    if (link->simulated) return RILL_OK; /* its ranks share all memory, and time would not pass */
    if (link->rank == 0 && getrandom(key, sizeof key, 0) != (ssize_t)sizeof key)
        memset(key, 0, sizeof key);
    RILL_TRY(bcast(link, key, sizeof key, 0));
    return rill__segments_open(&own->segments, link, key, hosts, bytes, segment, sizes, shared);
}

/* Where there is no memory for it, MPI moves all messages. */
static bool reserve_loans(rill__link *link) {
    return rill__loans_reserve(loans_of(link), link->ranks) == RILL_OK;
}

static void lend(rill__link *link, const struct rill__reach *reach,
                 const struct rill__hosts *hosts) {
    rill__loans_open(loans_of(link), reach, hosts, link->ranks);
}

static void unshare_memory(rill__link *link) {
    rill__segments_close(&((link_mpi *)link)->segments);
}

static bool grow_memory(rill__link *link, uint64_t bytes) {
    return rill__segments_grow(&((link_mpi *)link)->segments, bytes);
}

/* ---- open and close -------------------------------------------------------------------------- */

#ifdef SMPI_H

static uint64_t simulated_ticks(rill__link *link) {
    (void)link;
    return (uint64_t)(MPI_Wtime() * 1e9);
}

/* A simulated message sets out only when it is received: where many come, they would cost a latency
 * each one by one, as they do nowhere else. Where few come, polls cost more time to simulate than
 * that is worth. Each takes a microsecond there, and real time to simulate; lab/simulate, whose
 * networks are slower than those of the tests, sets more patience. */
static void describe(rill__link *link) {
    const char *patience = getenv("RILL_PATIENCE");
    link->simulated = true;
    link->most_at_once = 16;
    link->patience = patience ? rill__read_double(patience, NULL) : 0.002;
    link->ticks = simulated_ticks;
}

#else

static void describe(rill__link *link) {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    link->threads = level == MPI_THREAD_MULTIPLE;
    link->ordered_posts = true;
    link->copies_pages = true;
    link->has_mail = true;
    link->most_at_once = INT_MAX;
    link->network_part = TCP_PART;
    link->patience = 0.2;
}

#endif

/* The lowest rank that shares memory with this one tells its host. */
static void find_host(link_mpi *own) {
    MPI_Comm host;
    int lowest = own->link.rank;
    if (MPI_Comm_split_type(own->comm, MPI_COMM_TYPE_SHARED, lowest, MPI_INFO_NULL, &host) !=
        MPI_SUCCESS)
        return;
    MPI_Bcast(&lowest, 1, MPI_INT, 0, host);
    MPI_Comm_free(&host);
    own->link.host[0] = (uint64_t)lowest + 1;
}

static rill_status close_link(rill__link *link) {
    link_mpi *own = (link_mpi *)link;
    unshare_memory(link);
    MPI_Comm comm = own->comm;
    rill__loans_free(&own->loans);
    free(link->values);
    free(own);
    return checked(MPI_Comm_free(&comm), "MPI_Comm_free");
}

static const rill__link_table mpi_table = {
    .name = "mpi",
    .send = send,
    .probe = probe,
    .receive = receive,
    .post = post,
    .test = test,
    .wait = wait,
    .cancel = cancel,
    .allgather = allgather,
    .bcast = bcast,
    .another = another,
    .clock = wall_clock,
    .usable = usable,
    .idle = idle,
    .share = share_memory,
    .grow = grow_memory,
    .unshare = unshare_memory,
    .lends = reserve_loans,
    .lend = lend,
    .close = close_link,
};

/* NULL: out of memory. */
static link_mpi *reserve(int ranks) {
    link_mpi *own = calloc(1, sizeof *own);
    if (own) own->link.values = calloc((size_t)ranks * RILL__LINK_VALUES, sizeof(double));
    if (own && own->link.values) return own;
    free(own);
    return NULL;
}

rill_status rill__link_mpi_open(MPI_Comm user, rill__link **out) {
    MPI_Comm comm;
    int ranks, good, all = 0, code = MPI_Comm_dup(user, &comm);
    if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_size(comm, &ranks);
    link_mpi *own = reserve(ranks);
    good = own != NULL;
    code = MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, comm);
    if (code != MPI_SUCCESS || !all) {
        rill_status status = code != MPI_SUCCESS
                                 ? rill__mpi_error(code, "MPI_Allreduce")
                                 : rill__fail(RILL_ERR_MEMORY,
                                              good ? "another rank failed: %s" : "%s",
                                              rill_strerror(RILL_ERR_MEMORY));
        if (own) free(own->link.values);
        free(own);
        MPI_Comm_free(&comm);
        return status;
    }
    own->comm = comm;
    own->link.table = &mpi_table;
    own->link.ranks = ranks;
    MPI_Comm_rank(comm, &own->link.rank);
    own->link.has_mpi = true;
    own->link.message_limit = MESSAGE_LIMIT;
    describe(&own->link);
    find_host(own);
    *out = &own->link;
    return RILL_OK;
}
