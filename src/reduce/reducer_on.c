/* Steps behind the work of a device's stream.
 *
 * Idea. The call that queues a step does what fixes its order and nothing else: it records a mark
 * in the user's stream, and takes the place of its collective in the order of calls (a request
 * whose gate is closed). A thread of the reducer does the rest, step by step: it polls for the
 * mark, selects, opens the gate, advances the communicator's requests until the call has ended, and
 * writes the update. It waits for the device without the communicator's lock. A step that failed
 * has an update of NaNs, and the first failure is kept for who waits or tests. No stream waits for
 * such a step: CUDA has calls that wait for all streams with its lock held, a first launch among
 * them, and the thread's own launches would wait behind these. Steps that streams do wait for have
 * a thread that launches nothing (reducer_mail.c); the two kinds may follow each other.
 * Cost: while steps are under way, one thread polls (reducer_line.c). */
#include "reduce/reducer.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { LOOK = 20000000 }; /* nanoseconds between looks at a device that nothing comes from */

typedef struct rill__on {
    pthread_mutex_t lock;
    pthread_cond_t queued, ended;
    pthread_t thread;
    bool stop;
    rill__on_step *first, *last; /* in order; the first is under way */
    rill__on_step *idle;         /* over, with their requests and marks */
    int launching;               /* steps of the first to the last for which the thread launches */
    atomic_bool given_up;        /* it has failed */
    int64_t looked;              /* when it was last looked after, in nanoseconds */
    uint64_t number, over;       /* of the last step queued, and of the last that is over */
    bool untold;                 /* steps were queued since the user was told of an end */
    const rill_request *latest;
    rill_status failed; /* the first failure that nobody was told of */
    char error[200];
    /* Which request a step gets depends on when steps end, which no other rank knows. */
    rill__commits commits;
    rill_stream nothing; /* what a request is told of its input before there is one */
} rill__on;

/* ---- the thread --------------------------------------------------------------------------- */

static void keep_failure(rill__on *on, rill_status status, const char *text) {
    if (status == RILL_OK) return;
    pthread_mutex_lock(&on->lock);
    if (on->failed == RILL_OK) {
        on->failed = status;
        snprintf(on->error, sizeof on->error, "%s", text);
    }
    pthread_mutex_unlock(&on->lock);
}

/* Everything is over but what the engine keeps of it. */
static void end_request(rill_request *q, rill_status status) {
    rill__engine *engine = &q->comm->engine;
    rill__lock(engine);
    if (status != RILL_OK) rill__task_fail(&q->task, status);
    atomic_store_explicit(&q->ended, RILL__ALL_ENDED, memory_order_release);
    while (rill__task_shown(&q->task) != RILL__COMPLETE)
        rill__engine_progress(engine);
    rill__unlock(engine);
}

static void run_mailed(rill_reducer *r, rill__on_step *step) {
    rill_status status = rill__reducer_run_mailed(r, step, &r->on->given_up);
    keep_failure(r->on, status, step->error);
    if (status != RILL_OK) rill__set_error(step->error);
    end_request(step->request, status);
}

static void run_step(rill_reducer *r, rill__on_step *step) {
    rill_request *q = step->request;
    if (step->mailed) {
        run_mailed(r, step);
        return;
    }
    if (step->failed == RILL_OK) {
        step->failed = rill__reducer_await(r->space, step);
        if (step->failed != RILL_OK)
            snprintf(step->error, sizeof step->error, "%s", rill_last_error());
    }
    r->now = q;
    rill__reducer_prepare_on(r, step);
    atomic_store_explicit(&q->open, true, memory_order_release);
    rill__reducer_advance(q);
    rill_status status = q->task.status;
    if (status != RILL_OK) rill__set_error(q->task.error);
    status = rill__reducer_complete(r, status);
    if (status != RILL_OK) {
        char detail[200];
        snprintf(detail, sizeof detail, "%s", q->task.status ? q->task.error : rill_last_error());
        keep_failure(r->on, status, detail);
        /* Its own update: a step that was refused early has left the target of the one before. */
        const rill__target own = {.dense = step->update, .tensors = step->tensors, .n = step->n};
        rill__reducer_write_nan(r, &own);
        rill__space_wait(r->space);
        rill__set_error(detail);
    }
    end_request(q, status);
}

