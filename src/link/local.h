/* The local link: ranks of one process, without MPI. A group has a mailbox for each rank; a message
 * is copied there, or, where it is large, lent by its sender until the receiver has copied it.
 *
 * Two ways to use a group. With threads: each rank is a thread's, or several are one thread's who
 * makes non-blocking calls. In a world (link/world.h): all ranks are fibers of one thread, and the
 * world says when a message arrives. */
#ifndef RILL_LINK_LOCAL_H
#define RILL_LINK_LOCAL_H

#include "link/link.h"

typedef struct rill__local_group rill__local_group;

typedef struct rill__local_message {
    struct rill__local_message *pair_next, *pair_last; /* in the mailbox, by source and tag */
    struct rill__local_message *tag_next, *tag_last;   /* in the mailbox, by tag */
    struct rill__local_message *lent_next;             /* of its sender */
    const char *data;
    size_t bytes;
    double arrives; /* the world's */
    uint64_t number;
    int source, to, tag;
    bool placed;  /* the world's */
    bool lent;    /* data is the sender's, who frees this struct when it is through */
    bool owned;   /* data is memory of its own */
    bool reserve; /* one of the group's reserve */
    _Atomic int state;
} rill__local_message;

/* What a world does in place of threads. Calls come from the rank's fiber. */
typedef struct rill__local_world {
    void *context;
    void (*sent)(void *context, rill__local_message *); /* to be given to rill__local_arrive */
    void (*taken)(void *context, const rill__local_message *); /* by its receiver */
    void (*look)(void *context, int rank); /* before this rank looks what has come */
    void (*idle)(void *context, int rank); /* lets others have their turn */
    double (*clock)(void *context, int rank);
    /* Raises what this rank knows of the others. False: all of them live. */
    bool (*fates)(void *context, int rank, uint8_t *fate);
    void (*met)(void *context);    /* all ranks have come to a collective of the link: they go on */
    void (*closed)(void *context); /* by the last rank; before the group is freed */
} rill__local_world;

/* One link per rank in links[0..ranks). world NULL: threads. The group is freed with the last of
 * them. */
rill_status rill__local_create(int ranks, const rill__local_world *, rill__link **links);
/* Messages of up to so many bytes are copied, others lent; those with the tags of notes are
 * always copied. */
enum { RILL__LOCAL_URGENT = 32766 };
void rill__local_set_copied(rill__link *, size_t most);
/* Before the links are in use by threads: what a rank does while it waits in a collective of the
 * link's own, in place of a yield; NULL: a yield. */
void rill__local_set_pause(rill__link *, void (*pause)(void *), void *context);
/* What advances the calls of this rank, for other ranks whose thread waits. It is called by any
 * thread, one at a time, until the rank leaves. */
void rill__local_set_helper(rill__link *, void (*advance)(void *), void *context);
/* World: the message is in its receiver's mailbox from now on. */
void rill__local_arrive(rill__local_group *, rill__local_message *);
void rill__local_drop(rill__local_group *, rill__local_message *); /* world: it never arrives */
rill__local_group *rill__local_group_of(rill__link *);

#endif
