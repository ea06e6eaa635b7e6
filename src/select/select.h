/* Inside of rill_selector: what the methods share. */
#ifndef RILL_SELECT_SELECT_H
#define RILL_SELECT_SELECT_H

#include "space/select_kernels.h"
#include "stream/stream.h"

#include <pthread.h>

/* Where entries come from. dense is selected from; residual is dense once more where the selected
 * entries must become 0, else NULL; gradient, unless NULL, is still to be added to residual. */
typedef struct rill__source {
    const void *dense;
    void *residual;
    const void *gradient;
} rill__source;

/* Whether a pick can be told before the vectors are there: by what the selector has been created
 * with, or once it is known what became of the call before. */
typedef enum rill__ahead { RILL__NOT_AHEAD, RILL__AHEAD_IN_TURN, RILL__AHEAD } rill__ahead;

/* A row of the table. select gives out the sorted pairs and clears them in residual; out is sparse
 * and empty before. Entries that are 0 are never selected, except by "random". */
typedef struct rill__select_method {
    const char *name;
    const char *description;
    bool needs_share; /* k or density must be given */
    rill_status (*select)(rill_selector *, rill__source, rill_stream *out);
    /* The same where the vectors lie in a space that picks by itself (space/pick.h), to the bit:
     * what is asked for, but for the arrays, and the most pairs that it gives; NULL: there is no
     * such way. key: entries below it are not selected, and go back. */
    rill__pick (*ask)(const rill_selector *, uint64_t *room);
    rill__ahead ahead;
    rill_status (*pick)(rill_selector *, rill__source, rill_stream *out); /* NULL: as asked for */
    /* What came of a pick that was told ahead. passed: pairs picked that reach the key; above:
     * values that were not picked and do. NULL: nobody wants to know. */
    void (*note)(rill_selector *, const rill__picked *, uint64_t passed, uint64_t above);
} rill__select_method;

extern const rill__select_method rill__select_topk, rill__select_bucket, rill__select_block,
    rill__select_threshold, rill__select_gaussian, rill__select_random;
const rill__select_method *rill__select_method_named(const char *name); /* NULL: unknown */

typedef struct rill__slice rill__slice;

/* What a slice's thread does. */
typedef struct rill__slice_job {
    rill_status (*work)(rill__slice *, const void *context);
    const void *context;
    rill_status status;
    pthread_t thread;
    bool started;
} rill__slice_job;

/* A range of the vector, served by one thread. The pairs found lie in *idx and *val: the stream's
 * own arrays for the first part, so that a single thread copies nothing. */
struct rill__slice {
    rill_selector *selector;
    uint64_t first, n;
    uint64_t added; /* entries from first on that have got their gradient */
    bool skipped;   /* a value of it was not finite, and counted as 0 */
    rill__buffer *idx, *val;
    uint64_t count;
    rill__buffer keys; /* of the pairs below the scan's high */
    uint64_t n_keys;
    bool pruned; /* then keys is of no use */
    rill__slice_job job;
    rill__buffer own_idx, own_val, scratch, reject_idx, reject_val;
};

struct rill_selector {
    const rill__space *space;  /* that vectors and streams of its calls lie in */
    const rill__space *opened; /* the same, where it is this selector's own; else NULL */
    rill__shape shape;
    unsigned size; /* bytes of a value */
    uint64_t dim;
    const rill__select_method *method;
    const rill__select_kernels *kernels;
    uint64_t k; /* 0: neither k nor density was given */
    double density;
    uint64_t bucket, block, interval, seed;
    double threshold;
    int threads;
    uint64_t least_slice; /* entries for which a thread pays; tests lower it */

    bool guards;  /* a sum that is not finite leaves the residual's entry as it was */
    bool skipped; /* and the last call had one */
    bool fed;     /* an earlier pass of this call has added all of the gradient */

    uint64_t calls;      /* that succeeded */
    double margin;       /* topk: standard deviations by which the sample is distrusted */
    double level;        /* threshold: the steered one */
    uint64_t exact_at;   /* threshold: the call that finds it anew */
    uint64_t expected;   /* threshold: what the last call found */
    rill__slice *slices; /* as many as threads */
    int n_slices;        /* in use by the present call */
    rill__buffer sample, addend, work;
};

/* rill_select_residual with a gradient that has been added to the residual before. */
rill_status rill__select_fed(rill_selector *, void *residual, rill_stream *out);

/* rill_selector_create for vectors in a space. */
rill_status rill__selector_create_in(const rill__space *, rill_type, uint64_t dim,
                                     const rill_select_options *, rill_selector **out);

/* ---- spaces that pick by themselves (select_pick.c) ----------------------------------------- */

/* Whether the selector's space can, with its type and sizes. */
rill_status rill__pick_supported(const rill_selector *);
/* Runs it with the selector's type, guards and the source, into out, which has room for so many
 * pairs; notes that the gradient has been added. */
rill_status rill__pick_run(rill_selector *, rill__source, rill__pick *, uint64_t room,
                           rill_stream *out, rill__picked *);