static void *work(void *argument) {
    rill_reducer *r = argument;
    rill__on *on = r->on;
#ifdef __linux__
    prctl(PR_SET_NAME, "rill-steps");
    prctl(PR_SET_TIMERSLACK, 1000ul); /* else a nap of 2 us takes 50 */
#endif
    r->space->order->adopt(r->space);
    pthread_mutex_lock(&on->lock);
    for (;;) {
        while (!on->first && !on->stop)
            pthread_cond_wait(&on->queued, &on->lock);
        rill__on_step *step = on->first;
        if (!step) break;
        pthread_mutex_unlock(&on->lock);
        run_step(r, step);
        pthread_mutex_lock(&on->lock);
        on->first = step->next;
        if (!on->first) on->last = NULL;
        on->over++;
        on->launching -= !step->mailed;
        step->next = on->idle;
        on->idle = step;
        pthread_cond_broadcast(&on->ended);
    }
    pthread_mutex_unlock(&on->lock);
    return NULL;
}

/* ---- life --------------------------------------------------------------------------------- */

static rill_status start_thread(const char *call, rill_reducer *r) {
    rill__on *on = rill__calloc(1, sizeof *on);
    if (!on) return rill__fail(RILL_ERR_MEMORY, "%s: out of memory", call);
    pthread_mutex_init(&on->lock, NULL);
    pthread_cond_init(&on->queued, NULL);
    pthread_cond_init(&on->ended, NULL);
    rill__stream_init(&on->nothing, r->type, r->dim);
    r->on = on;
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&on->thread, NULL, work, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0) return RILL_OK;
    r->on = NULL;
    pthread_mutex_destroy(&on->lock);
    pthread_cond_destroy(&on->queued);
    pthread_cond_destroy(&on->ended);
    free(on);
    return rill__fail(RILL_ERR_MEMORY, "%s: no thread: %s", call, strerror(code));
}

/* Not under way. */
static void free_step(rill_reducer *r, rill__on_step *step) {
    rill__request_release(&step->request);
    r->space->order->mark_free(r->space, step->mark);
    pthread_cond_destroy(&step->turn);
    free(step->tensors);
    free(step);
}

void rill__reducer_on_reset(rill_reducer *r) {
    if (!r->on) return;
    rill__reducer_end_watch(r); /* it looks at a step's mark */
    pthread_mutex_lock(&r->on->lock);
    rill__on_step *idle = r->on->idle;
    r->on->idle = NULL;
    r->on->latest = NULL;
    r->on->commits = (rill__commits){0};
    pthread_mutex_unlock(&r->on->lock);
    for (rill__on_step *next; idle; idle = next) {
        next = idle->next;
        free_step(r, idle);
    }
}

void rill__reducer_on_free(rill_reducer *r) {
    rill__on *on = r->on;
    if (!on) return;
    pthread_mutex_lock(&on->lock);
    on->stop = true;
    pthread_cond_signal(&on->queued);
    pthread_mutex_unlock(&on->lock);
    pthread_join(on->thread, NULL);
    rill__reducer_on_reset(r);
    pthread_mutex_destroy(&on->lock);
    pthread_cond_destroy(&on->queued);
    pthread_cond_destroy(&on->ended);
    free(on);
    r->on = NULL;
}

/* ---- what can be asked -------------------------------------------------------------------- */

static bool is_told(const rill__on *on) {
    return !on->first && on->latest &&
           atomic_load_explicit(&on->latest->told, memory_order_relaxed);
}

bool rill__reducer_on_busy(const rill_reducer *r) {
    rill__on *on = r->on;
    if (!on) return false;
    pthread_mutex_lock(&on->lock);
    bool busy = on->untold && !(is_told(on) && on->failed == RILL_OK);
    pthread_mutex_unlock(&on->lock);
    return busy;
}

/* The lock is held, and no step is under way. */
static rill_status tell(rill__on *on) {
    rill_status status = on->failed;
    if (status != RILL_OK) rill__set_error(on->error);
    on->failed = RILL_OK;
    on->untold = false;
    return status;
}

/* Lock held, but not while CUDA is asked: that may wait for a flag of a step to come. A thread that
 * waits for the device's part of a step does not see that the device has failed. */
static void look_after(rill_reducer *r) {
    rill__on *on = r->on;
    struct timespec now;
    if (!on->first || !on->first->mailed || on->launching) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    if (ns - on->looked < LOOK) return;
    on->looked = ns;
    pthread_mutex_unlock(&on->lock);
    rill_status status = r->space->poll(r->space);
    if (status < 0) {
        keep_failure(on, status, rill_last_error());
        atomic_store(&on->given_up, true);
    }
    pthread_mutex_lock(&on->lock);
}

static void await_end(rill__on *on) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&on->ended, &on->lock, &until);
}

rill_status rill__reducer_on_wait(rill_reducer *r) {
    rill__on *on = r->on;
    pthread_mutex_lock(&on->lock);
    while (on->first) {
        await_end(on);
        look_after(r);
    }
    rill_status status = tell(on);
    pthread_mutex_unlock(&on->lock);
    return status;
}

