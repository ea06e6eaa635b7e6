/* RILL_ variables and keys of MPI_Info on any text: communicators are refused with a message that
 * names the setting, or get exactly what was said, and then every call finds its settings or says
 * what is wrong with them.
 *
 * A line of the input is NAME=VALUE for the environment, +NAME=VALUE for the info of the
 * configuration and *NAME=VALUE for that of the communicator. MPI is not started: its calls are
 * wrapped (tests/CMakeLists.txt). */
#include "api/comm_mpi.h"
#include "fuzz.h"
#include "link/hosts.h"

#include <ctype.h>
#include <stdio.h>

static const char *const names[] = {"algorithm",  "codec",        "partition",  "profile",
                                    "value_bits", "allow_bits",   "block",      "expected_nnz",
                                    "check",      "split_limit",  "seed",       "progress_thread",
                                    "hosts_of",   "shared_bytes", "mail_bytes", NULL};
enum { NAMES = sizeof names / sizeof *names - 1, INFOS = 2 };

static char *given[INFOS][NAMES]; /* what MPI_Info has */

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
    MUST(!strncmp(key, "rill_", 5));
    for (int k = 0; k < NAMES; k++)
        if (!strcmp(names[k], key + 5)) return given[i][k];
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

static char *environment_key(int k, char *key) {
    strcpy(key, "RILL_");
    for (size_t i = 0; i <= strlen(names[k]); i++)
        key[5 + i] = (char)toupper((unsigned char)names[k][i]);
    return key;
}

/* "NAME=VALUE" of that length, with a mark before it for MPI_Info. */
static void set(const char *line, size_t length) {
    char key[64];
    int info = length && *line == '+' ? 0 : length && *line == '*' ? 1 : -1;
    if (info >= 0) line++, length--;
    const char *equals = memchr(line, '=', length);
    for (int k = 0; equals && k < NAMES; k++) {
        size_t name = (size_t)(equals - line);
        if (strlen(names[k]) != name || strncmp(names[k], line, name) != 0) continue;
        char *value = strndup(equals + 1, length - (size_t)(equals + 1 - line));
        MUST(value);
        if (info < 0) {
            setenv(environment_key(k, key), value, 1);
            free(value);
        } else {
            free(given[info][k]);
            given[info][k] = value;
        }
    }
}

static void clear(void) {
    char key[64];
    for (int k = 0; k < NAMES; k++) {
        unsetenv(environment_key(k, key));
        for (int i = 0; i < INFOS; i++) {
            free(given[i][k]);
            given[i][k] = NULL;
        }
    }
}

/* The text of a setting that counts, or NULL. */
static const char *said(const char *name) {
    char key[64];
    for (int k = 0; k < NAMES; k++) {
        if (strcmp(names[k], name) != 0) continue;
        for (int i = 0; i < INFOS; i++)
            if (given[i][k]) return given[i][k];
        const char *value = getenv(environment_key(k, key));
        return value && *value ? value : NULL;
    }
    MUST(!"a name of the list");
    return NULL;
}

static void same_text(const char *name, const char *got) {
    const char *value = said(name);
    MUST(!strcmp(got, value ? value : ""));
}

/* A number that is accepted has digits only, and is that number. */
static void same_number(const char *name, uint64_t got) {
    const char *value = said(name);
    if (!value) return;
    uint64_t number = 0;
    MUST(*value);
    for (const char *at = value; *at; at++) {
        MUST(isdigit((unsigned char)*at));
        number = number * 10 + (uint64_t)(*at - '0');
    }
    MUST(number == got);
}

static void check_defaults(const rill__defaults *d) {
    same_text("algorithm", d->algorithm);
    same_text("codec", d->codec);
    same_text("partition", d->partition);
    same_text("profile", d->profile);
    same_text("hosts_of", d->hosts_of);
    same_number("expected_nnz", d->expected_nnz);
    same_number("block", d->block);
    same_number("seed", d->seed);
    same_number("split_limit", d->split_limit);
    same_number("shared_bytes", d->shared_bytes);
    same_number("mail_bytes", d->mail_bytes);
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
