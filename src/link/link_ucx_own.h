/* Inside of the link over UCX: link_ucx.c has its messages, link_ucx_gone.c who is gone,
 * link_ucx_ways.c its workers and endpoints, link_ucx_open.c its life.
 *
 * Two ways. Between ranks of a host UCX passes messages through queues in shared memory. A process
 * that is killed while it writes to such a queue blocks it for all others, and what waits for room
 * in the queue of a dead process is tried again and again: nobody can mend that from outside. So a
 * link has two workers. The fast one is for everything while nobody is gone; then it rests: it
 * makes no progress any more, and what it holds stays as it is until the link is closed. The calm
 * one has no shared memory, and its endpoints handle errors. It is for what survivors tell each
 * other, and for later epochs (rill__tag_passes).
 *
 * UCX 1.13 ends the process (an assertion of its TCP) where it connects to a rank that dies in this
 * moment, and ranks may die one shortly after the other. So both ways are connected when the link
 * is opened, where the ranks are not so many that they would lack open files. */
#ifndef RILL_LINK_LINK_UCX_OWN_H
#define RILL_LINK_LINK_UCX_OWN_H

#include "link/link_ucx.h"
#include "link/segments.h"
#include "link/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <ucp/api/ucp.h>

/* UCX's 64 bits of a tag: key of the job (20), source (12), of the link itself (1), tag (31). Where
 * there is no header behind it (allgather, bcast, rill__tag_bare) the tag is mixed with more of the
 * key: rill__ucx_mixed in link_ucx.c. */
enum { RILL__UCX_TAG_BITS = 31, RILL__UCX_SOURCE_AT = 32, RILL__UCX_KEY_AT = 44 };
#define RILL__UCX_INNER (UINT64_C(1) << RILL__UCX_TAG_BITS)
#define RILL__UCX_TAG_MASK (RILL__UCX_INNER - 1)
#define RILL__UCX_SOURCE_MASK (UINT64_C(0xfff) << RILL__UCX_SOURCE_AT)
#define RILL__UCX_KEY_MASK (~UINT64_C(0) << RILL__UCX_KEY_AT)

typedef enum rill__ucx_pace { RILL__UCX_FAST, RILL__UCX_CALM, RILL__UCX_PACES } rill__ucx_pace;

typedef struct rill__ucx_way {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h *peers; /* of each rank; NULL: none yet, or none any more */
    int event;       /* can be read when something comes; -1: there is no such thing */
    /* How often this rank has made progress there: the link's thread keeps away meanwhile. */
    atomic_uint visits;
} rill__ucx_way;

/* Bytes of a worker's address. Hosts with many devices have long ones, of some hundred bytes. */
enum { RILL__UCX_ADDRESS = 4000 };
typedef struct rill__ucx_address {
    uint32_t bytes;
    char text[RILL__UCX_ADDRESS];
} rill__ucx_address;

/* The calm way has fewer transports. */
enum { RILL__UCX_KEPT = 1024 };
typedef struct rill__ucx_kept {
    char address[RILL__UCX_KEPT];
} rill__ucx_kept;

typedef struct rill__link_ucx {
    rill__link link; /* first */
    rill__ucx_way ways[RILL__UCX_PACES];
    rill__ucx_kept *kept; /* of each rank: endpoints of the calm way may be made when needed */
    size_t long_from;     /* bytes from which a message waits until its receiver asks for it */
    rill__watch *watch;
    uint64_t key;             /* in place */
    uint64_t mix, unmix, pad; /* of the key, too: mix is odd, and unmix undoes it */
    uint8_t job[RILL__JOB_KEY];
    rill__wire *wires;     /* room for 2 of each rank: allgather */
    bool *by_network;      /* of each rank: reached over a network or a socket of this host, not by
                              shared memory; the fast way handles errors there, too */
    bool *lost;            /* of each rank: no message reaches it */
    bool *given_up;        /* of each rank: lost because others say so */
    double *broken;        /* of each rank: when a message to it failed; 0: never */
    atomic_int first_lost; /* one of them; -1: none */
    int watched_lost;      /* those that the watch has told of */
    double until;          /* while it is opened: when to give up; else 0 */
    bool shares_memory;    /* this rank can share memory with others of its host */
    bool one_host;         /* all ranks are on it, and share memory */
    bool alone_here;       /* no other rank is on this one */
    bool sets_segment;     /* a rank's environment has UCX_TCP_RX_SEG_SIZE */
    bool has_thread;       /* one that goes on while this rank is not in rill */
    bool survived;         /* communicators were shrunk: see is_left in link_ucx_ways.c */
    atomic_bool sleeps;    /* this rank waits in rill until something comes */
    atomic_bool ended;     /* it is to end, */
    int wakes;             /* and this wakes it: an eventfd */
    pthread_t thread;
    atomic_uint_least64_t strangers;
    unsigned vain;           /* probes */
    unsigned bit;            /* of the key, where strangers are looked for next */
    rill__segments segments; /* shared memory */
} rill__link_ucx;

