/* Who goes on: the agreement of rill_comm_shrink.
 *
 * Idea. The lowest rank that lives leads. It proposes an epoch and the set of those who are gone,
 * and all who live answer with their own sets. Where one of them knows of more, the leader proposes
 * anew; when all have the same set, it commits. Who gets a commit sends it to all others before it
 * goes on, so that if one survivor has it, all have.
 * Deaths. A leader that dies is succeeded by the next rank, with a higher ballot. Who has answered
 * a ballot takes no commit of a lower one, since its leader counts on that; but a leader that
 * hears of an earlier commit, from one that lives and has gone on, makes it its own. One that
 * nobody who lives has gone on with is void: the leader has all their answers, and whoever has
 * gone on does not answer.
 * Parted networks. Ranks that are silent may live elsewhere and do the same. Only more than half
 * of those who are not known to be dead may go on, or one half with the lowest of them.
 * Cost. Three messages for each rank, and P^2 small ones at the end. */
#include "link/subset.h"
#include "req/request.h"

#include <stdlib.h>
#include <string.h>

enum { PROPOSE, ANSWER, COMMIT };
enum { MAGIC = 0x4b4e5253, POLLS_BETWEEN_LOOKS = 16, POLLS = 10000 };

/* The fates of all ranks follow, one byte each. */
typedef struct word {
    uint32_t magic;
    uint8_t kind, minority;
    int16_t status;
    uint32_t attempt, epoch;
    uint32_t ballot;
    int32_t leader;
    uint64_t key; /* the link's */
} word;

typedef struct talk {
    rill__engine *engine;
    rill_status mine, worst;
    bool minority;
    size_t bytes;      /* of a message */
    word *in, *out;    /* room for one each */
    word *proposed;    /* this rank's, where it leads */
    word *seen;        /* an earlier commit than may be taken; kind 0: none */
    uint8_t *answered; /* by rank */
    bool leads, decided;
    uint64_t promised; /* the highest ballot so far */
    word *commit;
} talk;

static uint8_t *fates_of(word *w) { return (uint8_t *)(w + 1); }
static uint64_t ballot_of(const word *w) { return (uint64_t)w->ballot << 32 | (uint32_t)w->leader; }

/* ---- messages -------------------------------------------------------------------------------- */

static void send_to(talk *t, int to, const word *w) {
    if (to == t->engine->rank || t->engine->peers.fate[to]) return;
    for (int polls = 0; polls < POLLS; polls++) {
        if (rill__send_aside(t->engine, to, RILL__TAG_SHRINK, w, t->bytes)) return;
        rill__orphans_done(t->engine); /* their memory comes back */
    }
}

static void send_to_all(talk *t, const word *w) {
    for (int i = 1; i < t->engine->size; i++)
        send_to(t, (t->engine->rank + i) % t->engine->size, w);
}

static word head(const talk *t, int kind) {
    return (word){.magic = MAGIC,
                  .kind = (uint8_t)kind,
                  .attempt = t->engine->peers.attempt,
                  .leader = t->engine->rank,
                  .key = t->engine->link->key};
}

/* What the sender knows of is known here. */
static void learn(talk *t, word *w, int source) {
    for (int i = 0; i < t->engine->size; i++)
        rill__peers_raise(t->engine, i, fates_of(w)[i], source);
}

/* ---- the leader ------------------------------------------------------------------------------ */

static bool is_all_answered(const talk *t) {
    for (int i = 0; i < t->engine->size; i++)
        if (i != t->engine->rank && !t->engine->peers.fate[i] && !t->answered[i]) return false;
    return true;
}

static void propose(talk *t) {
    rill__engine *engine = t->engine;
    word *w = t->proposed;
    *w = head(t, PROPOSE);
    w->ballot = (uint32_t)(t->promised >> 32) + 1;
    w->epoch = rill__subset_epoch(engine->link, 0) + 1;
    rill__subset_epoch(engine->link, w->epoch);
    memcpy(fates_of(w), engine->peers.fate, (size_t)engine->size);
    memset(t->answered, 0, (size_t)engine->size);
    t->leads = true;
    t->promised = ballot_of(w);
    t->worst = t->mine;
    send_to_all(t, w);
}

