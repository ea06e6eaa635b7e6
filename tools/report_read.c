/* Files of JSON values into records. A file is a sequence of objects (JSON lines) or of arrays of
 * objects; what an object is follows from its fields. Fields that nobody asks for are no matter,
 * and objects of no known kind are counted; but a field that a plot needs and that is wrong is an
 * error.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "report.h"
#include "tool.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <rill/rill.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGEST_FILE = 1 << 30 };

/* Where a record is, for messages; and what the file says of all records behind {"about": ...}. */
typedef struct place {
    const char *path;
    int line, element; /* of an array; -1: not in one */
    json_t *common;    /* or NULL */
} place;

static bool fail_at(const place *at, const char *field, const char *what) {
    char element[32] = "";
    if (at->element >= 0) snprintf(element, sizeof element, " (element %d)", at->element);
    tool_error("report: %s:%d%s: '%s' %s", at->path, at->line, element, field, what);
    return false;
}

double report_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *report_text(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static const char *text_or(const json_t *o, const char *key, const char *otherwise) {
    const char *text = report_text(o, key);
    return *text ? text : otherwise;
}

int report_name(report_names *names, const char *name) {
    for (int i = 0; i < names->n; i++)
        if (!strncmp(names->name[i], name, REPORT_LABEL - 1)) return i;
    if (names->n == names->capacity) {
        int capacity = names->capacity ? 2 * names->capacity : 16;
        void *grown = realloc(names->name, (size_t)capacity * sizeof *names->name);
        if (!grown) return -1;
        names->name = grown;
        names->capacity = capacity;
    }
    snprintf(names->name[names->n], REPORT_LABEL, "%s", name);
    return names->n++;
}

/* Room for one more in an array; false when out of memory. */
static bool grow(void **array, int n, int *capacity, size_t size) {
    if (n < *capacity) return true;
    int wanted = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(*array, (size_t)wanted * size);
    if (!grown) {
        tool_error("report: out of memory");
        return false;
    }
    *array = grown;
    *capacity = wanted;
    return true;
}

/* A number that has to be there, between least and most. */
static bool need(const json_t *o, const place *at, const char *key, double least, double most,
                 double *value) {
    if (!json_object_get(o, key)) return fail_at(at, key, "is missing");
    *value = report_number(o, key);
    if (!(*value >= least && *value <= most))
        return fail_at(at, key, isnan(*value) ? "is not a number" : "is out of range");
    return true;
}

/* The same, but it may be absent or null. */
static double allow(const json_t *o, const char *key) {
    double value = report_number(o, key);
    return value >= 0 ? value : NAN;
}

static double value_width(const char *type, int value_bits) {
    if (value_bits) return value_bits;
    for (int t = 0; rill_type_size((rill_type)t); t++)
        if (!strcmp(rill_type_name((rill_type)t), type))
            return 8 * (double)rill_type_size((rill_type)t);
    return NAN;
}

static void make_label(const json_t *o, report_bench *b) {
    const char *codec = report_text(o, "requested_codec");
    char bits[24] = "";
    if (b->value_bits) snprintf(bits, sizeof bits, " %d bit", b->value_bits);
    snprintf(b->label, sizeof b->label, "%.28s%s%.20s%.12s", b->requested, *codec ? " " : "", codec,
             bits);
}

/* What is not said is as rill bench does it by default. */
static void make_context(const json_t *o, const char *type, report_bench *b) {
    const char *mode = text_or(o, "mode", "blocking"), *form = text_or(o, "form", "auto");
    b->collective = text_or(o, "collective", "allreduce");
    b->op = text_or(o, "op", "sum");
    b->overlap = text_or(o, "overlap", "uniform");
    bool operates = strcmp(b->collective, "bcast") && strcmp(b->collective, "allgather");
    snprintf(b->context, sizeof b->context, "%s%s%s of %s, %s supports%s%s%s%s", b->collective,
             operates ? " " : "", operates ? b->op : "", type, b->overlap,
             strcmp(mode, "blocking") ? ", " : "", strcmp(mode, "blocking") ? mode : "",
             strcmp(form, "auto") ? ", form " : "", strcmp(form, "auto") ? form : "");
}

static bool add_bench(report_data *d, int source, const json_t *o, const place *at) {
    if (!grow((void **)&d->bench, d->benches, &d->bench_capacity, sizeof *d->bench)) return false;
    report_bench *b = &d->bench[d->benches];
    memset(b, 0, sizeof *b);
    double ranks, hosts = allow(o, "hosts"), bits = allow(o, "value_bits");
    if (!need(o, at, "median_s", 0, 1e9, &b->median) || !need(o, at, "ranks", 1, 1e9, &ranks) ||
        !need(o, at, "dim", 1, 1e18, &b->dim))
        return false;
    b->nnz_in = allow(o, "nnz_in");
    if (json_object_get(o, "density") || isnan(b->nnz_in)) {
        if (!need(o, at, "density", 0, 1, &b->density)) return false;
    } else b->density = b->nnz_in / b->dim;
    if (isnan(b->nnz_in)) b->nnz_in = b->density * b->dim;
    const char *type = text_or(o, "type", "f32");
    b->source = source;
    b->requested = text_or(o, "requested", report_text(o, "algorithm"));
    b->algorithm = text_or(o, "algorithm", b->requested);
    b->codec = report_text(o, "codec");
    b->partition = report_text(o, "partition");
    b->detail = report_text(o, "detail");
    b->ranks = (int)ranks;
    b->hosts = hosts >= 1 && hosts <= ranks ? (int)hosts : 1;
    b->value_bits = bits <= 64 ? (int)bits : 0;
    b->value_width = value_width(type, b->value_bits);
    b->p25 = allow(o, "p25_s");
    b->p75 = allow(o, "p75_s");
    b->predicted = allow(o, "predicted_s");
    b->sent = allow(o, "sent_bytes_max");
    b->speedup = allow(o, "speedup");
    b->incorrect = json_is_false(json_object_get(o, "correct"));
    b->modelled = !strcmp(report_text(o, "traffic"), "model");
    make_label(o, b);
    make_context(o, type, b);
    const report_source *s = &d->source[source];
    const char *network = text_or(o, "network", report_text(o, "platform"));
    snprintf(b->set, sizeof b->set, "%s", s->named ? s->name : network);
    b->order = d->benches++;
    d->source[source].bench++;
    return true;
}

/* Whether two lines of a log belong to one run. */
static bool same_run(const report_epoch *a, const report_epoch *b) {
    static const char *const keys[] = {"file", "loss_name", "solver", "reducer"};
    if (a->source != b->source || b->epoch <= a->epoch) return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(report_text(a->json, keys[i]), report_text(b->json, keys[i]))) return false;
    double p = report_number(a->json, "ranks"), q = report_number(b->json, "ranks");
    return p == q || (isnan(p) && isnan(q));
}

