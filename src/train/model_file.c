/* LIBLINEAR's model files: a few lines "name value...", then "w" and a line of weights per feature;
 * and behind them lines of our own, which it does not read. */
#include "core/text.h"
#include "train/data_number.h"
#include "train/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MOST_CLASSES = 1 << 20 };

rill_status rill__model_create(uint64_t features, int columns, int labels, double bias,
                               rill_model **out) {
    rill_model *m = calloc(1, sizeof *m);
    uint64_t cells;
    *out = NULL;
    if (m) {
        m->features = features;
        m->columns = columns;
        m->labels = labels;
        m->bias = bias;
        m->about = (rill_model_about)RILL_MODEL_ABOUT_INIT;
        m->label = calloc((size_t)labels + 1, sizeof *m->label);
        if (!__builtin_mul_overflow(features + (bias >= 0), (uint64_t)columns, &cells) &&
            cells < SIZE_MAX / sizeof(double))
            m->weight = calloc((size_t)cells + 1, sizeof *m->weight);
    }
    if (!m || !m->label || !m->weight) {
        rill_model_free(&m);
        return rill__data_fail(RILL_ERR_MEMORY, "out of memory: a model of %llu features",
                               (unsigned long long)features);
    }
    *out = m;
    return RILL_OK;
}

rill_status rill_model_free(rill_model **model) {
    if (!model || !*model) return RILL_OK;
    free((*model)->sigmoid);
    free((*model)->label);
    free((*model)->weight);
    free(*model);
    *model = NULL;
    return RILL_OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

static rill_status write_text(rill__output *out, const char *text) {
    return rill__output_write(out, text, strlen(text));
}

static rill_status write_head(rill__output *out, const rill_model *m) {
    char line[96], number[RILL__NUMBER_ROOM + 1];
    snprintf(line, sizeof line, "solver_type %s\nnr_class %d\n", m->solver_type,
             m->regression ? 2 : m->labels);
    RILL_TRY_DATA(write_text(out, line));
    if (m->labels) RILL_TRY_DATA(write_text(out, "label"));
    for (int i = 0; i < m->labels; i++) {
        number[rill__double_print(m->label[i], number)] = '\0';
        if (fabs(m->label[i]) < 1e15 && m->label[i] == floor(m->label[i]))
            snprintf(number, sizeof number, "%lld", (long long)m->label[i]);
        snprintf(line, sizeof line, " %s", number);
        RILL_TRY_DATA(write_text(out, line));
    }
    number[rill__double_print(m->bias, number)] = '\0';
    snprintf(line, sizeof line, "%snr_feature %llu\nbias %s\nw\n", m->labels ? "\n" : "",
             (unsigned long long)m->features, number);
    return write_text(out, line);
}

rill_status rill_model_save(const rill_model *m, const char *path) {
    if (!m || !path)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_model_save: %s is NULL",
                               m ? "path" : "model");
    rill__output *out = NULL;
    RILL_TRY_DATA(rill__output_open(path, &out));
    rill_status status = write_head(out, m);
    uint64_t rows = m->features + (m->bias >= 0);
    char text[RILL__NUMBER_ROOM + 2];
    for (uint64_t j = 0; status == RILL_OK && j < rows; j++) {
        for (int c = 0; status == RILL_OK && c < m->columns; c++) {
            double w = m->weight[j * (uint64_t)m->columns + (uint64_t)c];
            size_t n = 1;
            if (w == 0) text[0] = '0';
            else n = rill__double_print(w, text);
            text[n++] = ' ';
            status = rill__output_write(out, text, n);
        }
        if (status == RILL_OK) status = rill__output_write(out, "\n", 1);
    }
    char about[RILL__ABOUT];
    rill__model_print_about(m, about, sizeof about);
    if (status == RILL_OK) status = write_text(out, about);
    for (int c = 0; m->sigmoid && c < m->columns && status == RILL_OK; c++) {
        rill__model_print_sigmoid(m, c, about, sizeof about);
        status = write_text(out, about);
    }
    rill_status closed = rill__output_close(out, status == RILL_OK);
    return status == RILL_OK ? closed : status;
}

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct model_reader {
    const char *path;
    FILE *file;
    char *line;
    size_t room;
    unsigned long long number; /* of the line */
    uint64_t bytes;            /* of the file */
} model_reader;

