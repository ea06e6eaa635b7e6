/* A step: prepare (select), call, complete (take back, update). Its request goes through the call
 * to the last stage; who starts it has done the first. */
#include "reduce/reducer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- prepare ------------------------------------------------------------------------------ */

static rill_status check_target(const rill_reducer *r, const char *call,
                                const rill__target *target) {
    if (target->stream) {
        if (target->stream->dim != r->dim)
            return rill__fail(RILL_ERR_ARGUMENT, "%s: update has dimension %llu, the reducer %llu",
                              call, (unsigned long long)target->stream->dim,
                              (unsigned long long)r->dim);
        if (target->stream->type != r->type)
            return rill__fail(RILL_ERR_ARGUMENT, "%s: update has type %s, the reducer %s", call,
                              rill_type_name(target->stream->type), rill_type_name(r->type));
        if (!rill__space_same(rill__stream_space(target->stream), r->space))
            return rill__fail(RILL_ERR_ARGUMENT, "%s: update lies in memory '%s', the reducer '%s'",
                              call, rill__stream_space(target->stream)->name, r->space->name);
        return RILL_OK;
    }
    if (!target->dense && !target->tensors && r->dim)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: update is NULL", call);
    return RILL_OK;
}

/* A failure of this rank alone: the call goes on without its contribution, and tells the others. */
static void fail_here(rill_reducer *r, rill_status status) {
    if (r->failed != RILL_OK) return;
    r->failed = status;
    snprintf(r->error, sizeof r->error, "%s", rill_last_error());
}

/* The call's input, copied where it is not the host's already. */
static void stage(rill_reducer *r) {
    if (r->failed != RILL_OK) {
        rill_stream_clear(r->selected);
        r->borrowed.form = RILL__SPARSE;
        r->borrowed.nnz = 0;
    }
    if (r->space->is_host) return;
    bool all = r->choice == RILL__SEND_ALL;
    if (rill__reducer_stays_away(r)) {
        rill_stream_clear(r->staged);
        r->staged->nnz = r->selected->nnz;
        return;
    }
    rill_status status = rill_stream_copy(r->staged, all ? &r->borrowed : r->selected);
    if (status == RILL_OK) return;
    fail_here(r, status);
    rill_stream_clear(r->staged);
    if (!all) rill__reducer_take_all_back(r);
    rill_stream_clear(r->selected);
}

static void tell_call(rill_reducer *r) {
    /* The stage's, which all ranks know: one that has nothing to say did not come to select. */
    r->feedback.k = r->choice == RILL__SEND_SELECTED ? rill__reducer_stage_k(r) : r->k;
    r->feedback.step = r->steps;
    r->now->out = r->target.stream && r->space->is_host ? r->target.stream : r->result;
    rill__reducer_offer_errands(r);
}

static void start_call(rill_reducer *r) {
    rill_request *q = r->now = r->request;
    rill__engine *engine = &r->comm->engine;
    tell_call(r);
    q->blocking = r->blocking;
    atomic_store_explicit(&q->told, false, memory_order_relaxed);
    rill__lock(engine);
    rill__request_begin(q);
    if (r->failed != RILL_OK) {
        rill__set_error(r->error);
        rill__task_fail(&q->task, r->failed);
    }
    if (r->skipped && r->voids) q->task.flags |= RILL__FLAG_VOID;
    if (!r->blocking) rill__request_launch(q);
    rill__unlock(engine);
}

/* Lock held, by whoever advances the requests. */
rill_status rill__reducer_enter(void *reducer, uint8_t *flags) {
    rill_reducer *r = reducer;
    tell_call(r);
    r->now->in = r->entering;
    r->now->feedback = &r->feedback;
    if (r->skipped && r->voids) *flags = RILL__FLAG_VOID;
    if (r->failed != RILL_OK) rill__set_error(r->error);
    return r->failed;
}

