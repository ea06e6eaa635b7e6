/* What ranks tell each other besides streams, and one more communicator of the same ranks: by the
 * link's own collectives, or by calls where silent ranks count as gone. */
#include "api/comm.h"
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

/* MPI counts bytes in ints. */
#define MOST_AT_ONCE ((size_t)1 << 30)

/* A request goes on only while its ranks advance the engine, which nobody does in here. */
static rill_status check(rill_comm *comm, const char *call) {
    if (!comm) return rill__fail(RILL_ERR_ARGUMENT, "%s: comm is NULL", call);
    rill__link *link = comm->engine.link;
    if (link->table->usable) RILL_TRY(link->table->usable(link));
    rill__lock(&comm->engine);
    bool active = comm->engine.active != NULL;
    rill__unlock(&comm->engine);
    return active ? rill__fail(RILL_ERR_STATE, "%s: a request is active", call) : RILL_OK;
}

/* The link's collectives wait for a rank that does not answer as long as it lives, and ranks that
 * wait in them answer nobody. So where silent ranks count as gone, bytes are entries of a stream,
 * whose calls ask and answer. */
static bool by_calls(const rill_comm *comm) {
    const rill__engine *engine = &comm->engine;
    return engine->peers.timeout && engine->table->failed && engine->size > 1;
}

