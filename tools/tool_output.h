/* Outputs of the tool: complete or not there (core/outfile.h, which the tool is built with as
 * well), and files of records that grow line by line. Every failure is reported with the file's
 * name.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef RILL_TOOL_OUTPUT_H
#define RILL_TOOL_OUTPUT_H

#include "../src/core/outfile.h"

#include <jansson.h>

/* A file of JSON lines that an option names. What was there stays until the first of them is
 * written. */
typedef struct tool_records {
    const char *command, *option, *path; /* path NULL: not wanted */
    rill__outfile file;
    bool failed;
} tool_records;

/* append: lines that are there stay. False: reported as wrong usage. */
bool tool_records_open(tool_records *, bool append);
static inline bool tool_records_wanted(const tool_records *r) { return r->file.stream != NULL; }
/* Takes the record. digits of numbers, 0: all of them. A failure is reported once. */
bool tool_records_put(tool_records *, json_t *record, int digits);
/* keep: also if there were none. */
bool tool_records_close(tool_records *, bool keep);

#endif
