/* Notes: short messages on a tag of their own, about calls instead of in them. An abort ends a call
 * on all ranks; an inquiry asks the others whether they are in the same call; a farewell
 * (farewell.c) says that a rank frees the communicator.
 *
 * A note must get through where memory is short, since that is what most aborts are about: a
 * communicator has the memory for some from its creation on, and takes a note in only when it has
 * room to keep it. What goes to all ranks lies in memory once, so that many ranks cost little. */
#include "req/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOTE_BYTES = sizeof(rill__header) + 256,
    NOTE_BLOCKS = 8,
    SPARE_NOTES = 8,
    OLDEST = 8,
    POLLS = 10000
};

/* ---- memory ---------------------------------------------------------------------------------- */

static rill__parcel *new_note_block(void) {
    rill__parcel *parcel = rill__calloc(1, sizeof *parcel);
    if (parcel && rill__buffer_reserve(&parcel->buffer, NOTE_BYTES) != RILL_OK) {
        free(parcel);
        parcel = NULL;
    }
    if (parcel) parcel->purpose = RILL__FOR_NOTES;
    return parcel;
}

static rill__parcel *take_note_block(rill__engine *engine) {
    rill__parcel *parcel = engine->kept_parcels[RILL__FOR_NOTES];
    if (!parcel) return new_note_block();
    engine->kept_parcels[RILL__FOR_NOTES] = parcel->next;
    return parcel;
}

/* At most, where each rank is sent one. */
static int notes_under_way(const rill__engine *engine) {
    return engine->link->notes_at_once ? 2 : engine->size;
}

rill_status rill__notes_reserve(rill__engine *engine) {
    bool there = rill__transfers_reserve(&engine->orphans, 2 * notes_under_way(engine)) == RILL_OK;
    for (int i = 0; there && i < NOTE_BLOCKS; i++) {
        rill__parcel *parcel = new_note_block();
        there = parcel != NULL;
        if (!parcel) break;
        parcel->next = engine->kept_parcels[RILL__FOR_NOTES];
        engine->kept_parcels[RILL__FOR_NOTES] = parcel;
    }
    for (int i = 0; there && i < SPARE_NOTES; i++) {
        rill__note *note = rill__calloc(1, sizeof *note);
        there = note != NULL;
        if (!note) break;
        note->next = engine->spare_notes;
        engine->spare_notes = note;
    }
    return there ? RILL_OK : rill__fail(RILL_ERR_MEMORY, "out of memory for a communicator");
}

static void free_notes(rill__note *list) {
    while (list) {
        rill__note *note = list;
        list = note->next;
        free(note);
    }
}

void rill__notes_free(rill__engine *engine) {
    free_notes(engine->notes);
    free_notes(engine->spare_notes);
}

/* Whether there is room for a note more. */
static bool have_spare_note(rill__engine *engine) {
    if (!engine->spare_notes) rill__forget_notes(engine);
    if (!engine->spare_notes) engine->spare_notes = rill__calloc(1, sizeof *engine->spare_notes);
    return engine->spare_notes != NULL;
}

/* One abort of a call is enough: the others, by ranks that have heard of it, say the same. */
static bool is_told(const rill__engine *engine, const rill__header *header) {
    const rill__note *note = engine->notes;
    while (note && (note->header.form != RILL__M_FAILED || note->header.seq != header->seq))
        note = note->next;
    return note && header->form == RILL__M_FAILED;
}

static void keep_note(rill__engine *engine, const rill__header *header, const char *text) {
    if (is_told(engine, header)) return;
    if (!have_spare_note(engine)) return; /* of this rank's own: it has the error all the same */
    rill__note *note = engine->spare_notes;
    engine->spare_notes = note->next;
    note->header = *header;
    note->next = engine->notes;
    snprintf(note->text, sizeof note->text, "%.*s", (int)header->value_size, text);
    engine->notes = note;
}

/* ---- to all ranks ---------------------------------------------------------------------------- */

/* The note in a parcel, which the caller uses; NULL: no memory. All that were reserved may be under
 * way: one comes back soon. Without a farewell the others would wait for ever, without another note
 * for a while. */
static rill__parcel *write_note(rill__engine *engine, const rill__header *header,
                                const char *text) {
    bool must = header->form == RILL__M_FAREWELL;
    rill__parcel *parcel = take_note_block(engine);
    for (int polls = 0; !parcel && (must || polls < POLLS); polls++) {
        rill__orphans_done(engine);
        parcel = take_note_block(engine);
    }
    if (!parcel) return NULL;
    memcpy(parcel->buffer.data, header, sizeof *header);
    memcpy((char *)parcel->buffer.data + sizeof *header, text, header->value_size);
    parcel->bytes = sizeof *header + header->value_size;
    parcel->users = 1;
    return parcel;
}

/* Room for one more message under way. Where there is no memory for it, those before may be over:
 * their places come back. */
