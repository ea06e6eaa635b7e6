/* The link over UCX: messages. See link/link_ucx.h. */
#include "link/link_ucx_own.h"

#include <string.h>

/* A wait looks who is gone once in so many polls. */
enum { POLLS_BEFORE_LOOK = 256 };
/* Probes in vain, for a look for strangers; messages of theirs that it drops at most: where calls
 * are small and go through boxes, looks are rare. */
enum { VAIN_BEFORE_STRANGERS = 64, STRANGERS_AT_ONCE = 64 };

typedef rill__link_ucx own_link;

rill_status rill__ucx_error(ucs_status_t status, const char *call) {
    return rill__fail(RILL_ERR_IO, "%s: %s", call, ucs_status_string(status));
}

uint64_t rill__link_ucx_strangers(const rill__link *link) {
    return atomic_load(&((const own_link *)link)->strangers);
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* 128 bits: 20 and 31 for tags, 64 for what has a header (link/link.h). */
void rill__ucx_set_key(own_link *own, const uint8_t job[RILL__JOB_KEY]) {
    uint64_t words[2];
    _Static_assert(sizeof words == RILL__JOB_KEY, "a key has two words");
    memcpy(own->job, job, sizeof own->job);
    memcpy(words, job, sizeof words);
    own->key = words[0] & RILL__UCX_KEY_MASK;
    own->pad = words[0] & RILL__UCX_TAG_MASK;
    own->mix = (words[0] >> 13 & RILL__UCX_TAG_MASK) | 1;
    own->unmix = own->mix; /* right in its lowest 3 bits; each round doubles these */
    for (int i = 0; i < 5; i++)
        own->unmix *= 2 - own->mix * own->unmix;
    own->link.key = words[1] ? words[1] : 1;
    own->link.strangers = &own->strangers;
}

/* One to one, so that no two are alike. */
uint64_t rill__ucx_inner_tag(const own_link *own, int source, rill__ucx_inner kind, int epoch) {
    uint64_t what = ((uint64_t)epoch << 2 | kind) * own->mix ^ own->pad;
    return own->key | (uint64_t)source << RILL__UCX_SOURCE_AT | RILL__UCX_INNER |
           (what & RILL__UCX_TAG_MASK);
}

static bool is_inner(const own_link *own, uint64_t tag) {
    uint64_t what = ((tag ^ own->pad) * own->unmix) & RILL__UCX_TAG_MASK;
    return (what & 3) <= RILL__UCX_BARE && what >> 2 < RILL__EPOCHS;
}

static inline uint64_t full_tag(const own_link *own, int source, int tag) {
    if (rill__tag_bare(tag))
        return rill__ucx_inner_tag(own, source, RILL__UCX_BARE, tag / RILL__EPOCH_TAGS);
    return own->key | (uint64_t)source << RILL__UCX_SOURCE_AT | (uint32_t)tag;
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
static inline rill_status started(ucs_status_ptr_t pointer, rill__ucx_request what,
                                  rill__wire *wire, const char *call) {
    wire->word = 0;
    if (!pointer) return RILL_OK;
    if (UCS_PTR_IS_ERR(pointer)) return rill__ucx_error(UCS_PTR_STATUS(pointer), call);
    rill__ucx_request *request = pointer;
    *request = what;
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
    rill__ucx_request *request = request_of(wire);
    if (request->kind == RILL__UCX_RECEIVES)
        ucp_request_cancel(own->ways[request->pace].worker, request);
    ucp_request_free(request);
    wire->word = 0;
}

/* UCX moves on only in its calls, and a rank that is through with one of rill may make none for
 * long: what the other side still waits for must be on its way by then, and not in a queue here.
 * Who has received a long message leaves the word behind that it was taken. Its sender awaits that
 * in rill, so that its queue moves. Sockets may hold back a message that was sent; queues in shared
 * memory do not, and a flush could stand behind a full queue of a rank that is not in rill. */
static bool may_leave_words(const own_link *own, const rill__ucx_request *done) {
    if (done->kind == RILL__UCX_RECEIVES) return done->bytes >= own->long_from;
    return done->pace == RILL__UCX_CALM || own->by_network[done->peer];
}

/* The message is through: *wire becomes that of what may be left behind, or 0. */
static void see_off(own_link *own, const rill__ucx_request *done, rill__wire *wire) {
    static const ucp_request_param_t none = {.op_attr_mask = 0};
    wire->word = 0;
    if (own->lost[done->peer] || rill__ucx_rests(own, done->pace) || !may_leave_words(own, done))
        return;
    ucp_ep_h peer = own->ways[done->pace].peers[done->peer];
    ucs_status_ptr_t pointer = peer ? ucp_ep_flush_nbx(peer, &none) : NULL;
    if (!pointer || UCS_PTR_IS_ERR(pointer)) return; /* an error is one of the next message, too */
    rill__ucx_request *request = pointer;
    *request = *done;
    request->kind = RILL__UCX_FLUSHES;
    wire->word = (uint64_t)(uintptr_t)request;
}

static inline rill__ucx_pace pace_of(int tag) {
    return rill__tag_passes(tag) ? RILL__UCX_CALM : RILL__UCX_FAST;
}

/* What would go the fast way is lost once that rests, as all who wait for it will know. */
static rill_status send_tagged(own_link *own, rill__ucx_pace pace, int to, uint64_t tag,
                               const void *data, size_t bytes, rill__wire *wire) {
    const rill__ucx_request what = {.peer = to,
                                    .kind = RILL__UCX_SENDS,
                                    .pace = (uint8_t)pace,
                                    .bytes = bytes};
    wire->word = 0;
    if (own->lost[to] || rill__ucx_rests(own, pace)) return RILL_OK;
    ucp_ep_h peer = rill__ucx_endpoint(own, pace, to);
    ucs_status_ptr_t sent = peer ? ucp_tag_send_nbx(peer, data, bytes, tag, &plain)
                                 : UCS_STATUS_PTR(UCS_ERR_UNREACHABLE);
    if (UCS_PTR_IS_ERR(sent) && is_broken(UCS_PTR_STATUS(sent))) {
        rill__ucx_broke(own, to);
        return RILL_OK;
    }
    RILL_TRY(started(sent, what, wire, "ucp_tag_send_nbx"));
    if (!wire->word) see_off(own, &what, wire);
    return RILL_OK;
}

static rill_status send_message(rill__link *link, int to, int tag, const void *data, size_t bytes,
                                rill__wire *wire) {
    own_link *own = rill__ucx_of(link);
    return send_tagged(own, pace_of(tag), to, full_tag(own, link->rank, tag), data, bytes, wire);
}

static rill_status post_tagged(own_link *own, rill__ucx_pace pace, int source, uint64_t tag,
                               void *data, size_t room, rill__wire *wire) {
    const rill__ucx_request what = {.peer = source,
                                    .kind = RILL__UCX_RECEIVES,
                                    .pace = (uint8_t)pace,
                                    .bytes = room};
    return started(ucp_tag_recv_nbx(own->ways[pace].worker, data, room, tag, ~UINT64_C(0),
                                    &with_request),
                   what, wire, "ucp_tag_recv_nbx");
}

static rill_status post(rill__link *link, int source, int tag, void *data, size_t room,
                        rill__wire *wire) {
    own_link *own = rill__ucx_of(link);
    return post_tagged(own, pace_of(tag), source, full_tag(own, source, tag), data, room, wire);
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
        rill__ucx_progress(own, request->pace);
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
    if (was.kind == RILL__UCX_SENDS && is_broken(status)) rill__ucx_broke(own, was.peer);
    RILL_TRY(ended(&was, status));
    see_off(own, &was, wire);
    return wire->word ? RILL_IN_PROGRESS : RILL_OK;
}

/* A way that rests brings nothing any more. */
static rill_status wait_for(rill__link *link, rill__wire *wire) {
    own_link *own = rill__ucx_of(link);
    rill_status status;
    for (unsigned polls = 1; (status = test(link, wire, NULL)) == RILL_IN_PROGRESS; polls++) {
        if (rill__ucx_rests(own, request_of(wire)->pace)) {
            abandon(own, wire);
            return rill__ucx_lost(own->first_lost);
        }
        if (polls % POLLS_BEFORE_LOOK) continue;
        rill__ucx_look(own);
        rill__link_yield(link, polls);
    }
    return status;
}

static void cancel(rill__link *link, rill__wire *wire, bool *came) {
    own_link *own = rill__ucx_of(link);
    *came = false;
    if (!wire->word) return;
    rill__ucx_request *request = request_of(wire);
    if (request->kind == RILL__UCX_RECEIVES)
        ucp_request_cancel(own->ways[request->pace].worker, request);
    *came = wait_for(link, wire) == RILL_OK; /* it was cancelled, or a message is coming in */
}

/* ---- probing --------------------------------------------------------------------------------- */

/* A message that nobody may have: it is received into nothing. */
static void drop(own_link *own, rill__ucx_pace pace, uint64_t tag) {
    static char none[1];
    ucs_status_ptr_t pointer = ucp_tag_recv_nbx(own->ways[pace].worker, none, 0, tag, ~UINT64_C(0),
                                                &plain);
    atomic_fetch_add_explicit(&own->strangers, 1, memory_order_relaxed);
    if (pointer && !UCS_PTR_IS_ERR(pointer)) ucp_request_free(pointer);
}

/* A tag of a stranger differs in a bit of the key, one bit at a time; or it is none of the link's
 * own. */
static void look_for_strangers(own_link *own) {
    uint64_t bit = UINT64_C(1) << (RILL__UCX_KEY_AT + own->bit++ % (64 - RILL__UCX_KEY_AT));
    const uint64_t inner = RILL__UCX_KEY_MASK | RILL__UCX_INNER;
    ucp_tag_recv_info_t info;
    for (int pace = 0; pace < RILL__UCX_PACES; pace++) {
        ucp_worker_h worker = own->ways[pace].worker;
        for (int dropped = 0; dropped < STRANGERS_AT_ONCE; dropped++) {
            if (!ucp_tag_probe_nb(worker, ~own->key & bit, bit, 0, &info) &&
                !(ucp_tag_probe_nb(worker, own->key | RILL__UCX_INNER, inner, 0, &info) &&
                  !is_inner(own, info.sender_tag)))
                break;
            drop(own, (rill__ucx_pace)pace, info.sender_tag);
        }
    }
}

/* Fills the arrival: RILL_IN_PROGRESS: it is nobody's. */
static rill_status found(own_link *own, rill__ucx_pace pace, const ucp_tag_recv_info_t *info,
                         rill__arrival *arrival) {
    if (source_of(info->sender_tag) >= own->link.ranks) { /* somebody has guessed the key */
        drop(own, pace, info->sender_tag);
        return RILL_IN_PROGRESS;
    }
    arrival->source = source_of(info->sender_tag);
    arrival->tag = (int)(info->sender_tag & RILL__UCX_TAG_MASK);
    arrival->bytes = info->length;
    return RILL_OK;
}

static rill_status probe_way(own_link *own, rill__ucx_pace pace, uint64_t wanted, uint64_t mask,
                             int tries, rill__arrival *arrival) {
    ucp_worker_h worker = own->ways[pace].worker;
    ucp_tag_recv_info_t info;
    if (rill__ucx_rests(own, pace)) return RILL_IN_PROGRESS;
    if (own->alone_here && tries > 1) tries = 1; /* each asks the kernel: link_ucx_ways.c, idle */
    rill__ucx_visit(&own->ways[pace]);
    ucp_tag_message_h there = ucp_tag_probe_nb(worker, wanted, mask, 0, &info);
    while (!there && tries-- > 0)
        if (ucp_worker_progress(worker)) there = ucp_tag_probe_nb(worker, wanted, mask, 0, &info);
    return there ? found(own, pace, &info, arrival) : RILL_IN_PROGRESS;
}

static rill_status probe(rill__link *link, int source, int tag, int tries, rill__arrival *arrival) {
    own_link *own = rill__ucx_of(link);
    uint64_t mask = RILL__UCX_KEY_MASK | RILL__UCX_INNER, wanted = own->key;
    rill__ucx_pace pace = tag == RILL__ANY ? RILL__UCX_FAST : RILL__UCX_CALM;
    if (source != RILL__ANY) {
        mask |= RILL__UCX_SOURCE_MASK;
        wanted |= (uint64_t)source << RILL__UCX_SOURCE_AT;
    }
    if (tag > RILL__ANY) {
        mask |= RILL__UCX_TAG_MASK;
        wanted |= full_tag(own, 0, tag);
        pace = pace_of(tag);
    } else { /* any of an epoch */
        mask |= RILL__UCX_TAG_MASK & ~(uint64_t)(RILL__EPOCH_TAGS - 1);
        wanted |= (uint64_t)(RILL__ANY - tag) * RILL__EPOCH_TAGS;
    }
    rill_status status = probe_way(own, pace, wanted, mask, tries, arrival);
    if (status == RILL_IN_PROGRESS && tag == RILL__ANY)
        status = probe_way(own, RILL__UCX_CALM, wanted, mask, 1, arrival);
    if (status == RILL_OK && tag > RILL__ANY) arrival->tag = tag;
    if (status == RILL_IN_PROGRESS && ++own->vain % VAIN_BEFORE_STRANGERS == 0)
        look_for_strangers(own);
    return status;
}

/* The first message of that tag is the one that was found. */
static rill_status receive(rill__link *link, const rill__arrival *arrival, int tag, void *data,
                           bool soon, rill__wire *wire) {
    own_link *own = rill__ucx_of(link);
    rill__ucx_pace pace = pace_of(tag);
    const rill__ucx_request what = {.peer = arrival->source,
                                    .kind = RILL__UCX_RECEIVES,
                                    .pace = (uint8_t)pace,
                                    .bytes = arrival->bytes};
    char none[1];
    RILL_TRY(started(ucp_tag_recv_nbx(own->ways[pace].worker, data ? data : none,
                                      data ? arrival->bytes : 0,
                                      full_tag(own, arrival->source, tag), ~UINT64_C(0), &plain),
                     what, wire, "ucp_tag_recv_nbx"));
    if (!wire->word) see_off(own, &what, wire);
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
            rill__ucx_progress_all(own); /* one may be ahead, on the other way */
            if (rill__ucx_look(own)) status = rill__ucx_lost(own->first_lost);
            if (rill__watch_state(own->watch, peer) == RILL__WATCH_LEFT) {
                if (closed_since == 0) closed_since = now;
                if (now - closed_since > 0.2)
                    status = rill__fail(RILL_ERR_STATE, "rank %d has freed its communicator", peer);
            }
            if (own->until > 0 && now > own->until)
                status = rill__fail(RILL_ERR_PEER, "rank %d does not answer", peer);
        }
        if (polls > POLLS_BEFORE_LOOK) rill__link_yield(&own->link, polls);
    }
    for (int i = 0; i < n; i++)
        if (wires[i].word) abandon(own, &wires[i]);
    return status;
}

