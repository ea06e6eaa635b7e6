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
 * Non-blocking calls end in another order on each rank, and are known by their number alone: later
 * ones that need more memory are not agreed on; nor are those after an abort, by which ranks may
 * have counted differently. */
#include "call/call.h"

#include <string.h>

enum { FIRST_CALLS = 2 };

/* Of the calls of its kind that end in order; NULL: it is none of them. */
static rill__commits *commits_of(rill_request *r) {
    if (r->persistent) return r->joint ? r->joint : &r->commits;
    rill__plan_key *key = r->blocking ? rill__plan_key_of(&r->comm->planner, &r->plan) : NULL;
    return key ? &key->commits : NULL;
}

/* Known by its number, behind an abort. */
static bool is_lost_count(const rill_request *r) {
    return !r->blocking && !r->persistent && r->task.seq > r->task.engine->derailed;
}

/* A way to send needs memory of its own. Two that share a bit are taken for one. */
static uint64_t way_of(const rill_request *r) {
    const rill__problem *p = &r->plan.problem;
    uint64_t way = r->plan.algorithm_hash;
    way = way * 31 + (p->codec ? p->codec->id + 1u : 0);
    way = way * 31 + (uint64_t)p->value_bits;
    way = way * 31 + (uint64_t)p->partition;
    return UINT64_C(1) << (way * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

static bool is_first(rill_request *r) {
    if (r->run.more_memory) return true;
    /* Where a rank can be gone: who completes the call knows that all know what they keep. */
    if (r->plan.algorithm && r->plan.algorithm->keeps_late && r->task.engine->table->failed)
        return true;
    const rill__commits *c = commits_of(r);
    if (c) return !(c->twice & way_of(r));
    return !r->blocking && r->plan.call < FIRST_CALLS && !is_lost_count(r);
}

/* What all ranks know of the call's size, when it has ended well. */
static rill__commits sizes_of(const rill_request *r) {
    bool everybodys = r->collective == RILL_ALLREDUCE || r->collective == RILL_ALLGATHER ||
                      r->collective == RILL_BCAST || r->collective == RILL_REDUCER;
    rill__commits size = {.result = everybodys && r->out ? r->out->nnz : 0};
    if (size.result && r->out->form != RILL__DENSE) size.pairs = size.result;
    if (r->stats_known) {
        size.sum = r->task.nnz_sum;
        size.most = r->task.nnz_max;
    }
    return size;
}

static bool grows(rill_request *r) {
    const rill__commits *c = commits_of(r), size = sizes_of(r);
    return c && (size.result > c->result || size.pairs > c->pairs || size.sum > c->sum ||
                 size.most > c->most);
}

/* Buffers have a quarter to spare. */
static uint64_t raised(uint64_t mark, uint64_t size) {
    return rill__max_u64(mark, size + size / 4);
}

static void raise_marks(rill__commits *c, const rill__commits *size) {
    c->result = raised(c->result, size->result);
    c->pairs = raised(c->pairs, size->pairs);
    c->sum = raised(c->sum, size->sum);
    c->most = raised(c->most, size->most);
}

static void count_commit(rill_request *r) {
    rill__commits *c = commits_of(r), size = sizes_of(r);
    if (!c) return;
    c->twice |= c->once & way_of(r);
    c->once |= way_of(r);
    raise_marks(c, &size);
}

/* The algorithm is through on this rank. RILL_OK: so is the call. */
rill_status rill__commit_start(rill_request *r) {
    rill__task *task = &r->task;
    r->task.may_post = false;
    if (task->engine->size == 1) return RILL_OK;
    bool first = is_first(r), failed = rill__task_failed(&r->task);
    if (failed && !first) {
        if (task->origin == task->engine->rank)
            rill__abort(task->engine, task->seq, task->status, task->origin, task->error);
        return RILL_OK;
    }
    if (!(!failed && grows(r)) && !first) return RILL_OK;
    rill_status status = RILL_OK;
    if (!failed) {
        rill__commits size = sizes_of(r);
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
    /* The abort came after this rank had begun to agree, and others may not have. */
    if (status == RILL_IN_PROGRESS && is_lost_count(r)) {
        rill__task_let_go(&r->task);
        status = RILL_OK;
    }
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
