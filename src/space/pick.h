/* Selection in a space that has kernels for it: what host code does elsewhere (select_kernels.h).
 * What a pick gives is defined by select/, to the bit. */
#ifndef RILL_SPACE_PICK_H
#define RILL_SPACE_PICK_H

#include "core/core.h"

typedef enum rill__pick_kind {
    RILL__PICK_TOPK,      /* the k largest */
    RILL__PICK_THRESHOLD, /* all with at least this key */
    RILL__PICK_BUCKET,    /* the k largest of every `group` entries */
    RILL__PICK_BLOCK,     /* all of the k blocks of `group` entries with the largest norm */
    RILL__PICK_RANDOM,    /* k, by seed and call */
    RILL__PICK_STEERED    /* all with at least this key, but the k largest of them where they are
                             more; and none where they are over limit. count: how many they are */
} rill__pick_kind;

/* dense is selected from; or, where that is NULL, residual, after residual += gradient unless that
 * is NULL, and with zeros in the place of what is selected. guards: a sum that is not finite leaves
 * residual as it was. */
typedef struct rill__pick {
    rill__pick_kind kind;
    rill_type type;
    bool guards, wants_least;
    uint64_t n;
    const void *dense;
    void *residual;
    const void *gradient;
    uint64_t k, key, limit, group, seed, call;
    void *idx, *val; /* results: pairs of 4-byte indices, ascending */
    uint64_t room;   /* for so many. THRESHOLD leaves what is over, and counts it */
} rill__pick;

typedef struct rill__picked {
    uint64_t count;
    uint64_t nonfinite; /* sums that are not finite */
    uint64_t least;     /* the smallest key picked, if asked for; 0: none was. STEERED: where
                           more than k passed */
} rill__picked;

enum { RILL__PICK_BUCKET_MOST = 4096 }; /* entries of a bucket */

#endif
