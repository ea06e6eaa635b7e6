/* Steps of which a space does all but the exchange, and that the host does not wait for.
 *
 * Everything that the device has to do is queued by the call that posts the step: it picks entries,
 * puts them into memory that the host can read, waits for a flag, and then does what an answer
 * tells it. Meanwhile any thread takes the pairs, exchanges them, writes the answer and sets the
 * flag. That thread asks nothing of the device: a stream that waits for a flag keeps some calls of
 * the device's library from returning, and who must set the flag cannot wait for those.
 *
 * Steps of one mail come one after the other: what a step reads and writes is free again when the
 * next one's pairs are there. */
#ifndef RILL_SPACE_MAIL_H
#define RILL_SPACE_MAIL_H

#include "space/operations.h"
#include "space/pick.h"

typedef struct rill__space rill__space;
typedef struct rill__mail rill__mail;

/* Pairs that there is room for. */
typedef struct rill__mail_rooms {
    rill_type type;
    uint64_t own;      /* picked in a step */
    uint64_t range;    /* by the largest of several picks; 0: there is one alone */
    uint64_t result;   /* of the exchange */
    uint64_t masks;    /* of a result that answers look for indices in; 0: they do not */
    uint64_t returned; /* other parts of the answer */
} rill__mail_rooms;

/* picks: of ranges that begin at first, in order; the arrays of pairs are the mail's. Each adds
 * gradient to residual. gradient or update NULL: it is that of the tensors, and the picks have
 * none. */
typedef struct rill__mail_step {
    uint32_t number;
    const rill__pick *picks;
    const uint64_t *first;
    int n_picks;
    uint64_t n;
    void *residual;
    const void *gradient;
    void *update;
    const rill_tensor *tensors;
    int n_tensors;
    bool guards;          /* as a pick's */
    bool undoes, returns; /* what the answer may ask for */
    /* Where there is one pick: pairs whose key is below are not sent, and go back; 0: all are. And
     * whether anybody asks for least and above. */
    uint64_t floor;
    bool looks;
} rill__mail_step;

/* What came of the picks. pairs may be changed by who reads them: those below the floor are still
 * among them. */
typedef struct rill__mailed {
    uint64_t n;
    void *idx, *val;
    uint64_t nonfinite; /* sums that are not finite */
    uint64_t least;     /* the smallest key of the pairs; 0: there are none */
    uint64_t above;     /* values left in the residual that reach the floor */
} rill__mailed;

/* Pairs, ascending; or n values from first on. */
typedef struct rill__mail_part {
    bool dense;
    uint64_t first, n;
    const void *idx, *val;
} rill__mail_part;

typedef enum rill__mail_own { RILL__OWN_GONE, RILL__OWN_BACK, RILL__OWN_OUTSIDE } rill__mail_own;

typedef struct rill__mail_answer {
    uint32_t number;
    bool nan;               /* the update is; and there is no result */
    bool undo;              /* the gradient is taken out of the residual again */
    rill__mail_own own;     /* pairs picked that go back: none, all, those outside of the result */
    bool inside;            /* of the parts: pairs whose index is in the result */
    rill__mail_part result; /* is divided by */
    double divisor;
    bool checks;                  /* that the quotients are finite */
    const rill__mail_part *parts; /* are added to the residual, one after the other */
    int n_parts;
} rill__mail_answer;

/* What a space has for it. */
typedef struct rill__space_mail {
    rill_status (*open)(const rill__space *, rill__mail **);
    void (*close)(const rill__space *, rill__mail *);
    /* Grows; no step may be on its way then. */
    rill_status (*reserve)(const rill__space *, rill__mail *, const rill__mail_rooms *);
    /* Behind all operations given so far. A failure has queued nothing, unless the device is lost.
     */
    rill_status (*post)(const rill__space *, rill__mail *, const rill__mail_step *);
    /* The step is over when all operations given so far are; the last of its calls. */
    rill_status (*end)(const rill__space *, rill__mail *, uint32_t number);
    /* Streams of this process that can wait without holding up others. */
    int (*queues)(const rill__space *);

    /* From any thread: none of these asks anything of the device. */
    bool (*arrived)(const rill__mail *, uint32_t number);
    rill__mailed (*read)(const rill__mail *); /* the step that arrived */
    bool (*fits)(const rill__mail *, const rill__mail_answer *);
    /* It fits. False: the result is not finite, and there is no answer yet. */
    bool (*answer)(rill__mail *, const rill__mail_answer *);
    bool (*over)(const rill__mail *, uint32_t number);
} rill__space_mail;

#endif
