/* Steps whose exchange the host does while a stream of the device waits (mail.h): memory, what is
 * queued, and the two sides of the letter. */
#include "space/cuda.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = 256, LIST = 64 << 10 }; /* bytes: of alignment; for the list of parts */

struct rill__mail {
    rill__mail_rooms rooms;
    size_t size;               /* of a value */
    rill__cuda_letter *letter; /* page-locked, and so are outbox and inbox behind it */
    char *outbox, *inbox;
    size_t inbox_bytes;
    /* Device memory: the pairs, those of one range, indices of the result; all in one piece. */
    char *memory;
    rill__cuda_found *found; /* of the step, and of one pick */
    rill__cuda_seen *seen;
    uint64_t *refused; /* sums of tensors' gradients that are not finite */
    rill__cuda_reply *reply;
    uint32_t *idx, *range_idx, *mask;
    void *val, *range_val;
};

static size_t lined(uint64_t bytes) { return (size_t)((bytes + LINE - 1) / LINE * LINE); }
static size_t pairs_bytes(const rill__mail *m, uint64_t n) {
    return lined(4 * n) + lined(m->size * n);
}

static rill_status open_mail(const rill__space *s, rill__mail **out) {
    (void)s;
    *out = rill__calloc(1, sizeof **out);
    return *out ? RILL_OK : rill__fail(RILL_ERR_MEMORY, "out of memory for a mail");
}

static void release(rill__cuda *c, rill__mail *m) {
    if (m->letter) rill__cuda_retire(c, m->letter); /* the device may still read it */
    if (m->memory) rill__cuda_check(c, c->table->release_on(m->memory, c->stream), "release");
    m->letter = NULL;
    m->memory = NULL;
}

static void close_mail(const rill__space *s, rill__mail *m) {
    rill__cuda *c = rill__cuda_of(s);
    if (!m) return;
    int before = rill__cuda_enter(c);
    release(c, m);
    rill__cuda_leave(c, before);
    free(m);
}

static void carve(rill__mail *m, char *at) {
    const rill__mail_rooms *r = &m->rooms;
    m->found = (rill__cuda_found *)(void *)at;
    m->seen = (rill__cuda_seen *)(void *)(m->found + 2);
    m->refused = (uint64_t *)(void *)(m->seen + 1);
    m->reply = (rill__cuda_reply *)(void *)(at + LINE);
    at += lined(LINE + sizeof *m->reply);
    m->idx = (uint32_t *)(void *)at;
    m->val = at + lined(4 * r->own);
    at += pairs_bytes(m, r->own);
    m->range_idx = (uint32_t *)(void *)at;
    m->range_val = at + lined(4 * r->range);
    at += pairs_bytes(m, r->range);
    m->mask = r->masks ? (uint32_t *)(void *)at : NULL;
}

static rill_status make(rill__cuda *c, rill__mail *m, const rill__mail_rooms *rooms) {
    uint32_t number = m->letter ? m->letter->flag : 0; /* steps go on from there */
    void *pages = NULL, *memory = NULL;
    release(c, m);
    m->rooms = *rooms;
    m->size = rill__type_size(rooms->type);
    size_t head = lined(sizeof(rill__cuda_letter)), out = pairs_bytes(m, rooms->own);
    m->inbox_bytes = LIST + pairs_bytes(m, rooms->result) + pairs_bytes(m, rooms->returned);
    size_t device = lined(LINE + sizeof(rill__cuda_reply)) + out + pairs_bytes(m, rooms->range) +
                    lined(4 * rooms->masks);
    size_t host = head + out + m->inbox_bytes + RILL__SLACK;
    int error = c->table->allocate_host(host, &pages);
    if (!error) error = c->table->allocate_on(device, &memory, c->stream);
    if (error) {
        if (pages) rill__cuda_retire(c, pages);
        return rill__fail(RILL_ERR_MEMORY,
                          "out of memory for a step on device %d: %zu bytes, %zu of page-locked "
                          "memory (CUDA: %s)",
                          c->device, device, host, c->table->error_text(error));
    }
    memset(pages, 0, head);
    m->letter = pages;
    m->letter->ready = m->letter->flag = number;
    m->outbox = (char *)pages + head;
    m->inbox = m->outbox + out;
    m->memory = memory;
    carve(m, memory);
    return RILL_OK;
}

static rill_status reserve(const rill__space *s, rill__mail *m, const rill__mail_rooms *rooms) {
    rill__cuda *c = rill__cuda_of(s);
    rill__mail_rooms r = m->rooms;
    RILL_TRY(rill__cuda_status(c));
    if (m->letter && r.type == rooms->type && r.own >= rooms->own && r.range >= rooms->range &&
        r.result >= rooms->result && r.masks >= rooms->masks && r.returned >= rooms->returned)
        return RILL_OK;
    int before = rill__cuda_enter(c);
    rill_status status = make(c, m, rooms);
    rill__cuda_leave(c, before);
    return status;
}

