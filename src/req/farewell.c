/* Before a communicator is freed: no message may stay behind. */
#include "req/request.h"

#include <stdio.h>

enum { POLLS_BETWEEN_LOOKS = 64 };

/* Takes in a message that nobody awaits, if there is one. */
static rill_status discard_one(rill__engine *engine, rill__buffer *sink) {
    rill__arrival came;
    rill__wire wire;
    rill__receive_notes(engine);
    rill_status status = engine->table->probe(engine->link, RILL__ANY, RILL__ANY, 1, &came);
    if (status == RILL_IN_PROGRESS || (status == RILL_OK && came.tag >= RILL__TAG_PEERS))
        return RILL_OK;
    if (status != RILL_OK) return status;
    /* Without room for it the link throws it away. */
    bool room = rill__buffer_reserve(sink, came.bytes + 1) == RILL_OK;
    engine->received[came.source]++;
    RILL_TRY(engine->table->receive(engine->link, &came, came.tag, room ? sink->data : NULL, true,
                                    &wire));
    return rill__link_wait(engine->link, &wire);
}

/* Nobody waits for a rank that is gone. */
static rill_status drain_on(rill__engine *engine, rill__buffer *sink) {
    RILL_TRY(discard_one(engine, sink));
    if (!(++engine->idle_polls % POLLS_BETWEEN_LOOKS)) {
        rill__peers_poll(engine);
        rill__peers_wait(engine);
    }
    engine->table->idle(engine->link, 0);
    return RILL_OK;
}

static bool all_said(const rill__engine *engine, int step) {
    for (int i = 0; i < engine->size; i++)
        if (i != engine->rank && !(engine->peers.said[i] & 1 << step)) return false;
    return true;
}

static bool all_received(const rill__engine *engine) {
    for (int i = 0; i < engine->size; i++)
        if (engine->received[i] < engine->announced[i]) return false;
    return true;
}

/* After failed calls messages may be under way that nobody awaits, and MPI gives the number of a
 * freed communicator to the next one: they would turn up there. So all ranks first say that they
 * have come here (until all have, inquiries are answered, and who is still in a call is told that
 * it is over; then nobody is in a call), then how many messages they have sent, and take in until
 * that many have come. By messages of our own: with stray messages about, MPI_Ibarrier and
 * MPI_Ialltoall of Open MPI 4.1.4 were seen to wait for ever. */
static rill_status drain_together(rill__engine *engine) {
    rill__buffer sink = {.data = NULL};
    rill_status status = RILL_OK;
    rill__refuse_calls(engine);
    for (int step = 0; step < 2 && status == RILL_OK; step++) {
        rill__header header = {.form = RILL__M_FAREWELL,
                               .first = (uint64_t)step,
                               .dim = UINT64_MAX};
        rill__header_seal(&header, engine->seal);
        engine->closing = step == 1;
        rill__send_note(engine, &header, "");
        while (status == RILL_OK && !all_said(engine, step) && !engine->peers.revoked)
            status = drain_on(engine, &sink);
    }
    while (status == RILL_OK && !engine->peers.revoked &&
           !(all_received(engine) && rill__orphans_done(engine)))
        status = drain_on(engine, &sink);
    rill__buffer_free(&sink);
    if (engine->peers.revoked) rill__peers_leave(engine);
    if (status == RILL_OK) return RILL_OK;
    char detail[200];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    return rill__fail(status, "while freeing a communicator: %s", detail);
}

/* The link keeps what this rank has sent, and lets it go by itself: the others need to know only
 * from which call on it is missing. Under the lock, since another rank's thread may be helping. */
static void leave_alone(rill__engine *engine) {
    rill__lock(engine);
    engine->leaving = engine->closing = true;
    rill__header header = {.form = RILL__M_FAREWELL, .seq = engine->seq, .dim = UINT64_MAX};
    rill__header_seal(&header, engine->seal);
    rill__send_note(engine, &header, "");
    engine->table->leave(engine->link);
    rill__orphans_done(engine);
    rill__unlock(engine);
}

rill_status rill__engine_drain(rill__engine *engine) {
    if (engine->peers.revoked) {
        rill__peers_leave(engine);
        return RILL_OK;
    }
    if (!engine->table->leave) return drain_together(engine);
    leave_alone(engine);
    return RILL_OK;
}
