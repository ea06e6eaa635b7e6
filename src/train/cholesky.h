/* Small systems of equations. cholesky.c. */
#ifndef RILL_TRAIN_CHOLESKY_H
#define RILL_TRAIN_CHOLESKY_H

#include <stdbool.h>
#include <stdint.h>

/* x = matrix^-1 x. Of the matrix, n x n and symmetric, the upper half is read, and overwritten.
 * false: it is not positive, or next to that; x is lost then, too. */
bool rill__cholesky_solve(uint64_t n, double *matrix, double *x);

#endif
