/* What follows from the rows: reading, precedence, checks, the word of what ranks compare. */
#include "core/settings.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_TEXT = 64 };

static bool is_text(rill__setting_kind kind) {
    return kind == RILL__S_NAME || kind == RILL__S_TEXT || kind == RILL__S_PATH;
}

static void *field(void *of, rill__field place) { return (char *)of + place.at; }
static const void *field_of(const void *of, rill__field place) {
    return (const char *)of + place.at;
}

const rill__setting *rill__setting_named(const char *name) {
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++)
        if (strcmp(row->name, name) == 0) return row;
    return NULL;
}

const rill__setting *rill__setting_in_slot(int slot) {
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++)
        if (row->slot == slot) return row;
    return NULL;
}

bool rill__setting_knows(const rill__setting *row, const char *text) {
    const char *name;
    for (int i = 0; (name = row->names(i)); i++)
        if (strcmp(name, text) == 0) return true;
    return false;
}

/* ---- look-up ------------------------------------------------------------------------------ */

rill_status rill__setting_too_long(const char *name, size_t length) {
    return rill__fail(RILL_ERR_ARGUMENT, "setting %s is longer than %zu bytes", name, length - 1);
}

/* value stays as it is where nobody says anything. */
static rill_status look_up(const rill__setting *row, const rill__info *info, char *value,
                           size_t length, bool *found) {
    *found = false;
    if (info && row->info) RILL_TRY(info->look_up(info->context, row->name, value, length, found));
    const char *text = *found ? NULL : getenv(row->environment);
    if (!text || !*text) return RILL_OK;
    if (strlen(text) >= length) return rill__setting_too_long(row->name, length);
    strcpy(value, text);
    *found = true;
    return RILL_OK;
}

static rill_status parse_number(const rill__setting *row, const char *text, uint64_t *number) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || !isdigit((unsigned char)text[0]) || *end)
        return rill__fail(RILL_ERR_ARGUMENT, "setting %s = '%s' is not a number", row->name, text);
    *number = value;
    return RILL_OK;
}

static void put_number(const rill__setting *row, uint64_t number, rill__defaults *d) {
    int32_t small = number == UINT64_MAX ? -1 : (int32_t)rill__min_u64(number, INT32_MAX);
    if (row->kind == RILL__S_SIZE) memcpy(field(d, row->comm), &number, sizeof number);
    else memcpy(field(d, row->comm), &small, sizeof small);
}

static rill_status read_one(const rill__setting *row, const rill__info *info, rill__defaults *d) {
    bool found;
    char text[NUMBER_TEXT];
    uint64_t number = row->initial;
    if (is_text(row->kind)) {
        size_t length = row->comm.end - row->comm.at;
        RILL_TRY(look_up(row, info, field(d, row->comm), length, &found));
    } else {
        RILL_TRY(look_up(row, info, text, sizeof text, &found));
        if (found) RILL_TRY(parse_number(row, text, &number));
        /* Small ones have a value for nobody, which is no number that somebody may say. */
        if (found && row->kind != RILL__S_SIZE) number = rill__min_u64(number, INT32_MAX);
        put_number(row, number, d);
    }
    if (found && row->options.end) d->for_calls = 1;
    return RILL_OK;
}

rill_status rill__settings_read(const rill__info *info, rill__defaults *d) {
    const rill__setting *row;
    memset(d, 0, sizeof *d);
    for (int i = 0; (row = rill__setting_row(i)); i++)
        if (row->comm.end) RILL_TRY(read_one(row, info, d));
    return RILL_OK;
}

/* ---- structs ------------------------------------------------------------------------------ */

/* Programs that were built before a field was there have a shorter struct. */
static bool has(size_t size, rill__field place) { return place.end && size >= place.end; }

/* One that is too long is cut off, and no name that is known. */
static void take_text(const rill__setting *row, const void *at, rill__defaults *d) {
    const char *text;
    memcpy(&text, at, sizeof text);
    if (text) snprintf(field(d, row->comm), row->comm.end - row->comm.at, "%s", text);
}

void rill__settings_take(const rill_config *config, rill__defaults *d) {
    const rill__setting *row;
    for (int i = 0; config && (row = rill__setting_row(i)); i++) {
        if (!has(config->size, row->config)) continue;
        if (is_text(row->kind)) {
            take_text(row, field_of(config, row->config), d);
            continue;
        }
        uint64_t word = rill__setting_word(row->kind, field_of(config, row->config));
        bool set = row->kind == RILL__S_SIZE ? word != 0 : (int64_t)word >= 0;
        if (set) put_number(row, word, d);
    }
}

