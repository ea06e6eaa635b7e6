/* Value types and reduction operations: the four built-in ones, and those that users create. */
#include "stream/stream.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL_TYPES                                                                                  \
    (RILL_TYPE_BIT(RILL_F32) | RILL_TYPE_BIT(RILL_F64) | RILL_TYPE_BIT(RILL_F16) |                 \
     RILL_TYPE_BIT(RILL_BF16))

const rill_op rill_op_sum = {"sum", RILL__SUM, ALL_TYPES, 0.0, NULL, NULL};
const rill_op rill_op_min = {"min", RILL__MIN, ALL_TYPES, (double)INFINITY, NULL, NULL};
const rill_op rill_op_max = {"max", RILL__MAX, ALL_TYPES, -(double)INFINITY, NULL, NULL};
const rill_op rill_op_prod = {"prod", RILL__PROD, ALL_TYPES, 1.0, NULL, NULL};

size_t rill_type_size(rill_type type) {
    switch (type) {
    case RILL_F32: return 4;
    case RILL_F64: return 8;
    case RILL_F16:
    case RILL_BF16: return 2;
    }
    return 0;
}

const char *rill_type_name(rill_type type) {
    switch (type) {
    case RILL_F32: return "f32";
    case RILL_F64: return "f64";
    case RILL_F16: return "f16";
    case RILL_BF16: return "bf16";
    }
    return "unknown";
}

rill_status rill_op_create(const char *name, rill_op_fn *fn, void *context, double neutral,
                           unsigned types, rill_op **out) {
    if (!out) return rill__fail(RILL_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    if (!name || !*name) return rill__fail(RILL_ERR_ARGUMENT, "the operation's name is empty");
    if (!fn) return rill__fail(RILL_ERR_ARGUMENT, "the function of operation \"%s\" is NULL", name);
    if (types & ~ALL_TYPES)
        return rill__fail(RILL_ERR_ARGUMENT, "types 0x%x of operation \"%s\" has unknown bits",
                          types, name);
    /* One block: the name lies behind the object. */
    size_t length = strlen(name) + 1;
    rill_op *op = rill__malloc(sizeof *op + length);
    if (!op) return rill__fail(RILL_ERR_MEMORY, "no memory for operation \"%s\"", name);
    char *copy = (char *)(op + 1);
    memcpy(copy, name, length);
    *op = (rill_op){copy, RILL__USER, types ? types : ALL_TYPES, neutral, fn, context};
    *out = op;
    return RILL_OK;
}

rill_status rill_op_free(rill_op **op) {
    if (!op || !*op) return RILL_OK;
    if ((*op)->kind != RILL__USER)
        return rill__fail(RILL_ERR_ARGUMENT, "the built-in operation \"%s\" can't be freed",
                          (*op)->name);
    free(*op);
    *op = NULL;
    return RILL_OK;
}

const char *rill_op_name(const rill_op *op) { return op ? op->name : "none"; }

void rill__neutral(const rill_op *op, rill_type type, void *value) {
    rill__value_store(type, value, op->neutral);
}
