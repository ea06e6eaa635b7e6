/* Steps in the order of a stream that neither the host nor the stream's owner waits for.
 *
 * Idea. The call gives the device all of its work (space/mail.h): the selection, a wait for a flag,
 * and then whatever the answer will ask for. The reducer's thread waits for the pairs in memory
 * that both can see, runs the call, and answers: what the update is, and what goes back to the
 * residual. It asks nothing of the device's library, which may have other threads of the program
 * wait until the flag is set.
 * Restriction: the selection is one that can be told ahead, with feedback, without clipping,
 * momentum and micro-batches. What it depends on of the step before (in turn: random numbers,
 * warm-up, moving shares) must have ended.
 * Memory: page-locked memory for the selection and for three times what all ranks select together.
 * Where that is more than a gradient, steps are not mailed.
 * Parts that a call returns may, with many hops, be more than there is room for: then they are
 * summed first, and only then is the rounding not that of the host's reducers. */
#include "reduce/reducer.h"
#include "select/select.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHORT_NAP = 2000, LONG_NAP = 50000, LONG_SILENCE = 500000000 }; /* nanoseconds */
enum { ENOUGH_QUEUES = 32 }; /* of the device, where ranks are threads */
enum { SMALL = 4 << 20 };    /* bytes of page-locked memory that are never much */

/* Of a dense vector that is sent as pairs. */
typedef struct pair_room {
    rill__buffer idx, val;
} pair_room;

typedef struct rill__mailing {
    rill__mail *mail;
    uint32_t posted; /* number of the last step */
    rill__mail_rooms rooms;
    rill__pick *picks; /* one for each selector, of the step posted last */
    int n_picks;
    rill_stream input; /* of the call: the outbox */
    /* The answer to the step under way. */
    rill__mail_answer answer;
    rill__mail_part *parts;
    int parts_capacity;
    bool reserved;       /* the answer is complete, and fits */
    pair_room result;    /* of a dense one; both are in the answer at once */
    pair_room sum_pairs; /* of sum, where that is dense */
    rill__piece sum;     /* of parts that are too many */
    rill__buffer scratch;
    rill__part *list;
    /* Whether the device still works, which only a long silence gives reason to ask. */
    pthread_t watcher;
    bool has_watcher;
    void *watched; /* a mark */
    atomic_bool watches, broken;
} rill__mailing;

static const rill__space_mail *ops(const rill_reducer *r) { return r->space->mail; }
static size_t size_of(const rill_reducer *r) { return rill__type_size(r->type); }

/* ---- whether -------------------------------------------------------------------------------- */

/* Ranks that are threads of one process and share a device also share its queues: the work of one
 * could stand behind the wait of another. */
static bool has_queues(const rill_reducer *r) {
    const rill__engine *engine = &r->comm->engine;
    return engine->size == 1 || strcmp(engine->table->name, "local") != 0 ||
           ops(r)->queues(r->space) >= ENOUGH_QUEUES;
}

rill__mails rill__reducer_mails(const rill_reducer *r) {
    const rill_reducer_options *o = &r->options;
    if (!ops(r) || r->choice != RILL__SEND_SELECTED || !r->dim) return RILL__NO_MAIL;
    if (o->clip != 0 || o->momentum != 0 || !o->feedback || r->pending_used) return RILL__NO_MAIL;
    bool blocks = r->algorithm ? r->algorithm->takes_blocks : o->block != 0;
    rill__ahead ahead = rill__pick_can_ahead(r->method);
    if (blocks || ahead == RILL__NOT_AHEAD || !has_queues(r)) return RILL__NO_MAIL;
    bool by_range = r->algorithm && r->algorithm->selects_by_range;
    return ahead == RILL__AHEAD && !by_range && !o->warmup_steps && !r->moving.interrupted
               ? RILL__MAIL
               : RILL__MAIL_IN_TURN;
}

/* ---- posting --------------------------------------------------------------------------------- */

static rill_status open_mailing(rill_reducer *r) {
    rill__mailing *m = r->mailing;
    if (!m) {
        m = rill__calloc(1, sizeof *m);
        if (!m) return rill__fail(RILL_ERR_MEMORY, "out of memory for a step");
        rill__stream_init(&m->input, r->type, r->dim);
        r->mailing = m;
    }
    return m->mail ? RILL_OK : ops(r)->open(r->space, &m->mail);
}

static void end_watch(rill__mailing *m) {
    if (m->has_watcher) pthread_join(m->watcher, NULL);
    m->has_watcher = false;
}

void rill__reducer_end_watch(rill_reducer *r) {
    if (r->mailing) end_watch(r->mailing);
}

static void free_pairs(pair_room *p) {
    rill__buffer_free(&p->idx);
    rill__buffer_free(&p->val);
}

