/* The memory that a call needs when it ends, after its last message. */
#ifndef RILL_COLL_ROOMS_H
#define RILL_COLL_ROOMS_H

#include <stddef.h>

/* Arrays that the end of a call writes to: indices and values of each. */
typedef enum rill__room_name {
    RILL__ROOM_PIECE0,
    RILL__ROOM_PIECE1,
    RILL__ROOM_LISTS,   /* of the two pieces */
    RILL__ROOM_SCRATCH, /* values only */
    RILL__ROOM_LAST_PIECE = RILL__ROOM_SCRATCH,
    RILL__ROOM_SPARE, /* the call's own streams */
    RILL__ROOM_THIRD,
    RILL__ROOM_OUT,
    RILL__ROOM_TURN, /* of out, where it changes its form */
    RILL__ROOMS
} rill__room_name;

/* Bytes that were asked for there, where used has the bit. */
typedef struct rill__rooms {
    unsigned used;
    int receives; /* messages that came: room for so many at once */
    int parts;    /* most in a sum */
    struct {
        size_t idx, val;
    } at[RILL__ROOMS];
} rill__rooms;

#endif
