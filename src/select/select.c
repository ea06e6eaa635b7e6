/* The selector: options in, calls checked, state kept. The methods are in their own files. */
#include "select/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BUCKET = 512, DEFAULT_BLOCK = 256, DEFAULT_INTERVAL = 32, MOST_THREADS = 1024 };
enum { LEAST_SLICE = 1 << 20 };
static const double default_block_density = 1.0 / 32;
static const uint64_t most_bucket = UINT64_C(1) << 31; /* offsets inside have 32 bits */

/* ---- options ------------------------------------------------------------------------------ */

#define CREATE "rill_selector_create: "

static rill_status check_options(const rill__select_method *method, const rill_select_options *o) {
    if (o->density != 0 && !(o->density > 0 && o->density <= 1))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "density %g is not in (0, 1]", o->density);
    if (!(o->threshold >= 0))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "threshold %g is negative or NaN",
                          o->threshold);
    if (o->threads < 0 || o->threads > MOST_THREADS)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "threads %d is not in 0 to %d", o->threads,
                          MOST_THREADS);
    if (o->bucket > most_bucket)
        return rill__fail(RILL_ERR_UNSUPPORTED, CREATE "bucket %llu is above 2^31",
                          (unsigned long long)o->bucket);
    if (o->block > most_bucket)
        return rill__fail(RILL_ERR_UNSUPPORTED, CREATE "block %llu is above 2^31",
                          (unsigned long long)o->block);
    bool share = o->k > 0 || o->density > 0;
    if (method->needs_share && !share)
        return rill__fail(RILL_ERR_ARGUMENT,
                          CREATE "k and density are 0, and method '%s' needs one", method->name);
    if (method == &rill__select_threshold && !share && o->threshold == 0)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "threshold, k and density are 0, and method "
                                                    "'threshold' needs one");
    return RILL_OK;
}

static void resolve(rill_selector *s, const rill_select_options *o) {
    double dim = (double)s->dim;
    s->density = o->density;
    if (o->k) {
        s->k = rill__min_u64(o->k, s->dim);
        s->density = s->dim ? (double)s->k / dim : 1;
    } else if (o->density > 0) {
        double k = floor(o->density * dim + 0.5);
        s->k = o->density == 1 ? s->dim : rill__min_u64(s->dim, rill__max_u64(1, (uint64_t)k));
    }
    if (s->density == 0) s->density = default_block_density;
    /* No larger than the vector, so that memory is not reserved for nothing. */
    uint64_t most = rill__max_u64(1, rill__min_u64(s->dim, most_bucket));
    s->bucket = rill__min_u64(o->bucket ? o->bucket : DEFAULT_BUCKET, most);
    s->block = rill__min_u64(o->block ? o->block : DEFAULT_BLOCK, most);
    s->interval = o->interval ? o->interval : DEFAULT_INTERVAL;
    s->seed = o->seed;
    s->threshold = o->threshold;
    s->threads = o->threads ? o->threads : 1;
    s->least_slice = LEAST_SLICE;
}

/* ---- life cycle --------------------------------------------------------------------------- */

rill_status rill_selector_create(rill_type type, uint64_t dim, const rill_select_options *given,
                                 rill_selector **out) {
    const rill__space *space;
    rill_memory memory = RILL_HOST;
    int device = -1;
    if (out) *out = NULL;
    if (given && given->size >= offsetof(rill_select_options, device) + sizeof device) {
        memory = given->memory;
        device = given->device;
    }
    RILL_TRY(rill__space_open("rill_selector_create", memory, device, &space));
    rill_status status = rill__selector_create_in(space, type, dim, given, out);
    if (status == RILL_OK && !space->is_host) (*out)->opened = space;
    if (status != RILL_OK) rill__space_close(space);
    return status;
}

