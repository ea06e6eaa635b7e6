/* A call from its arguments to its end. Phases: agree on the arguments (RILL_CHECK), plan, agree on
 * nnz where nothing is known, run the algorithm.
 *
 * An argument that is wrong on this rank alone leaves it without a part to play: the others are told
 * by an abort (or, under RILL_CHECK, in the agreement). */
#include "api/call.h"
#include "coll/topk/topk.h"
#include "stream/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BLOCK 256 /* entries, where neither the options nor the input tell */

/* Entries up to which the first steps of a call take less time than waking a thread for them. */
enum { FEW_ENTRIES = 4096 };

/* ---- arguments --------------------------------------------------------------------------------------- */

static rill_status check_streams(const rill_comm *comm, const rill__arguments *a,
                                 const char *name) {
    if (!a->in) return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: in is NULL", name);
    bool needs_out = a->collective != RILL_REDUCE || a->root == comm->engine.rank;
    if (needs_out && !a->out) return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: out is NULL", name);
    if (!needs_out || a->in == a->out) return RILL_OK;
    if (a->in->dim != a->out->dim)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: in has dimension %llu, out %llu", name,
                          (unsigned long long)a->in->dim, (unsigned long long)a->out->dim);
    if (a->in->type != a->out->type)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: in has type %s, out %s", name,
                          rill_type_name(a->in->type), rill_type_name(a->out->type));
    return RILL_OK;
}

static rill_status check_arguments(const rill_comm *comm, const rill__arguments *a) {
    const char *name = rill_collective_name(a->collective);
    bool reduces = a->collective <= RILL_REDUCE_SCATTER || a->collective == RILL_REDUCER;
    bool rooted = a->collective == RILL_REDUCE || a->collective == RILL_BCAST;
    if (rooted && (a->root < 0 || a->root >= comm->engine.size))
        return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: root = %d is not a rank (0 to %d)", name,
                          a->root, comm->engine.size - 1);
    RILL_TRY(check_streams(comm, a, name));
    if (!reduces) return RILL_OK;
    if (!a->op) return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: op is NULL", name);
    if (!(a->op->types & RILL_TYPE_BIT(a->in->type)))
        return rill__fail(RILL_ERR_UNSUPPORTED, "rill_%s: op '%s' does not serve type %s", name,
                          a->op->name, rill_type_name(a->in->type));
    return RILL_OK;
}

/* What all ranks must have alike, in one word. */
static uint64_t arguments_word(const rill_request *r) {
    uint64_t words[] = {(uint64_t)r->collective, r->task.expect.dim, (uint64_t)r->task.shape.type,
                        r->task.expect.op, (uint64_t)(int64_t)r->root};
    uint64_t hash = rill__hash_more(RILL__HASH_START, words, sizeof words);
    rill_options options = rill__settings_options(&r->settings);
    options.block = rill__agreed_block(r);
    return rill__settings_hash_options(hash, &options);
}

/* ---- run ----------------------------------------------------------------------------------------------- */

/* An empty stream of the same kind, with the memory that it has. */
static void normal_like(rill_stream *normal, const rill_stream *in) {
    normal->type = in->type;
    normal->dim = in->dim;
    normal->index_bytes = in->index_bytes;
    normal->form = RILL__SPARSE;
    normal->nnz = 0;
}

/* The input in blocks, or in pairs where block is 0; dense where that is cheaper. */
static rill_status prepare_form(rill_request *r, uint64_t block) {
    const rill_stream *in = r->in;
    rill_type type = in->type;
    if (block && in->form == RILL__BLOCKS && in->block == block &&
        rill__value_equal(type, in->fill, r->fill))
        return RILL_OK;
    normal_like(&r->normal, in);
    RILL_TRY(rill__stream_convert(&r->normal, in, block, r->fill));
    bool reduces = r->collective <= RILL_REDUCE_SCATTER;
    if (reduces && r->normal.nnz > (block ? rill__blocks_switch(type, block, in->dim)
                                          : rill__dense_switch(type, in->dim)))
        RILL_TRY(rill_stream_to_dense(&r->normal));
    r->input = rill__stream_part(&r->normal);
    return RILL_OK;
}

