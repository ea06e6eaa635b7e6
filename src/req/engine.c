/* The engine of a communicator: starts, advances and completes requests, carries aborts, and
 * empties the network before the communicator is freed. */
#include "core/text.h"
#include "req/request.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MPI promises tags up to 32767. Each call takes RILL__LANES tags; the last tag is for notes. */
enum { TAG_CALLS = 8191, TAG_NOTE = 32767 };

/* How long to spin before giving the processor away, and how often to look for notes. */
enum { SPINS_BEFORE_YIELD = 200, POLLS_BETWEEN_NOTE_PROBES = 64 };

/* Seconds without progress after which a rank asks the others what they are in. */
#ifdef SMPI_H
/* Simulated: each poll takes a microsecond there, and real time to simulate. lab/simulate, whose
 * networks are slower than that of the tests, sets more. */
static double patience(void) {
    const char *text = getenv("RILL_PATIENCE");
    return text ? rill__read_double(text, NULL) : 0.002;
}
#else
static double patience(void) { return 0.2; }
#endif

rill_status rill__mpi_error(int code, const char *call) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return rill__fail(RILL_ERR_MPI, "%s: %s", call, text);
}

rill_status rill__engine_init(rill__engine *engine, MPI_Comm mpi) {
    engine->mpi = mpi;
    MPI_Comm_rank(mpi, &engine->rank);
    MPI_Comm_size(mpi, &engine->size);
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    engine->threaded = level == MPI_THREAD_MULTIPLE;
    for (int i = 0; i < RILL__REMEMBERED; i++)
        engine->past[i].seq = UINT64_MAX;
    engine->sent = calloc((size_t)engine->size, sizeof *engine->sent);
    engine->received = calloc((size_t)engine->size, sizeof *engine->received);
    engine->announced = calloc((size_t)engine->size, sizeof *engine->announced);
    if (!engine->sent || !engine->received || !engine->announced ||
        pthread_mutex_init(&engine->lock, NULL) != 0)
        return rill__fail(RILL_ERR_MEMORY, "out of memory for a communicator");
    return RILL_OK;
}

void rill__engine_free(rill__engine *engine) {
    rill__blocks_free(engine);
    while (engine->notes) {
        rill__note *note = engine->notes;
        engine->notes = note->next;
        free(note);
    }
    free(engine->orphans.at);
    free(engine->sent);
    free(engine->received);
    free(engine->announced);
    rill__hosts_free(&engine->hosts);
    pthread_mutex_destroy(&engine->lock);
}

/* ---- failures ------------------------------------------------------------------------------------- */

rill_status rill__task_fail(rill_request *request, rill_status status) {
    rill__task *task = RILL__TASK(request);
    if (task->status != RILL_OK) return RILL_OK;
    task->status = status;
    task->origin = task->engine->rank;
    snprintf(task->error, sizeof task->error, "%s", rill_last_error());
    return RILL_OK;
}

rill_status rill__task_abort(rill_request *request, rill_status status) {
    rill__task *task = RILL__TASK(request);
    if (task->status != RILL_OK) return RILL_OK;
    rill__task_fail(request, status);
    rill__abort(task->engine, task->seq, task->status, task->origin, task->error);
    return RILL_OK;
}

/* ---- notes: aborts and inquiries, on a tag of their own ------------------------------------------------ */

static void keep_note(rill__engine *engine, const rill__header *header, const char *text) {
    rill__note *note = calloc(1, sizeof *note);
    if (!note) return; /* the sender's rank still has the error */
    note->header = *header;
    note->next = engine->notes;
    snprintf(note->text, sizeof note->text, "%.*s", (int)header->value_size, text);
    engine->notes = note;
}

static void receive_notes(rill__engine *engine);

static void send_note(rill__engine *engine, rill__header *header, const char *text) {
    for (int i = 1; i < engine->size; i++) {
        int to = (engine->rank + i) % engine->size;
        if (header->form == RILL__M_FAREWELL) header->count = engine->sent[to] + 1;
        rill__block *block = calloc(1, sizeof *block);
        size_t bytes = sizeof *header + header->value_size;
        if (!block || rill__buffer_reserve(&block->buffer, bytes) != RILL_OK) {
            free(block);
            return; /* no memory for a note: nothing more can be done */
        }
        memcpy(block->buffer.data, header, sizeof *header);
        memcpy((char *)block->buffer.data + sizeof *header, text, header->value_size);
        block->users = 1;
        if (rill__transfers_add(&engine->orphans, (rill__transfer){.block = block, .peer = to}) !=
            RILL_OK)
            return;
        MPI_Isend(block->buffer.data, (int)bytes, MPI_BYTE, to, TAG_NOTE, engine->mpi,
                  &engine->orphans.at[engine->orphans.n - 1].mpi);
        engine->sent[to]++;
        /* All ranks say farewell to all: no more of them on the way than needed. */
        if (header->form == RILL__M_FAREWELL) receive_notes(engine);
    }
}

