/* A call from its arguments to its end. Phases: agree on the arguments (RILL_CHECK), plan, agree on
 * nnz where nothing is known, run the algorithm.
 *
 * An argument that is wrong on this rank alone leaves it without a part to play: the others are
 * told by an abort (or, under RILL_CHECK, in the agreement). */
#include "call/call.h"
#include "coll/away.h"
#include "coll/topk/topk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Entries up to which the first steps of a call take less time than waking a thread for them. */
enum { FEW_ENTRIES = 4096 };

/* ---- arguments ------------------------------------------------------------------------------- */

static const char *name_of(const rill__arguments *a) { return rill_collective_name(a->collective); }

static rill_status check_streams(const rill_comm *comm, const rill__arguments *a) {
    if (!a->in) return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: in is NULL", name_of(a));
    bool needs_out = a->collective != RILL_REDUCE || a->root == comm->engine.rank;
    if (needs_out && !a->out)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: out is NULL", name_of(a));
    if (!needs_out || a->in == a->out) return RILL_OK;
    if (a->in->dim != a->out->dim)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: in has dimension %llu, out %llu", name_of(a),
                          (unsigned long long)a->in->dim, (unsigned long long)a->out->dim);
    if (a->in->type != a->out->type)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: in has type %s, out %s", name_of(a),
                          rill_type_name(a->in->type), rill_type_name(a->out->type));
    return RILL_OK;
}

static rill_status check_arguments(const rill_comm *comm, const rill__arguments *a) {
    bool reduces = a->collective <= RILL_REDUCE_SCATTER || a->collective == RILL_REDUCER;
    bool rooted = a->collective == RILL_REDUCE || a->collective == RILL_BCAST;
    if (rooted && (a->root < 0 || a->root >= comm->engine.size))
        return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: root = %d is not a rank (0 to %d)",
                          name_of(a), a->root, comm->engine.size - 1);
    RILL_TRY(check_streams(comm, a));
    if (!reduces) return RILL_OK;
    if (!a->op) return rill__fail(RILL_ERR_ARGUMENT, "rill_%s: op is NULL", name_of(a));
    if (!(a->op->types & RILL_TYPE_BIT(a->in->type)))
        return rill__fail(RILL_ERR_UNSUPPORTED, "rill_%s: op '%s' does not serve type %s",
                          name_of(a), a->op->name, rill_type_name(a->in->type));
    return RILL_OK;
}

/* ---- run ------------------------------------------------------------------------------------- */

static rill_status run_alone(rill_request *r) {
    if (r->first) *r->first = 0;
    if (r->count) *r->count = r->task.expect.dim;
    if (r->collective == RILL_BCAST) return RILL_OK;
    return rill__finish_parts(&r->run, 1, &r->input);
}

/* After planning: headers now name the algorithm, and its state is fresh. */
static rill_status enter_run(rill_request *r) {
    r->phase = RILL__P_RUN;
    r->task.may_post = r->plan.algorithm->posts_mpi_collective;
    r->task.expect.algorithm = r->plan.algorithm_hash;
    rill__coding *coding = &r->run.coding;
    coding->index = r->plan.problem.codec;
    coding->value = rill__value_codec_for_bits(r->task.shape.type, r->plan.problem.value_bits);
    coding->key.seed = r->feedback ? r->feedback->seed : r->comm->defaults.seed;
    coding->key.step = r->feedback ? r->feedback->step : r->task.seq - r->comm->engine.first_seq;
    coding->key.sender = (uint32_t)r->run.rank;
    coding->key.hop = RILL__NEXT_HOP;
    coding->forced = r->plan.settings.codec != NULL;
    r->run.spread = r->plan.spread;
    r->stats_known = rill__request_counts(r);
    /* What the planner has no use for need not travel: headers are shorter then. */
    r->task.nnz_sum = r->task.nnz_max = r->stats_known ? r->nnz_in : 0;
    if (r->learning)
        r->task.nnz_max |= rill__learn_says(r->comm->planner.learner, r->learning)
                           << RILL__ENTRIES_BITS;
    if (r->feedback) {
        r->task.lost = rill__give_back_lost;
        r->task.whom = &r->run;
    }
    if (rill__request_takes_input_late(r)) rill__request_input(r);
    RILL_TRY(rill__buffer_reserve(&r->state, r->plan.algorithm->state_size));
    r->run.state = memset(r->state.data, 0, r->plan.algorithm->state_size);
    return RILL_OK;
}

/* The support of a reducer's result says what was delivered: pairs, also where the sum turned
 * dense. */
static void end_run(rill_request *r) {
    if (rill__task_failed(&r->task)) return;
    rill_status status = r->collective == RILL_REDUCER ? rill__finish_pairs(&r->run)
                                                       : rill__request_land(r);
    if (status == RILL_OK && r->sequel.complete && r->sequel.reserve)
        status = r->sequel.reserve(r->sequel.whom);
    if (status != RILL_OK) rill__task_fail(&r->task, status);
}

