/* A network of two layers on Fashion-MNIST: 784 pixels, 128 ReLU, softmax over 10 classes.
 *
 * Weights: from pixel i to hidden unit j at i * HIDDEN + j, biases, from unit j to class c at
 * j * CLASSES + c, biases. Rank r of P has the images r, r + P, r + 2P, ... */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS = 784, HIDDEN = 128, CLASSES = 10, SHARE = 5 }; /* curves: every fifth row */
enum { BIAS = PIXELS * HIDDEN, OUTER = BIAS + HIDDEN, OUTER_BIAS = OUTER + HIDDEN * CLASSES };
enum { DIM = OUTER_BIAS + CLASSES };

typedef struct images {
    uint64_t n;
    unsigned char *pixel, *label;
} images;

static images train, test;

typedef struct activity {
    float pixel[PIXELS], hidden[HIDDEN], out[CLASSES]; /* out: probabilities */
} activity;

static void start(float *weight, uint64_t seed) {
    const double inner = sqrt(6.0 / PIXELS), outer = sqrt(6.0 / HIDDEN);
    for (uint64_t i = 0; i < DIM; i++) {
        double range = i < BIAS ? inner : i >= OUTER && i < OUTER_BIAS ? outer : 0;
        weight[i] = (float)(range * (2 * random_unit(seed, i) - 1));
    }
}

/* Returns the loss. */
static double forward(const float *weight, const images *data, uint64_t row, activity *a) {
    memcpy(a->hidden, weight + BIAS, sizeof a->hidden);
    for (int i = 0; i < PIXELS; i++) {
        a->pixel[i] = data->pixel[row * PIXELS + (unsigned)i] / 255.0f;
        if (a->pixel[i] == 0) continue; /* half of them */
        const float *from = weight + i * HIDDEN;
        for (int j = 0; j < HIDDEN; j++)
            a->hidden[j] += a->pixel[i] * from[j];
    }
    memcpy(a->out, weight + OUTER_BIAS, sizeof a->out);
    for (int j = 0; j < HIDDEN; j++) {
        if (a->hidden[j] <= 0) a->hidden[j] = 0;
        for (int c = 0; c < CLASSES; c++)
            a->out[c] += a->hidden[j] * weight[OUTER + j * CLASSES + c];
    }
    float most = a->out[0], sum = 0;
    for (int c = 1; c < CLASSES; c++)
        most = fmaxf(most, a->out[c]);
    for (int c = 0; c < CLASSES; c++)
        sum += a->out[c] = expf(a->out[c] - most);
    for (int c = 0; c < CLASSES; c++)
        a->out[c] /= sum;
    return -log(fmax(a->out[data->label[row]], 1e-30));
}

static void backward(const float *weight, const activity *a, int label, float scale, float *sum) {
    float error[CLASSES], hidden[HIDDEN];
    for (int c = 0; c < CLASSES; c++) {
        error[c] = scale * (a->out[c] - (c == label));
        sum[OUTER_BIAS + c] += error[c];
    }
    for (int j = 0; j < HIDDEN; j++) {
        float back = 0;
        for (int c = 0; c < CLASSES; c++) {
            back += error[c] * weight[OUTER + j * CLASSES + c];
            sum[OUTER + j * CLASSES + c] += error[c] * a->hidden[j];
        }
        hidden[j] = a->hidden[j] > 0 ? back : 0;
        sum[BIAS + j] += hidden[j];
    }
    for (int i = 0; i < PIXELS; i++) {
        if (a->pixel[i] == 0) continue;
        float *to = sum + i * HIDDEN;
        for (int j = 0; j < HIDDEN; j++)
            to[j] += a->pixel[i] * hidden[j];
    }
}

static void gradient(const float *weight, uint64_t n, const uint64_t *row, float *sum) {
    activity a;
    memset(sum, 0, DIM * sizeof *sum);
    for (uint64_t i = 0; i < n; i++) {
        forward(weight, &train, row[i], &a);
        backward(weight, &a, train.label[row[i]], 1.0f / (float)n, sum);
    }
}

static void measure(const float *weight, bool all, tally *t) {
    activity a;
    for (uint64_t i = 0; i < train.n; i += all ? 1 : SHARE) {
        t->loss += forward(weight, &train, i, &a);
        t->trained++;
    }
    for (uint64_t i = 0; i < test.n; i++) {
        int best = 0;
        forward(weight, &test, i, &a);
        for (int c = 1; c < CLASSES; c++)
            if (a.out[c] > a.out[best]) best = c;
        t->right += best == test.label[i];
        t->tested++;
    }
}

/* ---- files -------------------------------------------------------------------------------- */

/* The items rank, rank + ranks, ... of an idx file (unpacked) of bytes, each of size `item`. */
static unsigned char *read_idx(const char *path, const char *name, int dims, size_t item, int rank,
                               int ranks, uint64_t *n) {
    char file[4096];
    unsigned char head[16], *data = NULL;
    snprintf(file, sizeof file, "%s/%s", path, name);
    FILE *in = fopen(file, "rb");
    if (!in) return NULL;
    size_t bytes = 4 + 4 * (size_t)dims;
    if (fread(head, 1, bytes, in) == bytes && head[2] == 8 && head[3] == dims) {
        uint64_t all = (uint64_t)head[4] << 24 | head[5] << 16 | head[6] << 8 | head[7];
        *n = (all + (unsigned)(ranks - 1 - rank)) / (unsigned)ranks;
        data = malloc(*n * item + 1);
        for (uint64_t i = 0; data && i < *n; i++) {
            long at = (long)(bytes + (i * (unsigned)ranks + (unsigned)rank) * item);
            if (fseek(in, at, SEEK_SET) || fread(data + i * item, 1, item, in) != item) {
                free(data);
                data = NULL;
            }
        }
    }
    fclose(in);
    return data;
}

static bool read_images(MPI_Comm comm, const char *path, const char *stem, images *out) {
    char name[64];
    int rank, ranks;
    uint64_t labels = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", stem);
    out->pixel = read_idx(path, name, 3, PIXELS, rank, ranks, &out->n);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", stem);
    out->label = read_idx(path, name, 1, 1, rank, ranks, &labels);
    int good = out->pixel && out->label && labels == out->n && out->n;
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_LAND, comm);
    return good;
}

static void unload(void) {
    images *both[] = {&train, &test};
    for (int i = 0; i < 2; i++) {
        free(both[i]->pixel);
        free(both[i]->label);
        *both[i] = (images){0, NULL, NULL};
    }
}

bool model_network_load(MPI_Comm comm, const char *path, model *m, char reason[256]) {
    if (!read_images(comm, path, "train", &train) || !read_images(comm, path, "t10k", &test)) {
        snprintf(reason, 256, "no idx files of Fashion-MNIST, unpacked, in %.200s", path);
        unload();
        return false;
    }
    *m = (model){DIM, train.n, start, gradient, measure, unload};
    return true;
}
