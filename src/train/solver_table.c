/* The solvers that there are. */
#include "train/solver.h"

#include <string.h>

static const rill__solver *const solvers[] = {&rill__solver_sgd, &rill__solver_scd,
                                              &rill__solver_newton, &rill__solver_hybrid,
                                              &rill__solver_ftrl};
enum { SOLVERS = sizeof solvers / sizeof *solvers };

const rill__solver *rill__solver_find(const char *name) {
    for (int i = 0; i < SOLVERS; i++)
        if (!strcmp(solvers[i]->name, name)) return solvers[i];
    return NULL;
}

const char *rill_solver_at(int i, const char **description) {
    if (i < 0 || i >= SOLVERS) return NULL;
    if (description) *description = solvers[i]->description;
    return solvers[i]->name;
}
