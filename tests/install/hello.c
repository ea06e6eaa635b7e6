/* The smallest user of an installed rill: one allreduce on as many ranks as it is started with. */
#include <rill/rill.h>
#include <stdio.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    rill_comm *comm = NULL;
    rill_stream *stream = NULL;
    float total[8] = {0};
    const uint32_t index = 3;
    const float one = 1.0f;
    int failed = rill_comm_create(MPI_COMM_WORLD, NULL, &comm) != RILL_OK ||
                 rill_stream_create(RILL_F32, 8, &stream) != RILL_OK ||
                 rill_stream_set_pairs(stream, 1, &index, &one) != RILL_OK ||
                 rill_allreduce(comm, stream, stream, RILL_SUM, NULL) != RILL_OK ||
                 rill_stream_get_dense(stream, total) != RILL_OK ||
                 total[3] != (float)rill_comm_size(comm) || total[2] != 0.0f;
    if (failed) printf("rill %s: wrong sum %g: %s\n", rill_version(), total[3], rill_last_error());
    rill_stream_free(&stream);
    rill_comm_free(&comm);
    MPI_Finalize();
    return failed;
}
