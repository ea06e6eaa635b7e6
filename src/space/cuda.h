/* Inside of the CUDA space: device memory by the table of librill_cuda (cuda/cuda_space.h), which
 * is loaded at the first use and which this library does not link. */
#ifndef RILL_SPACE_CUDA_H
#define RILL_SPACE_CUDA_H

#include "cuda/cuda_space.h"
#include "space/space.h"

#include <pthread.h>

/* Page-locked memory that copies to the device pass through, one while the other is under way. */
typedef struct rill__cuda_lane {
    void *data;
    size_t bytes;
    void *event;
    bool used; /* the event was recorded */
} rill__cuda_lane;

/* An instance: its own stream, and what its operations need besides their arrays. That of streams
 * (rill_stream_create_in) uses the legacy stream, is shared by threads, and waits for each
 * operation. */
typedef struct rill__cuda {
    rill__space space; /* first */
    rill__memory page_locked;
    const rill__cuda_table *table;
    int device;
    bool shared;
    pthread_mutex_t lock; /* shared: one operation at a time */
    void *stream;         /* NULL: the legacy one */
    void *follows;        /* event: work of a user's stream that operations run behind */
    char *words;          /* device memory: answers */
    char *seen;           /* page-locked: the same, copied */
    void *workspace, *aligned;
    size_t workspace_bytes, aligned_bytes;
    void **retired; /* page-locked memory that is freed at the end: to free it may mean to wait for
                       a stream that waits for this instance */
    int n_retired;
    rill__cuda_lane lane[2];
    int next_lane;
    rill_status failed; /* sticky */
    char error[160];
} rill__cuda;

static inline rill__cuda *rill__cuda_of(const rill__space *s) { return s->state; }

/* Keeps the first failure; returns whether there is none. */
bool rill__cuda_check(rill__cuda *, int error, const char *what);
rill_status rill__cuda_status(const rill__cuda *); /* with the detail */
/* Makes the instance's device the thread's, and the one before it again. */
int rill__cuda_enter(const rill__cuda *);
void rill__cuda_leave(const rill__cuda *, int before);
/* At least so many bytes; contents are lost. NULL: a failure, which is not sticky, with its
 * detail. aligned: for copies of arrays that start anywhere. */
void *rill__cuda_workspace(rill__cuda *, size_t bytes);
void *rill__cuda_aligned(rill__cuda *, size_t bytes);
/* Page-locked memory that is freed with the instance. */
void rill__cuda_retire(rill__cuda *, void *data);
/* Copies bytes of words to seen, and waits for it. */
void rill__cuda_see(rill__cuda *, size_t bytes);

/* ---- space_cuda_run.c, space_cuda_pick.c ---- */
void rill__cuda_run(const rill__space *, const rill__operation *, rill__answer *or_null);
rill_status rill__cuda_pick(const rill__space *, const rill__pick *, rill__picked *);

/* Queues a selection, whose workspace there is; found: device memory. No cuts, and no least key. */
rill_status rill__cuda_pick_room(rill__cuda *, const rill__pick *);
void rill__cuda_pick_ahead(rill__cuda *, const rill__pick *, rill__cuda_found *found);

/* ---- space_cuda_order.c, space_cuda_mail.c, space_cuda_tensors.c, space_cuda_codes.c ---- */
extern const rill__space_order rill__cuda_order;
extern const rill__space_mail rill__cuda_mail_ops;
extern const rill__space_tensors rill__cuda_tensors_ops;
extern const rill__space_codes rill__cuda_codes_ops;

/* Queues the tensors' part of an operation. count, in device memory: sums that are not finite are
 * added to it. reply: only where that says so. */
void rill__cuda_add_tensors(rill__cuda *, int type, void *into, const rill_tensor *, int n,
                            bool guards, uint64_t *count);
void rill__cuda_subtract_tensors(rill__cuda *, int type, void *into, const rill_tensor *, int n,
                                 const rill__cuda_reply *);
void rill__cuda_write_tensors(rill__cuda *, int type, const rill_tensor *, int n,
                              const rill__cuda_pairs *);

#endif
