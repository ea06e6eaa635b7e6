/* Mail: small messages between ranks of a host, through memory that they share.
 *
 * Each rank has boxes in its segment for every other rank of its host. The message of call number
 * `seq` goes into box `seq` modulo their number: the sender copies it there and stamps the box with
 * the call, the receiver copies it out when it sees the stamp of its call. The receiver writes
 * nothing: a line that both write to would go back and forth between two processors. Instead all
 * mail tells which is the oldest call that its sender is still in, and a box with mail of a call
 * before that may be written to again, whether or not somebody has taken it: calls fail. Nobody
 * waits for a box: if it is taken, the message goes over the link. So mail has no order, and is for
 * messages of which a rank has at most one for another in a call (req/exchange.c). Mail is in its
 * box when it is sent, so that nobody has to take it in before a communicator is freed. A process
 * that dies leaves a box stamped or not, and nobody waits for it. */
#ifndef RILL_REQ_MAIL_H
#define RILL_REQ_MAIL_H

#include "link/hosts.h"

typedef struct rill__task rill__task;
typedef struct rill__parcel rill__parcel;
struct rill__transfer;

enum { RILL__MOST_BOXES = 4 };

/* Calls of boxes are numbered from 1; 0: none. */
typedef struct rill__mail_pair {
    char *out, *in;                   /* first boxes, to and from a rank; NULL: it has none */
    uint64_t done;                    /* its last call before the oldest that it is in */
    uint64_t sent[RILL__MOST_BOXES];  /* the call whose mail is in the box, */
    uint64_t taken[RILL__MOST_BOXES]; /* and the last one that was taken */
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

#endif
