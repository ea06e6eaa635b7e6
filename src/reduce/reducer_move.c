/* A reducer whose communicator has lost a rank: the step in which that happened, and the way to
 * another communicator.
 *
 * The step may be complete on some survivors, since they had all messages that they needed, and not
 * on others; it cannot be two steps ahead anywhere, since that needs a message of every rank. So
 * survivors that have made one step less than others complete it with the result of one of these:
 * what they had sent is in it. If nobody has it, it is void. Until that is known, a reducer is as
 * before the step, and keeps the residual and the momentum that it has if the step counts. */
#include "reduce/reducer.h"

#include <stdlib.h>
#include <string.h>

#define MOVE "rill_reducer_move: "

/* ---- a step that a death ended --------------------------------------------------------------- */

void rill__reducer_free_kept(rill_reducer *r) {
    rill__buffer_free(&r->moving.residual);
    rill__buffer_free(&r->moving.momentum);
    r->moving.interrupted = false;
}

static bool keep_copy(const rill_reducer *r, rill__buffer *copy, const rill__buffer *of) {
    size_t bytes = r->dim * rill__type_size(r->type);
    *copy = rill__space_buffer(r->space);
    if (rill__buffer_reserve(copy, bytes) != RILL_OK) return false;
    if (bytes) rill__do_copy(r->space, copy->data, of->data, bytes);
    return true;
}

void rill__reducer_interrupt(rill_reducer *r) {
    rill__moving *m = &r->moving;
    m->interrupted = true;
    if (r->failed != RILL_OK) { /* this rank had no part in it */
        m->lacks = true;
        rill__reducer_undo_failed(r);
        return;
    }
    m->zero = r->choice == RILL__SEND_ALL || r->residual_is_zero;
    m->lacks = !m->zero && !keep_copy(r, &m->residual, &r->residual);
    if (r->taken) m->lacks |= !keep_copy(r, &m->momentum, &r->momentum);
    rill__reducer_undo_void(r);
}

void rill__reducer_keep_last(rill_reducer *r) {
    rill__moving *m = &r->moving;
    bool host = r->space->is_host, whole = r->result->form == RILL__DENSE && r->target.dense;
    m->last_void = r->stats.voided;
    m->has_last = true;
    m->divisor = r->options.average && (!host || whole) ? r->comm->engine.size : 1;
    if (r->coder.away.summed && !m->last_void) { /* divided where it lies */
        m->divisor = 1;
        m->has_last = rill_stream_copy(r->result, r->delivered) == RILL_OK;
    }
    if (host && r->target.stream && !m->last_void)
        m->has_last = rill_stream_copy(r->result, r->target.stream) == RILL_OK;
}

/* It is complete on another rank, with the result that is in r->result. */
rill_status rill__reducer_complete_late(rill_reducer *r) {
    rill__moving *m = &r->moving;
    size_t bytes = r->dim * rill__type_size(r->type);
    if (!m->last_void) {
        r->delivered = r->result;
        if (!r->space->is_host) {
            RILL_TRY(rill_stream_copy(r->landed, r->result));
            r->delivered = r->landed;
        }
        if (m->zero && bytes) rill__do_clear(r->space, r->residual.data, bytes);
        r->residual_is_zero = m->zero;
        if (m->residual.data) {
            rill__buffer other = r->residual;
            r->residual = m->residual;
            m->residual = other;
        }
        if (m->momentum.data) {
            rill__buffer other = r->momentum;
            r->momentum = m->momentum;
            m->momentum = other;
        }
        RILL_TRY(rill__reducer_take_back(r));
    }
    r->voided_total += m->last_void;
    r->steps++;
    rill__reducer_free_kept(r);
    return rill__space_wait(r->space);
}

/* ---- what the ranks know together ------------------------------------------------------------ */

typedef struct known {
    uint64_t steps; /* of who has made the most */
    uint64_t seed, voided;
    int leader;  /* the lowest rank that has their last result; -1: nobody */
    bool wanted; /* by somebody */
    bool last_void;
    bool on_devices; /* all reducers, those of new ranks, too */
    double divisor;
} known;

static rill_status most(rill_comm *comm, uint64_t mine, uint64_t *all) {
    *all = mine;
    return rill__agree_most(comm, "reducer_move", RILL_OK, all);
}

static bool lags(const rill_reducer *r, const known *k) {
    return r->moving.interrupted && r->steps < k->steps;
}

static rill_status find_out(const rill_reducer *r, rill_comm *comm, known *k) {
    uint64_t word, size = (uint64_t)comm->engine.size, rank = (uint64_t)comm->engine.rank;
    RILL_TRY(most(comm, r->steps, &k->steps));
    bool ahead = r->steps == k->steps, has = ahead && r->moving.has_last;
    RILL_TRY(most(comm, has ? size - rank : 0, &word));
    k->leader = word ? (int)(size - word) : -1;
    bool leads = k->leader == comm->engine.rank;
    RILL_TRY(most(comm, lags(r, k), &word));
    k->wanted = word != 0;
    /* Who is ahead has the same seed and count as all others who are. */
    RILL_TRY(most(comm, ahead ? r->feedback.seed : 0, &k->seed));
    RILL_TRY(most(comm, ahead ? r->voided_total : 0, &k->voided));
    RILL_TRY(most(comm, leads ? r->moving.last_void : 0, &word));
    k->last_void = word != 0;
    RILL_TRY(most(comm, leads ? (uint64_t)r->moving.divisor : 0, &word));
    k->divisor = (double)word;
    RILL_TRY(most(comm, !r->space->codes, &word));
    k->on_devices = !word && size > 1;
    return RILL_OK;
}

