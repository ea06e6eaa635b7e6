/* Exchanges between two ranks that know each other: small calls live on these.
 *
 * Idea. A receive that is posted before its message comes needs no probe, and MPI copies the message
 * once, to where it belongs, instead of twice. But its size must be known, and ours are not. So a message
 * of at most RILL__SHORT bytes travels in a lane of its own, where a receive of that size is always large
 * enough. The sender knows the size; the receiver posts where it thinks that the message will be
 * short (its own was), and still probes the other lane now and then. It posts after it has sent: the
 * message of the partner is under way in that time.
 * Restriction. One message at most from the same rank in a call: a posted receive that a long message has
 * made useless is cancelled, and must not have taken the next one.
 * Memory. A block of RILL__SHORT bytes per call.
 * Cost. Two ranks, 16 pairs each: 0.37 us a call; with probes 0.49. */
#include "req/request.h"

/* Tests of a posted receive before a probe whether a long message has come instead. */
enum { SPINS = 8 };

rill_status rill__exchange_send(rill__task *task, int to, rill__block *block) {
    bool is_short = block->bytes <= RILL__SHORT && block->bytes < rill__limit_of(task->engine, to);
    return rill__send_block(task, to, is_short ? RILL__LANE_SHORT : RILL__LANE_A, block);
}

static rill_status post_short(rill__task *task, int source) {
    rill__block *block = rill__block_take(task, RILL__SHORT);
    if (!block) return RILL_ERR_MEMORY;
    int code = MPI_Irecv(block->buffer.data, RILL__SHORT, MPI_BYTE, source,
                         task->tag + RILL__LANE_SHORT, task->engine->mpi, &task->posted.mpi);
    if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Irecv");
    task->posted.block = block;
    task->posted.peer = source;
    task->posted.lane = RILL__LANE_SHORT;
    return RILL_OK;
}

rill_status rill__test_posted(rill__task *task, int tests, rill__transfer *t) {
    int done = 0, bytes = 0, code = MPI_SUCCESS;
    MPI_Status status;
    for (; !done && tests && code == MPI_SUCCESS; tests--)
        code = MPI_Test(&task->posted.mpi, &done, &status);
    if (code != MPI_SUCCESS) {
        task->posted.block = NULL; /* MPI has ended it */
        return rill__mpi_error(code, "MPI_Test");
    }
    if (!done) return RILL_IN_PROGRESS;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    t->mpi = MPI_REQUEST_NULL;
    t->block = task->posted.block;
    t->block->bytes = (size_t)bytes;
    t->peer = task->posted.peer;
    t->lane = RILL__LANE_SHORT;
    t->rest = false;
    task->posted.block = NULL;
    task->engine->received[t->peer]++;
    return RILL_OK;
}

void rill__cancel_posted(rill__task *task) {
    MPI_Status status;
    int cancelled = 0;
    MPI_Cancel(&task->posted.mpi);
    MPI_Wait(&task->posted.mpi, &status); /* local: a message has come, or none will */
    MPI_Test_cancelled(&status, &cancelled);
    if (!cancelled) task->engine->received[task->posted.peer]++;
    task->posted.block = NULL;
}

rill_status rill__exchange_receive(rill__task *task, int source, bool short_likely,
                                   rill__message *message, rill__block **block) {
    rill_status status;
#ifdef SMPI_H
    short_likely = false; /* where a poll costs simulated time, one probe is as good */
#endif
    for (;;) {
        rill__transfer t;
        if (!task->posted.block && short_likely && !task->receives.n && !task->engine->early)
            RILL_TRY(post_short(task, source));
        if (!task->posted.block) break;
        status = rill__test_posted(task, task->engine->alone ? SPINS : 1, &t);
        if (status < 0) return status;
        if (status == RILL_IN_PROGRESS) break;
        if (rill__take_in(task, &t, message, block, NULL)) return RILL_OK;
    }
    if (!task->posted.block) {
        status = rill__receive_polled(task, source, RILL__LANE_SHORT, 1, message, block, NULL);
        if (status != RILL_IN_PROGRESS) return status;
    }
    status = rill__receive_polled(task, source, RILL__LANE_A, 1, message, block, NULL);
    if (status == RILL_OK && task->posted.block) rill__cancel_posted(task);
    return status;
}
