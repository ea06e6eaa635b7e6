/* The host's memory: every operation runs at once, in the caller's thread, with the kernels of the
 * instruction set in use. */
#include "core/isa.h"
#include "space/host.h"

#include <string.h>

static const rill__kernels *const stream_kernels[] = RILL__ISA_TABLE(rill__kernels);

const rill__kernels *rill__kernels_named(const char *name) {
    rill__isa isa;
    return rill__isa_find(name, &isa) ? stream_kernels[isa] : NULL;
}

static rill_status copy(const rill__space *s, void *to, const void *from, size_t bytes) {
    (void)s;
    if (bytes) memcpy(to, from, bytes);
    return RILL_OK;
}

static void run_pairs(const rill__operation *o, rill__answer *a) {
    rill__shape shape = {o->type, o->index_bytes};
    switch (o->kind) {
    case RILL__DO_ASSIGN: rill__assign_pairs(shape, o->into, o->first, o->pairs); break;
    case RILL__DO_WRITE:
        a->count = rill__host_write(shape, o->into, o->first, o->n, o->pairs);
        break;
    case RILL__DO_WRITE_BLOCKS: rill__host_write_blocks(o, a); break;
    case RILL__DO_ADD_PAIRS: rill__host_add_pairs(o); break;
    case RILL__DO_ADD_BLOCKS: rill__host_add_blocks(o); break;
    case RILL__DO_CLEAR_PAIRS: rill__host_clear_pairs(o); break;
    default: rill__host_shift(o); break;
    }
}

static void run_finite(const rill__select_kernels *k, const rill__operation *o, rill__answer *a) {
    switch (o->kind) {
    case RILL__DO_IS_FINITE: a->yes = rill__host_is_finite(k, o->type, o->from, o->n); break;
    case RILL__DO_DROP_NONFINITE:
        a->count = rill__host_drop_nonfinite(k, o->type, o->into, o->n);
        break;
    case RILL__DO_ADD_FINITE:
        a->yes = rill__host_add_finite(k, o->type, o->into, o->from, o->n);
        break;
    case RILL__DO_SUBTRACT_FINITE:
        rill__host_subtract_finite(k, o->type, o->into, o->from, o->n);
        break;
    case RILL__DO_DECAY_ADD_FINITE:
        a->yes = rill__host_decay_add_finite(k, o->type, o->into, o->factor, o->from, o->n);
        break;
    case RILL__DO_UNDECAY: rill__host_undecay(k, o->type, o->into, o->factor, o->from, o->n); break;
    default: a->yes = rill__host_divide_finite(k, o->type, o->into, o->from, o->factor, o->n);
    }
}

static void run(const rill__space *s, const rill__operation *o, rill__answer *answer) {
    rill__answer unread, *a = answer ? answer : &unread;
    switch (o->kind) {
    case RILL__DO_COPY: copy(s, o->into, o->from, o->n); break;
    case RILL__DO_CLEAR:
        if (o->n) memset(o->into, 0, o->n);
        break;
    case RILL__DO_FILL: rill__assign_fill(s->stream, o->type, o->into, o->n, o->value); break;
    case RILL__DO_ADD: rill__host_add(o->type, o->into, o->from, o->n); break;
    case RILL__DO_DECAY_ADD:
        rill__host_decay_add(o->type, o->into, o->factor, o->from, o->n);
        break;
    case RILL__DO_ADD_SCALED:
        rill__host_add_scaled(o->type, o->into, o->factor, o->from, o->n);
        break;
    case RILL__DO_SCALE: rill__host_scale(o->type, o->into, o->factor, o->from, o->n); break;
    case RILL__DO_DIVIDE: rill__host_divide(o->type, o->into, o->from, o->factor, o->n); break;
    case RILL__DO_NORM: a->real = rill__host_norm(o->type, o->from, o->n); break;
    default:
        if (o->kind < RILL__DO_ASSIGN) run_finite(s->select, o, a);
        else run_pairs(o, a);
    }
}

static rill_status call(const rill__space *s, rill_status (*fn)(void *), void *context) {
    (void)s;
    return fn(context);
}

static rill_status done(const rill__space *s) {
    (void)s;
    return RILL_OK;
}

#define HOST(isa)                                                                                  \
    {                                                                                              \
        .name = "host", .kind = RILL_HOST, .device = -1, .is_host = true,                          \
        .stream = &rill__kernels_##isa, .select = &rill__select_kernels_##isa,                     \
        .codec = &rill__codec_kernels_##isa, .copy_in = copy, .copy_out = copy, .run = run,        \
        .call = call, .poll = done, .wait = done,                                                  \
    }

/* One for each instruction set that is built. */
static const rill__space hosts[] = {
    [RILL__SCALAR] = HOST(scalar),
#ifdef RILL_HAVE_AVX2
    [RILL__AVX2] = HOST(avx2),
#endif
#ifdef RILL_HAVE_AVX512
    [RILL__AVX512] = HOST(avx512),
#endif
};

const rill__space *rill__host(void) { return &hosts[rill__isa_get()]; }