rill_status rill__reducer_on_test(rill_reducer *r, int *done) {
    rill__on *on = r->on;
    pthread_mutex_lock(&on->lock);
    look_after(r);
    *done = !on->first;
    rill_status status = *done ? tell(on) : RILL_OK;
    pthread_mutex_unlock(&on->lock);
    return status;
}

const rill_request *rill__reducer_on_request(const rill_reducer *r) {
    pthread_mutex_lock(&r->on->lock);
    const rill_request *latest = r->on->latest;
    pthread_mutex_unlock(&r->on->lock);
    return latest;
}

/* ---- queueing ----------------------------------------------------------------------------- */

/* What is wrong on all ranks alike: nothing is started. */
static rill_status check(const char *call, const rill_reducer *r, void *stream) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "%s: reducer is NULL", call);
    if (!r->space->order)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "%s: the reducer's memory is '%s', which has no streams", call,
                          r->space->name);
    if (!rill__reducer_on_busy(r) && rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "%s: a step is under way", call);
    bool captured = false;
    RILL_TRY(r->space->order->capturing(r->space, stream, &captured));
    if (captured)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "%s: the stream is being captured; a step cannot be part of a graph",
                          call);
    return RILL_OK;
}

static rill_status take_step(const char *call, rill_reducer *r, rill__on_step **out) {
    rill__on *on = r->on;
    pthread_mutex_lock(&on->lock);
    rill__on_step *step = on->idle;
    if (step) on->idle = step->next;
    pthread_mutex_unlock(&on->lock);
    *out = step;
    if (step) return RILL_OK;
    step = rill__calloc(1, sizeof *step);
    if (!step) return rill__fail(RILL_ERR_MEMORY, "%s: out of memory", call);
    pthread_cond_init(&step->turn, NULL);
    rill_status status = r->space->order->mark_create(r->space, &step->mark);
    if (status == RILL_OK)
        status = rill__reducer_make_request(r, true, &r->on->commits, &step->request);
    *out = step;
    if (status == RILL_OK) return RILL_OK;
    free_step(r, step);
    return status;
}

/* The call has its place in the order, but this rank cannot take part: the others must not wait. */
static rill_status give_up(rill_reducer *r, rill_status status) {
    rill__engine *engine = &r->comm->engine;
    char detail[200];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    rill__lock(engine);
    rill__abort(engine, engine->seq++, status, engine->rank, detail);
    rill__unlock(engine);
    rill__set_error(detail);
    return status;
}

static rill_status copy_tensors(const char *call, rill__on_step *step, int n,
                                const rill_tensor *tensors) {
    rill_tensor *list = rill__realloc(step->tensors, (size_t)(n + 1) * sizeof *list);
    if (!list) return rill__fail(RILL_ERR_MEMORY, "%s: out of memory for %d tensors", call, n);
    step->tensors = list;
    step->n = n;
    memcpy(list, tensors, (size_t)n * sizeof *list);
    return RILL_OK;
}

static void push(rill__on *on, rill__on_step *step) {
    step->next = NULL;
    pthread_mutex_lock(&on->lock);
    if (on->last) on->last->next = step;
    else on->first = step;
    on->last = step;
    on->number++;
    on->launching += !step->mailed;
    on->latest = step->request;
    on->untold = true;
    pthread_cond_signal(&on->queued);
    pthread_mutex_unlock(&on->lock);
}

/* The host waits for the steps, but nobody is told of their end. */
static void finish(rill__on *on) {
    pthread_mutex_lock(&on->lock);
    for (uint64_t number = on->number; on->over < number;)
        pthread_cond_wait(&on->ended, &on->lock);
    pthread_mutex_unlock(&on->lock);
}

/* A thread of this process can do the rest. */
static bool has_thread(const rill_reducer *r) {
    const rill__engine *engine = &r->comm->engine;
    return !engine->link->simulated && engine->threaded;
}

/* Until the device's work can be queued here: no thread does, and what it depends on is known. */
static void settle(rill__on *on, rill__mails how) {
    pthread_mutex_lock(&on->lock);
    while (how == RILL__MAIL ? on->launching != 0 : on->first != NULL)
        pthread_cond_wait(&on->ended, &on->lock);
    pthread_mutex_unlock(&on->lock);
}

/* What cannot be mailed after all is done by the thread. */
static bool mail(const char *call, rill_reducer *r, rill__on_step *step, rill__mails how,
                 void *stream) {
    if (how == RILL__NO_MAIL || step->failed != RILL_OK) return false;
    settle(r->on, how);
    return rill__reducer_post(r, call, step, how, stream) == RILL_OK;
}

