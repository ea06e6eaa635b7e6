/* The link over UCX: messages. See link/link_ucx.h. */
#include "link/link_ucx_own.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* Nanoseconds of a caller's nap, who has polled so often in vain. */
enum { NAP = 20000, POLLS_BEFORE_NAPS = 400 };
/* A wait looks who is gone once in so many polls. */
enum { POLLS_BEFORE_LOOK = 256 };
/* Probes in vain, for a look for strangers. */
enum { VAIN_BEFORE_STRANGERS = 64 };

enum { TAG_ALLGATHER, TAG_BCAST }; /* of the link itself */

typedef rill__link_ucx own_link;

rill_status rill__ucx_error(ucs_status_t status, const char *call) {
    return rill__fail(RILL_ERR_IO, "%s: %s", call, ucs_status_string(status));
}

rill_status rill__ucx_lost(int rank) { return rill__fail(RILL_ERR_PEER, "rank %d is gone", rank); }

uint64_t rill__link_ucx_strangers(const rill__link *link) {
    return ((const own_link *)link)->strangers;
}

/* ---- who is gone ----------------------------------------------------------------------------- */

/* Nothing reaches it any more. Where its endpoint handles errors, that ends what is under way: no
 * late bytes go to memory that has another use by then. */
static void lose(own_link *own, int rank) {
    static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                              .flags = UCP_EP_CLOSE_FLAG_FORCE};
    if (own->lost[rank]) return;
    own->lost[rank] = 1;
    if (own->first_lost < 0) own->first_lost = rank;
    if (!own->handles_errors[rank]) return;
    ucs_status_ptr_t closing = ucp_ep_close_nbx(own->peers[rank], &force);
    if (closing && !UCS_PTR_IS_ERR(closing)) ucp_request_free(closing);
    own->peers[rank] = NULL;
}

bool rill__ucx_look(own_link *own) {
    if (rill__watch_poll(own->watch) > own->watched_lost) {
        own->watched_lost = 0;
        for (int i = 0; i < own->link.ranks; i++) {
            if (rill__watch_state(own->watch, i) < RILL__WATCH_SILENT) continue;
            own->watched_lost++;
            lose(own, i);
        }
    }
    return own->first_lost >= 0;
}

static bool failed(rill__link *link, uint8_t *fate) {
    own_link *own = rill__ucx_of(link);
    if (!rill__ucx_look(own)) return false;
    for (int i = 0; i < link->ranks; i++) {
        if (!own->lost[i]) continue;
        bool dead = rill__watch_state(own->watch, i) == RILL__WATCH_GONE;
        uint8_t is = dead ? RILL__DEAD : RILL__SILENT;
        if (fate[i] < is) fate[i] = is;
    }
    return true;
}

/* Its connection stays open: its end would look like the death of this rank. */
static void give_up(rill__link *link, int rank) { lose(rill__ucx_of(link), rank); }

/* ---- tags ------------------------------------------------------------------------------------ */

static inline uint64_t full_tag(const own_link *own, int source, int tag) {
    return own->key | (uint64_t)source << RILL__UCX_SOURCE_AT | (uint32_t)tag;
}

static inline uint64_t inner_tag(const own_link *own, int source, int tag) {
    return full_tag(own, source, tag) | RILL__UCX_INNER;
}

static inline int source_of(uint64_t tag) {
    return (int)((tag & RILL__UCX_SOURCE_MASK) >> RILL__UCX_SOURCE_AT);
}

/* ---- wires ----------------------------------------------------------------------------------- */

static const ucp_request_param_t plain = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                          .memory_type = UCS_MEMORY_TYPE_HOST};
/* The number of bytes that came is in the request: there must be one. */
static const ucp_request_param_t with_request = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                                                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                                 .memory_type = UCS_MEMORY_TYPE_HOST};

static inline rill__ucx_request *request_of(const rill__wire *wire) {
    return (rill__ucx_request *)(uintptr_t)wire->word;
}

/* What UCX gave back: NULL is through. */
static inline rill_status started(ucs_status_ptr_t pointer, int peer, rill__ucx_kind kind,
                                  size_t bytes, rill__wire *wire, const char *call) {
    wire->word = 0;
    if (!pointer) return RILL_OK;
    if (UCS_PTR_IS_ERR(pointer)) return rill__ucx_error(UCS_PTR_STATUS(pointer), call);
    rill__ucx_request *request = pointer;
    *request = (rill__ucx_request){.peer = peer, .kind = kind, .bytes = bytes};
    wire->word = (uint64_t)(uintptr_t)request;
    return RILL_OK;
}

