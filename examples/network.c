/* Training of a small network, one reducer per layer: the messages of the upper layers are under
 * way while the backward pass is still in the lower ones. Arguments: algorithm ("oktopk"), steps
 * (400). mpicc network.c -o network $(pkg-config --cflags --libs rill) && mpirun -n 4 ./network */
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>

enum { L = 3, N = 64 }; /* layers, and units of each */
static float weight[L][N][N], gradient[L][N][N], x[L + 1][N], error[L + 1][N], loss;
static float relu(float v) { return v > 0 ? v : 0; }

/* x[l] = x[l - 1] + weight[l - 1] relu(x[l - 1]). To be learnt: in[o] + relu(in[o + 1]). */
static void forward(void) {
    loss = 0;
    for (int l = 0; l <= L; l++)
        for (int o = 0; o < N; o++) {
            x[l][o] = l ? x[l - 1][o] : 2 * (float)rand() / (float)RAND_MAX - 1;
            for (int i = 0; l && i < N; i++)
                x[l][o] += weight[l - 1][o][i] * relu(x[l - 1][i]);
            error[l][o] = x[l][o] - x[0][o] - relu(x[0][(o + 1) % N]);
            loss += l == L ? error[l][o] * error[l][o] / N : 0;
        }
}

static rill_status backward(rill_reducer *reducer, int l) { /* its gradient goes on its way */
    for (int o = 0; o < N; o++)
        for (int i = 0; i < N; i++) {
            float above = error[l + 1][o] * (x[l][i] > 0);
            gradient[l][o][i] = above * x[l][i];
            error[l][i] = (o ? error[l][i] : error[l + 1][i]) + above * weight[l][o][i];
        }
    return rill_reducer_start(reducer, gradient[l], gradient[l]);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int status = RILL_OK, steps = argc > 2 ? atoi(argv[2]) : 400;
    rill_comm *comm = NULL;
    rill_reducer *reducer[L] = {NULL};
    rill_reducer_options options = RILL_REDUCER_OPTIONS_INIT; /* density: 1 % */
    options.algorithm = argc > 1 ? argv[1] : "oktopk";
    rill_comm_create(MPI_COMM_WORLD, NULL, &comm);
    srand((unsigned)rill_comm_rank(comm) + 1); /* other samples on each rank */
    for (int l = 0; l < L; l++)
        status |= rill_reducer_create(comm, RILL_F32, N * N, &options, &reducer[l]);
    for (int step = 0; !status && step <= steps; step++) {
        forward();
        if (!rill_comm_rank(comm) && step % 50 == 0) printf("step %3d  loss %.4f\n", step, loss);
        for (int l = L; l-- > 0 && !status;)
            status = backward(reducer[l], l);
        for (int l = L; l-- > 0 && !status && !(status = rill_reducer_wait(reducer[l]));)
            for (int i = 0; i < N * N; i++)
                weight[l][i / N][i % N] -= 0.02f * gradient[l][i / N][i % N];
    }
    if (status) fprintf(stderr, "network: %s\n", rill_last_error());
    for (int l = 0; l < L; l++)
        rill_reducer_free(&reducer[l]);
    return rill_comm_free(&comm), MPI_Finalize(), status != RILL_OK;
}
