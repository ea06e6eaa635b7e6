#include "link/link_mpi_loans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MARK UINT64_C(0x6e616f6c6c6c6972)
#define ENTRY_BIT (UINT64_C(1) << 63)

enum { AT_ONCE = 64 }; /* entries that are there where memory has run out */

typedef enum entry_kind { LENT, POSTED, LOAN, OTHER } entry_kind; /* the last two: of a probe */

struct rill__loan_entry {
    entry_kind kind;
    unsigned char over; /* the receiver writes to it, from another process */
    MPI_Request request;
    rill__loan loan; /* or as many bytes of another message */
    void *into;      /* of a posted receive */
    size_t room;
    int source, tag;
    rill__loan_entry *next;
};

/* ---- memory ---------------------------------------------------------------------------------- */

rill_status rill__loans_reserve(rill__loans *l, int ranks) {
    l->first = rill__calloc(AT_ONCE, sizeof *l->first);
    l->place = rill__calloc((size_t)ranks, sizeof *l->place);
    if (l->first && l->place) return RILL_OK;
    rill__loans_free(l);
    return rill__fail(RILL_ERR_MEMORY, "out of memory for loans");
}

void rill__loans_open(rill__loans *l, const rill__reach *reach, const rill__hosts *hosts,
                      int ranks) {
    for (int i = 0; i < ranks; i++)
        l->place[i] = -1;
    for (int i = 0; i < hosts->here; i++)
        l->place[hosts->ranks[i]] = i;
    for (int i = 0; i < AT_ONCE; i++) {
        l->first[i].next = l->idle;
        l->idle = &l->first[i];
    }
    l->reach = reach;
}

static bool is_of_first(const rill__loans *l, const rill__loan_entry *e) {
    return e >= l->first && e < l->first + AT_ONCE;
}

static void free_list(const rill__loans *l, rill__loan_entry *list) {
    for (rill__loan_entry *next; list; list = next) {
        next = list->next;
        if (!is_of_first(l, list)) free(list);
    }
}

void rill__loans_free(rill__loans *l) {
    free_list(l, l->idle);
    free_list(l, l->kept);
    if (!l->under_way) free(l->first); /* else lost, as what is lent is */
    free(l->place);
    *l = (rill__loans){.reach = NULL};
}

static rill__loan_entry *take(rill__loans *l, entry_kind kind) {
    rill__loan_entry *e = l->idle;
    if (e) l->idle = e->next;
    else e = rill__calloc(1, sizeof *e);
    if (!e) return NULL;
    *e = (rill__loan_entry){.kind = kind, .request = MPI_REQUEST_NULL};
    l->under_way += kind == LENT;
    return e;
}

static void give_back(rill__loans *l, rill__loan_entry *e) {
    l->under_way -= e->kind == LENT;
    e->next = l->idle;
    l->idle = e;
}

static rill__wire wire_of(const rill__loan_entry *e) {
    return (rill__wire){(uint64_t)(uintptr_t)e | ENTRY_BIT};
}

static rill__loan_entry *entry_of(uint64_t word) {
    return (rill__loan_entry *)(uintptr_t)(word & ~ENTRY_BIT);
}

/* ---- the receiver's side --------------------------------------------------------------------- */

static bool is_loan(const rill__loans *l, int source, const rill__loan *loan) {
    return loan->mark == MARK && l->place[source] >= 0;
}

/* A sender that is gone has no use for it. */
static void end_loan(const rill__loans *l, int source, const rill__loan *loan) {
    static const char yes = 1;
    rill__reach_write(l->reach, l->place[source], loan->over, &yes, sizeof yes);
}

static rill_status read_loan(const rill__loans *l, int source, const rill__loan *loan, void *to) {
    bool read = rill__reach_read(l->reach, l->place[source], loan->address, to, loan->bytes);
    int error = errno;
    end_loan(l, source, loan);
    return read ? RILL_OK
                : rill__fail(RILL_ERR_MPI, "a message of rank %d can't be read: %s", source,
                             strerror(error));
}

bool rill__loan_kept(const rill__loans *l, int source, int tag, rill__arrival *arrival) {
    for (const rill__loan_entry *e = l->kept; e; e = e->next) {
        if ((source != RILL__ANY && e->source != source) || (tag != RILL__ANY && e->tag != tag))
            continue;
        *arrival = (rill__arrival){e->source, e->tag,
                                   e->kind == LOAN ? e->loan.bytes : sizeof e->loan,
                                   wire_of(e).word};
        return true;
    }
    return false;
}

rill_status rill__loan_found(rill__loans *l, MPI_Comm comm, rill__arrival *arrival) {
    rill__loan_entry *e = take(l, OTHER), **last = &l->kept;
    if (!e) return rill__fail(RILL_ERR_MEMORY, "out of memory for a message");
    int code = MPI_Recv(&e->loan, (int)sizeof e->loan, MPI_BYTE, arrival->source, arrival->tag,
                        comm, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
        give_back(l, e);
        return rill__mpi_error(code, "MPI_Recv");
    }
    e->source = arrival->source;
    e->tag = arrival->tag;
    if (is_loan(l, e->source, &e->loan)) {
        e->kind = LOAN;
        arrival->bytes = e->loan.bytes;
    }
    arrival->word = wire_of(e).word;
    while (*last)
        last = &(*last)->next;
    *last = e;
    return RILL_OK;
}

