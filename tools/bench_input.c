/* Input of rill bench: which indices each rank has, and what values.
 *
 * Supports:
 *   uniform  every rank draws nnz of dim indices, each subset equally likely
 *   full     the same draw on all ranks
 *   none     disjoint: rank r draws among the indices that are r modulo the ranks
 *   zipf     index i with probability min(1, c/(i+1)), c such that nnz are expected: ranks share
 *            the low indices and differ in the tail; nnz varies a little from rank to rank
 *
 * With --block these are numbers of blocks instead of indices, and all entries of a block are
 * there.
 *
 * All by jumping from one index to the next (geometric gaps), so that the cost is of the order of
 * nnz and not of dim. To get exactly nnz for the uniform kinds, a few more are drawn with equal
 * probability, and the surplus removed at random: that keeps all subsets equally likely.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double draw(uint64_t *state) { /* splitmix64: uniform in (0, 1) */
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return ((double)(x >> 12) + 0.5) * 0x1p-52;
}

/* Probability of index i: p, or min(1, p/(i+1)) when skewed. It never grows with i. */
static double probability(bool skewed, double p, uint64_t i) {
    if (skewed) p /= (double)i + 1;
    return p < 1 ? p : 1;
}

/* Draws indices below n in order, at most capacity; returns how many. Jumps with the probability
 * at the present index, which is an upper bound for those behind it, and thins to the true one. */
static uint64_t jump(uint64_t *state, bool skewed, double p, uint64_t n, uint64_t capacity,
                     uint64_t *index) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < n && count < capacity; i++) {
        double here = probability(skewed, p, i);
        if (here <= 0) break;
        if (here < 1) {
            double gap = floor(log(draw(state)) / log1p(-here));
            if (gap >= (double)(n - i)) break;
            i += (uint64_t)gap;
            if (skewed && draw(state) * here > probability(true, p, i)) continue;
        }
        index[count++] = i;
    }
    return count;
}

/* Keeps k of count entries, every choice equally likely. */
static void thin(uint64_t *state, uint64_t *index, uint64_t count, uint64_t k) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < count && kept < k; i++)
        if (draw(state) * (double)(count - i) < (double)(k - kept)) index[kept++] = index[i];
}

/* c with sum over i < n of min(1, c/(i+1)) = k. */
static double zipf_constant(uint64_t n, uint64_t k) {
    double low = 0, high = (double)n;
    for (int i = 0; i < 200; i++) {
        double c = (low + high) / 2;
        double expected = c < 1 ? c * (log((double)n) + 0.5772) : c + c * log((double)n / c);
        if (expected < (double)k) low = c;
        else high = c;
    }
    return (low + high) / 2;
}

/* From numbers of blocks to the indices of their entries. False when out of memory. */
static bool expand_blocks(uint64_t block, bench_input *input) {
    uint64_t count = 0, *index = malloc((input->nnz * block + 1) * sizeof *index);
    if (!index) return false;
    for (uint64_t i = 0; i < input->nnz; i++) {
        uint64_t first = input->index[i] * block;
        uint64_t n = input->dim - first < block ? input->dim - first : block;
        for (uint64_t j = 0; j < n; j++)
            index[count++] = first + j;
    }
    free(input->index);
    input->index = index;
    input->nnz = count;
    return true;
}

/* The support: index and nnz of the input, k of n. False when out of memory. */
static bool make_support(const bench_config *config, const bench_world *world, uint64_t n,
                         uint64_t k, bench_input *input) {
    uint64_t stride = 1, offset = 0;
    uint64_t state = config->seed * 0x2545f4914f6cdd1dull;
    if (config->overlap != OVERLAP_FULL) state += ((uint64_t)world->rank + 1) << 32;
    if (config->overlap == OVERLAP_NONE) {
        stride = (uint64_t)world->size;
        offset = (uint64_t)world->rank;
        n = offset < n ? (n - offset + stride - 1) / stride : 0;
    }
    if (k > n) k = n;
    if (config->overlap == OVERLAP_CLUSTERED) { /* a sixteenth of the indices, for all ranks */
        uint64_t narrow = n / 16 > 2 * k ? n / 16 : 2 * k < n ? 2 * k : n;
        offset = (n - narrow) / 3;
        n = narrow;
    }
    uint64_t capacity = k + (uint64_t)(8 * sqrt((double)k)) + 64;
    uint64_t *index = malloc((capacity + 1) * sizeof *index);
    if (!index) return false;
    uint64_t count = 0;
    if (k && config->overlap == OVERLAP_ZIPF) {
        count = jump(&state, true, zipf_constant(n, k), n, capacity, index);
    } else if (k) {
        double margin = 3;
        do { /* the margin is of so many standard deviations: a second turn is rare */
            double p = ((double)k + margin * sqrt((double)k) + 4) / (double)n;
            count = jump(&state, false, p, n, capacity, index);
            margin += 1;
        } while (count < k);
        thin(&state, index, count, k);
        count = k;
    }
    for (uint64_t i = 0; i < count; i++)
        index[i] = index[i] * stride + offset;
    input->index = index;
    input->nnz = count;
    return true;
}