/* The method's pick. */
rill_status rill__pick_there(rill_selector *, rill__source, rill_stream *out);
rill__ahead rill__pick_can_ahead(const char *method);
void rill__pick_ahead(const rill_selector *, rill__pick *); /* all but the arrays */
/* What came of it; the call has succeeded. */
void rill__pick_note(rill_selector *, const rill__picked *, uint64_t passed, uint64_t above);
/* Leaves out the pairs whose key is below the floor; returns how many are left. In the host's
 * memory. */
uint64_t rill__pick_sift(const rill_selector *, uint64_t n, void *idx, void *val, uint64_t floor);
bool rill__pick_looks(const rill_selector *); /* whether that needs least and above */

/* Room of a selector that has nothing to do just now, for one with as many threads; what that had
 * goes back in its place. */
void rill__selector_take_room(rill_selector *, rill_selector *from);

/* ---- slices (select_slices.c) --------------------------------------------------------------- */

/* What a pass did with the gradient: all of it added, something skipped. */
void rill__slices_note(rill_selector *);
/* Parts start at multiples of align. */
void rill__slices_split(rill_selector *, uint64_t align, rill_stream *out);
/* Runs work on every part, each in a thread; the first failure. */
rill_status rill__slices_run(rill_selector *,
                             rill_status (*work)(rill__slice *, const void *context),
                             const void *context);
/* The same in this thread alone, for what is over sooner than a thread starts. */
rill_status rill__slices_each(rill_selector *,
                              rill_status (*work)(rill__slice *, const void *context),
                              const void *context);
uint64_t rill__slices_count(const rill_selector *); /* pairs in all slices */
/* Appends the pairs of all slices to out, whose arrays hold those of the first. */
rill_status rill__slices_join(rill_selector *, rill_stream *out);
/* Room for bytes; keeps the first used bytes when it grows. */
rill_status rill__buffer_grow(rill__buffer *, size_t used, size_t bytes);
rill_status rill__slice_room(rill__slice *, uint64_t more); /* pairs */
/* Appends the entries at + offsets[0..n) and clears them in residual. There must be room. */
void rill__slice_take(rill__slice *, rill__source, uint64_t at, uint64_t n,
                      const uint32_t *offsets);
/* Its halves, which write from p->count on but leave that as it is. */
void rill__slice_values(rill__slice *, rill__source, uint64_t at, uint64_t n,
                        const uint32_t *offsets);
void rill__slice_indices(rill__slice *, uint64_t at, uint64_t n, const uint32_t *offsets);

/* What kernels report sums to that are not finite; NULL: nobody asks. */
static inline bool *rill__slice_guard(rill__slice *p) {
    return p->selector->guards ? &p->skipped : NULL;
}
/* residual += gradient for the next n entries of the slice, at; nothing where there is no gradient.
 */
void rill__slice_add(rill__slice *, rill__source, uint64_t at, uint64_t n);
/* After a failure: all pairs go back, and the rest of the gradient is added. */
void rill__slices_recover(rill_selector *, rill__source, rill_stream *out);

/* ---- scans (select_scan.c) ---------------------------------------------------------------- */

/* One pass: adds the gradient, takes every entry with at least this key, clears it in residual. */
typedef struct rill__scan {
    rill__source source;
    uint64_t key;    /* at least 1 */
    uint64_t high;   /* collect the keys below this; 0: none */
    uint64_t limit;  /* a part that has many more pairs keeps the limit largest; 0: all */
    uint64_t expect; /* room to start with, in pairs */
} rill__scan;
rill_status rill__scan_run(rill_selector *, const rill__scan *, rill_stream *out);
/* Of the pairs that a scan left in its slices, keeps the k largest, and puts the others back into
 * residual. At least k pairs must be there. *least, unless NULL, is the smallest key kept. */
rill_status rill__scan_cut(rill_selector *, const rill__scan *, uint64_t k, uint64_t *least);
/* Puts all pairs of the slices back into residual. */
void rill__scan_undo(rill_selector *, const rill__scan *);
/* residual += gradient and nothing else; without a gradient nothing at all. */
rill_status rill__add_gradient(rill_selector *, rill__source *, rill_stream *out);

/* ---- exact selection (select_topk.c) ------------------------------------------------------ */

/* A sample of what is selected from, of n entries: values in s->sample, keys in s->addend, and as
 * much room in s->work. Of a short vector it has all entries. */
rill_status rill__sample_take(rill_selector *, const rill__source *, uint64_t *n);
/* The k largest; *least, unless NULL, is the smallest key selected (0: nothing was). */
rill_status rill__topk(rill_selector *, rill__source, uint64_t k, rill_stream *out,
                       uint64_t *least);

static inline uint64_t rill__key_at(const rill_selector *s, const void *val, uint64_t i) {
    uint64_t bits = s->size == 2   ? ((const uint16_t *)val)[i]
                    : s->size == 4 ? ((const uint32_t *)val)[i]
                                   : ((const uint64_t *)val)[i];
    return rill__min_u64(bits & (rill__key_none(s->shape.type) - 1), rill__key_nan(s->shape.type));
}
/* The smallest key whose value is at least this magnitude, and the value of a key. */
uint64_t rill__key_from(rill_type, double magnitude);
double rill__key_value(rill_type, uint64_t key);

#endif
