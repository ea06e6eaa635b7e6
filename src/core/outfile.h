/* An output that takes its place when it is complete.
 *
 * What is a regular file, or nothing yet, is written as NAME.partial beside it, reaches the disk,
 * and is renamed: whatever goes wrong before that, what was there stays. Permissions of a file that
 * is replaced stay, a link is followed, and two that write the same name at once do not mix. What
 * is no regular file, such as a device or a FIFO, is written into, as is a file in a folder that
 * takes no new ones. "-" is standard output.
 *
 * It needs POSIX and nothing of the library: the tool is built with this file as well. Calls give 0
 * or an errno. */
#ifndef RILL_CORE_OUTFILE_H
#define RILL_CORE_OUTFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct rill__outfile {
    FILE *stream;  /* to write to; NULL: not open */
    char *target;  /* the name that it takes, links followed */
    char *partial; /* the name under which it is written; NULL: it lies in its place */
    bool standard;
    int error; /* the first one */
} rill__outfile;

int rill__outfile_open(const char *path, rill__outfile *);
/* The same, but a file that is there is written on. */
int rill__outfile_append(const char *path, rill__outfile *);
/* A file without a name on the same disk, to write and read; it goes away with its stream. */
FILE *rill__outfile_scratch(const rill__outfile *beside);

int rill__outfile_write(rill__outfile *, const void *, size_t);
/* For what is read while it grows: a whole line or nothing of it, at once; the file takes its place
 * with the first. */
int rill__outfile_line(rill__outfile *, const char *line);
/* keep: all of it is there. Otherwise nothing of it stays but lines in their place. One that is not
 * open is nothing to close. */
int rill__outfile_close(rill__outfile *, bool keep);

#endif
