/* Messages: send, probe and receive, split what is over the limit.
 *
 * Sizes are learned by probing, so no round announces them and no receive is larger than its
 * message. A message over the split limit goes out in parts of that size on the same tag; the link
 * keeps their order, and the header in the first part tells how much follows. */
#include "req/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Up to here a probed message is in (or eager to come), and a blocking receive saves a test. */
enum { SMALL = 2048 };

/* Probes before the way back through the state machine, where nothing else could be done there. */
enum { SPINS = 32 };

/* The place of the next transfer, not counted yet; NULL: out of memory. */
static rill__transfer *transfers_room(rill__transfers *list) {
    if (list->n == list->capacity && rill__transfers_reserve(list, list->n ? list->n : 8) < 0)
        return NULL;
    return &list->at[list->n];
}

rill_status rill__transfers_reserve(rill__transfers *list, int more) {
    int capacity = list->n + more;
    if (capacity <= list->capacity) return RILL_OK;
    rill__transfer *at = rill__realloc(list->at, (size_t)capacity * sizeof *at);
    if (!at) return rill__fail(RILL_ERR_MEMORY, "out of memory for transfers");
    list->at = at;
    list->capacity = capacity;
    return RILL_OK;
}

rill_status rill__transfers_add(rill__transfers *list, rill__transfer transfer) {
    rill__transfer *room = transfers_room(list);
    if (!room) return RILL_ERR_MEMORY;
    *room = transfer;
    list->n++;
    return RILL_OK;
}

/* ---- send ------------------------------------------------------------------------------------ */

rill_status rill__send_parcel(rill__task *task, int to, int lane, rill__parcel *parcel) {
    rill__engine *engine = task->engine;
    uint64_t limit = rill__limit_of(engine, to);
    for (size_t at = 0; at < parcel->bytes;) {
        size_t bytes = rill__min_u64(parcel->bytes - at, limit);
        /* Field by field: a struct put together on the stack is copied with a wide load, which
         * waits until all stores before it have left the core, the message to its peer among them.
         */
        rill__transfer *t = transfers_room(&task->sends);
        if (!t) return RILL_ERR_MEMORY;
        t->parcel = parcel;
        t->peer = to;
        t->lane = lane;
        t->rest = false;
        RILL_TRY(engine->table->send(engine->link, to, task->tag + lane,
                                     (char *)rill__parcel_message(parcel) + at, bytes, &t->wire));
        task->sends.n++;
        engine->sent[to]++;
        at += bytes;
        task->messages++;
    }
    task->sent_bytes += parcel->bytes;
    task->moved = true;
    return RILL_OK;
}

/* One parcel may go to several ranks. */
static bool is_sent_by(const rill__transfers *sends, int from, const rill__parcel *parcel) {
    for (int i = from; i < sends->n; i++)
        if (sends->at[i].parcel == parcel) return true;
    return false;
}

void rill__sends_release(rill__task *task) {
    rill__transfers *sends = &task->sends;
    int done = 0;
    while (done < sends->n && rill__test(task->engine, &sends->at[done]) != RILL_IN_PROGRESS)
        done++;
    if (!done) return;
    for (int i = 0; i < done; i++)
        if (!is_sent_by(sends, i + 1, sends->at[i].parcel))
            rill__parcel_release(task, sends->at[i].parcel);
    sends->n -= done;
    memmove(sends->at, sends->at + done, (size_t)sends->n * sizeof *sends->at);
    task->moved = true;
}

/* ---- receive --------------------------------------------------------------------------------- */

/* The first part of a split message is in and tells the size of the whole. Receives for all other
 * parts are posted at once: a probe must not find them. */
static rill_status receive_rest(rill__task *task, int slot, size_t whole) {
    rill__engine *engine = task->engine;
    rill__transfer first = task->receives.at[slot];
    uint64_t limit = rill__limit_of(engine, first.peer);
    size_t at = first.parcel->bytes;
    rill__parcel *parcel = rill__parcel_take(task, whole);
    if (!parcel) return RILL_ERR_MEMORY;
    memcpy(parcel->buffer.data, first.parcel->buffer.data, at);
    task->receives.at[slot].parcel = parcel;
    while (at < whole) {
        size_t bytes = rill__min_u64(whole - at, limit);
        rill__transfer t = {.parcel = parcel, .peer = first.peer, .lane = first.lane, .rest = true};
        RILL_TRY(engine->table->post(engine->link, t.peer, task->tag + t.lane,
                                     (char *)parcel->buffer.data + at, bytes, &t.wire));
        engine->received[t.peer]++;
        RILL_TRY(rill__transfers_add(&task->receives, t));
        at += bytes;
    }
    return RILL_OK;
}