static bool add_epoch(report_data *d, int source, json_t *o, const place *at) {
    if (!grow((void **)&d->epoch, d->epochs, &d->epoch_capacity, sizeof *d->epoch)) return false;
    report_epoch e = {.source = source, .json = o};
    if (!need(o, at, "epoch", 0, 1e15, &e.epoch) || !need(o, at, "seconds", 0, 1e12, &e.seconds))
        return false;
    e.loss = report_number(o, "loss");
    e.accuracy = allow(o, "valid_accuracy");
    e.auc = allow(o, "valid_auc");
    e.comm_seconds = allow(o, "comm_seconds");
    e.sent = allow(o, "sent_bytes");
    if (d->epochs && same_run(&d->epoch[d->epochs - 1], &e)) {
        e.run = d->epoch[d->epochs - 1].run;
    } else {
        char name[REPORT_LABEL + 16];
        int nth = 1;
        for (int i = 0; i < d->epochs; i++)
            nth += d->epoch[i].source == source && (!i || d->epoch[i].run != d->epoch[i - 1].run);
        if (nth == 1) snprintf(name, sizeof name, "%s", d->source[source].name);
        else snprintf(name, sizeof name, "%.50s #%d", d->source[source].name, nth);
        int before = d->runs.n;
        e.run = report_name(&d->runs, name);
        if (e.run < before) { /* also where two files were given one name */
            tool_error("report: %s: two training runs are called '%s'; name them: NAME=FILE",
                       at->path, name);
            return false;
        }
    }
    d->epoch[d->epochs++] = e;
    d->source[source].epochs++;
    return true;
}

