/* Exchanges between two ranks that know each other: small calls live on these.
 *
 * Idea. A receive that is posted before its message comes needs no probe, and the link (MPI at
 * least) copies the message once, to where it belongs, instead of twice. But its size must be
 * known, and ours are not. So a message of at most RILL__SHORT bytes travels in a lane of its own,
 * where a receive of that size is always large enough. The sender knows the size; the receiver
 * posts where it thinks that the message will be short (its own was), and still probes the other
 * lane now and then. It posts after it has sent: the message of the partner is under way in that
 * time. Between ranks of a host short messages go by mail (req/mail.h), where there is some: no
 * receive is posted then, and what found its box taken is probed for. Restriction. One message at
 * most from the same rank in a call: a posted receive that a long message has made useless is
 * cancelled, and must not have taken the next one. Memory. A parcel of RILL__SHORT bytes per call.
 * Cost. Two ranks, 16 pairs each: 0.37 us a call; with probes 0.49. */
#include "req/request.h"

/* Tests of a posted receive before a probe whether a long message has come instead; looks into a
 * box before a probe whether one has come over the link. */
enum { SPINS = 8, LOOKS = 32 };

rill_status rill__exchange_send(rill__task *task, int to, rill__parcel *parcel) {
    bool whole = parcel->bytes < rill__limit_of(task->engine, to);
    bool mail = task->engine->shared.mail.pairs != NULL;
    if (mail && whole && rill__mail_send(task, to, parcel)) return RILL_OK;
    bool is_short = whole && parcel->bytes <= RILL__SHORT;
    return rill__send_parcel(task, to, is_short ? RILL__LANE_SHORT : RILL__LANE_A, parcel);
}

static rill_status post_short(rill__task *task, int source) {
    rill__parcel *parcel = rill__parcel_take(task, RILL__SHORT);
    if (!parcel) return RILL_ERR_MEMORY;
    rill__engine *engine = task->engine;
    RILL_TRY(engine->table->post(engine->link, source, task->tag + RILL__LANE_SHORT,
                                 parcel->buffer.data, RILL__SHORT, &task->posted.wire));
    task->posted.parcel = parcel;
    task->posted.peer = source;
    task->posted.lane = RILL__LANE_SHORT;
    return RILL_OK;
}

/* What has failed has ended. No rank sends a longer message there. */
static __attribute__((noinline)) rill_status failed_posted(rill__task *task, rill_status status) {
    task->posted.parcel = NULL;
    if (status != RILL_ERR_MESSAGE || !task->engine->link->key) return status;
    task->engine->received[task->posted.peer]++;
    rill__count_stranger(task->engine, task->posted.peer);
    return RILL_IN_PROGRESS;
}

static inline __attribute__((always_inline)) rill_status test_posted(rill__task *task, int tests,
                                                                     rill__transfer *t) {
    rill__engine *engine = task->engine;
    size_t bytes = 0;
    rill_status status = RILL_IN_PROGRESS;
    for (; status == RILL_IN_PROGRESS && tests; tests--)
        status = engine->table->test(engine->link, &task->posted.wire, &bytes);
    if (status == RILL_IN_PROGRESS) return status;
    if (status != RILL_OK) return failed_posted(task, status);
    t->wire.word = 0;
    t->parcel = task->posted.parcel;
    t->parcel->bytes = bytes;
    t->peer = task->posted.peer;
    t->lane = RILL__LANE_SHORT;
    t->rest = false;
    task->posted.parcel = NULL;
    engine->received[t->peer]++;
    return RILL_OK;
}

rill_status rill__test_posted(rill__task *task, int tests, rill__transfer *t) {
    return test_posted(task, tests, t);
}

void rill__cancel_posted(rill__task *task) {
    rill__engine *engine = task->engine;
    bool came;
    engine->table->cancel(engine->link, &task->posted.wire, &came);
    if (came) engine->received[task->posted.peer]++;
    task->posted.parcel = NULL;
}

rill_status rill__exchange_receive(rill__task *task, int source, bool short_likely,
                                   rill__message *message, rill__parcel **parcel) {
    rill_status status;
    rill__transfer t;
    if (rill__mail_from(task->engine, source)) {
        status = rill__mail_receive(task, source, task->engine->alone ? LOOKS : 1, &t);
        if (status < 0) return status;
        if (status == RILL_OK && rill__take_in(task, &t, message, parcel, NULL)) return RILL_OK;
        short_likely = false;
    }
    short_likely &= task->engine->link->ordered_posts;
    for (;;) {
        if (!task->posted.parcel && short_likely && !task->receives.n && !task->engine->early)
            RILL_TRY(post_short(task, source));
        if (!task->posted.parcel) break;
        status = test_posted(task, task->engine->alone ? SPINS : 1, &t);
        if (status < 0) return status;
        if (status == RILL_IN_PROGRESS) break;
        if (rill__take_in(task, &t, message, parcel, NULL)) return RILL_OK;
    }
    if (!task->posted.parcel) {
        status = rill__receive_polled(task, source, RILL__LANE_SHORT, 1, message, parcel, NULL);
        if (status != RILL_IN_PROGRESS) return status;
    }
    status = rill__receive_polled(task, source, RILL__LANE_A, 1, message, parcel, NULL);
    if (status == RILL_OK && task->posted.parcel) rill__cancel_posted(task);
    return status;
}
