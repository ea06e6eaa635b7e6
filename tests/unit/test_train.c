/* Losses against finite differences, lazy weights against eager ones, model files. */
#include "../support/unit.h"
#include "train/train_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The parabola of slope and curvature touches the loss from above. */
static void lies_above(const rill__loss *loss, double z, double y) {
    for (double at = z - 20; at < z + 20; at += 0.37) {
        double by = at - z;
        assert_true(loss->value(at, y) <= loss->value(z, y) + loss->slope(z, y) * by +
                                              0.5 * loss->curvature(z, y) * by * by + 1e-9);
    }
}

static void derivatives(void **state) {
    (void)state;
    static const double z[] = {-40, -3, -1.5, -0.4, 0.1, 0.7, 1.3, 5, 40};
    const char *name;
    for (int i = 0; (name = rill_loss_at(i, NULL)); i++) {
        const rill__loss *loss = rill__loss_find(name);
        assert_non_null(loss);
        for (size_t k = 0; k < sizeof z / sizeof *z; k++)
            for (double y = -1; y <= 1; y += 2) {
                double h = 1e-5;
                double slope = (loss->value(z[k] + h, y) - loss->value(z[k] - h, y)) / (2 * h);
                double bend = (loss->slope(z[k] + h, y) - loss->slope(z[k] - h, y)) / (2 * h);
                assert_true(fabs(slope - loss->slope(z[k], y)) < 1e-5 * (1 + fabs(slope)));
                if (strcmp(name, "huber"))
                    assert_true(fabs(bend - loss->curvature(z[k], y)) < 1e-5);
                else lies_above(loss, z[k], y);
                assert_true(loss->value(z[k], y) >= 0);
                if (loss->most_curvature > 0)
                    assert_true(loss->curvature(z[k], y) <= loss->most_curvature + 1e-12);
            }
    }
    assert_null(rill__loss_find("nothing"));
}

/* One entry, gradients in some steps: putting decay off gives what tiny steps of the flow give. */
static void lazy_weights(void **state) {
    (void)state;
    static const float gradient[] = {-1, 0, 0, 0.5f, 0, 0, 0, 0, -0.25f, 0};
    enum { STEPS = sizeof gradient / sizeof *gradient, FINE = 20000 };
    for (int kind = 0; kind < 3; kind++)
        for (int with_l1 = 0; with_l1 < 2; with_l1++) {
            double lambda = 0.1, mu = with_l1 ? 0.02 : 0, eta = 0.3, m = 0.5;
            rill__weights s;
            assert_ok(rill__weights_init(&s, 3, (rill__optimizer)kind, lambda, mu, m));
            double w = 0, velocity = 0, squares = 0;
            for (int t = 0; t < STEPS; t++) {
                uint32_t at = 1;
                rill__weights_begin(&s, eta);
                if (gradient[t] != 0) rill__weights_apply(&s, 1, &at, &gradient[t]);
                /* Eager: decay over the step, then the gradient. */
                double h = kind == RILL__ADAGRAD    ? 1 / sqrt(squares + 1e-12)
                           : kind == RILL__MOMENTUM ? 1 / (1 - m)
                                                    : 1;
                if (kind == RILL__MOMENTUM) w -= eta * (velocity *= m);
                for (int f = 0; f < FINE && w != 0; f++) {
                    double next = w - eta / FINE * h * (lambda * w + mu * (w > 0 ? 1 : -1));
                    w = next * w < 0 ? 0 : next;
                }
                velocity += gradient[t];
                squares += (double)gradient[t] * gradient[t];
                w -= eta * gradient[t] *
                     (kind == RILL__ADAGRAD && squares > 0 ? 1 / sqrt(squares) : 1);
                /* Steps are discrete where the flow is not: l1 after decay, decay after velocity.
                 */
                double near = kind == RILL__MOMENTUM ? 0.02 : with_l1 ? 2e-3 : 1e-4;
                if (fabs(rill__weights_read(&s, 1) - w) > near)
                    fail_msg("kind %d l1 %d step %d: %g, not %g", kind, with_l1, t,
                             rill__weights_read(&s, 1), w);
            }
            float before = rill__weights_read(&s, 1);
            rill__weights_settle(&s);
            assert_true(fabs(s.w[1] - before) < 1e-6);
            assert_true(s.w[0] == 0 && s.w[2] == 0);
            rill__weights_free(&s);
        }
}

static const char *scratch(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/rill-model-%d", (int)getpid());
    return path;
}

