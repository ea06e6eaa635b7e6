/* A link: how bytes reach another rank. What a transport must do, and nothing of how.
 *
 * A transport is one file (link_mpi.c, link_local.c) that fills a rill__link: a table of functions,
 * and what it can do as data. Nobody outside of src/link includes mpi.h but the public header,
 * MPI's own dense sum and training.
 *
 * A message is bytes from one rank to another under a tag. Messages of the same pair and tag stay
 * in order; others may overtake each other. Tags are from 0 to 32767; bytes may be 0. Nothing
 * blocks but wait, allgather, bcast, share, unshare and close. Calls come from one thread at a time
 * (the engine holds its lock), and from any thread where the link has threads.
 *
 * Where a link can tell who has died, survivors go on over the same link (rill_comm_shrink), in a
 * later epoch: tags there are 32768 * epoch higher, and RILL__ANY - epoch is any tag of it.
 * Messages of later epochs, and under two tags of the first, must reach whoever lives even where a
 * rank that has died blocks a way that others use, too: rill__tag_passes.
 *
 * A link that strangers can reach has a key of its job. Whoever sends a message puts bits of it in
 * (the engine in place of what headers begin with, the link itself where there is no header:
 * rill__tag_bare), and who receives one without them drops it and counts it. */
#ifndef RILL_LINK_LINK_H
#define RILL_LINK_LINK_H

#include "core/core.h"

#include <stdatomic.h>

enum { RILL__ANY = -1 }; /* source: whoever comes first; tag: whatever it is (of epoch 0) */
enum { RILL__EPOCH_TAGS = 32768, RILL__EPOCHS = 65536 };
/* What survivors tell each other (req/request.h). */
static inline bool rill__tag_passes(int tag) {
    return tag >= RILL__EPOCH_TAGS || tag == RILL__EPOCH_TAGS - 2 || tag == RILL__EPOCH_TAGS - 3;
}

/* Messages of links' own, over another link: link_subset.c. */
static inline bool rill__tag_bare(int tag) {
    return tag >= 0 && tag % RILL__EPOCH_TAGS == RILL__EPOCH_TAGS - 4;
}

/* What is known of a rank. It only grows. */
typedef enum rill__fate {
    RILL__LIVES = 0,
    RILL__SILENT = 1, /* it does not answer; it may live where the network does not reach */
    RILL__DEAD = 2    /* its process has ended without closing the link: its host says so */
} rill__fate;

/* An operation under way. 0: none, or it is through. */
typedef struct rill__wire {
    uint64_t word;
} rill__wire;

/* A message that is there and has not been received yet. */
typedef struct rill__arrival {
    int source, tag;
    size_t bytes;
    uint64_t word; /* the transport's */
} rill__arrival;

typedef struct rill__link rill__link;
struct rill__hosts; /* link/hosts.h */
struct rill__reach; /* link/reach.h */

/* Of a rank's shared memory. */
typedef struct rill__share_bytes {
    uint64_t now, most; /* at once, and when it has grown: most >= now */
} rill__share_bytes;

