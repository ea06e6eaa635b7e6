/* The table of settings: every row is whole, fields of the public structs have rows, texts become
 * values in the order of precedence, and what ranks compare changes with each option. */
#include "../support/unit.h"

#include "core/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEPT = 17 };

static void test_rows_are_whole(void **state) {
    (void)state;
    rill_setting s = RILL_SETTING_INIT;
    const rill__setting *row;
    int n = 0, slots = 0;
    for (; (row = rill__setting_row(n)); n++) {
        assert_ptr_equal(rill__setting_named(row->name), row); /* no name comes twice */
        assert_string_equal(rill_setting_at(n, &s), row->name);
        assert_true(s.size == sizeof s && s.description && *s.description && s.value);
        assert_true(s.structs || s.environment); /* there is a way to set it */
        assert_int_equal(row->info != NULL, row->comm.end != 0);
        assert_true(row->kind != RILL__S_NAME || row->names);
        assert_true(!(row->names || row->holds) || row->otherwise);
        if (row->info) assert_string_equal(row->info + strlen("rill_"), row->name);
        for (size_t i = 0; row->environment && row->name[i]; i++)
            assert_int_equal(row->environment[i + strlen("RILL_")], toupper(row->name[i]));
        slots += row->slot != 0;
        if (row->slot) assert_ptr_equal(rill__setting_in_slot(row->slot), row);
    }
    assert_null(rill_setting_at(n, &s));
    assert_null(rill_setting_at(-1, NULL));
    assert_int_equal(slots, KEPT);
    /* Merging stops at the first row that calls do not have. */
    for (int i = 0, others = 0; (row = rill__setting_row(i)); i++) {
        others |= !row->options.end;
        assert_true(!row->options.end || row->kind == RILL__S_NAME || row->comm.end);
        assert_false(others && row->options.end);
    }
}

/* The place of each word in a checkpoint is a format. */
static void test_slots_stay(void **state) {
    (void)state;
    static const char *const names[KEPT] = {"density",
                                            "k",
                                            "average",
                                            "feedback",
                                            "momentum",
                                            "masking",
                                            "clip",
                                            "warmup_steps",
                                            "warmup_stages",
                                            "seed",
                                            "bucket",
                                            "block",
                                            "threshold_interval",
                                            "repartition_interval",
                                            "balance_trigger",
                                            "lambda",
                                            "sketch_rows"};
    for (int i = 0; i < KEPT; i++)
        assert_string_equal(rill__setting_in_slot(i + 1)->name, names[i]);
}

/* Fields that have no row would be in no hash, and in no reference. */
static void test_every_field_has_a_row(void **state) {
    (void)state;
    bool options[sizeof(rill_options)] = {false}, reducer[sizeof(rill_reducer_options)] = {false};
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++) {
        for (size_t at = row->options.at; at < row->options.end; at++)
            assert_false(options[at]), options[at] = true;
        for (size_t at = row->reducer.at; at < row->reducer.end; at++)
            assert_false(reducer[at]), reducer[at] = true;
    }
    /* What is left is the size, and at most padding of 4 bytes behind an int. */
    for (size_t at = sizeof(size_t), left = 0; at < sizeof options; at++)
        assert_true((left = options[at] ? 0 : left + 1) <= 4);
    for (size_t at = sizeof(size_t), left = 0; at < sizeof reducer; at++)
        assert_true((left = reducer[at] ? 0 : left + 1) <= 4);
}

static rill_status get(const void *context, const char *name, char *value, size_t length,
                       bool *found) {
    const char *const *pairs = context;
    for (; *pairs && !*found; pairs += 2) {
        if (strcmp(pairs[0], name) != 0) continue;
        if (strlen(pairs[1]) >= length) return rill__setting_too_long(name, length);
        strcpy(value, pairs[1]);
        *found = true;
    }
    return RILL_OK;
}

