/* Codes of messages on device memory: a selection becomes a message, and messages a sum.
 *
 * All that a message or a sum needs besides its pairs is in the instance's workspace, which the
 * selection has left: what is coded; or the messages, their indices, and the bitmap of the union
 * (cuda/union.cu). Sums that are merged in a tree have a second set of values for each of its
 * levels but the first, in the workspace of unaligned arrays. */
#include "space/cuda.h"

#include <string.h>

enum { LINE = 256, SEEN = 64 /* words of 32 bits that are looked at together */ };

static size_t lined(uint64_t bytes) { return (size_t)((bytes + LINE - 1) / LINE * LINE); }
static size_t eight(size_t bytes) { return (bytes + 7) / 8 * 8; }

/* Parts of the workspace, one after the other; base NULL: only counts. */
typedef struct carver {
    char *base;
    size_t used;
} carver;
static void *take(carver *c, uint64_t bytes) {
    void *at = c->base ? c->base + c->used : NULL;
    c->used += lined(bytes);
    return at;
}

static bool go_on(rill__cuda *c, int error) { return rill__cuda_check(c, error, "codes"); }
static bool is_fine(const rill__cuda *c) { return c->failed == RILL_OK; }

static bool is_half(const rill__codes *codes) {
    return codes->value == RILL__VALUE_F16 || codes->value == RILL__VALUE_BF16;
}
static int half_of(const rill__codes *codes) {
    return codes->value == RILL__VALUE_F16 ? RILL__CUDA_F16 : RILL__CUDA_BF16;
}

/* ---- encode --------------------------------------------------------------------------------- */

static size_t index_workspace(const rill__cuda_table *t, rill__index_code code, uint64_t n,
                              uint64_t range) {
    switch (code) {
    case RILL__INDEX_BITPACK: return t->bitpack_workspace(n);
    case RILL__INDEX_ELIAS_FANO: return t->elias_fano_workspace(n, range);
    case RILL__INDEX_RICE: return t->rice_workspace(n);
    default: return 0;
    }
}

typedef struct encode_room {
    void *index, *work, *values;
    float *wide, *decoded; /* values in f32 */
    void *narrow;          /* decoded ones in their type, where that is another */
} encode_room;

static size_t carve_encode(const rill__cuda_table *t, const rill__encode_task *e, char *base,
                           encode_room *r) {
    carver c = {base, 0};
    bool coded = e->codes.value != RILL__VALUE_RAW, other = e->type != RILL_F32;
    r->index = take(&c, eight(e->index_room));
    r->work = take(&c, index_workspace(t, e->codes.index, e->n, e->range));
    r->values = take(&c, coded ? e->value_bytes : 0);
    r->wide = take(&c, coded && other ? 4 * e->n : 0);
    r->decoded = take(&c, coded && e->lost ? 4 * e->n : 0);
    r->narrow = take(&c, coded && e->lost && other ? 4 * e->n : 0);
    return c.used;
}

static void encode_indices(rill__cuda *c, const rill__encode_task *e, const encode_room *r) {
    const rill__cuda_table *t = c->table;
    uint64_t *bytes = (uint64_t *)(void *)c->words;
    switch (e->codes.index) {
    case RILL__INDEX_BITPACK:
        go_on(c, t->bitpack(e->idx, e->n, e->first, r->index, bytes, r->work, c->stream));
        break;
    case RILL__INDEX_ELIAS_FANO:
        go_on(c,
              t->elias_fano(e->idx, e->n, e->first, e->range, r->index, bytes, r->work, c->stream));
        break;
    case RILL__INDEX_RICE:
        go_on(c, t->rice(e->idx, e->n, e->first, r->index, bytes, r->work, c->stream));
        break;
    default: break;
    }
}

