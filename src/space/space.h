/* What a memory can do: give and take back room, copy to and from the host's memory, and run
 * operations on entries that lie in it, in order.
 *
 * Parts, streams, selectors and reducers know their space. Who is not sure that it is the host's
 * touches entries only through a space's operations: a device's memory cannot be read from here,
 * and what was asked of it is done later. The host's own space does everything at once, in the
 * caller's thread.
 *
 * A failure of a space (a device that is lost) stays with it: operations do nothing from then on,
 * and what waits for them returns the failure. */
#ifndef RILL_SPACE_SPACE_H
#define RILL_SPACE_SPACE_H

#include "space/codec_kernels.h"
#include "space/codes.h"
#include "space/mail.h"
#include "space/operations.h"
#include "space/pick.h"
#include "space/select_kernels.h"
#include "space/tensors.h"

/* The order of a device's work and a user's: streams of the device's own kind (a cudaStream_t;
 * NULL: the legacy one). None of it waits. */
typedef struct rill__space_order {
    /* A mark in the user's stream, made once and recorded again and again. */
    rill_status (*mark_create)(const rill__space *, void **mark);
    void (*mark_free)(const rill__space *, void *mark);
    rill_status (*record)(const rill__space *, void *mark, void *stream);
    rill_status (*reached)(const rill__space *, void *mark); /* or RILL_IN_PROGRESS */
    /* Operations from now on run behind what the stream has been given so far, or the mark. */
    rill_status (*follow)(const rill__space *, void *stream);
    rill_status (*follow_mark)(const rill__space *, void *mark);
    rill_status (*capturing)(const rill__space *, void *stream, bool *);
    /* What the stream is given from now on runs behind the operations given so far. */
    rill_status (*lead)(const rill__space *, void *stream);
    /* This thread, one of rill's own, works for the space from now on. */
    void (*adopt)(const rill__space *);
} rill__space_order;

struct rill__space {
    rill__memory
        memory; /* for buffers; the first member, so that a buffer's memory tells the space */
    const char *name;
    rill_memory kind;
    int device;
    bool is_host; /* entries can be touched at any time, and every operation is over at once */

    /* The inner loops of host code, for entries that it can touch: the host's own, and others
     * inside of call. NULL: host code never can. */
    const rill__kernels *stream;
    const rill__select_kernels *select;
    const rill__codec_kernels *codec;

    /* Between the host's memory and the space, behind all operations given so far. host is free
     * again when copy_in returns, and holds the bytes when copy_out does. */
    rill_status (*copy_in)(const rill__space *, void *to, const void *host, size_t bytes);
    rill_status (*copy_out)(const rill__space *, void *host, const void *from, size_t bytes);
    /* With an answer the operation is over on return, without it may run later. */
    void (*run)(const rill__space *, const rill__operation *, rill__answer *or_null);
    /* Runs host code that touches entries, behind all operations given so far; it is over on
     * return. NULL: there is no such code for this memory. */
    rill_status (*call)(const rill__space *, rill_status (*fn)(void *context), void *context);
    /* RILL_IN_PROGRESS: an operation is still to be done. Does not block. */
    rill_status (*poll)(const rill__space *);
    rill_status (*wait)(const rill__space *); /* until all are done */
    /* Selects; over on return. NULL: host code does (call). Failures but for want of memory are
     * those of the space, and stay. */
    rill_status (*pick)(const rill__space *, const rill__pick *, rill__picked *);
    const rill__space_order *order;     /* NULL: everything is in the order of the program */
    const rill__space_mail *mail;       /* NULL: none */
    const rill__space_tensors *tensors; /* NULL: host code does it */
    const rill__space_codes *codes;     /* the same */
    const rill__memory *page_locked;    /* for buffers of the host that are copied from and to here;
                                        NULL: any will do */
    void *state;                        /* of the space's own */
};

/* The host's memory, with the kernels of the instruction set in use (core/isa.h). To be asked once,
 * where something is created, and kept. */
const rill__space *rill__host(void);
/* The kernels of an instruction set by name, for tests; NULL when not built or not supported here.
 */
const rill__kernels *rill__kernels_named(const char *isa);

/* The space of a public name. */
rill_status rill__space_find(const char *call, rill_memory, int device, const rill__space **out);
/* The same with a stream of its own where the memory has such, for one thread at a time; to be
 * closed, after all of its memory has been released. */
rill_status rill__space_open(const char *call, rill_memory, int device, const rill__space **out);
void rill__space_close(const rill__space *); /* NULL and what was not opened: nothing */

