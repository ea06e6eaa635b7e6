/* rill predict: what a model says about data, and how right it is.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "parse.h"
#include "tool.h"
#include "tool_output.h"
#include "tool_progress.h"
#include "world_train.h"

#include <math.h>
#include <rill/train.h>
#include <stdlib.h>
#include <string.h>

typedef struct predict_config {
    const char *file, *model, *output;
    world_options where;
    int hash_bits, base;
    uint64_t seed;
    bool normalize, probability, help;
} predict_config;

void cmd_predict_help(FILE *out) {
    fputs("usage: rill predict FILE --model MODEL [OPTION...]\n"
          "\n"
          "Applies a model in LIBLINEAR's format to svmlight text or binary data, and prints\n"
          "'accuracy' and, for two classes, 'auc'; in regression 'mse'.\n"
          "\n"
          "  --model FILE        from 'rill train' or LIBLINEAR's train\n"
          "  -o, --output FILE   write the predicted label of each row\n"
          "  --probability       and the probabilities of all labels, as LIBLINEAR's predict -b 1\n"
          "  --normalize         scale rows to norm 1, as in training\n"
          "  --hash BITS         hash features, as in training, with the --seed N of it (1)\n"
          "  --base B            index of the first feature in text: 0 or 1; default: found\n"
          "  --ranks P           ranks to start (1)\n"
          "  --link L            mpi, ucx, local; and --hostfile FILE: see rill train --help\n"
          "  -h, --help          this text\n",
          out);
}

static int set_option(void *context, int option, const char *value) {
    predict_config *c = context;
    int status;
    if (world_option("predict", option, value, &c->where, &status)) return status;
    switch (option) {
    case 'm': c->model = value; break;
    case 'o': c->output = value; break;
    case 'p': c->probability = true; break;
    case 'n': c->normalize = true; break;
    case 'H':
        if (!parse_int(value, 1, 31, &c->hash_bits))
            return tool_usage("predict", "--hash: '%s' is not a number of bits from 1 to 31",
                              value);
        break;
    case 's':
        if (!parse_count(value, &c->seed))
            return tool_usage("predict", "--seed: '%s' is not a number", value);
        break;
    case 'b':
        if (!parse_int(value, 0, 1, &c->base))
            return tool_usage("predict", "--base: '%s' is not 0 or 1", value);
        break;
    case 'h': c->help = true; break;
    default: return EXIT_USAGE;
    }
    return EXIT_OK;
}

static int read_options(int argc, char **argv, predict_config *c) {
    static const struct option options[] = {{"model", 1, NULL, 'm'},
                                            {"output", 1, NULL, 'o'},
                                            {"probability", 0, NULL, 'p'},
                                            {"normalize", 0, NULL, 'n'},
                                            {"hash", 1, NULL, 'H'},
                                            {"seed", 1, NULL, 's'},
                                            {"base", 1, NULL, 'b'},
                                            {"help", 0, NULL, 'h'},
                                            WORLD_OPTIONS,
                                            {0}};
    const char *words[1];
    int n = 0, status = tool_words("predict", argc, argv, options, 1, words, &n, set_option, c);
    if (status != EXIT_OK || c->help) return status;
    if (!n) return tool_usage("predict", "which file?");
    if (!c->model) return tool_usage("predict", "--model is missing");
    if (c->probability && !c->output)
        return tool_usage("predict", "--probability needs --output FILE");
    c->file = words[0];
    return EXIT_OK;
}

/* The rows of this rank as lines, or NULL. */
static char *make_lines(const rill_model *m, const rill_model_view *view, const predict_config *c,
                        uint64_t rows, const double *decision, const double *predicted,
                        size_t *size) {
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    double *p = malloc(((size_t)view->labels + 2) * sizeof *p);
    for (uint64_t i = 0; out && p && i < rows; i++) {
        fprintf(out, "%.17g", predicted[i]);
        if (c->probability &&
            rill_model_probabilities(m, decision + i * (uint64_t)view->columns, p) == RILL_OK)
            for (int k = 0; k < view->labels; k++)
                fprintf(out, " %.9g", p[k]);
        fputc('\n', out);
    }
    bool good = out && p;
    if (out && fclose(out)) good = false;
    free(p);
    if (good) return text;
    free(text);
    return NULL;
}

/* Rank after rank tells its lines, and rank 0 writes them. 0 or an errno, on all. */
static int write_lines(const tool_world *w, const char *path, const char *head, char *text,
                       size_t size) {
    enum { CHUNK = 1 << 16 };
    char chunk[CHUNK];
    int error = 0;
    rill__outfile out;
    if (w->rank == 0) {
        error = rill__outfile_open(path, &out);
        if (!error) error = rill__outfile_write(&out, head, strlen(head));
        if (!error) error = rill__outfile_write(&out, text, size);
    }
    for (int r = 1; r < w->size; r++) {
        uint64_t n = size;
        world_bcast(w, &n, sizeof n, r);
        for (uint64_t at = 0; at < n; at += CHUNK) {
            size_t part = (size_t)(n - at < CHUNK ? n - at : CHUNK);
            if (w->rank == r) memcpy(chunk, text + at, part);
            world_bcast(w, chunk, part, r);
            if (w->rank == 0 && !error) error = rill__outfile_write(&out, chunk, part);
        }
    }
    if (w->rank == 0) {
        int closed = rill__outfile_close(&out, !error);
        if (!error) error = closed;
    }
    world_bcast(w, &error, sizeof error, 0);
    return error;
}