/* order: whether what the reducer does comes behind the user's work. */
static rill_status prepare(rill_reducer *r, const char *call, const void *gradient,
                           const rill__target *target, rill_status order) {
    /* What is left of a step must stay as it is until the reducer has been moved. */
    if (r->moving.interrupted && r->comm->engine.peers.revoked)
        return rill__peers_error(&r->comm->engine);
    rill__reducer_free_kept(r);
    r->entering = r->staged;
    r->ticks[0] = rill__ticks(r->comm->engine.link);
    r->failed = RILL_OK;
    r->skipped = r->uses_pending = false;
    r->fed = r->taken = NULL;
    r->fed_apart = false;
    rill_status status = order;
    if (status == RILL_OK) status = check_target(r, call, target);
    if (status == RILL_OK && !gradient && !target->apart && r->dim)
        status = rill__fail(RILL_ERR_ARGUMENT, "%s: gradient is NULL", call);
    if (status != RILL_OK) fail_here(r, status);
    r->target = *target;
    if (status != RILL_OK) r->target.stream = NULL;
    if (r->choice == RILL__UNDECIDED) {
        status = rill__reducer_decide(r, gradient);
        r->moving.interrupted = status != RILL_OK && r->comm->engine.peers.revoked;
        if (status != RILL_OK) {
            if (r->failed == RILL_OK && !r->moving.interrupted)
                rill__reducer_keep_gradient(r, gradient);
            return status;
        }
    }
    rill__reducer_remember(r);
    if (r->failed == RILL_OK) {
        status = rill__reducer_select(r, gradient);
        if (status != RILL_OK) fail_here(r, status);
    }
    stage(r);
    r->ticks[1] = rill__ticks(r->comm->engine.link);
    return RILL_OK;
}

/* Behind what a stream of the device has been given. */
static rill_status begin_behind(rill_reducer *r, const char *call, const void *gradient,
                                const rill__target *target, bool blocking, void *stream) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "%s: reducer is NULL", call);
    if (rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "%s: a step is under way", call);
    r->blocking = blocking;
    RILL_TRY(prepare(r, call, gradient, target, rill__reducer_follow(r, stream)));
    start_call(r);
    return RILL_OK;
}

static rill_status begin(rill_reducer *r, const char *call, const void *gradient,
                         const rill__target *target, bool blocking) {
    return begin_behind(r, call, gradient, target, blocking, NULL);
}

/* ---- complete ----------------------------------------------------------------------------- */

/* False, where it matters: the update is not finite. */
static bool write_update(rill_reducer *r) {
    rill_stream *result = r->delivered;
    double ranks = r->options.average ? r->comm->engine.size : 1;
    if (r->target.dense && result->form == RILL__DENSE) {
        void *from = result->val.data;
        if (r->checks)
            return rill__dense_divide_finite(r->space, r->type, r->target.dense, from, ranks,
                                             r->dim);
        rill__dense_divide(r->space, r->type, r->target.dense, from, ranks, r->dim);
        return true;
    }
    bool finite = true;
    void *values = result->val.data;
    if (r->checks)
        finite = rill__dense_divide_finite(r->space, r->type, values, values, ranks, result->nnz);
    else if (ranks != 1) rill__dense_divide(r->space, r->type, values, values, ranks, result->nnz);
    uint64_t at = 0;
    if (r->target.dense) rill__stream_write(result, 0, r->dim, &at, r->target.dense);
    rill__reducer_write_tensors(r, result);
    return finite;
}

static void collect_stats(rill_reducer *r, uint64_t k) {
    const rill__clock *clock = &r->comm->clock;
    rill__request_statistics(r->now, &r->stats);
    r->stats.voided_total = r->voided_total;
    r->stats.selected_k = k;
    r->stats.select_s = rill__clock_seconds(clock, r->ticks[1] - r->ticks[0]);
    r->stats.update_s = rill__clock_seconds(clock, r->ticks[3] - r->ticks[2]);
    r->stats.elapsed_s = rill__clock_seconds(clock, r->ticks[3] - r->ticks[0]);
    r->stats.collision_error = r->feedback.collision_error;
    r->stats.summed_in = r->coder.away.summed ? r->space->name : "host";
}

