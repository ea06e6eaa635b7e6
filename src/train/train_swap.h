/* Sums of values that only some of the ranks have. train_swap.c. */
#ifndef RILL_TRAIN_TRAIN_SWAP_H
#define RILL_TRAIN_TRAIN_SWAP_H

#include "train/train_team.h"

typedef struct rill__swap rill__swap;

/* Who has what, feature by feature in ascending order: 64 at a time, of all ranks, which do the
 * same. word[r * stride]: the bits of features at, at + 1, ... that rank r has. owner: of each of
 * the 64 that some rank has. */
rill_status rill__swap_open(const rill__team *, rill__swap **);
rill_status rill__swap_add(rill__swap *, uint64_t at, const uint64_t *word, uint64_t stride,
                           int owner[64]);
/* Values to send, of all ranks and in one direction: the others that have a feature, over all
 * features. */
uint64_t rill__swap_total(const rill__swap *);
/* All have been added: features of this rank that others have, too, in the order of places. Of
 * these it sums [*first, *last). */
uint64_t rill__swap_features(const rill__swap *, uint64_t *first, uint64_t *last);
/* Whether their places can be numbered, with so many values of a feature; the same on all ranks. */
bool rill__swap_fits(const rill__swap *, uint64_t columns);
/* Gives them their places in list, and makes ready for sums of so many values each. */
rill_status rill__swap_ready(rill__swap *, uint64_t columns, uint32_t *list);
void rill__swap_close(rill__swap **);
uint64_t rill__swap_bytes(const rill__swap *);

/* All ranks: values of these features, by place, become their sums over the ranks. */
rill_status rill__swap_sum(rill__swap *, rill__team *, const char *codec, float *values);

#endif
