/* Operations on device memory: each becomes a call or two of the table. */
#include "space/cuda.h"

#include <math.h>
#include <string.h>

/* The kernels that load whole vectors need this; others take any array. */
static bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

typedef const rill__operation operation;

static void tell(rill__cuda *c, int error) { rill__cuda_check(c, error, "kernel"); }

static uint64_t *word_of(rill__cuda *c) { return (uint64_t *)(void *)c->words; }
static uint64_t seen_word(rill__cuda *c) {
    uint64_t word = 0;
    rill__cuda_see(c, sizeof word);
    if (c->failed == RILL_OK) memcpy(&word, c->seen, sizeof word);
    return word;
}

/* ---- dense vectors -------------------------------------------------------------------------- */

static int loop(rill__cuda *c, operation *o, int op, uint64_t *count) {
    return c->table->each(op, (int)o->type, o->into, o->from, o->factor, o->n, count, c->stream);
}

static void run_dense(rill__cuda *c, operation *o) {
    const rill__cuda_table *t = c->table;
    int type = (int)o->type;
    bool fast = is_aligned(o->into) && is_aligned(o->from);
    switch (o->kind) {
    case RILL__DO_ADD:
        tell(c, fast ? t->add(type, o->into, o->from, o->n, 0, NULL, c->stream)
                     : loop(c, o, RILL__CUDA_ADD, NULL));
        break;
    case RILL__DO_DECAY_ADD:
        tell(c, fast ? t->decay_add(type, o->into, o->factor, o->from, o->n, c->stream)
                     : loop(c, o, RILL__CUDA_DECAY_ADD, NULL));
        break;
    case RILL__DO_ADD_SCALED: tell(c, loop(c, o, RILL__CUDA_ADD_SCALED, NULL)); break;
    case RILL__DO_SCALE:
        tell(c, fast ? t->scale(type, o->into, o->factor, o->from, o->n, c->stream)
                     : loop(c, o, RILL__CUDA_SCALE, NULL));
        break;
    case RILL__DO_DIVIDE:
        tell(c, fast ? t->divide(type, o->into, o->from, o->factor, o->n, c->stream)
                     : loop(c, o, RILL__CUDA_DIVIDE, NULL));
        break;
    case RILL__DO_SUBTRACT_FINITE: tell(c, loop(c, o, RILL__CUDA_SUBTRACT_FINITE, NULL)); break;
    default: tell(c, loop(c, o, RILL__CUDA_UNDECAY, NULL));
    }
}

static double norm(rill__cuda *c, operation *o) {
    double sum = 0;
    void *work = rill__cuda_workspace(c, c->table->norm2_workspace(o->n));
    if (!work) {
        rill__cuda_check(c, 2, "workspace of a norm");
        return 0;
    }
    tell(c,
         c->table->norm2((int)o->type, o->from, o->n, (double *)(void *)c->words, work, c->stream));
    rill__cuda_see(c, sizeof sum);
    if (c->failed == RILL_OK) memcpy(&sum, c->seen, sizeof sum);
    return sqrt(sum);
}