/* The peer's end of the connection is gone. */
static bool is_broken(ucs_status_t status) {
    return status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT ||
           status == UCS_ERR_CANCELED || status == UCS_ERR_NOT_CONNECTED ||
           status == UCS_ERR_UNREACHABLE;
}

/* The request is UCX's alone from now on: it ends it when it can. */
static void abandon(own_link *own, rill__wire *wire) {
    if (request_of(wire)->kind == RILL__UCX_RECEIVES)
        ucp_request_cancel(own->worker, request_of(wire));
    ucp_request_free(request_of(wire));
    wire->word = 0;
}

/* UCX moves on only in its calls, and a rank that is through with one of rill may make none for
 * long: what the other side still waits for must be on its way by then, and not in a queue here. On
 * a host that is the word that a long message was taken, which its sender awaits in rill, so that
 * its queue moves. Nothing else is ever left behind there, and a flush could stand behind a full
 * queue of a rank that is elsewhere. */
static bool may_leave_words(const own_link *own, int peer, size_t bytes, bool received) {
    return own->handles_errors[peer] || (received && bytes >= RILL__UCX_LONG);
}

/* The message is through: *wire becomes that of what may be left behind, or 0. */
static void see_off(own_link *own, int peer, size_t bytes, bool received, rill__wire *wire) {
    static const ucp_request_param_t none = {.op_attr_mask = 0};
    wire->word = 0;
    if (own->lost[peer] || !may_leave_words(own, peer, bytes, received)) return;
    ucs_status_ptr_t pointer = ucp_ep_flush_nbx(own->peers[peer], &none);
    if (!pointer || UCS_PTR_IS_ERR(pointer)) return; /* an error is one of the next message, too */
    rill__ucx_request *request = pointer;
    *request = (rill__ucx_request){.peer = peer, .kind = RILL__UCX_FLUSHES, .bytes = bytes};
    wire->word = (uint64_t)(uintptr_t)request;
}

static rill_status send_tagged(own_link *own, int to, uint64_t tag, const void *data, size_t bytes,
                               rill__wire *wire) {
    wire->word = 0;
    if (own->lost[to]) return RILL_OK;
    ucs_status_ptr_t sent = ucp_tag_send_nbx(own->peers[to], data, bytes, tag, &plain);
    if (UCS_PTR_IS_ERR(sent) && is_broken(UCS_PTR_STATUS(sent))) {
        lose(own, to); /* before the watch says why */
        return RILL_OK;
    }
    RILL_TRY(started(sent, to, RILL__UCX_SENDS, bytes, wire, "ucp_tag_send_nbx"));
    if (!wire->word) see_off(own, to, bytes, false, wire);
    return RILL_OK;
}

static rill_status send_message(rill__link *link, int to, int tag, const void *data, size_t bytes,
                                rill__wire *wire) {
    own_link *own = rill__ucx_of(link);
    return send_tagged(own, to, full_tag(own, link->rank, tag), data, bytes, wire);
}

static rill_status post_tagged(own_link *own, int source, uint64_t tag, void *data, size_t room,
                               rill__wire *wire) {
    return started(ucp_tag_recv_nbx(own->worker, data, room, tag, ~UINT64_C(0), &with_request),
                   source, RILL__UCX_RECEIVES, room, wire, "ucp_tag_recv_nbx");
}

static rill_status post(rill__link *link, int source, int tag, void *data, size_t room,
                        rill__wire *wire) {
    own_link *own = rill__ucx_of(link);
    return post_tagged(own, source, full_tag(own, source, tag), data, room, wire);
}

static rill_status ended(const rill__ucx_request *request, ucs_status_t status) {
    if (status == UCS_OK) return RILL_OK;
    if (status == UCS_ERR_MESSAGE_TRUNCATED)
        return rill__fail(RILL_ERR_MESSAGE, "a message of rank %d was cut", request->peer);
    if (is_broken(status)) return rill__ucx_lost(request->peer);
    return rill__ucx_error(status, request->kind == RILL__UCX_RECEIVES ? "a receive" : "a send");
}

static rill_status test(rill__link *link, rill__wire *wire, size_t *bytes) {
    if (!wire->word) return RILL_OK;
    own_link *own = rill__ucx_of(link);
    rill__ucx_request *request = request_of(wire);
    ucs_status_t status = ucp_request_check_status(request);
    if (status == UCS_INPROGRESS) {
        ucp_worker_progress(own->worker);
        status = ucp_request_check_status(request);
    }
    rill__ucx_request was = *request;
    if (status == UCS_INPROGRESS) {
        if (!own->lost[was.peer]) return RILL_IN_PROGRESS;
        abandon(own, wire);
        return rill__ucx_lost(was.peer);
    }
    if (was.kind == RILL__UCX_RECEIVES) {
        ucp_tag_recv_info_t info = {.length = 0};
        ucp_tag_recv_request_test(request, &info);
        was.bytes = info.length;
    }
    ucp_request_free(request);
    wire->word = 0;
    if (bytes) *bytes = was.bytes;
    if (was.kind == RILL__UCX_FLUSHES) return RILL_OK; /* the message itself had come */
    RILL_TRY(ended(&was, status));
    see_off(own, was.peer, was.bytes, was.kind == RILL__UCX_RECEIVES, wire);
    return wire->word ? RILL_IN_PROGRESS : RILL_OK;
}

