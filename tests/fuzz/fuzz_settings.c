/* RILL_ variables and keys of MPI_Info on any text, for every row of the table that has them:
 * communicators are refused with a message that names the setting, or get exactly what was said,
 * and then every call finds its settings or says what is wrong with them.
 *
 * A line of the input is NAME=VALUE for the environment, +NAME=VALUE for the info of the
 * configuration and *NAME=VALUE for that of the communicator. MPI is not started: its calls are
 * wrapped (tests/CMakeLists.txt). */
#include "api/comm_mpi.h"
#include "fuzz.h"
#include "link/hosts.h"

#include <ctype.h>
#include <stdio.h>

enum { MOST_ROWS = 100, INFOS = 2 };
static char *given[INFOS][MOST_ROWS]; /* what MPI_Info has, by row */

static const rill__setting *row_at(int k) {
    const rill__setting *row = rill__setting_row(k);
    MUST(!row || k < MOST_ROWS);
    return row;
}

int __wrap_MPI_Info_get_valuelen(MPI_Info info, const char *key, int *length, int *found);
int __wrap_MPI_Info_get(MPI_Info info, const char *key, int length, char *value, int *found);

/* The link of rank 0, whose news go nowhere. */
static rill_status told(rill__link *link, void *data, size_t bytes, int root) {
    MUST(link && data && bytes > 0 && root == 0);
    return RILL_OK;
}

/* An info is a number from 1 on in the place of MPI's pointer or number. */
static MPI_Info info_at(int i) { return (MPI_Info)(intptr_t)(i + 1); }

static const char *value_of(MPI_Info info, const char *key) {
    intptr_t i = (intptr_t)info - 1;
    MUST(i == 0 || i == 1);
    const rill__setting *row;
    for (int k = 0; (row = row_at(k)); k++)
        if (row->info && !strcmp(row->info, key)) return given[i][k];
    MUST(!"a name of the table");
    return NULL;
}

int __wrap_MPI_Info_get_valuelen(MPI_Info info, const char *key, int *length, int *found) {
    const char *value = value_of(info, key);
    *found = value != NULL;
    if (value) *length = (int)strlen(value);
    return MPI_SUCCESS;
}

int __wrap_MPI_Info_get(MPI_Info info, const char *key, int length, char *value, int *found) {
    const char *text = value_of(info, key);
    *found = text != NULL;
    if (text) snprintf(value, (size_t)length + 1, "%s", text);
    return MPI_SUCCESS;
}

/* "NAME=VALUE" of that length, with a mark before it for MPI_Info. */
static void set(const char *line, size_t length) {
    int info = length && *line == '+' ? 0 : length && *line == '*' ? 1 : -1;
    if (info >= 0) line++, length--;
    const char *equals = memchr(line, '=', length);
    const rill__setting *row;
    for (int k = 0; equals && (row = row_at(k)); k++) {
        size_t name = (size_t)(equals - line);
        if (!row->comm.end || strlen(row->name) != name || strncmp(row->name, line, name) != 0)
            continue;
        char *value = strndup(equals + 1, length - (size_t)(equals + 1 - line));
        MUST(value);
        if (info < 0) {
            setenv(row->environment, value, 1);
            free(value);
        } else {
            free(given[info][k]);
            given[info][k] = value;
        }
    }
}

static void clear(void) {
    const rill__setting *row;
    for (int k = 0; (row = row_at(k)); k++) {
        if (row->comm.end) unsetenv(row->environment);
        for (int i = 0; i < INFOS; i++) {
            free(given[i][k]);
            given[i][k] = NULL;
        }
    }
}

/* The text of a setting that counts, or NULL. */
static const char *said(int k) {
    for (int i = 0; i < INFOS; i++)
        if (given[i][k]) return given[i][k];
    const char *value = getenv(row_at(k)->environment);
    return value && *value ? value : NULL;
}

/* A number that is accepted has digits only, and is that number; small ones go up to a limit. */
static void same_number(const char *text, rill__setting_kind kind, const void *at) {
    uint64_t number = 0;
    MUST(*text);
    for (; *text; text++) {
        MUST(isdigit((unsigned char)*text));
        number = number * 10 + (uint64_t)(*text - '0');
    }
    if (kind == RILL__S_BOOL) number = number != 0;
    if (kind == RILL__S_INT) number = rill__min_u64(number, INT32_MAX);
    MUST(number == rill__setting_word(kind, at));
}

static void check_defaults(const rill__defaults *d) {
    const rill__setting *row;
    for (int k = 0; (row = row_at(k)); k++) {
        if (!row->comm.end) continue;
        const void *at = (const char *)d + row->comm.at;
        const char *text = said(k);
        if (row->kind == RILL__S_BOOL || row->kind == RILL__S_INT || row->kind == RILL__S_SIZE) {
            if (text) same_number(text, row->kind, at);
        } else {
            MUST(!strcmp(at, text ? text : ""));
        }
    }
    MUST(d->split_limit >= 1024 && d->value_bits >= -1 && d->allow_bits >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static rill_comm comm; /* only its defaults are looked at */
    static const rill__link_table table = {.bcast = told};
    rill__link link = {.table = &table, .ranks = 1};
    rill__infos infos = {{info_at(0), info_at(1)}};
    rill__info info = {rill__infos_look_up, &infos};
    rill_config config = RILL_CONFIG_INIT;
    char *text = malloc(size + 1);
    MUST(text);
    memcpy(text, data, size);
    text[size] = '\0';
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n')
        set(at, strcspn(at, "\n"));
    rill_status status = rill__defaults_agree(&config, &link, &info, &comm.defaults);
    if (status == RILL_OK) {
        check_defaults(&comm.defaults);
        rill__settings s;
        for (int c = 0; c < RILL_COLLECTIVES; c++) {
            rill_status resolved = rill__settings_resolve(&comm, (rill_collective)c, NULL, &s);
            MUST(resolved == RILL_OK || resolved == RILL_ERR_ARGUMENT);
        }
    } else {
        MUST(status == RILL_ERR_ARGUMENT || status == RILL_ERR_UNKNOWN);
        MUST(strstr(rill_last_error(), "rill_comm_create: "));
    }
    clear();
    free(text);
    return 0;
}
