#include "core/core.h"
#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>

/* Thread-local, because two threads may fail in two communicators at once. */
static _Thread_local rill__error own;
static _Thread_local rill__error *other; /* NULL: the thread's own */

static rill__error *current(void) { return other ? other : &own; }

rill__error *rill__error_use(rill__error *error) {
    rill__error *before = other;
    other = error;
    return before;
}

const char *rill_last_error(void) { return current()->last; }

rill_status rill__fail(rill_status status, const char *format, ...) {
    rill__error *error = current();
    if (error->reason[0]) {
        rill__set_error(error->reason);
        error->reason[0] = '\0';
        return status;
    }
    va_list args;
    va_start(args, format);
    rill__vprint(error->last, sizeof error->last, format, args);
    va_end(args);
    return status;
}

void rill__set_error(const char *text) {
    char *last = current()->last;
    if (text != last) snprintf(last, sizeof own.last, "%s", text);
}

bool rill__has_reason(void) { return current()->reason[0] != '\0'; }

rill_status rill_error_set(rill_status status, const char *detail) {
    if (!detail) detail = "";
    if (status == RILL_OK) snprintf(current()->reason, sizeof own.reason, "%s", detail);
    if (status != RILL_OK || !*detail) rill__set_error(detail);
    return status;
}

const char *rill_strerror(rill_status status) {
    switch (status) {
    case RILL_OK: return "success";
    case RILL_IN_PROGRESS: return "in progress";
    case RILL_ERR_ARGUMENT: return "invalid argument";
    case RILL_ERR_RANGE: return "index out of range";
    case RILL_ERR_UNKNOWN: return "unknown name";
    case RILL_ERR_UNSUPPORTED: return "not supported for this call";
    case RILL_ERR_MISMATCH: return "arguments differ between ranks";
    case RILL_ERR_MESSAGE: return "malformed message";
    case RILL_ERR_OVERLAP: return "supports overlap";
    case RILL_ERR_MEMORY: return "out of memory";
    case RILL_ERR_MPI: return "MPI error";
    case RILL_ERR_STATE: return "wrong state for this call";
    case RILL_ERR_IO: return "input/output error";
    case RILL_ERR_PEER: return "a rank is gone";
    }
    return "unknown status";
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
const char *rill_version(void) {
    return TEXT(RILL_VERSION_MAJOR) "." TEXT(RILL_VERSION_MINOR) "." TEXT(RILL_VERSION_PATCH);
}