/* A byte is a value from 1 to 256, which 8 bits of significand hold. No entry is a zero. */
static uint16_t value_of_byte(unsigned char byte) {
    float value = (float)(byte + 1);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static unsigned char byte_of_value(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (unsigned char)((int)value - 1);
}

/* Of one piece: the bytes that this rank brings, from `first` on, and room for all that come. */
typedef struct piece {
    rill_stream *stream;
    uint64_t *indices;
    uint16_t *values;
} piece;

static rill_status piece_reserve(piece *x, uint64_t dim, uint64_t mine) {
    x->indices = rill__calloc(mine + 1, sizeof *x->indices);
    x->values = rill__calloc(dim, sizeof *x->values);
    if (!x->indices || !x->values)
        return rill__fail(RILL_ERR_MEMORY, "bytes between ranks: out of memory");
    return rill_stream_create(RILL_BF16, dim, &x->stream);
}

static rill_status piece_bring(piece *x, const unsigned char *bytes, uint64_t n, uint64_t first) {
    for (uint64_t i = 0; i < n; i++) {
        x->indices[i] = first + i;
        x->values[i] = value_of_byte(bytes[i]);
    }
    return rill_stream_set_pairs64(x->stream, n, x->indices, x->values);
}

static void piece_free(piece *x) {
    rill_stream_free(&x->stream);
    free(x->indices);
    free(x->values);
}

/* Who has no memory takes part with a stream of another dimension: then the others fail, too. */
static rill_status piece_call(rill_comm *comm, piece *x, rill_status local, int root) {
    rill_options options = RILL_OPTIONS_INIT;
    options.value_bits = options.allow_bits = 0;
    rill_stream *stream = local == RILL_OK ? x->stream : comm->nothing;
    rill_status status = root < 0 ? rill_allgather(comm, stream, stream, &options)
                                  : rill_bcast(comm, stream, root, &options);
    if (local == RILL_OK) return status;
    return rill__fail(local, "bytes between ranks: out of memory");
}

enum { PIECE = 1 << 14 };

static rill_status gather_piece(rill_comm *comm, const unsigned char *mine, uint64_t n,
                                unsigned char *all, uint64_t stride) {
    piece x = {0};
    uint64_t ranks = (uint64_t)comm->engine.size;
    rill_status status = piece_reserve(&x, ranks * n, n);
    if (status == RILL_OK) status = piece_bring(&x, mine, n, n * (uint64_t)comm->engine.rank);
    status = piece_call(comm, &x, status, -1);
    if (status == RILL_OK) status = rill_stream_get_dense(x.stream, x.values);
    for (uint64_t r = 0; status == RILL_OK && r < ranks; r++)
        for (uint64_t i = 0; i < n; i++)
            all[r * stride + i] = byte_of_value(x.values[r * n + i]);
    piece_free(&x);
    return status;
}

static rill_status bcast_piece(rill_comm *comm, unsigned char *data, uint64_t n, int root) {
    piece x = {0};
    bool mine = comm->engine.rank == root;
    rill_status status = piece_reserve(&x, n, n);
    if (status == RILL_OK) status = piece_bring(&x, data, mine ? n : 0, 0);
    status = piece_call(comm, &x, status, root);
    if (status == RILL_OK && !mine) {
        status = rill_stream_get_dense(x.stream, x.values);
        for (uint64_t i = 0; status == RILL_OK && i < n; i++)
            data[i] = byte_of_value(x.values[i]);
    }
    piece_free(&x);
    return status;
}

/* These calls are none of the user's: statistics stay those of the last one. */
typedef struct memory_of_last {
    rill_stats stats;
    uint64_t elapsed;
} memory_of_last;

static memory_of_last last_keep(const rill_comm *comm) {
    return (memory_of_last){comm->last, comm->last_elapsed};
}

static void last_restore(rill_comm *comm, memory_of_last kept) {
    comm->last = kept.stats;
    comm->last_elapsed = kept.elapsed;
}

static rill_status gather_by_calls(rill_comm *comm, const unsigned char *mine, size_t bytes,
                                   unsigned char *all) {
    memory_of_last kept = last_keep(comm);
    rill_status status = RILL_OK;
    for (size_t at = 0; at < bytes && status == RILL_OK; at += PIECE)
        status = gather_piece(comm, mine + at, bytes - at < PIECE ? bytes - at : PIECE, all + at,
                              bytes);
    last_restore(comm, kept);
    return status;
}

static rill_status bcast_by_calls(rill_comm *comm, unsigned char *data, size_t bytes, int root) {
    memory_of_last kept = last_keep(comm);
    rill_status status = RILL_OK;
    for (size_t at = 0; at < bytes && status == RILL_OK; at += PIECE)
        status = bcast_piece(comm, data + at, bytes - at < PIECE ? bytes - at : PIECE, root);
    last_restore(comm, kept);
    return status;
}

rill_status rill_comm_gather_bytes(rill_comm *comm, const void *mine, size_t bytes, void *all) {
    const char *call = "rill_comm_gather_bytes";
    RILL_TRY(check(comm, call));
    if (bytes && (!mine || !all))
        return rill__fail(RILL_ERR_ARGUMENT, "%s: %s is NULL", call, mine ? "all" : "mine");
    if (bytes > MOST_AT_ONCE)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: bytes = %zu is over 2^30", call, bytes);
    if (by_calls(comm)) return gather_by_calls(comm, mine, bytes, all);
    rill__engine *engine = &comm->engine;
    rill__lock(engine);
    rill_status status = engine->table->allgather(engine->link, mine, bytes, all);
    rill__unlock(engine);
    return status;
}

rill_status rill_comm_bcast_bytes(rill_comm *comm, void *data, size_t bytes, int root) {
    const char *call = "rill_comm_bcast_bytes";
    RILL_TRY(check(comm, call));
    rill__engine *engine = &comm->engine;
    if (root < 0 || root >= engine->size)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: root = %d is not from 0 to %d", call, root,
                          engine->size - 1);
    if (bytes && !data) return rill__fail(RILL_ERR_ARGUMENT, "%s: data is NULL", call);
    if (by_calls(comm)) return bcast_by_calls(comm, data, bytes, root);
    rill_status status = RILL_OK;
    rill__lock(engine);
    for (size_t at = 0; at < bytes && status == RILL_OK; at += MOST_AT_ONCE) {
        size_t n = bytes - at < MOST_AT_ONCE ? bytes - at : MOST_AT_ONCE;
        status = engine->table->bcast(engine->link, (char *)data + at, n, root);
    }
    rill__unlock(engine);
    return status;
}

rill_status rill_comm_dup(rill_comm *comm, const rill_config *config, rill_comm **out) {
    if (out) *out = NULL;
    RILL_TRY(check(comm, "rill_comm_dup"));
    rill__link *link = comm->engine.link, *more = NULL;
    if (!link->table->another)
        return rill__fail(RILL_ERR_UNSUPPORTED, "rill_comm_dup: the link %s has no second one",
                          link->table->name);
    rill__lock(&comm->engine);
    rill_status status = link->table->another(link, link, &more);
    rill__unlock(&comm->engine);
    return status == RILL_OK ? rill__comm_open(more, config, NULL, out) : status;
}