/* A value that was not finite on one rank, or a sum that is not: all ranks have the same result,
 * and see it alike. What is sent whole need not be undone, and is looked at while the update is
 * written. The result is looked at where the call has left it: a device would have to be waited
 * for; one that was made there, behind what made it. */
static bool is_void(rill_reducer *r) {
    bool away = r->coder.away.summed;
    const rill_stream *result = away ? r->delivered : r->now->out;
    r->checks = false;
    if (!r->voids) return false;
    if (r->now->task.flags & RILL__FLAG_VOID) return true;
    r->checks = r->choice == RILL__SEND_ALL && !r->fed && !r->taken;
    return !r->checks && !rill__dense_is_finite(away ? r->space : rill__stream_space(result),
                                                r->type, result->val.data, result->nnz);
}

rill_status rill__reducer_reserve(void *reducer) {
    rill_reducer *r = reducer;
    if (r->entering != r->staged) return rill__reducer_reserve_mailed(r);
    if (r->coder.away.summed) return RILL_OK;
    rill_stream *to = r->target.stream ? r->target.stream : r->landed, *from = r->now->out;
    rill__shape shape = rill__stream_shape(r->selected);
    if (from->form == RILL__DENSE) RILL_TRY(rill__stream_reserve_dense(to));
    else if (from->form == RILL__SPARSE) RILL_TRY(rill__stream_reserve_pairs(to, from->nnz));
    for (int i = 0; i < r->feedback.returns; i++)
        RILL_TRY(rill__piece_reserve(&r->given_back, shape, &r->feedback.returned[i].part));
    return RILL_OK;
}

/* The result where the reducer's other vectors lie. */
static rill_status land(rill_reducer *r) {
    r->delivered = r->now->out;
    if (r->space->is_host) return RILL_OK;
    r->delivered = r->target.stream ? r->target.stream : r->landed;
    if (r->coder.away.summed) return RILL_OK; /* it is there */
    return rill_stream_copy(r->delivered, r->now->out);
}

static rill_status deliver(rill_reducer *r) {
    RILL_TRY(land(r));
    bool counts = !is_void(r);
    if (counts) {
        if (r->choice == RILL__SEND_ALL && !r->residual_is_zero) {
            rill__do_clear(r->space, r->residual.data, r->dim * rill__type_size(r->type));
            r->residual_is_zero = true;
        }
        RILL_TRY(rill__reducer_take_back(r));
        counts = write_update(r);
    }
    r->stats.voided = !counts;
    if (counts) return RILL_OK;
    rill__reducer_undo_void(r);
    rill__reducer_write_nan(r, &r->target);
    r->voided_total++;
    return RILL_OK;
}

void rill__reducer_count_step(rill_reducer *r, uint64_t k) {
    r->steps++;
    if (rill__reducer_can_lose(r)) rill__reducer_keep_last(r);
    r->ticks[3] = rill__ticks(r->comm->engine.link);
    collect_stats(r, k);
}

/* Also what a step has left that failed is there when the user is told of its end. */
static rill_status settle(const rill_reducer *r, rill_status status) {
    if (status == RILL_OK) return rill__space_wait(r->space);
    char detail[200];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    rill__space_wait(r->space);
    rill__set_error(detail);
    return status;
}

rill_status rill__reducer_complete(void *reducer, rill_status status) {
    rill_reducer *r = reducer;
    r->ticks[2] = rill__ticks(r->comm->engine.link);
    r->coder.expects = r->now->plan.problem.away;
    if (status != RILL_OK) rill__reducer_forget_sum(r);
    if (status == RILL_OK) status = deliver(r);
    else if (r->comm->engine.peers.revoked) rill__reducer_interrupt(r);
    else rill__reducer_undo_failed(r);
    if (r->uses_pending) {
        rill__do_clear(r->space, r->pending.data, r->dim * rill__type_size(r->type));
        r->pending_used = r->pending_skipped = false;
    }
    RILL_TRY(settle(r, status));
    rill__reducer_count_step(r, r->choice == RILL__SEND_ALL ? r->dim : r->selected->nnz);
    return RILL_OK;
}

