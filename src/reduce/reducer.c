/* The reducer's life: memory, and the request that all its steps use. */
#include "reduce/reducer.h"

#include <stdlib.h>
#include <string.h>

#define CREATE "rill_reducer_create: "

/* ---- memory ------------------------------------------------------------------------------- */

static rill_status reserve_zeros(const rill__space *space, rill__buffer *buffer, uint64_t n,
                                 rill_type type) {
    size_t bytes;
    if (!rill__size_mul(n, rill__type_size(type), &bytes))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "dim %llu is too large for a dense vector",
                          (unsigned long long)n);
    RILL_TRY(rill__buffer_reserve_exact(buffer, bytes));
    rill__do_clear(space, buffer->data, bytes);
    return RILL_OK;
}

static rill_status reserve(rill_reducer *r) {
    r->residual = r->momentum = r->pending = r->scaled = r->fused = rill__space_buffer(r->space);
    r->given_back = rill__piece_in(r->space);
    rill__reducer_init_coder(r);
    RILL_TRY(reserve_zeros(r->space, &r->residual, r->dim, r->type));
    r->residual_is_zero = true;
    if (r->options.momentum != 0) RILL_TRY(reserve_zeros(r->space, &r->momentum, r->dim, r->type));
    RILL_TRY(rill__stream_create_in(r->space, r->type, r->dim, &r->selected));
    RILL_TRY(rill__stream_create_in(r->space, r->type, r->dim, &r->part));
    RILL_TRY(rill_stream_create(r->type, r->dim, &r->result));
    rill__stream_init_in(&r->borrowed, r->space, r->type, r->dim);
    RILL_TRY(rill__space_wait(r->space)); /* the user may look at the residual from now on */
    if (r->space->is_host) return RILL_OK;
    RILL_TRY(rill_stream_create(r->type, r->dim, &r->staged));
    r->staged->idx.memory = r->staged->val.memory = r->space->page_locked;
    return rill__stream_create_in(r->space, r->type, r->dim, &r->landed);
}

static rill_status reserve_bytes(rill_reducer *r, size_t bytes) {
    rill__feedback *f = &r->feedback;
    f->memory_size = bytes;
    RILL_TRY(rill__buffer_reserve(&f->memory, bytes));
    RILL_TRY(rill__buffer_reserve(&r->memory_before, bytes));
    memset(f->memory.data, 0, bytes);
    return RILL_OK;
}

rill_status rill__reducer_keep_constants(rill_reducer *r, const rill__profile *profile) {
    RILL_TRY(reserve_bytes(r, sizeof *profile));
    memcpy(r->feedback.memory.data, profile, sizeof *profile);
    return RILL_OK;
}

/* Of the algorithm. Where the planner chooses one for each call, what it chooses by, if that has
 * been learned: another job may start from something else. */
static rill_status reserve_memory(rill_reducer *r) {
    const rill__profile *profile = &r->comm->planner.profile;
    if (!r->algorithm && profile->learned) return rill__reducer_keep_constants(r, profile);
    return reserve_bytes(r, r->algorithm && r->algorithm->memory_size
                                ? r->algorithm->memory_size(r->comm->engine.size)
                                : 0);
}

rill_status rill__reducer_make_request(rill_reducer *r, bool later, rill__commits *commits,
                                       rill_request **request) {
    rill_options o = rill__reducer_call_options(r);
    const rill_stream *in = r->choice == RILL__SEND_ALL ? &r->borrowed : r->selected;
    rill__sequel sequel = {rill__reducer_complete,
                           r,
                           &r->stats,
                           r->space->is_host ? NULL : rill__reducer_reserve,
                           later ? rill__reducer_enter : NULL,
                           later ? rill__reducer_news : NULL};
    rill__arguments a = {.collective = r->collective,
                         .in = r->space->is_host ? in : r->staged,
                         .out = r->result,
                         .op = RILL_SUM,
                         .root = -1,
                         .feedback = &r->feedback,
                         .sequel = &sequel,
                         .commits = commits,
                         .options = &o};
    return rill__call(r->comm, &a, RILL__PERSISTENT, request);
}

rill_status rill__reducer_prepare(rill_reducer *r) {
    rill__reducer_on_reset(r);
    if (r->request) RILL_TRY(rill__request_release(&r->request));
    r->feedback.k = r->k = rill__reducer_stage_k(r);
    RILL_TRY(reserve_memory(r));
    RILL_TRY(rill__reducer_make_request(r, false, NULL, &r->request));
    r->now = r->request;
    return RILL_OK;
}

/* ---- create, free ------------------------------------------------------------------------- */