/* ---- the device's side ---------------------------------------------------------------------- */

static rill__cuda_mail task_of(const rill__mail *m, const rill__mail_step *step) {
    return (rill__cuda_mail){.type = (int)m->rooms.type,
                             .number = step->number,
                             .letter = m->letter,
                             .out_idx = (uint32_t *)(void *)m->outbox,
                             .out_val = m->outbox + lined(4 * m->rooms.own),
                             .inbox = m->inbox,
                             .found = m->found,
                             .idx = m->idx,
                             .val = m->val,
                             .room = m->rooms.own,
                             .floor = (uint32_t)step->floor,
                             .seen = step->looks ? m->seen : NULL,
                             .refused = step->gradient ? NULL : m->refused,
                             .most = m->rooms.result,
                             .reply = m->reply,
                             .mask = m->mask,
                             .mask_room = m->rooms.masks,
                             .undoes = step->undoes,
                             .returns = step->returns,
                             .n = step->n,
                             .residual = step->residual,
                             .gradient = step->gradient,
                             .update = step->update};
}

static rill__pick place(const rill__mail *m, const rill__pick *pick, bool alone) {
    rill__pick p = *pick;
    p.idx = alone ? m->idx : m->range_idx;
    p.val = alone ? m->val : m->range_val;
    return p;
}

static rill_status room_for_picks(rill__cuda *c, const rill__mail *m, const rill__mail_step *step) {
    for (int i = 0; i < step->n_picks; i++) {
        rill__pick p = place(m, &step->picks[i], step->n_picks == 1);
        RILL_TRY(rill__cuda_pick_room(c, &p));
    }
    return RILL_OK;
}

static void pick_all(rill__cuda *c, const rill__mail *m, const rill__mail_step *step,
                     const rill__cuda_mail *task) {
    const rill__cuda_table *t = c->table;
    bool alone = step->n_picks == 1;
    if (!step->gradient && c->failed == RILL_OK) {
        rill__cuda_check(c, t->fill(m->refused, 0, sizeof *m->refused, c->stream), "fill");
        rill__cuda_add_tensors(c, (int)m->rooms.type, step->residual, step->tensors,
                               step->n_tensors, step->guards, m->refused);
    }
    if (!alone) rill__cuda_check(c, t->fill(m->found, 0, sizeof *m->found, c->stream), "kernel");
    for (int i = 0; i < step->n_picks && c->failed == RILL_OK; i++) {
        rill__pick p = place(m, &step->picks[i], alone);
        rill__cuda_found *found = alone ? m->found : m->found + 1;
        rill__cuda_pick_ahead(c, &p, found);
        if (!alone)
            rill__cuda_check(c,
                             t->mail_append(task, found, m->range_idx, m->range_val, step->first[i],
                                            m->found, c->stream),
                             "kernel");
    }
}

/* What mail_apply leaves to do: the gradient comes out before the update is written, which may be
 * in its place. */
static void apply_tensors(rill__cuda *c, const rill__mail *m, const rill__mail_step *step) {
    int type = (int)m->rooms.type;
    if (!step->gradient && step->undoes)
        rill__cuda_subtract_tensors(c, type, step->residual, step->tensors, step->n_tensors,
                                    m->reply);
    rill__cuda_pairs pairs = {.n = m->rooms.result, .reply = m->reply, .inbox = m->inbox};
    if (!step->update) rill__cuda_write_tensors(c, type, step->tensors, step->n_tensors, &pairs);
}

static void set_flag(rill__mail *m, uint32_t number) {
    __atomic_store_n(&m->letter->flag, number, __ATOMIC_RELEASE);
}

static rill_status post(const rill__space *s, rill__mail *m, const rill__mail_step *step) {
    rill__cuda *c = rill__cuda_of(s);
    RILL_TRY(rill__cuda_status(c));
    const rill__cuda_table *t = c->table;
    rill__cuda_mail task = task_of(m, step);
    int before = rill__cuda_enter(c);
    rill_status status = room_for_picks(c, m, step);
    if (status == RILL_OK) {
        pick_all(c, m, step, &task);
        if (c->failed == RILL_OK) rill__cuda_check(c, t->mail_send(&task, c->stream), "kernel");
        if (c->failed == RILL_OK)
            rill__cuda_check(c, t->stream_hold(&m->letter->flag, step->number, c->stream),
                             "a wait of the stream for the host");
        if (c->failed == RILL_OK) rill__cuda_check(c, t->mail_apply(&task, c->stream), "kernel");
        apply_tensors(c, m, step);
        if (c->failed != RILL_OK) set_flag(m, step->number);
        status = rill__cuda_status(c);
    }
    rill__cuda_leave(c, before);
    return status;
}

