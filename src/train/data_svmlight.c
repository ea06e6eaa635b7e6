/* LIBSVM/svmlight text to rows.
 *
 * Idea: whole lines in memory with a newline at the end and a few readable bytes after it, so that
 * the inner loop checks no bounds; room for all entries that so many bytes can hold is reserved
 * before (an entry has at least four: "1:2 "). Numbers by data_number.h. Order is tested as entries
 * come; only rows that fail the test are sorted.
 * Restriction: lines are parsed whole, so the caller's buffer holds the longest.
 * Memory: the rows. Cost: one pass, about two dozen instructions per entry of the form "123456:1".
 */
#include "train/data_internal.h"
#include "train/data_number.h"

#include <locale.h>
#include <math.h>
#include <string.h>

rill_status rill__parser_init(rill__parser *parser, int base) {
    *parser = (rill__parser){.base = base};
    parser->locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return parser->locale ? RILL_OK : rill__data_fail(RILL_ERR_MEMORY, "out of memory: a locale");
}

void rill__parser_free(rill__parser *parser) {
    rill__rows_free(&parser->rows);
    if (parser->locale) freelocale((locale_t)parser->locale);
    parser->locale = NULL;
}

/* Records what is wrong with the token at p: "token 'x': reason". */
static rill_status bad_token(rill__parser *parser, const char *p, const char *reason) {
    char token[48];
    size_t n = 0;
    for (; n < sizeof token - 4 && !rill__ends_token((unsigned char)p[n]); n++)
        token[n] = p[n] >= ' ' && p[n] != 127 ? p[n] : '?';
    if (n == sizeof token - 4) n += (size_t)snprintf(token + n, 4, "...");
    parser->failed = true;
    snprintf(parser->message, sizeof parser->message, "token '%.*s': %s", (int)n, token, reason);
    return RILL_ERR_IO;
}

static const char *number_reason(rill__number_state state, const char *what) {
    switch (state) {
    case RILL__NUMBER_NOT_FINITE:
        return *what == 'l' ? "the label is not finite" : "the value is not finite";
    case RILL__NUMBER_OVERFLOW:
        return *what == 'l' ? "the label is too large" : "the value is too large for a float";
    default: return *what == 'l' ? "the label is not a number" : "the value is not a number";
    }
}

/* Sorts the row that begins at entry `start` and adds up its duplicates. */
static rill_status settle_row(rill__parser *parser, uint64_t start, const char *line) {
    rill__rows *rows = &parser->rows;
    size_t n = rows->entries - start;
    RILL_TRY_DATA(rill__rows_scratch(rows, n));
    float *value = rill__rows_scratch_value(rows);
    bool unsorted = false;
    for (size_t i = 0; i < n; i++) {
        rows->key[i] = rill__rows_index(rows, start + i);
        unsorted |= i && rows->key[i] < rows->key[i - 1];
        value[i] = rows->value[start + i];
    }
    uint64_t left = rill__rows_merge(rows, n, start);
    for (uint64_t i = start; i < start + left; i++)
        if (!isfinite(rows->value[i]))
            return bad_token(parser, line, "values of one index in this line add up to infinity");
    parser->unsorted_rows += unsorted;
    parser->duplicates += n - left;
    rows->entries = start + left;
    return RILL_OK;
}

/* "qid:7" at *p. */
static bool parse_qid(const char **p, int64_t *qid) {
    const char *s = *p;
    if (memcmp(s, "qid:", 4) != 0) return false;
    s += 4;
    bool negative = *s == '-';
    s += negative;
    unsigned digits = 0;
    uint64_t number = 0;
    if (!rill__digits(&s, &number, &digits) || !digits || number > INT64_MAX ||
        !rill__ends_token((unsigned char)*s))
        return false;
    *qid = negative ? -(int64_t)number : (int64_t)number;
    *p = s;
    return true;
}

static inline const char *skip_blanks(const char *p) {
    while (rill__is_blank((unsigned char)*p))
        p++;
    return p;
}

