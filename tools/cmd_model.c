/* rill model: what is in a model.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "parse.h"
#include "tool.h"
#include "tool_progress.h"

#include <errno.h>
#include <math.h>
#include <rill/train.h>
#include <stdlib.h>
#include <string.h>

typedef struct model_config {
    const char *file, *names;
    int top;
    bool help;
} model_config;

void cmd_model_help(FILE *out) {
    fputs("usage: rill model MODEL [OPTION...]\n"
          "\n"
          "Says what is in a model of 'rill train' or LIBLINEAR: how it was made, and its largest\n"
          "weights. Features are numbered from 1, as in LIBLINEAR's files.\n"
          "\n"
          "  --top N        how many weights of each column (10)\n"
          "  --names FILE   a vocabulary: line i is the name of feature i\n"
          "  -h, --help     this text\n",
          out);
}

static int set_option(void *context, int option, const char *value) {
    model_config *c = context;
    switch (option) {
    case 't':
        if (!parse_int(value, 0, 1000000, &c->top))
            return tool_usage("model", "--top: '%s' is not a number of weights", value);
        break;
    case 'n': c->names = value; break;
    case 'h': c->help = true; break;
    default: return EXIT_USAGE;
    }
    return EXIT_OK;
}

/* The lines of the vocabulary, as many as there are features at most. */
typedef struct names {
    char **line;
    uint64_t n;
} names;

static bool read_names(const char *path, uint64_t most, names *all) {
    errno = 0;
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t length = 0;
    if (file) all->line = calloc((size_t)most + 1, sizeof *all->line);
    while (all->line && all->n < most && (length = getline(&line, &room, file)) >= 0) {
        while (length > 0 && strchr("\r\n", line[length - 1]))
            line[--length] = '\0';
        if (!(all->line[all->n++] = strdup(line))) break;
    }
    bool good = file && all->line && !ferror(file) && (!all->n || all->line[all->n - 1]);
    if (!good) tool_error("model: %s: cannot be read: %s", path, strerror(errno ? errno : ENOMEM));
    free(line);
    if (file) fclose(file);
    return good;
}

static void free_names(names *all) {
    for (uint64_t i = 0; i < all->n; i++)
        free(all->line[i]);
    free(all->line);
}

/* ---- the largest weights -------------------------------------------------------------------- */

static const double *sorted_by; /* of qsort: weights of one column */
static uint64_t sorted_step;

static int by_size(const void *a, const void *b) {
    uint64_t i = *(const uint64_t *)a, j = *(const uint64_t *)b;
    double x = fabs(sorted_by[i * sorted_step]), y = fabs(sorted_by[j * sorted_step]);
    return x != y ? (x < y) - (x > y) : (i > j) - (i < j);
}

/* first: how the data call the first feature. */
static bool print_top(const model_config *c, const rill_model_view *v, unsigned first,
                      const names *all) {
    uint64_t *order = malloc(((size_t)v->features + 1) * sizeof *order);
    for (int k = 0; order && k < v->columns; k++) {
        uint64_t n = 0;
        for (uint64_t j = 0; j < v->features; j++)
            if (v->weight[j * (uint64_t)v->columns + (uint64_t)k] != 0) order[n++] = j;
        sorted_by = v->weight + k;
        sorted_step = (uint64_t)v->columns;
        qsort(order, (size_t)n, sizeof *order, by_size);
        if (v->labels) printf("\nlargest weights, for label %g:\n", v->label[k]);
        else printf("\nlargest weights:\n");
        for (uint64_t i = 0; i < n && i < (uint64_t)c->top; i++)
            printf("  %10llu  %+.6g%s%s\n", (unsigned long long)order[i] + first,
                   sorted_by[order[i] * sorted_step], order[i] < all->n ? "  " : "",
                   order[i] < all->n ? all->line[order[i]] : "");
    }
    bool good = order != NULL;
    free(order);
    if (!good) tool_error("model: out of memory");
    return good;
}

/* ---- the rest ------------------------------------------------------------------------------- */

static void print_bias(const rill_model_view *v, const rill_model_about *about) {
    if (v->bias < 0) {
        printf("bias          none\n");
        return;
    }
    printf("%s", about->intercept ? "intercept    " : "bias         ");
    for (int c = 0; c < v->columns && c < 8; c++)
        printf(" %.6g", v->weight[v->features * (uint64_t)v->columns + (uint64_t)c] * v->bias);
    printf("%s\n", v->columns > 8 ? " ..." : "");
}

static void print_about(const char *path, const rill_model_view *v, const rill_model_about *about) {
    uint64_t used = 0;
    for (uint64_t j = 0; j < v->features * (uint64_t)v->columns; j++)
        used += v->weight[j] != 0;
    printf("%s\n", path);
    printf("type          %s (%s)\n", v->solver_type, v->regression ? "regression" : "classes");
    if (v->labels) printf("labels       ");
    for (int i = 0; i < v->labels && i < 16; i++)
        printf(" %g", v->label[i]);
    if (v->labels) printf("%s\n", v->labels > 16 ? " ..." : "");
    printf("features      %llu\n", (unsigned long long)v->features);
    printf("weights       %llu in %d column%s, %llu not 0\n",
           (unsigned long long)(v->features * (uint64_t)v->columns), v->columns,
           v->columns == 1 ? "" : "s", (unsigned long long)used);
    print_bias(v, about);
    if (!*about->loss) {
        printf("made          unknown: there are no lines of rill behind the weights\n");
        return;
    }
    printf("loss          %s%s%s", about->loss, *about->multiclass ? ", " : "", about->multiclass);
    if (about->huber_delta > 0) printf(", distance %g", about->huber_delta);
    printf("\n");
    printf("C             %g\n", about->C);
    printf("scale         %s\n", about->scale);
    printf("normalize     %s\n", about->normalize ? "yes" : "no");
    if (about->hash_bits)
        printf("hash          %d bits, seed %llu\n", about->hash_bits,
               (unsigned long long)about->hash_seed);
    else printf("hash          no\n");
    if (about->base >= 0) printf("indices       from %d\n", about->base);
    printf("trained on    %llu rows; the data have %llu entries, checksum %016llx\n",
           (unsigned long long)about->rows, (unsigned long long)about->entries,
           (unsigned long long)about->checksum);
}

static int show(const model_config *c) {
    rill_model *model = NULL;
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    rill_model_about about = RILL_MODEL_ABOUT_INIT;
    names all = {0};
    if (rill_model_load(c->file, &model) != RILL_OK) {
        tool_error("model: %s", rill_last_error());
        return EXIT_FAILED;
    }
    rill_model_look(model, &view);
    rill_model_get_about(model, &about);
    bool good = !c->names || read_names(c->names, view.features, &all);
    if (good) print_about(c->file, &view, &about);
    if (good && c->top) good = print_top(c, &view, about.base != 0, &all);
    free_names(&all);
    rill_model_free(&model);
    return good ? EXIT_OK : EXIT_FAILED;
}

int cmd_model(int argc, char **argv) {
    static const struct option options[] = {{"top", 1, NULL, 't'},
                                            {"names", 1, NULL, 'n'},
                                            {"help", 0, NULL, 'h'},
                                            {0}};
    model_config config = {.top = 10};
    const char *words[1];
    int n = 0, status = tool_words("model", argc, argv, options, 1, words, &n, set_option, &config);
    if (status != EXIT_OK || !tool_speaks()) return status; /* under a launcher rank 0 does it */
    if (config.help) {
        cmd_model_help(stdout);
        return EXIT_OK;
    }
    if (!n) return tool_usage("model", "which model?");
    config.file = words[0];
    return show(&config);
}
