/* The options of rill bench.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"
#include "launch.h"

#include <stdlib.h>
#include <string.h>

const char *const bench_overlap_names[] = {"uniform", "none", "full", "zipf", "clustered", NULL};
const char *const bench_mode_names[] = {"blocking", "nonblocking", "persistent", NULL};
const char *const bench_form_names[] = {"auto", "sparse", "dense", "block", NULL};
const char *const bench_operation_names[] = {"sum", "min", "max", "prod", NULL};
const char *const bench_type_names[] = {"f32", "f64", "f16", "bf16", NULL};
static const char *const order_names[] = {"interleaved", "blocks", NULL};

enum {
    OPT_COLLECTIVE = 256,
    OPT_DIM,
    OPT_DENSITY,
    OPT_NNZ,
    OPT_ALGORITHM,
    OPT_CODEC,
    OPT_VALUE_BITS,
    OPT_PARTITION,
    OPT_EXPECTED_NNZ,
    OPT_BLOCK,
    OPT_OP,
    OPT_TYPE,
    OPT_OVERLAP,
    OPT_FORM,
    OPT_REPS,
    OPT_WARMUP,
    OPT_SEED,
    OPT_ORDER,
    OPT_NONBLOCKING,
    OPT_PERSISTENT,
    OPT_NO_BASELINE,
    OPT_NO_MALLOC_TUNING,
    OPT_DUMP,
    OPT_JSON,
    OPT_QUIET
};

static const struct option options[] = {
    WORLD_OPTIONS,
    {"collective", required_argument, NULL, OPT_COLLECTIVE},
    {"dim", required_argument, NULL, OPT_DIM},
    {"density", required_argument, NULL, OPT_DENSITY},
    {"nnz", required_argument, NULL, OPT_NNZ},
    {"algorithm", required_argument, NULL, OPT_ALGORITHM},
    {"codec", required_argument, NULL, OPT_CODEC},
    {"value-bits", required_argument, NULL, OPT_VALUE_BITS},
    {"partition", required_argument, NULL, OPT_PARTITION},
    {"expected-nnz", required_argument, NULL, OPT_EXPECTED_NNZ},
    {"block", required_argument, NULL, OPT_BLOCK},
    {"op", required_argument, NULL, OPT_OP},
    {"type", required_argument, NULL, OPT_TYPE},
    {"overlap", required_argument, NULL, OPT_OVERLAP},
    {"form", required_argument, NULL, OPT_FORM},
    {"reps", required_argument, NULL, OPT_REPS},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"seed", required_argument, NULL, OPT_SEED},
    {"order", required_argument, NULL, OPT_ORDER},
    {"nonblocking", no_argument, NULL, OPT_NONBLOCKING},
    {"persistent", no_argument, NULL, OPT_PERSISTENT},
    {"no-baseline", no_argument, NULL, OPT_NO_BASELINE},
    {"no-malloc-tuning", no_argument, NULL, OPT_NO_MALLOC_TUNING},
    {"dump", required_argument, NULL, OPT_DUMP},
    {"json", required_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static int bad(const char *option, const char *value, const char *wanted) {
    return tool_usage("bench", "--%s: '%s' is not %s", option, value, wanted);
}

static int unknown(const char *option, const char *value, const char *const *names) {
    return tool_unknown("bench", option, value, names);
}

static int one_of(const char *option, const char *value, const char *const *names, int *index) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], value)) {
            *index = i;
            return EXIT_OK;
        }
    return unknown(option, value, names);
}

/* Room for n values of that size in place of *array. */
static bool room(void *array, int n, size_t size) {
    void *data = calloc((size_t)n, size), **place = array;
    if (!data) return false;
    free(*place);
    *place = data;
    return true;
}

/* Lists of numbers: dims, densities, nnzs, value bits. */
static int number_list(bench_config *c, int option, const char *name, const char *text) {
    text_list list;
    if (!list_split(text, ",", &list)) return EXIT_FAILED;
    int status = EXIT_OK, bits;
    bool ok = option == OPT_DIM       ? room(&c->dim, list.n, sizeof *c->dim)
              : option == OPT_DENSITY ? room(&c->density, list.n, sizeof *c->density)
              : option == OPT_NNZ     ? room(&c->nnz, list.n, sizeof *c->nnz)
                                      : room(&c->value_bits, list.n, sizeof *c->value_bits);
    if (!ok) status = EXIT_FAILED;
    for (int i = 0; i < list.n && status == EXIT_OK; i++) {
        const char *item = list.item[i];
        switch (option) {
        case OPT_DIM:
            if (!parse_count(item, &c->dim[i]) || !c->dim[i])
                status = bad(name, item,
                             "a dimension of 1 or more, such as 16777216, 2^24, 16M or 1e6");
            c->dims = list.n;
            break;
        case OPT_DENSITY:
            if (!parse_fraction(item, &c->density[i]))
                status = bad(name, item, "a fraction from 0 to 1, such as 0.01 or 1%");
            c->densities = list.n;
            break;
        case OPT_NNZ:
            if (!parse_count(item, &c->nnz[i]))
                status = bad(name, item, "a count, such as 16, 2^10 or 1e6");
            c->nnzs = list.n;
            break;
        default:
            if (!parse_int(item, 0, 16, &bits) ||
                !(bits == 0 || (bits > 1 && !(bits & (bits - 1)))))
                status = bad(name, item, "one of 0, 16, 8, 4, 2");
            else c->value_bits[i] = bits;
            c->bits = list.n;
        }
    }
    list_free(&list);
    return status;
}

