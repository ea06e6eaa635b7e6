/* Requests: state machines that a communicator advances, and what they need of the link.
 *
 * A request is started, advanced by its step function until that says done, then drained (its
 * sends complete) and complete. step never blocks. Everything here runs under the communicator's
 * lock, which also makes probe and receive one action.
 *
 * Failures. A request that fails goes on to take part: rill__send then sends an empty message with
 * the status in it, and the status of a received message becomes the request's own. A rank that
 * cannot take part (it does not know in what) sends an abort to all ranks; see rill__abort. One
 * that waits for long asks the others what they are in, so that ranks in different calls find out.
 */
#ifndef RILL_REQ_REQUEST_H
#define RILL_REQ_REQUEST_H

#include "link/hosts.h"
#include "link/reach.h"
#include "req/agree.h"
#include "req/message.h"
#include "req/shared.h"

#include <pthread.h>
#include <stdatomic.h>

/* What parcels are for. */
typedef enum rill__purpose {
    RILL__FOR_ALL, /* these are in the pool */
    RILL__FOR_NOTES,
    RILL__FOR_AGREEMENTS,
    RILL__PURPOSES
} rill__purpose;

/* A buffer of the communicator's pool. Shared by counting: a received message may be forwarded. */
struct rill__parcel {
    rill__buffer buffer;
    size_t skip;  /* where the message starts */
    size_t bytes; /* of it */
    int users;
    bool in_slab; /* its memory is a part of one */
    uint8_t purpose;
    uint8_t tier; /* by its room: parcels.c */
    struct rill__parcel *next;
};

enum { RILL__PARCEL_TIERS = 40 };

static inline void *rill__parcel_message(const rill__parcel *parcel) {
    return (char *)parcel->buffer.data + parcel->skip;
}

/* An operation of the link under way on a parcel. */
typedef struct rill__transfer {
    rill__wire wire;
    rill__parcel *parcel;
    int peer, lane;
    bool rest; /* receive: a later part of a split message, into the same parcel */
} rill__transfer;

typedef struct rill__transfers {
    rill__transfer *at;
    int n, capacity;
} rill__transfers;

/* A message of a later call that came on the tag of an earlier one, tags being fewer than calls. */
typedef struct rill__early {
    rill__transfer transfer; /* complete */
    uint64_t seq;
    struct rill__early *next;
} rill__early;

/* An abort or an inquiry of another rank, kept until the call it speaks of is over. */
typedef struct rill__note {
    rill__header header;
    char text[160];
    struct rill__note *next;
} rill__note;

/* Calls that this rank has behind it, and may be asked about. */
enum { RILL__REMEMBERED = 64 };

/* The progress thread of a communicator (progress.c). Under the engine's lock. */
typedef struct rill__progress {
    bool on; /* there is one */
    bool asleep, stop;
    bool has_core; /* it takes no processor that the callers' threads need */
    pthread_t thread;
    pthread_cond_t wake;
} rill__progress;

/* Which ranks are gone (peers.c), where the link can tell. Under the engine's lock. */
typedef struct rill__peers {
    uint8_t *fate;     /* rill__fate of each */
    uint8_t *said;     /* bits: which steps of freeing each has come to */
    uint8_t *owed;     /* whether it asks if this rank is there, and has no answer yet */
    bool owes;         /* to anybody */
    bool helped;       /* another rank's thread advances this engine: its own may hang */
    uint64_t *heard;   /* messages of each when it was asked whether it is there */
    bool revoked;      /* every call ends with RILL_ERR_PEER */
    bool excluded;     /* the others go on without this rank, */
    int excluder;      /* as this one says */
    bool shrunk;       /* there is a communicator in place of this one */
    unsigned attempt;  /* at that */
    double timeout;    /* seconds; 0: none */
    double looked;     /* when this rank last had nothing to do, */
    double asked;      /* and when it asked who is there; 0: it has not */
    double idle_since; /* nothing has moved since */
} rill__peers;