/* The input with absent entries as the algorithms want them: neutral, or none at all. */
static rill_status prepare_input(rill_request *r) {
    const rill_stream *in = r->in;
    rill_type type = r->task.shape.type;
    r->input = rill__stream_part(in);
    bool gather = r->collective == RILL_ALLGATHER;
    if (r->collective == RILL_BCAST) return RILL_OK;
    bool to_blocks = r->algorithm && r->algorithm->takes_blocks;
    if (to_blocks || in->form == RILL__BLOCKS) return prepare_form(r, to_blocks ? r->block : 0);
    if (in->form == RILL__SPARSE) {
        /* Pairs that the user gave may be more than the dense form would take. */
        r->task.sends_dense = !gather && r->collective != RILL_REDUCER &&
                              in->nnz > rill__dense_switch(type, in->dim);
        return RILL_OK;
    }
    if (!gather && rill__value_equal(type, in->fill, r->fill)) return RILL_OK;
    rill_stream *normal = &r->normal;
    normal_like(normal, in);
    if (gather) {
        RILL_TRY(rill_stream_copy(normal, in));
        RILL_TRY(rill_stream_to_sparse(normal));
    } else {
        RILL_TRY(rill__stream_reserve_dense(normal));
        rill__kernels_get()->replace(type, normal->val.data, in->val.data, in->dim, in->fill,
                                     r->fill);
    }
    r->input = rill__stream_part(normal);
    return RILL_OK;
}

static void take_input(rill_request *r) {
    rill_status status = prepare_input(r);
    if (status == RILL_OK) return;
    rill__task_fail(&r->task, status);
    r->input = rill__part_empty(0, r->in->dim);
}

/* The planner may choose an algorithm that wants blocks: the form is known only then. */
static bool takes_input_late(const rill_request *r) {
    return !r->settings.algorithm && r->settings.block;
}

static rill_status run_alone(rill_request *r) {
    if (r->first) *r->first = 0;
    if (r->count) *r->count = r->task.expect.dim;
    if (r->collective == RILL_BCAST) return RILL_OK;
    return rill__finish_parts(r, 1, &r->input);
}

/* After planning: headers now name the algorithm, and its state is fresh. */
static rill_status enter_run(rill_request *r) {
    r->phase = RILL__P_RUN;
    r->may_post = r->algorithm->posts_mpi_collective;
    r->task.expect.algorithm = r->algorithm_hash;
    r->task.coding.index = r->problem.codec;
    r->task.coding.value = rill__value_codec_for_bits(r->task.shape.type, r->problem.value_bits);
    r->task.coding.key.seed = r->feedback ? r->feedback->seed : r->comm->defaults.seed;
    r->task.codec_forced = r->settings.codec != NULL;
    r->stats_known = r->collective == RILL_ALLREDUCE || r->collective == RILL_ALLGATHER ||
                     r->collective == RILL_REDUCE_SCATTER;
    /* What the planner has no use for need not travel: headers are shorter then. */
    r->task.nnz_sum = r->task.nnz_max = r->stats_known ? r->nnz_in : 0;
    if (r->feedback) {
        r->task.step_key = r->feedback->step;
        r->task.lost = rill__give_back_lost;
    }
    if (takes_input_late(r)) take_input(r);
    RILL_TRY(rill__buffer_reserve(&r->state, r->algorithm->state_size));
    memset(r->state.data, 0, r->algorithm->state_size);
    return RILL_OK;
}

/* The support of a reducer's result says what was delivered: pairs, also where the sum turned dense. */
static void end_run(rill_request *r) {
    if (r->collective != RILL_REDUCER || rill__task_failed(&r->task)) return;
    rill_status status = rill_stream_to_sparse(r->out);
    if (status != RILL_OK) rill__task_fail(&r->task, status);
}

