/* Real processes over UCX, some of which are killed (SIGKILL), or stopped and let go on (SIGSTOP),
 * in the middle of collectives and steps of reducers. The others must find out, shrink and go on:
 * nobody waits for ever, all have the same bits, void steps leave residuals as they were, and what
 * is fed afterwards is in updates or residuals. tests/world/test_deaths.c has the same with every
 * order of messages.
 *   --kills N (runs)  --seed S  --ranks P (most, 2 to 8)  --only NUMBER
 *   --mail BYTES (messages up to these go by shared memory, which ranks poll) */
#include "support/model.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 8, STEPS = 40, DIM = 4000, LIMIT_S = 120, SKIPPED = 77 };

/* What a process leaves for the one that looks at it. */
typedef struct seat {
    atomic_int step;     /* that it is in */
    atomic_int recovers; /* it knows of a death, and shrinks */
    atomic_int state;    /* 0: on its way; 1: it came to the end; 2: it was told to stay out */
    double told;         /* when its first call failed */
    double went_on;      /* when it had a reducer on a communicator of survivors */
    uint64_t bits[STEPS];
    uint64_t mask[STEPS]; /* how many took part */
    int voids, late, shrinks;
    float left[DIM], fed[DIM], given[DIM]; /* since the last change of members */
    char error[300];
} seat;

typedef struct table {
    pthread_barrier_t barrier;
    char brought[RANKS][1 << 16];
    atomic_int ready;
    seat seat[RANKS];
} table;

typedef struct plan {
    uint64_t seed;
    int ranks, victims, victim[2], at[2], wait_us[2];
    bool stops, in_shrink; /* the second one dies while it shrinks after the first */
    const char *algorithm;
} plan;

static table *t;
static plan p;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static int meet(const void *mine, size_t bytes, void *all, void *context) {
    int rank = *(const int *)context;
    if (bytes > sizeof t->brought[0]) return 1;
    memcpy(t->brought[rank], mine, bytes);
    pthread_barrier_wait(&t->barrier);
    for (int i = 0; i < p.ranks; i++)
        memcpy((char *)all + (size_t)i * bytes, t->brought[i], bytes);
    pthread_barrier_wait(&t->barrier);
    return 0;
}

static void give_up(seat *s, const char *what) {
    snprintf(s->error, sizeof s->error, "%.80s: %.200s", what, rill_last_error());
    _exit(1);
}

static void must(seat *s, rill_status status, const char *what) {
    if (status == RILL_OK) return;
    if (status == RILL_ERR_UNSUPPORTED && strcmp(what, "create") == 0) _exit(SKIPPED);
    give_up(s, what);
}

static void gradient_of(int rank, int step, float *gradient) {
    rng r = rng_make(p.seed, 1000 + (uint64_t)rank * 64 + (uint64_t)step);
    for (int i = 0; i < DIM; i++)
        gradient[i] = (float)rng_below(&r, 17) - 8;
}

typedef struct runner {
    seat *s;
    int rank;
    rill_comm *comm, *home;
    rill_reducer *reducer;
    int applied;
    bool in_step;
    float gradient[DIM], update[DIM], before[DIM];
} runner;

static void apply(runner *x) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    const unsigned char *bytes = (const unsigned char *)x->update;
    for (size_t i = 0; i < sizeof x->update; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    x->s->bits[x->applied++] = h;
    atomic_store(&x->s->step, x->applied);
}

static void begin_account(runner *x) {
    memcpy(x->s->left, rill_reducer_residual(x->reducer), sizeof x->s->left);
    memset(x->s->fed, 0, sizeof x->s->fed);
    memset(x->s->given, 0, sizeof x->s->given);
}

/* What a void step has left is what was there before it. */
static void check_void(runner *x) {
    const float *residual = rill_reducer_residual(x->reducer);
    for (int i = 0; i < DIM; i++)
        if (!(fabsf(residual[i] - x->before[i]) <= 1e-3f)) {
            rill_error_set(RILL_ERR_STATE, "a void step has changed the residual");
            give_up(x->s, "move");
        }
}

