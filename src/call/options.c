/* The options of a call: what was given, then the communicator's defaults, resolved to what they
 * name. What there is, and how texts become values, is in the table (core/settings.h). */
#include "call/comm.h"

#include <stddef.h>
#include <string.h>

static rill_status unknown(rill_collective collective, const char *setting, const char *name) {
    return rill__fail(RILL_ERR_UNKNOWN, "%s: %s '%s' %s", rill_collective_name(collective), setting,
                      name, rill__setting_named(setting)->otherwise);
}

/* A default for allreduce says nothing about collectives that have no such algorithm. */
static rill_status resolve_algorithm(rill_collective collective, const char *name, bool given,
                                     rill__settings *s) {
    s->algorithm = NULL;
    if (!name || strcmp(name, "auto") == 0) return RILL_OK;
    s->algorithm = rill__algorithm_named(collective, name);
    return s->algorithm || !given ? RILL_OK : unknown(collective, "algorithm", name);
}

static rill_status resolve_codec(rill_collective collective, const char *name, rill__settings *s) {
    s->codec = NULL;
    if (!name || strcmp(name, "auto") == 0) return RILL_OK;
    s->codec = rill__index_codec_by_name(name);
    return s->codec ? RILL_OK : unknown(collective, "codec", name);
}

static rill_status resolve_partition(rill_collective collective, const char *name,
                                     rill__settings *s) {
    s->partition = RILL__ANY_PARTITION;
    if (!name && s->algorithm && s->algorithm->balances) name = "balanced";
    if (!name || strcmp(name, "auto") == 0) return RILL_OK;
    if (strcmp(name, "uniform") == 0) s->partition = RILL__UNIFORM;
    else if (strcmp(name, "balanced") == 0) s->partition = RILL__BALANCED;
    else return unknown(collective, "partition", name);
    return RILL_OK;
}

static rill_status resolve_bits(rill_collective collective, const char *name, int bits, int *out) {
    *out = bits < 0 ? 0 : bits;
    if (!*out || rill__setting_bits(*out)) return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT, "%s: %s = %d %s", rill_collective_name(collective), name,
                      bits, rill__setting_named(name)->otherwise);
}

static rill_status resolve_scope(rill_collective collective, const char *name, rill__settings *s) {
    s->all_values = name && strcmp(name, "all") == 0;
    if (!name || s->all_values || strcmp(name, "auto") == 0) return RILL_OK;
    return unknown(collective, "value_scope", name);
}

rill_status rill__settings_resolve(const rill_comm *comm, rill_collective collective,
                                   const rill_options *given, rill__settings *s) {
    static const rill_options unset = RILL_OPTIONS_INIT;
    rill_options merged;
    if (!given) given = &unset;
    if (given->size < offsetof(rill_options, value_scope)) /* what it asks for would not be seen */
        return rill__fail(RILL_ERR_ARGUMENT, "%s: options.size %zu: use RILL_OPTIONS_INIT",
                          rill_collective_name(collective), given->size);
    const rill_options *o = given;
    if (rill__settings_need_merge(given, &comm->defaults)) {
        rill__settings_merge(given, &comm->defaults, &merged);
        o = &merged;
    }
    RILL_TRY(resolve_algorithm(collective, o->algorithm, given->algorithm != NULL, s));
    RILL_TRY(resolve_codec(collective, o->codec, s));
    RILL_TRY(resolve_partition(collective, o->partition, s));
    RILL_TRY(resolve_scope(collective, o->value_scope, s));
    s->profile = NULL;
    s->on_devices = false;
    s->block = o->block;
    s->expected_nnz = o->expected_nnz;
    RILL_TRY(resolve_bits(collective, "allow_bits", o->allow_bits, &s->allow_bits));
    return resolve_bits(collective, "value_bits", o->value_bits, &s->value_bits);
}

rill_options rill__settings_options(const rill__settings *s) {
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = s->algorithm ? s->algorithm->name : "auto";
    o.codec = s->codec ? s->codec->name : "auto";
    o.value_bits = s->value_bits;
    o.expected_nnz = s->expected_nnz;
    o.partition = s->partition == RILL__UNIFORM    ? "uniform"
                  : s->partition == RILL__BALANCED ? "balanced"
                                                   : "auto";
    o.value_scope = s->all_values ? "all" : "auto";
    o.block = s->block;
    o.allow_bits = s->allow_bits;
    return o;
}
