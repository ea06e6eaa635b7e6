/* What ranks tell each other besides streams, and one more communicator of the same ranks: over
 * MPI or UCX, and between threads of this process. */
#include "check.h"

#include <pthread.h>

enum { LOCAL_RANKS = 3 };

/* Wrong bytes, of a gather of n and of a broadcast from each rank; -1: a call failed. */
static long talk(rill_comm *comm, size_t n) {
    int rank = rill_comm_rank(comm), size = rill_comm_size(comm);
    unsigned char *mine = malloc(n + 1), *all = malloc((size_t)size * n + 1);
    long wrong = 0;
    memset(mine, 1 + rank, n + 1);
    if (rill_comm_gather_bytes(comm, mine, n, all) != RILL_OK) wrong = -1;
    for (size_t i = 0; wrong >= 0 && i < (size_t)size * n; i++)
        wrong += all[i] != 1 + i / n;
    for (int root = 0; root < size && wrong >= 0; root++) {
        memset(mine, 1 + rank, n + 1);
        if (rill_comm_bcast_bytes(comm, mine, n, root) != RILL_OK) wrong = -1;
        for (size_t i = 0; wrong >= 0 && i < n; i++)
            wrong += mine[i] != 1 + root;
    }
    free(mine);
    free(all);
    return wrong;
}

/* The sum of a one of each rank. */
static double ones(rill_comm *comm) {
    rill_stream *x = NULL;
    const uint32_t index = 3;
    const double one = 1;
    double dense[5] = {0};
    if (rill_stream_create(RILL_F64, 5, &x) != RILL_OK ||
        rill_stream_set_pairs(x, 1, &index, &one) != RILL_OK ||
        rill_allreduce(comm, x, x, RILL_SUM, NULL) != RILL_OK ||
        rill_stream_get_dense(x, dense) != RILL_OK)
        dense[3] = -1;
    rill_stream_free(&x);
    return dense[3];
}

/* Everything on a communicator, a second one of it, and a third one of that; how much is wrong. */
static long walk(rill_comm *comm) {
    rill_comm *second = NULL, *third = NULL;
    long wrong = 0;
    for (size_t n = 0; n < 100000; n = 7 * n + 1)
        wrong += talk(comm, n) != 0;
    wrong += rill_comm_dup(comm, NULL, &second) != RILL_OK;
    if (wrong || !second) return wrong + 1;
    wrong += rill_comm_rank(second) != rill_comm_rank(comm);
    wrong += rill_comm_size(second) != rill_comm_size(comm);
    wrong += ones(second) != rill_comm_size(comm) || ones(comm) != rill_comm_size(comm);
    wrong += rill_comm_dup(second, NULL, &third) != RILL_OK || talk(third, 100) != 0;
    wrong += rill_comm_free(&second) != RILL_OK; /* the third does without it */
    wrong += ones(third) != rill_comm_size(comm) || talk(comm, 10) != 0;
    wrong += rill_comm_free(&third) != RILL_OK;
    return wrong;
}

static void *walk_in_thread(void *comm) {
    long wrong = walk(*(rill_comm **)comm);
    return (void *)(uintptr_t)wrong;
}

/* With a timeout, bytes are entries of streams. */
static void test_local(int timeout) {
    rill_comm *comms[LOCAL_RANKS];
    pthread_t threads[LOCAL_RANKS];
    rill_config config = RILL_CONFIG_INIT;
    config.timeout_s = timeout;
    check_case(timeout ? "threads that ask each other" : "threads of one process");
    if (!CHECK_OK(rill_comm_create_local(LOCAL_RANKS, &config, comms))) return;
    for (int i = 0; i < LOCAL_RANKS; i++)
        CHECK(pthread_create(&threads[i], NULL, walk_in_thread, &comms[i]) == 0);
    for (int i = 0; i < LOCAL_RANKS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        CHECK_INT((long)(uintptr_t)wrong, ==, 0);
        CHECK_OK(rill_comm_free(&comms[i]));
    }
}

static void test_errors(rill_comm *comm) {
    char byte = 0, all[64] = "";
    rill_comm *none = NULL;
    check_case("arguments");
    CHECK_STATUS(rill_comm_gather_bytes(NULL, &byte, 1, all), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_comm_gather_bytes(comm, NULL, 1, all), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_comm_gather_bytes(comm, &byte, 1, NULL), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_comm_bcast_bytes(comm, NULL, 1, 0), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_comm_bcast_bytes(comm, &byte, 1, -1), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_comm_bcast_bytes(comm, &byte, 1, rill_comm_size(comm)), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_comm_dup(NULL, NULL, &none), RILL_ERR_ARGUMENT);
    CHECK(none == NULL);
    check_case("a request is under way");
    rill_stream *x = NULL;
    rill_request *request = NULL;
    CHECK_OK(rill_stream_create(RILL_F32, 10, &x));
    CHECK_OK(rill_iallreduce(comm, x, x, RILL_SUM, NULL, &request));
    if (rill_comm_size(comm) > 1) /* alone it may be through */
        CHECK_STATUS(rill_comm_bcast_bytes(comm, &byte, 1, 0), RILL_ERR_STATE);
    CHECK_OK(rill_wait(request));
    CHECK_OK(rill_request_free(&request));
    CHECK_OK(rill_stream_free(&x));
    CHECK(talk(comm, 5) == 0);
}

int main(int argc, char **argv) {
    check_init_thread(&argc, &argv, MPI_THREAD_SINGLE);
    rill_comm *comm = NULL;
    check_case("ranks");
    if (CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm))) {
        CHECK_INT(walk(comm), ==, 0);
        test_errors(comm);
        CHECK_OK(rill_comm_free(&comm));
    }
    if (check.rank == 0) test_local(0);
    if (check.rank == 0) test_local(60);
    return check_finish(3);
}
