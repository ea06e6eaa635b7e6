/* The form in which pairs go over the wire. Sender (req/encode.c), receiver (req/message.c) and
 * estimates (coll/allreduce/allreduce.h) ask here, so that all three see the same.
 *
 * Numbers are doubles: estimates have expected ones, and those of messages are below 2^53. */
#ifndef RILL_CODEC_WIRE_H
#define RILL_CODEC_WIRE_H

#include "codec/codec.h"
#include "codec/value_codec.h"

/* Entries from which on coding the indices is worth its fixed cost. */
enum { RILL__WORTH_CODING = 256 };
static inline bool rill__worth_coding(double entries) { return entries >= RILL__WORTH_CODING; }

typedef enum rill__wire_form {
    RILL__WIRE_PAIRS, /* indices in some codec, and values */
    RILL__WIRE_BITS,  /* pairs whose indices are a bitmap, which sums read where it lies */
    RILL__WIRE_DENSE  /* all values of the range */
} rill__wire_form;

/* Whether a call can add bits and values. kernels: all of its ranks have those that do. */
static inline bool rill__wire_adds_bits(rill_type type, const rill_op *op, bool kernels) {
    return type == RILL_F32 && op == RILL_SUM && kernels;
}

/* How so many pairs of a range go where any form will do. limit: rill__dense_switch of the range;
 * bits: they can be added, and values go as they are. Bits and values are half of the dense form's
 * bytes, at half of the density; where the range is nearly full they save too little. */
static inline rill__wire_form rill__wire_form_of(double pairs, double range, double limit,
                                                 bool bits) {
    if (!(pairs > limit)) return RILL__WIRE_PAIRS;
    return bits && pairs < 0.875 * range ? RILL__WIRE_BITS : RILL__WIRE_DENSE;
}

#endif