void rill__abort(rill__engine *engine, uint64_t seq, rill_status status, int origin,
                 const char *text) {
    rill__header header = {.magic = RILL__MAGIC,
                           .version = RILL__VERSION,
                           .form = RILL__M_FAILED,
                           .status = (int32_t)status,
                           .origin = origin,
                           .seq = seq,
                           .value_size = strnlen(text, 150)};
    keep_note(engine, &header, text);
    send_note(engine, &header, text);
}

/* Ranks in different calls may wait for each other on different tags: after a while each tells the
 * others what it is in, and whoever is in something else aborts. */
static void inquire(rill__engine *engine) {
    for (rill_request *r = engine->active; r; r = RILL__TASK(r)->next) {
        rill__task *task = RILL__TASK(r);
        if (task->life != RILL__ACTIVE) continue;
        rill__peek(r);
        if (task->inquired) continue;
        task->inquired = true;
        rill__header header = rill__call_header(task);
        header.form = RILL__M_INQUIRY;
        send_note(engine, &header, "");
    }
}

/* Another rank waits in a call that this one has behind it: was it the same call? */
static void answer(rill__engine *engine, const rill__header *asked) {
    const rill__expect *past = &engine->past[asked->seq % RILL__REMEMBERED];
    if (past->seq != asked->seq || engine->closing) return;
    rill__header h = *asked;
    if (!h.algorithm || !past->algorithm) h.algorithm = past->algorithm;
    rill_status status = rill__message_check(&h, past);
    if (status != RILL_OK) rill__abort(engine, asked->seq, status, engine->rank, rill_last_error());
}

static bool is_active(const rill__engine *engine, uint64_t seq) {
    for (rill_request *r = engine->active; r; r = RILL__TASK(r)->next)
        if (RILL__TASK(r)->seq == seq) return true;
    return false;
}

static void receive_notes(rill__engine *engine) {
    for (;;) {
        int there = 0, bytes = 0;
        MPI_Status status;
        if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTE, engine->mpi, &there, &status) != MPI_SUCCESS ||
            !there)
            return;
        char buffer[sizeof(rill__header) + 256];
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        if (bytes < 0 || (size_t)bytes > sizeof buffer) return;
        if (MPI_Recv(buffer, bytes, MPI_BYTE, status.MPI_SOURCE, TAG_NOTE, engine->mpi,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        engine->received[status.MPI_SOURCE]++;
        rill__message m;
        if (rill__message_parse(buffer, (size_t)bytes, NULL, false, &m) != RILL_OK) continue;
        if (m.header.form == RILL__M_FAREWELL) {
            engine->farewells[m.header.first != 0]++;
            engine->announced[status.MPI_SOURCE] = m.header.count;
            continue;
        }
        bool asks = m.header.form == RILL__M_INQUIRY;
        if (asks && m.header.seq < engine->seq && !is_active(engine, m.header.seq))
            answer(engine, &m.header);
        else if (asks || m.header.form == RILL__M_FAILED) keep_note(engine, &m.header, m.payload);
    }
}

/* Notes of calls that are over. */
static void forget_notes(rill__engine *engine) {
    uint64_t oldest = engine->active ? RILL__TASK(engine->active)->seq : engine->seq;
    for (rill__note **at = &engine->notes; *at;) {
        rill__note *note = *at;
        if (note->header.seq >= oldest) {
            at = &note->next;
        } else {
            *at = note->next;
            free(note);
        }
    }
}

/* MPI may still read or write the buffers, so they outlive the request. */
static void orphan_transfers(rill__engine *engine, rill__transfers *transfers) {
    for (int i = 0; i < transfers->n; i++) {
        rill__transfer *t = &transfers->at[i];
        if (rill__transfers_add(&engine->orphans, *t) == RILL_OK) t->block->users++;
    }
    transfers->n = 0;
}

