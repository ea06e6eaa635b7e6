/* MPI calls its operations as inout = in op inout. */
#include "coll/patterns/mpi_ops.h"
#include "req/request.h"

#define COMBINE(name, type, op)                                                                    \
    static void name(void *in, void *inout, int *n, MPI_Datatype *datatype) {                      \
        (void)datatype;                                                                            \
        combine(type, op, in, inout, (uint64_t)*n);                                                \
    }

/* MPI's buffers have no slack: whole registers first, then the rest through a padded copy. */
static void combine(rill_type type, const rill_op *op, const void *in, void *inout, uint64_t n) {
    const rill__kernels *k = rill__host()->stream;
    size_t size = rill_type_size(type);
    uint64_t whole = n & ~(uint64_t)63, tail = n - whole;
    k->combine(type, op, inout, in, inout, whole);
    char lower[64 * 8 + RILL__SLACK] = {0}, upper[64 * 8 + RILL__SLACK] = {0};
    __builtin_memcpy(lower, (const char *)in + whole * size, tail * size);
    __builtin_memcpy(upper, (char *)inout + whole * size, tail * size);
    k->combine(type, op, upper, lower, upper, tail);
    __builtin_memcpy((char *)inout + whole * size, upper, tail * size);
}

COMBINE(f16_sum, RILL_F16, RILL_SUM)
COMBINE(f16_min, RILL_F16, RILL_MIN)
COMBINE(f16_max, RILL_F16, RILL_MAX)
COMBINE(f16_prod, RILL_F16, RILL_PROD)
COMBINE(bf16_sum, RILL_BF16, RILL_SUM)
COMBINE(bf16_min, RILL_BF16, RILL_MIN)
COMBINE(bf16_max, RILL_BF16, RILL_MAX)
COMBINE(bf16_prod, RILL_BF16, RILL_PROD)

/* MPI_MIN and MPI_MAX may lose a NaN. */
static void real_min(void *in, void *inout, int *n, MPI_Datatype *datatype) {
    combine(*datatype == MPI_FLOAT ? RILL_F32 : RILL_F64, RILL_MIN, in, inout, (uint64_t)*n);
}
static void real_max(void *in, void *inout, int *n, MPI_Datatype *datatype) {
    combine(*datatype == MPI_FLOAT ? RILL_F32 : RILL_F64, RILL_MAX, in, inout, (uint64_t)*n);
}

enum { OPS = 10 };

static void list_ops(rill__mpi_ops *mpi, MPI_Op *ops[OPS]) {
    ops[0] = &mpi->min;
    ops[1] = &mpi->max;
    for (int i = 0; i < 8; i++)
        ops[2 + i] = &mpi->half[i / 4][i % 4];
}

rill_status rill__mpi_ops_create(rill__mpi_ops *mpi) {
    static MPI_User_function *const functions[OPS] = {real_min, real_max, f16_sum,  f16_min,
                                                      f16_max,  f16_prod, bf16_sum, bf16_min,
                                                      bf16_max, bf16_prod};
    MPI_Op *ops[OPS];
    list_ops(mpi, ops);
    for (int i = 0; i < OPS; i++)
        *ops[i] = MPI_OP_NULL;
    mpi->created = true;
    for (int i = 0; i < OPS; i++) {
        int code = MPI_Op_create(functions[i], 1, ops[i]);
        if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Op_create");
    }
    return RILL_OK;
}

void rill__mpi_ops_free(rill__mpi_ops *mpi) {
    MPI_Op *ops[OPS];
    list_ops(mpi, ops);
    for (int i = 0; mpi->created && i < OPS; i++)
        if (*ops[i] != MPI_OP_NULL) MPI_Op_free(ops[i]);
}

bool rill__mpi_op(const rill__mpi_ops *mpi, rill_type type, const rill_op *op, MPI_Datatype *to,
                  MPI_Op *mpi_op) {
    rill__op_kind kind = op->kind;
    if (kind == RILL__USER) return false;
    switch (type) {
    case RILL_F32:
    case RILL_F64:
        *to = type == RILL_F32 ? MPI_FLOAT : MPI_DOUBLE;
        *mpi_op = kind == RILL__SUM    ? MPI_SUM
                  : kind == RILL__PROD ? MPI_PROD
                  : kind == RILL__MIN  ? mpi->min
                                       : mpi->max;
        return true;
    default:
        *to = MPI_UINT16_T;
        *mpi_op = mpi->half[type == RILL_F16 ? 0 : 1][kind];
        return true;
    }
}