static rill_status queue(const char *call, rill_reducer *r, rill__on_step given,
                         const rill_tensor *tensors, rill__mails how, bool ordered, void *stream) {
    if (!r->on) RILL_TRY(start_thread(call, r));
    rill__on_step *step;
    rill_status status = take_step(call, r, &step);
    if (status != RILL_OK) return give_up(r, status);
    step->number = rill__reducer_next_number();
    step->gradient = given.gradient;
    step->update = given.update;
    if (tensors) {
        status = copy_tensors(call, step, given.n, tensors);
    } else {
        free(step->tensors);
        step->tensors = NULL;
        if ((!given.gradient || !given.update) && r->dim)
            status = rill__fail(RILL_ERR_ARGUMENT, "%s: %s is NULL", call,
                                given.gradient ? "update" : "gradient");
    }
    if (status == RILL_OK) status = r->space->order->record(r->space, step->mark, stream);
    step->failed = status;
    snprintf(step->error, sizeof step->error, "%s", status ? rill_last_error() : "");
    step->loose = false;
    step->mailed = mail(call, r, step, how, stream);
    rill__lock(&r->comm->engine);
    step->request->in = &r->on->nothing;
    step->request->out = r->result;
    step->request->blocking = false;
    rill__request_reserve(step->request);
    rill__unlock(&r->comm->engine);
    char error[200];
    snprintf(error, sizeof error, "%s", step->error);
    bool waits = ordered && (!step->mailed || step->loose);
    push(r->on, step);
    if (waits) finish(r->on);
    if (status != RILL_OK) rill__set_error(error); /* the others learn of it from the step */
    return status;
}

/* Where no thread may communicate, or the ranks have still to decide what they send, the call
 * itself waits for the gradient and selects. */
static rill_status start(const char *call, rill_reducer *r, rill__on_step given,
                         const rill_tensor *tensors, void *stream) {
    RILL_TRY(check(call, r, stream));
    if (has_thread(r) && r->choice != RILL__UNDECIDED)
        return queue(call, r, given, tensors, RILL__NO_MAIL, false, stream);
    if (rill__reducer_is_busy(r))
        return rill__fail(RILL_ERR_STATE, "%s: a step is under way", call);
    return rill__reducer_begin_on(r, call, &given, tensors, stream);
}

rill_status rill_reducer_start_on(rill_reducer *r, const void *gradient, void *update,
                                  void *stream) {
    return start("rill_reducer_start_on", r,
                 (rill__on_step){.gradient = gradient, .update = update}, NULL, stream);
}

/* A list that is wrong is told to the others by the step. */
static const rill_tensor *list_of(int n, const rill_tensor *tensors, rill__on_step *given) {
    static const rill_tensor none;
    bool wrong = n < 0 || (n && !tensors);
    given->n = wrong ? 0 : n;
    return wrong || !tensors ? &none : tensors;
}

rill_status rill_reducer_start_tensors_on(rill_reducer *r, int n, const rill_tensor *tensors,
                                          void *stream) {
    rill__on_step given = {.n = 0};
    const rill_tensor *list = list_of(n, tensors, &given);
    return start("rill_reducer_start_tensors_on", r, given, list, stream);
}

static rill_status check_step(const char *call, const rill_reducer *r, void *stream) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "%s: reducer is NULL", call);
    if (!has_thread(r))
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "%s needs a thread that communicates: MPI_THREAD_MULTIPLE, and "
                          "MPI_Init_thread gave less or was not asked for it",
                          call);
    if (r->space->order && r->choice == RILL__UNDECIDED)
        return rill__fail(RILL_ERR_UNSUPPORTED,
                          "%s: select 'auto' decides in the first step, with the other ranks: that "
                          "must be rill_reducer_step or rill_reducer_start_on",
                          call);
    return check(call, r, stream);
}

/* In the order of the stream: without a wait of the host, where the step can be mailed. */
static rill_status step_on(const char *call, rill_reducer *r, rill__on_step given,
                           const rill_tensor *tensors, void *stream) {
    RILL_TRY(check_step(call, r, stream));
    return queue(call, r, given, tensors, rill__reducer_mails(r), true, stream);
}

rill_status rill_reducer_step_on(rill_reducer *r, const void *gradient, void *update,
                                 void *stream) {
    return step_on("rill_reducer_step_on", r,
                   (rill__on_step){.gradient = gradient, .update = update}, NULL, stream);
}

rill_status rill_reducer_step_tensors_on(rill_reducer *r, int n, const rill_tensor *tensors,
                                         void *stream) {
    rill__on_step given = {.n = 0};
    const rill_tensor *list = list_of(n, tensors, &given);
    return step_on("rill_reducer_step_tensors_on", r, given, list, stream);
}