static void choices_free(bench_choices *choices) {
    for (int i = 0; i < choices->n; i++)
        free(choices->item[i].name);
    free(choices->item);
    choices->item = NULL;
    choices->n = 0;
}

/* Takes a list of names apart; "all" is expanded by choices_expand, once the collective is known.
 * The texts live in argv's copy: a list_split that is never freed before the end. */
static int choices_set(bench_choices *choices, const char *text) {
    text_list list;
    if (!list_split(text, ",", &list)) return EXIT_FAILED;
    choices_free(choices); /* an option that is given twice */
    if (!room(&choices->item, list.n, sizeof *choices->item)) {
        list_free(&list);
        return EXIT_FAILED;
    }
    choices->n = list.n;
    for (int i = 0; i < list.n; i++)
        choices->item[i].name = strdup(list.item[i]);
    list_free(&list);
    return EXIT_OK;
}

/* Checks names against a table (names, NULL-terminated, whose first `special` entries are not part
 * of "all") and puts the table in the place of "all". Repeated names count once. */
static int choices_expand(bench_choices *choices, const char *option, const char *const *names,
                          int special) {
    int known = 0;
    while (names[known])
        known++;
    bench_choices out = {0, calloc((size_t)known + 1, sizeof *out.item)};
    if (!out.item) return EXIT_FAILED;
    for (int i = 0; i < choices->n; i++) {
        const char *name = choices->item[i].name;
        bool all = !strcmp(name, "all"), found = all;
        for (int k = 0; k < known; k++) {
            if (!(all && k >= special) && strcmp(name, names[k]) != 0) continue;
            found = true;
            int at = 0;
            while (at < out.n && strcmp(out.item[at].name, names[k]) != 0)
                at++;
            if (at == out.n) {
                out.item[out.n].name = strdup(names[k]);
                out.item[out.n++].from_all = all;
            } else if (!all) out.item[at].from_all = false;
        }
        if (!found) {
            int status = unknown(option, name, names);
            choices_free(&out);
            return status;
        }
    }
    choices_free(choices);
    *choices = out;
    return EXIT_OK;
}

static int expand_all(bench_config *c) {
    enum { MOST = 64 };
    const char *names[MOST] = {"mpi", "auto"};
    int n = 2;
    for (const char *name; n < MOST - 1 && (name = rill_algorithm_at(c->collective, n - 2, NULL));)
        names[n++] = name;
    names[n] = NULL;
    /* auto is also found by its name in the table, if it is there. */
    int status = choices_expand(&c->algorithms, "algorithm", names, 1);
    if (status != EXIT_OK || !c->codecs.n) return status;
    names[0] = "auto";
    n = 1;
    for (const char *name; n < MOST - 1 && (name = rill_codec_at(n - 1, NULL));)
        names[n++] = name;
    names[n] = NULL;
    return choices_expand(&c->codecs, "codec", names, 1);
}

static int expand_partitions(bench_config *c) {
    static const char *const names[] = {"auto", "uniform", "balanced", NULL};
    return c->partitions.n ? choices_expand(&c->partitions, "partition", names, 1) : EXIT_OK;
}

