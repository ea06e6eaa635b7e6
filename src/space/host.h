/* The host's operations: what space_host.c is made of. See operations.h for what they do. */
#ifndef RILL_SPACE_HOST_H
#define RILL_SPACE_HOST_H

#include "space/space.h"

/* ---- host_dense.c ---- */
void rill__host_add(rill_type, void *into, const void *from, uint64_t n);
void rill__host_decay_add(rill_type, void *into, double factor, const void *from, uint64_t n);
void rill__host_add_scaled(rill_type, void *into, double factor, const void *from, uint64_t n);
void rill__host_scale(rill_type, void *into, double factor, const void *from, uint64_t n);
void rill__host_divide(rill_type, void *into, const void *from, double divisor, uint64_t n);
double rill__host_norm(rill_type, const void *, uint64_t n);

/* ---- host_finite.c ---- */
bool rill__host_is_finite(const rill__select_kernels *, rill_type, const void *, uint64_t n);
uint64_t rill__host_drop_nonfinite(const rill__select_kernels *, rill_type, void *, uint64_t n);
bool rill__host_add_finite(const rill__select_kernels *, rill_type, void *into, const void *from,
                           uint64_t n);
void rill__host_subtract_finite(const rill__select_kernels *, rill_type, void *into,
                                const void *from, uint64_t n);
bool rill__host_decay_add_finite(const rill__select_kernels *, rill_type, void *into, double factor,
                                 const void *from, uint64_t n);
void rill__host_undecay(const rill__select_kernels *, rill_type, void *into, double factor,
                        const void *from, uint64_t n);
bool rill__host_divide_finite(const rill__select_kernels *, rill_type, void *into, const void *from,
                              double divisor, uint64_t n);

/* ---- host_pairs.c ---- */
uint64_t rill__host_write(rill__shape, void *into, uint64_t first, uint64_t n, rill__pairs);
void rill__host_write_blocks(const rill__operation *, rill__answer *);
void rill__host_add_pairs(const rill__operation *);
void rill__host_clear_pairs(const rill__operation *);
void rill__host_add_blocks(const rill__operation *);
void rill__host_shift(const rill__operation *);

#endif