/* "index:value" at *p; reports what is wrong otherwise. */
static inline rill_status parse_entry(rill__parser *parser, const char **p, uint64_t *index,
                                      float *value) {
    const char *s = *p;
    unsigned digits = 0;
    *index = 0;
    if (!rill__digits(&s, index, &digits) || *index >= RILL__INDEX_LIMIT)
        return bad_token(parser, *p, "the index is not below 2^63");
    if (__builtin_expect(!digits, 0)) {
        if (*s == '-') return bad_token(parser, *p, "the index is negative");
        if (!memcmp(s, "qid:", 4))
            return bad_token(parser, *p, "qid must be an integer right after the label");
        return bad_token(parser, *p, "expected index:value");
    }
    if (__builtin_expect(*s != ':', 0))
        return bad_token(parser, *p,
                         rill__ends_token((unsigned char)*s)
                             ? "expected ':' and a value after the index"
                             : "expected index:value");
    s++;
    rill__number_state state = rill__float_parse(&s, parser->locale, value);
    if (__builtin_expect(state != RILL__NUMBER_OK, 0))
        return bad_token(parser, *p, number_reason(state, "value"));
    *p = s;
    return RILL_OK;
}

static rill_status parse_label(rill__parser *parser, const char **p, double *label) {
    const char *s = *p;
    rill__number_state state = rill__double_parse(p, parser->locale, label);
    if (state == RILL__NUMBER_OK) return RILL_OK;
    size_t n = strcspn(s, ":, \t\r\n#");
    return bad_token(parser, s,
                     s[n] == ':'   ? "expected a label before the first index:value"
                     : s[n] == ',' ? "several labels in one row are not supported"
                                   : number_reason(state, "label"));
}

/* The row at p, up to its newline; *p is then after it. */
static rill_status parse_row(rill__parser *parser, const char **p) {
    rill__rows *rows = &parser->rows;
    const char *s = *p, *line = s;
    uint64_t start = rows->entries, at = start, previous = 0;
    bool out_of_order = false;
    double label;
    int64_t qid;
    RILL_TRY_DATA(parse_label(parser, &s, &label));
    s = skip_blanks(s);
    if (*s == 'q' && parse_qid(&s, &qid)) {
        RILL_TRY_DATA(rill__rows_set_qid(rows, qid));
        parser->qids++;
    }
    for (;;) {
        s = skip_blanks(s);
        if (*s == '\n' || *s == '#') break;
        uint64_t index;
        RILL_TRY_DATA(parse_entry(parser, &s, &index, &rows->value[at]));
        if (__builtin_expect(index > UINT32_MAX, 0) && !rows->wide) {
            rows->entries = at;
            RILL_TRY_DATA(rill__rows_widen(rows));
        }
        rill__rows_set_index(rows, at, index);
        out_of_order |= index <= previous && at > start;
        previous = index;
        at++;
    }
    rows->entries = at;
    if (out_of_order) RILL_TRY_DATA(settle_row(parser, start, line));
    if (rows->entries > start) {
        uint64_t least = rill__rows_index(rows, start);
        uint64_t most = rill__rows_index(rows, rows->entries - 1);
        if (!least && parser->base == 1)
            return bad_token(parser, "0 ", "index 0, but indices start at 1");
        parser->saw_zero |= !least;
        if (most > parser->largest) parser->largest = most;
    }
    rows->label[rows->rows++] = label;
    rows->start[rows->rows] = rows->entries;
    *p = *s == '\n' ? s + 1 : (const char *)rawmemchr(s, '\n') + 1;
    return RILL_OK;
}

/* Newlines in the text, to know how many rows there can be. */
static uint64_t count_lines(const char *text, const char *end) {
    uint64_t lines = 0;
    for (const char *p = text; p < end; p++)
        lines += *p == '\n';
    return lines;
}

rill_status rill__parse_lines(rill__parser *parser, const char *text, const char *end) {
    RILL_TRY_DATA(
        rill__rows_reserve(&parser->rows, count_lines(text, end), (uint64_t)(end - text) / 4 + 1));
    while (text < end) {
        parser->lines++;
        const char *p = skip_blanks(text);
        if (*p == '\n' || *p == '#') {
            parser->blank_lines++;
            text = (const char *)rawmemchr(p, '\n') + 1;
            continue;
        }
        RILL_TRY_DATA(parse_row(parser, &p));
        text = p;
    }
    return RILL_OK;
}
