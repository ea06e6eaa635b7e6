/* Ranks that die, or hang, in worlds of chance (link/world.h): in collectives, in steps of
 * reducers, while the others shrink; one, two at once, rank 0, all but one. The survivors must find
 * out, shrink and go on: nobody waits for ever, all have the same bits, and what was fed to the
 * reducers is in the updates or in residuals, those of the dead too. A life is known by its number.
 * Many of the lives are short: nothing but shrinking, with deaths in the midst of it.
 *   --lives N  --seed S  --only NUMBER (one life, and what it does) */
#include "life.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

/* ---- what the ranks do ----------------------------------------------------------------------- */

/* Small integers, so that sums are exact. */
static void gradient_of(int rank, int step, float *gradient) {
    rng r = rng_make(x.seed, 1000 + (uint64_t)rank * 64 + (uint64_t)step);
    for (int i = 0; i < DIM; i++)
        gradient[i] = (float)rng_below(&r, 17) - 8;
}

static void input_of(int rank, int step, float *values) {
    rng r = rng_make(x.seed, 100000 + (uint64_t)rank * 64 + (uint64_t)step);
    for (int i = 0; i < DIM; i++)
        values[i] = rng_below(&r, 3) ? 0 : (float)rng_below(&r, 9) - 4;
}

static void check_sum(survivor *s, int rank, int step, const rill_stream *out) {
    float values[DIM], sum[DIM] = {0}, got[DIM];
    for (int other = 0; other < x.ranks; other++) {
        if (!(s->mask >> other & 1)) continue;
        input_of(other, step, values);
        for (int i = 0; i < DIM; i++)
            sum[i] += values[i];
    }
    must(rank, rill_stream_get_dense(out, got), "rill_stream_get_dense");
    if (memcmp(got, sum, sizeof sum)) wrong("rank %d: the sum of step %d is wrong", rank, step);
}

/* A sum by any algorithm; and now and then other collectives beside it. */
static rill_status collective(survivor *s, int rank, int step) {
    rng r = rng_make(x.seed, 7000 + (uint64_t)step);
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = random_algorithm(&r, RILL_ALLREDUCE);
    rill_stream *in = NULL, *out = NULL, *other = NULL;
    float values[DIM];
    input_of(rank, step, values);
    must(rank, rill_stream_create(RILL_F32, DIM, &in), "create");
    must(rank, rill_stream_create(RILL_F32, DIM, &out), "create");
    must(rank, rill_stream_create(RILL_F32, DIM, &other), "create");
    must(rank, rill_stream_set_dense(in, values), "set");
    must(rank, rill_stream_to_sparse(in), "to_sparse");
    int root = (int)rng_below(&r, 64) % rill_comm_size(s->comm);
    rill_status status;
    rill_request *requests[2] = {NULL, NULL};
    uint64_t way = rng_below(&r, 4);
    tell(rank, "collective %d: %s, way %d, root %d", step, o.algorithm ? o.algorithm : "auto",
         (int)way, root);
    switch (way) {
    case 0: status = rill_allreduce(s->comm, in, out, RILL_SUM, &o); break;
    case 1:
        status = rill_iallreduce(s->comm, in, out, RILL_SUM, &o, &requests[0]);
        if (status == RILL_OK)
            status = rill_ireduce(s->comm, in, other, RILL_SUM, root, NULL, &requests[1]);
        if (status == RILL_OK) status = rill_waitall(2, requests);
        break;
    case 2:
        status = rill_allreduce_init(s->comm, in, out, RILL_SUM, &o, &requests[0]);
        for (int i = 0; i < 2 && status == RILL_OK; i++) {
            status = rill_start(requests[0]);
            int index = -1;
            if (status == RILL_OK) status = rill_waitany(1, requests, &index);
        }
        break;
    default:
        must(rank, rill_stream_copy(other, in), "copy");
        status = rill_bcast(s->comm, other, root, NULL);
        if (status == RILL_OK) status = rill_allreduce(s->comm, in, out, RILL_SUM, &o);
    }
    char detail[300];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    for (int i = 0; i < 2; i++)
        rill_request_free(&requests[i]);
    if (status == RILL_OK) check_sum(s, rank, step, out);
    rill_stream_free(&in);
    rill_stream_free(&out);
    rill_stream_free(&other);
    if (status != RILL_OK) rill_error_set(status, detail);
    return status;
}

