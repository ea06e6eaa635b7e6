/* Mail: small messages between ranks of a host, through memory that they share.
 *
 * Each rank has boxes in its segment for every other rank of its host. The message of call number
 * `seq` goes into box `seq` modulo their number: the sender copies it there and stamps the box with
 * the call, the receiver copies it out and clears the stamp. A stamp says it all: a box with that
 * of a call before the oldest that is active was left behind by one that failed, and is cleared;
 * one with that of another call waits for it. Nobody waits for a box: if it is taken, the message goes over the link. So mail
 * has no order, and is for messages of which a rank has at most one for another in a call
 * (req/exchange.c). A process that dies leaves a box stamped or not, and nobody waits for it. */
#ifndef RILL_REQ_MAIL_H
#define RILL_REQ_MAIL_H

#include "link/hosts.h"

typedef struct rill__task rill__task;
typedef struct rill__parcel rill__parcel;
struct rill__transfer;
struct rill__engine;

/* First boxes, to and from a rank; NULL: it has none. */
typedef struct rill__mail_pair {
    char *out, *in;
} rill__mail_pair;

typedef struct rill__mail {
    rill__mail_pair *pairs; /* of each rank; NULL: there is no mail */
    unsigned mask;          /* boxes of a pair and direction, less one: a power of two */
    size_t limit;           /* most bytes of a message */
    size_t stride;          /* of boxes */
} rill__mail;

/* Memory of the tables, before ranks agree; without it there is no mail. Returns the bytes that
 * each rank's segment has for boxes; 0: there is no mail. */
size_t rill__mail_reserve(rill__mail *, const rill__link *, const rill__hosts *, uint64_t limit);
/* Boxes are at the start of each segment, which has that many bytes for them, all 0. */
void rill__mail_open(rill__mail *, const rill__hosts *, char *const *segment);
void rill__mail_close(rill__mail *);

/* False: it can't go by mail. */
bool rill__mail_send(rill__task *, int to, const rill__parcel *);
/* From a rank that has boxes here (rill__mail_from). RILL_OK: the mail of the task's call is in *t,
 * a complete transfer. RILL_IN_PROGRESS: not after so many looks. RILL_ERR_MEMORY: it stays in its
 * box. */
rill_status rill__mail_receive(rill__task *, int source, int looks, struct rill__transfer *t);
/* Before the communicator is freed: throws away whatever is in the boxes. */
void rill__mail_discard(struct rill__engine *);

#endif
