/* Sums of whole streams: add, n-way sum, disjoint union; and the switch between the forms. */
#include "stream/blocks.h"

#include <stdlib.h>
#include <string.h>

/* Entries of a sum above which the dense form is cheaper: a share of the dimension by bytes of a
 * value. Sums of sparse vectors cost more per entry than dense ones, so it lies below the byte
 * formula N * size / (4 + size), which gives 33, 50 and 67 %. Measured; see
 * docs/results/planner.md. */
uint64_t rill__dense_switch(rill_type type, uint64_t dim) {
    switch (rill__type_size(type)) {
    case 2: return dim / 10 * 3;
    case 4: return dim / 20 * 9;
    default: return dim / 20 * 11;
    }
}

static rill_status check_pair(const char *call, const rill_stream *into, const rill_stream *from) {
    if (!into) return rill__fail(RILL_ERR_ARGUMENT, "%s: into is NULL", call);
    if (!from) return rill__fail(RILL_ERR_ARGUMENT, "%s: from is NULL", call);
    if (into->dim != from->dim)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: dimensions differ (%llu and %llu)", call,
                          (unsigned long long)into->dim, (unsigned long long)from->dim);
    if (into->type != from->type)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: types differ (%s and %s)", call,
                          rill_type_name(into->type), rill_type_name(from->type));
    return RILL_OK;
}

static rill_status check_op(const char *call, const rill_op *op, rill_type type) {
    if (!op) return rill__fail(RILL_ERR_ARGUMENT, "%s: op is NULL", call);
    if (!(op->types & RILL_TYPE_BIT(type)))
        return rill__fail(RILL_ERR_UNSUPPORTED, "%s: op '%s' does not serve type %s", call,
                          op->name, rill_type_name(type));
    return RILL_OK;
}

/* A dense or block-sparse stream made under another operation marks absent entries with another
 * fill. */
static bool needs_refill(const rill_stream *s, const void *neutral) {
    return s->form != RILL__SPARSE && !rill__value_equal(s->type, s->fill, neutral);
}

/* What a sum is made of: a dense sum takes every form, another pairs or blocks of one size. */
typedef struct target {
    bool dense;
    uint64_t block; /* 0: pairs */
} target;

/* Where forms differ, pairs win over blocks, and the first block size over others. */
static target common_form(int n, const rill_stream *const *in) {
    target t = {false, 0};
    bool pairs = false;
    for (int i = 0; i < n; i++) {
        t.dense |= in[i]->form == RILL__DENSE;
        pairs |= in[i]->form == RILL__SPARSE && in[i]->nnz;
        if (in[i]->form == RILL__BLOCKS && !t.block) t.block = in[i]->block;
    }
    if (pairs) t.block = 0;
    return t;
}

static bool suits(const rill_stream *s, target t) {
    if (t.dense || s->form == RILL__DENSE || !s->nnz) return true;
    return s->form == RILL__BLOCKS ? s->block == t.block : !t.block;
}

/* The stream as a part whose absent entries are the neutral element, fit for the target. temp takes
 * a changed copy. */
static rill_status normal_part(const rill_stream *s, target t, const void *neutral,
                               rill_stream *temp, rill__part *part) {
    *part = rill__stream_part(s);
    if (!needs_refill(s, neutral) && suits(s, t)) return RILL_OK;
    rill__stream_init(temp, s->type, s->dim);
    if (s->form == RILL__DENSE) {
        RILL_TRY(rill__stream_refill(temp, s, neutral));
    } else {
        uint64_t block = t.dense && s->form == RILL__BLOCKS ? s->block : t.block;
        RILL_TRY(rill__stream_convert(temp, s, block, neutral));
    }
    *part = rill__stream_part(temp);
    return RILL_OK;
}

/* Sums parts of the whole dimension into the stream's spare arrays, which it then takes. */
static rill_status sum_into(rill_stream *out, const rill_op *op, int n, const rill__part *parts) {
    rill__piece piece = {.idx = out->spare_idx, .val = out->spare_val};
    rill_status status = rill__sum_parts(rill__stream_shape(out), op, 0, out->dim, n, parts, false,
                                         &out->scratch, &piece);
    if (status == RILL_OK) {
        unsigned char neutral[8];
        rill__neutral(op, out->type, neutral);
        rill__stream_adopt(out, neutral, &piece);
    }
    out->spare_idx = piece.idx;
    out->spare_val = piece.val;
    rill__buffer_free(&piece.list);
    return status;
}

