/* Small systems of equations, by Cholesky's factors.
 *
 * Idea: matrix = R'R with R an upper triangle; R'y = x is solved as R is made, Rx = y after it.
 * Restriction: a positive matrix, whose pivots keep 1e-13 of its diagonal at least.
 * Cost: n^3 / 6.
 */
#include "train/cholesky.h"

#include <math.h>

bool rill__cholesky_solve(uint64_t n, double *matrix, double *x) {
    for (uint64_t j = 0; j < n; j++) {
        double *row = matrix + j * n, least = 1e-13 * row[j];
        for (uint64_t k = 0; k < j; k++) {
            const double *above = matrix + k * n;
            double by = above[j];
            for (uint64_t i = j; by != 0 && i < n; i++)
                row[i] -= by * above[i];
        }
        if (!(row[j] > least)) return false;
        double root = sqrt(row[j]);
        for (uint64_t i = j; i < n; i++)
            row[i] /= root;
        x[j] /= root;
        for (uint64_t i = j + 1; i < n; i++)
            x[i] -= row[i] * x[j];
    }
    for (uint64_t j = n; j-- > 0;) {
        for (uint64_t k = j + 1; k < n; k++)
            x[j] -= matrix[j * n + k] * x[k];
        x[j] /= matrix[j * n + j];
    }
    return true;
}