rill_status rill__selector_create_in(const rill__space *space, rill_type type, uint64_t dim,
                                     const rill_select_options *given, rill_selector **out) {
    if (!out) return rill__fail(RILL_ERR_ARGUMENT, CREATE "out is NULL");
    *out = NULL;
    if (!rill__type_size(type))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "unknown type %d", (int)type);
    if (!given) return rill__fail(RILL_ERR_ARGUMENT, CREATE "options is NULL");
    if (!space->call && !space->pick)
        return rill__fail(RILL_ERR_UNSUPPORTED, CREATE "there is no selection in memory '%s'",
                          space->name);
    if (given->size < offsetof(rill_select_options, bucket))
        return rill__fail(RILL_ERR_ARGUMENT,
                          CREATE "options.size %zu: use RILL_SELECT_OPTIONS_INIT", given->size);
    /* A program built against an older header has a shorter struct. */
    rill_select_options o = RILL_SELECT_OPTIONS_INIT;
    memcpy(&o, given, given->size < sizeof o ? given->size : sizeof o);
    const char *name = o.method ? o.method : "topk";
    const rill__select_method *method = rill__select_method_named(name);
    if (!method) return rill__fail(RILL_ERR_UNKNOWN, CREATE "method '%s' is unknown", name);
    RILL_TRY(check_options(method, &o));

    rill_selector *s = rill__calloc(1, sizeof *s);
    if (!s) return rill__fail(RILL_ERR_MEMORY, "out of memory for a selector");
    s->shape = (rill__shape){type, rill__index_bytes(dim)};
    s->size = (unsigned)rill__type_size(type);
    s->dim = dim;
    s->method = method;
    s->space = space;
    s->kernels = space->select;
    resolve(s, &o);
    rill_status status = space->pick ? rill__pick_supported(s) : RILL_OK;
    if (status == RILL_OK) {
        s->slices = rill__calloc((size_t)s->threads, sizeof *s->slices);
        if (!s->slices)
            status = rill__fail(RILL_ERR_MEMORY, "out of memory for %d threads", o.threads);
    }
    if (status == RILL_OK) *out = s;
    else free(s);
    return status;
}

static void exchange(rill__buffer *a, rill__buffer *b) {
    rill__buffer swap = *a;
    *a = *b;
    *b = swap;
}

void rill__selector_take_room(rill_selector *s, rill_selector *from) {
    if (s == from || s->threads != from->threads) return;
    rill__slice *slices = s->slices;
    s->slices = from->slices;
    from->slices = slices;
    exchange(&s->sample, &from->sample);
    exchange(&s->addend, &from->addend);
    exchange(&s->work, &from->work);
}

rill_status rill_selector_free(rill_selector **selector) {
    if (!selector || !*selector) return RILL_OK;
    rill_selector *s = *selector;
    for (int i = 0; i < s->threads; i++) {
        rill__slice *p = &s->slices[i];
        rill__buffer *buffers[] = {&p->keys,    &p->own_idx,    &p->own_val,
                                   &p->scratch, &p->reject_idx, &p->reject_val};
        for (size_t j = 0; j < sizeof buffers / sizeof *buffers; j++)
            rill__buffer_free(buffers[j]);
    }
    free(s->slices);
    rill__buffer_free(&s->sample);
    rill__buffer_free(&s->addend);
    rill__buffer_free(&s->work);
    rill__space_close(s->opened);
    free(s);
    *selector = NULL;
    return RILL_OK;
}

/* ---- calls -------------------------------------------------------------------------------- */

static rill_status check_call(const char *call, const rill_selector *s, const rill_stream *out) {
    if (!s) return rill__fail(RILL_ERR_ARGUMENT, "%s: selector is NULL", call);
    if (!out) return rill__fail(RILL_ERR_ARGUMENT, "%s: out is NULL", call);
    if (out->type != s->shape.type)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: out has type %s, the selector %s", call,
                          rill_type_name(out->type), rill_type_name(s->shape.type));
    if (out->dim != s->dim)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: out has dimension %llu, the selector %llu", call,
                          (unsigned long long)out->dim, (unsigned long long)s->dim);
    const rill__space *space = rill__stream_space(out);
    if (!rill__space_same(space, s->space))
        return rill__fail(RILL_ERR_ARGUMENT, "%s: out lies in memory '%s', the selector in '%s'",
                          call, space->name, s->space->name);
    return RILL_OK;
}

typedef struct selection {
    rill_selector *selector;
    rill__source source;
    rill_stream *out;
} selection;

/* After a failure nothing is selected, and what was to be added to the residual is there. */
static rill_status run_here(void *context) {
    rill_selector *s = ((selection *)context)->selector;
    rill__source source = ((selection *)context)->source;
    rill_stream *out = ((selection *)context)->out;
    s->n_slices = 0;
    s->fed = s->skipped = false;
    rill_status status = rill__stream_reserve_pairs(out, 0);
    memset(out->fill, 0, sizeof out->fill);
    if (status == RILL_OK && s->dim) status = s->method->select(s, source, out);
    if (status < 0) {
        if (s->dim) rill__slices_recover(s, source, out);
        out->nnz = 0;
    }
    rill__slices_note(s);
    if (status == RILL_OK) s->calls++;
    return status;
}