/* What has an answer, wanted or not. */
static void run_asked(rill__cuda *c, operation *o, rill__answer *a) {
    bool fast = is_aligned(o->into) && is_aligned(o->from);
    uint64_t *word = word_of(c);
    switch (o->kind) {
    case RILL__DO_NORM: a->real = norm(c, o); return;
    case RILL__DO_IS_FINITE: tell(c, loop(c, o, RILL__CUDA_COUNT_NONFINITE, word)); break;
    case RILL__DO_DROP_NONFINITE: tell(c, loop(c, o, RILL__CUDA_DROP_NONFINITE, word)); break;
    case RILL__DO_ADD_FINITE:
        tell(c, fast ? c->table->add((int)o->type, o->into, o->from, o->n, 1, word, c->stream)
                     : loop(c, o, RILL__CUDA_ADD_GUARDED, word));
        break;
    case RILL__DO_DECAY_ADD_FINITE:
        tell(c, c->table->decay_add_finite((int)o->type, o->into, o->factor, o->from, o->n, word,
                                           c->stream));
        a->yes = seen_word(c) == o->n;
        return;
    default: tell(c, loop(c, o, RILL__CUDA_DIVIDE, word));
    }
    uint64_t count = seen_word(c);
    if (o->kind == RILL__DO_DROP_NONFINITE) a->count = count;
    else a->yes = count == 0;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* All pairs lie in the range: zeros and pairs in one pass. */
static void write_all(rill__cuda *c, operation *o) {
    bool fast = o->index_bytes == 4 && o->n <= RILL__CUDA_MOST && is_aligned(o->into);
    void *work = fast ? rill__cuda_workspace(c, c->table->update_workspace(o->n)) : NULL;
    if (work)
        tell(c, c->table->update((int)o->type, o->into, o->n, o->pairs.idx, o->pairs.val,
                                 o->pairs.n, work, c->stream));
    else
        tell(c, c->table->write((int)o->type, o->index_bytes, o->into, o->first, o->n, o->pairs.idx,
                                o->pairs.val, o->pairs.n, NULL, c->stream));
}

static void write_some(rill__cuda *c, operation *o, rill__answer *a) {
    uint64_t *word = a ? word_of(c) : NULL;
    if (o->kind == RILL__DO_WRITE)
        tell(c, c->table->write((int)o->type, o->index_bytes, o->into, o->first, o->n, o->pairs.idx,
                                o->pairs.val, o->pairs.n, word, c->stream));
    else
        tell(c, c->table->write_blocks((int)o->type, o->into, o->first, o->n, o->block, o->end,
                                       o->pairs.idx, o->pairs.val, o->pairs.n, word, c->stream));
    if (a) a->count = seen_word(c);
}

/* Feedback of reducers, whose indices have 4 bytes (rill__reducer_create_in). */
static void run_where(rill__cuda *c, operation *o) {
    const rill__cuda_table *t = c->table;
    int type = (int)o->type, inside = o->where == RILL__INSIDE;
    uint64_t masked = o->where == RILL__EVERYWHERE ? 0 : o->mask.n;
    if (o->index_bytes != 4) {
        rill__cuda_check(c, 1, "pairs of 8-byte indices");
        return;
    }
    if (o->kind == RILL__DO_CLEAR_PAIRS)
        tell(c, t->clear_where(type, o->into, o->pairs.idx, o->pairs.n, o->mask.idx, masked, inside,
                               c->stream));
    else if (o->where == RILL__EVERYWHERE)
        tell(c, t->scatter_add(type, o->into, o->pairs.idx, o->pairs.val, o->pairs.n, c->stream));
    else
        tell(c, t->scatter_add_where(type, o->into, o->pairs.idx, o->pairs.val, o->pairs.n,
                                     o->mask.idx, masked, inside, c->stream));
}

static void run_pairs(rill__cuda *c, operation *o, rill__answer *a) {
    const rill__cuda_table *t = c->table;
    switch (o->kind) {
    case RILL__DO_ASSIGN:
        tell(c, t->assign((int)o->type, o->index_bytes, o->into, o->first, o->pairs.idx,
                          o->pairs.val, o->pairs.n, c->stream));
        break;
    case RILL__DO_WRITE:
        if (!a && o->first == 0 && o->end == o->n) write_all(c, o);
        else write_some(c, o, a);
        break;
    case RILL__DO_WRITE_BLOCKS: write_some(c, o, a); break;
    case RILL__DO_ADD_BLOCKS:
        tell(c, t->add_blocks((int)o->type, o->into, o->block, o->pairs.idx, o->pairs.val,
                              o->pairs.n, c->stream));
        break;
    case RILL__DO_SHIFT:
        tell(c,
             t->shift(o->index_bytes, o->into, o->from_bytes, o->from, o->first, o->n, c->stream));
        break;
    default: run_where(c, o);
    }
}

void rill__cuda_run(const rill__space *s, operation *o, rill__answer *answer) {
    rill__cuda *c = rill__cuda_of(s);
    uint64_t bits = 0;
    rill__answer unread, *a = answer ? answer : &unread;
    switch (o->kind) {
    case RILL__DO_COPY: tell(c, c->table->copy(o->into, o->from, o->n, c->stream)); break;
    case RILL__DO_CLEAR: tell(c, c->table->fill(o->into, 0, o->n, c->stream)); break;
    case RILL__DO_FILL:
        memcpy(&bits, o->value, sizeof bits);
        tell(c, c->table->fill_value((int)o->type, o->into, bits, o->n, c->stream));
        break;
    case RILL__DO_ADD:
    case RILL__DO_DECAY_ADD:
    case RILL__DO_ADD_SCALED:
    case RILL__DO_SCALE:
    case RILL__DO_DIVIDE:
    case RILL__DO_SUBTRACT_FINITE:
    case RILL__DO_UNDECAY: run_dense(c, o); break;
    default:
        if (o->kind < RILL__DO_ASSIGN) run_asked(c, o, a);
        else run_pairs(c, o, answer);
    }
}
