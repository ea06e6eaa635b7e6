/* The public collectives: each in three forms, all through rill__call. */
#include "call/call.h"

#define CHECK_REQUEST(name)                                                                        \
    if (!request) return rill__fail(RILL_ERR_ARGUMENT, name ": request is NULL")

#define ALLREDUCE                                                                                  \
    (&(rill__arguments){.collective = RILL_ALLREDUCE,                                              \
                        .in = in,                                                                  \
                        .out = out,                                                                \
                        .op = op,                                                                  \
                        .root = -1,                                                                \
                        .options = options})
#define REDUCE                                                                                     \
    (&(rill__arguments){.collective = RILL_REDUCE,                                                 \
                        .in = in,                                                                  \
                        .out = out,                                                                \
                        .op = op,                                                                  \
                        .root = root,                                                              \
                        .options = options})
#define REDUCE_SCATTER                                                                             \
    (&(rill__arguments){.collective = RILL_REDUCE_SCATTER,                                         \
                        .in = in,                                                                  \
                        .out = out,                                                                \
                        .op = op,                                                                  \
                        .root = -1,                                                                \
                        .first = first,                                                            \
                        .count = count,                                                            \
                        .options = options})
#define ALLGATHER                                                                                  \
    (&(rill__arguments){                                                                           \
        .collective = RILL_ALLGATHER, .in = in, .out = out, .root = -1, .options = options})
#define BCAST                                                                                      \
    (&(rill__arguments){                                                                           \
        .collective = RILL_BCAST, .in = stream, .out = stream, .root = root, .options = options})

rill_status rill_allreduce(rill_comm *comm, const rill_stream *in, rill_stream *out,
                           const rill_op *op, const rill_options *options) {
    return rill__call(comm, ALLREDUCE, RILL__BLOCKING, NULL);
}
rill_status rill_iallreduce(rill_comm *comm, const rill_stream *in, rill_stream *out,
                            const rill_op *op, const rill_options *options,
                            rill_request **request) {
    CHECK_REQUEST("rill_iallreduce");
    return rill__call(comm, ALLREDUCE, RILL__NONBLOCKING, request);
}
rill_status rill_allreduce_init(rill_comm *comm, const rill_stream *in, rill_stream *out,
                                const rill_op *op, const rill_options *options,
                                rill_request **request) {
    CHECK_REQUEST("rill_allreduce_init");
    return rill__call(comm, ALLREDUCE, RILL__PERSISTENT, request);
}

rill_status rill_reduce(rill_comm *comm, const rill_stream *in, rill_stream *out, const rill_op *op,
                        int root, const rill_options *options) {
    return rill__call(comm, REDUCE, RILL__BLOCKING, NULL);
}
rill_status rill_ireduce(rill_comm *comm, const rill_stream *in, rill_stream *out,
                         const rill_op *op, int root, const rill_options *options,
                         rill_request **request) {
    CHECK_REQUEST("rill_ireduce");
    return rill__call(comm, REDUCE, RILL__NONBLOCKING, request);
}
rill_status rill_reduce_init(rill_comm *comm, const rill_stream *in, rill_stream *out,
                             const rill_op *op, int root, const rill_options *options,
                             rill_request **request) {
    CHECK_REQUEST("rill_reduce_init");
    return rill__call(comm, REDUCE, RILL__PERSISTENT, request);
}

rill_status rill_reduce_scatter(rill_comm *comm, const rill_stream *in, rill_stream *out,
                                const rill_op *op, uint64_t *first, uint64_t *count,
                                const rill_options *options) {
    return rill__call(comm, REDUCE_SCATTER, RILL__BLOCKING, NULL);
}
rill_status rill_ireduce_scatter(rill_comm *comm, const rill_stream *in, rill_stream *out,
                                 const rill_op *op, uint64_t *first, uint64_t *count,
                                 const rill_options *options, rill_request **request) {
    CHECK_REQUEST("rill_ireduce_scatter");
    return rill__call(comm, REDUCE_SCATTER, RILL__NONBLOCKING, request);
}
rill_status rill_reduce_scatter_init(rill_comm *comm, const rill_stream *in, rill_stream *out,
                                     const rill_op *op, uint64_t *first, uint64_t *count,
                                     const rill_options *options, rill_request **request) {
    CHECK_REQUEST("rill_reduce_scatter_init");
    return rill__call(comm, REDUCE_SCATTER, RILL__PERSISTENT, request);
}

rill_status rill_allgather(rill_comm *comm, const rill_stream *in, rill_stream *out,
                           const rill_options *options) {
    return rill__call(comm, ALLGATHER, RILL__BLOCKING, NULL);
}
rill_status rill_iallgather(rill_comm *comm, const rill_stream *in, rill_stream *out,
                            const rill_options *options, rill_request **request) {
    CHECK_REQUEST("rill_iallgather");
    return rill__call(comm, ALLGATHER, RILL__NONBLOCKING, request);
}
rill_status rill_allgather_init(rill_comm *comm, const rill_stream *in, rill_stream *out,
                                const rill_options *options, rill_request **request) {
    CHECK_REQUEST("rill_allgather_init");
    return rill__call(comm, ALLGATHER, RILL__PERSISTENT, request);
}

rill_status rill_bcast(rill_comm *comm, rill_stream *stream, int root,
                       const rill_options *options) {
    return rill__call(comm, BCAST, RILL__BLOCKING, NULL);
}
rill_status rill_ibcast(rill_comm *comm, rill_stream *stream, int root, const rill_options *options,
                        rill_request **request) {
    CHECK_REQUEST("rill_ibcast");
    return rill__call(comm, BCAST, RILL__NONBLOCKING, request);
}
rill_status rill_bcast_init(rill_comm *comm, rill_stream *stream, int root,
                            const rill_options *options, rill_request **request) {
    CHECK_REQUEST("rill_bcast_init");
    return rill__call(comm, BCAST, RILL__PERSISTENT, request);
}