/* Whether those who live are enough, should the silent ones live, too. */
static bool is_majority(const talk *t, const uint8_t *fate) {
    int here = 0, maybe = 0, lowest = -1;
    for (int i = 0; i < t->engine->size; i++) {
        here += fate[i] == RILL__LIVES;
        maybe += fate[i] != RILL__DEAD;
        if (lowest < 0 && fate[i] != RILL__DEAD) lowest = i;
    }
    return 2 * here > maybe || (2 * here == maybe && fate[lowest] == RILL__LIVES);
}

/* Before anybody acts on it, all others are sent it. */
static void decide(talk *t, const word *w) {
    memcpy(t->commit, w, t->bytes);
    t->decided = true;
    send_to_all(t, t->commit);
}

static void commit(talk *t) {
    word *w = t->proposed;
    w->kind = COMMIT;
    w->status = (int16_t)t->worst;
    w->minority = !t->minority && !is_majority(t, fates_of(w));
    if (w->epoch >= RILL__EPOCHS && !w->status) w->status = RILL_ERR_UNSUPPORTED;
    decide(t, w);
}

/* An earlier commit that somebody has gone on with, under this leader's ballot. */
static void adopt(talk *t, word *w) {
    w->ballot = t->proposed->ballot;
    w->leader = t->engine->rank;
    decide(t, w);
}

static void lead(talk *t) {
    rill__engine *engine = t->engine;
    int lowest = 0;
    while (lowest < engine->rank && engine->peers.fate[lowest])
        lowest++;
    if (lowest != engine->rank) {
        t->leads = false;
        return;
    }
    bool same = t->leads && t->promised == ballot_of(t->proposed) &&
                memcmp(fates_of(t->proposed), engine->peers.fate, (size_t)engine->size) == 0;
    if (!same) propose(t);
    if (t->seen->kind) adopt(t, t->seen);
    else if (is_all_answered(t)) commit(t);
}

/* ---- what comes ------------------------------------------------------------------------------ */

static void take_proposal(talk *t, word *w, int source) {
    rill__engine *engine = t->engine;
    word *answer = t->out;
    *answer = head(t, ANSWER);
    if (ballot_of(w) > t->promised) t->promised = ballot_of(w);
    answer->ballot = (uint32_t)(t->promised >> 32);
    answer->leader = (int32_t)(uint32_t)t->promised;
    answer->status = (int16_t)t->mine;
    answer->epoch = rill__subset_epoch(engine->link, 0);
    rill__subset_epoch(engine->link, w->epoch);
    memcpy(fates_of(answer), engine->peers.fate, (size_t)engine->size);
    send_to(t, source, answer);
}

static void take_answer(talk *t, const word *w, int source) {
    if (!t->leads) return;
    if (ballot_of(w) > t->promised) t->promised = ballot_of(w);
    if (ballot_of(w) != ballot_of(t->proposed)) return;
    if (w->epoch >= t->proposed->epoch) { /* that epoch has been in use */
        rill__subset_epoch(t->engine->link, w->epoch);
        t->leads = false;
        return;
    }
    t->answered[source] = 1;
    if (w->status < (int)t->worst) t->worst = (rill_status)w->status;
}

static void take_commit(talk *t, word *w) {
    if (ballot_of(w) >= t->promised) {
        decide(t, w);
    } else if (t->leads) {
        adopt(t, w);
    } else {
        memcpy(t->seen, w, t->bytes);
    }
}

/* The one after the last is proposed, and refused by a status. */
static bool is_epoch(const word *w) {
    return w->epoch < RILL__EPOCHS ||
           (w->epoch == RILL__EPOCHS && (w->kind != COMMIT || w->status));
}

static void take(talk *t, size_t bytes, int source) {
    word *w = t->in;
    bool whole = bytes == t->bytes && w->magic == MAGIC;
    if ((!whole || w->key != t->engine->link->key) && t->engine->link->key)
        rill__count_stranger(t->engine, source);
    if (!whole || w->key != t->engine->link->key || w->kind > COMMIT ||
        w->attempt != t->engine->peers.attempt || !is_epoch(w))
        return;
    if (w->kind == COMMIT) {
        if (fates_of(w)[t->engine->rank]) learn(t, w, source);
        else take_commit(t, w);
        return;
    }
    learn(t, w, source);
    if (t->engine->peers.excluded) return;
    if (w->kind == PROPOSE) take_proposal(t, w, source);
    else take_answer(t, w, source);
}

