/* The cases of one group, and one run of one: a rill collective, or MPI's dense one (bench_mpi.h).
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "bench.h"
#include "bench_mpi.h"

#include <stdlib.h>
#include <string.h>

/* ---- the baseline -------------------------------------------------------------------------- */

void bench_equal_range(uint64_t dim, int ranks, int rank, uint64_t *first, uint64_t *count) {
    uint64_t each = dim / (uint64_t)ranks, rest = dim % (uint64_t)ranks, r = (uint64_t)rank;
    *first = each * r + (r < rest ? r : rest);
    *count = each + (r < rest);
}

static bool mpi_run(const bench_config *config, const bench_world *world, const bench_input *input,
                    bench_case *c, double *seconds) {
    bench_mpi_call call = {.collective = config->collective,
                           .rank = world->rank,
                           .size = world->size,
                           .dim = input->dim,
                           .first = c->first,
                           .count = c->count,
                           .value_bytes = rill_type_size(config->type),
                           .send = c->send,
                           .receive = c->receive};
    return bench_mpi_run(c->mpi, &call, seconds);
}

/* What a good dense algorithm moves per rank (ring or scatter-allgather), as rill_stats has it for
 * "dense": MPI itself does not tell. */
static void mpi_traffic(const bench_config *config, const bench_world *world,
                        const bench_input *input, rill_stats *stats) {
    uint64_t ranks = (uint64_t)world->size;
    uint64_t bytes = input->dim * rill_type_size(config->type);
    uint64_t passes = config->collective == RILL_ALLREDUCE ? 2 : 1;
    stats->sent_bytes = stats->recv_bytes = passes * bytes / ranks * (ranks - 1);
    stats->messages = stats->rounds = passes * (ranks - 1);
    stats->nnz_in = input->nnz;
    stats->nnz_out = input->dim;
    stats->algorithm = "mpi";
    stats->codec = "raw";
}

static bool mpi_prepare(const bench_config *config, const bench_world *world,
                        const bench_input *input, bench_case *c) {
    size_t size = rill_type_size(config->type);
    uint64_t bytes = input->dim * size;
    c->first = 0;
    c->count = input->dim;
    bool ranges = config->collective == RILL_REDUCE_SCATTER || config->collective == RILL_ALLGATHER;
    if (ranges) bench_equal_range(input->dim, world->size, world->rank, &c->first, &c->count);
    if (input->dim > UINT64_MAX / 64 ||
        2 * bytes > world->memory / 10 * 6 / (uint64_t)world->ranks_per_host) {
        snprintf(c->detail, sizeof c->detail, "needs %.3g GB per rank, of %.3g GB on the host",
                 2e-9 * (double)input->dim * (double)size, 1e-9 * (double)world->memory);
        return false;
    }
    if (ranges && input->dim > INT32_MAX) {
        snprintf(c->detail, sizeof c->detail, "MPI counts in int: dimension over 2^31 - 1");
        return false;
    }
    /* On cache lines, as the library's own: the baseline must not be slow by accident. */
    c->send = aligned_alloc(64, (bytes + 64) & ~(uint64_t)63);
    c->receive = aligned_alloc(64, (bytes + 64) & ~(uint64_t)63);
    if (!c->send || !c->receive || !bench_mpi_make(config->type, config->operation, &c->mpi)) {
        snprintf(c->detail, sizeof c->detail, "out of memory");
        return false;
    }
    /* Both are touched. An allgather sends the dense range of this rank: all values count. */
    double neutral = bench_neutral(config->operation);
    bench_fill(config->type, c->send, input->dim, neutral);
    bench_fill(config->type, c->receive, input->dim, neutral);
    char *into = config->collective == RILL_BCAST && world->rank == ROOT ? c->receive : c->send;
    for (uint64_t i = 0; i < input->nnz; i++)
        memcpy(into + input->index[i] * size, (char *)input->value + i * size, size);
    return true;
}

/* ---- rill ---------------------------------------------------------------------------------- */

