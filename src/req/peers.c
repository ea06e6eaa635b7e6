/* Ranks that are gone.
 *
 * Idea. The link says who has died; the first who knows tells all others, in a note, and what is
 * known only grows. From then on the communicator is revoked: every call of every survivor ends
 * with RILL_ERR_PEER, the pending ones too, since who waits for a rank that is alive may wait for
 * one that waits for the dead. A rank that hangs is found by a question that it does not answer in
 * time, where the setting timeout_s asks for that; the others go on without it, and it is told.
 * Nobody relays a note: if its sender dies, the link says so to all, and they revoke for that. */
#include "req/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 32, RANK_BITS = 30 }; /* ranks in one note */
#define ASK_AFTER 0.25                /* of the timeout: this long nothing came */

rill_status rill__peers_reserve(rill__engine *engine) {
    rill__peers *p = &engine->peers;
    size_t n = (size_t)engine->size;
    p->fate = rill__calloc(n, sizeof *p->fate);
    p->said = rill__calloc(n, sizeof *p->said);
    p->owed = rill__calloc(n, sizeof *p->owed);
    p->heard = rill__calloc(n, sizeof *p->heard);
    return p->fate && p->said && p->owed && p->heard
               ? RILL_OK
               : rill__fail(RILL_ERR_MEMORY, "out of memory for a communicator");
}

void rill__peers_free(rill__engine *engine) {
    free(engine->peers.fate);
    free(engine->peers.said);
    free(engine->peers.owed);
    free(engine->peers.heard);
}

/* ---- telling --------------------------------------------------------------------------------- */

static void tell(rill__engine *engine, const uint32_t *list, unsigned n) {
    rill__header header = {.form = RILL__M_GONE,
                           .origin = engine->rank,
                           .count = n,
                           .value_size = n * sizeof *list,
                           .dim = UINT64_MAX};
    rill__header_seal(&header, engine->seal);
    rill__send_note(engine, &header, (const char *)list);
}

static void tell_all(rill__engine *engine) {
    uint32_t list[LISTED];
    unsigned n = 0;
    bool told = false;
    for (int i = 0; i < engine->size; i++) {
        if (!engine->peers.fate[i]) continue;
        list[n++] = (uint32_t)i | (uint32_t)engine->peers.fate[i] << RANK_BITS;
        if (n < LISTED) continue;
        tell(engine, list, n);
        told = true;
        n = 0;
    }
    if (n || !told) tell(engine, list, n);
}

/* Calls that lack a rank end (engine.c): from the first on. Who frees the communicator will not go
 * on with the others. */
void rill__peers_revoke(rill__engine *engine, bool tells) {
    engine->peers.revoked = true;
    engine->left_from = 0;
    for (int i = 0; i < engine->size; i++)
        if (engine->peers.said[i]) rill__peers_raise(engine, i, RILL__DEAD, engine->rank);
    if (tells) tell_all(engine);
}

void rill__peers_leave(rill__engine *engine) {
    if (engine->peers.shrunk || engine->peers.excluded) return;
    uint32_t self = (uint32_t)engine->rank | (uint32_t)RILL__DEAD << RANK_BITS;
    tell(engine, &self, 1);
}

rill_status rill__peers_error(const rill__engine *engine) {
    const rill__peers *p = &engine->peers;
    if (p->excluded && p->excluder == RILL__ANY)
        return rill__fail(RILL_ERR_STATE,
                          "the others go on without this rank, which did not answer them");
    if (p->excluded)
        return rill__fail(RILL_ERR_STATE,
                          "rank %d and others go on without this rank, which did not answer them",
                          p->excluder);
    char list[120] = "";
    size_t at = 0;
    int n = 0;
    for (int i = 0; i < engine->size; i++) {
        if (!p->fate[i]) continue;
        n++;
        if (at + 16 < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? ", " : "", i);
    }
    if (!n) return rill__fail(RILL_ERR_PEER, "another rank shrinks the communicator");
    return rill__fail(RILL_ERR_PEER, n == 1 ? "rank %s is gone" : "ranks %s are gone", list);
}

/* ---- learning -------------------------------------------------------------------------------- */

void rill__peers_raise(rill__engine *engine, int rank, unsigned fate, int teller) {
    rill__peers *p = &engine->peers;
    if (rank < 0 || rank >= engine->size || fate > RILL__DEAD || !fate) return;
    if (rank == engine->rank) {
        p->excluded = true;
        p->excluder = teller;
        return;
    }
    if (p->fate[rank] >= fate) return;
    bool lived = !p->fate[rank];
    p->fate[rank] = (uint8_t)fate;
    if (lived) engine->table->give_up(engine->link, rank);
}

