/* The look-up of algorithms. */
#include "coll/coll.h"

#include <string.h>

const char *rill_collective_name(rill_collective collective) {
    static const char *const names[RILL__TABLES] = {"allreduce", "reduce", "reduce_scatter",
                                                    "allgather", "bcast",  "reducer"};
    return (unsigned)collective < RILL__TABLES ? names[collective] : "unknown";
}

/* NULL ends it; an unknown collective has an empty one. */
static const rill__algorithm *const *table_of(rill_collective collective) {
    static const rill__algorithm *const none[] = {NULL};
    static const rill__algorithm *const *const tables[RILL__TABLES] = {
        rill__allreduce_table, rill__reduce_table, rill__reduce_scatter_table,
        rill__allgather_table, rill__bcast_table,  rill__topk_table};
    return (unsigned)collective < RILL__TABLES ? tables[collective] : none;
}

const rill__algorithm *rill__algorithm_at(rill_collective collective, int i) {
    const rill__algorithm *const *table = table_of(collective);
    if (i < 0) return NULL;
    while (i > 0 && *table)
        table++, i--;
    return *table;
}

const rill__algorithm *rill__algorithm_named(rill_collective collective, const char *name) {
    const rill__algorithm *const *table = table_of(collective);
    while (*table && strcmp((*table)->name, name) != 0)
        table++;
    return *table;
}

const rill__algorithm *rill__algorithm_of_mpi(rill_collective collective) {
    for (int i = 0;; i++) {
        const rill__algorithm *a = rill__algorithm_at(collective, i);
        if (!a || a->posts_mpi_collective) return a;
    }
}

const char *rill_algorithm_at(rill_collective collective, int i, const char **description) {
    const rill__algorithm *a = rill__algorithm_at(collective, i);
    if (description) *description = a ? a->description : NULL;
    return a ? a->name : NULL;
}