static rill_status step_call(rill__task *task) {
    rill_request *r = (rill_request *)task;
    rill_comm *comm = r->comm;
    rill_status status;
    if (r->phase == RILL__P_CHECK) {
        status = rill__agree_step(&r->task, &r->agree);
        if (status != RILL_OK) return status;
        const char *call = r->only_agrees ? r->only_agrees : rill_collective_name(r->collective);
        if (r->agree.args_min != r->agree.args_max && !r->takes_most)
            rill__task_fail(&r->task, rill__fail(RILL_ERR_MISMATCH,
                                                 "rill_%s: arguments differ between ranks", call));
        if (r->only_agrees || rill__task_failed(&r->task)) { /* everybody knows now */
            r->may_post = false;
            return RILL_OK;
        }
        r->phase = RILL__P_PLAN;
    }
    if (r->phase == RILL__P_PLAN) {
        status = rill__plan(&comm->planner, r);
        if (status == RILL_IN_PROGRESS) return status;
        if (status == RILL_ERR_STATE) {
            r->task.nnz_sum = r->task.nnz_max = r->nnz_in;
            rill__agree_start(&r->agree, 0, NULL, 0);
            r->phase = RILL__P_AGREE;
        } else if (status < 0) {
            return status;
        } else {
            RILL_TRY(enter_run(r));
        }
    }
    if (r->phase == RILL__P_AGREE) {
        status = rill__agree_step(&r->task, &r->agree);
        if (status != RILL_OK) return status;
        if (rill__task_failed(&r->task)) {
            r->may_post = false;
            return RILL_OK;
        }
        rill__observed seen = {.known = true,
                               .nnz_sum = r->task.nnz_sum,
                               .nnz_max = r->task.nnz_max};
        RILL_TRY(rill__plan_choose(&comm->planner, r, &seen));
        RILL_TRY(enter_run(r));
    }
    if (r->phase == RILL__P_RUN) {
        status = r->task.engine->size == 1 ? run_alone(r) : r->algorithm->step(r);
        if (status != RILL_OK) return status;
        end_run(r);
        if (rill__commit_start(r) == RILL_OK) return RILL_OK;
    }
    return rill__commit_step(r);
}

static void call_completed(rill__task *task) {
    rill_request *r = (rill_request *)task;
    r->may_post = false;
    r->elapsed = rill__ticks(r->task.engine->link) - r->started;
    r->nnz_out = r->out && !rill__task_failed(&r->task) ? r->out->nnz : 0;
    if (!r->only_agrees) rill__plan_end(&r->comm->planner, r);
}