rill_status rill_reducer_wait(rill_reducer *r) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_wait: reducer is NULL");
    if (!rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "rill_reducer_wait: no step is under way");
    return rill__reducer_on_busy(r) ? rill__reducer_on_wait(r) : rill_wait(r->request);
}

rill_status rill_reducer_test(rill_reducer *r, int *done) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_test: reducer is NULL");
    if (!done) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_test: done is NULL");
    *done = 1;
    if (rill__reducer_on_busy(r)) return rill__reducer_on_test(r, done);
    return rill__reducer_is_busy(r) ? rill_test(r->request, done) : RILL_OK;
}

rill_request *rill_reducer_request(const rill_reducer *r) {
    const rill_request *now = r ? r->now : NULL;
    if (r && rill__reducer_on_busy(r)) now = rill__reducer_on_request(r);
    bool started = now && rill__task_shown(&now->task) != RILL__IDLE;
    union {
        const rill_request *from;
        rill_request *to;
    } request = {.from = now};
    return started ? request.to : NULL;
}

/* ---- the public forms --------------------------------------------------------------------- */

rill_status rill_reducer_start(rill_reducer *r, const void *gradient, void *update) {
    return begin(r, "rill_reducer_start", gradient, &(rill__target){.dense = update}, false);
}

rill_status rill_reducer_step(rill_reducer *r, const void *gradient, void *update) {
    RILL_TRY(begin(r, "rill_reducer_step", gradient, &(rill__target){.dense = update}, true));
    return rill_reducer_wait(r);
}

rill_status rill_reducer_start_stream(rill_reducer *r, const void *gradient, rill_stream *update) {
    return begin(r, "rill_reducer_start_stream", gradient, &(rill__target){.stream = update},
                 false);
}

rill_status rill_reducer_step_stream(rill_reducer *r, const void *gradient, rill_stream *update) {
    RILL_TRY(
        begin(r, "rill_reducer_step_stream", gradient, &(rill__target){.stream = update}, true));
    return rill_reducer_wait(r);
}

/* Micro-batches go where the step would add them; what clip and momentum must see first waits, and
 * what a void step must take out again. */
rill_status rill_reducer_accumulate(rill_reducer *r, const void *gradient) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_accumulate: reducer is NULL");
    if (!gradient && r->dim)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_accumulate: gradient is NULL");
    if (rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "rill_reducer_accumulate: a step is under way");
    RILL_TRY(rill__reducer_follow(r, NULL));
    if (r->options.clip == 0 && r->options.momentum == 0 && r->options.feedback && !r->voids &&
        !rill__reducer_can_lose(r)) {
        rill__reducer_keep_gradient(r, gradient);
        return rill__space_wait(r->space);
    }
    size_t bytes = r->dim * rill__type_size(r->type);
    if (!r->pending.data) {
        RILL_TRY(rill__buffer_reserve_exact(&r->pending, bytes));
        rill__do_clear(r->space, r->pending.data, bytes);
    }
    if (!r->guards) rill__dense_add(r->space, r->type, r->pending.data, gradient, r->dim);
    else if (!rill__dense_add_finite(r->space, r->type, r->pending.data, gradient, r->dim))
        r->pending_skipped = true;
    r->pending_used = true;
    return rill__space_wait(r->space);
}

rill_status rill_reducer_scale(rill_reducer *r, double factor) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_scale: reducer is NULL");
    if (!isfinite(factor))
        return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_scale: factor %g is not finite", factor);
    if (rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "rill_reducer_scale: a step is under way");
    if (!r->residual_is_zero)
        rill__dense_scale(r->space, r->type, r->residual.data, factor, r->residual.data, r->dim);
    if (r->pending_used)
        rill__dense_scale(r->space, r->type, r->pending.data, factor, r->pending.data, r->dim);
    return rill__space_wait(r->space);
}