/* True: the call is aborted, and the request gave up its transfers. */
static bool apply_notes(rill__engine *engine, rill_request *request) {
    rill__task *task = RILL__TASK(request);
    for (rill__note *note = engine->notes; note; note = note->next) {
        const rill__header *h = &note->header;
        if (h->seq != task->seq) continue;
        if (h->form == RILL__M_INQUIRY) {
            rill__header asked = *h; /* before the choice neither side has an algorithm */
            if (!asked.algorithm || !task->expect.algorithm)
                asked.algorithm = task->expect.algorithm;
            rill_status status = rill__message_check(&asked, &task->expect);
            if (status != RILL_OK) rill__task_abort(request, status);
            continue;
        }
        if (task->status == RILL_OK) {
            task->status = (rill_status)h->status;
            task->origin = h->origin;
            snprintf(task->error, sizeof task->error, "rank %d: %s", h->origin, note->text);
        }
        orphan_transfers(engine, &task->sends);
        orphan_transfers(engine, &task->receives);
        return true;
    }
    return false;
}

/* ---- life of a request ------------------------------------------------------------------------------ */

void rill__task_start(rill_request *request) {
    rill__task *task = RILL__TASK(request);
    rill__engine *engine = task->engine;
    task->seq = engine->seq++;
    task->tag = (int)(task->seq % TAG_CALLS) * RILL__LANES;
    task->expect.seq = task->seq;
    task->status = RILL_OK;
    task->origin = engine->rank;
    task->error[0] = '\0';
    task->inquired = false;
    task->hops = 0;
    task->sender = (uint32_t)engine->rank;
    task->step_key = task->seq - engine->first_seq;
    task->shares_errors = false;
    task->lost = NULL;
    task->sends_dense = task->adds_bits = false;
    task->sent_bytes = task->recv_bytes = task->messages = task->rounds = 0;
    task->life = RILL__ACTIVE;
    rill__task_show(request, RILL__ACTIVE);
    task->next = NULL;
    if (engine->active_last) RILL__TASK(engine->active_last)->next = request;
    else engine->active = request;
    engine->active_last = request;
}

bool rill__sends_done(rill__task *task) {
    for (int i = 0; i < task->sends.n;) {
        rill__transfer *t = &task->sends.at[i];
        int done = 0;
        if (rill__mpi_test(&t->mpi, &done) != MPI_SUCCESS) done = 1;
        if (!done) {
            i++;
            continue;
        }
        task->sends.at[i] = task->sends.at[--task->sends.n];
        task->moved = true;
    }
    return task->sends.n == 0;
}

static void complete(rill__engine *engine, rill_request *request) {
    rill__task *task = RILL__TASK(request);
    if (task->posted.block) rill__cancel_posted(task);
    while (task->held) {
        rill__block *block = task->held;
        task->held = block->next;
        rill__block_return(engine, block);
    }
    task->life = RILL__COMPLETE;
    engine->past[task->seq % RILL__REMEMBERED] = task->expect;
    if (task->completed) task->completed(request);
}

static void advance(rill__engine *engine, rill_request *request) {
    rill__task *task = RILL__TASK(request);
    if (engine->notes && apply_notes(engine, request)) {
        complete(engine, request);
        return;
    }
    if (task->life == RILL__ACTIVE) {
        rill_status status = task->step(request);
        if (status == RILL_IN_PROGRESS) return;
        if (status < 0) { /* this rank cannot go on taking part */
            rill__task_fail(request, status);
            rill__abort(engine, task->seq, task->status, task->origin, task->error);
            return;
        }
        task->life = RILL__DRAINING;
        task->moved = true;
    }
    if (task->life == RILL__DRAINING && rill__sends_done(task)) complete(engine, request);
}

static bool orphans_done(rill__engine *engine) {
    rill__transfers *all = &engine->orphans;
    for (int i = 0; i < all->n;) {
        int done = 0;
        if (rill__mpi_test(&all->at[i].mpi, &done) != MPI_SUCCESS) done = 1;
        if (!done) {
            i++;
            continue;
        }
        rill__block_return(engine, all->at[i].block);
        all->at[i] = all->at[--all->n];
    }
    return all->n == 0;
}

/* Nothing has moved for a while: is something wrong? */
static void idle(rill__engine *engine) {
    double now = MPI_Wtime();
    if (engine->idle_polls == POLLS_BETWEEN_NOTE_PROBES) engine->idle_since = now;
    receive_notes(engine);
    if (now - engine->idle_since > patience()) {
        inquire(engine);
        engine->idle_since = now;
    }
    if (engine->orphans.n) orphans_done(engine);
}

