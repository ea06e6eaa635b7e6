/* Inside of the link over UCX: link_ucx.c has its messages, link_ucx_open.c its life,
 * link_ucx_share.c its memory. */
#ifndef RILL_LINK_LINK_UCX_OWN_H
#define RILL_LINK_LINK_UCX_OWN_H

#include "link/link_ucx.h"
#include "link/watch.h"

#include <ucp/api/ucp.h>

/* UCX's 64 bits of a tag: key of the job (20), source (12), of the link itself (1), tag (31). */
enum { RILL__UCX_TAG_BITS = 31, RILL__UCX_SOURCE_AT = 32, RILL__UCX_KEY_AT = 44 };
/* Bytes from which a message is not sent before its receiver has asked for it. */
enum { RILL__UCX_LONG = 16384 };
#define RILL__UCX_LONG_TEXT "16384"
#define RILL__UCX_INNER (UINT64_C(1) << RILL__UCX_TAG_BITS)
#define RILL__UCX_TAG_MASK (RILL__UCX_INNER - 1)
#define RILL__UCX_SOURCE_MASK (UINT64_C(0xfff) << RILL__UCX_SOURCE_AT)
#define RILL__UCX_KEY_MASK (~UINT64_C(0) << RILL__UCX_KEY_AT)

typedef struct rill__link_ucx {
    rill__link link; /* first */
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h *peers; /* of each rank */
    rill__watch *watch;
    uint64_t key; /* in place */
    uint8_t job[RILL__JOB_KEY];
    rill__wire *wires;    /* room for 2 of each rank: allgather */
    bool *handles_errors; /* of each endpoint */
    bool *lost;           /* of each rank: no message reaches it */
    int first_lost;       /* one of them; -1: none */
    int watched_lost;     /* those that the watch has told of */
    double until;         /* while it is opened: when to give up; else 0 */
    uint64_t strangers;
    unsigned vain; /* probes */
    unsigned bit;  /* of the key, where strangers are looked for next */
    /* Shared memory. */
    int n_mapped;
    void **mapped;
    size_t *mapped_bytes;
} rill__link_ucx;

/* UCX has room for this in each of its requests. */
typedef enum rill__ucx_kind {
    RILL__UCX_SENDS,
    RILL__UCX_RECEIVES,
    RILL__UCX_FLUSHES
} rill__ucx_kind;
typedef struct rill__ucx_request {
    int peer;
    rill__ucx_kind kind;
    size_t bytes;
} rill__ucx_request;

static inline rill__link_ucx *rill__ucx_of(rill__link *link) { return (rill__link_ucx *)link; }

extern const rill__link_table rill__ucx_table;

/* ---- link_ucx.c ---- */
rill_status rill__ucx_error(ucs_status_t, const char *call);
/* Looks who is gone; true: somebody is. */
bool rill__ucx_look(rill__link_ucx *);
rill_status rill__ucx_lost(int rank); /* the error that names it */
/* Each rank gives the others bytes. */
rill_status rill__ucx_allgather(rill__link *, const void *mine, size_t bytes, void *all);

/* ---- link_ucx_share.c ---- */
rill_status rill__ucx_share(rill__link *, const struct rill__hosts *, uint64_t bytes,
                            char **segment, size_t *sizes, bool *shared);
void rill__ucx_unshare(rill__link *);

/* ---- link_ucx_open.c ---- */
rill_status rill__ucx_close(rill__link *);
rill_status rill__ucx_another(rill__link *, rill__link *together, rill__link **out);

#endif
