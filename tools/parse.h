/* Strict parsing of what users write: the whole text must be a value, and in range.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_PARSE_H
#define RILL_TOOL_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* 16777216, 2^24, 16M (K, M, G, T are powers of 1024), 1e6, 1.5e6. */
bool parse_count(const char *text, uint64_t *value);
/* 0.01, 1e-2, 1%: in [0, 1]. */
bool parse_fraction(const char *text, double *value);
bool parse_int(const char *text, int least, int most, int *value);
/* Bits of a value: 0, 16, 8, 4 or 2. */
#define PARSE_BITS "one of 0, 16, 8, 4, 2"
bool parse_bits(const char *text, int *value);

/* The parts of a text, in one allocation. Empty parts are kept between commas, not blanks. */
typedef struct text_list {
    int n;
    char **item;
} text_list;

/* False when out of memory. Separators: any character of the set. */
bool list_split(const char *text, const char *separators, text_list *);
void list_free(text_list *);

#endif