static void note_origin(report_source *s, const json_t *o) {
    const char *commit = report_text(o, "commit"), *date = report_text(o, "date");
    const char *cpu = report_text(o, "cpu"), *library = report_text(o, "mpi_library");
    if (*commit && !s->commit) s->commit = commit;
    else if (*commit && strcmp(commit, s->commit)) s->commits_differ = true;
    if (*date && (!s->first_date || strcmp(date, s->first_date) < 0)) s->first_date = date;
    if (*date && (!s->last_date || strcmp(date, s->last_date) > 0)) s->last_date = date;
    if (*cpu) s->cpu = cpu;
    if (*library) s->mpi_library = library;
}

static bool add_object(report_data *d, int source, json_t *o, place *at) {
    json_t *about = json_object_get(o, "about");
    if (json_is_object(about)) {
        at->common = json_object_get(about, "common");
        return true;
    }
    if (json_is_object(at->common) && json_object_update_missing(o, at->common)) {
        tool_error("report: out of memory");
        return false;
    }
    report_source *s = &d->source[source];
    bool step = !strcmp(report_text(o, "kind"), "reducer");
    bool timed = json_object_get(o, "median_s") != NULL, good = true;
    double median;
    if (json_object_get(o, "epoch") && json_object_get(o, "loss"))
        good = add_epoch(d, source, o, at);
    else if (step) {
        good = need(o, at, "median_s", 0, 1e9, &median) && !json_array_append(d->reducers, o);
        s->reducers++;
    } else if (json_object_get(o, "kernel") && json_object_get(o, "group") &&
               (timed || json_object_get(o, "encode_s"))) {
        good = !json_array_append(d->kernels, o);
        s->kernels++;
    } else if (timed && (*report_text(o, "requested") || *report_text(o, "algorithm"))) {
        good = add_bench(d, source, o, at);
    } else {
        s->unknown++;
        return true;
    }
    if (good) note_origin(s, o);
    return good;
}

/* An object or an array: jansson lets nothing else pass. */
static bool add_value(report_data *d, int source, json_t *value, place *at) {
    if (json_is_object(value)) return add_object(d, source, value, at);
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *o = json_array_get(value, i);
        at->element = (int)i;
        if (!json_is_object(o)) {
            tool_error("report: %s:%d: element %zu of the array is not an object", at->path,
                       at->line, i);
            return false;
        }
        if (!add_object(d, source, o, at)) return false;
    }
    return true;
}

/* ---- files --------------------------------------------------------------------------------- */

/* All of it in memory, or NULL after a message. */
static char *read_whole(const char *path, size_t *size) {
    FILE *in = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    size_t capacity = 1 << 16, n = 0, got;
    char *text = NULL, *grown;
    if (!in) {
        tool_error("report: cannot read '%s': %s", path, strerror(errno));
        return NULL;
    }
    const char *wrong = NULL;
    do {
        capacity *= 2;
        wrong = capacity > 2 * (size_t)LARGEST_FILE ? "it is larger than 1 GiB" : NULL;
        if (wrong) break;
        if (!(grown = realloc(text, capacity))) {
            wrong = "out of memory";
            break;
        }
        text = grown;
        errno = 0;
        got = fread(text + n, 1, capacity - n, in);
        n += got;
        if (ferror(in)) wrong = strerror(errno ? errno : EIO);
    } while (!wrong && n == capacity);
    if (in != stdin) fclose(in);
    if (wrong) {
        tool_error("report: cannot read '%s': %s", path, wrong);
        free(text);
        return NULL;
    }
    *size = n;
    return text;
}

/* jansson quotes the input, which may hold anything. */
static void make_printable(char *text) {
    for (; *text; text++)
        if (iscntrl((unsigned char)*text)) *text = ' ';
}