static void idle(rill__link *link, unsigned polls);

static rill_status wait_for(rill__link *link, rill__wire *wire) {
    rill_status status;
    for (unsigned polls = 1; (status = test(link, wire, NULL)) == RILL_IN_PROGRESS; polls++) {
        if (polls % POLLS_BEFORE_LOOK) continue;
        rill__ucx_look(rill__ucx_of(link));
        idle(link, polls);
    }
    return status;
}

static void cancel(rill__link *link, rill__wire *wire, bool *came) {
    own_link *own = rill__ucx_of(link);
    *came = false;
    if (!wire->word) return;
    if (request_of(wire)->kind == RILL__UCX_RECEIVES)
        ucp_request_cancel(own->worker, request_of(wire));
    *came = wait_for(link, wire) == RILL_OK; /* it was cancelled, or a message is coming in */
}

/* ---- probing --------------------------------------------------------------------------------- */

/* A message that nobody may have: it is received into nothing. */
static void drop(own_link *own, uint64_t tag) {
    static char none[1];
    ucs_status_ptr_t pointer = ucp_tag_recv_nbx(own->worker, none, 0, tag, ~UINT64_C(0), &plain);
    own->strangers++;
    if (pointer && !UCS_PTR_IS_ERR(pointer)) ucp_request_free(pointer);
}

/* A tag of a stranger differs in a bit of the key: one bit at a time. */
static void look_for_strangers(own_link *own) {
    uint64_t bit = UINT64_C(1) << (RILL__UCX_KEY_AT + own->bit++ % (64 - RILL__UCX_KEY_AT));
    ucp_tag_recv_info_t info;
    if (ucp_tag_probe_nb(own->worker, ~own->key & bit, bit, 0, &info)) drop(own, info.sender_tag);
}

static rill_status probe(rill__link *link, int source, int tag, int tries, rill__arrival *arrival) {
    own_link *own = rill__ucx_of(link);
    uint64_t mask = RILL__UCX_KEY_MASK | RILL__UCX_INNER, wanted = own->key;
    if (source != RILL__ANY) {
        mask |= RILL__UCX_SOURCE_MASK;
        wanted |= (uint64_t)source << RILL__UCX_SOURCE_AT;
    }
    if (tag > RILL__ANY) {
        mask |= RILL__UCX_TAG_MASK;
        wanted |= (uint32_t)tag;
    } else { /* any of an epoch */
        mask |= RILL__UCX_TAG_MASK & ~(uint64_t)(RILL__EPOCH_TAGS - 1);
        wanted |= (uint64_t)(RILL__ANY - tag) * RILL__EPOCH_TAGS;
    }
    ucp_tag_recv_info_t info;
    ucp_tag_message_h found = ucp_tag_probe_nb(own->worker, wanted, mask, 0, &info);
    while (!found && tries-- > 0)
        if (ucp_worker_progress(own->worker))
            found = ucp_tag_probe_nb(own->worker, wanted, mask, 0, &info);
    if (!found) {
        if (++own->vain % VAIN_BEFORE_STRANGERS == 0) look_for_strangers(own);
        return RILL_IN_PROGRESS;
    }
    if (source_of(info.sender_tag) >= link->ranks) { /* somebody has guessed the key */
        drop(own, info.sender_tag);
        return RILL_IN_PROGRESS;
    }
    arrival->source = source_of(info.sender_tag);
    arrival->tag = (int)(info.sender_tag & RILL__UCX_TAG_MASK);
    arrival->bytes = info.length;
    return RILL_OK;
}

