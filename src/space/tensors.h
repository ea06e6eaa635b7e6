/* Vectors in pieces: tensors that lie anywhere, and that one after the other are a vector. What a
 * space has for them, so that nobody need copy them together. */
#ifndef RILL_SPACE_TENSORS_H
#define RILL_SPACE_TENSORS_H

#include "space/operations.h"

typedef struct rill__space rill__space;

typedef struct rill__space_tensors {
    /* Whether a vector can be worked on as it lies there. Arrays that follow each other need not be
     * of one allocation; bytes 0: this one is. */
    bool (*is_one)(const rill__space *, const void *at, size_t bytes);
    /* into += the gradients. guards: a sum that is not finite leaves into as it was; then this
     * waits, and false says that there was one. */
    bool (*add)(const rill__space *, rill_type, void *into, const rill_tensor *, int n,
                bool guards);
    /* Undoes that, up to rounding, as RILL__DO_SUBTRACT_FINITE. */
    void (*subtract)(const rill__space *, rill_type, void *into, const rill_tensor *, int n);
    /* The updates: pairs of 4-byte indices, and zeros. */
    void (*write)(const rill__space *, rill_type, const rill_tensor *, int n, rill__pairs);
} rill__space_tensors;

#endif