rill_status rill__loan_receive(rill__loans *l, const rill__arrival *arrival, void *data) {
    rill__loan_entry *e = entry_of(arrival->word), **at = &l->kept;
    rill_status status = RILL_OK;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    if (e->kind != LOAN) {
        if (data) memcpy(data, &e->loan, sizeof e->loan);
    } else if (data) {
        status = read_loan(l, e->source, &e->loan, data);
    } else {
        end_loan(l, e->source, &e->loan);
    }
    give_back(l, e);
    return status;
}

/* ---- wires ----------------------------------------------------------------------------------- */

rill_status rill__loan_send(rill__loans *l, MPI_Comm comm, int to, int tag, const void *data,
                            size_t bytes, rill__wire *wire) {
    rill__loan_entry *e = l->place[to] >= 0 ? take(l, LENT) : NULL;
    if (!e) return RILL_IN_PROGRESS;
    e->loan = (rill__loan){MARK, (uint64_t)(uintptr_t)data, bytes, (uint64_t)(uintptr_t)&e->over};
    int code = MPI_Isend(&e->loan, (int)sizeof e->loan, MPI_BYTE, to, tag, comm, &e->request);
    *wire = wire_of(e);
    if (code == MPI_SUCCESS) return RILL_OK;
    give_back(l, e);
    wire->word = 0;
    return rill__mpi_error(code, "MPI_Isend");
}

rill_status rill__loan_post(rill__loans *l, MPI_Comm comm, int source, int tag, void *into,
                            size_t room, rill__wire *wire) {
    rill__loan_entry *e = take(l, POSTED);
    wire->word = 0;
    if (!e) return rill__fail(RILL_ERR_MEMORY, "out of memory for a message");
    e->into = into;
    e->room = room;
    int code = MPI_Irecv(into, (int)room, MPI_BYTE, source, tag, comm, &e->request);
    if (code == MPI_SUCCESS) {
        *wire = wire_of(e);
        return RILL_OK;
    }
    give_back(l, e);
    return rill__mpi_error(code, "MPI_Irecv");
}

/* What has come to a posted receive: a loan, which is read now, or the message itself. */
static rill_status take_posted(const rill__loans *l, const rill__loan_entry *e,
                               const MPI_Status *came, size_t *bytes) {
    int count = 0;
    rill__loan loan;
    MPI_Get_count(came, MPI_BYTE, &count);
    if (bytes) *bytes = (size_t)count;
    if ((size_t)count != sizeof loan) return RILL_OK;
    memcpy(&loan, e->into, sizeof loan);
    if (!is_loan(l, came->MPI_SOURCE, &loan)) return RILL_OK;
    if (bytes) *bytes = loan.bytes;
    if (loan.bytes <= e->room) return read_loan(l, came->MPI_SOURCE, &loan, e->into);
    end_loan(l, came->MPI_SOURCE, &loan);
    return rill__fail(RILL_ERR_MPI,
                      "a message of rank %d has %llu bytes, and there is room for "
                      "%zu",
                      came->MPI_SOURCE, (unsigned long long)loan.bytes, e->room);
}

/* Others may need this rank in MPI, though it waits for none of MPI's requests. */
static void look_around(MPI_Comm comm) {
    int there;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &there, MPI_STATUS_IGNORE);
}

rill_status rill__loan_test(rill__loans *l, MPI_Comm comm, rill__wire *wire, size_t *bytes) {
    rill__loan_entry *e = entry_of(wire->word);
    rill_status status = RILL_OK;
    MPI_Status came;
    int sent = 1;
    if (e->request != MPI_REQUEST_NULL) {
        int code = MPI_Test(&e->request, &sent, &came);
        if (code != MPI_SUCCESS) status = rill__mpi_error(code, "MPI_Test");
        else if (!sent) return RILL_IN_PROGRESS;
        else if (e->kind == POSTED) status = take_posted(l, e, &came, bytes);
    }
    if (status == RILL_OK && e->kind == LENT && !__atomic_load_n(&e->over, __ATOMIC_ACQUIRE)) {
        look_around(comm);
        return RILL_IN_PROGRESS;
    }
    wire->word = 0;
    give_back(l, e);
    return status;
}

void rill__loan_cancel(rill__loans *l, rill__wire *wire, bool *came) {
    rill__loan_entry *e = entry_of(wire->word);
    MPI_Status status;
    int cancelled = 0;
    wire->word = 0;
    MPI_Cancel(&e->request);
    MPI_Wait(&e->request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    *came = !cancelled;
    if (*came) {
        e->room = 0; /* nobody wants it: a loan ends */
        take_posted(l, e, &status, NULL);
    }
    give_back(l, e);
}