static int set_option(bench_config *c, int option, const char *name, const char *value) {
    int index = 0, status;
    if (world_option("bench", option, value, &c->where, &status)) return status;
    switch (option) {
    case OPT_COLLECTIVE: {
        const char *names[RILL_COLLECTIVES + 1] = {0};
        for (int i = 0; i < RILL_COLLECTIVES; i++)
            names[i] = rill_collective_name((rill_collective)i);
        status = one_of(name, value, names, &index);
        c->collective = (rill_collective)index;
        return status;
    }
    case OPT_DIM:
    case OPT_DENSITY:
    case OPT_NNZ:
    case OPT_VALUE_BITS: return number_list(c, option, name, value);
    case OPT_ALGORITHM: return choices_set(&c->algorithms, value);
    case OPT_CODEC: return choices_set(&c->codecs, value);
    case OPT_PARTITION: return choices_set(&c->partitions, value);
    case OPT_EXPECTED_NNZ:
        return parse_count(value, &c->expected_nnz) ? EXIT_OK : bad(name, value, "a count");
    case OPT_BLOCK:
        return parse_count(value, &c->block) && c->block ? EXIT_OK
                                                         : bad(name, value, "a count over 0");
    case OPT_SEED: return parse_count(value, &c->seed) ? EXIT_OK : bad(name, value, "a number");
    case OPT_REPS:
        return parse_int(value, 1, 1 << 24, &c->reps) ? EXIT_OK
                                                      : bad(name, value, "a number of 1 or more");
    case OPT_WARMUP:
        return parse_int(value, 0, 1 << 24, &c->warmup) ? EXIT_OK
                                                        : bad(name, value, "a number of 0 or more");
    case OPT_OP:
        status = one_of(name, value, bench_operation_names, &index);
        c->operation = (bench_operation)index;
        return status;
    case OPT_TYPE:
        status = one_of(name, value, bench_type_names, &index);
        c->type = (rill_type)index;
        return status;
    case OPT_OVERLAP:
        status = one_of(name, value, bench_overlap_names, &index);
        c->overlap = (bench_overlap)index;
        c->overlap_given = true;
        return status;
    case OPT_FORM:
        status = one_of(name, value, bench_form_names, &index);
        c->form = (bench_form)index;
        return status;
    case OPT_ORDER:
        status = one_of(name, value, order_names, &index);
        c->interleave = index == 0;
        return status;
    case OPT_NONBLOCKING: c->mode = MODE_NONBLOCKING; return EXIT_OK;
    case OPT_PERSISTENT: c->mode = MODE_PERSISTENT; return EXIT_OK;
    case OPT_NO_BASELINE: c->baseline = false; return EXIT_OK;
    case OPT_NO_MALLOC_TUNING: c->tune_malloc = false; return EXIT_OK;
    case OPT_DUMP: c->dump_prefix = value; return EXIT_OK;
    case OPT_JSON: c->json_path = value; return EXIT_OK;
    case OPT_QUIET: c->quiet = true; return EXIT_OK;
    }
    return EXIT_FAILED;
}

/* What only shows when all options are known. */
static int finish(bench_config *c) {
    int status = EXIT_OK;
    if (c->densities && c->nnzs)
        return tool_usage("bench", "--density and --nnz: only one of them can be given");
    if (!c->dims) status = number_list(c, OPT_DIM, "dim", "2^20");
    if (status == EXIT_OK && !c->densities && !c->nnzs)
        status = number_list(c, OPT_DENSITY, "density", "1%");
    if (status == EXIT_OK && !c->bits) status = number_list(c, OPT_VALUE_BITS, "value-bits", "0");
    if (status == EXIT_OK && !c->algorithms.n) status = choices_set(&c->algorithms, "all");
    if (status == EXIT_OK) status = expand_all(c);
    if (status == EXIT_OK) status = expand_partitions(c);
    if (status != EXIT_OK) return status;
    for (int d = 0; d < c->dims; d++)
        for (int k = 0; k < c->nnzs; k++)
            if (c->nnz[k] > c->dim[d])
                return tool_usage("bench", "--nnz: %llu is more than the dimension %llu",
                                  (unsigned long long)c->nnz[k], (unsigned long long)c->dim[d]);
    if (c->collective == RILL_ALLGATHER) {
        if (c->overlap_given && c->overlap != OVERLAP_NONE)
            return tool_usage("bench",
                              "--overlap: '%s' can't serve allgather, which is of "
                              "disjoint supports: none",
                              bench_overlap_names[c->overlap]);
        c->overlap = OVERLAP_NONE;
    }
    if ((c->collective == RILL_ALLGATHER || c->collective == RILL_BCAST) &&
        c->operation != OPERATION_SUM)
        return tool_usage("bench", "--op: %s has no operation",
                          rill_collective_name(c->collective));
    return EXIT_OK;
}

int bench_options(int argc, char **argv, bench_config *c, bool *help) {
    *c = (bench_config){.reps = 20,
                        .warmup = 3,
                        .seed = 1,
                        .baseline = true,
                        .tune_malloc = true,
                        .interleave = true};
    *help = false;
    tool_getopt_reset();
    for (int option; (option = tool_getopt("bench", argc, argv, options)) != -1;) {
        if (option == '?') return EXIT_USAGE;
        if (option == 'h') {
            *help = true;
            return EXIT_OK;
        }
        const char *name = "";
        for (const struct option *o = options; o->name; o++)
            if (o->val == option) name = o->name;
        int status = set_option(c, option, name, optarg);
        if (status != EXIT_OK) return status;
    }
    if (optind < argc) {
        static const char *const words[] = {"kernels", "reducer", "overlap", NULL};
        const char *meant = tool_suggest(argv[optind], words);
        if (meant)
            return tool_usage("bench", "unexpected argument '%s'; did you mean 'rill bench %s'?",
                              argv[optind], meant);
        return tool_usage("bench", "unexpected argument '%s'", argv[optind]);
    }
    return finish(c);
}

void bench_config_free(bench_config *c) {
    free(c->dim);
    free(c->density);
    free(c->nnz);
    free(c->value_bits);
    choices_free(&c->algorithms);
    choices_free(&c->codecs);
    choices_free(&c->partitions);
}