/* What requests need of a communicator; rill_comm starts with it. */
typedef struct rill__engine {
    rill__link *link;
    const rill__link_table *table; /* the link's */
    int rank, size;
    uint64_t seal;        /* what headers begin with: req/message.h */
    uint64_t split_limit; /* most bytes of one message */
    uint64_t host_limit;  /* the same between ranks of one host */
    uint64_t seq;         /* of the next call */
    uint64_t tag_calls;   /* calls with tags of their own; then tags come again */
    uint64_t first_seq;   /* what random rounding counts from */
    pthread_mutex_t lock;
    bool threaded;
    atomic_bool stepping; /* a thread of a reducer's steps moves the requests on */
    atomic_int waiting;   /* callers that want the lock and did not get it at once */
    atomic_int drivers;   /* callers in rill__engine_wait; written under the lock */
    rill__task *driven;   /* what the caller who advances requests right now waits for */
    rill__progress progress;
    rill__task *active, *active_last; /* in order of seq */
    rill__parcel *free_parcels[RILL__PARCEL_TIERS];
    uint64_t free_tiers; /* those that have any, a bit each */
    struct rill__slab *slabs;
    int lent;                /* calls whose parcels MPI has in a collective of its own */
    rill__transfers orphans; /* of notes and aborted requests: finished when there is time */
    rill__note *notes, *spare_notes;
    rill__parcel *kept_parcels[RILL__PURPOSES]; /* for what must not fail, of each purpose */
    rill__early *early;
    rill__expect past[RILL__REMEMBERED]; /* by seq */
    uint64_t *sent, *received;           /* messages to and from each rank */
    uint64_t *announced;                 /* messages that each rank says it has sent to this one */
    uint64_t left_from;                  /* calls from this one on lack a rank that has left, */
    int left_rank;                       /* this one; where ranks go one by one */
    rill__peers peers;
    bool leaving; /* this rank frees the communicator, */
    bool closing; /* and so do all: nobody is in a call any more */
    unsigned idle_polls;
    double idle_since;
    bool crowded; /* more ranks on this host than processors: who waits must make way */
    bool alone;   /* one task, and its caller waits: a receive may spin a little */
    rill__hosts hosts;
    rill__shared shared;
    rill__reach reach;               /* into other ranks of this host */
    struct rill__mpi_sums *mpi_sums; /* coll/patterns/mpi_allreduce.h; NULL: the link has no MPI */
} rill__engine;

/* ENDING: the messages are through, and something else (task.ending) is not. */
typedef enum rill__life {
    RILL__IDLE = 0,
    RILL__ACTIVE,
    RILL__DRAINING,
    RILL__ENDING,
    RILL__COMPLETE
} rill__life;

typedef rill_status rill__step(rill__task *); /* RILL_OK done, RILL_IN_PROGRESS, or a failure */

/* The part of a call that moves messages. struct rill_request (call/call.h) starts with it. */
struct rill__task {
    rill__engine *engine;
    rill__task *next;
    rill__step *step;
    void (*completed)(rill__task *); /* may be NULL */
    /* After that, until it gives something else than RILL_IN_PROGRESS; NULL: nothing to wait for */
    rill__step *ending;
    rill__life life;
    /* The same for those without the lock: never DRAINING or ENDING, and COMPLETE only when the
     * engine is through with the request. */
    _Atomic(rill__life) shown;
    bool waited_for; /* it may block in MPI: only the caller who waits for it may advance it */
    bool inquired;   /* it has asked the others what they are in */
    bool lent;       /* the call's owner reads and writes its messages, without the lock */
    bool moved;      /* a message moved in this step: the engine is not idle */
    uint64_t seq;
    int tag;
    rill__expect expect;
    rill__shape shape;
    uint32_t hops;  /* messages encoded so far */
    bool adds_bits; /* the call sums f32, and there are kernels that sum bits and values */
    bool may_post;  /* it may still post a collective of MPI's, which all ranks post in the same
                       order */
    /* Called with the message (bytes of it) where values lose by coding, and may still change;
     * NULL: nobody asks. */
    void (*lost)(void *whom, const rill__coding *, const rill__part *, void *message, size_t bytes);
    void *whom;
    rill_status status;
    int origin; /* rank where the failure arose */
    char error[200];
    uint64_t nnz_sum, nnz_max; /* of the ranks heard of so far; travel with messages */
    uint8_t flags;             /* the same, rill__flag */
    uint64_t fill;             /* bits; travel with messages */
    uint64_t sent_bytes, recv_bytes, messages, rounds;
    rill__transfers sends, receives;
    rill__transfer posted; /* the receive of rill__exchange_receive; parcel NULL: none */
    rill__parcel *held;    /* received or made in this request; given back at completion */
    rill__parcel *spare;   /* its own, for when the pool has none; likewise */
};

