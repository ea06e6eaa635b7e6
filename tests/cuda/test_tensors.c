/* Vectors in tensors against the same loops over one vector (space/host_*.c). */
#include "test_cuda.h"

#include "space/space.h"

enum { GAP = 5 };

typedef struct pieces {
    rill__cuda_tensors list;
    uint64_t dim;    /* of the vector; the list does not have the first of it */
    uint64_t spread; /* values that its tensors take, with gaps */
    uint64_t offset[RILL__CUDA_TENSORS];
} pieces;

static pieces pieces_of(uint32_t count, uint64_t longest, rng *random) {
    pieces p = {.list.n = count};
    uint64_t first = longest / 10;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t n = 1 + rng_below(random, longest);
        p.list.first[i] = first;
        p.offset[i] = p.spread;
        first += n;
        p.spread += n + rng_below(random, GAP);
    }
    p.list.first[count] = p.dim = first;
    return p;
}
static void place(pieces *p, void *memory, size_t size) {
    for (uint64_t i = 0; i < p->list.n; i++)
        p->list.at[i] = (uintptr_t)memory + p->offset[i] * size;
}
/* from: the tensors' memory; to: the vector; or the other way. */
static void move(const pieces *p, size_t size, char *vector, char *memory, bool out) {
    for (uint64_t i = 0; i < p->list.n; i++) {
        char *a = vector + p->list.first[i] * size, *b = memory + p->offset[i] * size;
        size_t bytes = (p->list.first[i + 1] - p->list.first[i]) * size;
        if (out) memcpy(b, a, bytes);
        else memcpy(a, b, bytes);
    }
}

typedef struct vectors {
    char *into, *from, *flat, *got; /* the vector, the tensors, these as a vector, a copy */
    void *d_into, *d_from;
    size_t bytes;
} vectors;

/* The host's part of a loop over all that the list has; returns how many sums are not finite. */
static uint64_t host_add(const pieces *p, rill_type type, vectors *v, bool guards) {
    size_t size = value_size(type), start = p->list.first[0];
    uint64_t n = p->dim - start, odd = 0;
    char *into = v->into + start * size, *from = v->flat + start * size, *sum = malloc(n * size);
    memcpy(sum, into, n * size);
    rill__dense_add(rill__host(), type, sum, from, n);
    for (uint64_t i = 0; i < n; i++)
        odd += !isfinite(value_load(type, sum, i));
    if (guards) rill__dense_add_finite(rill__host(), type, into, from, n);
    else memcpy(into, sum, n * size);
    free(sum);
    return odd;
}

static void compare(const pieces *p, rill_type type, vectors *v, const char *what) {
    uint64_t where = 0;
    cuda_download(v->got, v->d_into, v->bytes);
    cuda_case(same_values(type, v->got, v->into, p->dim, &where), "%u tensors, %s of %s at %llu",
              (unsigned)p->list.n, what, rill_type_name(type), (unsigned long long)where);
}

static void add_case(pieces *p, rill_type type, enum data kind, bool guards) {
    size_t size = value_size(type), start = p->list.first[0], all = p->spread * size;
    vectors v = {.bytes = p->dim * size};
    uint64_t odd = 0, expected = 0;
    v.into = malloc(v.bytes);
    v.got = malloc(v.bytes);
    v.from = malloc(all);
    v.flat = calloc(p->dim, size);
    data_fill(kind, type, p->dim, 1, v.into);
    data_fill(kind, type, p->spread, 2, v.from);
    move(p, size, v.flat, v.from, false);
    v.d_into = cuda_upload(v.into, v.bytes);
    v.d_from = cuda_upload(v.from, all);
    uint64_t *d_odd = cuda_upload(&odd, sizeof odd);
    place(p, v.d_from, size);
    for (int i = 0; i < 2; i++) { /* counts add up */
        CUDA(cuda->tensors_add((int)type, v.d_into, &p->list, guards, d_odd, cuda_stream));
        expected += host_add(p, type, &v, guards);
        compare(p, type, &v, guards ? "guarded add" : "add");
        CUDA(cuda->tensors_subtract((int)type, v.d_into, &p->list, NULL, cuda_stream));
        rill__dense_subtract_finite(rill__host(), type, v.into + start * size,
                                    v.flat + start * size, p->dim - start);
        compare(p, type, &v, "subtract");
    }
    cuda_download(&odd, d_odd, sizeof odd);
    cuda_case(odd == expected, "%u tensors: %llu of %llu counted, %s", (unsigned)p->list.n,
              (unsigned long long)odd, (unsigned long long)expected, rill_type_name(type));
    cuda_free(v.d_into);
    cuda_free(v.d_from);
    cuda_free(d_odd);
    free(v.into);
    free(v.from);
    free(v.flat);
    free(v.got);
}

static void write_case(pieces *p, rill_type type, rng *random) {
    size_t size = value_size(type), bytes = p->dim * size, all = p->spread * size;
    uint64_t count = 0, where = 0;
    uint32_t *idx = malloc(p->dim * sizeof *idx);
    char *val = malloc(bytes), *flat = calloc(p->dim, size), *got = malloc(all);
    char *memory = malloc(all);
    data_fill(NORMAL, type, p->dim, 3, val);
    data_fill(NORMAL, type, p->spread, 4, memory); /* gaps stay as they are */
    void *d_memory = cuda_upload(memory, all);
    for (uint64_t i = 0; i < p->dim; i++) { /* also in front of the list */
        if (rng_below(random, 7)) continue;
        memcpy(flat + i * size, val + count * size, size);
        idx[count++] = (uint32_t)i;
    }
    void *d_idx = cuda_upload(idx, p->dim * sizeof *idx), *d_val = cuda_upload(val, bytes);
    place(p, d_memory, size);
    CUDA(cuda->tensors_write((int)type, &p->list,
                             &(rill__cuda_pairs){.n = count, .idx = d_idx, .val = d_val},
                             cuda_stream));
    move(p, size, flat, memory, true);
    cuda_download(got, d_memory, all);
    cuda_case(same_values(type, got, memory, p->spread, &where), "%u tensors, write of %s at %llu",
              (unsigned)p->list.n, rill_type_name(type), (unsigned long long)where);
    cuda_free(d_memory);
    cuda_free(d_idx);
    cuda_free(d_val);
    free(idx);
    free(val);
    free(flat);
    free(got);
    free(memory);
}

void test_tensors(void) {
    static const uint32_t counts[] = {1, 2, 3, 64, RILL__CUDA_TENSORS};
    static const uint64_t longest[] = {1, 40, 9000};
    static const rill_type types[] = {RILL_F32, RILL_F64, RILL_F16, RILL_BF16};
    rng random = rng_make(77, 1);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t l = 0; l < sizeof longest / sizeof *longest; l++)
            for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
                if (counts[c] > 3 && longest[l] > 40 && t > 1) continue;
                pieces p = pieces_of(counts[c], longest[l], &random);
                add_case(&p, types[t], NORMAL, true);
                add_case(&p, types[t], SPECIAL, t % 2);
                add_case(&p, types[t], SPECIAL, !(t % 2));
                write_case(&p, types[t], &random);
            }
}
