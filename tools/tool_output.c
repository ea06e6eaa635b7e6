/* SPDX-License-Identifier: BSD-3-Clause */
#include "tool_output.h"
#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool tool_records_open(tool_records *r, bool append) {
    if (!r->path) return true;
    int error = append ? rill__outfile_append(r->path, &r->file)
                       : rill__outfile_open(r->path, &r->file);
    if (!error) return true;
    tool_usage(r->command, "--%s: cannot write '%s': %s", r->option, r->path, strerror(error));
    r->failed = true;
    return false;
}

static bool check(tool_records *r, int error) {
    if (error && !r->failed)
        tool_error("%s: --%s: cannot write '%s': %s", r->command, r->option, r->path,
                   strerror(error));
    r->failed |= error != 0;
    return !r->failed;
}

bool tool_records_put(tool_records *r, json_t *record, int digits) {
    if (!tool_records_wanted(r)) {
        json_decref(record);
        return true;
    }
    size_t form = JSON_COMPACT | JSON_REAL_PRECISION((size_t)digits);
    char *text = record ? json_dumps(record, form) : NULL;
    json_decref(record);
    int error = text ? rill__outfile_line(&r->file, text) : ENOMEM;
    free(text);
    return check(r, error);
}

bool tool_records_close(tool_records *r, bool keep) {
    if (!tool_records_wanted(r)) return true;
    return check(r, rill__outfile_close(&r->file, keep && !r->failed));
}
