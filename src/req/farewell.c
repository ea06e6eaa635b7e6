/* Before a communicator is freed: no message may stay behind. */
#include "req/request.h"

#include <sched.h>

/* Takes in a message that nobody awaits, if there is one. */
static int discard_one(rill__engine *engine, rill__buffer *sink) {
    int there = 0, bytes = 0;
    MPI_Status status;
    rill__receive_notes(engine);
    int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, engine->mpi, &there, &status);
    if (code != MPI_SUCCESS || !there || status.MPI_TAG == RILL__TAG_NOTE) return code;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    /* Without room for it the message is cut, which is an error that nobody minds. */
    bool room = rill__buffer_reserve(sink, (size_t)bytes) == RILL_OK;
    char none[1];
    engine->received[status.MPI_SOURCE]++;
    code = MPI_Recv(room ? sink->data : none, room ? bytes : 0, MPI_BYTE, status.MPI_SOURCE,
                    status.MPI_TAG, engine->mpi, MPI_STATUS_IGNORE);
    return room ? code : MPI_SUCCESS;
}

static bool all_received(const rill__engine *engine) {
    for (int i = 0; i < engine->size; i++)
        if (engine->received[i] < engine->announced[i]) return false;
    return true;
}

/* After failed calls messages may be under way that nobody awaits, and MPI gives the number of a freed
 * communicator to the next one: they would turn up there. So all ranks first say that they have come
 * here (until all have, inquiries are answered, and who is still in a call is told that it is over; then
 * nobody is in a call), then how many messages they have sent, and take in until that many have come. By
 * messages of our own: with stray messages about, MPI_Ibarrier and MPI_Ialltoall of Open MPI 4.1.4 were
 * seen to wait for ever. */
rill_status rill__engine_drain(rill__engine *engine) {
    rill__buffer sink = {.data = NULL};
    int code = MPI_SUCCESS;
    rill__refuse_calls(engine);
    for (int step = 0; step < 2 && code == MPI_SUCCESS; step++) {
        rill__header header = {.magic = RILL__MAGIC,
                               .version = RILL__VERSION,
                               .form = RILL__M_FAREWELL,
                               .first = (uint64_t)step,
                               .dim = UINT64_MAX};
        engine->closing = step == 1;
        rill__send_note(engine, &header, "");
        while (code == MPI_SUCCESS && engine->farewells[step] < engine->size - 1) {
            code = discard_one(engine, &sink);
            sched_yield();
        }
    }
    while (code == MPI_SUCCESS && !(all_received(engine) && rill__orphans_done(engine))) {
        code = discard_one(engine, &sink);
        sched_yield();
    }
    rill__buffer_free(&sink);
    return code == MPI_SUCCESS ? RILL_OK : rill__mpi_error(code, "while freeing a communicator");
}