static void receive_all(talk *t) {
    rill__engine *engine = t->engine;
    rill__arrival came;
    rill__wire wire;
    while (!t->decided &&
           engine->table->probe(engine->link, RILL__ANY, RILL__TAG_SHRINK, 1, &came) == RILL_OK) {
        bool fits = came.bytes <= t->bytes;
        rill_status status = engine->table->receive(engine->link, &came, RILL__TAG_SHRINK,
                                                    fits ? t->in : NULL, true, &wire);
        if (status == RILL_OK) status = rill__link_wait(engine->link, &wire);
        engine->received[came.source]++;
        if (!fits && engine->link->key) rill__count_stranger(engine, came.source);
        if (fits && status == RILL_OK && !engine->peers.fate[came.source])
            take(t, came.bytes, came.source);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool reserve(talk *t) {
    size_t size = (size_t)t->engine->size;
    t->bytes = sizeof(word) + size;
    char *room = rill__calloc(5, rill__align8(t->bytes));
    t->in = (word *)(void *)room;
    t->answered = rill__calloc(size, 1);
    if (!room || !t->answered) return false;
    word **all[] = {&t->in, &t->out, &t->proposed, &t->seen, &t->commit};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = (word *)(void *)(room + i * rill__align8(t->bytes));
    return true;
}

static void discuss(talk *t) {
    rill__engine *engine = t->engine;
    engine->peers.idle_since = engine->table->clock(engine->link);
    for (unsigned polls = 0; !t->decided && !engine->peers.excluded; polls++) {
        receive_all(t);
        if (t->decided || engine->peers.excluded) return;
        if (polls % POLLS_BETWEEN_LOOKS == 0) {
            rill__receive_notes(engine);
            rill__peers_poll(engine);
            rill__peers_wait(engine);
        }
        if (engine->peers.excluded) return;
        lead(t);
        if (t->decided) return;
        engine->idle_polls++;
        rill__give_way(engine);
    }
}

static rill_status outcome(talk *t, int *ranks, int *n, unsigned *epoch) {
    rill__engine *engine = t->engine;
    if (!t->decided) return rill__peers_error(engine);
    const uint8_t *fate = fates_of(t->commit);
    *epoch = t->commit->epoch;
    *n = 0;
    for (int i = 0; i < engine->size; i++)
        if (fate[i] == RILL__LIVES) ranks[(*n)++] = i;
    if (t->commit->minority)
        return rill__fail(RILL_ERR_STATE,
                          "only %d of %d ranks are here, and the others may live: fewer than half "
                          "go on where the setting minority lets them",
                          *n, engine->size);
    if (t->commit->status == RILL_ERR_UNSUPPORTED)
        return rill__fail(RILL_ERR_UNSUPPORTED, "there is no epoch after %d", RILL__EPOCHS - 1);
    if (t->commit->status)
        return rill__fail((rill_status)t->commit->status, "another rank: %s",
                          rill_strerror((rill_status)t->commit->status));
    return RILL_OK;
}

rill_status rill__shrink_agree(rill__engine *engine, rill_status mine, bool minority, int *ranks,
                               int *n, unsigned *epoch) {
    talk t = {.engine = engine, .mine = mine, .minority = minority};
    if (!reserve(&t)) {
        free(t.in);
        free(t.answered);
        rill__peers_leave(engine); /* the others need not wait */
        return rill__fail(RILL_ERR_MEMORY, "out of memory for an agreement");
    }
    char detail[200];
    strncpy(detail, mine == RILL_OK ? "" : rill_last_error(), sizeof detail - 1);
    detail[sizeof detail - 1] = '\0';
    discuss(&t);
    rill_status status = outcome(&t, ranks, n, epoch);
    engine->peers.attempt++;
    if (mine != RILL_OK && status == mine) rill__set_error(detail);
    free(t.in);
    free(t.answered);
    return status;
}