static void apply(survivor *s, int rank) {
    int step = s->applied++;
    s->masks[step] = s->tried;
    memcpy(s->updates[step], s->update, sizeof s->update);
    /* Zeros in it count as delivered, too. */
    must(rank, rill_stream_create(RILL_F32, DIM, &s->results[step]), "create");
    must(rank, rill_stream_copy(s->results[step], s->reducer->result), "copy");
    tell(rank, "step %d is done", step);
}

/* False: the rank is out. */
static bool shrink(survivor *s, int rank) {
    rill_comm *next = NULL;
    if (x.doom[rank].at && x.doom[rank].in_move && !s->shrinks++)
        rill__world_doom(x.world, rank, (uint64_t)x.doom[rank].at, x.doom[rank].hangs);
    rill_status status = rill_comm_shrink(s->comm, &next);
    tell(rank, "shrink: %s, %d ranks", status ? rill_last_error() : "fine", rill_comm_size(next));
    if (status == RILL_ERR_STATE && x.timeout) {
        s->ended = 2;
        return false;
    }
    must(rank, status, "rill_comm_shrink");
    if (status != RILL_OK) return false;
    totals.shrinks++;
    if (s->comm != s->home) must(rank, rill_comm_free(&s->comm), "rill_comm_free");
    s->comm = next;
    return true;
}

/* Who is in the communicator, by first numbers. */
static rill_status find_members(survivor *s, int rank) {
    rill_stream *in = NULL;
    float mine[RANKS] = {0}, all[RANKS];
    mine[rank] = 1;
    must(rank, rill_stream_create(RILL_F32, RANKS, &in), "create");
    must(rank, rill_stream_set_dense(in, mine), "set");
    rill_status status = rill_allreduce(s->comm, in, in, RILL_SUM, NULL);
    if (status == RILL_OK) {
        must(rank, rill_stream_get_dense(in, all), "get");
        s->mask = 0;
        for (int i = 0; i < RANKS; i++)
            s->mask |= (uint64_t)(all[i] != 0) << i;
    }
    rill_stream_free(&in);
    return status;
}

/* A rank is gone: until the reducer is on a communicator whose members are known. in_step: this
 * rank's step has failed. */
static bool recover(survivor *s, int rank, bool in_step) {
    int failed[RANKS], n = 0;
    must(rank, rill_comm_failed(s->comm, RANKS, failed, &n), "rill_comm_failed");
    for (;;) {
        if (!shrink(s, rank)) return false;
        int again = -1;
        rill_status status = rill_reducer_move(s->reducer, s->comm, &again);
        tell(rank, "move: %s, again %d", status ? rill_last_error() : "fine", again);
        if (status == RILL_OK) {
            rill_comm *old = s->home;
            s->home = s->comm;
            must(rank, rill_comm_free(&old), "rill_comm_free");
            if (again && !in_step && !s->repeats)
                wrong("rank %d: a step is to be repeated that was none", rank);
            if (in_step && !again) {
                must(rank, rill_reducer_update(s->reducer, s->update), "rill_reducer_update");
                apply(s, rank);
                totals.late++;
            }
            totals.voids += again && in_step;
            s->repeats = again;
            in_step = again != 0;
            status = find_members(s, rank);
        }
        if (status == RILL_OK) break;
        if (status != RILL_ERR_PEER && !(status == RILL_ERR_STATE && x.timeout)) {
            must(rank, status, "recover");
            return false;
        }
    }
    if (s->reducer->steps != (uint64_t)s->applied)
        wrong("rank %d: %d steps are applied, the reducer has made %llu", rank, s->applied,
              (unsigned long long)s->reducer->steps);
    return true;
}