static rill_status gather_on(own_link *own, rill__ucx_pace pace, const void *mine, size_t bytes,
                             void *all) {
    const rill__link *link = &own->link;
    rill_status status = RILL_OK;
    int n = 0;
    if (rill__ucx_look(own)) return rill__ucx_lost(own->first_lost);
    for (int i = 1; i < link->ranks && status == RILL_OK; i++) {
        int from = (link->rank + i) % link->ranks;
        status = post_tagged(own, pace, from,
                             rill__ucx_inner_tag(own, from, RILL__UCX_ALLGATHER, 0),
                             (char *)all + (size_t)from * bytes, bytes, &own->wires[n++]);
    }
    for (int i = 1; i < link->ranks && status == RILL_OK; i++) {
        int to = (link->rank + i) % link->ranks;
        status = send_tagged(own, pace, to,
                             rill__ucx_inner_tag(own, link->rank, RILL__UCX_ALLGATHER, 0), mine,
                             bytes, &own->wires[n++]);
    }
    if (bytes) memmove((char *)all + (size_t)link->rank * bytes, mine, bytes);
    rill_status waited = wait_all(own, own->wires, n);
    return status != RILL_OK ? status : waited;
}

rill_status rill__ucx_allgather(rill__link *link, const void *mine, size_t bytes, void *all) {
    return gather_on(rill__ucx_of(link), RILL__UCX_FAST, mine, bytes, all);
}