static void add_blocks(rill_stream *into, const rill_op *op, const rill__part *blocks) {
    uint64_t cursor = 0, at = 0, n = 0;
    const void *values;
    while (rill__blocks_next(into->type, blocks, at + n, into->dim, &cursor, &at, &n, &values)) {
        char *to = (char *)into->val.data + at * rill__type_size(into->type);
        rill__stream_space(into)->stream->combine(into->type, op, to, to, values, n);
    }
}

/* add or concat where a stream is foreign: with copies on the host. */
static rill_status combine_copies(rill_stream *into, const rill_stream *from, const rill_op *op) {
    rill_stream left, right;
    const rill_stream *other;
    rill_status status = rill__stream_on_host(from, &right, &other);
    if (status == RILL_OK) {
        status = rill__stream_fetch(into, &left);
        if (status == RILL_OK)
            status = op ? rill_stream_add(&left, other, op) : rill_stream_concat(&left, other);
        status = rill__stream_put_back(into, &left, status);
    }
    rill__stream_release(&right);
    return status;
}

static bool any_foreign(const rill_stream *a, const rill_stream *b) {
    return rill__stream_is_foreign(a) || rill__stream_is_foreign(b);
}

rill_status rill_stream_add(rill_stream *into, const rill_stream *from, const rill_op *op) {
    RILL_TRY(check_pair("rill_stream_add", into, from));
    RILL_TRY(check_op("rill_stream_add", op, into->type));
    if (any_foreign(into, from)) return combine_copies(into, from, op);
    const rill__kernels *k = rill__stream_space(into)->stream;
    unsigned char neutral[8] = {0};
    rill__neutral(op, into->type, neutral);
    const rill_stream *streams[2] = {into, from};
    target t = common_form(2, streams);
    if (into->form == RILL__BLOCKS) t.block = into->block; /* it keeps its form */
    rill_stream temp[2] = {0};
    rill__part part;
    rill_status status = normal_part(from, t, neutral, &temp[1], &part);
    if (status != RILL_OK) {
        rill__stream_release(&temp[1]);
        return status;
    }
    if (into->form == RILL__DENSE) {
        if (needs_refill(into, neutral))
            k->replace(into->type, into->val.data, into->val.data, into->dim, into->fill, neutral);
        memcpy(into->fill, neutral, sizeof into->fill);
        if (into == from) part = rill__stream_part(into);
        if (part.form == RILL__DENSE)
            k->combine(into->type, op, into->val.data, into->val.data, part.val, into->dim);
        else if (part.form == RILL__BLOCKS) add_blocks(into, op, &part);
        else k->scatter(rill__stream_shape(into), op, into->val.data, 0, rill__part_pairs(&part));
    } else {
        rill__part both[2] = {rill__part_empty(0, into->dim), part};
        status = normal_part(into, t, neutral, &temp[0], &both[0]);
        if (status == RILL_OK) status = sum_into(into, op, 2, both);
    }
    rill__stream_release(&temp[0]);
    rill__stream_release(&temp[1]);
    return status;
}

/* rill_stream_sum where a stream is foreign. */
static rill_status sum_copies(rill_stream *out, int n, const rill_stream *const *in,
                              const rill_op *op) {
    const rill_stream **hosts = rill__malloc((size_t)n * sizeof *hosts);
    rill_stream *copies = rill__calloc((size_t)n, sizeof *copies), sum;
    rill__stream_init(&sum, out->type, out->dim);
    rill_status status = hosts && copies ? RILL_OK : rill__fail(RILL_ERR_MEMORY, "out of memory");
    for (int i = 0; i < n && status == RILL_OK; i++)
        status = rill__stream_on_host(in[i], &copies[i], &hosts[i]);
    if (status == RILL_OK) status = rill_stream_sum(&sum, n, hosts, op);
    status = rill__stream_put_back(out, &sum, status);
    for (int i = 0; copies && i < n; i++)
        rill__stream_release(&copies[i]);
    free(copies);
    free(hosts);
    return status;
}

