/* Vectors in pieces, on device memory: as many of them at a time as a launch takes. */
#include "space/cuda.h"

#include <string.h>

/* Tensors of a launch: those from *next on that are not empty. False: there are none. */
typedef struct pieces {
    rill__cuda_tensors list;
    int next;
    uint64_t at; /* where the next begins in the vector */
} pieces;

static bool take(pieces *p, const rill_tensor *tensors, int n, bool updates) {
    rill__cuda_tensors *list = &p->list;
    list->n = 0;
    for (; p->next < n && list->n < RILL__CUDA_TENSORS; p->next++) {
        const rill_tensor *t = &tensors[p->next];
        if (!t->count) continue;
        list->first[list->n] = p->at;
        list->at[list->n++] = (uintptr_t)(updates ? t->update : t->gradient);
        p->at += t->count;
    }
    list->first[list->n] = p->at;
    return list->n != 0;
}

void rill__cuda_add_tensors(rill__cuda *c, int type, void *into, const rill_tensor *tensors, int n,
                            bool guards, uint64_t *count) {
    for (pieces p = {.next = 0}; c->failed == RILL_OK && take(&p, tensors, n, false);)
        rill__cuda_check(c, c->table->tensors_add(type, into, &p.list, guards, count, c->stream),
                         "kernel");
}

void rill__cuda_subtract_tensors(rill__cuda *c, int type, void *into, const rill_tensor *tensors,
                                 int n, const rill__cuda_reply *reply) {
    for (pieces p = {.next = 0}; c->failed == RILL_OK && take(&p, tensors, n, false);)
        rill__cuda_check(c, c->table->tensors_subtract(type, into, &p.list, reply, c->stream),
                         "kernel");
}

void rill__cuda_write_tensors(rill__cuda *c, int type, const rill_tensor *tensors, int n,
                              const rill__cuda_pairs *pairs) {
    for (pieces p = {.next = 0}; c->failed == RILL_OK && take(&p, tensors, n, true);)
        rill__cuda_check(c, c->table->tensors_write(type, &p.list, pairs, c->stream), "kernel");
}

/* ---- operations ----------------------------------------------------------------------------- */

/* Copies and fills of CUDA's stay in one allocation; kernels load whole vectors of 16 bytes. */
static bool is_one(const rill__space *s, const void *at, size_t bytes) {
    rill__cuda *c = rill__cuda_of(s);
    const void *start = NULL;
    size_t size = 0;
    if ((uintptr_t)at % 16) return false;
    if (!bytes) return true;
    int before = rill__cuda_enter(c), error = c->table->range_of(at, &start, &size);
    rill__cuda_leave(c, before);
    return !error && bytes <= size && (uintptr_t)at - (uintptr_t)start <= size - bytes;
}

static bool add(const rill__space *s, rill_type type, void *into, const rill_tensor *tensors, int n,
                bool guards) {
    rill__cuda *c = rill__cuda_of(s);
    uint64_t *word = guards ? (uint64_t *)(void *)c->words : NULL, count = 0;
    int before = rill__cuda_enter(c);
    if (guards && c->failed == RILL_OK)
        rill__cuda_check(c, c->table->fill(word, 0, sizeof *word, c->stream), "fill");
    rill__cuda_add_tensors(c, (int)type, into, tensors, n, guards, word);
    if (guards && c->failed == RILL_OK) rill__cuda_see(c, sizeof count);
    if (guards && c->failed == RILL_OK) memcpy(&count, c->seen, sizeof count);
    rill__cuda_leave(c, before);
    return !count;
}

static void subtract(const rill__space *s, rill_type type, void *into, const rill_tensor *tensors,
                     int n) {
    rill__cuda *c = rill__cuda_of(s);
    int before = rill__cuda_enter(c);
    rill__cuda_subtract_tensors(c, (int)type, into, tensors, n, NULL);
    rill__cuda_leave(c, before);
}

static void write(const rill__space *s, rill_type type, const rill_tensor *tensors, int n,
                  rill__pairs pairs) {
    rill__cuda *c = rill__cuda_of(s);
    rill__cuda_pairs from = {.idx = pairs.idx, .val = pairs.val, .n = pairs.n};
    int before = rill__cuda_enter(c);
    rill__cuda_write_tensors(c, (int)type, tensors, n, &from);
    rill__cuda_leave(c, before);
}

const rill__space_tensors rill__cuda_tensors_ops = {.is_one = is_one,
                                                    .add = add,
                                                    .subtract = subtract,
                                                    .write = write};