rill_status rill__ucx_greet(own_link *own, rill__ucx_pace pace) {
    char none[1] = {0};
    return gather_on(own, pace, none, 0, none);
}

static rill_status bcast(rill__link *link, void *data, size_t bytes, int root) {
    own_link *own = rill__ucx_of(link);
    uint64_t tag = rill__ucx_inner_tag(own, root, RILL__UCX_BCAST, 0);
    rill_status status = RILL_OK;
    int n = 0;
    if (rill__ucx_look(own)) return rill__ucx_lost(own->first_lost);
    if (link->rank != root) {
        status = post_tagged(own, RILL__UCX_FAST, root, tag, data, bytes, &own->wires[n++]);
    } else {
        for (int i = 0; i < link->ranks && status == RILL_OK; i++)
            if (i != root)
                status = send_tagged(own, RILL__UCX_FAST, i, tag, data, bytes, &own->wires[n++]);
    }
    rill_status waited = wait_all(own, own->wires, n);
    return status != RILL_OK ? status : waited;
}

/* ---- time ------------------------------------------------------------------------------------ */

static double wall_clock(rill__link *link) {
    (void)link;
    return rill__tcp_clock();
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
    .idle = rill__ucx_idle,
    .share = rill__ucx_share,
    .grow = rill__ucx_grow,
    .unshare = rill__ucx_unshare,
    .close = rill__ucx_close,
    .failed = rill__ucx_failed,
    .give_up = rill__ucx_give_up,
    .survive = rill__ucx_survive,
};
