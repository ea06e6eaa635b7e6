/* What rill_comm_create and the calls of rill/train.h refuse: before and after MPI,
 * intercommunicators, a config that is not set up; on one rank, it is an error on all of them. */
#include "check.h"

#include <rill/train.h>

/* A communicator was made, and serves. */
static void check_serves(rill_comm **comm) {
    uint32_t at = (uint32_t)check.rank;
    float one = 1;
    rill_stream *s = NULL;
    CHECK_OK(rill_stream_create(RILL_F32, 100, &s));
    CHECK_OK(rill_stream_set_pairs(s, 1, &at, &one));
    CHECK_OK(rill_allreduce(*comm, s, s, RILL_SUM, NULL));
    CHECK_INT(rill_stream_nnz(s), ==, check.size);
    rill_stream_free(&s);
    CHECK_OK(rill_comm_free(comm));
}

/* SimGrid has neither intercommunicators nor ranks outside of MPI. */
#ifdef SMPI_H
enum { SIMULATED = 1 };
#else
enum { SIMULATED = 0 };
#endif

static void intercommunicators(void) {
    if (check.size < 2 || SIMULATED) return;
    check_case("an intercommunicator");
    MPI_Comm half, inter;
    rill_comm *comm = NULL;
    rill_dataset *set = NULL;
    MPI_Comm_split(MPI_COMM_WORLD, check.rank % 2, check.rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - check.rank % 2, 5, &inter);
    CHECK_STATUS(rill_comm_create(inter, NULL, &comm), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("intercommunicator");
    CHECK(comm == NULL);
    CHECK_STATUS(rill_dataset_load(inter, "nothing", NULL, &set), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("intercommunicator");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* zeros: on this rank. */
static void zeroed_configs(int who) {
    check_case("a config of zeros on %s", who < 0 ? "all ranks" : "one rank");
    rill_config zeros, good = RILL_CONFIG_INIT;
    rill_comm *comm = NULL;
    memset(&zeros, 0, sizeof zeros);
    int mine = who < 0 || check.rank == who;
    CHECK_STATUS(rill_comm_create(MPI_COMM_WORLD, mine ? &zeros : &good, &comm), RILL_ERR_ARGUMENT);
    if (mine) CHECK_DETAIL("RILL_CONFIG_INIT");
    CHECK(rill_last_error()[0] != 0 && comm == NULL);
    zeros.size = sizeof zeros; /* and its info is 0, which is none */
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &zeros, &comm));
    check_serves(&comm);
}

static void no_place_for_it(void) {
    check_case("out is NULL on one rank");
    rill_comm *comm = NULL;
    int mine = check.rank == check.size - 1;
    CHECK_STATUS(rill_comm_create(MPI_COMM_WORLD, NULL, mine ? NULL : &comm), RILL_ERR_ARGUMENT);
    CHECK(rill_last_error()[0] != 0 && comm == NULL);
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    check_serves(&comm);
}

/* Outside of MPI; what failed. */
static int refused(const char *when, const char *word) {
    rill_comm *comm = NULL;
    rill_dataset *set = NULL;
    rill_trainer *trainer = NULL;
    if (SIMULATED) return 0;
    rill_status status[3] = {rill_comm_create(MPI_COMM_WORLD, NULL, &comm),
                             rill_dataset_load(MPI_COMM_WORLD, "nothing", NULL, &set),
                             rill_trainer_create(MPI_COMM_WORLD, NULL, NULL, NULL, &trainer)};
    for (int i = 0; i < 3; i++)
        if (status[i] != RILL_ERR_STATE || !strstr(rill_last_error(), word)) {
            fprintf(stderr, "%s call %d gives %d (%s)\n", when, i, (int)status[i],
                    rill_last_error());
            return 1;
        }
    return 0;
}

int main(int argc, char **argv) {
    int failed = refused("before MPI_Init", "initialised");
    check_init(&argc, &argv);
    intercommunicators();
    zeroed_configs(-1);
    zeroed_configs(check.size - 1);
    no_place_for_it();
    failed |= check_finish(3);
    return failed | refused("after MPI_Finalize", "finalised");
}