/* To the run, unless something comes before: a gate, agreements. */
static rill_status approach(rill_request *r) {
    rill_comm *comm = r->comm;
    rill_status status;
    if (r->phase == RILL__P_GATE) {
        if (!atomic_load_explicit(&r->open, memory_order_acquire)) return RILL_IN_PROGRESS;
        rill__request_pass_gate(r);
        r->task.moved = true;
    }
    if (r->phase == RILL__P_CHECK) {
        status = rill__agree_step(&r->task, &r->agree);
        if (status != RILL_OK) return status;
        const char *call = r->only_agrees ? r->only_agrees : rill_collective_name(r->collective);
        if (r->agree.args_min != r->agree.args_max && !r->takes_most)
            rill__task_fail(&r->task, rill__fail(RILL_ERR_MISMATCH,
                                                 "rill_%s: arguments differ between ranks", call));
        if (r->only_agrees || rill__task_failed(&r->task)) { /* everybody knows now */
            r->task.may_post = false;
            return RILL_OK;
        }
        r->phase = RILL__P_PLAN;
    }
    if (r->phase == RILL__P_PLAN) {
        const rill__learner *learner = comm->planner.learner;
        if (learner && !r->feedback && rill__learn_holds(learner, r)) return RILL_IN_PROGRESS;
        switch (rill__plan(&comm->planner, &r->plan, &status)) {
        case RILL__PLAN_WAITS: return RILL_IN_PROGRESS;
        case RILL__PLAN_FAILS: return status;
        case RILL__PLAN_READY: RILL_TRY(enter_run(r)); break;
        case RILL__PLAN_ASKS:
            r->task.nnz_sum = r->task.nnz_max = r->nnz_in;
            rill__agree_start(&r->agree, 0, NULL, 0);
            r->phase = RILL__P_AGREE;
        }
    }
    if (r->phase == RILL__P_AGREE) {
        status = rill__agree_step(&r->task, &r->agree);
        if (status != RILL_OK) return status;
        if (rill__task_failed(&r->task)) {
            r->task.may_post = false;
            return RILL_OK;
        }
        rill__observed seen = {.known = true,
                               .nnz_sum = r->task.nnz_sum,
                               .nnz_max = r->task.nnz_max};
        RILL_TRY(rill__plan_choose(&comm->planner, &r->plan, &seen));
        RILL_TRY(enter_run(r));
    }
    return RILL_OK;
}

static rill_status step_call(rill__task *task) {
    rill_request *r = (rill_request *)task;
    rill_status status;
    if (r->phase < RILL__P_RUN) {
        status = approach(r);
        if (status != RILL_OK || r->phase < RILL__P_RUN) return status;
    }
    if (r->phase == RILL__P_RUN) {
        bool changed = false;
        if (r->feedback && r->feedback->away) status = rill__run_fetch_input(&r->run, &changed);
        else status = RILL_OK;
        if (status != RILL_OK) return status;
        if (changed && rill__task_failed(task)) r->input = rill__part_empty(0, r->in->dim);
        else if (changed) rill__request_input(r);
        status = r->task.engine->size == 1 ? run_alone(r) : r->plan.algorithm->step(&r->run);
        if (status != RILL_OK) return status;
        end_run(r);
        if (rill__commit_start(r) == RILL_OK) return RILL_OK;
    }
    return rill__commit_step(r);
}

/* What the call has shown of the constants. */
static void teach(rill_request *r, const rill__outcome *outcome) {
    rill__learner *learner = r->comm->planner.learner;
    if (rill__learn_wants_clock(learner))
        learner->tick_seconds = rill__clock_seconds(&r->comm->clock, 1 << 20) * 0x1p-20;
    /* A request takes longer: those that are measured must tell what the others take. */
    uint64_t ticks = r->quick ? r->quick : r->ran ? r->ran : r->elapsed;
    rill__lesson lesson = {.good = r->task.status == RILL_OK,
                           .field = (unsigned)(r->task.nnz_max >> RILL__ENTRIES_BITS),
                           .seasoned = r->seasoned,
                           .seconds = (double)ticks * learner->tick_seconds};
    rill__learn_ends(&r->comm->planner, &r->plan, outcome, &lesson);
}

static void call_completed(rill__task *task) {
    rill_request *r = (rill_request *)task;
    r->task.may_post = false;
    r->elapsed = rill__ticks(r->task.engine->link) - r->started;
    r->nnz_out = r->out && !rill__task_failed(&r->task) ? r->out->nnz : 0;
    if (r->only_agrees) return;
    rill__outcome outcome = {.well = task->status == RILL_OK,
                             .known = r->stats_known,
                             .nnz_sum = task->nnz_sum,
                             .nnz_max = task->nnz_max & RILL__ENTRIES,
                             .skew = r->run.skew,
                             .out = r->outside.out,
                             .nnz_out = r->nnz_out};
    rill__plan_end(&r->plan, &outcome);
    if (r->learning == RILL__LEARN_TAKES_PART) teach(r, &outcome);
    r->plan.key = NULL; /* which may go from now on */
    if (!r->sequel.complete) return;
    if (task->ending) {
        atomic_store_explicit(&r->ended, RILL__CALL_ENDED, memory_order_release);
        r->sequel.ended(r->sequel.whom);
        return;
    }
    rill_status status = r->sequel.complete(r->sequel.whom, task->status);
    if (status != RILL_OK) rill__task_fail(task, status);
}