void rill__reducer_free_mail(rill_reducer *r) {
    rill__mailing *m = r->mailing;
    if (!m) return;
    end_watch(m);
    ops(r)->close(r->space, m->mail);
    free_pairs(&m->result);
    free_pairs(&m->sum_pairs);
    rill__buffer_free(&m->scratch);
    rill__piece_free(&m->sum);
    free(m->picks);
    free(m->parts);
    free(m->list);
    free(m);
    r->mailing = NULL;
}

static rill_status tell_picks(rill_reducer *r, const void *gradient) {
    rill__mailing *m = r->mailing;
    if (m->n_picks < r->n_selectors) {
        rill__pick *picks = rill__realloc(m->picks, (size_t)r->n_selectors * sizeof *picks);
        if (!picks) return rill__fail(RILL_ERR_MEMORY, "out of memory for a step");
        m->picks = picks;
        m->n_picks = r->n_selectors;
    }
    uint64_t largest = 0, own = 0, ranks = (uint64_t)r->comm->engine.size;
    for (int i = 0; i < r->n_selectors; i++) {
        rill__pick *p = &m->picks[i];
        size_t offset = r->bounds[i] * size_of(r);
        r->selectors[i]->guards = r->guards;
        rill__pick_ahead(r->selectors[i], p);
        p->residual = (char *)r->residual.data + offset;
        p->gradient = gradient ? (const char *)gradient + offset : NULL;
        own += p->room;
        largest = rill__max_u64(largest, p->room);
    }
    own = rill__min_u64(own, r->dim);
    uint64_t all = own > r->dim / ranks ? r->dim : own * ranks;
    bool masks = rill__reducer_is_topk(r);
    m->rooms = (rill__mail_rooms){.type = r->type,
                                  .own = own,
                                  .range = r->n_selectors > 1 ? largest : 0,
                                  .result = all,
                                  .masks = masks ? rill__min_u64(all, 2 * own) : 0,
                                  .returned = 2 * all};
    return RILL_OK;
}

static bool is_much(const rill_reducer *r, const rill__mail_rooms *rooms) {
    double pairs = (double)rooms->own + (double)rooms->result + (double)rooms->returned;
    double bytes = pairs * (double)(4 + size_of(r));
    return bytes > SMALL && bytes > (double)r->dim * (double)size_of(r);
}

/* The caller's, until it is pushed: nobody else touches selectors and picks of the next step. */
static rill_status prepare(rill_reducer *r, const void *gradient) {
    RILL_TRY(open_mailing(r));
    RILL_TRY(rill__reducer_ready_selectors(r));
    RILL_TRY(tell_picks(r, gradient));
    if (is_much(r, &r->mailing->rooms))
        return rill__fail(RILL_ERR_MEMORY, "too much page-locked memory for a step");
    return ops(r)->reserve(r->space, r->mailing->mail, &r->mailing->rooms);
}

rill_status rill__reducer_post(rill_reducer *r, const char *call, rill__on_step *step,
                               rill__mails how, void *stream) {
    rill__target target;
    const void *gradient;
    if (how == RILL__MAIL_IN_TURN) { /* else there is nothing, and the thread may tell of a death */
        if (r->moving.interrupted && r->comm->engine.peers.revoked)
            return rill__peers_error(&r->comm->engine);
        rill__reducer_free_kept(r);
    }
    RILL_TRY(r->space->order->follow(r->space, stream));
    rill_tensor one = {step->gradient, step->update, r->dim};
    RILL_TRY(rill__reducer_fuse(r, call, step->tensors ? step->n : 1,
                                step->tensors ? step->tensors : &one, true, &target, &gradient));
    RILL_TRY(prepare(r, gradient));
    rill__mailing *m = r->mailing;
    rill__mail_step posted = {.number = m->posted + 1,
                              .picks = m->picks,
                              .first = r->bounds,
                              .n_picks = r->n_selectors,
                              .n = r->dim,
                              .residual = r->residual.data,
                              .gradient = gradient,
                              .update = target.dense,
                              .tensors = target.tensors,
                              .n_tensors = target.n,
                              .guards = r->guards,
                              .floor = m->picks[0].key,
                              .looks = rill__pick_looks(r->selectors[0]),
                              .undoes = r->voids || rill__reducer_can_lose(r),
                              .returns = rill__reducer_is_topk(r) || r->options.value_bits != 0};
    RILL_TRY(ops(r)->post(r->space, m->mail, &posted));
    step->floor = posted.floor;
    step->letter = ++m->posted;
    ops(r)->end(r->space, m->mail, step->letter); /* a failure is one of the device, and stays */
    step->loose = r->space->order->lead(r->space, stream) != RILL_OK;
    return RILL_OK;
}