/* Of a call that this rank has not come to: another is so far ahead that its tags are those of this
 * call. */
static bool keep_early(rill__engine *engine, const rill__transfer *t, uint64_t seq) {
    rill__early *early = rill__calloc(1, sizeof *early), **last = &engine->early;
    if (!early) return false;
    early->transfer = *t;
    early->seq = seq;
    t->parcel->users++;
    while (*last)
        last = &(*last)->next;
    *last = early;
    return true;
}

/* The first of the call's messages that came early, if there is one. */
static bool take_early(rill__task *task, int source, int lane, rill__transfer *t) {
    for (rill__early **at = &task->engine->early; *at; at = &(*at)->next) {
        rill__early *early = *at;
        if (early->seq != task->seq || early->transfer.lane != lane ||
            (source != RILL__ANY && source != early->transfer.peer))
            continue;
        /* The other call may still hold the parcel that it came in. */
        rill__parcel *came = early->transfer.parcel, *own = rill__parcel_take(task, came->bytes);
        if (!own) return false; /* later */
        memcpy(own->buffer.data, came->buffer.data, came->bytes);
        *t = early->transfer;
        t->parcel = own;
        *at = early->next;
        free(early);
        rill__parcel_return(task->engine, came);
        return true;
    }
    return false;
}

void rill__count_stranger(rill__engine *engine, int source) {
    engine->received[source]--;
    atomic_fetch_add_explicit(engine->link->strangers, 1, memory_order_relaxed);
}

bool rill__is_strange(rill__engine *engine, int source, const void *bytes, size_t size) {
    if (!engine->link->key || !rill__message_strange(bytes, size, engine->seal)) return false;
    rill__count_stranger(engine, source);
    return true;
}

/* A message that could not be taken: it is of another call, or of nobody. */
static __attribute__((noinline)) bool is_for_another(rill__task *task, const rill__transfer *t,
                                                     uint64_t seq, rill_status status) {
    rill__engine *engine = task->engine;
    if (status == RILL_ERR_MESSAGE)
        return rill__is_strange(engine, t->peer, t->parcel->buffer.data, t->parcel->bytes);
    if (status != RILL_ERR_MISMATCH || seq == task->seq) return false;
    return seq < task->seq ||
           ((seq - task->seq) % engine->tag_calls == 0 && keep_early(engine, t, seq));
}

bool rill__take_in(rill__task *task, const rill__transfer *t, rill__message *message,
                   rill__parcel **parcel, int *from) {
    rill_status status = rill__message_parse(t->parcel->buffer.data, t->parcel->bytes,
                                             task->engine->seal, &task->expect, false, message);
    if (status != RILL_OK && is_for_another(task, t, message->header.seq, status)) return false;
    task->recv_bytes += t->parcel->bytes;
    task->moved = true;
    if (status == RILL_OK) task->flags |= message->header.flags;
    *parcel = t->parcel;
    if (from) *from = t->peer;
    if (status != RILL_OK) {
        char detail[160];
        snprintf(detail, sizeof detail, "%s", rill_last_error());
        rill__fail(status, "from rank %d: %s", t->peer, detail);
        if (status == RILL_ERR_MISMATCH) rill__task_abort(task, status);
        else rill__task_fail(task, status);
        message->header = (rill__header){.form = RILL__M_FAILED, .status = (int16_t)status};
    } else if (message->header.form == RILL__M_FAILED) {
        if (task->status == RILL_OK) {
            task->status = message->header.status ? (rill_status)message->header.status
                                                  : RILL_ERR_MESSAGE;
            task->origin = message->header.origin;
            /* Who forwards a failure sends the name of its rank along. */
            bool first_hand = task->origin == t->peer;
            size_t used = first_hand ? (size_t)snprintf(task->error, sizeof task->error,
                                                        "rank %d: ", task->origin)
                                     : 0;
            snprintf(task->error + used, sizeof task->error - used, "%.*s",
                     (int)rill__min_u64(message->header.value_size, 170), message->payload);
        }
        message->header.count = 0;
    }
    return true;
}

