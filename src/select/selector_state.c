#include "select/selector_state.h"
#include "select/select.h"

#include <math.h>

rill__selector_state rill__selector_save(const rill_selector *s) {
    return (rill__selector_state){.calls = s->calls,
                                  .exact_at = s->exact_at,
                                  .expected = s->expected,
                                  .margin = s->margin,
                                  .level = s->level};
}

bool rill__selector_state_valid(const rill__selector_state *state, uint64_t dim) {
    return state->expected <= dim && state->margin >= 0 && isfinite(state->margin) &&
           state->level >= 0;
}

void rill__selector_restore(rill_selector *s, const rill__selector_state *state) {
    s->calls = state->calls;
    s->exact_at = state->exact_at;
    s->expected = state->expected;
    s->margin = state->margin;
    s->level = state->level;
}