/* The first messages leave at once; or, where that is work and there is a progress thread, it is
 * that thread's, which the unlock wakes. */
void rill__request_launch(rill_request *r) {
    rill__engine *engine = &r->comm->engine;
    bool small = engine->active == &r->task && r->nnz_in <= FEW_ENTRIES;
    if (!engine->progress.on || small) rill__engine_progress(engine);
}

/* ---- entry ----------------------------------------------------------------------------------- */

/* What stays the same from call to call. */
static void bind(rill_request *r, rill_comm *comm) {
    rill__engine *engine = &comm->engine;
    r->comm = comm;
    r->task.engine = engine;
    r->task.step = step_call;
    r->task.completed = call_completed;
    r->plan.ranks = engine->size;
    r->run.outside = &r->outside;
    r->outside.task = &r->task;
    r->run.status = &r->task.status;
    r->run.problem = &r->plan.problem;
    r->run.input = &r->input;
    r->run.rank = engine->rank;
    r->run.size = engine->size;
    r->run.hosts = &engine->hosts;
}

static rill_request *take_request(rill_comm *comm) {
    rill_request *r = comm->idle;
    if (r) {
        comm->idle = r->next_idle;
        return r;
    }
    r = rill__calloc(1, sizeof *r);
    if (r) bind(r, comm);
    return r;
}

void rill__request_recycle(rill_request *r) {
    r->next_idle = r->comm->idle;
    r->comm->idle = r;
}

void rill__request_destroy(rill_request *r) {
    rill__stream_release(&r->outside.spare);
    rill__stream_release(&r->outside.third);
    rill__stream_release(&r->staged[0]);
    rill__stream_release(&r->staged[1]);
    rill__piece_free(&r->run.piece[0]);
    rill__piece_free(&r->run.piece[1]);
    rill__buffer_free(&r->run.scratch);
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
    const rill__index_codec *used = r->run.used_codec ? r->run.used_codec : r->plan.problem.codec;
    bool coded = r->plan.algorithm && !r->plan.algorithm->posts_mpi_collective && used;
    return coded ? used->name : rill__codec_raw.name;
}

static const char *partition_name(const rill_request *r) {
    return r->plan.problem.partition == RILL__BALANCED ? "balanced" : "uniform";
}

void rill__request_statistics(const rill_request *r, rill_stats *stats) {
    stats->sent_bytes = r->task.sent_bytes;
    stats->recv_bytes = r->task.recv_bytes;
    stats->messages = r->task.messages;
    stats->rounds = r->task.rounds;
    stats->nnz_in = r->nnz_in;
    stats->nnz_out = r->nnz_out;
    stats->algorithm = r->plan.algorithm ? r->plan.algorithm->name : "";
    stats->codec = codec_name(r);
    stats->predicted_s = r->plan.predicted;
    stats->value_bits = r->run.coding.value ? r->run.coding.value->bits : 0;
    stats->partition = partition_name(r);
}

/* A request for an agreement alone. */
static void take_no_part(rill_request *r, rill_collective collective, const rill_stream *nothing) {
    r->collective = collective;
    r->in = nothing;
    r->out = NULL;
    r->op = NULL;
    r->root = -1;
    r->plan.settings = (rill__settings){0};
    r->feedback = NULL;
    r->sequel.complete = NULL;
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
        take_no_part(r, a->collective, &nothing);
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
    take_no_part(r, RILL_REDUCER, nothing);
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
    status = rill__settings_resolve(comm, a->collective, a->options, &r->plan.settings);
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
    if (a->sequel) r->sequel = *a->sequel;
    else r->sequel.complete = NULL;
    r->blocking = mode == RILL__BLOCKING;
    r->persistent = mode == RILL__PERSISTENT;
    r->only_agrees = NULL;
    r->takes_most = false;
    if (r->persistent) r->commits = (rill__commits){0};
    r->joint = a->commits;
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
    if (comm->again.on && mode == RILL__BLOCKING && rill__again_run(comm, a)) {
        rill__unlock(&comm->engine);
        return RILL_OK;
    }
    rill_status status = prepare(comm, a, mode, &r);
    if (status == RILL_OK && mode == RILL__NONBLOCKING) rill__request_launch(r);
    if (status == RILL_OK && mode != RILL__BLOCKING) comm->requests++;
    if (status == RILL_OK && mode == RILL__BLOCKING) {
        rill__engine_wait(&r->task);
        rill__request_statistics(r, &comm->last);
        comm->last_elapsed = r->elapsed;
        status = rill__request_result(r);
        if (status == RILL_OK) rill__again_keep(r, a->options);
        rill__request_recycle(r);
    } else if (status == RILL_OK) {
        *request = r;
    }
    rill__unlock(&comm->engine);
    return status;
}