typedef struct rill__link_table {
    const char *name; /* "mpi", "local": errors */
    /* The bytes stay as they are until the wire is through. It does not wait for the receiver,
     * however many messages are under way. Here and below: after a failure the wire is through. */
    rill_status (*send)(rill__link *, int to, int tag, const void *, size_t bytes, rill__wire *);
    /* RILL_OK: there is one; RILL_IN_PROGRESS: none yet. tries: looks before it says so. Source and
     * tag may be RILL__ANY. */
    rill_status (*probe)(rill__link *, int source, int tag, int tries, rill__arrival *);
    /* Receives what the last probe found. soon: the message is small; what may be missing of it is
     * waited for, and the wire is through. Without memory for it (NULL) the message is thrown away,
     * soon. */
    rill_status (*receive)(rill__link *, const rill__arrival *, int tag, void *, bool soon,
                           rill__wire *);
    /* Receives the next message of that source and tag, there already or yet to come: at most room
     * bytes (a longer one is a failure of test). No probe finds that message. */
    rill_status (*post)(rill__link *, int source, int tag, void *, size_t room, rill__wire *);
    /* RILL_OK: through, and *bytes (may be NULL) is what came; RILL_IN_PROGRESS. A failure ends it,
     * too. */
    rill_status (*test)(rill__link *, rill__wire *, size_t *bytes);
    /* Blocks until the wire is through. NULL: rill__link_wait tests and idles. */
    rill_status (*wait)(rill__link *, rill__wire *);
    /* Ends a posted receive. *came: a message was taken by it all the same. */
    void (*cancel)(rill__link *, rill__wire *, bool *came);
    /* Collective: all has ranks * bytes. */
    rill_status (*allgather)(rill__link *, const void *mine, size_t bytes, void *all);
    rill_status (*bcast)(rill__link *, void *, size_t bytes, int root);
    /* Collective over the ranks of together, whose link is of this kind, or over such a one: opens
     * one more link of it for them. A failure is one on all ranks. NULL: there can be none. */
    rill_status (*another)(rill__link *, rill__link *together, rill__link **out);
    double (*clock)(rill__link *); /* seconds */
    /* A failure: why it cannot be used any more, not even closed. NULL: it always can. */
    rill_status (*usable)(rill__link *);
    /* The caller has nothing to do until something comes: gives the processor, or the turn, away.
     * polls: how often in vain by now. */
    void (*idle)(rill__link *, unsigned polls);
    /* Advances the calls of other ranks that live in this process, and never waits. NULL: there are
     * none. */
    void (*help)(rill__link *);
    /* Nobody advances this rank's calls any more: they go before the link does. NULL: nobody
     * did. */
    void (*unhelp)(rill__link *);
    /* Memory of each rank of a host that the others of it can read and write: segment[place] and
     * sizes[place], NULL on a rank that lacks the memory for these tables. Only the first bytes of
     * it may be used, up to all that it has by grow. Collective over the communicator; *shared is
     * the same on all ranks of a host. NULL, or nothing shared: everything goes by message. */
    rill_status (*share)(rill__link *, const struct rill__hosts *, rill__share_bytes,
                         char **segment, size_t *sizes, bool *shared);
    /* So many bytes of this rank's segment may be used from now on, by all ranks of its host. It is
     * this rank's matter alone: the others need not know. False: they can't be had. NULL: all may
     * be used from the start. */
    bool (*grow)(rill__link *, uint64_t bytes);
    void (*unshare)(rill__link *); /* collective; fine where nothing is shared */
    /* Ranks of a host may read each other's memory: long messages between them can be lent. Whether
     * this rank has the memory for that; then, where all ranks have, and before any other message.
     * The reach outlives the link. NULL: messages go as they are. */
    bool (*lends)(rill__link *);
    void (*lend)(rill__link *, const struct rill__reach *, const struct rill__hosts *);
    /* This rank goes without waiting for the others: what it has sent still reaches them, what it
     * is sent is dropped, and every wire of it is through. NULL: ranks must go together
     * (req/farewell.c). */
    void (*leave)(rill__link *);
    /* Collective, but after leave, and after a rank has died: then it waits for nobody. The link is
     * freed by it. Who closes has not died, and the others are not told so. */
    rill_status (*close)(rill__link *);
    /* Raises fate[rank] of each rank to what the link knows; true: of one at least. This rank's
     * own fate is RILL__SILENT where the others have given it up. It is called often, whenever a
     * rank has waited for some time, so it costs next to nothing while nobody dies. Of a rank that
     * this has told of, or that was given up: sends to it are lost and through at once, wires to
     * and from it end with RILL_ERR_PEER at their next test, allgather and bcast end with that
     * error, and what it had sent may come or not. NULL: the link cannot tell; with a rank all
     * others end. */
    bool (*failed)(rill__link *, uint8_t *fate);
    /* The others have given that rank up, or it did not answer for too long: as if failed had told
     * of it. It may live, and must not take this for the death of this rank. */
    void (*give_up)(rill__link *, int rank);
    /* The survivors of a death have agreed to go on, and this rank is one of them. NULL: there is
     * nothing to do. */
    void (*survive)(rill__link *);
} rill__link_table;

/* Values of each rank that rill__link_most can compare at once. */
enum { RILL__LINK_VALUES = 8 };

/* The first member of every transport's own struct. Whoever opens a link fills it; a failure to
 * open it is one on all ranks. */
struct rill__link {
    const rill__link_table *table;
    int rank, ranks;
    double *values; /* room for ranks * RILL__LINK_VALUES: agreements need no memory of their own */
    /* What it can do, as data. */
    bool threads;   /* several threads may use several communicators at once, and a progress thread
                       may run */
    bool simulated; /* time, processors and memory are pretended */
    bool has_mpi;   /* rill__link_mpi_comm gives a communicator: MPI's own collectives, MPI-IO */
    bool ordered_posts; /* a posted receive is cheaper than a probe for small messages */
    bool yields; /* other ranks move on only where this one gives way: it does so at once when it
                    waits */
    bool notes_at_once; /* the send of a note (req/notes.c) is through when it returns */
    bool has_mail;      /* memory that ranks of a host share may stand for small messages */
    bool copies_pages;  /* the kernel copies messages page by page: huge pages make them faster */
    int most_at_once;   /* ranks up to which small messages are received one by one */
    uint64_t message_limit; /* most bytes of one message */
    uint64_t network_part;  /* the same that is best over TCP; 0: no less */
    uint64_t host[2];       /* the same for ranks that can share memory; 0, 0: it is not known */
    double
        patience; /* seconds without progress after which a rank asks the others what they are in */
    uint64_t (*ticks)(rill__link *); /* NULL: the processor's counter will do (link/clock.h) */
    uint64_t key;                    /* of the job; 0: nobody else can send a message */
    /* Messages without it, which were dropped; NULL: there is no key. */
    atomic_uint_least64_t *strangers;
    int hosts; /* the communicator's, pretended ones too, from when it has found them; 0 before */
};

/* ---- link.c: what every link can do by the table ---- */
rill_status rill__link_wait(rill__link *, rill__wire *);
/* What idle does where ranks are processes: the processor goes to others, for longer the longer
 * nothing has come. */
void rill__link_yield(rill__link *, unsigned polls);
/* Collective: values[i] becomes the largest of all ranks' (n <= RILL__LINK_VALUES; 0: a barrier).
 */
rill_status rill__link_most(rill__link *, double *values, int n);
/* Collective: the lowest status of all ranks, in *worst. Its own status: whether they could agree.
 */
rill_status rill__link_worst(rill__link *, rill_status mine, rill_status *worst);

#endif