static rill_status create(rill_reducer *r, const rill_reducer_options *given, uint64_t number) {
    RILL_TRY(rill__reducer_take_options(r, given));
    r->asked_bits = r->options.value_bits;
    if (!r->space) {
        RILL_TRY(rill__space_open("rill_reducer_create", r->options.memory, r->options.device,
                                  &r->space));
        r->opened = r->space;
    }
    RILL_TRY(rill__reducer_resolve(r));
    RILL_TRY(rill__reducer_check_selection(r));
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

static rill_status make(rill_comm *comm, const rill__space *space, rill_type type, uint64_t dim,
                        const rill_reducer_options *options, uint64_t number, bool on_devices,
                        rill_reducer **out) {
    if (!rill__type_size(type))
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "unknown type %d", (int)type);
    static const rill_reducer_options defaults = RILL_REDUCER_OPTIONS_INIT;
    if (!options) options = &defaults;
    if (options->size < offsetof(rill_reducer_options, select))
        return rill__fail(RILL_ERR_ARGUMENT,
                          CREATE "options.size %zu: use RILL_REDUCER_OPTIONS_INIT", options->size);
    rill_reducer *r = rill__calloc(1, sizeof *r);
    if (!r) return rill__fail(RILL_ERR_MEMORY, "out of memory for a reducer");
    *out = r;
    r->comm = comm;
    r->space = space;
    r->type = type;
    r->dim = dim;
    r->stats = (rill_stats)RILL_STATS_INIT;
    r->feedback.on_devices = on_devices && comm->engine.size > 1;
    return create(r, options, number);
}

/* Whether this rank could do errands, as far as its arguments tell. */
static bool codes_on_device(const rill__space *space, const rill_reducer_options *o) {
    if (space) return space->codes != NULL;
    return o && o->size >= sizeof *o && o->memory == RILL_CUDA;
}

/* A rank that cannot make its own takes part in the agreement all the same. */
rill_status rill__reducer_create_in(rill_comm *comm, const rill__space *space, rill_type type,
                                    uint64_t dim, const rill_reducer_options *options,
                                    rill_reducer **out) {
    if (out) *out = NULL;
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, CREATE "comm is NULL");
    /* Reducers of one communicator have a number each, so that they round independently. It is the
     * same on all ranks, also after a reducer that could not be made. */
    uint64_t number = comm->reducers++, elsewhere = !codes_on_device(space, options);
    rill_reducer *r = NULL;
    RILL_TRY(rill__agree_most(comm, "reducer_create", RILL_OK, &elsewhere));
    rill_status status = out ? make(comm, space, type, dim, options, number, !elsewhere, &r)
                             : rill__fail(RILL_ERR_ARGUMENT, CREATE "out is NULL");
    status = rill__agree_all(comm, "reducer_create", status,
                             status == RILL_OK ? rill__reducer_options_word(r) : 0);
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
    return rill__reducer_create_in(comm, NULL, type, dim, options, out);
}

rill_status rill_reducer_free(rill_reducer **pointer) {
    if (!pointer || !*pointer) return RILL_OK;
    rill_reducer *r = *pointer;
    rill_status status = rill__reducer_is_busy(r) ? rill_reducer_wait(r) : RILL_OK;
    rill__reducer_on_free(r);
    rill_status freed = rill__request_release(&r->request);
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
    rill__reducer_free_coder(r);
    rill__reducer_free_mail(r);
    rill__reducer_free_kept(r);
    rill__buffer *buffers[] = {&r->residual, &r->momentum,        &r->pending,      &r->scaled,
                               &r->fused,    &r->feedback.memory, &r->memory_before};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        rill__buffer_free(buffers[i]);
    for (int i = 0; i < r->feedback.returns_capacity; i++)
        rill__piece_free(&r->feedback.returned[i]);
    free(r->feedback.returned);
    free(r->tensors);
    rill__reducer_free_options(r);
    rill__space_close(r->opened);
    free(r);
    *pointer = NULL;
    return status;
}

/* ---- what can be asked -------------------------------------------------------------------- */

const void *rill_reducer_residual(const rill_reducer *r) { return r ? r->residual.data : NULL; }

const void *rill_reducer_momentum(const rill_reducer *r) {
    return r && r->options.momentum != 0 ? r->momentum.data : NULL;
}
uint64_t rill_reducer_dim(const rill_reducer *r) { return r ? r->dim : 0; }
rill_type rill_reducer_type(const rill_reducer *r) { return r ? r->type : RILL_F32; }

rill_status rill_reducer_stats(const rill_reducer *r, rill_stats *stats) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_stats: reducer is NULL");
    if (!stats) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_stats: stats is NULL");
    if (rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "rill_reducer_stats: a step is under way");
    rill__stats_copy(stats, &r->stats);
    return RILL_OK;
}