/* The same by the space's own kernels. */
static rill_status run_there(rill_selector *s, rill__source source, rill_stream *out) {
    s->fed = s->skipped = false;
    rill_status status = rill__stream_reserve_pairs(out, 0);
    memset(out->fill, 0, sizeof out->fill);
    if (status == RILL_OK && s->dim) status = rill__pick_there(s, source, out);
    if (status == RILL_OK) {
        s->calls++;
        return RILL_OK;
    }
    out->nnz = 0;
    if (!source.gradient || s->fed || !s->dim) return status;
    if (!s->guards)
        rill__dense_add(s->space, s->shape.type, source.residual, source.gradient, s->dim);
    else if (!rill__dense_add_finite(s->space, s->shape.type, source.residual, source.gradient,
                                     s->dim))
        s->skipped = true;
    return status;
}

static rill_status run(rill_selector *s, rill__source source, rill_stream *out) {
    selection what = {s, source, out};
    if (s->space->pick) return run_there(s, source, out);
    return s->space->is_host ? run_here(&what) : s->space->call(s->space, run_here, &what);
}

/* A selector of its own: behind what the user's stream has been given. One of a reducer's follows
 * the reducer's. */
static rill_status follow(const char *call, const rill_selector *s, void *stream) {
    if (s && s->opened) return s->space->order->follow(s->space, stream);
    if (!stream || !s) return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT, "%s: a stream, but the selector is not in RILL_CUDA",
                      call);
}

static rill_status select_dense(const char *call, rill_selector *s, const void *dense,
                                rill_stream *out, void *stream) {
    RILL_TRY(check_call(call, s, out));
    if (!dense && s->dim) return rill__fail(RILL_ERR_ARGUMENT, "%s: dense is NULL", call);
    RILL_TRY(follow(call, s, stream));
    return run(s, (rill__source){dense, NULL, NULL}, out);
}

rill_status rill_select(rill_selector *s, const void *dense, rill_stream *out) {
    return select_dense("rill_select", s, dense, out, NULL);
}

rill_status rill_select_on(rill_selector *s, const void *dense, rill_stream *out, void *stream) {
    return select_dense("rill_select_on", s, dense, out, stream);
}

static rill_status select_residual(const char *call, rill_selector *s, const void *gradient,
                                   void *residual, rill_stream *out, void *stream) {
    RILL_TRY(check_call(call, s, out));
    if (!gradient && s->dim) return rill__fail(RILL_ERR_ARGUMENT, "%s: gradient is NULL", call);
    if (!residual && s->dim) return rill__fail(RILL_ERR_ARGUMENT, "%s: residual is NULL", call);
    if (gradient == residual && s->dim)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: gradient is residual", call);
    RILL_TRY(follow(call, s, stream));
    return run(s, (rill__source){residual, residual, gradient}, out);
}

rill_status rill__select_fed(rill_selector *s, void *residual, rill_stream *out) {
    return run(s, (rill__source){residual, residual, NULL}, out);
}

rill_status rill_select_residual(rill_selector *s, const void *gradient, void *residual,
                                 rill_stream *out) {
    return select_residual("rill_select_residual", s, gradient, residual, out, NULL);
}

rill_status rill_select_residual_on(rill_selector *s, const void *gradient, void *residual,
                                    rill_stream *out, void *stream) {
    return select_residual("rill_select_residual_on", s, gradient, residual, out, stream);
}

/* ---- keys --------------------------------------------------------------------------------- */

double rill__key_value(rill_type type, uint64_t key) {
    if (key >= rill__key_nan(type)) return INFINITY;
    uint64_t bits = key; /* values are little-endian, as their bits */
    return rill__value_load(type, &bits);
}

uint64_t rill__key_from(rill_type type, double magnitude) {
    uint64_t bits = 0;
    rill__value_store(type, &bits, magnitude);
    /* Rounding to nearest may have gone below. */
    return rill__key_value(type, bits) < magnitude ? bits + 1 : bits;
}