static rill_options options_of(const bench_config *config, const bench_case *c) {
    rill_options options = RILL_OPTIONS_INIT;
    options.algorithm = c->requested;
    options.codec = c->codec;
    options.value_bits = c->value_bits;
    options.expected_nnz = config->expected_nnz;
    options.partition = c->partition;
    options.block = config->block;
    return options;
}

static rill_status blocking(const bench_config *config, const bench_world *world,
                            const bench_input *input, bench_case *c) {
    const rill_op *op = bench_rill_op(config->operation);
    rill_options o = options_of(config, c);
    rill_stream *out = c->out;
    switch (config->collective) {
    case RILL_ALLREDUCE: return rill_allreduce(c->comm, input->stream, out, op, &o);
    case RILL_REDUCE:
        return rill_reduce(c->comm, input->stream, world->rank == ROOT ? out : NULL, op, ROOT, &o);
    case RILL_REDUCE_SCATTER:
        return rill_reduce_scatter(c->comm, input->stream, out, op, &c->first, &c->count, &o);
    case RILL_ALLGATHER: return rill_allgather(c->comm, input->stream, out, &o);
    case RILL_BCAST: return rill_bcast(c->comm, out, ROOT, &o);
    }
    return RILL_ERR_ARGUMENT;
}

static rill_status request(const bench_config *config, const bench_world *world,
                           const bench_input *input, bench_case *c) {
    const rill_op *op = bench_rill_op(config->operation);
    rill_options o = options_of(config, c);
    const rill_stream *in = input->stream;
    rill_stream *out = c->out, *at_root = world->rank == ROOT ? out : NULL;
    rill_request **r = &c->request;
    bool once = config->mode == MODE_NONBLOCKING;
    switch (config->collective) {
    case RILL_ALLREDUCE:
        return once ? rill_iallreduce(c->comm, in, out, op, &o, r)
                    : rill_allreduce_init(c->comm, in, out, op, &o, r);
    case RILL_REDUCE:
        return once ? rill_ireduce(c->comm, in, at_root, op, ROOT, &o, r)
                    : rill_reduce_init(c->comm, in, at_root, op, ROOT, &o, r);
    case RILL_REDUCE_SCATTER:
        return once ? rill_ireduce_scatter(c->comm, in, out, op, &c->first, &c->count, &o, r)
                    : rill_reduce_scatter_init(c->comm, in, out, op, &c->first, &c->count, &o, r);
    case RILL_ALLGATHER:
        return once ? rill_iallgather(c->comm, in, out, &o, r)
                    : rill_allgather_init(c->comm, in, out, &o, r);
    case RILL_BCAST:
        return once ? rill_ibcast(c->comm, out, ROOT, &o, r)
                    : rill_bcast_init(c->comm, out, ROOT, &o, r);
    }
    return RILL_ERR_ARGUMENT;
}

static rill_status rill_run(const bench_config *config, const bench_world *world,
                            const bench_input *input, bench_case *c, double *seconds) {
    rill_status status = RILL_OK;
    if (config->mode == MODE_PERSISTENT && !c->request) status = request(config, world, input, c);
    world_barrier(world->all);
    world_edge();
    double start = world_clock();
    switch (config->mode) {
    case MODE_BLOCKING: status = blocking(config, world, input, c); break;
    case MODE_NONBLOCKING:
        status = request(config, world, input, c);
        if (status == RILL_OK) status = rill_wait(c->request);
        rill_request_stats(c->request, &c->stats);
        if (status == RILL_OK) status = rill_request_free(&c->request);
        break;
    case MODE_PERSISTENT:
        if (status == RILL_OK) status = rill_start(c->request);
        if (status == RILL_OK) status = rill_wait(c->request);
        break;
    }
    *seconds = world_clock() - start;
    if (status != RILL_OK) return status;
    if (config->mode == MODE_BLOCKING) return rill_comm_stats(c->comm, &c->stats);
    return c->request ? rill_request_stats(c->request, &c->stats) : RILL_OK;
}

