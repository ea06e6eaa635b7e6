/* What saving and loading a reducer share. All of it is collective but for errors and options. */
#ifndef RILL_REDUCE_REDUCER_FILE_H
#define RILL_REDUCE_REDUCER_FILE_H

#include "reduce/checkpoint.h"
#include "reduce/reducer.h"

/* The failure of the lowest rank that has one becomes everybody's. */
rill_status rill__file_agree(const rill_reducer *, rill_status);
/* Requests under way that may still post a collective of MPI's do so; then checks the arguments.
 * Lock held. */
rill_status rill__file_begin(const rill_reducer *, const char *call, const char *path);
rill_status rill__file_error(const char *call, const char *path, const char *what, int error);
size_t rill__file_at_once(const rill_reducer *); /* most bytes of one read or write */

/* The header of a file of this reducer, but for the checksum. */
rill__checkpoint_header rill__file_describe(const rill_reducer *);
/* Whether the file is one of a reducer with this one's options. */
rill_status rill__file_compare(const rill_reducer *, const rill__checkpoint_header *,
                               const char *path);

#endif