bool rill__engine_progress(rill__engine *engine) {
    bool moved = false;
    rill_request *before = NULL;
    for (rill_request *r = engine->active; r;) {
        rill__task *task = RILL__TASK(r);
        rill_request *next;
        if (task->own && engine->driven != r) {
            before = r;
            r = task->next;
            continue;
        }
        task->moved = false;
        advance(engine, r);
        moved |= task->moved;
        next = task->next;
        if (task->life == RILL__COMPLETE) {
            if (before) RILL__TASK(before)->next = next;
            else engine->active = next;
            if (engine->active_last == r) engine->active_last = before;
            task->next = NULL;
            moved = true;
            rill__task_show(r, RILL__COMPLETE);
        } else {
            before = r;
        }
        r = next;
    }
    if (moved) {
        engine->idle_polls = 0;
        if (engine->notes) forget_notes(engine);
    } else if (++engine->idle_polls % POLLS_BETWEEN_NOTE_PROBES == 0) {
        idle(engine);
    }
    return moved;
}

/* Only under the lock, so that a plain store will do. */
static void count_driver(rill__engine *engine, int change) {
    int now = atomic_load_explicit(&engine->drivers, memory_order_relaxed);
    atomic_store_explicit(&engine->drivers, now + change, memory_order_relaxed);
}

void rill__engine_wait(rill_request *request) {
    rill__task *task = RILL__TASK(request);
    rill__engine *engine = task->engine;
    count_driver(engine, 1);
    while (task->life == RILL__ACTIVE || task->life == RILL__DRAINING) {
        engine->alone = !engine->crowded && engine->active == request && !task->next;
        engine->driven = request;
        bool moved = rill__engine_progress(engine);
        engine->alone = false;
        engine->driven = NULL;
        if (!moved && (engine->crowded || engine->idle_polls > SPINS_BEFORE_YIELD))
            rill__give_way(engine); /* another thread may have what is waited for */
    }
    count_driver(engine, -1);
}

/* ---- before the communicator is freed ------------------------------------------------------------------ */

/* Takes in a message that nobody awaits, if there is one. */
static int discard_one(rill__engine *engine, rill__buffer *sink) {
    int there = 0, bytes = 0;
    MPI_Status status;
    receive_notes(engine);
    int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, engine->mpi, &there, &status);
    if (code != MPI_SUCCESS || !there || status.MPI_TAG == TAG_NOTE) return code;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (rill__buffer_reserve(sink, (size_t)bytes) != RILL_OK) return MPI_ERR_NO_MEM;
    engine->received[status.MPI_SOURCE]++;
    return MPI_Recv(sink->data, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, engine->mpi,
                    MPI_STATUS_IGNORE);
}

static bool all_received(const rill__engine *engine) {
    for (int i = 0; i < engine->size; i++)
        if (engine->received[i] < engine->announced[i]) return false;
    return true;
}

/* After failed calls messages may be under way that nobody awaits, and MPI gives the number of a freed
 * communicator to the next one: they would turn up there. So all ranks first say that they have come
 * here (until all have, inquiries are answered; then nobody is in a call), then how many messages they
 * have sent, and take in until that many have come. By messages of our own: with stray messages about,
 * MPI_Ibarrier and MPI_Ialltoall of Open MPI 4.1.4 were seen to wait for ever. */
rill_status rill__engine_drain(rill__engine *engine) {
    rill__buffer sink = {NULL, 0};
    int code = MPI_SUCCESS;
    for (int step = 0; step < 2 && code == MPI_SUCCESS; step++) {
        rill__header header = {.magic = RILL__MAGIC,
                               .version = RILL__VERSION,
                               .form = RILL__M_FAREWELL,
                               .first = (uint64_t)step,
                               .dim = UINT64_MAX};
        engine->closing = step == 1;
        send_note(engine, &header, "");
        while (code == MPI_SUCCESS && engine->farewells[step] < engine->size - 1) {
            code = discard_one(engine, &sink);
            sched_yield();
        }
    }
    while (code == MPI_SUCCESS && !(all_received(engine) && orphans_done(engine))) {
        code = discard_one(engine, &sink);
        sched_yield();
    }
    rill__buffer_free(&sink);
    return code == MPI_SUCCESS ? RILL_OK : rill__mpi_error(code, "while freeing a communicator");
}