static void test_precedence(void **state) {
    (void)state;
    const char *pairs[] = {"codec", "raw", "value_bits", "8", "block", "7", NULL};
    rill__info info = {get, pairs};
    rill__defaults d;
    rill_config config = RILL_CONFIG_INIT;
    setenv("RILL_CODEC", "bitpack", 1);
    setenv("RILL_BLOCK", "9", 1);
    setenv("RILL_SEED", "11", 1);
    setenv("RILL_CHECK", "1", 1);
    setenv("RILL_SPLIT_LIMIT", "4096", 1);
    assert_int_equal(rill__settings_read(&info, &d), RILL_OK);
    assert_string_equal(d.codec, "raw");
    assert_int_equal(d.block, 7);
    assert_int_equal(d.seed, 11);
    assert_int_equal(d.value_bits, 8);
    assert_int_equal(d.check, 1);
    assert_true(d.shared_bytes == UINT64_MAX && d.allow_bits == 0 && !*d.algorithm);
    assert_true(d.for_calls);
    rill__settings_take(&config, &d); /* which sets nothing */
    assert_true(d.check == 1 && d.split_limit == 4096);
    config.check = 0;
    config.split_limit = 2048;
    config.progress_thread = 1;
    config.size = offsetof(rill_config, progress_thread); /* an older program has no such field */
    rill__settings_take(&config, &d);
    assert_true(d.check == 0 && d.split_limit == 2048 && d.progress_thread == 0);
    assert_int_equal(rill__settings_check(&d), RILL_OK);
    d.split_limit = 1023;
    assert_int_equal(rill__settings_check(&d), RILL_ERR_ARGUMENT);
    assert_string_equal(rill_last_error(),
                        "setting split_limit = 1023 is not from 1024 to 1073741824");
    d.split_limit = 1024;
    strcpy(d.partition, "uneven");
    assert_int_equal(rill__settings_check(&d), RILL_ERR_UNKNOWN);
    assert_string_equal(rill_last_error(), "setting partition = 'uneven' is unknown");
    rill_options given = RILL_OPTIONS_INIT, merged;
    given.value_bits = 0;
    given.algorithm = "ring";
    given.size = offsetof(rill_options, block);
    given.block = 5; /* not his */
    rill__settings_merge(&given, &d, &merged);
    assert_string_equal(merged.algorithm, "ring");
    assert_string_equal(merged.codec, "raw");
    assert_null(merged.value_scope);
    assert_true(merged.value_bits == 0 && merged.block == 7 && merged.allow_bits == 0);
    static const char *const names[] = {"RILL_CODEC", "RILL_BLOCK", "RILL_SEED", "RILL_CHECK",
                                        "RILL_SPLIT_LIMIT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("RILL_SEED", "11", 1); /* of the communicator, not of its calls */
    assert_int_equal(rill__settings_read(NULL, &d), RILL_OK);
    assert_true(d.seed == 11 && !d.for_calls && d.value_bits == -1);
    given = (rill_options)RILL_OPTIONS_INIT;
    assert_false(rill__settings_need_merge(&given, &d));
    given.size--;
    assert_true(rill__settings_need_merge(&given, &d));
    unsetenv("RILL_SEED");
}

/* 7 is not on. */
static void test_flags(void **state) {
    (void)state;
    static const char *const names[] = {"check", "progress_thread", "minority"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const rill__setting *row = rill__setting_named(names[i]);
        char want[100];
        snprintf(want, sizeof want, "setting %s = 7 is neither 0 nor 1", row->name);
        rill__defaults d;
        for (int way = 0; way < 3; way++) {
            const char *pairs[] = {row->name, "7", NULL};
            rill_config config = RILL_CONFIG_INIT;
            const int seven = 7;
            if (way == 1) setenv(row->environment, "7", 1);
            if (way == 2) memcpy((char *)&config + row->config.at, &seven, sizeof seven);
            assert_int_equal(rill__settings_read(way == 0 ? &(rill__info){get, pairs} : NULL, &d),
                             RILL_OK);
            rill__settings_take(&config, &d);
            assert_int_equal(rill__settings_check(&d), RILL_ERR_ARGUMENT);
            assert_string_equal(rill_last_error(), want);
            unsetenv(row->environment);
        }
    }
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++)
        if (row->kind == RILL__S_BOOL)
            assert_true(row->holds(0) && row->holds(1) && !row->holds(2) && !row->holds(-1));
}

static void test_own_environment(void **state) {
    (void)state;
    setenv("RILL_ISA", "foo", 1);
    assert_int_equal(rill__settings_check_own(), RILL_ERR_UNKNOWN);
    assert_string_equal(rill_last_error(), "setting isa = 'foo' is none of scalar, avx2, avx512");
    setenv("RILL_ISA", "", 1); /* as good as none */
    assert_int_equal(rill__settings_check_own(), RILL_OK);
    setenv("RILL_ISA", "scalar", 1);
    assert_int_equal(rill__settings_check_own(), RILL_OK);
    unsetenv("RILL_ISA");
}

/* Another value of any field is another word, but for those that are a rank's own. */
static void test_hash_sees_every_option(void **state) {
    (void)state;
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    rill_options call = RILL_OPTIONS_INIT;
    uint64_t same = rill__settings_hash_reducer(1, &o), call_same;
    call_same = rill__settings_hash_options(1, &call);
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++) {
        const char *text = "other";
        int number = 3;
        uint64_t size = 3;
        double real = 0.3;
        const void *from = row->kind == RILL__S_NAME   ? (const void *)&text
                           : row->kind == RILL__S_REAL ? (const void *)&real
                           : row->kind == RILL__S_SIZE ? (const void *)&size
                                                       : (const void *)&number;
        if (row->kind == RILL__S_REALS) continue; /* the reducer adds them */
        rill_reducer_options p = o;
        rill_options q = call;
        memcpy((char *)&p + row->reducer.at, from, row->reducer.end - row->reducer.at);
        memcpy((char *)&q + row->options.at, from, row->options.end - row->options.at);
        assert_int_equal(rill__settings_hash_reducer(1, &p) != same, row->reducer.end && !row->own);
        assert_int_equal(rill__settings_hash_options(1, &q) != call_same, row->options.end != 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_whole),         cmocka_unit_test(test_slots_stay),
        cmocka_unit_test(test_every_field_has_a_row),  cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_hash_sees_every_option), cmocka_unit_test(test_flags),
        cmocka_unit_test(test_own_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