rill_status rill_stream_sum(rill_stream *out, int n, const rill_stream *const *in,
                            const rill_op *op) {
    if (!out) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_sum: out is NULL");
    if (n < 1) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_sum: n = %d is below 1", n);
    if (!in) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_sum: in is NULL");
    RILL_TRY(check_op("rill_stream_sum", op, out->type));
    for (int i = 0; i < n; i++) {
        if (!in[i]) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_sum: in[%d] is NULL", i);
        if (in[i] == out) return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_sum: in[%d] is out", i);
        RILL_TRY(check_pair("rill_stream_sum", out, in[i]));
    }
    bool foreign = rill__stream_is_foreign(out);
    for (int i = 0; i < n; i++)
        foreign |= rill__stream_is_foreign(in[i]);
    if (foreign) return sum_copies(out, n, in, op);
    unsigned char neutral[8] = {0};
    rill__neutral(op, out->type, neutral);
    rill__part *parts = rill__malloc((size_t)n * sizeof *parts);
    rill_stream *temp = rill__calloc((size_t)n, sizeof *temp);
    target t = common_form(n, in);
    rill_status status = parts && temp ? RILL_OK : rill__fail(RILL_ERR_MEMORY, "out of memory");
    for (int i = 0; i < n && status == RILL_OK; i++)
        status = normal_part(in[i], t, neutral, &temp[i], &parts[i]);
    if (status == RILL_OK) status = sum_into(out, op, n, parts);
    for (int i = 0; temp && i < n; i++)
        rill__stream_release(&temp[i]);
    free(temp);
    free(parts);
    return status;
}

/* The union has as many entries as both together, or the supports were not disjoint. */
static rill_status concat_pairs(rill_stream *into, const rill_stream *from) {
    rill__shape shape = rill__stream_shape(into);
    uint64_t most = into->nnz + from->nnz;
    RILL_TRY(rill__buffer_reserve(&into->spare_idx, most * shape.index_bytes));
    RILL_TRY(rill__buffer_reserve(&into->spare_val, most * rill__type_size(shape.type)));
    uint64_t count = rill__stream_space(into)->stream->merge(shape, RILL_SUM,
                                                             rill__stream_pairs(into),
                                                             rill__stream_pairs(from),
                                                             into->spare_idx.data,
                                                             into->spare_val.data);
    if (count != most)
        return rill__fail(RILL_ERR_OVERLAP, "rill_stream_concat: %llu indices are in both streams",
                          (unsigned long long)(most - count));
    rill__stream_take_spare(into);
    into->nnz = count;
    return RILL_OK;
}

/* In copies that are pairs; into gets the result in the form that it had. */
static rill_status concat_copies(rill_stream *into, const rill_stream *from) {
    rill_stream left, right;
    rill__stream_init(&left, into->type, into->dim);
    rill__stream_init(&right, into->type, into->dim);
    rill_status status = rill__stream_convert(&left, into, 0, into->fill);
    if (status == RILL_OK) status = rill__stream_convert(&right, from, 0, from->fill);
    if (status == RILL_OK && !left.nnz) memcpy(left.fill, from->fill, sizeof left.fill);
    if (status == RILL_OK) status = concat_pairs(&left, &right);
    if (status == RILL_OK)
        status = into->form == RILL__BLOCKS
                     ? rill__stream_convert(into, &left, into->block, left.fill)
                     : rill_stream_copy(into, &left);
    rill__stream_release(&left);
    rill__stream_release(&right);
    return status;
}

static rill_status concat(rill_stream *into, const rill_stream *from) {
    bool pairs = into->form == RILL__SPARSE && from->form == RILL__SPARSE, disjoint = false;
    bool blocks = into->form == RILL__BLOCKS && from->form == RILL__BLOCKS &&
                  into->block == from->block;
    if (!into->nnz && (pairs || blocks)) memcpy(into->fill, from->fill, sizeof into->fill);
    if (pairs) return concat_pairs(into, from);
    if (blocks) RILL_TRY(rill__stream_concat_blocks(into, from, &disjoint));
    return disjoint ? RILL_OK : concat_copies(into, from);
}

rill_status rill_stream_concat(rill_stream *into, const rill_stream *from) {
    RILL_TRY(check_pair("rill_stream_concat", into, from));
    if (any_foreign(into, from)) return combine_copies(into, from, NULL);
    if (!rill__value_equal(into->type, into->fill, from->fill) && into->nnz && from->nnz)
        return rill__fail(RILL_ERR_ARGUMENT, "rill_stream_concat: fills differ (%g and %g)",
                          rill__value_load(into->type, into->fill),
                          rill__value_load(from->type, from->fill));
    RILL_TRY(concat(into, from));
    uint64_t limit = into->form == RILL__BLOCKS
                         ? rill__blocks_switch(into->type, into->block, into->dim)
                         : rill__dense_switch(into->type, into->dim);
    return into->nnz > limit ? rill_stream_to_dense(into) : RILL_OK;
}
