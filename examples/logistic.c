/* Logistic regression with a reducer: every rank has its own samples, sends 1 % of its gradient in
 * each step, and keeps the rest for later steps. Arguments: algorithm ("auto"), steps (200).
 *   mpicc logistic.c -o logistic $(pkg-config --cflags --libs rill) -lm; mpirun -n 4 ./logistic */
#include <math.h>
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEATURES = 20000, SAMPLES = 2000, WORDS = 40 };

static int word[SAMPLES][WORDS]; /* features of a sample, each with the value 1 */
static float weight[FEATURES], gradient[FEATURES], update[FEATURES], label[SAMPLES];

/* Words repeat between samples as they do in texts; odd ones speak for the label 1. */
static void make_samples(int rank) {
    srand((unsigned)rank + 1);
    for (int s = 0, odd = 0; s < SAMPLES; label[s++] = WORDS < 2 * odd ? 1 : -1, odd = 0)
        for (int i = 0; i < WORDS; i++)
            odd += (word[s][i] = (int)(FEATURES * pow(rand() / (RAND_MAX + 1.0), 3))) % 2;
}

static double loss_and_gradient(void) {
    double loss = 0;
    memset(gradient, 0, sizeof gradient);
    for (int s = 0; s < SAMPLES; s++) {
        float score = 0;
        for (int i = 0; i < WORDS; i++)
            score += weight[word[s][i]];
        loss += log1p(exp(-label[s] * score)) / SAMPLES;
        for (int i = 0; i < WORDS; i++)
            gradient[word[s][i]] -= label[s] / (1 + expf(label[s] * score)) / SAMPLES;
    }
    return loss;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int steps = argc > 2 ? atoi(argv[2]) : 200;
    rill_comm *comm = NULL;
    rill_reducer *reducer = NULL;
    rill_stats stats = RILL_STATS_INIT;
    rill_reducer_options options = RILL_REDUCER_OPTIONS_INIT; /* density: 1 % */
    options.algorithm = argc > 1 ? argv[1] : "auto";
    rill_comm_create(MPI_COMM_WORLD, NULL, &comm);
    rill_status status = rill_reducer_create(comm, RILL_F32, FEATURES, &options, &reducer);
    make_samples(rill_comm_rank(comm));
    for (int step = 0; !status && step <= steps; step++) {
        double loss = loss_and_gradient();
        status = rill_reducer_step(reducer, gradient, update);
        for (int i = 0; i < FEATURES; i++)
            weight[i] -= 3 * update[i];
        if (rill_comm_rank(comm) || step % 50 || rill_reducer_stats(reducer, &stats)) continue;
        printf("step %3d  loss %.4f  %s sent %g bytes\n", step, loss, stats.algorithm,
               (double)stats.sent_bytes);
    }
    if (status) fprintf(stderr, "logistic: %s\n", rill_last_error());
    return rill_reducer_free(&reducer), rill_comm_free(&comm), MPI_Finalize(), status != RILL_OK;
}
