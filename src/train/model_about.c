/* What a model knows of its making: lines "name value" behind the weights of its file, where
 * LIBLINEAR does not read on, after a line "# rill". */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/text.h"
#include "train/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static rill_status wrong_size(const char *call) {
    return rill__data_fail(RILL_ERR_ARGUMENT, "%s: an argument is NULL, or about.size is wrong",
                           call);
}

static bool is_good(const rill_model *m, const rill_model_about *about) {
    return m && about && about->size >= sizeof(size_t) && about->size <= sizeof *about;
}

rill_status rill_model_get_about(const rill_model *m, rill_model_about *about) {
    if (!is_good(m, about)) return wrong_size("rill_model_get_about");
    rill_model_about full = m->about;
    full.size = about->size;
    full.loss = m->loss;
    full.scale = m->scale;
    full.multiclass = m->multiclass;
    memcpy(about, &full, full.size);
    return RILL_OK;
}

static bool keep(char *into, const char *text) {
    if (!text) text = "";
    if (strlen(text) >= RILL__MODEL_WORD || strpbrk(text, " \t\r\n")) return false;
    memmove(into, text, strlen(text) + 1); /* it may be the model's own */
    return true;
}

rill_status rill_model_set_about(rill_model *m, const rill_model_about *about) {
    if (!is_good(m, about)) return wrong_size("rill_model_set_about");
    rill_model_about full = RILL_MODEL_ABOUT_INIT;
    memcpy(&full, about, about->size);
    full.size = sizeof full;
    if (full.base < -1 || full.base > 1)
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "rill_model_set_about: base = %d is not 0, 1 or "
                               "-1",
                               full.base);
    if (!keep(m->loss, full.loss) || !keep(m->scale, full.scale) ||
        !keep(m->multiclass, full.multiclass))
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "rill_model_set_about: a name has blanks, or is too long");
    m->about = full;
    m->softmax = m->columns > 1 && !strcmp(m->multiclass, "softmax");
    m->by_length = !strcmp(m->scale, "rows");
    return RILL_OK;
}

/* ---- in the file ---------------------------------------------------------------------------- */

void rill__model_print_about(const rill_model *m, char *text, size_t size) {
    const rill_model_about *a = &m->about;
    *text = '\0';
    if (!*m->loss) return;
    rill__print(text, size,
                "# rill\nloss %s\nscale %s\nmulticlass %s\nC %.17g\nintercept %d\nhash_bits %d\n"
                "hash_seed %llu\nnormalize %d\nrows %llu\nentries %llu\nchecksum %016llx\n",
                m->loss, *m->scale ? m->scale : "none", *m->multiclass ? m->multiclass : "none",
                a->C, a->intercept, a->hash_bits, (unsigned long long)a->hash_seed, a->normalize,
                (unsigned long long)a->rows, (unsigned long long)a->entries,
                (unsigned long long)a->checksum);
    size_t at = strlen(text);
    if (a->huber_delta > 0)
        rill__print(text + at, size - at, "huber_delta %.17g\n", a->huber_delta);
    at = strlen(text);
    if (a->base >= 0) rill__print(text + at, size - at, "base %d\n", a->base);
}

void rill__model_print_sigmoid(const rill_model *m, int c, char *text, size_t size) {
    rill__print(text, size, "sigmoid %d %.17g %.17g\n", c, m->sigmoid[2 * c],
                m->sigmoid[2 * c + 1]);
}

/* "column A B", in the order of the columns. */
static bool read_sigmoid(rill_model *m, const char *text) {
    char *end;
    double column = rill__read_double(text, &end), number[2];
    if (!(column < m->columns) || column != m->sigmoids) return false;
    for (int i = 0; i < 2; i++) {
        if (*end != ' ') return false;
        text = end + 1;
        number[i] = rill__read_double(text, &end);
        if (end == text || !isfinite(number[i])) return false;
    }
    if (*end) return false;
    if (!m->sigmoid) m->sigmoid = calloc(2 * (size_t)m->columns, sizeof *m->sigmoid);
    if (!m->sigmoid) return false;
    memcpy(m->sigmoid + 2 * (size_t)m->sigmoids++, number, sizeof number);
    return true;
}

static bool read_count(const char *text, int base, uint64_t most, uint64_t *value) {
    char *end;
    if (!strchr("0123456789abcdef", *text)) return false;
    *value = strtoull(text, &end, base);
    return end != text && !*end && *value <= most;
}

static bool read_word(char *into, const char *text) {
    return *text && keep(into, strcmp(text, "none") ? text : "");
}

bool rill__model_read_about(rill_model *m, char *line) {
    rill_model_about *a = &m->about;
    char *value = line + strcspn(line, " ");
    if (!*value) return false;
    *value++ = '\0';
    uint64_t number = 0;
    struct {
        const char *name;
        int *number;
        uint64_t most;
    } flags[] = {{"intercept", &a->intercept, 1},
                 {"hash_bits", &a->hash_bits, 32},
                 {"normalize", &a->normalize, 1},
                 {"base", &a->base, 1}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(line, flags[i].name)) {
            if (!read_count(value, 10, flags[i].most, &number)) return false;
            *flags[i].number = (int)number;
            return true;
        }
    if (!strcmp(line, "rows")) return read_count(value, 10, UINT64_MAX, &a->rows);
    if (!strcmp(line, "entries")) return read_count(value, 10, UINT64_MAX, &a->entries);
    if (!strcmp(line, "hash_seed")) return read_count(value, 10, UINT64_MAX, &a->hash_seed);
    if (!strcmp(line, "checksum")) return read_count(value, 16, UINT64_MAX, &a->checksum);
    if (!strcmp(line, "loss")) return read_word(m->loss, value);
    if (!strcmp(line, "scale")) {
        m->by_length = !strcmp(value, "rows");
        return *value && keep(m->scale, value);
    }
    if (!strcmp(line, "multiclass")) {
        if (!read_word(m->multiclass, value)) return false;
        m->softmax = m->columns > 1 && !strcmp(m->multiclass, "softmax");
        return true;
    }
    if (!strcmp(line, "sigmoid")) return read_sigmoid(m, value);
    double *real = !strcmp(line, "C")             ? &a->C
                   : !strcmp(line, "huber_delta") ? &a->huber_delta
                                                  : NULL;
    if (!real) return true; /* of a later version */
    char *end;
    *real = rill__read_double(value, &end);
    return end != value && !*end && isfinite(*real);
}

/* ---- the data ------------------------------------------------------------------------------- */

rill_status rill_dataset_checksum(const rill_dataset *set, uint64_t *out) {
    rill_data_view d = RILL_DATA_VIEW_INIT;
    if (!set || !out)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_checksum: an argument is NULL");
    RILL_TRY_DATA(rill_dataset_view(set, &d));
    *out = 0;
    for (uint64_t i = 0; i < d.rows; i++) {
        uint64_t first = d.row[i], n = d.row[i + 1] - first, hash = d.first_row + i;
        hash = XXH64(&d.label[i], sizeof *d.label, hash);
        for (uint64_t e = first; e < first + n; e++) {
            uint64_t index = d.index32 ? d.index32[e] : d.index64[e];
            hash = (hash + index) * UINT64_C(0x9E3779B97F4A7C15);
        }
        *out += XXH64(d.value + first, (size_t)n * sizeof *d.value, hash);
    }
    return RILL_OK;
}
