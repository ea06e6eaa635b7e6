/* Status texts, names, operations and the tables of what there is. */
#include "../support/unit.h"

#include <pthread.h>
#include <stdio.h>

static void every_status_has_a_phrase(void **state) {
    (void)state;
    for (int i = RILL_ERR_PEER; i <= RILL_IN_PROGRESS; i++) {
        assert_non_null(rill_strerror((rill_status)i));
        assert_true(strlen(rill_strerror((rill_status)i)) > 0);
        for (int j = RILL_ERR_PEER; j < i; j++)
            assert_string_not_equal(rill_strerror((rill_status)i), rill_strerror((rill_status)j));
    }
    assert_non_null(rill_strerror((rill_status)-1000));
    assert_non_null(rill_strerror((rill_status)1000));
}

static void version_matches_the_header(void **state) {
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", RILL_VERSION_MAJOR, RILL_VERSION_MINOR,
             RILL_VERSION_PATCH);
    assert_string_equal(rill_version(), text);
}

static void *fail_in_thread(void *seen) {
    rill_stream *s = NULL;
    rill_stream_create((rill_type)55, 1, &s);
    *(int *)seen = strstr(rill_last_error(), "55") != NULL;
    return NULL;
}

static void last_error_belongs_to_the_thread(void **state) {
    (void)state;
    rill_stream *s = NULL;
    assert_fails(rill_stream_create((rill_type)44, 1, &s), RILL_ERR_ARGUMENT, "44");
    pthread_t thread;
    int seen = 0;
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, &seen), 0);
    pthread_join(thread, NULL);
    assert_true(seen);
    assert_non_null(strstr(rill_last_error(), "44"));
}

/* A layer on top says what the next failure is about; only that one. */
static void a_reason_is_that_of_the_next_failure(void **state) {
    (void)state;
    rill_stream *s = NULL;
    assert_int_equal(rill_error_set(RILL_OK, "the dog ate it"), RILL_OK);
    assert_fails(rill_stream_create((rill_type)44, 1, &s), RILL_ERR_ARGUMENT, "the dog ate it");
    assert_fails(rill_stream_create((rill_type)44, 1, &s), RILL_ERR_ARGUMENT, "44");
    rill_error_set(RILL_OK, "the dog ate it");
    rill_error_set(RILL_OK, NULL);
    assert_string_equal(rill_last_error(), "");
    assert_fails(rill_stream_create((rill_type)44, 1, &s), RILL_ERR_ARGUMENT, "44");
    assert_int_equal(rill_error_set(RILL_ERR_IO, "as before"), RILL_ERR_IO);
    assert_string_equal(rill_last_error(), "as before");
}

static void types(void **state) {
    (void)state;
    static const char *const names[] = {"f32", "f64", "f16", "bf16"};
    static const size_t sizes[] = {4, 8, 2, 2};
    for (int t = 0; t < 4; t++) {
        assert_int_equal(rill_type_size((rill_type)t), sizes[t]);
        assert_string_equal(rill_type_name((rill_type)t), names[t]);
    }
    assert_int_equal(rill_type_size((rill_type)9), 0);
    assert_int_equal(rill_type_size((rill_type)-1), 0);
    assert_non_null(rill_type_name((rill_type)9));
}

static void operations(void **state) {
    (void)state;
    assert_string_equal(rill_op_name(RILL_SUM), "sum");
    assert_string_equal(rill_op_name(RILL_MIN), "min");
    assert_string_equal(rill_op_name(RILL_MAX), "max");
    assert_string_equal(rill_op_name(RILL_PROD), "prod");
    char name[16] = "mine";
    rill_op *op = NULL;
    assert_ok(rill_op_create(name, user_op_fn, NULL, USER_NEUTRAL, 0, &op));
    name[0] = 'X'; /* the name was copied */
    assert_string_equal(rill_op_name(op), "mine");
    assert_ok(rill_op_free(&op));
    assert_null(op);
    assert_ok(rill_op_free(&op));
    assert_ok(rill_op_free(NULL));
    assert_fails(rill_op_create(NULL, user_op_fn, NULL, 0, 0, &op), RILL_ERR_ARGUMENT, "name");
    assert_fails(rill_op_create("x", NULL, NULL, 0, 0, &op), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_op_create("x", user_op_fn, NULL, 0, 0, NULL), RILL_ERR_ARGUMENT, "NULL");
    assert_fails(rill_op_create("x", user_op_fn, NULL, 0, 1u << 9, &op), RILL_ERR_ARGUMENT, "");
    assert_null(op);
}

/* Names are unique and not "auto", descriptions one line; what the design promises is there. */
static void check_table(const char *(*at)(int collective, int i, const char **description),
                        int collective, const char *const *promised) {
    int n = 0;
    const char *text = NULL, *name;
    for (; (name = at(collective, n, &text)) != NULL; n++) {
        assert_true(strlen(name) > 0);
        assert_string_not_equal(name, "auto");
        assert_non_null(text);
        assert_true(strlen(text) > 0);
        assert_null(strchr(text, '\n'));
        assert_string_equal(at(collective, n, NULL), name);
        for (int j = 0; j < n; j++)
            assert_string_not_equal(at(collective, j, NULL), name);
        assert_true(n < 100);
    }
    assert_true(n > 0);
    assert_null(at(collective, n, NULL));
    assert_null(at(collective, -1, NULL));
    for (; *promised; promised++) {
        int found = 0;
        for (int i = 0; i < n; i++)
            found |= strcmp(at(collective, i, NULL), *promised) == 0;
        if (!found) fail_msg("%s is not in the table", *promised);
    }
}
static const char *algorithm_at(int collective, int i, const char **description) {
    return rill_algorithm_at((rill_collective)collective, i, description);
}
static const char *codec_at(int collective, int i, const char **description) {
    (void)collective;
    return rill_codec_at(i, description);
}

static void tables(void **state) {
    (void)state;
    static const char *const allreduce[] = {
        "dense", "recursive_double", "split_allgather", "dsar", "ring", "allgather", NULL};
    static const char *const codecs[] = {"raw", NULL}, *const none[] = {NULL};
    static const char *const names[] = {"allreduce", "reduce", "reduce_scatter", "allgather",
                                        "bcast"};
    for (int c = 0; c < RILL_COLLECTIVES; c++) {
        check_table(algorithm_at, c, c == RILL_ALLREDUCE ? allreduce : none);
        assert_string_equal(rill_collective_name((rill_collective)c), names[c]);
    }
    check_table(codec_at, 0, codecs);
    assert_null(rill_algorithm_at((rill_collective)99, 0, NULL));
    assert_non_null(rill_isa());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_phrase),
        cmocka_unit_test(version_matches_the_header),
        cmocka_unit_test(last_error_belongs_to_the_thread),
        cmocka_unit_test(a_reason_is_that_of_the_next_failure),
        cmocka_unit_test(types),
        cmocka_unit_test(operations),
        cmocka_unit_test(tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