static rill_status one_step(survivor *s, int rank) {
    gradient_of(rank, s->applied, s->gradient);
    s->repeats = 0;
    s->tried = s->mask;
    rill_status status;
    if (x.blocking) {
        status = rill_reducer_step(s->reducer, s->gradient, s->update);
    } else {
        status = rill_reducer_start(s->reducer, s->gradient, s->update);
        if (status == RILL_OK) status = rill_reducer_wait(s->reducer);
    }
    if (status == RILL_OK) apply(s, rank);
    return status;
}

static bool is_gone(rill_status status) {
    return status == RILL_ERR_PEER || (status == RILL_ERR_STATE && x.timeout);
}

static void free_rank(int rank, void *context) {
    (void)context;
    survivor *s = &x.of[rank];
    if (!s->comm) return;
    bool same = s->comm == s->home;
    rill_reducer_free(&s->reducer);
    if (!same) must(rank, rill_comm_free(&s->home), "rill_comm_free");
    must(rank, rill_comm_free(&s->comm), "rill_comm_free");
}

/* Several hosts of one, so that hier has something to do. */
static rill_status look_up(const void *context, const char *name, char *value, size_t length,
                           bool *found) {
    (void)context;
    if (!x.hosts || strcmp(name, "hosts_of") != 0) return RILL_OK;
    snprintf(value, length, "%d", x.hosts);
    *found = true;
    return RILL_OK;
}

/* Nothing but that. */
static void live_briefly(survivor *s, int rank) {
    rill_status status;
    do
        if (!shrink(s, rank)) return;
    while ((status = find_members(s, rank)) == RILL_ERR_PEER);
    must(rank, status, "find_members");
    /* Whoever comes here has the same members as those of them who do. */
    for (int other = 0; other < x.ranks; other++)
        if (x.of[other].ended == 1 && s->mask >> other & 1 && x.of[other].mask != s->mask)
            wrong("rank %d: two groups go on", rank);
    if (!(s->mask >> rank & 1)) wrong("rank %d is not among those who go on", rank);
    s->ended = 1;
    free_rank(rank, NULL);
}

