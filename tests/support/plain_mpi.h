/* What the programs of tests/mpi use of MPI, for a library that was built without it: their ranks
 * are plain processes (scripts/plain-test), which meet at RILL_RENDEZVOUS. Everything goes by the
 * allgather of that bootstrap. One communicator, MPI_COMM_WORLD. */
#ifndef RILL_TESTS_PLAIN_MPI_H
#define RILL_TESTS_PLAIN_MPI_H

#include "rill/rill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct plain_info *MPI_Info;
typedef int MPI_Comm, MPI_Datatype, MPI_Op;

enum { MPI_COMM_NULL, MPI_COMM_WORLD };
enum { MPI_SUCCESS, MPI_MAX_INFO_KEY = 64 };
enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
enum { MPI_BYTE, MPI_CHAR = MPI_BYTE, MPI_INT, MPI_LONG, MPI_UINT64_T, MPI_FLOAT, MPI_DOUBLE };
enum { MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BOR };
#define MPI_IN_PLACE ((void *)1)
#define MPI_INFO_NULL ((MPI_Info)NULL)

static struct {
    rill_bootstrap bootstrap;
    char *gathered;
} plain_world;

static inline void plain_fail(const char *what) {
    fprintf(stderr, "rank %d: %s: %s\n", plain_world.bootstrap.rank, what, rill_last_error());
    _exit(2);
}

static inline size_t plain_size(MPI_Datatype type) {
    static const size_t sizes[] = {1, sizeof(int), sizeof(long), 8, 4, 8};
    return sizes[type];
}

/* What all ranks have; good until the next. */
static inline const char *plain_gather(const void *mine, size_t bytes) {
    free(plain_world.gathered);
    plain_world.gathered = malloc((size_t)plain_world.bootstrap.ranks * bytes + 1);
    if (!plain_world.gathered ||
        plain_world.bootstrap.allgather(mine, bytes, plain_world.gathered,
                                        plain_world.bootstrap.context) != 0)
        plain_fail("allgather");
    return plain_world.gathered;
}

static inline int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided) {
    (void)argc, (void)argv;
    *provided = wanted;
    if (rill_bootstrap_create(NULL, -1, -1, &plain_world.bootstrap) != RILL_OK) plain_fail("start");
    return MPI_SUCCESS;
}
static inline int MPI_Query_thread(int *provided) {
    *provided = MPI_THREAD_MULTIPLE;
    return MPI_SUCCESS;
}
static inline int MPI_Barrier(MPI_Comm comm) {
    (void)comm;
    plain_gather("", 1);
    return MPI_SUCCESS;
}
static inline int MPI_Finalize(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    rill_bootstrap_free(&plain_world.bootstrap);
    free(plain_world.gathered);
    return MPI_SUCCESS;
}
__attribute__((noreturn)) static inline int MPI_Abort(MPI_Comm comm, int code) {
    (void)comm;
    _exit(code);
}
static inline int MPI_Comm_rank(MPI_Comm comm, int *rank) {
    (void)comm;
    *rank = plain_world.bootstrap.rank;
    return MPI_SUCCESS;
}
static inline int MPI_Comm_size(MPI_Comm comm, int *ranks) {
    (void)comm;
    *ranks = plain_world.bootstrap.ranks;
    return MPI_SUCCESS;
}
static inline double MPI_Wtime(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline int MPI_Allgather(const void *mine, int n, MPI_Datatype type, void *all, int each,
                                MPI_Datatype of, MPI_Comm comm) {
    size_t bytes = (size_t)n * plain_size(type);
    (void)each, (void)of, (void)comm;
    memcpy(all, plain_gather(mine, bytes), (size_t)plain_world.bootstrap.ranks * bytes);
    return MPI_SUCCESS;
}
static inline int MPI_Gather(const void *mine, int n, MPI_Datatype type, void *all, int each,
                             MPI_Datatype of, int root, MPI_Comm comm) {
    size_t bytes = (size_t)n * plain_size(type);
    const char *got = plain_gather(mine, bytes);
    (void)each, (void)of, (void)comm;
    if (plain_world.bootstrap.rank == root)
        memcpy(all, got, (size_t)plain_world.bootstrap.ranks * bytes);
    return MPI_SUCCESS;
}
static inline int MPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
    size_t bytes = (size_t)n * plain_size(type);
    (void)comm;
    memcpy(data, plain_gather(data, bytes) + (size_t)root * bytes, bytes);
    return MPI_SUCCESS;
}

