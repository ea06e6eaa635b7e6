/* Lines of svmlight text: what is read, what is tolerated, what is an error and how it is told. */
#include "../support/unit.h"
#include "train/data_internal.h"

#include <stdlib.h>

static rill_status parse(rill__parser *parser, int base, const char *text) {
    size_t n = strlen(text);
    char *copy = calloc(n + 32, 1);
    memcpy(copy, text, n);
    assert_ok(rill__parser_init(parser, base));
    rill_status status = rill__parse_lines(parser, copy, copy + n);
    free(copy);
    return status;
}

static void good_lines(void **state) {
    (void)state;
    rill__parser p;
    assert_ok(parse(&p, -1,
                    "# a comment\n"
                    "+1 1:0.5 3:-2 10:1e2 # end\n"
                    "\n"
                    "-1\t2:1\t4:2  \r\n"
                    "3 qid:17 7:1\n"
                    "0.25\n"
                    "  -2.5 1:1#x\n"
                    "   \t \n"
                    "1 5:1 2:4 5:2 9:1\n"));
    assert_int_equal(p.rows.rows, 6);
    assert_int_equal(p.lines, 9);
    assert_int_equal(p.blank_lines, 3);
    assert_int_equal(p.qids, 1);
    assert_int_equal(p.unsorted_rows, 1);
    assert_int_equal(p.duplicates, 1);
    assert_int_equal(p.largest, 10);
    assert_false(p.saw_zero);
    static const uint64_t start[] = {0, 3, 5, 6, 6, 7, 10};
    static const uint32_t index[] = {1, 3, 10, 2, 4, 7, 1, 2, 5, 9};
    static const float value[] = {0.5f, -2, 100, 1, 2, 1, 1, 4, 3, 1};
    static const double label[] = {1, -1, 3, 0.25, -2.5, 1};
    assert_memory_equal(p.rows.start, start, sizeof start);
    assert_memory_equal(p.rows.index, index, sizeof index);
    assert_memory_equal(p.rows.value, value, sizeof value);
    assert_memory_equal(p.rows.label, label, sizeof label);
    rill__parser_free(&p);
}

static void wide_indices(void **state) {
    (void)state;
    rill__parser p;
    assert_ok(
        parse(&p, -1, "1 1:1 4294967295:2\n1 2:3 4294967296:4 9223372036854775807:5\n1 0:6\n"));
    static const uint64_t index[] = {1, 4294967295, 2, 4294967296, INT64_MAX, 0};
    static const float value[] = {1, 2, 3, 4, 5, 6};
    assert_true(p.rows.wide);
    assert_true(p.saw_zero);
    assert_int_equal(p.largest, INT64_MAX);
    assert_memory_equal(p.rows.index, index, sizeof index);
    assert_memory_equal(p.rows.value, value, sizeof value);
    rill__parser_free(&p);
}

static void bad_lines(void **state) {
    (void)state;
    static const struct {
        int base;
        uint64_t line;
        const char *text, *message;
    } cases[] = {
        {-1, 2, "1 1:1\nx 1:1\n", "token 'x': the label is not a number"},
        {-1, 1, "1:1 2:1\n", "token '1:1': expected a label"},
        {-1, 1, "1,2 2:1\n", "token '1,2': several labels"},
        {-1, 1, "nan 2:1\n", "token 'nan': the label is not finite"},
        {-1, 3, "\n# c\n1 2\n", "token '2': expected ':'"},
        {-1, 1, "1 a:1\n", "token 'a:1': expected index:value"},
        {-1, 1, "1 2.5:1\n", "token '2.5:1': expected index:value"},
        {-1, 1, "1 -2:1\n", "token '-2:1': the index is negative"},
        {-1, 1, "1 2:\n", "token '2:': the value is not a number"},
        {-1, 1, "1 2: 3\n", "token '2:': the value is not a number"},
        {-1, 1, "1 2:x3\n", "token '2:x3': the value is not a number"},
        {-1, 1, "1 2:3x\n", "token '2:3x': the value is not a number"},
        {-1, 1, "1 2:nan\n", "token '2:nan': the value is not finite"},
        {-1, 1, "1 2:-Inf\n", "token '2:-Inf': the value is not finite"},
        {-1, 1, "1 2:1e40\n", "token '2:1e40': the value is too large"},
        {-1, 1, "1 9223372036854775808:1\n", "the index is not below 2^63"},
        {-1, 1, "1 99999999999999999999999:1\n", "the index is not below 2^63"},
        {-1, 1, "1 2:3e38 2:3e38\n", "add up to infinity"},
        {1, 2, "1 1:1\n1 0:1\n", "index 0, but indices start at 1"},
        {-1, 1, "1 qid:x 2:1\n", "qid must be an integer"},
        {-1, 1, "1 2:1 qid:3\n", "qid must be an integer right after the label"},
        {-1, 1, "1 2:1:3\n", "token '2:1:3'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rill__parser p;
        assert_int_equal(parse(&p, cases[i].base, cases[i].text), RILL_ERR_IO);
        assert_true(p.failed);
        if (p.lines != cases[i].line || !strstr(p.message, cases[i].message))
            fail_msg("%s: line %d: %s", cases[i].text, (int)p.lines, p.message);
        rill__parser_free(&p);
    }
}

static void binary_bytes_in_text(void **state) {
    (void)state;
    rill__parser p;
    char text[64] = "1 2:1\n1 3:";
    size_t n = strlen(text);
    memcpy(text + n, "\0\0\x80\n", 4);
    assert_ok(rill__parser_init(&p, -1));
    assert_int_equal(rill__parse_lines(&p, text, text + n + 4), RILL_ERR_IO);
    assert_int_equal(p.lines, 2);
    rill__parser_free(&p);
}

/* A row sorted by the radix sort is what a plain one gives, with sums in order. */
static void rows_are_sorted_and_summed(void **state) {
    (void)state;
    enum { N = 3000 };
    static char text[N * 24 + 64];
    static double sum[1 << 12];
    static int seen[1 << 12];
    uint64_t s = 3, distinct = 0;
    size_t at = (size_t)sprintf(text, "1");
    for (int i = 0; i < N; i++) {
        s = s * UINT64_C(6364136223846793005) + 1442695040888963407;
        unsigned index = (unsigned)(s >> 52), value = (unsigned)(s >> 20) & 15;
        at += (size_t)sprintf(text + at, " %u:%u", index, value);
        sum[index] += value;
        distinct += !seen[index]++;
    }
    sprintf(text + at, "\n");
    rill__parser p;
    assert_ok(parse(&p, 0, text));
    assert_int_equal(p.rows.entries, distinct);
    assert_int_equal(p.duplicates, N - distinct);
    for (uint64_t i = 0; i < distinct; i++) {
        uint64_t index = rill__rows_index(&p.rows, i);
        assert_true(!i || index > rill__rows_index(&p.rows, i - 1));
        assert_true(p.rows.value[i] == (float)sum[index]);
    }
    rill__parser_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_lines),
        cmocka_unit_test(wide_indices),
        cmocka_unit_test(bad_lines),
        cmocka_unit_test(binary_bytes_in_text),
        cmocka_unit_test(rows_are_sorted_and_summed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