/* Where the link has no threads only one at a time may be in it, and so in here. */
void rill__lock_contended(rill__engine *);
void rill__unlock_threaded(rill__engine *);
static inline bool rill__trylock(rill__engine *e) {
    return !e->threaded || pthread_mutex_trylock(&e->lock) == 0;
}
static inline void rill__lock(rill__engine *e) {
    if (!rill__trylock(e)) rill__lock_contended(e);
}
/* Wakes the progress thread where it is needed now. */
static inline void rill__unlock(rill__engine *e) {
    if (e->threaded) rill__unlock_threaded(e);
}
/* Lock held: lets in those who wait for it, and takes it again. */
void rill__give_way(rill__engine *);

/* Most bytes of one message to and from that rank. */
static inline uint64_t rill__limit_of(const rill__engine *e, int peer) {
    return e->hosts.host_of[peer] == e->hosts.mine ? e->host_limit : e->split_limit;
}

/* Whether that rank has boxes here. */
static inline bool rill__mail_from(const rill__engine *e, int peer) {
    return e->shared.mail.pairs && e->shared.mail.pairs[peer].in;
}

/* ---- engine.c ---- */
rill_status rill__engine_init(rill__engine *, rill__link *); /* local */
void rill__engine_free(rill__engine *);
/* RILL_OK: it is through; RILL_IN_PROGRESS; or the failure that has ended it. */
static inline rill_status rill__test(rill__engine *e, rill__transfer *t) {
    return t->wire.word ? e->table->test(e->link, &t->wire, NULL) : RILL_OK;
}
void rill__task_start(rill__task *); /* takes the next seq and becomes active */
/* Steps all active requests once. Returns whether anything moved. Lock held. */
bool rill__engine_progress(rill__engine *);
/* Progresses until the request is complete. Lock held, and given away now and then. */
void rill__engine_wait(rill__task *);
/* Whether all of the task's sends have left. */
bool rill__sends_done(rill__task *);
/* Releases the parcels of those that have, from the first on up to one that has not. */
void rill__sends_release(rill__task *);

/* ---- notes.c ---- */
/* Links take tags up to what MPI promises, 32767. Each call takes RILL__LANES tags; the last of
 * those is for notes. Those about ranks that are gone have another: see rill__tag_passes. */
enum { RILL__TAG_NOTE = 32767, RILL__TAG_PEERS = 32766, RILL__TAG_SHRINK = 32765 };
rill_status rill__notes_reserve(rill__engine *);
void rill__notes_free(rill__engine *);
void rill__send_note(rill__engine *, rill__header *, const char *text); /* to all other ranks */
void rill__receive_notes(rill__engine *);
/* The same to one rank, or a message of any length on another tag. False: no memory. */
bool rill__send_aside(rill__engine *, int to, int tag, const void *, size_t bytes);
void rill__forget_notes(rill__engine *); /* of calls that are over */
/* True: the call is aborted, and the request gave up its transfers. */
bool rill__apply_notes(rill__engine *, rill__task *);
/* Whether the link is through with the buffers of notes and of aborted requests. */
bool rill__orphans_done(rill__engine *);
/* Asks all ranks what they are in. */
void rill__inquire(rill__engine *);
/* From now on this rank makes no call: those of others end with an error. */
void rill__refuse_calls(rill__engine *);
/* Nobody may come for the task's messages: it ends without them. */
void rill__task_let_go(rill__task *);
/* Ends a call that lacks a rank which has left. */
void rill__left_alone(rill__engine *, rill__task *);
/* Tells all ranks, this one's request included, that the call of that number is over. */
void rill__abort(rill__engine *, uint64_t seq, rill_status, int origin, const char *text);

