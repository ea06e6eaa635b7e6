/* Training of a small network, one reducer per layer: the messages of the upper layers are under way
 * while the backward pass is still in the lower ones.
 *   mpicc network.c -o network $(pkg-config --cflags --libs rill) -lm && mpirun -n 4 ./network */
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 3, BATCH = 64, STEPS = 400, WIDTH = 64, WEIGHTS = WIDTH * WIDTH };

static float weight[LAYERS][WEIGHTS], gradient[LAYERS][WEIGHTS], update[LAYERS][WEIGHTS];
static float value[LAYERS + 1][BATCH][WIDTH], error[LAYERS + 1][BATCH][WIDTH];
static rill_reducer *reducer[LAYERS];

static float uniform(void) { return (float)rand() / (float)RAND_MAX - 0.5f; }

/* Learns to add neighbours: target[o] = in[o] + in[o + 1]. Returns the mean squared error. */
static float forward(void) {
    float loss = 0;
    for (int b = 0; b < BATCH; b++) {
        for (int i = 0; i < WIDTH; i++) value[0][b][i] = uniform();
        for (int l = 0; l < LAYERS; l++)
            for (int o = 0; o < WIDTH; o++) {
                float x = value[l][b][o]; /* a residual connection */
                for (int i = 0; i < WIDTH; i++) x += weight[l][o * WIDTH + i] * value[l][b][i];
                value[l + 1][b][o] = x;
            }
        for (int o = 0; o < WIDTH; o++) {
            float e = value[LAYERS][b][o] - value[0][b][o] - value[0][b][(o + 1) % WIDTH];
            error[LAYERS][b][o] = e;
            loss += e * e / (BATCH * WIDTH);
        }
    }
    return loss;
}

static void backward(int l) {
    for (int i = 0; i < WEIGHTS; i++) gradient[l][i] = 0;
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < WIDTH; i++) {
            error[l][b][i] = error[l + 1][b][i];
            for (int o = 0; o < WIDTH; o++) {
                gradient[l][o * WIDTH + i] += error[l + 1][b][o] * value[l][b][i] / BATCH;
                error[l][b][i] += error[l + 1][b][o] * weight[l][o * WIDTH + i];
            }
        }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    rill_comm *comm = NULL;
    rill_reducer_options options = RILL_REDUCER_OPTIONS_INIT;
    options.density = 0.05;
    options.algorithm = argc > 1 ? argv[1] : "oktopk";
    rill_comm_create(MPI_COMM_WORLD, NULL, &comm);
    srand((unsigned)rill_comm_rank(comm) + 1); /* other samples on each rank */
    rill_status status = RILL_OK;
    for (int l = 0; l < LAYERS; l++)
        status |= rill_reducer_create(comm, RILL_F32, WEIGHTS, &options, &reducer[l]);
    for (int step = 0; !status && step <= STEPS; step++) {
        float loss = forward();
        if (rill_comm_rank(comm) == 0 && step % 100 == 0) printf("step %3d  %.4f\n", step, loss);
        for (int l = LAYERS - 1; l >= 0; l--) {
            backward(l);
            status |= rill_reducer_start(reducer[l], gradient[l], update[l]);
        }
        for (int l = LAYERS - 1; l >= 0; l--) {
            status |= rill_reducer_wait(reducer[l]);
            for (int i = 0; i < WEIGHTS; i++) weight[l][i] -= 0.05f * update[l][i];
        }
    }
    if (status) fprintf(stderr, "network: %s\n", rill_last_error());
    for (int l = 0; l < LAYERS; l++) rill_reducer_free(&reducer[l]);
    return rill_comm_free(&comm), MPI_Finalize(), status != RILL_OK;
}
