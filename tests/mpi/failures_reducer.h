/* Scenarios of test_failures.c: reducers. What a failed step leaves, on every rank, whether it was
 * the one that failed or not: its gradient is in its residual, wholly and once. Steps that follow
 * succeed, give all ranks the same bits, and in the end updates times ranks plus all residuals are
 * all gradients. A call that is not collective (accumulate) takes all of a gradient, or fails and
 * takes nothing. */
#ifndef RILL_TESTS_FAILURES_REDUCER_H
#define RILL_TESTS_FAILURES_REDUCER_H

#include "failures.h"

#include <math.h>

enum { RED_DIM = 1500, RED_STEPS = 12, RED_INTERVAL = 4, RED_CREATE = -1 };
enum { RED_STEP, RED_START, RED_STREAM, RED_TENSORS, RED_ACCUMULATE, RED_FORMS };
static const char *const red_form_names[RED_FORMS] = {"step", "start", "step_stream",
                                                      "step_tensors", "accumulate"};
/* Values are small integers: rounding stays far below this, and whatever is lost far above. */
static const double red_tolerance = 0.05;

typedef struct reduction {
    rill_reducer *reducer;
    rill_stream *stream;
    float gradient[RED_DIM], micro[RED_DIM], update[RED_DIM], before[RED_DIM];
    double given[RED_DIM], updates[RED_DIM]; /* this rank's gradients that count; all updates */
} reduction;
static reduction red;

static rill_reducer_options red_options(const scenario *s) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = s->algorithm;
    o.select = s->select;
    o.k = 30;
    o.value_bits = s->bits;
    o.threshold_interval = o.repartition_interval = RED_INTERVAL;
    if (s->momentum) {
        o.momentum = 0.9;
        o.clip = 100;
    }
    return o;
}

static void make_gradient(int step, int salt, float *g) {
    for (int i = 0; i < RED_DIM; i++) {
        int x = (i * 7 + check.rank * 3 + step * 11 + salt) % 13 - 6;
        g[i] = (float)((i + step) % 50 == 0 ? 9 * x : x);
    }
}

/* The step in its form; *took_micro: a micro-batch went in before it. */
static rill_status red_call(const scenario *s, int *took_micro) {
    reduction *r = &red;
    rill_status status;
    *took_micro = 0;
    if (s->form == RED_ACCUMULATE)
        *took_micro = rill_reducer_accumulate(r->reducer, r->micro) == RILL_OK;
    switch (s->form) {
    case RED_START:
        status = rill_reducer_start(r->reducer, r->gradient, r->update);
        return status == RILL_OK ? rill_reducer_wait(r->reducer) : status;
    case RED_STREAM: return rill_reducer_step_stream(r->reducer, r->gradient, r->stream);
    case RED_TENSORS: {
        rill_tensor parts[2] = {{r->gradient, r->update, 700},
                                {r->gradient + 700, r->update + 700, RED_DIM - 700}};
        return rill_reducer_step_tensors(r->reducer, 2, parts);
    }
    default: return rill_reducer_step(r->reducer, r->gradient, r->update);
    }
}

/* Largest |residual - before - what|. */
static double red_distance(const float *what) {
    const float *residual = rill_reducer_residual(red.reducer);
    double most = 0;
    for (int i = 0; i < RED_DIM; i++) {
        double d = fabs((double)residual[i] - (double)red.before[i] - (what ? (double)what[i] : 0));
        if (!(d <= most)) most = d;
    }
    return most;
}
static void red_count(const float *what) {
    for (int i = 0; i < RED_DIM; i++)
        red.given[i] += (double)what[i];
}

/* After a failed step. With micro-batches the sum in the end tells. */
static void red_check_kept(const scenario *s) {
    if (s->form != RED_ACCUMULATE && red_distance(red.gradient) > red_tolerance) {
        int dropped = red_distance(NULL) <= red_tolerance;
        violated("the step failed, and the residual %s the gradient (off by %g)%s",
                 dropped ? "lacks" : "has a part or too much of", red_distance(red.gradient),
                 check.rank == failing.rank ? ", on the rank that failed" : "");
        if (dropped) return;
    }
    red_count(red.gradient);
}

/* One step; 0: it failed on all ranks. */
static int red_step(const scenario *s, int step, int armed) {
    reduction *r = &red;
    int took_micro;
    make_gradient(step, 0, r->gradient);
    make_gradient(step, 5, r->micro);
    memcpy(r->before, rill_reducer_residual(r->reducer), sizeof r->before);
    memset(r->update, 0xEE, sizeof r->update);
    if (armed) fail_on();
    rill_status status = red_call(s, &took_micro);
    char name[40];
    snprintf(name, sizeof name, "step %d (%s)", step, red_form_names[s->form]);
    int ok = armed ? fail_agreed(name, status) : fail_free_call(name, status);
    if (took_micro) red_count(r->micro);
    if (!ok) {
        if (armed && !s->momentum) red_check_kept(s);
        return 0;
    }
    if (s->form == RED_STREAM) CHECK_OK(rill_stream_get_dense(r->stream, r->update));
    snprintf(name, sizeof name, "the update of step %d", step);
    same_bits(name, r->update, sizeof r->update);
    red_count(r->gradient);
    for (int i = 0; i < RED_DIM; i++)
        r->updates[i] += (double)r->update[i];
    return 1;
}