static void live(int rank, void *context) {
    (void)context;
    survivor *s = &x.of[rank];
    rill_config config = RILL_CONFIG_INIT;
    config.timeout_s = x.timeout;
    config.minority = x.minority;
    config.split_limit = (uint64_t)x.split;
    config.check = x.check;
    must(rank,
         rill__comm_open(rill__world_link(x.world, rank), &config, &(rill__info){look_up, NULL},
                         &s->comm),
         "open");
    s->home = s->comm;
    s->mask = (UINT64_C(1) << x.ranks) - 1;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = x.algorithm;
    o.select = x.select;
    o.value_bits = x.value_bits ? x.value_bits : -1;
    o.density = 0.2;
    o.average = x.average;
    o.momentum = x.momentum;
    rill_status status = RILL_OK;
    if (!x.brief) status = rill_reducer_create(s->comm, RILL_F32, DIM, &o, &s->reducer);
    if (status == RILL_ERR_UNSUPPORTED) { /* of one algorithm with another setting: all alike */
        o.value_bits = -1;
        o.select = NULL;
        status = rill_reducer_create(s->comm, RILL_F32, DIM, &o, &s->reducer);
    }
    must(rank, status, "rill_reducer_create");
    x.made++;
    while (x.made < x.ranks) /* a death before that is nobody's who could shrink */
        s->comm->engine.table->idle(s->comm->engine.link, 0);
    if (x.doom[rank].at && !x.doom[rank].in_move)
        rill__world_doom(x.world, rank, (uint64_t)x.doom[rank].at, x.doom[rank].hangs);
    if (x.brief) live_briefly(s, rank);
    while (!x.brief && !x.wrong) {
        bool in_step = false;
        status = collective(s, rank, s->applied); /* after the last step, too */
        if (status == RILL_OK && s->applied == STEPS) break;
        if (status == RILL_OK) {
            in_step = true;
            status = one_step(s, rank);
        }
        if (status == RILL_OK) continue;
        tell(rank, "step %d: %s", s->applied, rill_last_error());
        if (status == RILL_ERR_PEER && !strstr(rill_last_error(), "gone") &&
            !strstr(rill_last_error(), "shrinks"))
            wrong("rank %d: the error names nobody: %s", rank, rill_last_error());
        if (!is_gone(status)) must(rank, status, "step");
        if (!is_gone(status) || !recover(s, rank, in_step)) break;
    }
    if (!s->ended) s->ended = x.wrong ? 0 : 1;
    if (s->ended != 1 || x.brief) return; /* its state is looked at */
    memcpy(s->residual, rill_reducer_residual(s->reducer), sizeof s->residual);
    free_rank(rank, NULL);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool has_begun(const rill_reducer *r) {
    const rill_request *q = r->request;
    return q && q->task.life != RILL__IDLE && q->task.life != RILL__COMPLETE;
}

/* What a rank that died keeps, had it lived to see what became of its step. */
static void finish_dead(survivor *s, int rank) {
    rill_reducer *r = s->reducer;
    int step = (int)r->steps;
    bool counts = step < STEPS && x.judge->masks[step] >> rank & 1;
    bool open = has_begun(r), undone = r->moving.interrupted;
    if (open) { /* as if it had learned that somebody is gone */
        rill__reducer_interrupt(r);
        undone = true;
    }
    /* Its last step, which it has applied, may be void for those who live. */
    if (s->applied && !(x.judge->masks[s->applied - 1] >> rank & 1)) x.unknown = true;
    if (!counts) return;
    if (!undone) {
        wrong("step %d counts, but rank %d had no part in it", step, rank);
        return;
    }
    must(rank, rill_stream_copy(r->result, x.judge->results[step]), "copy");
    r->moving.last_void = false;
    must(rank, rill__reducer_complete_late(r), "complete");
    s->applied = step + 1;
}

static void check_balance(void) {
    double sum[DIM] = {0}, most = 0;
    for (int rank = 0; rank < x.ranks; rank++) {
        survivor *s = &x.of[rank];
        /* Who died while it freed all has no reducer. */
        if (s->ended != 1 && s->reducer) finish_dead(s, rank);
        const float *residual = s->ended == 1 ? s->residual : rill_reducer_residual(s->reducer);
        for (int i = 0; i < DIM; i++)
            sum[i] -= residual[i];
    }
    for (int step = 0; step < STEPS; step++) {
        int n = 0;
        for (int rank = 0; rank < x.ranks; rank++) {
            if (!(x.judge->masks[step] >> rank & 1)) continue;
            float g[DIM];
            gradient_of(rank, step, g);
            n++;
            for (int i = 0; i < DIM; i++)
                sum[i] += g[i];
        }
        for (int i = 0; i < DIM; i++)
            sum[i] -= (x.average ? n : 1) * (double)x.judge->updates[step][i];
    }
    for (int i = 0; i < DIM; i++)
        most = fmax(most, fabs(sum[i]));
    if (!(most <= 2e-3) && !x.unknown) wrong("%g of an entry is lost", most);
}

static void check_life(void) {
    int ended = 0;
    for (int rank = 0; rank < x.ranks; rank++) {
        const survivor *s = &x.of[rank];
        ended += s->ended == 1;
        totals.excluded += s->ended == 2;
        if (s->ended != 1) continue;
        if (s->applied != STEPS && !x.brief) wrong("rank %d: %d steps", rank, s->applied);
        if (!x.judge) x.judge = s;
        if (memcmp(s->updates, x.judge->updates, sizeof s->updates))
            wrong("rank %d: other bits than those of rank %d", rank, (int)(x.judge - x.of));
        if (memcmp(s->masks, x.judge->masks, sizeof s->masks))
            wrong("rank %d: a step is done by two groups", rank);
    }
    if (!ended && !x.timeout) wrong("nobody came to the end");
    totals.alone += ended == 1;
    if (x.judge && !x.wrong && !x.brief && x.momentum == 0) check_balance();
}

static void describe(void) {
    fprintf(stderr, "life %llu is wrong: %s\n  %d ranks, %s, select %s, bits %d, timeout %d\n",
            (unsigned long long)x.number, x.wrong ? x.first : rill_last_error(), x.ranks,
            x.algorithm ? x.algorithm : "auto", x.select ? x.select : "-", x.value_bits, x.timeout);
    for (int rank = 0; rank < x.ranks; rank++) {
        const survivor *s = &x.of[rank];
        fprintf(stderr, "  rank %d: doom %d%s, hangs %g; %d steps%s%s\n", rank, x.doom[rank].at,
                x.doom[rank].in_move ? " in shrink" : "", x.doom[rank].hangs, s->applied,
                rill__world_dead(x.world, rank) ? ", dead" : "",
                rill__world_stuck(x.world, rank) ? ", waits for ever" : "");
    }
}

static void run_life(uint64_t seed, uint64_t number) {
    if (number % 2) setenv("RILL_READ_BYTES", "1", 1); /* dense sums read others' memory */
    else unsetenv("RILL_READ_BYTES");
    life_make(seed, number);
    rill__world_options options = {.kind = RILL__CHANCE, .ranks = x.ranks, .seed = x.seed};
    if (rill__world_create(&options, &x.world) != RILL_OK) exit(2);
    rill_status ended = rill__world_run(x.world, live, NULL);
    for (int rank = 0; rank < x.ranks; rank++) {
        bool dead = rill__world_dead(x.world, rank);
        totals.deaths += dead && x.doom[rank].hangs == 0;
        totals.hangs += x.doom[rank].hangs != 0 && x.of[rank].ended != 1;
    }
    if (ended == RILL_OK) check_life();
    for (int rank = 0; rank < x.ranks; rank++)
        for (int step = 0; step < STEPS; step++)
            rill_stream_free(&x.of[rank].results[step]);
    totals.lives++;
    totals.stuck += ended != RILL_OK;
    totals.wrong += x.wrong != 0;
    if (ended != RILL_OK || x.wrong) describe();
    if (ended != RILL_OK || x.wrong) return; /* as it stands */
    /* The dead stay dead: their memory is the program's last. */
    if (rill__world_run(x.world, free_rank, NULL) != RILL_OK || x.wrong) {
        totals.stuck++;
        fprintf(stderr, "life %llu: freeing: %s\n", (unsigned long long)number,
                x.wrong ? x.first : rill_last_error());
        return;
    }
    rill__world_free(x.world); /* what the dead had is lost */
}

static uint64_t argument(int argc, char **argv, const char *name, uint64_t otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return strtoull(argv[i + 1], NULL, 0);
    return otherwise;
}

int main(int argc, char **argv) {
    uint64_t n = argument(argc, argv, "--lives", 1000), seed = argument(argc, argv, "--seed", 1);
    uint64_t only = argument(argc, argv, "--only", UINT64_MAX);
    setenv("RILL_PROFILE", "none", 1);
#ifdef __SANITIZE_ADDRESS__
    __lsan_disable(); /* the dead free nothing; tests/unit/test_gone.c looks for leaks */
#endif
    x.verbose = only != UINT64_MAX;
    if (only != UINT64_MAX) run_life(seed, only);
    for (uint64_t i = 0; only == UINT64_MAX && i < n; i++) {
        run_life(seed, i);
        if (totals.stuck + totals.wrong >= 10) break;
    }
    printf(
        "%ld lives (seed %llu): %ld deaths, %ld hangs; %ld shrinks, %ld steps void, %ld "
        "completed late, %ld told to stay out, %ld ended alone; %ld wrong, %ld waited for ever\n",
        totals.lives, (unsigned long long)seed, totals.deaths, totals.hangs, totals.shrinks,
        totals.voids, totals.late, totals.excluded, totals.alone, totals.wrong, totals.stuck);
    bool enough = totals.lives < 500 || (totals.deaths && totals.hangs && totals.voids &&
                                         totals.late && totals.excluded && totals.alone);
    if (!enough) fprintf(stderr, "the lives did too little\n");
    return totals.stuck || totals.wrong || !enough;
}