static bool have_room_under_way(rill__engine *engine, bool must) {
    bool room = rill__transfers_reserve(&engine->orphans, 1) == RILL_OK;
    for (int polls = 0; !room && (must || polls < POLLS); polls++) {
        rill__orphans_done(engine);
        room = engine->orphans.n < engine->orphans.capacity;
    }
    return room;
}

static void send_note_to(rill__engine *engine, int to, int tag, rill__parcel *parcel, bool must) {
    rill__transfer transfer = {.parcel = parcel, .peer = to};
    if (!have_room_under_way(engine, must)) return;
    rill__transfers_add(&engine->orphans, transfer);
    parcel->users++;
    engine->table->send(engine->link, to, tag, parcel->buffer.data, parcel->bytes,
                        &engine->orphans.at[engine->orphans.n - 1].wire);
    engine->sent[to]++;
    if (!engine->link->notes_at_once || tag < RILL__TAG_PEERS) return;
    engine->orphans.n--;
    rill__parcel_return(engine, parcel);
}

bool rill__send_aside(rill__engine *engine, int to, int tag, const void *data, size_t bytes) {
    rill__parcel *parcel = take_note_block(engine);
    bool room = parcel && rill__buffer_reserve(&parcel->buffer, bytes) == RILL_OK;
    if (room) {
        memcpy(parcel->buffer.data, data, bytes);
        parcel->bytes = bytes;
        parcel->users = 1;
        send_note_to(engine, to, tag, parcel, false);
    } else if (parcel) {
        parcel->users = 1;
    }
    if (parcel) rill__parcel_return(engine, parcel);
    return room;
}

/* The same for all but a farewell, which tells each rank how many messages it has to expect. */
void rill__send_note(rill__engine *engine, rill__header *header, const char *text) {
    bool farewell = header->form == RILL__M_FAREWELL;
    bool of_peers = header->form == RILL__M_GONE || header->form == RILL__M_PING;
    int tag = of_peers ? RILL__TAG_PEERS : RILL__TAG_NOTE;
    rill__parcel *parcel = NULL;
    for (int i = 1; i < engine->size; i++) {
        int to = (engine->rank + i) % engine->size;
        if (farewell) header->count = engine->sent[to] + 1;
        if (!parcel) parcel = write_note(engine, header, text);
        if (!parcel) return;
        send_note_to(engine, to, tag, parcel, farewell);
        if (!farewell) continue;
        rill__parcel_return(engine, parcel);
        parcel = NULL;
        rill__receive_notes(engine); /* all say it to all: no more on the way than needed */
    }
    if (parcel) rill__parcel_return(engine, parcel);
}

void rill__abort(rill__engine *engine, uint64_t seq, rill_status status, int origin,
                 const char *text) {
    rill__header header = {.form = RILL__M_FAILED,
                           .status = (int16_t)status,
                           .origin = origin,
                           .seq = seq,
                           .value_size = strnlen(text, 150)};
    rill__header_seal(&header, engine->seal);
    keep_note(engine, &header, text);
    rill__send_note(engine, &header, text);
}

/* Ranks in different calls may wait for each other on different tags: after a while each tells the
 * others what it is in, and whoever is in something else aborts. Of many calls in flight the oldest
 * do: each gets its turn to be that. */
void rill__inquire(rill__engine *engine) {
    int left = OLDEST;
    for (rill__task *task = engine->active; task && left; task = task->next, left--) {
        if (task->life != RILL__ACTIVE) continue;
        rill__peek(task);
        if (task->inquired) continue;
        task->inquired = true;
        rill__header header = rill__call_header(task);
        header.form = RILL__M_INQUIRY;
        rill__send_note(engine, &header, "");
    }
}

/* ---- from other ranks ------------------------------------------------------------------------ */

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
    const rill__task *r = engine->active; /* in order of seq */
    while (r && r->seq < seq)
        r = r->next;
    return r && r->seq == seq;
}

/* This rank frees the communicator, and makes no call any more: whoever is in one waits in vain. */
static void refuse_call(rill__engine *engine, uint64_t seq) {
    rill__fail(RILL_ERR_STATE, "rank %d frees the communicator and does not take part",
               engine->rank);
    rill__abort(engine, seq, RILL_ERR_STATE, engine->rank, rill_last_error());
}

void rill__refuse_calls(rill__engine *engine) {
    engine->leaving = true;
    uint64_t refused = UINT64_MAX;
    for (const rill__note *note = engine->notes; note; note = note->next)
        if (note->header.form == RILL__M_INQUIRY && note->header.seq >= engine->seq)
            refused = rill__min_u64(refused, note->header.seq);
    /* The lowest is enough: once it has ended, the ranks in it ask about the next, or leave. */
    if (refused != UINT64_MAX) refuse_call(engine, refused);
}