/* ---- the thread: no call of the device's library from here on -------------------------------- */

/* A device that has failed tells nothing. To ask for that may take until the flag is set; so it is
 * another thread that asks, when nothing has come for long. */
static void *watch(void *reducer) {
    rill_reducer *r = reducer;
    rill__mailing *m = r->mailing;
    r->space->order->adopt(r->space);
    if (r->space->order->reached(r->space, m->watched) < 0) atomic_store(&m->broken, true);
    atomic_store(&m->watches, false);
    return NULL;
}

static void look(rill_reducer *r, void *mark) {
    rill__mailing *m = r->mailing;
    if (atomic_load(&m->watches)) return;
    end_watch(m);
    m->watched = mark;
    atomic_store(&m->watches, true);
    m->has_watcher = pthread_create(&m->watcher, NULL, watch, r) == 0;
    if (!m->has_watcher) atomic_store(&m->watches, false);
}

/* What the device tells of: the pairs, or the end. */
typedef bool sign(const rill__mail *, uint32_t number);

static bool await(rill_reducer *r, sign *shown, const rill__on_step *step,
                  const atomic_bool *given_up) {
    rill__mailing *m = r->mailing;
    long nap = SHORT_NAP, silence = 0;
    while (!shown(m->mail, step->letter)) {
        if (atomic_load_explicit(given_up, memory_order_relaxed) || atomic_load(&m->broken))
            return false;
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        silence += nap;
        nap = 2 * nap < LONG_NAP ? 2 * nap : LONG_NAP;
        if (silence < LONG_SILENCE) continue;
        look(r, step->mark);
        silence = 0;
    }
    return true;
}

static void fail_here(rill_reducer *r, rill_status status) {
    r->failed = status;
    snprintf(r->error, sizeof r->error, "%s", rill_last_error());
}

