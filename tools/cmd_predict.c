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
    const char *file, *model, *output, *scores, *probabilities;
    world_options where;
    int hash_bits, base;
    uint64_t seed;
    bool normalize, probability, seed_given, help;
} predict_config;

void cmd_predict_help(FILE *out) {
    fputs(
        "usage: rill predict FILE --model MODEL [OPTION...]\n"
        "\n"
        "Applies a model to svmlight text or binary data, prepared as the model says, and prints,\n"
        "as they apply, 'accuracy', 'log_loss', 'auc', 'mse', 'rmse' and 'r2'.\n"
        "\n"
        "  --model FILE          from 'rill train' or LIBLINEAR's train\n"
        "  -o, --output FILE     write the predicted label of each row\n"
        "  --probability         and the probabilities of all labels, as LIBLINEAR's predict -b 1\n"
        "  --scores FILE         write the decision values of each row\n"
        "  --probabilities FILE  write the probabilities of each row, in the order of the labels\n"
        "  --normalize           scale rows to norm 1, if the model does not say\n"
        "  --hash BITS           hash features, with --seed N (1), if the model does not say\n"
        "  --base B              index of the first feature in text, 0 or 1, if the model does "
        "not\n"
        "                        say; default: found\n"
        "  --ranks P             ranks to start (1)\n"
        "  --link L              what carries messages: mpi, ucx or local, as in 'rill train'\n"
        "  --hostfile FILE       hosts to start them on, as in 'rill train'\n"
        "  -h, --help            this text\n"
        "\n"
        "A FILE to write may be '-': standard output; figures then go to standard error.\n",
        out);
}

static int set_option(void *context, int option, const char *value) {
    predict_config *c = context;
    int status;
    if (world_option("predict", option, value, &c->where, &status)) return status;
    switch (option) {
    case 'm': c->model = value; break;
    case 'o': c->output = value; break;
    case 'S': c->scores = value; break;
    case 'P': c->probabilities = value; break;
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
        c->seed_given = true;
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
                                            {"scores", 1, NULL, 'S'},
                                            {"probabilities", 1, NULL, 'P'},
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
    const char *files[] = {c->output, c->scores, c->probabilities};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < i; j++)
            if (files[i] && files[j] && !strcmp(files[i], files[j]))
                return tool_usage("predict",
                                  "'%s' is to be two files: labels, scores and "
                                  "probabilities have one each",
                                  files[i]);
    c->file = words[0];
    return EXIT_OK;
}

/* Takes from the model how data are prepared. What was given and differs is wrong usage. */
static int follow_model(predict_config *c, const rill_model *model) {
    rill_model_about about = RILL_MODEL_ABOUT_INIT;
    rill_model_get_about(model, &about);
    if (!*about.loss) return EXIT_OK;
    if (c->hash_bits && c->hash_bits != about.hash_bits) {
        if (!about.hash_bits)
            return tool_usage("predict", "--hash %d: the model's features were not hashed",
                              c->hash_bits);
        return tool_usage("predict", "--hash %d: the model was trained with --hash %d",
                          c->hash_bits, about.hash_bits);
    }
    if (c->seed_given && about.hash_bits && c->seed != about.hash_seed)
        return tool_usage("predict", "--seed %llu: the model's features were hashed with %llu",
                          (unsigned long long)c->seed, (unsigned long long)about.hash_seed);
    if (c->normalize && !about.normalize)
        return tool_usage("predict", "--normalize: the model was trained without");
    if (c->base >= 0 && about.base >= 0 && c->base != about.base)
        return tool_usage("predict", "--base %d: indices of the model's data start at %d", c->base,
                          about.base);
    if (about.base >= 0) c->base = about.base;
    c->hash_bits = about.hash_bits;
    if (about.hash_bits) c->seed = about.hash_seed;
    c->normalize = about.normalize;
    return EXIT_OK;
}

/* ---- what is written ------------------------------------------------------------------------ */

typedef enum what { LABELS, LABELS_PROBABILITIES, SCORES, PROBABILITIES } what;

typedef struct predicted {
    const rill_model *model;
    rill_model_view view;
    uint64_t rows;
    double *decision, *label;
} predicted;

static void print_row(FILE *out, const predicted *r, what kind, uint64_t row, double *p) {
    const double *z = r->decision + row * (uint64_t)r->view.columns;
    const char *before = "";
    if (kind == LABELS || kind == LABELS_PROBABILITIES) {
        fprintf(out, "%.17g", r->label[row]);
        before = " ";
    }
    if (kind == SCORES)
        for (int c = 0; c < r->view.columns; c++)
            fprintf(out, "%s%.9g", c ? " " : "", z[c]);
    if ((kind == PROBABILITIES || kind == LABELS_PROBABILITIES) &&
        rill_model_probabilities(r->model, z, p) == RILL_OK)
        for (int k = 0; k < r->view.labels; k++, before = " ")
            fprintf(out, "%s%.9g", before, p[k]);
    fputc('\n', out);
}

/* The rows of this rank as lines, or NULL. */
static char *make_lines(const predicted *r, what kind, size_t *size) {
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    double *p = malloc(((size_t)r->view.labels + 2) * sizeof *p);
    for (uint64_t i = 0; out && p && i < r->rows; i++)
        print_row(out, r, kind, i, p);
    bool good = out && p;
    if (out && fclose(out)) good = false;
    free(p);
    if (good) return text;
    free(text);
    return NULL;
}

