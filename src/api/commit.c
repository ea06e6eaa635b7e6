/* The last word of a call that may fail late, and agreements outside of calls.
 *
 * A rank that fails puts its status into the messages that it still has to send. One that fails after the last of
 * them, for want of memory to take in what came, would be the only one to know. In the steady state a call allocates
 * nothing; so calls that may have to end with an agreement on the status: the first two of a kind, and those whose
 * result is larger than any before. All ranks know which these are: by the number of the call, and, where calls of a
 * kind end in the order in which they began, by the size of the result, which all have. An algorithm that now and then
 * does more says so (more_memory), alike on all ranks. A rank that fails in another
 * call, and so may not know the size, sends an abort: it reaches those who wait for its word. */
#include "api/call.h"

#include <string.h>

enum { FIRST_CALLS = 2 };

static bool is_first(const rill_request *r) {
    return (r->persistent ? r->runs : r->call) < FIRST_CALLS || r->more_memory;
}

/* What the largest committed result of the kind is compared with; NULL where ranks may see different ones. */
static uint64_t *committed_of(rill_request *r) {
    bool everybodys = r->collective == RILL_ALLREDUCE || r->collective == RILL_ALLGATHER ||
                      r->collective == RILL_BCAST || r->collective == RILL_REDUCER;
    if (!everybodys) return NULL;
    if (r->persistent) return &r->committed;
    rill__plan_key *key = &r->comm->planner.keys[r->key];
    return r->blocking && key->born == r->key_born ? &key->committed : NULL;
}

static bool grows(rill_request *r) {
    const uint64_t *committed = committed_of(r);
    return committed && r->out && r->out->nnz > *committed;
}

/* The algorithm is through on this rank. RILL_OK: so is the call. */
rill_status rill__commit_start(rill_request *r) {
    rill__task *task = &r->task;
    r->may_post = false;
    if (task->engine->size == 1) return RILL_OK;
    bool first = is_first(r), failed = rill__task_failed(r);
    if (failed && !first) {
        if (task->origin == task->engine->rank)
            rill__abort(task->engine, task->seq, task->status, task->origin, task->error);
        return RILL_OK;
    }
    if (!(!failed && grows(r)) && !first) return RILL_OK;
    rill_status status = rill__agree_reserve(r);
    if (status != RILL_OK) rill__task_fail(r, status);
    rill__agree_start(&r->agree, 0, NULL, 0);
    r->phase = RILL__P_COMMIT;
    r->at_commit = (rill__traffic){task->nnz_sum, task->nnz_max,  task->sent_bytes,
                                   task->recv_bytes, task->messages, task->rounds};
    return RILL_IN_PROGRESS;
}

rill_status rill__commit_step(rill_request *r) {
    rill_status status = rill__agree_step(r, &r->agree);
    if (status != RILL_OK) return status;
    uint64_t *committed = committed_of(r);
    if (committed && r->out && !rill__task_failed(r)) /* buffers have a quarter to spare */
        *committed = rill__max_u64(*committed, r->out->nnz + r->out->nnz / 4);
    /* The agreement adds up statistics that everybody has; and its messages are not the algorithm's. */
    rill__task *task = &r->task;
    task->nnz_sum = r->at_commit.nnz_sum;
    task->nnz_max = r->at_commit.nnz_max;
    task->sent_bytes = r->at_commit.sent_bytes;
    task->recv_bytes = r->at_commit.recv_bytes;
    task->messages = r->at_commit.messages;
    task->rounds = r->at_commit.rounds;
    return RILL_OK;
}

/* ---- outside of calls ---------------------------------------------------------------------------------- */

uint64_t rill__hash_more(uint64_t hash, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

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
        if (rill__agree_reserve(r) != RILL_OK && status == RILL_OK) {
            status = RILL_ERR_MEMORY;
            strncpy(detail, rill_last_error(), sizeof detail - 1);
        }
        rill__set_error(detail);
        if (status != RILL_OK) rill__task_fail(r, status);
        rill__engine_wait(r);
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