/* n values that a message has, in f32, or where a type of 16 bits is meant, in that. */
static void decode_values(rill__cuda *c, rill_type type, const rill__codes *codes, const void *in,
                          uint64_t n, float *wide, void *narrow) {
    const rill__cuda_table *t = c->table;
    if (is_half(codes)) go_on(c, t->to_f32(half_of(codes), in, n, wide, c->stream));
    else go_on(c, t->dequantize(codes->bits, in, n, 0, wide, c->stream));
    if (is_fine(c) && type != RILL_F32)
        go_on(c, t->from_f32((int)type, wide, n, narrow, c->stream));
}

static void encode_values(rill__cuda *c, const rill__encode_task *e, const encode_room *r) {
    const rill__cuda_table *t = c->table;
    const float *wide = e->type == RILL_F32 ? e->val : r->wide;
    int type = (int)e->type;
    if (e->codes.value == RILL__VALUE_RAW || !is_fine(c)) return;
    if (e->type != RILL_F32 && !go_on(c, t->to_f32(type, e->val, e->n, r->wide, c->stream))) return;
    if (is_half(&e->codes)) {
        go_on(c, t->from_f32(half_of(&e->codes), wide, e->n, r->values, c->stream));
    } else {
        rill__cuda_quant q = {.bits = e->codes.bits};
        memcpy(q.key, e->quant.key, sizeof q.key);
        memcpy(q.high, e->quant.high, sizeof q.high);
        if (go_on(c, t->quantize(&q, wide, e->n, r->values, c->stream)) && e->fits)
            go_on(c, t->quantize_fit(e->codes.bits, wide, e->n, r->values, c->stream));
    }
    if (!e->lost || !is_fine(c)) return;
    decode_values(c, e->type, &e->codes, r->values, e->n, r->decoded, r->narrow);
    size_t bytes = e->n * rill__type_size(e->type);
    const void *decoded = e->type == RILL_F32 ? (const void *)r->decoded : r->narrow;
    if (is_fine(c)) go_on(c, t->copy(e->lost, e->val, bytes, c->stream));
    if (is_fine(c))
        go_on(c, t->each(RILL__CUDA_ADD_SCALED, type, e->lost, decoded, -1, e->n, NULL, c->stream));
}

/* How long the indices are is known only when they are there. */
static void send_out(rill__cuda *c, rill__encode_task *e, const encode_room *r) {
    const rill__cuda_table *t = c->table;
    bool raw = e->codes.index == RILL__INDEX_RAW;
    const void *index = raw ? e->idx : r->index;
    const void *values = e->codes.value == RILL__VALUE_RAW ? e->val : r->values;
    uint64_t used = 4 * e->n;
    if (!raw && is_fine(c)) rill__cuda_see(c, sizeof used);
    if (!is_fine(c)) return;
    if (!raw) memcpy(&used, c->seen, sizeof used);
    if (used > e->index_room) {
        rill__cuda_check(c, 1, "a code that is longer than it can be");
        return;
    }
    e->index_bytes = eight((size_t)used);
    e->out_bytes = e->index_bytes + e->value_bytes;
    go_on(c, t->copy(e->out, index, (size_t)used, c->stream));
    if (is_fine(c)) go_on(c, t->copy(e->out + e->index_bytes, values, e->value_bytes, c->stream));
    if (is_fine(c)) go_on(c, t->stream_wait(c->stream));
    memset(e->out + used, 0, e->index_bytes - (size_t)used);
}

static rill_status encode(const rill__space *s, rill__encode_task *e) {
    rill__cuda *c = rill__cuda_of(s);
    encode_room r;
    e->index_bytes = e->out_bytes = 0;
    RILL_TRY(rill__cuda_status(c));
    if (!e->n) return RILL_OK;
    int before = rill__cuda_enter(c);
    char *work = rill__cuda_workspace(c, carve_encode(c->table, e, NULL, &r));
    if (work) {
        carve_encode(c->table, e, work, &r);
        encode_indices(c, e, &r);
        encode_values(c, e, &r);
        send_out(c, e, &r);
    }
    rill__cuda_leave(c, before);
    return work ? rill__cuda_status(c) : RILL_ERR_MEMORY;
}

/* ---- sum ------------------------------------------------------------------------------------ */