/* False: the others go on without this rank. */
static bool recover(runner *x) {
    seat *s = x->s;
    if (s->told == 0) s->told = now_s();
    atomic_store(&s->recovers, 1);
    for (;;) {
        rill_comm *next = NULL;
        rill_status status = rill_comm_shrink(x->comm, &next);
        if (status == RILL_ERR_STATE && p.stops) return false;
        must(s, status, "shrink");
        s->shrinks++;
        if (x->comm != x->home) must(s, rill_comm_free(&x->comm), "free");
        x->comm = next;
        int again = 0;
        status = rill_reducer_move(x->reducer, x->comm, &again);
        if (status == RILL_ERR_PEER || (status == RILL_ERR_STATE && p.stops)) continue;
        must(s, status, "move");
        must(s, rill_comm_free(&x->home), "free");
        x->home = x->comm;
        s->voids += again;
        if (again) check_void(x);
        if (x->in_step && !again) {
            must(s, rill_reducer_update(x->reducer, x->update), "update");
            apply(x);
            s->late++;
        }
        x->in_step = false;
        s->went_on = now_s();
        begin_account(x);
        return true;
    }
}

static rill_status sum(runner *x) {
    rng r = rng_make(p.seed, 7000 + (uint64_t)x->applied);
    rill_options o = RILL_OPTIONS_INIT;
    int n = 0;
    while (rill_algorithm_at(RILL_ALLREDUCE, n, NULL))
        n++;
    o.algorithm = rill_algorithm_at(RILL_ALLREDUCE, (int)rng_below(&r, (uint64_t)n), NULL);
    float values[64] = {0}, all[64];
    values[x->rank] = 1;
    rill_stream *in = NULL;
    must(x->s, rill_stream_create(RILL_F32, 64, &in), "stream");
    must(x->s, rill_stream_set_dense(in, values), "stream");
    rill_status status = rill_allreduce(x->comm, in, in, RILL_SUM, &o);
    if (status == RILL_OK) {
        must(x->s, rill_stream_get_dense(in, all), "stream");
        uint64_t mask = 0;
        for (int i = 0; i < RANKS; i++)
            mask |= (uint64_t)(all[i] == 1) << i;
        if (__builtin_popcountll(mask) != rill_comm_size(x->comm)) give_up(x->s, "a wrong sum");
    }
    rill_stream_free(&in);
    return status;
}

/* Between steps, as training does. */
static rill_status tell(runner *x) {
    int mine = x->rank, all[RANKS] = {0}, said = x->applied;
    rill_status status = rill_comm_gather_bytes(x->comm, &mine, sizeof mine, all);
    if (status == RILL_OK && all[rill_comm_rank(x->comm)] != mine) give_up(x->s, "wrong bytes");
    if (status == RILL_OK) status = rill_comm_bcast_bytes(x->comm, &said, sizeof said, 0);
    if (status == RILL_OK && said != x->applied) give_up(x->s, "another step");
    return status;
}

static rill_status step(runner *x) {
    gradient_of(x->rank, x->applied, x->gradient);
    memcpy(x->before, rill_reducer_residual(x->reducer), sizeof x->before);
    x->in_step = true;
    x->s->mask[x->applied] = (uint64_t)rill_comm_size(x->comm);
    rill_status status = rill_reducer_step(x->reducer, x->gradient, x->update);
    if (status != RILL_OK) return status;
    for (int i = 0; i < DIM; i++) {
        x->s->fed[i] += x->gradient[i];
        x->s->given[i] += x->update[i];
    }
    apply(x);
    x->in_step = false;
    return RILL_OK;
}

static void live(int rank) {
    static runner x;
    x.rank = rank;
    x.s = &t->seat[rank];
    rill_bootstrap boot = RILL_BOOTSTRAP_INIT;
    boot.rank = rank;
    boot.ranks = p.ranks;
    boot.allgather = meet;
    boot.context = &rank;
    rill_config config = RILL_CONFIG_INIT;
    config.timeout_s = p.stops ? 4 : 0; /* ranks of a busy machine must answer in that time */
    must(x.s, rill_comm_create_ucx(&boot, &config, &x.comm), "create");
    x.home = x.comm;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = p.algorithm;
    o.density = 0.05;
    o.average = 0;
    must(x.s, rill_reducer_create(x.comm, RILL_F32, DIM, &o, &x.reducer), "reducer");
    atomic_fetch_add(&t->ready, 1);
    while (atomic_load(&t->ready) < p.ranks) /* a death before that is nobody's */
        usleep(100);
    begin_account(&x);
    for (;;) {
        rill_status status = sum(&x);
        if (status == RILL_OK && x.applied == STEPS) break;
        if (status == RILL_OK && p.stops) status = tell(&x);
        if (status == RILL_OK) status = step(&x);
        if (status == RILL_OK) continue;
        if (status != RILL_ERR_PEER && !(status == RILL_ERR_STATE && p.stops))
            must(x.s, status, "step");
        if (!recover(&x)) {
            atomic_store(&x.s->state, 2);
            _exit(0);
        }
    }
    const float *residual = rill_reducer_residual(x.reducer);
    for (int i = 0; i < DIM; i++)
        x.s->left[i] -= residual[i];
    must(x.s, rill_reducer_free(&x.reducer), "reducer_free");
    must(x.s, rill_comm_free(&x.comm), "free");
    atomic_store(&x.s->state, 1);
    _exit(0);
}