static rill_status check_name(const rill__setting *row, const char *text) {
    if (!text || !*text || rill__setting_knows(row, text)) return RILL_OK;
    return rill__fail(RILL_ERR_UNKNOWN, "setting %s = '%s' %s", row->name, text, row->otherwise);
}

static rill_status check_number(const rill__setting *row, const void *at) {
    uint64_t number = rill__setting_word(row->kind, at);
    if (number == row->initial || row->holds(rill__setting_number(row->kind, number)))
        return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT, "setting %s = %llu %s", row->name,
                      (unsigned long long)number, row->otherwise);
}

rill_status rill__settings_check(const rill__defaults *d) {
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++) {
        if (!row->comm.end) continue;
        if (row->kind == RILL__S_NAME) RILL_TRY(check_name(row, field_of(d, row->comm)));
        else if (row->holds) RILL_TRY(check_number(row, field_of(d, row->comm)));
    }
    return RILL_OK;
}

rill_status rill__settings_check_own(void) {
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++)
        if (row->environment && !row->comm.end && row->kind == RILL__S_NAME)
            RILL_TRY(check_name(row, getenv(row->environment)));
    return RILL_OK;
}

/* Calls come here: rows of other structs are not looked at. */
void rill__settings_merge(const rill_options *given, const rill__defaults *d,
                          rill_options *merged) {
    const size_t size = given->size;
    merged->size = sizeof *merged;
    for (const rill__setting *row = rill__setting_table; row->options.end; row++) {
        const bool there = size >= row->options.end;
        const void *from = field_of(given, row->options), *below = field_of(d, row->comm);
        void *to = field(merged, row->options);
        if (row->kind == RILL__S_SIZE) {
            const uint64_t *asked = from;
            *(uint64_t *)to = there && *asked ? *asked : *(const uint64_t *)below;
        } else if (row->kind == RILL__S_INT) {
            const int *asked = from;
            *(int *)to = there && *asked >= 0 ? *asked : *(const int32_t *)below;
        } else {
            const char *text = there ? *(const char *const *)from : NULL, *name = below;
            if (!text && row->comm.end && *name) text = name;
            *(const char **)to = text;
        }
    }
}

/* ---- what ranks compare ------------------------------------------------------------------- */

uint64_t rill__setting_word(rill__setting_kind kind, const void *at) {
    uint64_t word;
    int number;
    if (kind == RILL__S_SIZE || kind == RILL__S_REAL) {
        memcpy(&word, at, sizeof word);
        return word;
    }
    memcpy(&number, at, sizeof number);
    return (uint64_t)(int64_t)number;
}

double rill__setting_number(rill__setting_kind kind, uint64_t word) {
    double real;
    if (kind == RILL__S_SIZE) return (double)word;
    if (kind != RILL__S_REAL) return (double)(int64_t)word;
    memcpy(&real, &word, sizeof real);
    return real;
}

uint64_t rill__hash_more(uint64_t hash, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

static uint64_t hash_field(uint64_t hash, rill__setting_kind kind, const void *at) {
    if (!is_text(kind)) {
        uint64_t word = rill__setting_word(kind, at);
        return rill__hash_more(hash, &word, sizeof word);
    }
    const char *text;
    memcpy(&text, at, sizeof text);
    return text ? rill__hash_more(hash, text, strlen(text) + 1) : rill__hash_more(hash, "", 1) + 1;
}

uint64_t rill__settings_hash_options(uint64_t hash, const rill_options *o) {
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++)
        if (row->options.end && !row->own)
            hash = hash_field(hash, row->kind, field_of(o, row->options));
    return hash;
}

uint64_t rill__settings_hash_reducer(uint64_t hash, const rill_reducer_options *o) {
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++)
        if (row->reducer.end && !row->own && row->kind != RILL__S_REALS)
            hash = hash_field(hash, row->kind, field_of(o, row->reducer));
    return hash;
}

/* ---- for everybody ------------------------------------------------------------------------ */

const char *rill_setting_at(int i, rill_setting *out) {
    const rill__setting *row = rill__setting_row(i);
    if (!row) return NULL;
    if (!out) return row->name;
    rill_setting all = {.size = out->size,
                        .name = row->name,
                        .environment = row->environment,
                        .info = row->info,
                        .value = row->value,
                        .description = row->description,
                        .structs = (row->config.end ? RILL_IN_CONFIG : 0) |
                                   (row->options.end ? RILL_IN_OPTIONS : 0) |
                                   (row->reducer.end ? RILL_IN_REDUCER_OPTIONS : 0)};
    memcpy(out, &all, rill__min_u64(out->size, sizeof all));
    return row->name;
}
