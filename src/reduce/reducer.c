/* The reducer's life: options, memory, the request that all its steps use. */
#include "reduce/reducer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CREATE "rill_reducer_create: "

static const double default_density = 0.01;

/* ---- options ------------------------------------------------------------------------------ */

static rill_status check_numbers(const rill_reducer_options *o) {
    if (o->density != 0 && !(o->density > 0 && o->density <= 1))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "density %g is not in (0, 1]", o->density);
    if (!(o->momentum >= 0 && o->momentum < 1))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "momentum %g is not in [0, 1)", o->momentum);
    if (!(o->clip >= 0))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "clip %g is negative or NaN", o->clip);
    if (!(o->lambda >= 0 && o->lambda < INFINITY))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "lambda %g is negative or not finite",
                          o->lambda);
    if (!(o->balance_trigger >= 0))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "balance_trigger %g is negative or NaN",
                          o->balance_trigger);
    if (o->sketch_rows < 0 || o->sketch_rows > 15)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "sketch_rows %d is not in 0 to 15",
                          o->sketch_rows);
    if (o->warmup && o->warmup_stages <= 0)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "warmup_stages %d is not positive",
                          o->warmup_stages);
    for (int i = 0; o->warmup && i < o->warmup_stages; i++)
        if (!(o->warmup[i] > 0 && o->warmup[i] <= 1))
            return rill__fail(RILL_ERR_ARGUMENT, CREATE "warmup[%d] = %g is not in (0, 1]", i,
                              o->warmup[i]);
    return RILL_OK;
}

static char *copy_text(const char *text) {
    if (!text) return NULL;
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

static rill_status resolve_nonfinite(rill_reducer *r) {
    const char *name = r->options.nonfinite ? r->options.nonfinite : "void";
    bool zero = strcmp(name, "zero") == 0;
    r->voids = strcmp(name, "void") == 0;
    r->guards = r->voids || zero;
    if (r->guards || strcmp(name, "pass") == 0) return RILL_OK;
    return rill__fail(RILL_ERR_UNKNOWN, CREATE "nonfinite '%s' is none of void, zero, pass", name);
}

/* The user's strings and arrays need not outlive the call. */
static rill_status copy_options(rill_reducer *r, const rill_reducer_options *given) {
    rill_reducer_options *o = &r->options;
    *o = (rill_reducer_options)RILL_REDUCER_OPTIONS_INIT;
    memcpy(o, given, rill__min_u64(given->size, sizeof *o));
    o->size = sizeof *o;
    rill_status status = check_numbers(o);
    const char **texts[] = {&o->algorithm,   &o->codec,  &o->partition,
                            &o->value_scope, &o->select, &o->nonfinite};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = *texts[i];
        *texts[i] = copy_text(text);
        if (text && !*texts[i]) status = rill__fail(RILL_ERR_MEMORY, "out of memory");
    }
    const double *stages = o->warmup;
    o->warmup = NULL;
    RILL_TRY(status);
    RILL_TRY(resolve_nonfinite(r));
    if (stages && o->warmup_steps) {
        size_t bytes = (size_t)o->warmup_stages * sizeof *stages;
        r->warmup = malloc(bytes);
        if (!r->warmup) return rill__fail(RILL_ERR_MEMORY, "out of memory");
        memcpy(r->warmup, stages, bytes);
    }
    if (o->density == 0 && o->k == 0) o->density = default_density;
    if (!o->threshold_interval) o->threshold_interval = 32;
    if (!o->repartition_interval) o->repartition_interval = 64;
    if (o->balance_trigger == 0) o->balance_trigger = 4;
    if (o->lambda == 0) o->lambda = 0.5;
    if (!o->sketch_rows) o->sketch_rows = 3;
    return RILL_OK;
}

/* ---- memory ------------------------------------------------------------------------------- */

static rill_status reserve_zeros(const rill__space *space, rill__buffer *buffer, uint64_t n,
                                 rill_type type) {
    size_t bytes;
    if (!rill__size_mul(n, rill__type_size(type), &bytes))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "dim %llu is too large for a dense vector",
                          (unsigned long long)n);
    RILL_TRY(rill__buffer_reserve(buffer, bytes));
    rill__do_clear(space, buffer->data, bytes);
    return RILL_OK;
}

