/* The last word of a call that may fail late, and agreements outside of calls.
 *
 * A rank that fails puts its status into the messages that it still has to send. One that fails
 * after the last of them, for want of memory to take in what came, would be the only one to know.
 * Calls that may have to allocate then (call/rooms.c has the others' memory ready) end with an
 * agreement on the status: the first two of a kind that go the same way (algorithm, codec,
 * partition), and those with more entries, in the result, in all inputs or in one of them, than any
 * before. All ranks know which these are: by how many have ended so, and by statistics that all
 * have. An algorithm that now and then does more says so (more_memory), alike on all ranks. A rank
 * that fails in another call, and so may not know its size, sends an abort: it reaches those who
 * wait for its word.
 *
 * Non-blocking calls end in another order on each rank: they count those that ended well up to the
 * one that they were planned by (plan/plan.h), and later ones that need more memory are not agreed
 * on. */
#include "call/call.h"

#include <string.h>

/* Of the calls of its kind that end in order; NULL: it is none of them. */
static rill__commits *commits_of(rill_request *r) {
    if (r->persistent) return r->joint ? r->joint : &r->commits;
    return r->blocking && r->plan.key ? &r->plan.key->commits : NULL;
}

static bool is_first(const rill_request *r, const rill__commits *c) {
    if (r->run.more_memory) return true;
    /* Where a rank can be gone: who completes the call knows that all know what they keep. */
    if (r->plan.algorithm && r->plan.algorithm->keeps_late && r->task.engine->table->failed)
        return true;
    if (c) return !(c->twice & r->plan.way);
    return !r->blocking && r->plan.before < RILL__PLAN_FIRST;
}

/* What all ranks know of the call's size, when it has ended well. */
static inline void sizes_of(const rill_request *r, rill__sizes *size) {
    enum {
        EVERYBODYS = 1 << RILL_ALLREDUCE | 1 << RILL_ALLGATHER | 1 << RILL_BCAST | 1 << RILL_REDUCER
    };
    bool everybodys = EVERYBODYS >> r->collective & 1;
    size->result = everybodys && r->out ? r->out->nnz : 0;
    size->pairs = size->result && r->out->form != RILL__DENSE ? size->result : 0;
    size->sum = r->stats_known ? r->task.nnz_sum : 0;
    size->most = r->stats_known ? r->task.nnz_max & RILL__ENTRIES : 0;
}

static bool grows(const rill_request *r, const rill__commits *c) {
    rill__sizes size;
    if (!c) return false;
    sizes_of(r, &size);
    return size.result > c->sizes.result || size.pairs > c->sizes.pairs ||
           size.sum > c->sizes.sum || size.most > c->sizes.most;
}

/* Buffers have a quarter to spare. */
static uint64_t raised(uint64_t mark, uint64_t size) {
    return rill__max_u64(mark, size + size / 4);
}

static void raise_marks(rill__sizes *marks, const rill__sizes *size) {
    marks->result = raised(marks->result, size->result);
    marks->pairs = raised(marks->pairs, size->pairs);
    marks->sum = raised(marks->sum, size->sum);
    marks->most = raised(marks->most, size->most);
}

static void count_commit(rill_request *r) {
    rill__commits *c = commits_of(r);
    rill__sizes size;
    if (!c) return;
    sizes_of(r, &size);
    c->twice |= c->once & r->plan.way;
    c->once |= r->plan.way;
    raise_marks(&c->sizes, &size);
}

/* The algorithm is through on this rank. RILL_OK: so is the call. */
rill_status rill__commit_start(rill_request *r) {
    rill__task *task = &r->task;
    r->task.may_post = false;
    if (task->engine->size == 1) return RILL_OK;
    const rill__commits *c = commits_of(r);
    r->seasoned = c && c->once & r->plan.way;
    bool first = is_first(r, c), failed = rill__task_failed(&r->task);
    if (failed && !first) {
        if (task->origin == task->engine->rank)
            rill__abort(task->engine, task->seq, task->status, task->origin, task->error);
        return RILL_OK;
    }
    if (!(!failed && grows(r, c)) && !first) return RILL_OK;
    r->ran = rill__ticks(task->engine->link) - r->started;
    rill_status status = RILL_OK;
    if (!failed) {
        rill__sizes size;
        sizes_of(r, &size);
        raise_marks(&size, &size);
        status = rill__rooms_keep(r, &size);
    }
    if (status == RILL_OK) status = rill__agree_reserve(&r->task);
    if (status != RILL_OK) rill__task_fail(&r->task, status);
    rill__agree_start(&r->agree, 0, NULL, 0);
    r->phase = RILL__P_COMMIT;
    r->at_commit = (rill__traffic){task->nnz_sum,    task->nnz_max,  task->sent_bytes,
                                   task->recv_bytes, task->messages, task->rounds};
    return RILL_IN_PROGRESS;
}

rill_status rill__commit_step(rill_request *r) {
    rill_status status = rill__agree_step(&r->task, &r->agree);
    if (status != RILL_OK) return status;
    /* The agreement adds up statistics that everybody has; and its messages are not the
     * algorithm's. */
    rill__task *task = &r->task;
    task->nnz_sum = r->at_commit.nnz_sum;
    task->nnz_max = r->at_commit.nnz_max;
    task->sent_bytes = r->at_commit.sent_bytes;
    task->recv_bytes = r->at_commit.recv_bytes;
    task->messages = r->at_commit.messages;
    task->rounds = r->at_commit.rounds;
    if (!rill__task_failed(&r->task)) count_commit(r);
    return RILL_OK;
}

/* ---- outside of calls ------------------------------------------------------------------------ */

static rill_status agree(rill_comm *comm, const char *what, rill_status status, uint64_t *word,
                         bool takes_most) {
    if (comm->engine.size == 1) return status;
    char detail[200];
    strncpy(detail, status == RILL_OK ? "" : rill_last_error(), sizeof detail - 1);
    detail[sizeof detail - 1] = '\0';
    rill_stream nothing;
    rill__stream_init(&nothing, RILL_F32, 0);
    rill__lock(&comm->engine);
    rill_request *r = rill__agreement_begin(comm, &nothing, what, *word);
    if (!r && status == RILL_OK) {
        status = RILL_ERR_MEMORY;
        strncpy(detail, "out of memory for a request", sizeof detail - 1);
    }
    if (!r) {
        rill__abort(&comm->engine, comm->engine.seq++, status, comm->engine.rank, detail);
        rill__set_error(detail);
    } else {
        r->takes_most = takes_most;
        if (rill__agree_reserve(&r->task) != RILL_OK && status == RILL_OK) {
            status = RILL_ERR_MEMORY;
            strncpy(detail, rill_last_error(), sizeof detail - 1);
        }
        rill__set_error(detail);
        if (status != RILL_OK) rill__task_fail(&r->task, status);
        rill__engine_wait(&r->task);
        status = rill__request_result(r);
        *word = r->agree.args_max;
        rill__request_recycle(r);
    }
    rill__unlock(&comm->engine);
    return status;
}

rill_status rill__agree_all(rill_comm *comm, const char *what, rill_status status, uint64_t word) {
    return agree(comm, what, status, &word, false);
}

rill_status rill__agree_most(rill_comm *comm, const char *what, rill_status status,
                             uint64_t *word) {
    return agree(comm, what, status, word, true);
}
