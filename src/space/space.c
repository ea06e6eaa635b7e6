/* Spaces by name, copies between them, and their operations as functions. */
#include "space/space.h"

#include <string.h>

static rill_status host_of(const char *call, rill_memory memory, int device,
                           const rill__space **out) {
    if (memory != RILL_HOST)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: unknown memory %d", call, (int)memory);
    if (device != -1)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: device %d, but the host's memory has none (-1)",
                          call, device);
    *out = rill__host();
    return RILL_OK;
}

rill_status rill__space_find(const char *call, rill_memory memory, int device,
                             const rill__space **out) {
    return memory == RILL_CUDA ? rill__cuda_find(call, device, out)
                               : host_of(call, memory, device, out);
}

rill_status rill__space_open(const char *call, rill_memory memory, int device,
                             const rill__space **out) {
    return memory == RILL_CUDA ? rill__cuda_open(call, device, out)
                               : host_of(call, memory, device, out);
}

void rill__space_close(const rill__space *s) {
    if (s && s->order) rill__cuda_close(s);
}

rill_status rill__space_copy(const rill__space *to_space, void *to, const rill__space *from_space,
                             const void *from, size_t bytes) {
    if (!bytes) return RILL_OK;
    if (from_space->is_host) return to_space->copy_in(to_space, to, from, bytes);
    if (to_space->is_host) return from_space->copy_out(from_space, to, from, bytes);
    if (to_space != from_space && rill__space_same(to_space, from_space))
        RILL_TRY(from_space->wait(from_space));
    else if (to_space != from_space)
        return rill__fail(RILL_ERR_UNSUPPORTED, "a copy from %s to %s", from_space->name,
                          to_space->name);
    rill__do_copy(to_space, to, from, bytes);
    return RILL_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

typedef rill__operation operation;

static void run(const rill__space *s, const operation *o) {
    if (o->n || o->pairs.n) s->run(s, o, NULL);
}

/* An operation with an answer waits for all before it: not for nothing. */
static rill__answer ask(const rill__space *s, const operation *o, rill__answer nothing) {
    rill__answer answer = nothing;
    if (o->n || o->pairs.n) s->run(s, o, &answer);
    return answer;
}

static const rill__answer yes = {.yes = true}, zero = {.count = 0}, naught = {.real = 0};

void rill__dense_fill(const rill__space *s, rill_type type, void *into, const void *value,
                      uint64_t n) {
    operation o = {.kind = RILL__DO_FILL, .type = type, .into = into, .n = n};
    memcpy(o.value, value, rill__type_size(type));
    run(s, &o);
}

/* into, from and n, and a factor where there is one. */
#define DENSE(KIND, FACTOR)                                                                        \
    &(operation) {                                                                                 \
        .kind = KIND, .type = type, .into = into, .from = from, .n = n, .factor = FACTOR           \
    }

void rill__dense_add(const rill__space *s, rill_type type, void *into, const void *from,
                     uint64_t n) {
    run(s, DENSE(RILL__DO_ADD, 0));
}

void rill__dense_decay_add(const rill__space *s, rill_type type, void *into, double factor,
                           const void *from, uint64_t n) {
    run(s, DENSE(RILL__DO_DECAY_ADD, factor));
}

void rill__dense_add_scaled(const rill__space *s, rill_type type, void *into, double factor,
                            const void *from, uint64_t n) {
    run(s, DENSE(RILL__DO_ADD_SCALED, factor));
}

void rill__dense_scale(const rill__space *s, rill_type type, void *into, double factor,
                       const void *from, uint64_t n) {
    run(s, DENSE(RILL__DO_SCALE, factor));
}

void rill__dense_divide(const rill__space *s, rill_type type, void *into, const void *from,
                        double divisor, uint64_t n) {
    run(s, DENSE(RILL__DO_DIVIDE, divisor));
}

double rill__dense_norm(const rill__space *s, rill_type type, const void *from, uint64_t n) {
    void *into = NULL;
    return ask(s, DENSE(RILL__DO_NORM, 0), naught).real;
}

bool rill__dense_is_finite(const rill__space *s, rill_type type, const void *from, uint64_t n) {
    void *into = NULL;
    return ask(s, DENSE(RILL__DO_IS_FINITE, 0), yes).yes;
}

uint64_t rill__dense_drop_nonfinite(const rill__space *s, rill_type type, void *into, uint64_t n) {
    const void *from = NULL;
    return ask(s, DENSE(RILL__DO_DROP_NONFINITE, 0), zero).count;
}

bool rill__dense_add_finite(const rill__space *s, rill_type type, void *into, const void *from,
                            uint64_t n) {
    return ask(s, DENSE(RILL__DO_ADD_FINITE, 0), yes).yes;
}

void rill__dense_subtract_finite(const rill__space *s, rill_type type, void *into, const void *from,
                                 uint64_t n) {
    run(s, DENSE(RILL__DO_SUBTRACT_FINITE, 0));
}

bool rill__dense_decay_add_finite(const rill__space *s, rill_type type, void *into, double factor,
                                  const void *from, uint64_t n) {
    return ask(s, DENSE(RILL__DO_DECAY_ADD_FINITE, factor), yes).yes;
}

void rill__dense_undecay(const rill__space *s, rill_type type, void *into, double factor,
                         const void *from, uint64_t n) {
    run(s, DENSE(RILL__DO_UNDECAY, factor));
}

bool rill__dense_divide_finite(const rill__space *s, rill_type type, void *into, const void *from,
                               double divisor, uint64_t n) {
    return ask(s, DENSE(RILL__DO_DIVIDE_FINITE, divisor), yes).yes;
}

uint64_t rill__dense_write(const rill__space *s, rill__shape shape, void *into, uint64_t first,
                           uint64_t n, rill__pairs pairs) {
    return ask(s,
               &(operation){.kind = RILL__DO_WRITE,
                            .type = shape.type,
                            .index_bytes = shape.index_bytes,
                            .into = into,
                            .first = first,
                            .n = n,
                            .pairs = pairs},
               zero)
        .count;
}

static operation masked(rill__operation_kind kind, rill__shape shape, void *into, rill__pairs pairs,
                        const rill__pairs *mask, rill__where where) {
    operation o = {.kind = kind,
                   .type = shape.type,
                   .index_bytes = shape.index_bytes,
                   .into = into,
                   .pairs = pairs,
                   .where = where};
    if (mask) o.mask = *mask;
    return o;
}

void rill__dense_add_pairs(const rill__space *s, rill__shape shape, void *into, rill__pairs pairs,
                           const rill__pairs *mask, rill__where where) {
    operation o = masked(RILL__DO_ADD_PAIRS, shape, into, pairs, mask, where);
    run(s, &o);
}

void rill__dense_clear_pairs(const rill__space *s, rill__shape shape, void *into, rill__pairs pairs,
                             const rill__pairs *mask, rill__where where) {
    operation o = masked(RILL__DO_CLEAR_PAIRS, shape, into, pairs, mask, where);
    run(s, &o);
}