/* ---- peers.c ---- */
rill_status rill__peers_reserve(rill__engine *);
void rill__peers_free(rill__engine *);
/* Asks the link who is gone, and tells the others. At the start of every so many calls: a rank that
 * only sends never waits, and would not look. */
enum { RILL__CALLS_BETWEEN_LOOKS = 64 };
void rill__peers_poll(rill__engine *);
/* This rank waits, and nothing comes: who hangs for too long counts as gone. */
void rill__peers_wait(rill__engine *);
void rill__peers_hear(rill__engine *, const rill__message *note, int source);
/* Raises what is known of a rank by the word of another. */
void rill__peers_raise(rill__engine *, int rank, unsigned fate, int teller);
/* From now on every call ends with an error; tell: this rank's set goes to all others. */
void rill__peers_revoke(rill__engine *, bool tell);
/* The error of calls on a revoked communicator. */
rill_status rill__peers_error(const rill__engine *);
void rill__peers_leave(rill__engine *); /* this rank frees a revoked communicator */

/* ---- shrink.c ---- */
/* Collective over those who live: they agree who that is, and on an epoch. mine: whether this rank
 * could go on. The engine's link can be shared (link/subset.h). ranks has room for all. Lock held,
 * and given away now and then. */
rill_status rill__shrink_agree(rill__engine *, rill_status mine, bool minority, int *ranks, int *n,
                               unsigned *epoch);

/* ---- farewell.c ---- */
rill_status rill__engine_drain(rill__engine *); /* collective: no message stays behind */

/* Records a failure (status and this thread's detail) unless one is there; returns RILL_OK, so that
 * the state machine goes on taking part. */
rill_status rill__task_fail(rill__task *, rill_status);
/* The same where the ranks may be in different calls, and wait for messages that never come. */
rill_status rill__task_abort(rill__task *, rill_status);
static inline bool rill__task_failed(const rill__task *r) { return r->status != RILL_OK; }

/* ---- progress.c ---- */
/* Local. crowded: more ranks on this host than half of its processors. */
rill_status rill__progress_start(rill__engine *, bool crowded);
void rill__progress_stop(rill__engine *); /* fine without one; before the drain */

/* Life as all may read it. Who sees COMPLETE also sees what the request wrote. */
static inline rill__life rill__task_shown(const rill__task *r) {
    return atomic_load_explicit(&r->shown, memory_order_acquire);
}
static inline void rill__task_show(rill__task *r, rill__life life) {
    atomic_store_explicit(&r->shown, life, memory_order_release);
}

/* ---- parcels.c ---- */
/* A parcel with room for bytes, held by the request. NULL: out of memory. */
rill__parcel *rill__parcel_take(rill__task *, size_t bytes);
static inline void rill__parcel_return(rill__engine *engine, rill__parcel *parcel) {
    if (--parcel->users > 0) return;
    rill__parcel **list = &engine->kept_parcels[parcel->purpose];
    if (parcel->purpose == RILL__FOR_ALL) {
        list = &engine->free_parcels[parcel->tier];
        engine->free_tiers |= UINT64_C(1) << parcel->tier;
    }
    parcel->next = *list;
    *list = parcel;
}
void rill__parcels_free(rill__engine *); /* when all have come back */

/* Sees to it that the task can take so many parcels of that size without failing. */
rill_status rill__parcels_reserve(rill__task *, int n, size_t bytes);
/* The same for another call like this one, with messages a quarter larger, once it has ended. */
rill_status rill__parcels_keep(rill__task *);
/* The call needs it no more, before its end; nobody else of the call may. */
void rill__parcel_release(rill__task *, rill__parcel *);

/* ---- transport.c ---- */
rill_status rill__transfers_add(rill__transfers *, rill__transfer);
rill_status rill__transfers_reserve(rill__transfers *, int more); /* room for so many more */