static rill_status reserve(rill_reducer *r) {
    r->residual = r->momentum = r->pending = r->scaled = r->fused = rill__space_buffer(r->space);
    r->given_back = rill__piece_in(r->space);
    RILL_TRY(reserve_zeros(r->space, &r->residual, r->dim, r->type));
    r->residual_is_zero = true;
    if (r->options.momentum != 0) RILL_TRY(reserve_zeros(r->space, &r->momentum, r->dim, r->type));
    RILL_TRY(rill__stream_create_in(r->space, r->type, r->dim, &r->selected));
    RILL_TRY(rill__stream_create_in(r->space, r->type, r->dim, &r->part));
    RILL_TRY(rill_stream_create(r->type, r->dim, &r->result));
    rill__stream_init_in(&r->borrowed, r->space, r->type, r->dim);
    if (r->space->is_host) return RILL_OK;
    RILL_TRY(rill_stream_create(r->type, r->dim, &r->staged));
    return rill__stream_create_in(r->space, r->type, r->dim, &r->landed);
}

static rill_status reserve_memory(rill_reducer *r) {
    rill__feedback *f = &r->feedback;
    f->memory_size = r->algorithm && r->algorithm->memory_size
                         ? r->algorithm->memory_size(r->comm->engine.size)
                         : 0;
    RILL_TRY(rill__buffer_reserve(&f->memory, f->memory_size));
    RILL_TRY(rill__buffer_reserve(&r->memory_before, f->memory_size));
    memset(f->memory.data, 0, f->memory_size);
    return RILL_OK;
}

static rill_status create_request(rill_reducer *r) {
    rill_options o = rill__reducer_call_options(r);
    const rill_stream *in = r->choice == RILL__SEND_ALL ? &r->borrowed : r->selected;
    rill__arguments a = {.collective = r->collective,
                         .in = r->space->is_host ? in : r->staged,
                         .out = r->result,
                         .op = RILL_SUM,
                         .root = -1,
                         .feedback = &r->feedback,
                         .options = &o};
    return rill__call(r->comm, &a, RILL__PERSISTENT, &r->request);
}

rill_status rill__reducer_prepare(rill_reducer *r) {
    if (r->request) RILL_TRY(rill_request_free(&r->request));
    r->feedback.k = r->k = rill__reducer_stage_k(r);
    RILL_TRY(reserve_memory(r));
    return create_request(r);
}

/* ---- create, free ------------------------------------------------------------------------- */

static rill_status create(rill_reducer *r, const rill_reducer_options *given, uint64_t number) {
    RILL_TRY(copy_options(r, given));
    RILL_TRY(rill__reducer_resolve(r));
    const rill_reducer_options *o = &r->options;
    r->feedback.options = (rill__topk_options){.threshold_interval = o->threshold_interval,
                                               .repartition_interval = o->repartition_interval,
                                               .balance_trigger = o->balance_trigger,
                                               .lambda = o->lambda,
                                               .sketch_rows = o->sketch_rows,
                                               .block = o->block,
                                               .keeps = o->feedback != 0};
    r->feedback.seed = o->seed * UINT64_C(0x9e3779b97f4a7c15) + number;
    RILL_TRY(reserve(r));
    return rill__reducer_prepare(r);
}

static uint64_t text_hash(uint64_t hash, const char *text) {
    return text ? rill__hash_more(hash, text, strlen(text) + 1) : rill__hash_more(hash, "", 1) + 1;
}

/* What all ranks must have alike, in one word. */
static uint64_t options_word(const rill_reducer *r) {
    const rill_reducer_options *o = &r->options;
    const char *texts[] = {o->algorithm,   o->codec,  o->partition,
                           o->value_scope, o->select, o->nonfinite};
    double numbers[] = {o->density, o->momentum, o->clip, o->balance_trigger, o->lambda};
    uint64_t words[] = {(uint64_t)r->type,
                        r->dim,
                        (uint64_t)(int64_t)o->value_bits,
                        o->expected_nnz,
                        o->k,
                        (uint64_t)(int64_t)o->average,
                        (uint64_t)(int64_t)o->feedback,
                        (uint64_t)(int64_t)o->masking,
                        o->warmup_steps,
                        (uint64_t)(int64_t)(r->warmup ? o->warmup_stages : 0),
                        o->seed,
                        o->bucket,
                        o->block,
                        o->threshold_interval,
                        o->repartition_interval,
                        (uint64_t)(int64_t)o->sketch_rows};
    uint64_t hash = rill__hash_more(UINT64_C(0xcbf29ce484222325), words, sizeof words);
    hash = rill__hash_more(hash, numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        hash = text_hash(hash, texts[i]);
    if (r->warmup)
        hash = rill__hash_more(hash, r->warmup, (size_t)o->warmup_stages * sizeof *r->warmup);
    return hash;
}

static rill_status make(rill_comm *comm, const rill__space *space, rill_type type, uint64_t dim,
                        const rill_reducer_options *options, uint64_t number, rill_reducer **out) {
    if (!rill__type_size(type))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "unknown type %d", (int)type);
    static const rill_reducer_options defaults = RILL_REDUCER_OPTIONS_INIT;
    if (!options) options = &defaults;
    if (options->size < offsetof(rill_reducer_options, select))
        return rill__fail(RILL_ERR_ARGUMENT,
                          CREATE "options.size %zu: use RILL_REDUCER_OPTIONS_INIT", options->size);
    rill_reducer *r = calloc(1, sizeof *r);
    if (!r) return rill__fail(RILL_ERR_MEMORY, "out of memory for a reducer");
    *out = r;
    r->comm = comm;
    r->space = space;
    r->type = type;
    r->dim = dim;
    r->stats = (rill_stats)RILL_STATS_INIT;
    return create(r, options, number);
}

