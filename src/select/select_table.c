/* The methods of selection. A new one is a new file and a row here. */
#include "select/select.h"

#include <string.h>

static const rill__select_method *const methods[] = {
    &rill__select_topk,      &rill__select_bucket,   &rill__select_block,
    &rill__select_threshold, &rill__select_gaussian, &rill__select_random,
#ifdef RILL_TEST_SELECTIONS /* rows of a test, which compiles this file itself */
    RILL_TEST_SELECTIONS
#endif
};
enum { METHODS = sizeof methods / sizeof methods[0] };

const rill__select_method *rill__select_method_named(const char *name) {
    for (int i = 0; i < METHODS; i++)
        if (!strcmp(methods[i]->name, name)) return methods[i];
    return NULL;
}

const char *rill_selector_at(int i, const char **description) {
    if (i < 0 || i >= METHODS) return NULL;
    if (description) *description = methods[i]->description;
    return methods[i]->name;
}