static rill_status receive_probed(rill__task *task, const rill__arrival *probed, int lane,
                                  rill__transfer *t, bool *complete) {
    rill__engine *engine = task->engine;
    *t = (rill__transfer){.peer = probed->source, .lane = lane};
    t->parcel = rill__parcel_take(task, probed->bytes);
    if (!t->parcel) return RILL_ERR_MEMORY;
    *complete = probed->bytes <= SMALL && engine->size <= engine->link->most_at_once &&
                probed->bytes < rill__limit_of(engine, t->peer);
    engine->received[t->peer]++;
    return engine->table->receive(engine->link, probed, task->tag + lane, t->parcel->buffer.data,
                                  *complete, &t->wire);
}

/* Whether all later parts of the parcel's message are in; those that are leave the list. They come
 * in order, so that one which is not there ends the search: each test makes MPI look at all its
 * connections. */
static bool rest_is_in(rill__task *task, const rill__parcel *parcel) {
    int kept = 0, i = 0;
    bool all = true;
    for (; i < task->receives.n; i++) {
        rill__transfer *t = &task->receives.at[i];
        bool done = false;
        if (all && t->rest && t->parcel == parcel)
            all = done = rill__test(task->engine, t) != RILL_IN_PROGRESS;
        if (!done) task->receives.at[kept++] = *t;
    }
    task->receives.n = kept;
    return all;
}

static int find_slot(const rill__task *task, const rill__parcel *parcel) {
    int i = 0;
    while (task->receives.at[i].parcel != parcel || task->receives.at[i].rest)
        i++;
    return i;
}

/* One receive that is under way: RILL_OK when its message is whole, and then it left the list. */
static rill_status finish_receive(rill__task *task, int slot, rill__transfer *finished) {
    rill__transfer *t = &task->receives.at[slot];
    rill_status status = rill__test(task->engine, t);
    if (status != RILL_OK) return status;
    rill__message head;
    if (rill__message_parse(t->parcel->buffer.data, t->parcel->bytes, task->engine->seal, NULL,
                            true, &head) == RILL_OK &&
        rill__message_size(&head.header) > t->parcel->bytes) {
        RILL_TRY(receive_rest(task, slot, rill__message_size(&head.header)));
        return RILL_IN_PROGRESS;
    }
    rill__parcel *parcel = t->parcel;
    if (!rest_is_in(task, parcel)) return RILL_IN_PROGRESS;
    slot = find_slot(task, parcel);
    *finished = task->receives.at[slot];
    task->receives.at[slot] = task->receives.at[--task->receives.n];
    return RILL_OK;
}

/* Until the first part of a split message is read, a probe could find its second. */
static bool reads_split(const rill__task *task, int lane) {
    for (int i = 0; i < task->receives.n; i++) {
        const rill__transfer *t = &task->receives.at[i];
        if (!t->rest && t->lane == lane &&
            t->parcel->bytes == rill__limit_of(task->engine, t->peer))
            return true;
    }
    return false;
}

rill_status rill__receive_polled(rill__task *task, int source, int lane, int polls,
                                 rill__message *message, rill__parcel **parcel, int *from) {
    rill__engine *engine = task->engine;
    rill__transfer t;
    if (engine->early && take_early(task, source, lane, &t) &&
        rill__take_in(task, &t, message, parcel, from))
        return RILL_OK;
    for (int i = 0; i < task->receives.n; i++) {
        rill__transfer *under_way = &task->receives.at[i];
        if (under_way->rest || under_way->lane != lane) continue;
        if (source != RILL__ANY && under_way->peer != source) continue;
        rill_status status = finish_receive(task, i, &t);
        if (status < 0) return status;
        if (status == RILL_OK && rill__take_in(task, &t, message, parcel, from)) return RILL_OK;
        if (source != RILL__ANY) return RILL_IN_PROGRESS;
    }
    /* One that came early from another rank (rill__peek) waits for its turn, and nobody for it. */
    if (source == RILL__ANY && reads_split(task, lane)) return RILL_IN_PROGRESS;
    /* Who waits for the rest of a message has that to look at as well: over TCP each probe asks the
     * kernel, and many of them in vain take longer than a small message. */
    if (source == RILL__ANY && task->receives.n) polls = 1;
    for (;;) {
        rill__arrival probed;
        rill_status there = engine->table->probe(engine->link, source, task->tag + lane, polls,
                                                 &probed);
        if (there != RILL_OK) return there;
        bool complete;
        RILL_TRY(receive_probed(task, &probed, lane, &t, &complete));
        if (complete) {
            if (rill__take_in(task, &t, message, parcel, from)) return RILL_OK;
            continue;
        }
        RILL_TRY(rill__transfers_add(&task->receives, t));
        task->moved = true;
        bool first_of_many = t.parcel->bytes == rill__limit_of(engine, t.peer);
        /* Mostly it is there as a whole: a test now, before a look for the next. */
        if (engine->size <= engine->link->most_at_once) {
            there = finish_receive(task, task->receives.n - 1, &t);
            if (there < 0) return there;
            if (there == RILL_OK && rill__take_in(task, &t, message, parcel, from)) return RILL_OK;
        }
        if (source != RILL__ANY || first_of_many) return RILL_IN_PROGRESS;
        polls = 1;
    }
}