/* ---- who looks on ---------------------------------------------------------------------------- */

static struct {
    long runs, killed, stopped, in_shrink, first, voids, late, wrong, skipped;
    double slowest_told, slowest;
} totals;

static void plan_make(uint64_t seed, uint64_t number, int most) {
    static const char *const algorithms[] = {
        "gtopk", "oktopk", "spardl", "split_allgather", "recursive_double", "ring", NULL};
    rng r = rng_make(seed, number);
    memset(&p, 0, sizeof p);
    p.seed = rng_next(&r);
    p.ranks = 2 + (int)rng_below(&r, (uint64_t)most - 1);
    p.algorithm = algorithms[rng_below(&r, 7)];
    p.stops = p.ranks > 2 && rng_below(&r, 10) == 0;
    p.victims = p.ranks > 2 && !p.stops && rng_below(&r, 4) == 0 ? 2 : 1;
    p.victim[0] = (int)rng_below(&r, (uint64_t)p.ranks);
    p.victim[1] = (p.victim[0] + 1 + (int)rng_below(&r, (uint64_t)p.ranks - 1)) % p.ranks;
    for (int i = 0; i < 2; i++) {
        p.at[i] = (int)rng_below(&r, STEPS);
        p.wait_us[i] = (int)rng_below(&r, 2000);
    }
    if (rng_below(&r, 2)) p.at[1] = p.at[0]; /* at once */
    p.in_shrink = p.victims > 1 && rng_below(&r, 2);
    if (p.in_shrink) p.wait_us[1] /= 8;
}

static void table_make(void) {
    t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED) exit(2);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&t->barrier, &shared, (unsigned)p.ranks);
}

static bool wrong(uint64_t number, const char *what, int rank) {
    fprintf(stderr, "run %llu is wrong: rank %d: %s (%d ranks, %s, victim %d in step %d%s%s)\n",
            (unsigned long long)number, rank, what, p.ranks, p.algorithm ? p.algorithm : "auto",
            p.victim[0], p.at[0], p.victims > 1 ? ", and another" : "", p.stops ? ", stopped" : "");
    totals.wrong++;
    return false;
}

/* A victim may have come to the end before its time: then it lives. */
static void strike(const pid_t *pids, double *struck) {
    double ready = now_s() + LIMIT_S / 2.0;
    while (atomic_load(&t->ready) < p.ranks && now_s() < ready)
        usleep(100);
    for (int i = 0; i < p.victims; i++) {
        seat *s = &t->seat[p.victim[i]];
        double until = now_s() + LIMIT_S / 2.0;
        bool shrinks = i == 1 && p.in_shrink;
        while (!atomic_load(&s->state) && now_s() < until &&
               (shrinks ? !atomic_load(&s->recovers) : atomic_load(&s->step) < p.at[i]))
            usleep(shrinks ? 10 : 50);
        totals.in_shrink += shrinks && atomic_load(&s->recovers);
        totals.first += p.victim[i] == 0;
        usleep((useconds_t)p.wait_us[i]);
        *struck = now_s();
        kill(pids[p.victim[i]], p.stops ? SIGSTOP : SIGKILL);
    }
    if (!p.stops) return;
    usleep(8000000);
    kill(pids[p.victim[0]], SIGCONT);
}

/* The status of each, or -1: it had to be ended. */
static void collect(pid_t *pids, int *codes) {
    double until = now_s() + LIMIT_S;
    for (int left = p.ranks; left;) {
        bool late = now_s() > until;
        for (int i = 0; i < p.ranks; i++) {
            int code;
            if (!pids[i]) continue;
            if (late) kill(pids[i], SIGKILL);
            if (waitpid(pids[i], &code, late ? 0 : WNOHANG) != pids[i]) continue;
            codes[i] = late ? -1 : WIFEXITED(code) ? WEXITSTATUS(code) : 1000 + WTERMSIG(code);
            pids[i] = 0;
            left--;
        }
        usleep(200);
    }
}

