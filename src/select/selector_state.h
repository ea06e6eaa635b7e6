/* What a selector carries from call to call, for files. */
#ifndef RILL_SELECT_SELECTOR_STATE_H
#define RILL_SELECT_SELECTOR_STATE_H

#include "core/core.h"

typedef struct rill__selector_state {
    uint64_t calls, exact_at, expected;
    double margin, level;
} rill__selector_state;

rill__selector_state rill__selector_save(const rill_selector *);
/* Whether a selector of that dimension can have such a state. */
bool rill__selector_state_valid(const rill__selector_state *, uint64_t dim);
void rill__selector_restore(rill_selector *, const rill__selector_state *);

#endif