static rill_status bad(const model_reader *r, const char *what, const char *token) {
    return rill__data_fail(RILL_ERR_IO, "%s:%llu: %s: '%.40s'", r->path, r->number, what, token);
}

static bool next_line(model_reader *r) {
    ssize_t n = getline(&r->line, &r->room, r->file);
    if (n < 0) return false;
    r->number++;
    while (n > 0 && strchr(" \r\n\t", r->line[n - 1]))
        r->line[--n] = '\0';
    return true;
}

/* The next number of the line. */
static bool next_number(char **at, double *value) {
    char *end;
    *value = rill__read_double(*at, &end);
    if (end == *at || !isfinite(*value) || (*end && *end != ' ' && *end != '\t')) return false;
    *at = end;
    return true;
}

typedef struct model_head {
    char type[32];
    int classes, labels;
    double features, bias;
    double *label;
    bool complete;
} model_head;

static rill_status read_labels(const model_reader *r, char *text, model_head *h) {
    if (h->classes < 1) return bad(r, "labels before nr_class", r->line);
    free(h->label);
    h->label = malloc((size_t)h->classes * sizeof *h->label);
    if (!h->label) return rill__data_memory("labels");
    for (h->labels = 0; h->labels < h->classes; h->labels++)
        if (!next_number(&text, &h->label[h->labels])) return bad(r, "no label", text);
    return *text ? bad(r, "more labels than nr_class", text) : RILL_OK;
}

static rill_status read_field(const model_reader *r, model_head *h) {
    char *text = r->line + strcspn(r->line, " \t");
    size_t length = (size_t)(text - r->line);
    double value;
    if (!strncmp(r->line, "w", length) && length == 1) {
        h->complete = true;
        return RILL_OK;
    }
    if (!strncmp(r->line, "solver_type", length) && length == 11) {
        snprintf(h->type, sizeof h->type, "%s", text + strspn(text, " \t"));
        return RILL_OK;
    }
    if (!strncmp(r->line, "label", length) && length == 5) return read_labels(r, text, h);
    char *at = text;
    bool is_class = !strncmp(r->line, "nr_class", length) && length == 8;
    bool is_feature = !strncmp(r->line, "nr_feature", length) && length == 10;
    bool is_bias = !strncmp(r->line, "bias", length) && length == 4;
    if (!is_class && !is_feature && !is_bias) return bad(r, "not a field of a model", r->line);
    if (!next_number(&at, &value) || *at) return bad(r, "not a number", text);
    if (!is_bias &&
        (value < 1 || value != floor(value) || value > (is_class ? MOST_CLASSES : 0x1p40)))
        return bad(r, "not a count", text);
    if (is_class) h->classes = (int)value;
    else if (is_feature) h->features = value;
    else h->bias = value;
    return RILL_OK;
}

/* What LIBLINEAR's types mean to a prediction. */
static rill_status understand(const model_reader *r, const model_head *h, rill_model **out) {
    static const char *const known[] = {"L2R_LR",
                                        "L2R_L2LOSS_SVC_DUAL",
                                        "L2R_L2LOSS_SVC",
                                        "L2R_L1LOSS_SVC_DUAL",
                                        "MCSVM_CS",
                                        "L1R_L2LOSS_SVC",
                                        "L1R_LR",
                                        "L2R_LR_DUAL",
                                        "L2R_L2LOSS_SVR",
                                        "L2R_L2LOSS_SVR_DUAL",
                                        "L2R_L1LOSS_SVR_DUAL"};
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        found |= !strcmp(h->type, known[i]);
    if (!found) return bad(r, "solver_type is missing or not supported", h->type);
    bool regression = strstr(h->type, "SVR") != NULL;
    if (!h->classes || h->features < 1) return bad(r, "nr_class or nr_feature is missing", r->line);
    if (!regression && h->labels != h->classes) return bad(r, "the labels are missing", r->line);
    /* A weight takes two bytes at least: what cannot be there is not made room for. */
    if (h->features > (double)r->bytes / 2)
        return bad(r, "more features than the file has room for", r->path);
    bool one = regression || (h->classes == 2 && strcmp(h->type, "MCSVM_CS"));
    if (!one && h->features * h->classes > (double)r->bytes / 2)
        return bad(r, "more weights than the file has room for", r->path);
    RILL_TRY_DATA(rill__model_create((uint64_t)h->features, one ? 1 : h->classes,
                                     regression ? 0 : h->labels, h->bias, out));
    rill_model *m = *out;
    snprintf(m->solver_type, sizeof m->solver_type, "%s", h->type);
    m->regression = regression;
    m->probability = strstr(h->type, "_LR") != NULL;
    for (int i = 0; i < m->labels; i++)
        m->label[i] = h->label[i];
    return RILL_OK;
}