rill_status rill__receive(rill__task *task, int source, int lane, rill__message *message,
                          rill__parcel **parcel, int *from) {
    int polls = task->engine->alone ? SPINS : 1;
    return rill__receive_polled(task, source, lane, polls, message, parcel, from);
}

static bool has_receive(const rill__task *task, int peer, int lane) {
    for (int i = 0; i < task->receives.n; i++)
        if (task->receives.at[i].peer == peer && task->receives.at[i].lane == lane) return true;
    return false;
}

static bool peek_into_boxes(rill__task *task) {
    for (int i = 0; i < task->engine->size; i++) {
        rill__transfer t;
        if (!rill__mail_from(task->engine, i) || has_receive(task, i, RILL__LANE_SHORT)) continue;
        rill_status status = rill__mail_receive(task, i, 1, &t);
        if (status == RILL_OK) status = rill__transfers_add(&task->receives, t);
        if (status < 0) return false;
    }
    return true;
}

void rill__peek(rill__task *task) {
    rill__engine *engine = task->engine;
    if (!peek_into_boxes(task)) return;
    for (int lane = 0; lane < RILL__LANES; lane++) {
        rill__arrival probed;
        bool complete;
        rill__transfer t;
        if (engine->table->probe(engine->link, RILL__ANY, task->tag + lane, 1, &probed) !=
                RILL_OK ||
            has_receive(task, probed.source, lane) || reads_split(task, lane))
            continue;
        if (receive_probed(task, &probed, lane, &t, &complete) != RILL_OK ||
            rill__transfers_add(&task->receives, t) != RILL_OK)
            return;
    }
    rill__transfer came;
    if (task->posted.parcel && rill__test_posted(task, 1, &came) == RILL_OK &&
        rill__transfers_add(&task->receives, came) != RILL_OK)
        return;
    for (int i = 0; i < task->receives.n && !rill__task_failed(task); i++) {
        rill__transfer *t = &task->receives.at[i];
        rill__message message;
        if (t->rest || rill__test(engine, t) != RILL_OK) continue;
        if (rill__message_parse(t->parcel->buffer.data, t->parcel->bytes, engine->seal, NULL, true,
                                &message) != RILL_OK)
            continue; /* whoever receives it reports it */
        if (message.header.form == RILL__M_FAILED || message.header.seq != task->seq) continue;
        /* Before the choice neither side has an algorithm. */
        if (!message.header.algorithm || !task->expect.algorithm) {
            message.header.algorithm = task->expect.algorithm;
            message.header.memory = task->expect.memory;
        }
        rill_status status = rill__message_check(&message.header, &task->expect);
        if (status != RILL_OK) rill__task_abort(task, status);
    }
}

void rill__received_part_at(rill__task *task, const rill__message *message, rill__part *part) {
    rill_status status = task->status;
    if (status == RILL_OK && task->adds_bits &&
        message->header.index_codec == rill__codec_bitmap.id) {
        rill__bits bits = rill__message_bits(message, part);
        if (bits == RILL__BITS_THERE) return;
        if (bits == RILL__BITS_BROKEN) rill__task_fail(task, status = RILL_ERR_MESSAGE);
    }
    if (status == RILL_OK) {
        size_t room = rill__message_room(message);
        rill__parcel *parcel = room ? rill__parcel_take(task, room) : NULL;
        if (room && !parcel) status = RILL_ERR_MEMORY;
        else status = rill__message_part(message, parcel ? parcel->buffer.data : NULL, part);
        if (status == RILL_OK) return;
        rill__task_fail(task, status);
    }
    *part = rill__part_empty(message->header.first, message->header.range);
}
