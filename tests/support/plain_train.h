/* The calls of rill/train.h that take an MPI_Comm, for a library that was built without MPI: on a
 * communicator over UCX. */
#ifndef RILL_TESTS_PLAIN_TRAIN_H
#define RILL_TESTS_PLAIN_TRAIN_H

#include "rill/train.h"

#ifdef RILL_NO_MPI
#include "plain_mpi.h"

/* One of all ranks, for as long as the program runs. */
static inline rill_comm *plain_comm(void) {
    static rill_comm *comm;
    if (!comm && rill_comm_create_ucx(&plain_world.bootstrap, NULL, &comm) != RILL_OK)
        plain_fail("a communicator");
    return comm;
}

static inline rill_status rill_dataset_load(MPI_Comm comm, const char *path,
                                            const rill_data_options *options, rill_dataset **out) {
    (void)comm;
    return rill_dataset_load_on(plain_comm(), path, options, out);
}
static inline rill_status rill_dataset_create(MPI_Comm comm, const rill_data_view *view,
                                              rill_dataset **out) {
    (void)comm;
    return rill_dataset_create_on(plain_comm(), view, out);
}
static inline rill_status rill_model_evaluate(MPI_Comm comm, const rill_model *model,
                                              const rill_dataset *set, rill_metrics *metrics) {
    (void)comm;
    return rill_model_evaluate_on(plain_comm(), model, set, metrics);
}
static inline rill_status rill_trainer_create(MPI_Comm comm, const rill_dataset *train,
                                              const rill_dataset *valid,
                                              const rill_train_options *options,
                                              rill_trainer **out) {
    (void)comm;
    return rill_trainer_create_on(plain_comm(), train, valid, options, out);
}
static inline rill_status rill_trainer_choose_C(MPI_Comm comm, const rill_dataset *train,
                                                const rill_train_options *options,
                                                rill_C_choice *choice) {
    (void)comm;
    return rill_trainer_choose_C_on(plain_comm(), train, options, choice);
}
#endif

#endif
