/* The smallest user of an installed librill_train: each rank has two rows of opposite labels, and
 * one epoch must get the loss below that of weights of 0. */
#include <math.h>
#include <rill/train.h>
#include <stdio.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const uint64_t row[] = {0, 1, 2};
    const uint32_t index[] = {0, 1};
    const float value[] = {1, 1};
    const double label[] = {1, -1};
    rill_data_view view = RILL_DATA_VIEW_INIT;
    view.dim = view.rows = 2;
    view.row = row;
    view.index32 = index;
    view.value = value;
    view.label = label;
    rill_dataset *data = NULL;
    rill_trainer *trainer = NULL;
    double objective = 0, loss = 0;
    int failed = rill_dataset_create(MPI_COMM_WORLD, &view, &data) != RILL_OK ||
                 rill_trainer_create(MPI_COMM_WORLD, data, NULL, NULL, &trainer) != RILL_OK ||
                 rill_trainer_epoch(trainer, NULL) != RILL_OK ||
                 rill_trainer_objective(trainer, &objective, &loss) != RILL_OK ||
                 !(loss > 0 && loss < log(2));
    if (failed) printf("rill %s: loss %g: %s\n", rill_version(), loss, rill_last_error());
    rill_trainer_free(&trainer);
    rill_dataset_free(&data);
    MPI_Finalize();
    return failed;
}