static void take_note(rill__engine *engine, const rill__message *m, int source) {
    const rill__header *h = &m->header;
    if (h->form == RILL__M_FAREWELL) {
        engine->peers.said[source] |= h->first ? 2 : 1;
        if (engine->peers.revoked) rill__peers_raise(engine, source, RILL__DEAD, source);
        engine->announced[source] = h->count;
        if (engine->table->leave && h->seq < engine->left_from && !engine->peers.revoked) {
            engine->left_from = h->seq;
            engine->left_rank = source;
        }
        return;
    }
    if (h->form == RILL__M_GONE || h->form == RILL__M_PING) {
        rill__peers_hear(engine, m, source);
        return;
    }
    bool asks = h->form == RILL__M_INQUIRY;
    if (asks && h->seq < engine->seq && !is_active(engine, h->seq)) answer(engine, h);
    else if (asks && engine->leaving) refuse_call(engine, h->seq);
    else if (asks || (h->form == RILL__M_FAILED && !engine->leaving))
        keep_note(engine, h, m->payload);
}

/* Who leaves has no call that an abort could be about: it needs no room for one. */
static void receive_under(rill__engine *engine, int tag) {
    while (engine->leaving || have_spare_note(engine)) {
        rill__arrival came;
        if (engine->table->probe(engine->link, RILL__ANY, tag, 1, &came) != RILL_OK) return;
        char buffer[NOTE_BYTES];
        rill__wire wire;
        bool fits = came.bytes <= sizeof buffer; /* else it is no note of ours */
        if (engine->table->receive(engine->link, &came, tag, fits ? buffer : NULL, true, &wire) !=
                RILL_OK ||
            rill__link_wait(engine->link, &wire) != RILL_OK)
            return;
        engine->received[came.source]++;
        rill__message m;
        if (fits &&
            rill__message_parse(buffer, came.bytes, engine->seal, NULL, false, &m) == RILL_OK)
            take_note(engine, &m, came.source);
        else if (!fits && engine->link->key) rill__count_stranger(engine, came.source);
        else if (fits) rill__is_strange(engine, came.source, buffer, came.bytes);
    }
}

void rill__receive_notes(rill__engine *engine) {
    receive_under(engine, RILL__TAG_NOTE);
    if (engine->table->failed) receive_under(engine, RILL__TAG_PEERS);
}

/* ---- what they do ---------------------------------------------------------------------------- */

void rill__forget_notes(rill__engine *engine) {
    uint64_t oldest = engine->active ? engine->active->seq : engine->seq;
    for (rill__note **at = &engine->notes; *at;) {
        rill__note *note = *at;
        if (note->header.seq >= oldest) {
            at = &note->next;
            continue;
        }
        *at = note->next;
        note->next = engine->spare_notes;
        engine->spare_notes = note;
    }
}

/* The link may still read or write the buffers, so they outlive the request; what cannot be listed
 * is lost. There stays room for a note to every rank. */
static void orphan_transfers(rill__engine *engine, rill__transfers *transfers) {
    rill__transfers *list = &engine->orphans;
    int notes = notes_under_way(engine);
    for (int i = 0; i < transfers->n; i++) {
        bool full = list->capacity - list->n <= notes;
        if (full && rill__transfers_reserve(list, 2 * notes + transfers->n) != RILL_OK) break;
        transfers->at[i].parcel->users++;
        rill__transfers_add(&engine->orphans, transfers->at[i]);
    }
    transfers->n = 0;
}

void rill__task_let_go(rill__task *task) {
    orphan_transfers(task->engine, &task->sends);
    orphan_transfers(task->engine, &task->receives);
}

bool rill__apply_notes(rill__engine *engine, rill__task *task) {
    for (rill__note *note = engine->notes; note; note = note->next) {
        const rill__header *h = &note->header;
        if (h->seq != task->seq) continue;
        if (h->form == RILL__M_INQUIRY) {
            rill__header asked = *h; /* before the choice neither side has an algorithm */
            if (!asked.algorithm || !task->expect.algorithm)
                asked.algorithm = task->expect.algorithm;
            if (!asked.memory || !task->expect.memory) asked.memory = task->expect.memory;
            rill_status status = rill__message_check(&asked, &task->expect);
            if (status != RILL_OK) rill__task_abort(task, status);
            continue;
        }
        if (task->status == RILL_OK) {
            task->status = (rill_status)h->status;
            task->origin = h->origin;
            snprintf(task->error, sizeof task->error, "rank %d: %s", h->origin, note->text);
        }
        rill__task_let_go(task);
        return true;
    }
    return false;
}

void rill__left_alone(rill__engine *engine, rill__task *task) {
    rill__task_fail(task, engine->peers.revoked
                              ? rill__peers_error(engine)
                              : rill__fail(RILL_ERR_STATE,
                                           "rank %d frees the communicator and does not take part",
                                           engine->left_rank));
    rill__task_let_go(task);
}

bool rill__orphans_done(rill__engine *engine) {
    rill__transfers *all = &engine->orphans;
    for (int i = 0; i < all->n;) {
        if (rill__test(engine, &all->at[i]) == RILL_IN_PROGRESS) {
            i++;
            continue;
        }
        rill__parcel_return(engine, all->at[i].parcel);
        all->at[i] = all->at[--all->n];
    }
    return all->n == 0;
}
