/* The file of a reducer (docs/reference/format.md, "Checkpoint of a reducer"): what is in it, and
 * how it is read without trusting a byte of it. Nothing here knows of MPI, so that it can be
 * fuzzed. */
#ifndef RILL_REDUCE_CHECKPOINT_H
#define RILL_REDUCE_CHECKPOINT_H

#include "core/core.h"
#include "select/selector_state.h"

enum { RILL__CHECKPOINT_VERSION = 1, RILL__CHECKPOINT_NAME = 32, RILL__CHECKPOINT_OPTIONS = 24 };
enum {
    RILL__CHECKPOINT_VOIDED = RILL__CHECKPOINT_OPTIONS - 1
}; /* no option: steps that were void */

/* Integers are little-endian; names end with a zero byte. */
typedef struct rill__checkpoint_header {
    char magic[8]; /* RILLRED1 */
    uint32_t version, ranks;
    uint64_t dim;
    uint32_t type;
    uint32_t choice; /* rill__choice: what the reducer sends */
    uint32_t collective;
    int32_t value_bits;
    uint64_t steps;
    uint64_t k;                            /* of the last step */
    uint64_t seed;                         /* of rounding and hashes */
    char algorithm[RILL__CHECKPOINT_NAME]; /* in use; empty: the planner chooses for each call */
    char method[RILL__CHECKPOINT_NAME];    /* of selection, in use */
    char asked_algorithm[RILL__CHECKPOINT_NAME], asked_select[RILL__CHECKPOINT_NAME];
    uint64_t options[RILL__CHECKPOINT_OPTIONS]; /* reducer_file.c; unused ones are 0 */
    uint64_t checksum; /* XXH64 of the header before it and of the table of ranks */
} rill__checkpoint_header;
_Static_assert(sizeof(rill__checkpoint_header) == 392, "the structure is the format");

typedef enum rill__checkpoint_part {
    RILL__KEPT_RESIDUAL, /* dim values, or nothing: zeros */
    RILL__KEPT_MOMENTUM, /* dim values, or nothing */
    RILL__KEPT_PENDING,  /* the same */
    RILL__KEPT_SELECTORS,
    RILL__KEPT_MEMORY, /* of the algorithm */
    RILL__KEPT_PARTS
} rill__checkpoint_part;

/* One of the table of ranks, which follows the header. The sections follow it in order of ranks,
 * and their parts each other, without gaps. */
typedef struct rill__checkpoint_section {
    uint64_t bytes[RILL__KEPT_PARTS];
    uint64_t checksum; /* XXH64 of the section */
} rill__checkpoint_section;
_Static_assert(sizeof(rill__checkpoint_section) == 48, "the structure is the format");

typedef struct rill__checkpoint {
    rill__checkpoint_header header;
    rill__checkpoint_section *sections; /* header.ranks of them; owned */
    uint64_t *offsets;                  /* of the sections, and the end of the file; owned */
} rill__checkpoint;

/* Where a file comes from. */
typedef struct rill__checkpoint_source {
    rill_status (*read)(void *context, uint64_t offset, void *to, size_t bytes);
    void *context;
    uint64_t size;
    const char *path; /* for errors */
    size_t at_once;   /* most bytes of one read */
} rill__checkpoint_source;

/* Reads and checks header and table; on failure there is nothing to free. */
rill_status rill__checkpoint_open(const rill__checkpoint_source *, rill__checkpoint *);
/* The same from sections that are known; sections are taken over, also on failure. */
rill_status rill__checkpoint_arrange(rill__checkpoint *, rill__checkpoint_section *sections);
void rill__checkpoint_close(rill__checkpoint *);
/* Reads a rank's section and checks its sum. Parts go to their buffers; those that are NULL are
 * only checked. */
rill_status rill__checkpoint_read(const rill__checkpoint_source *, const rill__checkpoint *,
                                  uint32_t rank, void *const to[RILL__KEPT_PARTS]);

uint64_t rill__checkpoint_table_sum(const rill__checkpoint *);
uint64_t rill__checkpoint_section_sum(const rill__checkpoint_section *,
                                      const void *const from[RILL__KEPT_PARTS]);

#endif
