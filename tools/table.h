/* A text table whose columns are as wide as their widest cell, and how figures are written in it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_TABLE_H
#define RILL_TOOL_TABLE_H

#include <stdint.h>
#include <stdio.h>

enum { TABLE_COLUMNS = 16, TABLE_CELL = 32 };

typedef struct table_row {
    char cell[TABLE_COLUMNS][TABLE_CELL];
    char note[160]; /* instead of the cells from the second on, if not empty */
} table_row;

typedef struct table {
    int columns, rows, capacity;
    const char *head[TABLE_COLUMNS];
    int left; /* so many columns are aligned to the left, the others to the right */
    table_row *row;
} table;

/* Adds an empty row; NULL when out of memory. The next call may move it. */
table_row *table_add(table *);
void table_print(const table *, FILE *);
void table_free(table *);

/* Each writes one cell. */
void cell_text(char *cell, const char *text);
void cell_time(char *cell, double seconds);  /* "12.3 ms" */
void cell_bytes(char *cell, double bytes);   /* "1.25 MB" (10^6) */
void cell_count(char *cell, uint64_t count); /* "16,777,216" */
void cell_ratio(char *cell, double ratio);   /* "15.2x" */

#endif
