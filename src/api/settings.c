/* Settings and where they come from: options struct, then MPI_Info, then rank 0's environment. */
#include "api/comm.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_SPLIT_LIMIT 1024 /* a header must fit */

/* ---- look-up on rank 0 --------------------------------------------------------------------------------- */

rill_status rill__setting_too_long(const char *name, size_t length) {
    return rill__fail(RILL_ERR_ARGUMENT, "setting %s is longer than %zu bytes", name, length - 1);
}

static rill_status from_environment(const char *name, char *value, size_t length, bool *found) {
    char key[64] = "RILL_";
    for (size_t i = 0; name[i] && i + 6 < sizeof key; i++)
        key[5 + i] = (char)toupper((unsigned char)name[i]);
    const char *text = getenv(key);
    if (!text || !*text) return RILL_OK;
    if (strlen(text) >= length) return rill__setting_too_long(name, length);
    strcpy(value, text);
    *found = true;
    return RILL_OK;
}

/* value stays as it is where nobody says anything. */
static rill_status look_up(const rill__info *info, const char *name, char *value, size_t length,
                           bool *found) {
    *found = false;
    if (info) RILL_TRY(info->look_up(info->context, name, value, length, found));
    return *found ? RILL_OK : from_environment(name, value, length, found);
}

static rill_status look_up_text(const rill__info *s, const char *name, char *value, size_t length) {
    bool found;
    return look_up(s, name, value, length, &found);
}

static rill_status look_up_number(const rill__info *s, const char *name, uint64_t *number) {
    char text[64], *end;
    bool found;
    RILL_TRY(look_up(s, name, text, sizeof text, &found));
    if (!found) return RILL_OK;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || !isdigit((unsigned char)text[0]) || *end)
        return rill__fail(RILL_ERR_ARGUMENT, "setting %s = '%s' is not a number", name, text);
    *number = value;
    return RILL_OK;
}

static rill_status check_names(const rill__defaults *d) {
    if (d->algorithm[0] && strcmp(d->algorithm, "auto") != 0) {
        bool known = false;
        for (int c = 0; c < RILL__TABLES; c++)
            known |= rill__algorithm_named((rill_collective)c, d->algorithm) != NULL;
        if (!known)
            return rill__fail(RILL_ERR_UNKNOWN, "setting algorithm = '%s' is unknown",
                              d->algorithm);
    }
    if (d->codec[0] && strcmp(d->codec, "auto") != 0 && !rill__index_codec_by_name(d->codec))
        return rill__fail(RILL_ERR_UNKNOWN, "setting codec = '%s' is unknown", d->codec);
    if (d->partition[0] && strcmp(d->partition, "auto") != 0 &&
        strcmp(d->partition, "uniform") != 0 && strcmp(d->partition, "balanced") != 0)
        return rill__fail(RILL_ERR_UNKNOWN, "setting partition = '%s' is unknown", d->partition);
    return RILL_OK;
}

static rill_status gather_defaults(const rill_config *config, const rill__info *s,
                                   rill__defaults *d) {
    *d = (rill__defaults){.value_bits = -1,
                          .check = -1,
                          .split_limit = RILL__SPLIT_LIMIT,
                          .shared_bytes = UINT64_MAX};
    RILL_TRY(look_up_text(s, "algorithm", d->algorithm, sizeof d->algorithm));
    RILL_TRY(look_up_text(s, "codec", d->codec, sizeof d->codec));
    RILL_TRY(look_up_text(s, "partition", d->partition, sizeof d->partition));
    RILL_TRY(look_up_text(s, "profile", d->profile, sizeof d->profile));
    uint64_t bits = UINT64_MAX, check = 0, allow = 0, thread = 0;
    RILL_TRY(look_up_number(s, "value_bits", &bits));
    RILL_TRY(look_up_number(s, "allow_bits", &allow));
    RILL_TRY(look_up_number(s, "expected_nnz", &d->expected_nnz));
    RILL_TRY(look_up_number(s, "block", &d->block));
    RILL_TRY(look_up_number(s, "split_limit", &d->split_limit));
    RILL_TRY(look_up_number(s, "check", &check));
    RILL_TRY(look_up_number(s, "seed", &d->seed));
    RILL_TRY(look_up_number(s, "progress_thread", &thread));
    RILL_TRY(look_up_number(s, "shared_bytes", &d->shared_bytes));
    RILL_TRY(look_up_text(s, "hosts_of", d->hosts_of, sizeof d->hosts_of));
    if (d->hosts_of[0]) RILL_TRY(rill__hosts_check(d->hosts_of));
    if (bits != UINT64_MAX) d->value_bits = (int32_t)rill__min_u64(bits, 1000);
    d->allow_bits = (int32_t)rill__min_u64(allow, 1000);
    d->check = check != 0;
    if (config && config->check >= 0) d->check = config->check != 0;
    d->progress_thread = thread != 0;
    /* Programs built before it have a shorter struct. */
    const size_t with_thread = offsetof(rill_config, progress_thread) + sizeof(int);
    if (config && config->size >= with_thread && config->progress_thread >= 0)
        d->progress_thread = config->progress_thread != 0;
    if (config && config->split_limit) d->split_limit = config->split_limit;
    if (d->split_limit < LEAST_SPLIT_LIMIT || d->split_limit > RILL__SPLIT_LIMIT)
        return rill__fail(RILL_ERR_ARGUMENT, "split_limit = %llu is not from %d to %llu",
                          (unsigned long long)d->split_limit, LEAST_SPLIT_LIMIT,
                          (unsigned long long)RILL__SPLIT_LIMIT);
    return check_names(d);
}