/* ---- encode.c ---- */
/* A header of the call without entries; in place, as it is on the way of every message. */
void rill__call_header_at(const rill__task *, rill__header *);
static inline rill__header rill__call_header(const rill__task *task) {
    rill__header header;
    rill__call_header_at(task, &header);
    return header;
}
/* Encodes the part (or, in a failed task, the failure) into a parcel of the task, to be sent with
 * rill__send_parcel, perhaps to several. */
rill_status rill__encode(rill__task *, const rill__coding *, const rill__part *,
                         rill__parcel **out);
/* The same in two halves, for a caller that writes the payload itself: a sparse part's indices, and
 * its values behind them. begin settles the coding; payload has room for all that it may take. Both
 * fail only for want of memory. index_size is a multiple of 8. */
rill_status rill__encode_begin(rill__task *, const rill__coding *given, const rill__part *,
                               rill__coding *, rill__parcel **, char **payload);
void rill__encode_end(rill__task *, const rill__coding *given, const rill__coding *,
                      const rill__part *, uint64_t index_size, uint64_t value_size, rill__parcel *);
/* n encoded messages, which start at those bytes, in one; or the failure. */
rill_status rill__encode_bundle(rill__task *, int n, const void *const *start, rill__parcel **out);
/* Bytes as a message of words (RILL__M_AGREE), the last filled up with zeros; or the failure. */
rill_status rill__encode_bytes(rill__task *, const void *from, size_t bytes, rill__parcel **out);
/* The same, to be written by the caller to *to; NULL: it is a failure. */
rill_status rill__encode_room(rill__task *, size_t bytes, rill__parcel **out, void **to);
/* A message of words. */
rill_status rill__send_words(rill__task *, int to, int lane, const uint64_t *, uint64_t n);

/* ---- transport.c, again ---- */
rill_status rill__send_parcel(rill__task *, int to, int lane, rill__parcel *);

/* Receives one message from source (or RILL__ANY; *from tells). RILL_IN_PROGRESS: not there
 * yet. A failed or malformed message gives RILL_OK, has been recorded as this request's
 * failure, and reads as an empty one (header.count = 0, form FAILED). *parcel holds the message. */
rill_status rill__receive(rill__task *, int source, int lane, rill__message *, rill__parcel **,
                          int *from);
/* The same with so many probes before it gives up for now. */
rill_status rill__receive_polled(rill__task *, int source, int lane, int polls, rill__message *,
                                 rill__parcel **, int *from);
/* A whole message is in: checks it, takes its statistics and its failure, if any. False: it is
 * left over from an earlier, aborted call with the same tag. */
bool rill__take_in(rill__task *, const rill__transfer *, rill__message *, rill__parcel **,
                   int *from);
/* A message came under that rank's name: whether it has no key of the job, where the link has one.
 * Then it is counted, and counts as none of that rank's. */
bool rill__is_strange(rill__engine *, int source, const void *bytes, size_t size);
void rill__count_stranger(rill__engine *, int source);
/* For a request that has waited long: takes in what has come in other lanes, to be received when
 * its turn comes, and aborts if a header shows that ranks are in different calls. */
void rill__peek(rill__task *);
/* The entries of a received message; a failure is recorded and gives an empty part. */
void rill__received_part_at(rill__task *, const rill__message *, rill__part *);

/* ---- exchange.c: one message at most to and from a rank that is known ---- */
rill_status rill__exchange_send(rill__task *, int to, rill__parcel *);
/* short_likely: the message will probably have at most RILL__SHORT bytes. */
rill_status rill__exchange_receive(rill__task *, int source, bool short_likely, rill__message *,
                                   rill__parcel **);
/* RILL_OK: the posted receive is complete, and *t has it. RILL_IN_PROGRESS after so many tests. */
rill_status rill__test_posted(rill__task *, int tests, rill__transfer *t);
/* Ends a posted receive that no message has come for, or none that anybody wants. */
void rill__cancel_posted(rill__task *);

#endif