static bool check_balance(uint64_t number, int last) {
    uint64_t members = t->seat[last].mask[STEPS - 1];
    int n = 0;
    for (int i = 0; i < p.ranks; i++)
        n += t->seat[i].state == 1 && t->seat[i].mask[STEPS - 1] == members &&
             t->seat[i].shrinks == t->seat[last].shrinks;
    /* Some may have come out of the last sum before the others lost a rank in it. */
    if ((uint64_t)n != members) return true;
    for (int i = 0; i < DIM; i++) {
        double left = -(double)t->seat[last].given[i];
        for (int rank = 0; rank < p.ranks; rank++)
            if (t->seat[rank].state == 1)
                left += (double)t->seat[rank].left[i] + (double)t->seat[rank].fed[i];
        if (!(fabs(left) <= 0.05)) return wrong(number, "something is lost", last);
    }
    return true;
}

static bool check(uint64_t number, const int *codes, double struck) {
    int last = -1, ended = 0;
    for (int i = 0; i < p.ranks; i++) {
        const seat *s = &t->seat[i];
        bool victim = i == p.victim[0] || (p.victims > 1 && i == p.victim[1]);
        if (codes[i] == SKIPPED) {
            totals.skipped++;
            return true;
        }
        if (codes[i] == -1) return wrong(number, "waits for ever", i);
        if (victim && (codes[i] == 1000 + SIGKILL || s->state == 2)) continue;
        if (codes[i]) return wrong(number, s->error[0] ? s->error : "ended badly", i);
        if (s->state != 1) return wrong(number, "was told to stay out", i);
        if (last >= 0 && memcmp(s->bits, t->seat[last].bits, sizeof s->bits))
            return wrong(number, "other bits than the others", i);
        last = i;
        ended++;
        totals.voids += s->voids;
        totals.late += s->late;
        if (s->told > struck && !p.stops)
            totals.slowest_told = fmax(totals.slowest_told, s->told - struck);
        if (s->went_on > struck && !p.stops)
            totals.slowest = fmax(totals.slowest, s->went_on - struck);
    }
    if (!ended) return wrong(number, "nobody came to the end", -1);
    return check_balance(number, last);
}

static void run(uint64_t seed, uint64_t number, int most) {
    plan_make(seed, number, most);
    table_make();
    pid_t pids[RANKS] = {0};
    int codes[RANKS] = {0};
    double struck = 0;
    fflush(stdout);
    for (int i = 0; i < p.ranks; i++) {
        pids[i] = fork();
        if (pids[i] < 0) exit(2);
        if (pids[i] == 0) live(i);
    }
    strike(pids, &struck);
    collect(pids, codes);
    check(number, codes, struck);
    totals.runs++;
    totals.stopped += p.stops;
    for (int i = 0; i < p.ranks; i++)
        totals.killed += codes[i] == 1000 + SIGKILL;
    munmap(t, sizeof *t);
}

static uint64_t argument(int argc, char **argv, const char *name, uint64_t otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) return strtoull(argv[i + 1], NULL, 0);
    return otherwise;
}

int main(int argc, char **argv) {
    uint64_t n = argument(argc, argv, "--kills", 20), seed = argument(argc, argv, "--seed", 1);
    uint64_t only = argument(argc, argv, "--only", UINT64_MAX);
    int most = (int)argument(argc, argv, "--ranks", 4);
    if (most < 2 || most > RANKS) return 2;
    setenv("RILL_PROFILE", "none", 1);
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--mail") == 0) setenv("RILL_MAIL_BYTES", argv[i + 1], 1);
    bool chosen = getenv("UCX_TLS") != NULL;
    for (uint64_t i = only == UINT64_MAX ? 0 : only; i < n || i == only; i++) {
        /* Shared memory, and sockets: the dead leave other things behind there. */
        if (!chosen) setenv("UCX_TLS", i % 2 ? "tcp,self" : "all", 1);
        /* Every other pair of runs reads what it sums from those who may be dead. */
        if (i / 2 % 2) setenv("RILL_READ_BYTES", "1", 1);
        else unsetenv("RILL_READ_BYTES");
        run(seed, i, most);
        if (i == only || totals.wrong >= 5 || totals.skipped) break;
    }
    if (totals.skipped) {
        printf("test_kills: skipped: built without UCX\n");
        return SKIPPED;
    }
    printf("%ld runs (seed %llu): %ld killed (%ld in a shrink, %ld times rank 0), %ld stopped; %ld "
           "steps void, %ld completed late; after "
           "%.3f s all knew, after %.3f s all had gone on; %ld wrong\n",
           totals.runs, (unsigned long long)seed, totals.killed, totals.in_shrink, totals.first,
           totals.stopped, totals.voids, totals.late, totals.slowest_told, totals.slowest,
           totals.wrong);
    return totals.wrong != 0;
}
