/* Losses of one row, as functions of its decision value z and its side y (+1, -1) or target.
 *
 * A loss is a row of the table: nothing else knows which there are. Values are LIBLINEAR's: its
 * squared loss is that of L2-loss support vector regression with p = 0.
 */
#include "train/objective.h"

#include <math.h>
#include <string.h>

static double logistic_value(double z, double y) {
    double m = y * z; /* log(1 + exp(-m)) without overflow */
    return m >= 0 ? log1p(exp(-m)) : -m + log1p(exp(m));
}
static double logistic_slope(double z, double y) {
    double m = y * z, e = exp(-fabs(m));
    return -y * (m >= 0 ? e / (1 + e) : 1 / (1 + e));
}
static double logistic_curvature(double z, double y) {
    double e = exp(-fabs(y * z));
    return e / ((1 + e) * (1 + e));
}
static double logistic_all(double z, double y, double *slope, double *curvature) {
    double m = y * z, e = exp(-fabs(m));
    *slope = -y * (m >= 0 ? e / (1 + e) : 1 / (1 + e));
    *curvature = e / ((1 + e) * (1 + e));
    return m >= 0 ? log1p(e) : -m + log1p(e);
}

static double hinge_value(double z, double y) { return fmax(0, 1 - y * z); }
static double hinge_slope(double z, double y) { return y * z < 1 ? -y : 0; }
static double hinge_curvature(double z, double y) {
    (void)z, (void)y;
    return 0;
}

static double squared_hinge_value(double z, double y) {
    double gap = fmax(0, 1 - y * z);
    return gap * gap;
}
static double squared_hinge_slope(double z, double y) { return -2 * y * fmax(0, 1 - y * z); }
static double squared_hinge_curvature(double z, double y) { return y * z < 1 ? 2 : 0; }

static double squared_value(double z, double y) { return (z - y) * (z - y); }
static double squared_slope(double z, double y) { return 2 * (z - y); }
static double squared_curvature(double z, double y) {
    (void)z, (void)y;
    return 2;
}

/* As squared up to a distance of 1, then straight. */
static double huber_value(double z, double y) {
    double r = fabs(z - y);
    return r <= 1 ? r * r : 2 * r - 1;
}
static double huber_slope(double z, double y) { return 2 * fmax(-1, fmin(1, z - y)); }
/* Of the parabola that touches from above: the loss itself has none far out, and Newton's method no
 * step there. */
static double huber_curvature(double z, double y) { return 2 / fmax(1, fabs(z - y)); }

static const rill__loss losses[] = {
    {"logistic", "log(1 + exp(-y z)): logistic regression, with probabilities", logistic_value,
     logistic_slope, logistic_curvature, 0.25, false, "L2R_LR", "L1R_LR", logistic_all},
    {"hinge", "max(0, 1 - y z): support vector machine", hinge_value, hinge_slope, hinge_curvature,
     0, false, "L2R_L1LOSS_SVC_DUAL", "L2R_L1LOSS_SVC_DUAL", NULL},
    {"squared_hinge", "max(0, 1 - y z)^2: L2-loss support vector machine", squared_hinge_value,
     squared_hinge_slope, squared_hinge_curvature, 2, false, "L2R_L2LOSS_SVC", "L1R_L2LOSS_SVC",
     NULL},
    {"squared", "(z - y)^2: least squares", squared_value, squared_slope, squared_curvature, 2,
     true, "L2R_L2LOSS_SVC", "L2R_L2LOSS_SVC", NULL},
    {"huber", "(z - y)^2 up to a distance d, then 2 d |z - y| - d^2: regression with outliers",
     huber_value, huber_slope, huber_curvature, 2, true, "L2R_L2LOSS_SVC", "L2R_L2LOSS_SVC", NULL},
};
enum { LOSSES = sizeof losses / sizeof *losses };

const rill__loss *rill__loss_find(const char *name) {
    for (int i = 0; i < LOSSES; i++)
        if (!strcmp(losses[i].name, name)) return &losses[i];
    return NULL;
}

const char *rill_loss_at(int i, const char **description) {
    if (i < 0 || i >= LOSSES) return NULL;
    if (description) *description = losses[i].description;
    return losses[i].name;
}