/* The call's input, and what else a step begins with. */
static void enter(rill_reducer *r, const rill__on_step *step, const atomic_bool *given_up) {
    rill__mailing *m = r->mailing;
    r->ticks[0] = rill__ticks(r->comm->engine.link);
    r->failed = RILL_OK;
    r->uses_pending = false;
    r->taken = NULL;
    r->fed = step->gradient;
    r->fed_apart = false;
    r->target = (rill__target){.dense = step->update};
    r->residual_is_zero = false;
    m->reserved = false;
    bool there = await(r, ops(r)->arrived, step, given_up);
    rill__mailed own = {0};
    if (there) own = ops(r)->read(m->mail);
    else fail_here(r, rill__fail(RILL_ERR_IO, "the device has failed before the step"));
    uint64_t passed = own.n; /* the device has the others */
    if (own.least < step->floor)
        passed = rill__pick_sift(r->selectors[0], own.n, own.idx, own.val, step->floor);
    m->input.form = RILL__SPARSE;
    m->input.nnz = passed;
    m->input.idx.data = own.idx;
    m->input.val.data = own.val;
    r->entering = &m->input;
    r->skipped = r->guards && own.nonfinite;
    rill__reducer_remember(r);
    rill__picked found = {.count = own.n, .nonfinite = own.nonfinite, .least = own.least};
    for (int i = 0; i < r->n_selectors && there; i++)
        rill__pick_note(r->selectors[i], &found, passed, own.above);
    if (r->moving.interrupted && r->comm->engine.peers.revoked)
        fail_here(r, rill__peers_error(&r->comm->engine));
    r->ticks[1] = rill__ticks(r->comm->engine.link);
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* A dense vector of which few entries are not 0. */
static rill_status take_pairs(const rill_reducer *r, const void *dense, pair_room *to,
                              rill__mail_part *out) {
    uint64_t n;
    RILL_TRY(rill__dense_pairs(rill__stream_shape(&r->mailing->input), dense, r->dim, &to->idx,
                               &to->val, &n));
    *out = (rill__mail_part){.n = n, .idx = to->idx.data, .val = to->val.data};
    return RILL_OK;
}

static rill_status tell_result(rill_reducer *r, rill_stream *result, rill__mail_part *out) {
    const rill__mail_rooms *rooms = &r->mailing->rooms;
    if (result->form == RILL__BLOCKS) RILL_TRY(rill_stream_to_sparse(result));
    bool dense = result->form == RILL__DENSE;
    *out = (rill__mail_part){dense, 0, result->nnz, result->idx.data, result->val.data};
    if (!dense || r->dim * size_of(r) <= rooms->result * (4 + size_of(r))) return RILL_OK;
    return take_pairs(r, result->val.data, &r->mailing->result, out);
}

static rill__mail_part told(const rill__part *p) {
    return (rill__mail_part){p->form == RILL__DENSE, p->first, p->n, p->idx, p->val};
}

/* Parts as pairs or values; blocks stay as they are summed. */
static rill_status tell_parts(rill_reducer *r, rill__mail_answer *a) {
    rill__mailing *m = r->mailing;
    int n = r->feedback.returns;
    if (n > m->parts_capacity) {
        rill__mail_part *parts = rill__realloc(m->parts, (size_t)n * sizeof *parts);
        if (parts) m->parts = parts;
        rill__part *list = rill__realloc(m->list, (size_t)n * sizeof *list);
        if (list) m->list = list;
        if (!parts || !list)
            return rill__fail(RILL_ERR_MEMORY, "out of memory for %d returned parts", n);
        m->parts_capacity = n;
    }
    for (int i = 0; i < n; i++) {
        m->list[i] = r->feedback.returned[i].part;
        m->parts[i] = told(&m->list[i]);
    }
    a->parts = m->parts;
    a->n_parts = n;
    return RILL_OK;
}

/* All parts as one, of pairs. */
static rill_status sum_parts(rill_reducer *r, rill__mail_answer *a) {
    rill__mailing *m = r->mailing;
    rill__part *sum = &m->sum.part;
    RILL_TRY(rill__sum_parts(rill__stream_shape(&m->input), RILL_SUM, 0, r->dim, a->n_parts,
                             m->list, false, &m->scratch, &m->sum));
    m->parts[0] = told(sum);
    if (sum->form == RILL__DENSE) RILL_TRY(take_pairs(r, sum->val, &m->sum_pairs, &m->parts[0]));
    a->n_parts = 1;
    return RILL_OK;
}

rill_status rill__reducer_reserve_mailed(rill_reducer *r) {
    rill__mailing *m = r->mailing;
    rill__mail_answer *a = &m->answer;
    if (m->reserved) return RILL_OK;
    *a = (rill__mail_answer){.own = rill__reducer_is_topk(r) ? RILL__OWN_OUTSIDE : RILL__OWN_GONE,
                             .inside = rill__reducer_is_topk(r),
                             .divisor = r->options.average ? r->comm->engine.size : 1};
    RILL_TRY(tell_result(r, r->now->out, &a->result));
    RILL_TRY(tell_parts(r, a));
    if (!ops(r)->fits(m->mail, a) && a->n_parts) RILL_TRY(sum_parts(r, a));
    if (!ops(r)->fits(m->mail, a))
        return rill__fail(RILL_ERR_MEMORY,
                          "no page-locked memory for a result of %llu entries and %d parts",
                          (unsigned long long)a->result.n, a->n_parts);
    m->reserved = true;
    return RILL_OK;
}

/* False: the step is void. */
static bool deliver(rill_reducer *r, uint32_t number) {
    rill__mail_answer *a = &r->mailing->answer;
    a->number = number;
    a->checks = r->voids;
    return !(r->voids && (r->now->task.flags & RILL__FLAG_VOID)) &&
           ops(r)->answer(r->mailing->mail, a);
}

/* The device has what it needs to end the step, whatever came of the call. */
static rill_status answer(rill_reducer *r, uint32_t number, rill_status status) {
    r->ticks[2] = rill__ticks(r->comm->engine.link);
    bool gone = status != RILL_OK && r->comm->engine.peers.revoked;
    if (status == RILL_OK) status = rill__reducer_reserve_mailed(r);
    r->stats.voided = status == RILL_OK && !deliver(r, number);
    if (status == RILL_OK && !r->stats.voided) return RILL_OK;
    bool voided = status == RILL_OK;
    rill__mail_answer nothing = {.number = number,
                                 .nan = true,
                                 .own = RILL__OWN_BACK,
                                 .undo = voided || gone};
    /* The gradient is the user's again: this rank cannot complete the step later. */
    if (gone) r->moving.interrupted = r->moving.lacks = true;
    rill__reducer_restore(r, !voided && !gone);
    r->voided_total += voided;
    ops(r)->answer(r->mailing->mail, &nothing);
    return status;
}

rill_status rill__reducer_run_mailed(rill_reducer *r, rill__on_step *step,
                                     const atomic_bool *given_up) {
    rill_request *q = r->now = step->request;
    enter(r, step, given_up);
    atomic_store_explicit(&q->open, true, memory_order_release);
    rill__reducer_advance(q);
    rill_status status = q->task.status;
    if (status != RILL_OK) rill__set_error(q->task.error);
    status = answer(r, step->letter, status);
    if (!await(r, ops(r)->over, step, given_up) && status == RILL_OK)
        status = rill__fail(RILL_ERR_IO, "the device has failed in the step");
    if (status == RILL_OK) rill__reducer_count_step(r, r->mailing->input.nnz);
    else
        snprintf(step->error, sizeof step->error, "%s",
                 q->task.status ? q->task.error : rill_last_error());
    return status;
}