#define PLAIN_FOLD(T)                                                                              \
    for (int i = 0; i < n; i++) {                                                                  \
        T *a = (T *)into + i;                                                                      \
        T b;                                                                                       \
        memcpy(&b, (const T *)from + i, sizeof b);                                                 \
        if (op == MPI_SUM) *a += b;                                                                \
        else if (op == MPI_PROD) *a *= b;                                                          \
        else if (op == MPI_MIN ? b < *a : op == MPI_MAX && b > *a) *a = b;                         \
        else if (op == MPI_BOR) *a = (T)((uint64_t)*a | (uint64_t)b);                              \
    }
static inline void plain_fold(void *into, const void *from, int n, MPI_Datatype type, MPI_Op op) {
    switch (type) {
    case MPI_BYTE: PLAIN_FOLD(uint8_t) break;
    case MPI_INT: PLAIN_FOLD(int) break;
    case MPI_LONG: PLAIN_FOLD(long) break;
    case MPI_UINT64_T: PLAIN_FOLD(uint64_t) break;
    case MPI_FLOAT: PLAIN_FOLD(float) break;
    case MPI_DOUBLE: PLAIN_FOLD(double) break;
    default: plain_fail("a type that has no sum");
    }
}
static inline int MPI_Allreduce(const void *mine, void *out, int n, MPI_Datatype type, MPI_Op op,
                                MPI_Comm comm) {
    size_t bytes = (size_t)n * plain_size(type);
    (void)comm;
    const char *all = plain_gather(mine == MPI_IN_PLACE ? out : mine, bytes);
    memcpy(out, all, bytes);
    for (int rank = 1; rank < plain_world.bootstrap.ranks; rank++)
        plain_fold(out, all + (size_t)rank * bytes, n, type, op);
    return MPI_SUCCESS;
}

/* As with MPI, rank 0 gets nothing. */
static inline int MPI_Exscan(const void *mine, void *out, int n, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) {
    size_t bytes = (size_t)n * plain_size(type);
    (void)comm;
    const char *all = plain_gather(mine, bytes);
    if (plain_world.bootstrap.rank) memcpy(out, all, bytes);
    for (int rank = 1; rank < plain_world.bootstrap.rank; rank++)
        plain_fold(out, all + (size_t)rank * bytes, n, type, op);
    return MPI_SUCCESS;
}

/* ---- settings -------------------------------------------------------------------------------- */

struct plain_info {
    int n;
    char key[8][MPI_MAX_INFO_KEY], value[8][256];
};
static inline int MPI_Info_create(MPI_Info *info) {
    *info = calloc(1, sizeof **info);
    return MPI_SUCCESS;
}
static inline int MPI_Info_free(MPI_Info *info) {
    free(*info);
    *info = MPI_INFO_NULL;
    return MPI_SUCCESS;
}
static inline int MPI_Info_set(MPI_Info info, const char *key, const char *value) {
    int at = 0;
    while (at < info->n && strcmp(info->key[at], key) != 0)
        at++;
    if (at == 8) plain_fail("too many settings");
    if (at == info->n) info->n++;
    snprintf(info->key[at], sizeof info->key[at], "%s", key);
    snprintf(info->value[at], sizeof info->value[at], "%s", value);
    return MPI_SUCCESS;
}
static inline int MPI_Info_get_nkeys(MPI_Info info, int *n) {
    *n = info->n;
    return MPI_SUCCESS;
}
static inline int MPI_Info_get_nthkey(MPI_Info info, int i, char *key) {
    strcpy(key, info->key[i]);
    return MPI_SUCCESS;
}
static inline int MPI_Info_get(MPI_Info info, const char *key, int room, char *value, int *there) {
    *there = 0;
    for (int i = 0; i < info->n && !*there; i++) {
        *there = strcmp(info->key[i], key) == 0;
        if (*there) snprintf(value, (size_t)room + 1, "%s", info->value[i]);
    }
    return MPI_SUCCESS;
}

#endif