typedef struct sum_room {
    uint32_t *wrong; /* of each list, and of all; behind the entries of the union, two words */
    void *united, *work, *chunk;
    uint32_t *idx; /* of all lists, one after the other */
    char *bytes;   /* the same of messages, each on a line */
    float *wide;   /* the values of one list */
    void *narrow;
} sum_room;

enum { WORDS_OF_UNION = 2 };

/* With room for sums that are a little longer, as buffers on devices have: they come when nobody
 * would hear of a failure (call/commit.c), and sizes creep up. */
static void *reserve(rill__cuda *c, void *(*grow)(rill__cuda *, size_t), size_t have,
                     size_t bytes) {
    void *at = have < bytes ? grow(c, bytes + bytes / 16) : NULL;
    return at ? at : grow(c, bytes);
}
static char *reserve_sum(rill__cuda *c, size_t bytes) {
    return reserve(c, rill__cuda_workspace, c->workspace_bytes, bytes);
}
static void *reserve_values(rill__cuda *c, size_t bytes) {
    return reserve(c, rill__cuda_aligned, c->aligned_bytes, bytes);
}

static size_t carve_sum(const rill__cuda_table *t, const rill__sum_task *sum, char *base,
                        sum_room *r) {
    carver c = {base, 0};
    uint64_t pairs = 0, bytes = 0, coded = 0, chunks = 0;
    size_t work = 0;
    for (int i = 0; i < sum->n; i++) {
        const rill__coded_pairs *p = &sum->list[i];
        size_t own = index_workspace(t, p->codes.index, p->n, p->range);
        pairs += p->n;
        bytes += lined(p->index_bytes + p->value_bytes);
        work = own > work ? own : work;
        chunks = rill__max_u64(chunks, p->n_chunk);
        if (p->codes.value != RILL__VALUE_RAW) coded = rill__max_u64(coded, p->n);
    }
    r->wrong = take(&c, 4 * ((uint64_t)sum->n + 1 + WORDS_OF_UNION));
    r->united = take(&c, t->union_workspace(sum->dim));
    r->work = take(&c, work);
    r->chunk = take(&c, 8 * chunks);
    r->idx = take(&c, 4 * pairs);
    r->bytes = take(&c, bytes);
    r->wide = take(&c, 4 * coded);
    r->narrow = take(&c, sum->type == RILL_F32 ? 0 : 2 * coded);
    return c.used;
}

static int decode_indices(rill__cuda *c, const rill__coded_pairs *p, const char *at, uint32_t *idx,
                          uint32_t *wrong, const sum_room *r) {
    const rill__cuda_table *t = c->table;
    switch (p->codes.index) {
    case RILL__INDEX_BITPACK:
        return t->bitunpack(at, p->index_bytes, p->n, p->first, p->range, idx, wrong, r->work,
                            c->stream);
    case RILL__INDEX_ELIAS_FANO:
        return t->elias_fano_decode(at, p->index_bytes, p->n, p->first, p->range, idx, wrong,
                                    r->work, c->stream);
    case RILL__INDEX_RICE:
        return t->rice_decode(at, p->index_bytes, r->chunk, p->n, p->first, p->range, idx, wrong,
                              r->work, c->stream);
    default:
        return t->take_indices((const uint32_t *)(const void *)at, p->n, p->first, p->range, idx,
                               wrong, c->stream);
    }
}

/* Its bytes to the device, and its indices out of them. */
static void take_in(rill__cuda *c, const rill__coded_pairs *p, char *at, uint32_t *idx,
                    uint32_t *wrong, const sum_room *r) {
    const rill__space *s = &c->space;
    if (p->n_chunk && s->copy_in(s, r->chunk, p->chunk, 8 * p->n_chunk) != RILL_OK) return;
    if (s->copy_in(s, at, p->bytes, p->index_bytes + p->value_bytes) != RILL_OK) return;
    go_on(c, decode_indices(c, p, at, idx, wrong, r));
}