bench_form bench_form_of(const rill_stream *s) {
    return rill_stream_is_dense(s) ? FORM_DENSE : rill_stream_block(s) ? FORM_BLOCK : FORM_SPARSE;
}

static rill_status make_stream(const bench_config *config, bench_input *input) {
    rill_status status = rill_stream_create(config->type, input->dim, &input->stream);
    if (status != RILL_OK) return status;
    if (input->dim > (uint64_t)1 << 32) {
        status = rill_stream_set_pairs64(input->stream, input->nnz, input->index, input->value);
    } else {
        uint32_t *narrow = malloc((input->nnz + 1) * sizeof *narrow);
        if (!narrow) return RILL_ERR_MEMORY;
        for (uint64_t i = 0; i < input->nnz; i++)
            narrow[i] = (uint32_t)input->index[i];
        status = rill_stream_set_pairs(input->stream, input->nnz, narrow, input->value);
        free(narrow);
    }
    if (status == RILL_OK && config->form == FORM_SPARSE)
        status = rill_stream_to_sparse(input->stream);
    if (status == RILL_OK && config->form == FORM_DENSE)
        status = rill_stream_to_dense(input->stream);
    if (status == RILL_OK && config->form == FORM_BLOCK)
        status = rill_stream_to_blocks(input->stream, config->block ? config->block : 256);
    return status;
}

/* For other programs to run on the same input: PREFIX-<dim>-<nnz>-<rank>.idx (uint64) and .val. */
static bool dump(const bench_config *config, const bench_world *world, uint64_t nnz,
                 const bench_input *input, char *error, size_t size) {
    for (int part = 0; part < 2; part++) {
        char path[1024];
        snprintf(path, sizeof path, "%s-%llu-%llu-%d.%s", config->dump_prefix,
                 (unsigned long long)input->dim, (unsigned long long)nnz, world->rank,
                 part ? "val" : "idx");
        rill__outfile file;
        const void *data = part ? input->value : (void *)input->index;
        size_t each = part ? rill_type_size(config->type) : sizeof *input->index;
        int wrong = rill__outfile_open(path, &file);
        if (!wrong) {
            wrong = rill__outfile_write(&file, data, each * input->nnz);
            int closed = rill__outfile_close(&file, !wrong);
            if (!wrong) wrong = closed;
        }
        if (!wrong) continue;
        snprintf(error, size, "--dump: cannot write '%.150s': %.60s", path, strerror(wrong));
        return false;
    }
    return true;
}

bool bench_input_make(const bench_config *config, const bench_world *world, uint64_t dim,
                      double density, uint64_t nnz, bench_input *input, char *error, size_t size) {
    *input = (bench_input){.dim = dim, .density = density};
    uint64_t unit = config->block ? config->block : 1, n = dim / unit + (dim % unit != 0);
    uint64_t k = nnz / unit + (nnz % unit != 0);
    if (!make_support(config, world, n, k, input) ||
        (config->block && !expand_blocks(config->block, input))) {
        snprintf(error, size, "out of memory for the input");
        return false;
    }
    input->value = malloc((input->nnz + 1) * rill_type_size(config->type));
    if (!input->value) {
        snprintf(error, size, "out of memory for the input");
        return false;
    }
    for (uint64_t i = 0; i < input->nnz; i++)
        bench_store(config->type, input->value, i,
                    bench_value(config->type, config->operation, world->size, world->rank,
                                input->index[i], config->seed));
    rill_status status = make_stream(config, input);
    if (status != RILL_OK) {
        snprintf(error, size, "input stream: %s: %s", rill_strerror(status), rill_last_error());
        return false;
    }
    return !config->dump_prefix || dump(config, world, nnz, input, error, size);
}

void bench_input_free(bench_input *input) {
    free(input->index);
    free(input->value);
    rill_stream_free(&input->stream);
    *input = (bench_input){0};
}