/* Whether arrays of one can be used with the other. */
static inline bool rill__space_same(const rill__space *a, const rill__space *b) {
    return a == b || (a->kind == b->kind && a->device == b->device);
}

/* Facts about a space. */
static inline const char *rill__space_isa(const rill__space *s) { return s->stream->isa; }
static inline bool rill__space_adds_bits(const rill__space *s) {
    return s->stream->add_bits != NULL;
}

static inline rill_status rill__space_wait(const rill__space *s) {
    return s->is_host ? RILL_OK : s->wait(s);
}

/* An empty buffer in a space. */
static inline rill__buffer rill__space_buffer(const rill__space *s) {
    return (rill__buffer){.memory = s->is_host ? NULL : &s->memory};
}

/* bytes from one space to another, of which one is the host's, or both are of one device. */
rill_status rill__space_copy(const rill__space *to_space, void *to, const rill__space *from_space,
                             const void *from, size_t bytes);

/* ---- space_cuda.c ---- */
/* An instance for a device's memory: that of all streams, or one to be closed. */
rill_status rill__cuda_find(const char *call, int device, const rill__space **out);
rill_status rill__cuda_open(const char *call, int device, const rill__space **out);
void rill__cuda_close(const rill__space *);
rill_status rill__cuda_describe(const char *call, int device, char *text, size_t size);
rill_status rill__cuda_await(const char *call, int device, void *stream);

/* ---- host code, where entries can be touched (host_pairs.c, host_copy.c) --------------------- */

/* dense[idx - first] = val for each pair: exact bounds, so also for the user's memory. */
void rill__assign_pairs(rill__shape, void *dense, uint64_t first, rill__pairs);
/* dense[0..n) = *value; writes nothing past the end. */
void rill__assign_fill(const rill__kernels *, rill_type, void *dense, uint64_t n,
                       const void *value);

/* A copy past the caches. Who has copied so calls the second before anybody else may read it. */
void rill__copy_past(void *to, const void *from, size_t bytes);
void rill__copied_past(void);

/* ---- the operations as functions; see operations.h ------------------------------------------ */

static inline void rill__do_copy(const rill__space *s, void *into, const void *from, size_t n) {
    s->run(s, &(rill__operation){.kind = RILL__DO_COPY, .into = into, .from = from, .n = n}, NULL);
}
static inline void rill__do_clear(const rill__space *s, void *into, size_t n) {
    s->run(s, &(rill__operation){.kind = RILL__DO_CLEAR, .into = into, .n = n}, NULL);
}
void rill__dense_fill(const rill__space *, rill_type, void *into, const void *value, uint64_t n);
void rill__dense_add(const rill__space *, rill_type, void *into, const void *from, uint64_t n);
void rill__dense_decay_add(const rill__space *, rill_type, void *into, double factor,
                           const void *from, uint64_t n);
void rill__dense_add_scaled(const rill__space *, rill_type, void *into, double factor,
                            const void *from, uint64_t n);
void rill__dense_scale(const rill__space *, rill_type, void *into, double factor, const void *from,
                       uint64_t n);
void rill__dense_divide(const rill__space *, rill_type, void *into, const void *from,
                        double divisor, uint64_t n);
double rill__dense_norm(const rill__space *, rill_type, const void *, uint64_t n);
bool rill__dense_is_finite(const rill__space *, rill_type, const void *, uint64_t n);
uint64_t rill__dense_drop_nonfinite(const rill__space *, rill_type, void *, uint64_t n);
bool rill__dense_add_finite(const rill__space *, rill_type, void *into, const void *from,
                            uint64_t n);
void rill__dense_subtract_finite(const rill__space *, rill_type, void *into, const void *from,
                                 uint64_t n);
bool rill__dense_decay_add_finite(const rill__space *, rill_type, void *into, double factor,
                                  const void *from, uint64_t n);
void rill__dense_undecay(const rill__space *, rill_type, void *into, double factor,
                         const void *from, uint64_t n);
bool rill__dense_divide_finite(const rill__space *, rill_type, void *into, const void *from,
                               double divisor, uint64_t n);
uint64_t rill__dense_write(const rill__space *, rill__shape, void *into, uint64_t first, uint64_t n,
                           rill__pairs);
/* mask may be NULL where where is RILL__EVERYWHERE. */
void rill__dense_add_pairs(const rill__space *, rill__shape, void *into, rill__pairs,
                           const rill__pairs *mask, rill__where);
void rill__dense_clear_pairs(const rill__space *, rill__shape, void *into, rill__pairs,
                             const rill__pairs *mask, rill__where);

#endif