static void write_text(const char *text) {
    FILE *file = fopen(scratch(), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void model_files(void **state) {
    (void)state;
    rill_model *m = NULL, *back = NULL;
    rill_model_view a = RILL_MODEL_VIEW_INIT, b = RILL_MODEL_VIEW_INIT;
    assert_ok(rill__model_create(5, 3, 3, 0.5, &m));
    snprintf(m->solver_type, sizeof m->solver_type, "L2R_LR");
    for (int i = 0; i < 3; i++)
        m->label[i] = i - 1;
    for (int i = 0; i < 18; i++)
        m->weight[i] = i % 4 ? (float)sin(i) * 1e-3f : 0;
    assert_ok(rill_model_save(m, scratch()));
    assert_ok(rill_model_load(scratch(), &back));
    assert_ok(rill_model_look(m, &a));
    assert_ok(rill_model_look(back, &b));
    assert_int_equal(b.features, 5);
    assert_int_equal(b.columns, 3);
    assert_true(b.probability && !b.regression && b.bias == 0.5);
    assert_memory_equal(a.weight, b.weight, 18 * sizeof(double));
    assert_memory_equal(a.label, b.label, 3 * sizeof(double));
    double z[3] = {0.1, -2, 3}, p[3], sum = 0;
    assert_ok(rill_model_probabilities(back, z, p));
    for (int i = 0; i < 3; i++)
        sum += p[i];
    assert_true(fabs(sum - 1) < 1e-12 && p[2] > p[0] && p[0] > p[1]);
    rill_model_free(&m);
    rill_model_free(&back);

    static const struct {
        const char *text, *wrong;
    } bad[] = {
        {"", "ends before the line 'w'"},
        {"solver_type L2R_LR\nnr_class two\n", ":2: not a number: ' two'"},
        {"solver_type L2R_LR\nnr_class 0\n", ":2: not a count"},
        {"label 1 -1\n", ":1: labels before nr_class"},
        {"nonsense 3\n", ":1: not a field of a model: 'nonsense 3'"},
        {"solver_type X\nnr_class 2\nlabel 1 -1\nnr_feature 1\nbias -1\nw\n1\n", "not supported"},
        {"solver_type L2R_LR\nnr_class 2\nlabel 1\n", ":3: no label"},
        {"solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 1e12\nbias -1\nw\n1\n",
         "more features than the file has room for"},
        {"solver_type L2R_LR\nnr_class 1000000\n", "ends before"},
        {"solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias -1\nw\n1\n",
         "ends after the weights of 1 of 2"},
        {"solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias -1\nw\n1\nx\n",
         ":8: not a weight: 'x'"},
        {"solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 1\nbias -1\nw\n1 2\n",
         ":7: more weights"},
        {"solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 1\nbias -1\nw\nnan\n",
         ":7: not a weight"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(bad[i].text);
        assert_fails(rill_model_load(scratch(), &back), RILL_ERR_IO, bad[i].wrong);
        assert_null(back);
    }
    unlink(scratch());
    assert_fails(rill_model_load(scratch(), &back), RILL_ERR_IO, "cannot be read");
}

/* What rows count, of rows at which all weights are 0: the loss is log 2 for each. */
static void weights_of_rows(void **state) {
    (void)state;
    static const uint64_t row[] = {0, 1, 2, 3};
    static const uint32_t index[] = {0, 1, 0};
    static const float value[] = {1, 2, 3};
    static const double label[] = {1, -1, 1};
    static const double good[] = {2, 0, 0.5};
    static const double bad[][3] = {{1, -1, 1}, {1, 1, NAN}, {INFINITY, 1, 1}, {1, 1e300, 1}};
    rill_comm *comm = NULL;
    rill_dataset *set = NULL;
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = 2, view.rows = 3;
    view.row = row, view.index32 = index, view.value = value, view.label = label;
    assert_ok(rill_comm_create_local(1, NULL, &comm));
    assert_ok(rill_dataset_create_on(comm, &view, &set));
    for (int weighed = 1; weighed >= 0; weighed--) {
        rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
        rill_trainer *t = NULL;
        double objective = 0, sum = weighed ? 2.5 : 3;
        assert_ok(rill_dataset_set_weights(set, weighed ? good : NULL));
        for (int i = 0; weighed && i < 4; i++) /* those before stay */
            assert_fails(rill_dataset_set_weights(set, bad[i]), RILL_ERR_ARGUMENT, "the weight of");
        assert_ok(rill_dataset_view(set, &view));
        assert_int_equal(view.weight != NULL, weighed);
        for (int i = 0; weighed && i < 3; i++)
            assert_true(view.weight[i] == (float)good[i]);
        o.solver = "scd";
        o.bias = 1; /* a feature: no intercept, which would start elsewhere */
        o.C = 3;
        assert_ok(rill_trainer_create_on(comm, set, NULL, &o, &t));
        assert_ok(rill_trainer_objective(t, &objective, NULL));
        assert_true(fabs(objective - o.C * sum * log(2)) < 1e-6);
        assert_ok(rill_trainer_free(&t));
    }
    assert_fails(rill_dataset_set_weights(NULL, good), RILL_ERR_ARGUMENT, "set is NULL");
    assert_ok(rill_dataset_free(&set));
    assert_ok(rill_comm_free(&comm));
}

/* Zeros are zeros, ends can be written to, and what cannot be is refused. */
static void vectors(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 1000, 1 << 20, (1 << 20) + 1, 5000001};
    for (int again = 0; again < 3; again++) /* malloc may hand out what was in use */
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t n = sizes[i], others = 0;
            float *zeros = rill__vector_zeros(n + 1, sizeof *zeros);
            float *room = rill__vector(n + 1, sizeof *room);
            assert_true(zeros && room);
            for (size_t j = 0; j <= n; j++) {
                others += zeros[j] != 0;
                zeros[j] = room[j] = (float)(j % 1000 + 1);
            }
            assert_int_equal(others, 0);
            assert_memory_equal(zeros, room, (n + 1) * sizeof *room);
            free(zeros);
            free(room);
        }
    assert_null(rill__vector(UINT64_MAX / 2, 8));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(derivatives),
                                       cmocka_unit_test(lazy_weights),
                                       cmocka_unit_test(model_files),
                                       cmocka_unit_test(weights_of_rows),
                                       cmocka_unit_test(vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