rill_status rill__config_check(const rill_config *config) {
    if (!config || config->size >= offsetof(rill_config, progress_thread)) return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT,
                      "rill_comm_create: config.size is %zu: use RILL_CONFIG_INIT", config->size);
}

rill_status rill__defaults_agree(const rill_config *config, rill__link *link,
                                 const rill__info *info, rill__defaults *d) {
    struct {
        rill__defaults defaults;
        int32_t status;
        char error[200];
    } news;
    memset(&news, 0, sizeof news);
    if (link->rank == 0) {
        news.status = (int32_t)gather_defaults(config, info, &news.defaults);
        if (news.status) snprintf(news.error, sizeof news.error, "%s", rill_last_error());
    }
    RILL_TRY(link->table->bcast(link, &news, sizeof news, 0));
    *d = news.defaults;
    return news.status ? rill__fail((rill_status)news.status, "rill_comm_create: %s", news.error)
                       : RILL_OK;
}

/* ---- one call -------------------------------------------------------------------------------------------- */

static rill_status resolve_algorithm(const rill_comm *comm, rill_collective collective,
                                     const char *name, rill__settings *s) {
    s->algorithm = NULL;
    if (name) {
        if (strcmp(name, "auto") == 0) return RILL_OK;
        s->algorithm = rill__algorithm_named(collective, name);
        if (s->algorithm) return RILL_OK;
        return rill__fail(RILL_ERR_UNKNOWN, "%s: algorithm '%s' is unknown",
                          rill_collective_name(collective), name);
    }
    /* A default for allreduce says nothing about collectives that have no such algorithm. */
    if (comm->defaults.algorithm[0])
        s->algorithm = rill__algorithm_named(collective, comm->defaults.algorithm);
    return RILL_OK;
}

static rill_status resolve_codec(const rill_comm *comm, rill_collective collective,
                                 const char *name, rill__settings *s) {
    s->codec = NULL;
    if (!name && comm->defaults.codec[0]) name = comm->defaults.codec;
    if (!name || strcmp(name, "auto") == 0) return RILL_OK;
    s->codec = rill__index_codec_by_name(name);
    if (s->codec) return RILL_OK;
    return rill__fail(RILL_ERR_UNKNOWN, "%s: codec '%s' is unknown",
                      rill_collective_name(collective), name);
}

static rill_status resolve_partition(const rill_comm *comm, rill_collective collective,
                                     const char *name, rill__settings *s) {
    s->partition = RILL__ANY_PARTITION;
    if (!name && comm->defaults.partition[0]) name = comm->defaults.partition;
    if (!name && s->algorithm && s->algorithm->balances) name = "balanced";
    if (!name || strcmp(name, "auto") == 0) return RILL_OK;
    if (strcmp(name, "uniform") == 0) s->partition = RILL__UNIFORM;
    else if (strcmp(name, "balanced") == 0) s->partition = RILL__BALANCED;
    else
        return rill__fail(RILL_ERR_UNKNOWN, "%s: partition '%s' is unknown",
                          rill_collective_name(collective), name);
    return RILL_OK;
}

static rill_status resolve_bits(rill_collective collective, const char *name, int bits, int *out) {
    *out = bits < 0 ? 0 : bits;
    switch (*out) {
    case 0:
    case 16:
    case 8:
    case 4:
    case 2: return RILL_OK;
    default:
        return rill__fail(RILL_ERR_ARGUMENT, "%s: %s = %d is none of 0, 16, 8, 4, 2",
                          rill_collective_name(collective), name, bits);
    }
}

static rill_status resolve_scope(rill_collective collective, const char *name, rill__settings *s) {
    s->all_values = name && strcmp(name, "all") == 0;
    if (!name || s->all_values || strcmp(name, "auto") == 0) return RILL_OK;
    return rill__fail(RILL_ERR_UNKNOWN, "%s: value_scope '%s' is unknown",
                      rill_collective_name(collective), name);
}

rill_status rill__settings_resolve(const rill_comm *comm, rill_collective collective,
                                   const rill_options *o, rill__settings *s) {
    static const rill_options unset = RILL_OPTIONS_INIT;
    if (!o) o = &unset;
    const rill__defaults *d = &comm->defaults;
    RILL_TRY(resolve_algorithm(comm, collective, o->algorithm, s));
    RILL_TRY(resolve_codec(comm, collective, o->codec, s));
    RILL_TRY(resolve_partition(comm, collective, o->partition, s));
    /* Programs built before value_scope and block have a shorter struct. */
    bool has_scope = o->size >= offsetof(rill_options, value_scope) + sizeof o->value_scope;
    RILL_TRY(resolve_scope(collective, has_scope ? o->value_scope : NULL, s));
    bool has_block = o->size >= offsetof(rill_options, block) + sizeof o->block;
    s->block = has_block && o->block ? o->block : d->block;
    s->expected_nnz = o->expected_nnz ? o->expected_nnz : d->expected_nnz;
    bool has_allow = o->size >= offsetof(rill_options, allow_bits) + sizeof o->allow_bits;
    int allow = has_allow && o->allow_bits >= 0 ? o->allow_bits : d->allow_bits;
    RILL_TRY(resolve_bits(collective, "allow_bits", allow, &s->allow_bits));
    int bits = o->value_bits < 0 ? d->value_bits : o->value_bits;
    return resolve_bits(collective, "value_bits", bits, &s->value_bits);
}