/* Raised: in sum. */
static unsigned known(const rill__engine *engine) {
    unsigned sum = 0;
    for (int i = 0; i < engine->size; i++)
        sum += engine->peers.fate[i];
    return sum;
}

/* By this rank's own thread. */
static void answer_all(rill__engine *engine) {
    rill__peers *p = &engine->peers;
    if (!p->owes || p->helped) return;
    rill__header answer = {.form = RILL__M_PING, .first = 1, .dim = UINT64_MAX};
    rill__header_seal(&answer, engine->seal);
    p->owes = false;
    for (int i = 0; i < engine->size; i++) {
        if (!p->owed[i]) continue;
        p->owed[i] = !rill__send_aside(engine, i, RILL__TAG_PEERS, &answer, sizeof answer);
        p->owes |= p->owed[i];
    }
}

/* A link may say yes once too often: the others need not hear the same again. */
void rill__peers_poll(rill__engine *engine) {
    if (!engine->table->failed) return;
    answer_all(engine);
    unsigned before = engine->peers.revoked ? known(engine) : 0;
    if (!engine->table->failed(engine->link, engine->peers.fate)) return;
    if (engine->peers.fate[engine->rank]) {
        engine->peers.fate[engine->rank] = RILL__LIVES;
        if (!engine->peers.excluded) engine->peers.excluder = RILL__ANY;
        engine->peers.excluded = true;
        rill__peers_revoke(engine, false);
    }
    if (known(engine) > before) rill__peers_revoke(engine, true);
}

/* Who was given up, and does not know yet, may take the others for silent: nobody listens to it. */
static void hear_gone(rill__engine *engine, const rill__message *note, int source) {
    if (engine->peers.fate[source]) return;
    for (uint64_t i = 0; i < note->header.count; i++) {
        uint32_t word;
        memcpy(&word, note->payload + i * sizeof word, sizeof word);
        rill__peers_raise(engine, (int)(word & ((UINT32_C(1) << RANK_BITS) - 1)), word >> RANK_BITS,
                          source);
    }
    rill__peers_revoke(engine, false);
}

void rill__peers_hear(rill__engine *engine, const rill__message *note, int source) {
    if (!engine->table->failed) return;
    if (note->header.form == RILL__M_GONE) {
        hear_gone(engine, note, source);
    } else if (!note->header.first) {
        engine->peers.owed[source] = 1;
        engine->peers.owes = true;
        answer_all(engine);
    }
}

/* ---- hanging --------------------------------------------------------------------------------- */

static void ask(rill__engine *engine, double now) {
    rill__peers *p = &engine->peers;
    rill__header header = {.form = RILL__M_PING, .dim = UINT64_MAX};
    rill__header_seal(&header, engine->seal);
    p->asked = now;
    memcpy(p->heard, engine->received, (size_t)engine->size * sizeof *p->heard);
    rill__send_note(engine, &header, "");
}

/* Any message is an answer. Who is told to be gone learns of it before the link drops what goes
 * there. */
static void judge(rill__engine *engine, double now) {
    rill__peers *p = &engine->peers;
    bool silent = false;
    p->asked = 0;
    p->idle_since = now;
    for (int i = 0; i < engine->size; i++) {
        if (i == engine->rank || p->fate[i] || engine->received[i] > p->heard[i]) continue;
        p->fate[i] = RILL__SILENT;
        silent = true;
    }
    if (!silent) return;
    rill__peers_revoke(engine, true);
    for (int i = 0; i < engine->size; i++)
        if (p->fate[i] == RILL__SILENT) engine->table->give_up(engine->link, i);
}

void rill__peers_wait(rill__engine *engine) {
    rill__peers *p = &engine->peers;
    if (!p->timeout || !engine->table->failed) return;
    double now = engine->table->clock(engine->link), gap = now - p->looked;
    p->looked = now;
    /* This rank itself was away: the others had no chance to be heard. */
    if (gap > ASK_AFTER * p->timeout) {
        p->asked = 0;
        p->idle_since = now;
    }
    if (!p->asked && now - p->idle_since > ASK_AFTER * p->timeout) ask(engine, now);
    else if (p->asked && now - p->asked > p->timeout) judge(engine, now);
}
