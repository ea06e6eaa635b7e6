#include "coll/away.h"
#include "coll/outside.h"
#include "coll/topk/topk.h"

#include <stdio.h>

static rill__away *owner_of(const rill__run *run) {
    return run->feedback ? run->feedback->away : NULL;
}

/* What is planned, and can be done here. */
static bool goes_away(const rill__run *run) {
    return run->problem->away && owner_of(run) && !rill__run_failed(run);
}

/* ---- errands -------------------------------------------------------------------------------- */

static void work(rill__away *away) {
    away->status = away->run(away->whom, &away->errand);
    if (away->status != RILL_OK) snprintf(away->error, sizeof away->error, "%s", rill_last_error());
}

bool rill__away_work(rill__away *away) {
    if (!rill__away_waits(away)) return false;
    work(away);
    atomic_store_explicit(&away->state, RILL__ERRAND_DONE, memory_order_release);
    return true;
}

static bool is_under_way(const rill__away *away) {
    return atomic_load_explicit(&away->state, memory_order_acquire) != RILL__ERRAND_NONE;
}

static void give(rill__run *run, rill__away *away) {
    if (!away->apart) {
        work(away);
        atomic_store_explicit(&away->state, RILL__ERRAND_DONE, memory_order_relaxed);
        return;
    }
    run->outside->task->lent = true;
    atomic_store_explicit(&away->state, RILL__ERRAND_GIVEN, memory_order_release);
    away->given(away->whom);
}

/* What has been given. RILL_OK: it is done, or has failed, which is recorded. */
static rill_status take_back(rill__run *run, rill__away *away) {
    if (atomic_load_explicit(&away->state, memory_order_acquire) != RILL__ERRAND_DONE)
        return RILL_IN_PROGRESS;
    atomic_store_explicit(&away->state, RILL__ERRAND_NONE, memory_order_relaxed);
    run->outside->task->lent = false;
    run->outside->task->moved = true;
    if (away->status == RILL_OK) return RILL_OK;
    rill__set_error(away->error);
    return rill__run_fail(run, away->status);
}

rill_status rill__run_fetch_input(rill__run *run, bool *changed) {
    rill__away *away = owner_of(run);
    *changed = false;
    if (!away || !away->lacks_input || goes_away(run)) return RILL_OK;
    if (rill__run_failed(run)) {
        *changed = true;
        return RILL_OK;
    }
    if (!is_under_way(away)) {
        away->errand = (rill__errand){.kind = RILL__ERRAND_FETCH};
        give(run, away);
    }
    rill_status status = take_back(run, away);
    if (status != RILL_OK) return status;
    away->lacks_input = false;
    *changed = true;
    return RILL_OK;
}

/* ---- messages ------------------------------------------------------------------------------- */

rill_status rill__run_encode_input(rill__run *run, rill__parcel **out) {
    rill__away *away = owner_of(run);
    rill__task *task = run->outside->task;
    if (!goes_away(run)) return rill__run_encode(run, &run->coding, run->input, out);
    if (!is_under_way(away)) {
        rill__errand *e = &away->errand;
        *e = (rill__errand){.kind = RILL__ERRAND_ENCODE,
                            .shape = run->shape,
                            .dim = run->dim,
                            .part = run->input};
        rill_status status = rill__encode_begin(task, &run->coding, run->input, &e->coding,
                                                &e->parcel, &e->payload);
        if (status != RILL_OK) {
            rill__run_fail(run, status);
            return rill__run_encode(run, &run->coding, run->input, out);
        }
        give(run, away);
    }
    rill_status status = take_back(run, away);
    if (status != RILL_OK) return status;
    if (rill__run_failed(run)) return rill__run_encode(run, &run->coding, run->input, out);
    const rill__errand *e = &away->errand;
    rill__encode_end(task, &run->coding, &e->coding, run->input, e->index_size, e->value_size,
                     e->parcel);
    *out = e->parcel;
    return RILL_OK;
}

static bool all_there(int n, const rill__message *messages) {
    for (int i = 0; i < n; i++)
        if (messages[i].header.form == RILL__M_FAILED) return false;
    return true;
}

rill_status rill__run_sum_away(rill__run *run, int n, const rill__message *messages, bool *done) {
    rill__away *away = owner_of(run);
    *done = false;
    if (!goes_away(run) || !all_there(n, messages)) return RILL_OK;
    if (!is_under_way(away)) {
        away->errand = (rill__errand){.kind = RILL__ERRAND_SUM,
                                      .shape = run->shape,
                                      .dim = run->dim,
                                      .n = n,
                                      .messages = messages};
        give(run, away);
    }
    rill_status status = take_back(run, away);
    if (status != RILL_OK) return status;
    *done = rill__run_failed(run) || away->errand.suits;
    if (rill__run_failed(run) || !*done) return RILL_OK;
    rill_stream *out = run->outside->out;
    rill_stream_clear(out);
    out->nnz = away->errand.entries; /* its arrays are not looked at */
    away->summed = true;
    return RILL_OK;
}