static rill_status end(const rill__space *s, rill__mail *m, uint32_t number) {
    rill__cuda *c = rill__cuda_of(s);
    rill__cuda_mail task = {.letter = m->letter, .number = number};
    int before = rill__cuda_enter(c);
    if (c->failed == RILL_OK) rill__cuda_check(c, c->table->mail_done(&task, c->stream), "kernel");
    rill__cuda_leave(c, before);
    return rill__cuda_status(c);
}

static int queues(const rill__space *s) {
    const char *given = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int n = given ? atoi(given) : 0;
    if (rill__cuda_of(s)->table->emulated) return 1 << 20;
    return n > 0 ? n : 8; /* CUDA's own default */
}

/* ---- the host's side ------------------------------------------------------------------------ */

static bool arrived(const rill__mail *m, uint32_t number) {
    return __atomic_load_n(&m->letter->ready, __ATOMIC_ACQUIRE) == number;
}

static bool over(const rill__mail *m, uint32_t number) {
    return __atomic_load_n(&m->letter->done, __ATOMIC_ACQUIRE) == number;
}

static rill__mailed read_letter(const rill__mail *m) {
    const rill__cuda_letter *l = m->letter;
    return (rill__mailed){.n = l->found.count,
                          .idx = m->outbox,
                          .val = m->outbox + lined(4 * m->rooms.own),
                          .nonfinite = l->found.nonfinite,
                          .least = l->found.count ? l->least : 0,
                          .above = l->above};
}

static size_t part_bytes(const rill__mail *m, const rill__mail_part *p) {
    return (p->dense ? 0 : lined(4 * p->n)) + lined(m->size * p->n);
}

static bool fits(const rill__mail *m, const rill__mail_answer *a) {
    size_t bytes = lined((size_t)a->n_parts * sizeof(rill__cuda_part)) + part_bytes(m, &a->result);
    for (int i = 0; i < a->n_parts; i++)
        bytes += part_bytes(m, &a->parts[i]);
    return bytes <= m->inbox_bytes;
}

static uint64_t put(rill__mail *m, size_t *used, const void *from, size_t bytes) {
    uint64_t at = *used;
    if (bytes && from) memcpy(m->inbox + at, from, bytes);
    *used += lined(bytes);
    return at;
}

static bool put_result(rill__mail *m, size_t *used, const rill__mail_answer *a,
                       rill__cuda_reply *r) {
    const rill__mail_part *p = &a->result;
    bool as_it_is = a->divisor == 1 && !a->checks;
    size_t values = m->size * (size_t)p->n;
    r->dense = p->dense;
    r->n = p->n;
    if (!p->dense) r->idx = put(m, used, p->idx, 4 * (size_t)p->n);
    r->val = put(m, used, as_it_is ? p->val : NULL, values);
    void *into = m->inbox + r->val;
    if (as_it_is || !p->n) return true;
    if (a->checks)
        return rill__dense_divide_finite(rill__host(), m->rooms.type, into, p->val, a->divisor,
                                         p->n);
    rill__dense_divide(rill__host(), m->rooms.type, into, p->val, a->divisor, p->n);
    return true;
}

static bool answer(rill__mail *m, const rill__mail_answer *a) {
    rill__cuda_reply r = {.nan = a->nan, .undo = a->undo, .inside = a->inside};
    size_t used = lined((size_t)a->n_parts * sizeof(rill__cuda_part));
    rill__cuda_part *list = (rill__cuda_part *)(void *)m->inbox;
    r.own = a->own == RILL__OWN_BACK      ? RILL__CUDA_OWN_ALL
            : a->own == RILL__OWN_OUTSIDE ? RILL__CUDA_OWN_OUTSIDE
                                          : RILL__CUDA_OWN_NONE;
    if (a->nan) rill__value_store(m->rooms.type, &r.bits, (double)__builtin_nanf(""));
    else if (!put_result(m, &used, a, &r)) return false;
    r.parts = (uint32_t)a->n_parts;
    for (int i = 0; i < a->n_parts; i++) {
        const rill__mail_part *p = &a->parts[i];
        list[i] = (rill__cuda_part){.dense = p->dense, .first = p->first, .n = p->n};
        if (!p->dense) list[i].idx = put(m, &used, p->idx, 4 * (size_t)p->n);
        list[i].val = put(m, &used, p->val, m->size * (size_t)p->n);
    }
    m->letter->reply = r;
    set_flag(m, a->number);
    return true;
}

const rill__space_mail rill__cuda_mail_ops = {.open = open_mail,
                                              .close = close_mail,
                                              .reserve = reserve,
                                              .post = post,
                                              .end = end,
                                              .queues = queues,
                                              .arrived = arrived,
                                              .read = read_letter,
                                              .fits = fits,
                                              .answer = answer,
                                              .over = over};