static bool parse(report_data *d, int source, const char *text, size_t size) {
    place at = {.path = d->source[source].path, .line = 1, .element = -1};
    size_t i = size >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
    int values = 0;
    for (;; values++) {
        for (; i < size && strchr(" \t\r\n", text[i]) && text[i]; i++)
            at.line += text[i] == '\n';
        if (i >= size) break;
        json_error_t error;
        json_t *value = json_loadb(text + i, size - i, JSON_DISABLE_EOF_CHECK, &error);
        if (!value) {
            make_printable(error.text);
            tool_error("report: %s:%d: %s (byte %zu)", at.path, at.line + error.line - 1,
                       error.text, i + (size_t)(error.position > 0 ? error.position : 0));
            return false;
        }
        at.element = -1;
        if (json_array_append_new(d->kept, value)) {
            tool_error("report: out of memory");
            return false;
        }
        if (!add_value(d, source, value, &at)) return false;
        for (size_t end = i + (size_t)error.position; i < end; i++)
            at.line += text[i] == '\n';
    }
    const report_source *s = &d->source[source];
    if (!values) tool_error("report: '%s' is empty", at.path);
    else if (!(s->bench + s->reducers + s->kernels + s->epochs))
        tool_error("report: '%s' has no records of rill bench or rill train", at.path);
    else return true;
    return false;
}

/* ---- names --------------------------------------------------------------------------------- */

/* "results/sweep.jsonl" is "sweep". */
static void name_by_path(report_source *s, bool whole) {
    const char *base = strrchr(s->path, '/');
    base = base && base[1] && !whole ? base + 1 : s->path;
    const char *dot = strrchr(base, '.');
    int n = dot && dot > base && !whole ? (int)(dot - base) : (int)strlen(base);
    const char *from = n >= REPORT_LABEL ? base + n - REPORT_LABEL + 1
                                         : base; /* the end tells more */
    snprintf(s->name, sizeof s->name, "%.*s", (int)(base + n - from), from);
    if (!strcmp(s->path, "-")) snprintf(s->name, sizeof s->name, "standard input");
}

static bool name_sources(report_data *d, const char *const *word) {
    for (int i = 0; i < d->sources; i++) {
        report_source *s = &d->source[i];
        const char *equals = strchr(word[i], '=');
        s->path = word[i];
        s->named = equals && equals > word[i] && access(word[i], F_OK) != 0;
        if (s->named && equals - word[i] >= REPORT_LABEL) {
            tool_usage("report", "the name in '%s' is longer than %d bytes", word[i],
                       REPORT_LABEL - 1);
            return false;
        }
        if (s->named) {
            s->path = equals + 1;
            snprintf(s->name, sizeof s->name, "%.*s", (int)(equals - word[i]), word[i]);
        } else name_by_path(s, false);
    }
    for (int i = 0; i < d->sources; i++)
        for (int j = 0; j < i; j++)
            if (!d->source[i].named && !d->source[j].named &&
                !strcmp(d->source[i].name, d->source[j].name)) {
                name_by_path(&d->source[i], true);
                name_by_path(&d->source[j], true);
            }
    return true;
}

bool report_read(report_data *d, int words, const char *const *word) {
    memset(d, 0, sizeof *d);
    d->source = calloc((size_t)words, sizeof *d->source);
    d->kept = json_array();
    d->reducers = json_array();
    d->kernels = json_array();
    if (!d->source || !d->kept || !d->reducers || !d->kernels ||
        report_name(&d->series, "mpi") != 0 || report_name(&d->series, "auto") != 1) {
        tool_error("report: out of memory");
        return false;
    }
    d->sources = words;
    if (!name_sources(d, word)) return false;
    for (int i = 0; i < words; i++) {
        size_t size = 0;
        char *text = read_whole(d->source[i].path, &size);
        bool good = text && parse(d, i, text, size);
        free(text);
        if (!good) return false;
    }
    return true;
}

void report_free(report_data *d) {
    json_decref(d->kept);
    json_decref(d->reducers);
    json_decref(d->kernels);
    free(d->source);
    free(d->bench);
    free(d->epoch);
    free(d->series.name);
    free(d->runs.name);
    memset(d, 0, sizeof *d);
}