/* updates x ranks + residuals = gradients. */
static void red_check_sum(void) {
    static double mine[RED_DIM], all[RED_DIM];
    const float *residual = rill_reducer_residual(red.reducer);
    for (int i = 0; i < RED_DIM; i++)
        mine[i] = red.updates[i] + (double)residual[i] - red.given[i];
    MPI_Allreduce(mine, all, RED_DIM, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double most = 0;
    int at = 0;
    for (int i = 0; i < RED_DIM; i++)
        if (!(fabs(all[i]) <= most)) most = fabs(all[i]), at = i;
    check.checks++;
    if (!(most <= red_tolerance) && check.rank == 0)
        violated("updates and residuals differ from the gradients by %g (entry %d)", most, at);
}

/* Creation that fails leaves nothing that a later one could see. */
static int red_create(const scenario *s, int armed) {
    rill_reducer_options o = red_options(s);
    memset(&red, 0, sizeof red);
    CHECK_OK(rill_stream_create(RILL_F32, RED_DIM, &red.stream));
    if (armed) fail_on();
    rill_status status = rill_reducer_create(failing.comm, RILL_F32, RED_DIM, &o, &red.reducer);
    if (fail_agreed("rill_reducer_create", status)) return 1;
    if (status != RILL_OK && red.reducer) violated("rill_reducer_create failed with a reducer");
    rill_reducer_free(&red.reducer);
    int hit = armed && failing.hit;
    MPI_Bcast(&hit, 1, MPI_INT, failing.rank, MPI_COMM_WORLD);
    if (!hit && status == RILL_ERR_UNSUPPORTED) {
        failing.refused++;
        return 0;
    }
    if (!hit && status != RILL_OK)
        violated("rill_reducer_create fails by itself: %d (%s)", (int)status, rill_last_error());
    if (!armed) return 0;
    status = rill_reducer_create(failing.comm, RILL_F32, RED_DIM, &o, &red.reducer);
    if (status == RILL_ERR_UNSUPPORTED) return fail_agreed("rill_reducer_create", status);
    return fail_free_call("rill_reducer_create after a failed one", status);
}

static void red_free(void) {
    int exists = red.reducer != NULL;
    rill_status status = rill_reducer_free(&red.reducer);
    if (exists) fail_free_call("rill_reducer_free", status);
    rill_stream_free(&red.stream);
}

static void attempt_reducer(const scenario *s) {
    need_comm();
    if (red_create(s, s->step == RED_CREATE)) {
        int fine = 1;
        for (int step = 0; step < RED_STEPS && fine; step++)
            fine = red_step(s, step, step == s->step) || step == s->step;
        if (!s->momentum) red_check_sum();
    }
    red_free();
    int hit = failing.hit;
    MPI_Bcast(&hit, 1, MPI_INT, failing.rank, MPI_COMM_WORLD);
    if (hit) drop_comm();
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A reducer after some steps; its checkpoint of an earlier one is in the file. */
static int red_saved(const scenario *s) {
    scenario plain = *s;
    plain.form = RED_STEP;
    need_comm();
    if (!red_create(&plain, 0)) return 0;
    for (int step = 0; step < 2; step++)
        red_step(&plain, step, 0);
    return fail_free_call("a first rill_reducer_save",
                          rill_reducer_save(red.reducer, failing.path));
}

/* Loads the file into a reducer of its own: it has this rank's residual of now. */
static void red_check_saved(const scenario *s) {
    rill_reducer_options o = red_options(s);
    rill_reducer *copy = NULL;
    fail_free_call("rill_reducer_create",
                   rill_reducer_create(failing.comm, RILL_F32, RED_DIM, &o, &copy));
    if (fail_free_call("rill_reducer_load", rill_reducer_load(copy, failing.path)))
        if (memcmp(rill_reducer_residual(copy), rill_reducer_residual(red.reducer),
                   RED_DIM * sizeof(float)) != 0)
            violated("the residual that was loaded is not the saved one");
    rill_reducer_free(&copy);
}

static void attempt_save(const scenario *s) {
    clear_files();
    if (red_saved(s)) {
        scenario plain = *s;
        plain.form = RED_STEP;
        uint64_t before = file_hash(failing.path);
        red_step(&plain, 2, 0);
        fail_on();
        rill_status status = rill_reducer_save(red.reducer, failing.path);
        if (fail_agreed("rill_reducer_save", status)) red_check_saved(s);
        else files_as_before(before, 1);
        for (int step = 3; step < 6; step++)
            red_step(&plain, step, 0);
        red_check_sum();
    }
    red_free();
    drop_comm();
}

static void attempt_load(const scenario *s) {
    clear_files();
    if (red_saved(s)) {
        scenario plain = *s;
        plain.form = RED_STEP;
        red_step(&plain, 2, 0);
        memcpy(red.before, rill_reducer_residual(red.reducer), sizeof red.before);
        fail_on();
        rill_status status = rill_reducer_load(red.reducer, failing.path);
        if (fail_agreed("rill_reducer_load", status)) red_check_saved(s);
        else {
            if (red_distance(NULL) > 0) violated("a failed rill_reducer_load changed the residual");
            for (int step = 3; step < 6; step++)
                red_step(&plain, step, 0);
            red_check_sum();
            status = rill_reducer_load(red.reducer, failing.path);
            if (fail_free_call("rill_reducer_load after a failed one", status)) red_check_saved(s);
        }
    }
    red_free();
    drop_comm();
}

#endif