/* A rank that cannot make its own takes part in the agreement all the same. */
rill_status rill__reducer_create_in(rill_comm *comm, const rill__space *space, rill_type type,
                                    uint64_t dim, const rill_reducer_options *options,
                                    rill_reducer **out) {
    if (out) *out = NULL;
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, CREATE "comm is NULL");
    /* Reducers of one communicator have a number each, so that they round independently. It is the same on all ranks, also
     * after a reducer that could not be made. */
    uint64_t number = comm->reducers++;
    rill_reducer *r = NULL;
    rill_status status = out ? make(comm, space, type, dim, options, number, &r)
                             : rill__fail(RILL_ERR_ARGUMENT, CREATE "out is NULL");
    status = rill__agree_all(comm, "reducer_create", status,
                             status == RILL_OK ? options_word(r) : 0);
    if (status != RILL_OK) {
        char detail[200];
        strncpy(detail, rill_last_error(), sizeof detail - 1);
        detail[sizeof detail - 1] = '\0';
        rill_reducer_free(&r);
        rill__set_error(detail);
        return status;
    }
    *out = r;
    return RILL_OK;
}

rill_status rill_reducer_create(rill_comm *comm, rill_type type, uint64_t dim,
                                const rill_reducer_options *options, rill_reducer **out) {
    return rill__reducer_create_in(comm, rill__host(), type, dim, options, out);
}

static void free_text(const char *text) {
    union {
        const char *from;
        void *to;
    } owned = {.from = text};
    free(owned.to);
}

rill_status rill_reducer_free(rill_reducer **pointer) {
    if (!pointer || !*pointer) return RILL_OK;
    rill_reducer *r = *pointer;
    rill_status status = r->active ? rill_reducer_wait(r) : RILL_OK;
    rill_status freed = rill_request_free(&r->request);
    if (status == RILL_OK) status = freed;
    rill__reducer_selectors_free(r);
    free(r->selectors);
    free(r->bounds);
    free(r->states_before);
    rill_stream_free(&r->selected);
    rill_stream_free(&r->result);
    rill_stream_free(&r->part);
    rill_stream_free(&r->staged);
    rill_stream_free(&r->landed);
    rill__piece_free(&r->given_back);
    rill__buffer *buffers[] = {&r->residual, &r->momentum,        &r->pending,      &r->scaled,
                               &r->fused,    &r->feedback.memory, &r->memory_before};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        rill__buffer_free(buffers[i]);
    for (int i = 0; i < r->feedback.returns_capacity; i++)
        rill__piece_free(&r->feedback.returned[i]);
    free(r->feedback.returned);
    free(r->tensors);
    free(r->warmup);
    const char *texts[] = {r->options.algorithm,   r->options.codec,  r->options.partition,
                           r->options.value_scope, r->options.select, r->options.nonfinite};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free_text(texts[i]);
    free(r);
    *pointer = NULL;
    return status;
}

/* ---- what can be asked -------------------------------------------------------------------- */

const void *rill_reducer_residual(const rill_reducer *r) { return r ? r->residual.data : NULL; }
uint64_t rill_reducer_dim(const rill_reducer *r) { return r ? r->dim : 0; }
rill_type rill_reducer_type(const rill_reducer *r) { return r ? r->type : RILL_F32; }

rill_status rill_reducer_stats(const rill_reducer *r, rill_stats *stats) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_stats: reducer is NULL");
    if (!stats) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_stats: stats is NULL");
    if (r->active) return rill__fail(RILL_ERR_STATE, "rill_reducer_stats: a step is under way");
    rill__stats_copy(stats, &r->stats);
    return RILL_OK;
}