/* A mean that every rank keeps once is the sum that was delivered. */
rill_status rill_reducer_give_back(rill_reducer *r, uint64_t first, uint64_t count,
                                   const void *values) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_give_back: reducer is NULL");
    if (rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "rill_reducer_give_back: a step is under way");
    if (first > r->dim || count > r->dim - first)
        return rill__fail(RILL_ERR_ARGUMENT,
                          "rill_reducer_give_back: entries %llu to %llu are not in 0 to %llu",
                          (unsigned long long)first, (unsigned long long)(first + count),
                          (unsigned long long)r->dim);
    if (!count || !r->options.feedback) return RILL_OK;
    if (!values) return rill__fail(RILL_ERR_ARGUMENT, "rill_reducer_give_back: values is NULL");
    double share = r->options.average ? 1 : 1.0 / r->comm->engine.size;
    RILL_TRY(rill__reducer_follow(r, NULL));
    rill__dense_add_scaled(r->space, r->type,
                           (char *)r->residual.data + first * rill__type_size(r->type), share,
                           values, count);
    r->residual_is_zero = false;
    return rill__space_wait(r->space);
}

/* ---- behind a stream, and of tensors -------------------------------------------------------- */

/* Behind the mark of a user's stream: all that comes before the call. The user's memory is his
 * again only when the step is over, as in a blocking one. */
void rill__reducer_prepare_on(rill_reducer *r, const rill__on_step *step) {
    static const char call[] = "rill_reducer_start_on";
    rill__target target = {.dense = step->update, .tensors = step->tensors};
    const void *gradient = step->gradient;
    rill_tensor one = {step->gradient, step->update, r->dim};
    const rill_tensor *list = step->tensors ? step->tensors : &one;
    int n = step->tensors ? step->n : 1;
    rill_status status = step->failed;
    r->blocking = true;
    if (status != RILL_OK) rill__set_error(step->error);
    else status = rill__reducer_fuse(r, call, n, list, true, &target, &gradient);
    if (status == RILL_ERR_MEMORY && step->failed == RILL_OK)
        rill__reducer_keep_tensors(r, n, list);
    status = prepare(r, call, gradient, &target, status);
    if (status == RILL_OK) return;
    fail_here(r, status);
    rill_stream_clear(r->staged);
}

static rill_status begin_tensors(rill_reducer *r, const char *call, int n,
                                 const rill_tensor *tensors, bool blocking, void *stream) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "%s: reducer is NULL", call);
    if (rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "%s: a step is under way", call);
    rill__target target = {.tensors = tensors};
    const void *gradient = NULL;
    rill_status status = rill__reducer_follow(r, stream);
    if (status == RILL_OK)
        status = rill__reducer_fuse(r, call, n, tensors, blocking, &target, &gradient);
    if (status == RILL_OK) return begin_behind(r, call, gradient, &target, blocking, stream);
    char detail[200];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    if (status == RILL_ERR_MEMORY) rill__reducer_keep_tensors(r, n, tensors);
    begin(r, call, NULL, &target, blocking); /* without a gradient: the others are told */
    if (rill__reducer_is_busy(r)) rill_reducer_wait(r);
    rill__set_error(detail);
    return status;
}

rill_status rill__reducer_begin_on(rill_reducer *r, const char *call, const rill__on_step *step,
                                   const rill_tensor *tensors, void *stream) {
    if (tensors) return begin_tensors(r, call, step->n, tensors, false, stream);
    return begin_behind(r, call, step->gradient, &(rill__target){.dense = step->update}, false,
                        stream);
}

rill_status rill_reducer_start_tensors(rill_reducer *r, int n, const rill_tensor *tensors) {
    return begin_tensors(r, "rill_reducer_start_tensors", n, tensors, false, NULL);
}

rill_status rill_reducer_step_tensors(rill_reducer *r, int n, const rill_tensor *tensors) {
    RILL_TRY(begin_tensors(r, "rill_reducer_step_tensors", n, tensors, true, NULL));
    return rill_reducer_wait(r);
}
