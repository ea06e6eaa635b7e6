/* The text parser on any bytes. What is accepted must be valid rows, and must come back from its
 * own text with the same bits. */
#include "train/data_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

/* Exactly the slack that the parser may look at. */
static rill_status parse(rill__parser *parser, const void *data, size_t size) {
    bool ended = size && ((const char *)data)[size - 1] == '\n';
    char *text = malloc(size + !ended + 16);
    MUST(text);
    if (size) memcpy(text, data, size);
    if (!ended) text[size] = '\n';
    memset(text + size + !ended, 0, 16);
    MUST(rill__parser_init(parser, -1) == RILL_OK);
    rill_status status = rill__parse_lines(parser, text, text + size + !ended);
    free(text);
    return status;
}

static void check(const rill__rows *r) {
    for (uint64_t i = 0; i < r->rows; i++) {
        MUST(isfinite(r->label[i]) && r->start[i] <= r->start[i + 1]);
        for (uint64_t j = r->start[i]; j < r->start[i + 1]; j++) {
            MUST(isfinite(r->value[j]) && rill__rows_index(r, j) < RILL__INDEX_LIMIT);
            MUST(j == r->start[i] || rill__rows_index(r, j) > rill__rows_index(r, j - 1));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rill__parser first, second;
    rill__text text = {0};
    if (parse(&first, data, size) == RILL_OK) {
        const rill__rows *a = &first.rows, *b = &second.rows;
        check(a);
        MUST(rill__text_rows(&text, a, 0, a->rows, 0) == RILL_OK);
        MUST(parse(&second, text.data, text.size) == RILL_OK);
        MUST(a->rows == b->rows && a->entries == b->entries);
        MUST(!second.unsorted_rows && !second.duplicates);
        if (a->rows) {
            MUST(!memcmp(a->start, b->start, (a->rows + 1) * sizeof *a->start));
            MUST(!memcmp(a->label, b->label, a->rows * sizeof *a->label));
            MUST(!a->entries || !memcmp(a->value, b->value, a->entries * sizeof *a->value));
            for (uint64_t j = 0; j < a->entries; j++)
                MUST(rill__rows_index(a, j) == rill__rows_index(b, j));
        }
        rill__parser_free(&second);
    } else MUST(first.failed && first.lines && first.message[0]);
    rill__parser_free(&first);
    free(text.data);
    return 0;
}