static void unite(rill__cuda *c, const rill__sum_task *sum, const sum_room *r) {
    const rill__cuda_table *t = c->table;
    uint32_t *idx = r->idx, *wrong = r->wrong + WORDS_OF_UNION;
    char *at = r->bytes;
    size_t words = 4 * ((size_t)sum->n + 1 + WORDS_OF_UNION);
    uint64_t pairs = 0;
    go_on(c, t->fill(r->wrong, 0, words, c->stream));
    if (is_fine(c)) go_on(c, t->union_begin(r->united, sum->dim, c->stream));
    for (int i = 0; i < sum->n && is_fine(c); i++) {
        const rill__coded_pairs *p = &sum->list[i];
        if (!p->n) continue;
        take_in(c, p, at, idx + pairs, &wrong[i], r);
        at += lined(p->index_bytes + p->value_bytes);
        pairs += p->n;
    }
    if (is_fine(c))
        go_on(c, t->union_mark(r->united, sum->dim, idx, pairs, &wrong[sum->n], c->stream));
    if (is_fine(c))
        go_on(c, t->union_count(r->united, sum->dim, (uint64_t *)(void *)r->wrong, c->stream));
}

/* The entries; and whose list is wrong, n: nobody's. */
static rill_status look(rill__cuda *c, rill__sum_task *sum, const sum_room *r, int *whose) {
    const rill__space *s = &c->space;
    uint32_t seen[SEEN];
    int words = sum->n + 1 + WORDS_OF_UNION;
    *whose = sum->n;
    for (int from = 0; from < words; from += SEEN) {
        int n = words - from < SEEN ? words - from : SEEN;
        RILL_TRY(s->copy_out(s, seen, r->wrong + from, 4 * (size_t)n));
        if (from == 0) memcpy(&sum->entries, seen, sizeof sum->entries);
        for (int i = from ? 0 : WORDS_OF_UNION; i < n; i++)
            if (seen[i] && *whose == sum->n) *whose = from + i - WORDS_OF_UNION;
        /* All indices are below the dimension where each list is in its range. */
    }
    return RILL_OK;
}

static rill_status sum_begin(const rill__space *s, rill__sum_task *sum) {
    rill__cuda *c = rill__cuda_of(s);
    sum_room r;
    int whose = sum->n;
    RILL_TRY(rill__cuda_status(c));
    int before = rill__cuda_enter(c);
    char *work = reserve_sum(c, carve_sum(c->table, sum, NULL, &r));
    rill_status status = work ? RILL_OK : RILL_ERR_MEMORY;
    if (work) {
        carve_sum(c->table, sum, work, &r);
        unite(c, sum, &r);
        status = rill__cuda_status(c);
        if (status == RILL_OK) status = look(c, sum, &r, &whose);
    }
    rill__cuda_leave(c, before);
    RILL_TRY(status);
    if (whose < sum->n)
        return rill__fail(RILL_ERR_MESSAGE,
                          "malformed message: indices of rank %d are out of order or range", whose);
    return RILL_OK;
}

/* ---- values --------------------------------------------------------------------------------- */

/* -0.0, to which anything can be added without a change. */
static void start_values(rill__cuda *c, rill_type type, void *values, uint64_t n) {
    uint64_t bits = type == RILL_F32 ? 0x80000000u : 0x8000u;
    if (is_fine(c)) go_on(c, c->table->fill_value((int)type, values, bits, n, c->stream));
}

typedef struct summing {
    rill__cuda *c;
    const rill__sum_task *sum;
    const sum_room *r;
    int next; /* list */
    const char *at;
    const uint32_t *idx;
} summing;