static rill_status read_weights(model_reader *r, rill_model *m) {
    uint64_t rows = m->features + (m->bias >= 0);
    for (uint64_t j = 0; j < rows; j++) {
        if (!next_line(r))
            return rill__data_fail(RILL_ERR_IO,
                                   "%s: ends after the weights of %llu of %llu features", r->path,
                                   (unsigned long long)j, (unsigned long long)rows);
        char *at = r->line;
        for (int c = 0; c < m->columns; c++)
            if (!next_number(&at, &m->weight[j * (uint64_t)m->columns + (uint64_t)c]))
                return bad(r, "not a weight", at);
        if (at[strspn(at, " \t")]) return bad(r, "more weights than columns", at);
    }
    bool described = false;
    while (next_line(r)) {
        if (!described && r->line[0] && strcmp(r->line, "# rill"))
            return bad(r, "more lines than features", r->line);
        char line[96];
        snprintf(line, sizeof line, "%s", r->line);
        if (described && line[0] && !rill__model_read_about(m, line))
            return bad(r, "not a setting of a model", r->line);
        described |= !strcmp(r->line, "# rill");
    }
    if (m->sigmoid && m->sigmoids < m->columns)
        return rill__data_fail(RILL_ERR_IO, "%s: ends after the sigmoids of %d of %d columns",
                               r->path, m->sigmoids, m->columns);
    if (m->sigmoid) m->probability = !m->regression;
    return RILL_OK;
}

static rill_status read_model(model_reader *r, model_head *h, rill_model **out) {
    while (!h->complete) {
        if (!next_line(r))
            return rill__data_fail(RILL_ERR_IO, "%s: ends before the line 'w' of a model", r->path);
        RILL_TRY_DATA(read_field(r, h));
    }
    RILL_TRY_DATA(understand(r, h, out));
    return read_weights(r, *out);
}

rill_status rill__model_read(FILE *file, const char *path, uint64_t bytes, rill_model **out) {
    model_reader reader = {.path = path, .file = file, .bytes = bytes};
    model_head head = {.bias = -1};
    *out = NULL;
    rill_status status = read_model(&reader, &head, out);
    if (status != RILL_OK) rill_model_free(out);
    free(head.label);
    free(reader.line);
    return status;
}

rill_status rill_model_load(const char *path, rill_model **out) {
    if (!path || !out)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_model_load: %s is NULL",
                               path ? "out" : "path");
    *out = NULL;
    FILE *file = fopen(path, "r");
    struct stat about;
    if (!file || fstat(fileno(file), &about)) {
        int why = errno;
        if (file) fclose(file);
        return rill__data_fail(RILL_ERR_IO, "%s: cannot be read: %s", path, strerror(why));
    }
    uint64_t bytes = S_ISREG(about.st_mode) ? (uint64_t)about.st_size : UINT64_MAX;
    errno = 0;
    rill_status status = rill__model_read(file, path, bytes, out);
    if (ferror(file)) { /* and not its end */
        rill_model_free(out);
        status = rill__data_fail(RILL_ERR_IO, "%s: cannot be read: %s", path,
                                 strerror(errno ? errno : EIO));
    }
    fclose(file);
    return status;
}
