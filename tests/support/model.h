/* A naive vector to compare streams with: one double and one flag an entry. */
#ifndef RILL_TESTS_MODEL_H
#define RILL_TESTS_MODEL_H

#include "values.h"

typedef struct model {
    uint64_t dim;
    double *value;      /* of present entries */
    unsigned char *has; /* 1: present */
    double fill;
} model;

static inline model model_make(uint64_t dim) {
    model m = {dim, calloc(dim + 1, sizeof(double)), calloc(dim + 1, 1), 0.0};
    if (!m.value || !m.has) abort();
    return m;
}
static inline void model_free(model *m) {
    free(m->value);
    free(m->has);
}
static inline double model_at(const model *m, uint64_t i) {
    return m->has[i] ? m->value[i] : m->fill;
}

static inline model model_copy(const model *m) {
    model c = model_make(m->dim);
    memcpy(c.value, m->value, m->dim * sizeof(double));
    memcpy(c.has, m->has, m->dim);
    c.fill = m->fill;
    return c;
}
/* What to_dense loses: entries that equal the fill count as absent from then on. */
static inline void model_forget_fill(model *m) {
    for (uint64_t i = 0; i < m->dim; i++)
        if (m->has[i] && value_same(m->value[i], m->fill)) m->has[i] = 0;
}
static inline void model_add(model *into, const model *from, test_op op) {
    for (uint64_t i = 0; i < into->dim; i++) {
        if (!from->has[i]) continue;
        double other = from->value[i];
        into->value[i] = into->has[i] ? op_apply(op, into->value[i], other) : other;
        into->has[i] = 1;
    }
    into->fill = op_neutral(op);
}
/* Each entry is present with the given probability; one in eight present entries is a zero. */
static inline model model_random(uint64_t dim, double density, test_op op, rng *r, int who) {
    model m = model_make(dim);
    for (uint64_t i = 0; i < dim; i++) {
        if (rng_unit(r) >= density) continue;
        m.has[i] = 1;
        m.value[i] = rng_below(r, 8) == 0 ? 0.0 : op_exact_value(op, r, who);
    }
    return m;
}
static inline rill_status model_set_pairs(const model *m, rill_stream *s) {
    rill_type type = rill_stream_type(s);
    uint32_t *idx = malloc((m->dim + 1) * sizeof *idx);
    void *val = malloc((m->dim + 1) * value_size(type));
    if (!idx || !val) abort();
    uint64_t n = 0;
    for (uint64_t i = 0; i < m->dim; i++) {
        if (!m->has[i]) continue;
        idx[n] = (uint32_t)i;
        value_store(type, val, n++, m->value[i]);
    }
    rill_status status = rill_stream_set_pairs(s, n, idx, val);
    free(idx);
    free(val);
    return status;
}
static inline rill_status model_set_dense(const model *m, rill_stream *s) {
    rill_type type = rill_stream_type(s);
    void *dense = calloc(m->dim + 1, value_size(type));
    if (!dense) abort();
    for (uint64_t i = 0; i < m->dim; i++)
        value_store(type, dense, i, model_at(m, i));
    rill_status status = rill_stream_set_dense(s, dense);
    free(dense);
    return status;
}
/* Index of the first entry where the stream differs from the model; dim if none. */
static inline uint64_t model_compare(const model *m, const rill_stream *s, double *got) {
    rill_type type = rill_stream_type(s);
    void *dense = malloc((m->dim + 1) * value_size(type));
    if (!dense || rill_stream_get_dense(s, dense) != RILL_OK) abort();
    uint64_t at = 0;
    for (; at < m->dim; at++) {
        *got = value_load(type, dense, at);
        if (!value_same(*got, model_at(m, at))) break;
    }
    free(dense);
    return at;
}

#endif