/* UCX has room for this in each of its requests. */
typedef enum rill__ucx_kind {
    RILL__UCX_SENDS,
    RILL__UCX_RECEIVES,
    RILL__UCX_FLUSHES
} rill__ucx_kind;
typedef struct rill__ucx_request {
    int peer;
    uint8_t kind, pace;
    size_t bytes;
} rill__ucx_request;

static inline rill__link_ucx *rill__ucx_of(rill__link *link) { return (rill__link_ucx *)link; }

/* A way that rests makes no progress. */
static inline bool rill__ucx_rests(const rill__link_ucx *own, rill__ucx_pace pace) {
    return pace == RILL__UCX_FAST && own->first_lost >= 0;
}
/* By a thread that is in rill, one at a time. */
static inline void rill__ucx_visit(rill__ucx_way *way) {
    unsigned visits = atomic_load_explicit(&way->visits, memory_order_relaxed);
    atomic_store_explicit(&way->visits, visits + 1, memory_order_relaxed);
}
static inline unsigned rill__ucx_progress(rill__link_ucx *own, rill__ucx_pace pace) {
    if (rill__ucx_rests(own, pace)) return 0;
    rill__ucx_visit(&own->ways[pace]);
    return ucp_worker_progress(own->ways[pace].worker);
}

/* Both ways: others may wait for an answer on the one that this rank does not wait for. */
static inline void rill__ucx_progress_all(rill__link_ucx *own) {
    for (int pace = 0; pace < RILL__UCX_PACES; pace++)
        rill__ucx_progress(own, (rill__ucx_pace)pace);
}

extern const rill__link_table rill__ucx_table;

/* ---- link_ucx.c ---- */
/* The link's own message of that kind in that epoch. */
typedef enum rill__ucx_inner {
    RILL__UCX_ALLGATHER,
    RILL__UCX_BCAST,
    RILL__UCX_BARE
} rill__ucx_inner;
uint64_t rill__ucx_inner_tag(const rill__link_ucx *, int source, rill__ucx_inner, int epoch);
void rill__ucx_set_key(rill__link_ucx *, const uint8_t job[RILL__JOB_KEY]);
rill_status rill__ucx_error(ucs_status_t, const char *call);
/* Each rank gives the others bytes. */
rill_status rill__ucx_allgather(rill__link *, const void *mine, size_t bytes, void *all);
/* A message each way on every connection: UCX makes them only then. */
rill_status rill__ucx_greet(rill__link_ucx *, rill__ucx_pace);

/* ---- link_ucx_gone.c ---- */
/* Looks who is gone; true: somebody is. */
bool rill__ucx_look(rill__link_ucx *);
/* A message to that rank has failed. The watch may say why in a moment. */
void rill__ucx_broke(rill__link_ucx *, int rank);
rill_status rill__ucx_lost(int rank); /* the error that names it */
bool rill__ucx_failed(rill__link *, uint8_t *fate);
void rill__ucx_survive(rill__link *);
void rill__ucx_give_up(rill__link *, int rank);

/* ---- link_ucx_ways.c ---- */
/* Whether this rank's UCX_TLS lets it share memory with others of its host. */
bool rill__ucx_shares_memory(void);
/* Whether its environment says how many bytes TCP brings at a time. */
bool rill__ucx_sets_segment(void);
/* Both workers, and their addresses. */
rill_status rill__ucx_start(rill__link_ucx *, rill__ucx_address addresses[RILL__UCX_PACES]);
/* To a rank of these addresses, whose first message makes the connection. */
rill_status rill__ucx_connect(rill__link_ucx *, int rank,
                              const rill__ucx_address addresses[RILL__UCX_PACES]);
/* NULL: that rank can't be reached. */
ucp_ep_h rill__ucx_endpoint(rill__link_ucx *, rill__ucx_pace, int rank);
/* Ends what is under way there, where its endpoints handle errors. */
void rill__ucx_disconnect(rill__link_ucx *, int rank);
/* What was sent is on its way, unless somebody holds it up. */
void rill__ucx_flush(rill__link_ucx *, rill__ucx_pace);
/* What idle of the link does: between hosts it sleeps until something comes. */
void rill__ucx_idle(rill__link *, unsigned polls);
/* A thread that goes on with what is under way; and its end. */
rill_status rill__ucx_go_on(rill__link_ucx *);
void rill__ucx_end_thread(rill__link_ucx *);
void rill__ucx_stop(rill__link_ucx *);

/* ---- link_ucx_open.c ---- */
rill_status rill__ucx_share(rill__link *, const struct rill__hosts *, rill__share_bytes,
                            char **segment, size_t *sizes, bool *shared);
bool rill__ucx_grow(rill__link *, uint64_t bytes);
void rill__ucx_unshare(rill__link *);
rill_status rill__ucx_close(rill__link *);
rill_status rill__ucx_another(rill__link *, rill__link *together, rill__link **out);

#endif