static rill_status check_lag(const rill_reducer *r, const known *k) {
    if (!k->wanted) return RILL_OK;
    if (k->leader < 0)
        return rill__fail(RILL_ERR_STATE, MOVE "no rank has the result of step %llu",
                          (unsigned long long)k->steps);
    if (lags(r, k) && r->steps + 1 < k->steps)
        return rill__fail(RILL_ERR_STATE, MOVE "this reducer has made %llu steps, another %llu",
                          (unsigned long long)r->steps, (unsigned long long)k->steps);
    if (lags(r, k) && r->moving.lacks)
        return rill__fail(RILL_ERR_MEMORY, MOVE "there was no memory to complete the step with");
    return RILL_OK;
}

/* Everybody gets the last result, so that everybody can give it once more. */
static rill_status spread_last(rill_reducer *r, rill_comm *comm, const known *k) {
    rill__moving *m = &r->moving;
    if (!k->wanted) return RILL_OK;
    rill_options o = RILL_OPTIONS_INIT;
    o.value_bits = 0;
    rill__arguments a = {.collective = RILL_BCAST,
                         .in = r->result,
                         .out = r->result,
                         .root = k->leader,
                         .options = &o};
    if (!k->last_void) RILL_TRY(rill__call(comm, &a, RILL__BLOCKING, NULL));
    m->has_last = true;
    m->last_void = k->last_void;
    m->divisor = k->divisor;
    return RILL_OK;
}

/* ---- the way over ---------------------------------------------------------------------------- */

static rill_status make_anew(rill_reducer *r, rill_comm *comm, const known *k) {
    r->comm = comm;
    r->steps = k->steps;
    r->feedback.seed = k->seed;
    r->feedback.on_devices = k->on_devices;
    r->voided_total = k->voided;
    r->options.value_bits = r->asked_bits;
    RILL_TRY(rill__reducer_resolve(r));
    return rill__reducer_prepare(r);
}

/* The old state stays until all ranks have the new one. */
static rill_status go_over(rill_reducer *r, rill_comm *comm, const known *k) {
    rill_reducer *old = rill__malloc(sizeof *old);
    rill_status status = old ? RILL_OK : rill__fail(RILL_ERR_MEMORY, MOVE "out of memory");
    if (old) {
        *old = *r;
        rill__reducer_hide_state(r);
        status = make_anew(r, comm, k);
    }
    status = rill__agree_all(comm, "reducer_move", status, 0);
    if (status == RILL_OK) {
        rill__reducer_free_state(old);
    } else if (old) {
        char detail[200];
        strncpy(detail, rill_last_error(), sizeof detail - 1);
        detail[sizeof detail - 1] = '\0';
        rill__reducer_free_state(r);
        *r = *old;
        rill__set_error(detail);
    }
    free(old);
    return status;
}

static uint64_t options_word(rill_reducer *r) {
    int bits = r->options.value_bits;
    r->options.value_bits = r->asked_bits;
    uint64_t word = rill__reducer_options_word(r);
    r->options.value_bits = bits;
    return word;
}

rill_status rill_reducer_move(rill_reducer *r, rill_comm *comm, int *again) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, MOVE "reducer is NULL");
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, MOVE "comm is NULL");
    int nobody = 0;
    rill_status status = again ? RILL_OK : rill__fail(RILL_ERR_ARGUMENT, MOVE "again is NULL");
    if (!again) again = &nobody; /* the others are told in the agreement */
    *again = 0;
    if (rill__reducer_is_busy(r)) rill_reducer_wait(r); /* what came of it is known below */
    RILL_TRY(rill__agree_all(comm, "reducer_move", status, options_word(r)));
    known k;
    RILL_TRY(find_out(r, comm, &k));
    RILL_TRY(rill__agree_all(comm, "reducer_move", check_lag(r, &k), 0));
    RILL_TRY(spread_last(r, comm, &k));
    status = lags(r, &k) ? rill__reducer_complete_late(r) : RILL_OK;
    RILL_TRY(rill__agree_all(comm, "reducer_move", status, 0));
    bool interrupted = r->moving.interrupted;
    RILL_TRY(go_over(r, comm, &k));
    comm->reducers++; /* its number is the same on all ranks */
    *again = interrupted;
    return RILL_OK;
}

rill_status rill_reducer_update(rill_reducer *r, void *update) {
    static const char name[] = "rill_reducer_update: ";
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, "%sreducer is NULL", name);
    if (!update && r->dim) return rill__fail(RILL_ERR_ARGUMENT, "%supdate is NULL", name);
    if (rill__reducer_is_busy(r)) return rill__fail(RILL_ERR_STATE, "%sa step is under way", name);
    rill__moving *m = &r->moving;
    if (!m->has_last) return rill__fail(RILL_ERR_STATE, "%sno step is complete", name);
    r->target = (rill__target){.dense = update};
    if (m->last_void) {
        rill__reducer_write_nan(r, &r->target);
        return rill__space_wait(r->space);
    }
    rill_stream *result = r->result;
    if (result->form != RILL__DENSE && m->divisor != 1) {
        rill__dense_divide(rill__host(), r->type, result->val.data, result->val.data, m->divisor,
                           result->nnz);
        m->divisor = 1;
    }
    if (!r->space->is_host) {
        RILL_TRY(rill_stream_copy(r->landed, result));
        result = r->landed;
    }
    uint64_t at = 0;
    if (result->form == RILL__DENSE)
        rill__dense_divide(r->space, r->type, update, result->val.data, m->divisor, r->dim);
    else rill__stream_write(result, 0, r->dim, &at, update);
    return rill__space_wait(r->space);
}