/* The first message of that tag is the one that was found. */
static rill_status receive(rill__link *link, const rill__arrival *arrival, int tag, void *data,
                           bool soon, rill__wire *wire) {
    own_link *own = rill__ucx_of(link);
    char none[1];
    uint64_t full = full_tag(own, arrival->source, tag);
    RILL_TRY(started(ucp_tag_recv_nbx(own->worker, data ? data : none, data ? arrival->bytes : 0,
                                      full, ~UINT64_C(0), &plain),
                     arrival->source, RILL__UCX_RECEIVES, arrival->bytes, wire,
                     "ucp_tag_recv_nbx"));
    if (!wire->word) see_off(own, arrival->source, arrival->bytes, true, wire);
    if (data) return soon ? wait_for(link, wire) : RILL_OK;
    wait_for(link, wire); /* it is cut, which is an error that nobody minds */
    return RILL_OK;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

/* Until all of the wires are through. The death of any rank ends it: who has seen it earlier has
 * given up, and may be waited for in vain. A rank that has closed sends nothing more, but what it
 * had sent may still be on its way for a moment. */
static rill_status wait_all(own_link *own, rill__wire *wires, int n) {
    rill_status status = RILL_OK;
    double closed_since = 0;
    for (unsigned polls = 1; n > 0 && status == RILL_OK; polls++) {
        while (n > 0 && status == RILL_OK) {
            status = test(&own->link, &wires[n - 1], NULL);
            if (status == RILL_OK) n--;
        }
        if (status != RILL_IN_PROGRESS) break;
        status = RILL_OK;
        if (polls % POLLS_BEFORE_LOOK == 0) {
            double now = rill__tcp_clock();
            int peer = request_of(&wires[n - 1])->peer;
            if (rill__ucx_look(own)) status = rill__ucx_lost(own->first_lost);
            if (rill__watch_state(own->watch, peer) == RILL__WATCH_LEFT) {
                if (closed_since == 0) closed_since = now;
                if (now - closed_since > 0.2)
                    status = rill__fail(RILL_ERR_STATE, "rank %d has freed its communicator", peer);
            }
            if (own->until > 0 && now > own->until)
                status = rill__fail(RILL_ERR_PEER, "rank %d does not answer", peer);
        }
        if (polls > POLLS_BEFORE_LOOK) idle(&own->link, polls);
    }
    for (int i = 0; i < n; i++)
        if (wires[i].word) abandon(own, &wires[i]);
    return status;
}

rill_status rill__ucx_allgather(rill__link *link, const void *mine, size_t bytes, void *all) {
    own_link *own = rill__ucx_of(link);
    rill_status status = RILL_OK;
    int n = 0;
    if (rill__ucx_look(own)) return rill__ucx_lost(own->first_lost);
    for (int i = 1; i < link->ranks && status == RILL_OK; i++) {
        int from = (link->rank + i) % link->ranks;
        status = post_tagged(own, from, inner_tag(own, from, TAG_ALLGATHER),
                             (char *)all + (size_t)from * bytes, bytes, &own->wires[n++]);
    }
    for (int i = 1; i < link->ranks && status == RILL_OK; i++) {
        int to = (link->rank + i) % link->ranks;
        status = send_tagged(own, to, inner_tag(own, link->rank, TAG_ALLGATHER), mine, bytes,
                             &own->wires[n++]);
    }
    if (bytes) memmove((char *)all + (size_t)link->rank * bytes, mine, bytes);
    rill_status waited = wait_all(own, own->wires, n);
    return status != RILL_OK ? status : waited;
}

static rill_status bcast(rill__link *link, void *data, size_t bytes, int root) {
    own_link *own = rill__ucx_of(link);
    uint64_t tag = inner_tag(own, root, TAG_BCAST);
    rill_status status = RILL_OK;
    int n = 0;
    if (rill__ucx_look(own)) return rill__ucx_lost(own->first_lost);
    if (link->rank != root) {
        status = post_tagged(own, root, tag, data, bytes, &own->wires[n++]);
    } else {
        for (int i = 0; i < link->ranks && status == RILL_OK; i++)
            if (i != root) status = send_tagged(own, i, tag, data, bytes, &own->wires[n++]);
    }
    rill_status waited = wait_all(own, own->wires, n);
    return status != RILL_OK ? status : waited;
}

/* ---- time ------------------------------------------------------------------------------------ */

static double wall_clock(rill__link *link) {
    (void)link;
    return rill__tcp_clock();
}

/* As over MPI: where messages come over a network the kernel needs the processor to bring them. */
static void idle(rill__link *link, unsigned polls) {
    const struct timespec nap = {.tv_nsec = NAP};
    if (link->hosts > 1 && polls > POLLS_BEFORE_NAPS) nanosleep(&nap, NULL);
    else sched_yield();
}

const rill__link_table rill__ucx_table = {
    .name = "ucx",
    .send = send_message,
    .probe = probe,
    .receive = receive,
    .post = post,
    .test = test,
    .wait = wait_for,
    .cancel = cancel,
    .allgather = rill__ucx_allgather,
    .bcast = bcast,
    .another = rill__ucx_another,
    .clock = wall_clock,
    .idle = idle,
    .share = rill__ucx_share,
    .unshare = rill__ucx_unshare,
    .close = rill__ucx_close,
    .failed = failed,
    .give_up = give_up,
};
