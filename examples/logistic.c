/* Logistic regression with a reducer: every rank has its own samples, sends 1 % of its gradient in
 * each step, and keeps the rest for later steps.
 *   mpicc logistic.c -o logistic $(pkg-config --cflags --libs rill) -lm && mpirun -n 4 ./logistic */
#include <math.h>
#include <rill/rill.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 20000, SAMPLES = 2000, PER_SAMPLE = 40, STEPS = 200 };

static int feature[SAMPLES][PER_SAMPLE];
static float weight[FEATURES], gradient[FEATURES], update[FEATURES], label[SAMPLES];

/* Features repeat between samples as words do in texts; odd ones speak for the label. */
static void make_samples(int rank) {
    srand((unsigned)rank + 1);
    for (int s = 0; s < SAMPLES; s++) {
        int odd = 0;
        for (int i = 0; i < PER_SAMPLE; i++) {
            feature[s][i] = (int)(FEATURES * pow(rand() / (RAND_MAX + 1.0), 3));
            odd += feature[s][i] % 2;
        }
        label[s] = 2 * odd > PER_SAMPLE ? 1 : -1;
    }
}

static double loss_and_gradient(void) {
    double loss = 0;
    for (int i = 0; i < FEATURES; i++) gradient[i] = 0;
    for (int s = 0; s < SAMPLES; s++) {
        float score = 0;
        for (int i = 0; i < PER_SAMPLE; i++) score += weight[feature[s][i]];
        loss += log1p(exp(-label[s] * score)) / SAMPLES;
        float slope = -label[s] / (1 + expf(label[s] * score)) / SAMPLES;
        for (int i = 0; i < PER_SAMPLE; i++) gradient[feature[s][i]] += slope;
    }
    return loss;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    rill_comm *comm = NULL;
    rill_reducer *reducer = NULL;
    rill_stats stats = RILL_STATS_INIT;
    rill_reducer_options options = RILL_REDUCER_OPTIONS_INIT;
    options.density = 0.01;
    options.algorithm = argc > 1 ? argv[1] : "auto"; /* oktopk, gtopk, spardl, dense, ... */
    rill_comm_create(MPI_COMM_WORLD, NULL, &comm);
    rill_status status = rill_reducer_create(comm, RILL_F32, FEATURES, &options, &reducer);
    make_samples(rill_comm_rank(comm));
    for (int step = 0; status == RILL_OK && step <= STEPS; step++) {
        double loss = loss_and_gradient();
        status = rill_reducer_step(reducer, gradient, update);
        for (int i = 0; i < FEATURES; i++) weight[i] -= 20 * update[i];
        rill_reducer_stats(reducer, &stats);
        if (rill_comm_rank(comm) == 0 && step % 50 == 0)
            printf("step %3d  loss %.4f  %s sent %llu bytes\n", step, loss, stats.algorithm,
                   (unsigned long long)stats.sent_bytes);
    }
    if (status != RILL_OK) fprintf(stderr, "logistic: %s\n", rill_last_error());
    return rill_reducer_free(&reducer), rill_comm_free(&comm), MPI_Finalize(), status != RILL_OK;
}