/* The line before them, which may be empty, or NULL. */
static char *make_head(const predicted *r, what kind) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out && kind == LABELS_PROBABILITIES) {
        fputs("labels", out);
        for (int k = 0; k < r->view.labels; k++)
            fprintf(out, " %.17g", r->view.label[k]);
        fputc('\n', out);
    }
    bool good = out && !fclose(out);
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

static bool is_stdout(const char *path) { return path && !strcmp(path, "-"); }

static rill_status write_one(const tool_world *w, const predicted *r, what kind, const char *path) {
    if (!path) return RILL_OK;
    size_t size = 0;
    char *head = make_head(r, kind), *text = make_lines(r, kind, &size);
    rill_status status = head && text ? RILL_OK : rill_error_set(RILL_ERR_MEMORY, "out of memory");
    status = world_agree(w, status);
    fflush(stdout);
    const char *to = is_stdout(path) ? "/dev/stdout" : path;
    int error = status == RILL_OK ? write_lines(w, to, head, text, size) : 0;
    free(head);
    free(text);
    if (!error) return status;
    char why[512];
    snprintf(why, sizeof why, "%s: cannot be written: %s", path, strerror(error));
    return rill_error_set(RILL_ERR_IO, why);
}

static rill_status output(const tool_world *w, const predict_config *c, const rill_model *m,
                          const rill_dataset *set) {
    predicted r = {.model = m, .view = RILL_MODEL_VIEW_INIT};
    rill_data_view data = RILL_DATA_VIEW_INIT;
    rill_model_look(m, &r.view);
    rill_dataset_view(set, &data);
    if ((c->probability || c->probabilities) && !r.view.probability)
        return rill_error_set(RILL_ERR_UNSUPPORTED,
                              "probabilities need a model of logistic regression, or one that was "
                              "trained with --calibrate");
    r.rows = data.rows;
    r.decision = malloc((size_t)(r.rows * (uint64_t)r.view.columns + 1) * sizeof *r.decision);
    r.label = malloc(((size_t)r.rows + 1) * sizeof *r.label);
    rill_status status = r.decision && r.label ? rill_model_predict(m, set, r.decision, r.label)
                                               : rill_error_set(RILL_ERR_MEMORY, "out of memory");
    status = world_agree(w, status);
    if (status == RILL_OK)
        status = write_one(w, &r, c->probability ? LABELS_PROBABILITIES : LABELS, c->output);
    if (status == RILL_OK) status = write_one(w, &r, SCORES, c->scores);
    if (status == RILL_OK) status = write_one(w, &r, PROBABILITIES, c->probabilities);
    free(r.decision);
    free(r.label);
    return status;
}

static void print_metrics(const predict_config *c, const rill_metrics *m) {
    bool taken = is_stdout(c->output) || is_stdout(c->scores) || is_stdout(c->probabilities);
    FILE *out = taken ? stderr : stdout;
    if (!tool_speaks()) return;
    fprintf(out, "rows %llu\n", (unsigned long long)m->rows);
    if (!isnan(m->accuracy)) fprintf(out, "accuracy %.6f\n", m->accuracy);
    if (!isnan(m->log_loss)) fprintf(out, "log_loss %.6f\n", m->log_loss);
    if (!isnan(m->auc)) fprintf(out, "auc %.6f\n", m->auc);
    if (!isnan(m->mse)) fprintf(out, "mse %.9g\nrmse %.9g\n", m->mse, sqrt(m->mse));
    if (!isnan(m->r2)) fprintf(out, "r2 %.6f\n", m->r2);
    if (m->unknown_rows)
        fprintf(out, "note: %llu rows have labels that the model does not know, such as %g\n",
                (unsigned long long)m->unknown_rows, m->unknown_label);
}

static rill_status predict(const tool_world *w, const predict_config *c, const rill_model *model) {
    rill_dataset *set = NULL;
    rill_data_options options = RILL_DATA_OPTIONS_INIT;
    rill_metrics metrics = RILL_METRICS_INIT;
    options.base = c->base;
    rill_status status = world_dataset_load(w, c->file, &options, &set);
    if (status == RILL_OK) status = world_check_base(set, c->file, c->base);
    if (status == RILL_OK && c->hash_bits) status = rill_dataset_hash(set, c->hash_bits, c->seed);
    if (status == RILL_OK && c->normalize) status = rill_dataset_normalize(set);
    if (status == RILL_OK) status = world_model_evaluate(w, model, set, &metrics);
    if (status == RILL_OK) status = output(w, c, model, set);
    if (status == RILL_OK) print_metrics(c, &metrics);
    rill_dataset_free(&set);
    return status;
}

static int run_all(const tool_world *w, const void *context) {
    predict_config c = *(const predict_config *)context; /* ranks may be threads */
    rill_model *model = NULL;
    rill_status done = world_agree(w, rill_model_load(c.model, &model));
    int status = done == RILL_OK ? follow_model(&c, model) : EXIT_FAILED;
    if (status == EXIT_OK) done = predict(w, &c, model);
    rill_model_free(&model);
    if (done == RILL_OK) return status;
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