/* The next list that has entries, into values of n entries; false: there is none. */
static bool add_next(summing *s, void *values, bool wide) {
    rill__cuda *c = s->c;
    const rill__cuda_table *t = c->table;
    const rill__sum_task *sum = s->sum;
    const rill__coded_pairs *p;
    do {
        if (s->next == sum->n || !is_fine(c)) return false;
        p = &sum->list[s->next++];
    } while (!p->n);
    const void *val = s->at + p->index_bytes;
    if (p->codes.value != RILL__VALUE_RAW) {
        decode_values(c, sum->type, &p->codes, val, p->n, s->r->wide, s->r->narrow);
        val = sum->type == RILL_F32 ? (const void *)s->r->wide : s->r->narrow;
    }
    if (is_fine(c))
        go_on(c, t->union_sum((int)sum->type, wide, s->r->united, sum->dim, s->idx, val, p->n,
                              values, c->stream));
    s->at += lined(p->index_bytes + p->value_bytes);
    s->idx += p->n;
    return true;
}

/* Bits of x: enough values for a tree of x + 1 lists, half of them made of two at once. */
static int levels_of(int lists) {
    int levels = 1;
    while ((1 << levels) < lists)
        levels++;
    return levels;
}

/* As a tree of merges: lists two by two, then their sums two by two. Blocks of lists that are
 * waiting for the next one of their size are a stack; what is left at the end joins from its top.
 * The lowest is the result. */
static void sum_tree(summing *s, int live, char *const *room) {
    rill__cuda *c = s->c;
    const rill__sum_task *sum = s->sum;
    int size[32], top = 0;
    for (int left = live; left > 0 && is_fine(c); left -= 2) {
        start_values(c, sum->type, room[top], sum->entries);
        add_next(s, room[top], false);
        if (left > 1) add_next(s, room[top], false);
        size[top++] = 1;
        bool last = left <= 2;
        while (top > 1 && is_fine(c) && (last || size[top - 1] == size[top - 2])) {
            top--;
            go_on(c, c->table->each(RILL__CUDA_ADD, (int)sum->type, room[top - 1], room[top], 0,
                                    sum->entries, NULL, c->stream));
            size[top - 1]++;
        }
    }
}

static void sum_in_order(summing *s, void *values, rill_type as) {
    start_values(s->c, as, values, s->sum->entries);
    while (add_next(s, values, as != s->sum->type)) {}
}

static rill_status sum_values(summing *s, void *val) {
    rill__cuda *c = s->c;
    const rill__sum_task *sum = s->sum;
    size_t bytes = lined(sum->entries * rill__type_size(sum->type));
    int live = 0;
    for (int i = 0; i < sum->n; i++)
        live += sum->list[i].n != 0;
    bool widens = sum->tiles && sum->type != RILL_F32, tree = !sum->tiles && live > 3;
    if (widens) {
        float *wide = reserve_values(c, lined(4 * sum->entries));
        if (!wide) return RILL_ERR_MEMORY;
        sum_in_order(s, wide, RILL_F32);
        if (is_fine(c))
            go_on(c, c->table->from_f32((int)sum->type, wide, sum->entries, val, c->stream));
    } else if (tree) {
        int levels = levels_of(live);
        char *room[33] = {val}, *more = reserve_values(c, (size_t)(levels - 1) * bytes);
        if (!more) return RILL_ERR_MEMORY;
        for (int i = 1; i < levels; i++)
            room[i] = more + (size_t)(i - 1) * bytes;
        sum_tree(s, live, room);
    } else {
        sum_in_order(s, val, sum->type);
    }
    return rill__cuda_status(c);
}

static rill_status sum_end(const rill__space *space, const rill__sum_task *sum, void *idx,
                           void *val) {
    rill__cuda *c = rill__cuda_of(space);
    sum_room r;
    RILL_TRY(rill__cuda_status(c));
    if (!sum->entries) return RILL_OK;
    int before = rill__cuda_enter(c);
    carve_sum(c->table, sum, c->workspace, &r);
    summing s = {c, sum, &r, 0, r.bytes, r.idx};
    go_on(c, c->table->union_list(r.united, sum->dim, idx, c->stream));
    rill_status status = sum_values(&s, val);
    rill__cuda_leave(c, before);
    return status;
}

const rill__space_codes rill__cuda_codes_ops = {encode, sum_begin, sum_end};