/* A forced algorithm is among them, so that one rank's choice shows before the planner's does. */
static uint32_t details_of(const rill_request *r) {
    const rill__algorithm *forced = r->settings.algorithm;
    uint32_t rest = ((uint32_t)(r->root + 1) << 1) ^ (r->settings.partition == RILL__BALANCED);
    rest ^= (uint32_t)(rill__agreed_block(r) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    return rest ^ (forced ? rill__name_hash(forced->name) : 0);
}

/* Bits of what an absent entry of the result stands for. */
static uint64_t fill_of(const rill_request *r) {
    uint64_t bits = 0;
    if (r->op && r->op->neutral == 0 && !signbit(r->op->neutral)) return 0;
    if (r->op) rill__neutral(r->op, r->in->type, &bits);
    else memcpy(&bits, r->in->fill, sizeof bits);
    return bits;
}

/* The fields are set one by one, here and below: a struct that is put together and then copied is read
 * with wider loads than it was written with, and such a load waits until all stores before it have left
 * the core, those to memory that another rank reads among them. */
rill_status rill__request_begin(rill_request *r) {
    rill_comm *comm = r->comm;
    rill__task *task = &r->task;
    r->started = rill__ticks(comm->engine.link);
    task->engine = &comm->engine;
    task->step = step_call;
    task->completed = call_completed;
    task->own = r->blocking;
    task->shape.type = r->in->type;
    task->shape.index_bytes = r->in->index_bytes;
    r->block = r->settings.block             ? r->settings.block
               : r->in->form == RILL__BLOCKS ? r->in->block
                                             : DEFAULT_BLOCK;
    task->coding.index = &rill__codec_raw;
    task->coding.value = &rill__value_raw;
    task->expect.collective = (uint8_t)r->collective;
    task->expect.type = (uint8_t)task->shape.type;
    task->expect.algorithm = 0;
    task->expect.op = r->op ? rill__name_hash(r->op->name) : 0;
    task->expect.details = details_of(r);
    task->expect.dim = r->in->dim;
    r->nnz_in = r->in->nnz;
    task->nnz_sum = task->nnz_max = r->nnz_in;
    task->fill = fill_of(r);
    memcpy(r->fill, &task->fill, sizeof r->fill);
    r->algorithm = r->settings.algorithm;
    r->predicted = r->skew = 0;
    r->more_memory = false;
    r->may_post = !r->algorithm || r->algorithm->posts_mpi_collective;
    if (r->feedback) {
        r->feedback->returns = 0;
        r->feedback->collision_error = 0;
    }
    rill__task_start(&r->task);
    task->adds_bits = r->collective <= RILL_REDUCE_SCATTER &&
                      rill__wire_adds_bits(r->in->type, r->op, comm->planner.sums_bits);
    if (!r->only_agrees) rill__plan_begin(&comm->planner, r);
    r->phase = RILL__P_PLAN;
    if (comm->defaults.check) {
        r->phase = RILL__P_CHECK;
        rill__agree_start(&r->agree, arguments_word(r), NULL, 0);
    }
    if (takes_input_late(r)) r->input = rill__part_empty(0, r->in->dim);
    else take_input(r);
    return RILL_OK;
}

/* The first messages leave at once; or, where that is work and there is a progress thread, it is that
 * thread's, which the unlock wakes. */
void rill__request_launch(rill_request *r) {
    rill__engine *engine = &r->comm->engine;
    bool small = engine->active == &r->task && r->nnz_in <= FEW_ENTRIES;
    if (!engine->progress.on || small) rill__engine_progress(engine);
}

/* ---- entry ----------------------------------------------------------------------------------------------- */

static rill_request *take_request(rill_comm *comm) {
    rill_request *r = comm->idle;
    if (r) comm->idle = r->next_idle;
    else r = calloc(1, sizeof *r);
    return r;
}

void rill__request_recycle(rill_request *r) {
    r->next_idle = r->comm->idle;
    r->comm->idle = r;
}

void rill__request_destroy(rill_request *r) {
    rill__stream_release(&r->normal);
    rill__piece_free(&r->piece[0]);
    rill__piece_free(&r->piece[1]);
    rill__buffer_free(&r->scratch);
    rill__buffer_free(&r->state);
    free(r->task.sends.at);
    free(r->task.receives.at);
    free(r);
}

rill_status rill__request_result(const rill_request *r) {
    if (r->task.status != RILL_OK) rill__set_error(r->task.error);
    return r->task.status;
}

/* What the planner chose, or the user forced; MPI's own collective has none. */
static const char *codec_name(const rill_request *r) {
    bool coded = r->algorithm && !r->algorithm->posts_mpi_collective && r->problem.codec;
    return coded ? r->problem.codec->name : rill__codec_raw.name;
}

static const char *partition_name(const rill_request *r) {
    return r->problem.partition == RILL__BALANCED ? "balanced" : "uniform";
}

void rill__request_statistics(const rill_request *r, rill_stats *stats) {
    *stats = (rill_stats){.size = sizeof *stats,
                          .sent_bytes = r->task.sent_bytes,
                          .recv_bytes = r->task.recv_bytes,
                          .messages = r->task.messages,
                          .rounds = r->task.rounds,
                          .nnz_in = r->nnz_in,
                          .nnz_out = r->nnz_out,
                          .algorithm = r->algorithm ? r->algorithm->name : "",
                          .codec = codec_name(r),
                          .predicted_s = r->predicted,
                          .value_bits = r->task.coding.value ? r->task.coding.value->bits : 0,
                          .partition = partition_name(r)};
}

/* A request for an agreement alone. */
static void take_no_part(rill_request *r, rill_comm *comm, rill_collective collective,
                         const rill_stream *nothing) {
    r->comm = comm;
    r->collective = collective;
    r->in = nothing;
    r->out = NULL;
    r->op = NULL;
    r->root = -1;
    r->settings = (rill__settings){0};
    r->feedback = NULL;
    r->blocking = true;
    r->persistent = false;
    r->only_agrees = NULL;
    r->takes_most = false;
}

/* The arguments are wrong here: the others may be right, and must not wait. */
static rill_status refuse(rill_comm *comm, const rill__arguments *a, rill__mode mode,
                          rill_status status) {
    if (mode == RILL__PERSISTENT) return status; /* nothing has been started */
    char detail[256];
    strncpy(detail, rill_last_error(), sizeof detail - 1);
    detail[sizeof detail - 1] = '\0';
    rill_stream nothing;
    rill__stream_init(&nothing, RILL_F32, 0);
    rill_request *r = comm->defaults.check ? take_request(comm) : NULL;
    if (r) {
        take_no_part(r, comm, a->collective, &nothing);
        rill__request_begin(r);
        rill__set_error(detail);
        rill__task_fail(&r->task, status);
        rill__engine_wait(&r->task);
        rill__request_recycle(r);
    } else {
        rill__abort(&comm->engine, comm->engine.seq++, status, comm->engine.rank, detail);
    }
    rill__set_error(detail);
    return status;
}

rill_request *rill__agreement_begin(rill_comm *comm, const rill_stream *nothing, const char *what,
                                    uint64_t word) {
    rill_request *r = take_request(comm);
    if (!r) return NULL;
    take_no_part(r, comm, RILL_REDUCER, nothing);
    r->only_agrees = what;
    rill__request_begin(r);
    r->phase = RILL__P_CHECK;
    rill__agree_start(&r->agree, word, NULL, 0);
    return r;
}

static rill_status prepare(rill_comm *comm, const rill__arguments *a, rill__mode mode,
                           rill_request **out) {
    rill_status status = check_arguments(comm, a);
    if (status != RILL_OK) return refuse(comm, a, mode, status);
    rill_request *r = take_request(comm);
    if (!r)
        return refuse(comm, a, mode, rill__fail(RILL_ERR_MEMORY, "out of memory for a request"));
    r->comm = comm;
    status = rill__settings_resolve(comm, a->collective, a->options, &r->settings);
    if (status != RILL_OK) {
        rill__request_recycle(r);
        return refuse(comm, a, mode, status);
    }
    r->collective = a->collective;
    r->in = a->in;
    r->out = a->out;
    if (a->collective == RILL_REDUCE && a->root != comm->engine.rank) r->out = NULL;
    r->op = a->op;
    r->root = a->root;
    r->first = a->first;
    r->count = a->count;
    r->feedback = a->feedback;
    r->blocking = mode == RILL__BLOCKING;
    r->persistent = mode == RILL__PERSISTENT;
    r->only_agrees = NULL;
    r->takes_most = false;
    r->commits = (rill__commits){0};
    r->task.life = RILL__IDLE;
    rill__task_show(&r->task, RILL__IDLE);
    r->task.status = RILL_OK;
    if (mode != RILL__PERSISTENT) RILL_TRY(rill__request_begin(r));
    *out = r;
    return RILL_OK;
}

rill_status rill__call(rill_comm *comm, const rill__arguments *a, rill__mode mode,
                       rill_request **request) {
    if (!comm)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: comm is NULL",
                          rill_collective_name(a->collective));
    if (request) *request = NULL;
    rill_request *r = NULL;
    rill__lock(&comm->engine);
    rill_status status = prepare(comm, a, mode, &r);
    if (status == RILL_OK && mode == RILL__NONBLOCKING) rill__request_launch(r);
    if (status == RILL_OK && mode != RILL__BLOCKING) comm->requests++;
    if (status == RILL_OK && mode == RILL__BLOCKING) {
        rill__engine_wait(&r->task);
        rill__request_statistics(r, &comm->last);
        comm->last_elapsed = r->elapsed;
        status = rill__request_result(r);
        rill__request_recycle(r);
    } else if (status == RILL_OK) {
        *request = r;
    }
    rill__unlock(&comm->engine);
    return status;
}