rill_status bench_case_run(const bench_config *config, const bench_world *world,
                           const bench_input *input, bench_case *c, double *seconds) {
    if (!c->is_mpi) return rill_run(config, world, input, c, seconds);
    return mpi_run(config, world, input, c, seconds) ? RILL_OK : RILL_ERR_MPI;
}

static bool rill_prepare(const bench_config *config, const bench_world *world,
                         const bench_input *input, bench_case *c) {
    rill_status status = world_comm(world->all, NULL, &c->comm);
    if (status == RILL_OK) status = rill_stream_create(config->type, input->dim, &c->out);
    if (status == RILL_OK && config->collective == RILL_BCAST && world->rank == ROOT)
        status = rill_stream_copy(c->out, input->stream);
    if (status != RILL_OK)
        snprintf(c->detail, sizeof c->detail, "%s: %s", rill_strerror(status), rill_last_error());
    return status == RILL_OK;
}

/* ---- the list ------------------------------------------------------------------------------ */

static void prepare(const bench_config *config, const bench_world *world, const bench_input *input,
                    bench_case *c) {
    c->stats = (rill_stats)RILL_STATS_INIT;
    c->state = CASE_READY;
    c->times = calloc((size_t)config->reps, sizeof *c->times);
    if (c->is_mpi) {
        mpi_traffic(config, world, input, &c->stats);
    }
    bool ok = c->is_mpi ? mpi_prepare(config, world, input, c)
                        : rill_prepare(config, world, input, c);
    if (ok && !c->times) {
        snprintf(c->detail, sizeof c->detail, "out of memory");
        ok = false;
    }
    if (!bench_agree(world, ok, c->detail, sizeof c->detail))
        c->state = c->is_mpi ? CASE_UNSUPPORTED : CASE_FAILED;
}

bench_case *bench_cases_make(const bench_config *config, const bench_world *world,
                             const bench_input *input, int *n, char *error, size_t size) {
    static const bench_choice not_given = {NULL, false};
    int codecs = config->codecs.n ? config->codecs.n : 1;
    int partitions = config->partitions.n ? config->partitions.n : 1;
    size_t most = 1 + (size_t)config->algorithms.n * (size_t)codecs * (size_t)partitions *
                          (size_t)config->bits;
    bench_case *cases = calloc(most, sizeof *cases);
    *n = 0;
    if (!cases) {
        snprintf(error, size, "out of memory");
        return NULL;
    }
    bool mpi = config->baseline;
    for (int a = 0; a < config->algorithms.n; a++)
        mpi |= !strcmp(config->algorithms.item[a].name, "mpi");
    if (mpi && world->all->mpi) {
        bench_case *c = &cases[(*n)++];
        *c = (bench_case){.requested = "mpi", .is_mpi = true, .may_be_unsupported = true};
        prepare(config, world, input, c);
    }
    for (int a = 0; a < config->algorithms.n; a++) {
        const bench_choice *algorithm = &config->algorithms.item[a];
        if (!strcmp(algorithm->name, "mpi")) continue;
        for (int k = 0; k < codecs; k++)
            for (int b = 0; b < config->bits; b++)
                for (int p = 0; p < partitions; p++) {
                    const bench_choice *codec = config->codecs.n ? &config->codecs.item[k]
                                                                 : &not_given;
                    bench_case *c = &cases[(*n)++];
                    *c = (bench_case){.requested = algorithm->name,
                                      .codec = codec->name,
                                      .partition = config->partitions.n
                                                       ? config->partitions.item[p].name
                                                       : NULL,
                                      .value_bits = config->value_bits[b],
                                      .may_be_unsupported = algorithm->from_all || codec->from_all};
                    prepare(config, world, input, c);
                }
    }
    return cases;
}

void bench_cases_free(bench_case *cases, int n) {
    for (int i = 0; i < n; i++) {
        bench_case *c = &cases[i];
        bench_mpi_free(&c->mpi);
        rill_request_free(&c->request);
        if (c->comm) rill_comm_free(&c->comm);
        rill_stream_free(&c->out);
        free(c->send);
        free(c->receive);
        free(c->times);
    }
    free(cases);
}
