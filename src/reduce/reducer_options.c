/* The options of a reducer by the table of settings: checks, copies, and what ranks compare. */
#include "reduce/reducer.h"

#include <stdlib.h>
#include <string.h>

#define CREATE "rill_reducer_create: "

static const double default_density = 0.01;

static void *field(rill_reducer_options *o, const rill__setting *row) {
    return (char *)o + row->reducer.at;
}

static const void *field_of(const rill_reducer_options *o, const rill__setting *row) {
    return (const char *)o + row->reducer.at;
}

static const char *text_of(const rill_reducer_options *o, const rill__setting *row) {
    const char *text;
    memcpy(&text, field_of(o, row), sizeof text);
    return text;
}

static double number_of(const rill_reducer_options *o, const rill__setting *row) {
    return rill__setting_number(row->kind, rill__setting_word(row->kind, field_of(o, row)));
}

/* ---- checks ------------------------------------------------------------------------------- */

static rill_status check_one(const rill_reducer_options *o, const rill__setting *row) {
    if (row->kind == RILL__S_NAME) {
        const char *text = text_of(o, row);
        if (!text || rill__setting_knows(row, text)) return RILL_OK;
        return rill__fail(RILL_ERR_UNKNOWN, CREATE "%s '%s' %s", row->name, text, row->otherwise);
    }
    if (!row->holds || row->holds(number_of(o, row))) return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT, CREATE "%s %g %s", row->name, number_of(o, row),
                      row->otherwise);
}

static rill_status check_warmup(const rill_reducer_options *o) {
    if (o->warmup && o->warmup_stages <= 0)
        return rill__fail(RILL_ERR_ARGUMENT, CREATE "warmup_stages %d is not positive",
                          o->warmup_stages);
    for (int i = 0; o->warmup && i < o->warmup_stages; i++)
        if (!(o->warmup[i] > 0 && o->warmup[i] <= 1))
            return rill__fail(RILL_ERR_ARGUMENT, CREATE "warmup[%d] = %g is not in (0, 1]", i,
                              o->warmup[i]);
    return RILL_OK;
}

/* What a call has too is checked with its options (rill__settings_resolve). */
static rill_status check(const rill_reducer_options *o) {
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++)
        if (row->reducer.end && !row->options.end) RILL_TRY(check_one(o, row));
    return check_warmup(o);
}

/* ---- copies ------------------------------------------------------------------------------- */

static char *copy_text(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = rill__malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

/* The user's strings need not outlive the call. A text that could not be copied is NULL then. */
static rill_status copy_texts(rill_reducer_options *o) {
    rill_status status = RILL_OK;
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++) {
        if (!row->reducer.end || row->kind != RILL__S_NAME || !text_of(o, row)) continue;
        const char *copy = copy_text(text_of(o, row));
        if (!copy) status = rill__fail(RILL_ERR_MEMORY, "out of memory");
        memcpy(field(o, row), &copy, sizeof copy);
    }
    return status;
}

static rill_status copy_warmup(rill_reducer *r, const double *stages) {
    if (!stages || !r->options.warmup_steps) return RILL_OK;
    size_t bytes = (size_t)r->options.warmup_stages * sizeof *stages;
    r->warmup = rill__malloc(bytes);
    if (!r->warmup) return rill__fail(RILL_ERR_MEMORY, "out of memory");
    memcpy(r->warmup, stages, bytes);
    return RILL_OK;
}

/* What 0 stands for. */
static void fill_in(rill_reducer_options *o) {
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++) {
        if (!row->reducer.end || row->zero == 0 || number_of(o, row) != 0) continue;
        uint64_t wide = (uint64_t)row->zero;
        int narrow = (int)row->zero;
        const void *from = row->kind == RILL__S_REAL   ? (const void *)&row->zero
                           : row->kind == RILL__S_SIZE ? (const void *)&wide
                                                       : (const void *)&narrow;
        memcpy(field(o, row), from, row->reducer.end - row->reducer.at);
    }
    if (o->density == 0 && o->k == 0) o->density = default_density;
}

static void resolve_nonfinite(rill_reducer *r) {
    const char *name = r->options.nonfinite ? r->options.nonfinite : "void";
    r->voids = strcmp(name, "void") == 0;
    r->guards = r->voids || strcmp(name, "zero") == 0;
}

rill_status rill__reducer_take_options(rill_reducer *r, const rill_reducer_options *given) {
    rill_reducer_options *o = &r->options;
    *o = (rill_reducer_options)RILL_REDUCER_OPTIONS_INIT;
    memcpy(o, given, rill__min_u64(given->size, sizeof *o));
    o->size = sizeof *o;
    rill_status right = check(o), copied = copy_texts(o);
    const double *stages = o->warmup;
    o->warmup = NULL;
    RILL_TRY(right);
    RILL_TRY(copied);
    RILL_TRY(copy_warmup(r, stages));
    resolve_nonfinite(r);
    fill_in(o);
    return RILL_OK;
}

static void free_text(const char *text) {
    union {
        const char *from;
        void *to;
    } owned = {.from = text};
    free(owned.to);
}

void rill__reducer_free_options(rill_reducer *r) {
    const rill__setting *row;
    for (int i = 0; (row = rill__setting_row(i)); i++)
        if (row->reducer.end && row->kind == RILL__S_NAME) free_text(text_of(&r->options, row));
    free(r->warmup);
}

/* ---- what ranks compare ------------------------------------------------------------------- */

uint64_t rill__reducer_options_word(const rill_reducer *r) {
    rill_reducer_options o = r->options;
    uint64_t words[] = {(uint64_t)r->type, r->dim};
    uint64_t hash = rill__hash_more(RILL__HASH_START, words, sizeof words);
    if (!r->warmup) o.warmup_stages = 0;
    hash = rill__settings_hash_reducer(hash, &o);
    if (r->warmup)
        hash = rill__hash_more(hash, r->warmup, (size_t)o.warmup_stages * sizeof *r->warmup);
    return hash;
}