/* All ranks get the failure of the lowest rank that has one: where only some can read the model,
 * too. */
static rill_status agree(const tool_world *w, rill_status mine) {
    int first = world_int(w, mine == RILL_OK ? w->size : w->rank, WORLD_MIN);
    if (first == w->size) return RILL_OK;
    char detail[512];
    int status = mine;
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    world_bcast(w, &status, sizeof status, first);
    world_bcast(w, detail, sizeof detail, first);
    return rill_error_set((rill_status)status, detail);
}

static rill_status output(const tool_world *w, const predict_config *c, const rill_model *m,
                          const rill_dataset *set) {
    rill_model_view view = RILL_MODEL_VIEW_INIT;
    rill_data_view data = RILL_DATA_VIEW_INIT;
    rill_model_look(m, &view);
    rill_dataset_view(set, &data);
    if (c->probability && !view.probability)
        return rill_error_set(RILL_ERR_UNSUPPORTED,
                              "--probability needs a model of logistic regression");
    size_t size = 0;
    double *decision = malloc((size_t)(data.rows * (uint64_t)view.columns + 1) * sizeof *decision);
    double *predicted = malloc(((size_t)data.rows + 1) * sizeof *predicted);
    char *text = NULL, head[4096] = "";
    rill_status status = RILL_OK;
    if (decision && predicted) status = rill_model_predict(m, set, decision, predicted);
    if (status == RILL_OK && decision && predicted)
        text = make_lines(m, &view, c, data.rows, decision, predicted, &size);
    if (status == RILL_OK && !text) status = rill_error_set(RILL_ERR_MEMORY, "out of memory");
    status = agree(w, status);
    if (c->probability) {
        size_t at = (size_t)snprintf(head, sizeof head, "labels");
        for (int k = 0; k < view.labels && at < sizeof head - 32; k++)
            at += (size_t)snprintf(head + at, sizeof head - at, " %.17g", view.label[k]);
        snprintf(head + at, sizeof head - at, "\n");
    }
    int error = status == RILL_OK ? write_lines(w, c->output, head, text, size) : 0;
    if (error) {
        snprintf(head, sizeof head, "%s: cannot be written: %s", c->output, strerror(error));
        status = rill_error_set(RILL_ERR_IO, head);
    }
    free(text);
    free(decision);
    free(predicted);
    return status;
}

static rill_status predict(const tool_world *w, const predict_config *c) {
    rill_model *model = NULL;
    rill_dataset *set = NULL;
    rill_data_options options = RILL_DATA_OPTIONS_INIT;
    rill_metrics metrics = RILL_METRICS_INIT;
    options.base = c->base;
    rill_status status = agree(w, rill_model_load(c->model, &model));
    if (status == RILL_OK) status = world_dataset_load(w, c->file, &options, &set);
    if (status == RILL_OK && c->hash_bits) status = rill_dataset_hash(set, c->hash_bits, c->seed);
    if (status == RILL_OK && c->normalize) status = rill_dataset_normalize(set);
    if (status == RILL_OK) status = world_model_evaluate(w, model, set, &metrics);
    if (status == RILL_OK && c->output) status = output(w, c, model, set);
    if (status == RILL_OK && tool_speaks()) {
        printf("rows %llu\n", (unsigned long long)metrics.rows);
        if (!isnan(metrics.accuracy)) printf("accuracy %.6f\n", metrics.accuracy);
        if (!isnan(metrics.auc)) printf("auc %.6f\n", metrics.auc);
        if (!isnan(metrics.mse)) printf("mse %.9g\n", metrics.mse);
    }
    rill_dataset_free(&set);
    rill_model_free(&model);
    return status;
}

static int run_all(const tool_world *w, const void *context) {
    if (predict(w, context) == RILL_OK) return EXIT_OK;
    tool_error("predict: %s", rill_last_error());
    return EXIT_FAILED;
}

int cmd_predict(int argc, char **argv) {
    predict_config config = {.base = -1, .seed = 1};
    int status = read_options(argc, argv, &config);
    if (status != EXIT_OK) return status;
    if (config.help) {
        if (tool_speaks()) cmd_predict_help(stdout);
        return EXIT_OK;
    }
    return world_run(&(world_job){.command = "predict",
                                  .options = &config.where,
                                  .ranks = 1,
                                  .argc = argc,
                                  .argv = argv,
                                  .tune_malloc = true,
                                  .run = run_all,
                                  .context = &config});
}
