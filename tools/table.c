#include "table.h"

#include <stdlib.h>
#include <string.h>

table_row *table_add(table *t) {
    if (t->rows == t->capacity) {
        int capacity = t->capacity ? 2 * t->capacity : 8;
        table_row *row = realloc(t->row, (size_t)capacity * sizeof *row);
        if (!row) return NULL;
        t->row = row;
        t->capacity = capacity;
    }
    table_row *row = &t->row[t->rows++];
    memset(row, 0, sizeof *row);
    return row;
}

static void print_cell(const table *t, FILE *out, int column, const char *text, int width) {
    fputs(column ? "  " : "", out);
    if (column >= t->left) fprintf(out, "%*s", width, text);
    else if (column == t->columns - 1) fputs(text, out);
    else fprintf(out, "%-*s", width, text);
}

void table_print(const table *t, FILE *out) {
    int width[TABLE_COLUMNS] = {0};
    for (int c = 0; c < t->columns; c++) {
        width[c] = (int)strlen(t->head[c]);
        for (int r = 0; r < t->rows; r++)
            if (!t->row[r].note[0] || c == 0) {
                int n = (int)strlen(t->row[r].cell[c]);
                if (n > width[c]) width[c] = n;
            }
    }
    for (int c = 0; c < t->columns; c++)
        print_cell(t, out, c, t->head[c], width[c]);
    fputc('\n', out);
    for (int r = 0; r < t->rows; r++) {
        const table_row *row = &t->row[r];
        if (row->note[0]) {
            fprintf(out, "%-*s  %s\n", width[0], row->cell[0], row->note);
            continue;
        }
        for (int c = 0; c < t->columns; c++)
            print_cell(t, out, c, row->cell[c], width[c]);
        fputc('\n', out);
    }
}

void table_free(table *t) {
    free(t->row);
    memset(t, 0, sizeof *t);
}

void cell_text(char *cell, const char *text) { snprintf(cell, TABLE_CELL, "%s", text); }

/* Three significant digits, and the unit. */
static void cell_scaled(char *cell, double value, const char *unit) {
    int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
    snprintf(cell, TABLE_CELL, "%.*f %s", decimals, value, unit);
}

void cell_time(char *cell, double seconds) {
    if (!(seconds >= 0)) cell_text(cell, "-");
    else if (seconds >= 0.9995) cell_scaled(cell, seconds, "s");
    else if (seconds >= 0.9995e-3) cell_scaled(cell, seconds * 1e3, "ms");
    else cell_scaled(cell, seconds * 1e6, "us");
}

void cell_bytes(char *cell, double bytes) {
    if (!(bytes >= 0)) cell_text(cell, "-");
    else if (bytes >= 1e9) cell_scaled(cell, bytes / 1e9, "GB");
    else if (bytes >= 1e6) cell_scaled(cell, bytes / 1e6, "MB");
    else if (bytes >= 1e3) cell_scaled(cell, bytes / 1e3, "kB");
    else snprintf(cell, TABLE_CELL, "%.0f B", bytes);
}

void cell_count(char *cell, uint64_t count) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count), k = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) cell[k++] = ',';
        cell[k++] = digits[i];
    }
    cell[k] = '\0';
}

void cell_ratio(char *cell, double ratio) {
    if (!(ratio >= 0)) cell_text(cell, "-");
    else snprintf(cell, TABLE_CELL, "%.*fx", ratio >= 100 ? 0 : ratio >= 10 ? 1 : 2, ratio);
}
