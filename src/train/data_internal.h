/* What the files of the data layer share. It stands on rill.h, train.h, and numbers and outputs of
 * core/.
 *
 *   number    text to float and back            data_number.h, data_number.c
 *   rows      growable CSR, sort and merge      data_rows.c
 *   parser    lines to rows                     data_svmlight.c
 *   file      bytes at an offset: MPI-IO, POSIX data_file.c
 *   inflater  gz, xz, zstd                      data_inflate.c
 *   reader    the lines of one rank             data_reader.c
 *   binary    the mapped form                   data_binary*.c
 */
#ifndef RILL_TRAIN_DATA_INTERNAL_H
#define RILL_TRAIN_DATA_INTERNAL_H

#include "rill/train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Sets the detail, printf style, and returns the status. */
rill_status rill__data_fail(rill_status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
rill_status rill__data_memory(const char *what); /* there is none left for it */

/* Vectors by feature, which rows touch at random: on huge pages where they are large. free() them;
 * NULL: no memory. */
void *rill__vector(uint64_t n, size_t size);
void *rill__vector_zeros(uint64_t n, size_t size);
/* All ranks: RILL_ERR_MEMORY where a host has too little for its ranks' models, of so many bytes a
 * weight. */
rill_status rill__room_for(rill_comm *, uint64_t weights, uint64_t bytes);

#define RILL_TRY_DATA(expression)                                                                  \
    do {                                                                                           \
        rill_status rill__try_status = (expression);                                               \
        if (rill__try_status != RILL_OK) return rill__try_status;                                  \
    } while (0)

/* Index limit of text and binary: dimensions up to 2^63. */
#define RILL__INDEX_LIMIT (UINT64_C(1) << 63)
#define RILL__NARROW_DIM (UINT64_C(1) << 32) /* up to this dimension indices have 32 bits */

/* ---- rows ----------------------------------------------------------------------------------- */

/* Growable rows in CSR form; arrays have RILL_SLACK bytes past what is in use. */
typedef struct rill__rows {
    uint64_t rows, entries;
    uint64_t row_room, entry_room;
    uint64_t *start; /* rows + 1, once there is room for a row */
    void *index;     /* uint32_t, or uint64_t when wide */
    float *value;
    double *label;
    int64_t *qid; /* of each row; NULL: none has one */
    bool wide;
    bool mapped;   /* all arrays lie in files: none grows, and narrow ones stay */
    bool borrowed; /* value lies in memory that is not ours, such as a mapped file */
    uint64_t *key; /* scratch of sorting: 2 * scratch_room keys, then as many floats */
    size_t scratch_room;
} rill__rows;

rill_status rill__rows_reserve(rill__rows *, uint64_t more_rows, uint64_t more_entries);
rill_status rill__rows_widen(rill__rows *);
void rill__rows_narrow(rill__rows *); /* all indices must fit */
void rill__rows_trim(rill__rows *);   /* gives back what is not in use */
void rill__rows_free(rill__rows *);
uint64_t rill__rows_bytes(const rill__rows *);
/* The query of the row that comes next. */
rill_status rill__rows_set_qid(rill__rows *, int64_t qid);
/* Keeps the rows from first on, as rows from 0. */
void rill__rows_drop(rill__rows *, uint64_t first);

static inline uint64_t rill__rows_index(const rill__rows *r, uint64_t entry) {
    return r->wide ? ((const uint64_t *)r->index)[entry] : ((const uint32_t *)r->index)[entry];
}
static inline void rill__rows_set_index(rill__rows *r, uint64_t entry, uint64_t index) {
    if (r->wide) ((uint64_t *)r->index)[entry] = index;
    else ((uint32_t *)r->index)[entry] = (uint32_t)index;
}

/* Room in key for n pairs. */
rill_status rill__rows_scratch(rill__rows *, size_t n);
/* Sorts n entries from the scratch's keys and values (see rill__rows_scratch_value), stable, adds
 * the values of equal keys in order, and writes them at entry `at`; returns how many are left. */
uint64_t rill__rows_merge(rill__rows *, size_t n, uint64_t at);
static inline float *rill__rows_scratch_value(const rill__rows *r) {
    return (float *)(r->key + 2 * r->scratch_room);
}

/* ---- parser --------------------------------------------------------------------------------- */

typedef struct rill__parser {
    rill__rows rows;
    int base; /* forced 0 or 1; -1 */
    uint64_t lines, blank_lines, qids, unsorted_rows, duplicates;
    uint64_t largest;  /* index as written; meaningful if rows.entries */
    bool saw_zero;     /* index 0 */
    bool failed;       /* then lines is the number of the bad line, from 1 */
    char message[256]; /* what is wrong with it */
    void *locale;      /* "C", for what strtof must do */
} rill__parser;

rill_status rill__parser_init(rill__parser *, int base);
void rill__parser_free(rill__parser *);
/* Whole lines: text ends with a newline at end[-1], and 16 bytes after end can be read. */
rill_status rill__parse_lines(rill__parser *, const char *text, const char *end);

/* ---- file ----------------------------------------------------------------------------------- */

typedef struct rill__file {
    const char *path;
    uint64_t size;
    bool is_mpi;
    uint64_t mpi; /* an MPI_File: where there is MPI it needs no memory of its own */
    int fd;
} rill__file;

/* With MPI-IO, collective, where the ranks have MPI; else by this process alone. */
rill_status rill__file_open(const void *mpi, const char *path, rill__file *);
/* Whether it can be data: not a folder or a pipe, with what to do instead. */
rill_status rill__file_check(const char *path);
rill_status rill__file_open_alone(const char *path, rill__file *);
void rill__file_close(rill__file *);
/* Exactly n bytes. */
rill_status rill__file_read(const rill__file *, uint64_t offset, void *into, size_t n);

typedef enum rill__format {
    RILL__TEXT = 0,
    RILL__GZ = 1,
    RILL__XZ = 2,
    RILL__ZSTD = 3,
    RILL__BINARY = 4
} rill__format;
rill_status rill__file_format(const rill__file *, rill__format *);
const char *rill__format_name(rill__format);

/* ---- inflater ------------------------------------------------------------------------------- */

typedef struct rill__inflater rill__inflater;
rill_status rill__inflater_create(rill__format, rill__inflater **);
void rill__inflater_free(rill__inflater *);
/* Takes from *in and gives to *out, moving both; stops when the input is used up and nothing is
 * pending, or when the output is full. last: no input comes after this. *ended: the compressed
 * data are complete at this point. */
rill_status rill__inflate(rill__inflater *, const uint8_t **in, size_t *in_bytes, uint8_t **out,
                          size_t *out_bytes, bool last, bool *ended);

/* ---- reader --------------------------------------------------------------------------------- */

/* Called after each buffer; may take rows out of the parser. */
typedef rill_status rill__reader_fn(void *context, rill__parser *, uint64_t file_offset);

typedef struct rill__reader {
    const rill__file *file;
    rill__format format;
    int part, parts;
    bool ranged; /* instead: the bytes [begin, end) of the file, with part 0 */
    uint64_t begin, end;
    size_t buffer_bytes;
    rill__reader_fn *after; /* or NULL */
    void *context;
    /* results */
    uint64_t first, last; /* text offsets of the range; last UINT64_MAX: to the end */
    uint64_t peak_bytes;  /* of buffers */
} rill__reader;

/* Parses the lines that start in the part. */
rill_status rill__reader_run(rill__reader *, rill__parser *);

/* ---- binary --------------------------------------------------------------------------------- */

#define RILL__BINARY_MAGIC "RILLDATA"
enum { RILL__BINARY_VERSION = 2, RILL__BINARY_PLAIN = 1 }; /* plain: no chunk has queries */
enum { RILL__CHUNK_ROWS = 4096, RILL__CHUNK_ENTRIES = 1 << 18 };

/* Little-endian, as in memory. */
typedef struct rill__binary_header {
    char magic[8];
    uint32_t version, base;
    uint64_t rows, entries, dim, chunks;
    uint64_t values_offset, chunks_offset, directory_offset, file_bytes;
    uint64_t directory_hash;
    uint64_t reserved[4];
    uint64_t hash; /* of what precedes */
} rill__binary_header;

typedef struct rill__chunk_entry {
    uint32_t rows;
    uint8_t codec, index_bytes;
    uint16_t queries; /* 1: a query of each row lies behind the row lengths */
    uint64_t entries;
    uint64_t stride; /* key of an entry: row * stride + index */
    uint64_t offset, size, index_size;
    uint64_t hash, values_hash;
} rill__chunk_entry;

typedef struct rill__binary {
    uint8_t *data;
    uint64_t bytes;
    const char *path; /* for messages */
    rill__binary_header header;
    const rill__chunk_entry *chunk; /* header.chunks */
    bool from_file; /* data is a file's map: pages that were read may go, and come again */
} rill__binary;

/* Checks header and directory. data must be readable to bytes, 8-byte aligned. */
rill_status rill__binary_open(rill__binary *, const char *path, void *data, uint64_t bytes);
/* The rows [first, first + count) as they are in the file's numbering, minus base: start, index
 * and label are filled, and value is borrowed from data. rows must be empty. */
rill_status rill__binary_rows(const rill__binary *, uint64_t first, uint64_t count,
                              rill__rows *rows);

typedef struct rill__chunk {
    rill__chunk_entry entry;
    uint8_t *payload; /* entry.size bytes */
    size_t room;
    void *key; /* scratch */
    size_t key_room;
    uint64_t largest; /* index */
} rill__chunk;
/* How many of the rows from first on make the next chunk; 0: more rows might still join (unless
 * final). Depends on the rows alone. */
uint64_t rill__chunk_cut(const rill__rows *, uint64_t first, bool final);
rill_status rill__chunk_encode(rill__chunk *, const rill__rows *, uint64_t first, uint64_t rows);
void rill__chunk_free(rill__chunk *);

typedef struct rill__output rill__output;
typedef struct rill__writer {
    rill__output *out, *chunks;
    rill__binary_header header;
    rill__chunk_entry *directory;
    uint64_t room;
} rill__writer;
rill_status rill__writer_open(rill__writer *, const char *path);
rill_status rill__writer_add(rill__writer *, const rill__chunk *, const float *values);
/* Writes the chunks that are complete, or all, and drops their rows. */
rill_status rill__writer_put(rill__writer *, rill__chunk *, rill__rows *, bool final);
/* Completes and renames, or with failed removes; *bytes (or NULL) gets the size. */
rill_status rill__writer_close(rill__writer *, int base, uint64_t least_dim, bool failed,
                               uint64_t *bytes);

/* ---- output --------------------------------------------------------------------------------- */

/* As core/outfile.h has them: complete or not there, devices are written into, "-" is standard
 * output. */
rill_status rill__output_open(const char *path, rill__output **);
/* A file without a name on the disk of another; it goes away when it is closed. */
rill_status rill__output_scratch(const rill__output *beside, rill__output **);
rill_status rill__output_write(rill__output *, const void *, size_t);
rill_status rill__output_rewrite(rill__output *, uint64_t offset, const void *, size_t);
rill_status rill__output_append(rill__output *, rill__output *from); /* all of from */
uint64_t rill__output_bytes(const rill__output *);
rill_status rill__output_close(rill__output *, bool keep);

/* Text of rows; indices grow by shift. */
typedef struct rill__text {
    char *data;
    size_t size, room;
} rill__text;
rill_status rill__text_rows(rill__text *, const rill__rows *, uint64_t first, uint64_t rows,
                            uint64_t shift);

/* ---- data set ------------------------------------------------------------------------------- */

/* A file without a name that an array grows in, and is mapped from then. */
typedef struct rill__spool {
    int fd;       /* 0: there is none */
    char *folder; /* for messages */
    uint64_t bytes;
    void *map;
    uint8_t *buffer; /* not written yet */
    size_t used;
} rill__spool;
enum {
    RILL__SPOOL_START,
    RILL__SPOOL_INDEX,
    RILL__SPOOL_VALUE,
    RILL__SPOOL_LABEL,
    RILL__SPOOL_QID
};
enum { RILL__SPOOLS = 5 };
rill_status rill__spool_open(rill__spool *, const char *folder);
rill_status rill__spool_put(rill__spool *, const void *, uint64_t bytes);
rill_status rill__spool_map(rill__spool *); /* nothing can be put after this */
void rill__spool_close(rill__spool *);
/* Where they are made, by the options or the first file; name is room for it. */
const char *rill__spool_folder(const rill_data_options *, const char *path, char *name,
                               size_t size);
/* A file of the bytes of a pipe; "-": standard input. */
rill_status rill__copy_pipe(const char *path, const rill_data_options *, rill__file *);
/* The rows from first on, so many, will be read soon. */
void rill__dataset_foresee(const rill_dataset *, uint64_t first, uint64_t rows);
/* As rill_dataset_shuffle, within windows of so many of the list; 0: in all. */
rill_status rill__dataset_shuffle(const rill_dataset *, uint64_t seed, uint64_t epoch,
                                  uint64_t window, uint64_t *list, uint64_t n);

struct rill_dataset {
    rill__rows rows;
    uint64_t dim, first_row, total_rows;
    void *map;
    size_t map_bytes;
    float *weight;                   /* of each row; NULL: 1 */
    rill__spool spool[RILL__SPOOLS]; /* where rows are mapped: data_stream.c */
    rill_data_report report;
};

/* As the public calls of these names, over mpi (a pointer to an MPI_Comm) where it is not NULL. */
rill_status rill__dataset_load(rill_comm *, const void *mpi, const char *path,
                               const rill_data_options *, rill_dataset **);

/* Copies the weights, which are checked. */
rill_status rill__dataset_weigh(rill_dataset *, const float *of_each_row);
/* Whether a row of this rank is in the fold, from 0, of so many; all folds have the same number of
 * rows, but for one. Rows of a query are in the same fold. */
bool rill__row_in_fold(const rill_data_view *, uint64_t row, int fold, int folds, uint64_t seed);
/* Whether it is held out: as rill_row_is_held_out, but rows of a query stay together. */
bool rill__row_held_out(const rill_data_view *, uint64_t row, double fraction, uint64_t seed);

/* ---- what ranks tell each other: data_talk.c ------------------------------------------------ */

/* All ranks get the failure of the lowest rank that failed by itself: its status and detail. */
rill_status rill__data_agree(rill_comm *, rill_status mine);
/* Over all ranks, in place; sums in the order of the ranks, whatever the link. No memory is asked
 * for. */
rill_status rill__sum_u64(rill_comm *, uint64_t *values, int n);
rill_status rill__most_u64(rill_comm *, uint64_t *values, int n);
rill_status rill__sum_f64(rill_comm *, double *values, int n);
rill_status rill__most_f64(rill_comm *, double *values, int n);
rill_status rill__sum_before(rill_comm *, uint64_t mine, uint64_t *sum); /* of lower ranks */
/* bytes[r] of each rank r, one after the other in all; NULL: this rank does not want them. */
rill_status rill__gather_all(rill_comm *, const void *mine, const uint64_t *bytes, void *all);

double rill__now(void); /* seconds; in a simulation those that count */

/* ---- MPI's own: train_mpi.c, or mpi_none.c -------------------------------------------------- */

/* Whether ranks are simulated: they are threads of one process, and time is pretended. */
bool rill__mpi_simulated(void);
double rill__mpi_seconds(void); /* by MPI's clock */
rill_status rill__mpi_file_open(const void *mpi, const char *path, rill__file *);
rill_status rill__mpi_file_read(const rill__file *, uint64_t offset, void *into, size_t n);
void rill__mpi_file_close(rill__file *);
/* A communicator of our own, which reports errors. Collective. */
rill_status rill__mpi_dup(const void *mpi, void **out);
/* NULL is fine. */
void rill__mpi_free(void **mpi);
rill_status rill__mpi_comm(const void *mpi, const rill_config *, rill_comm **);
/* Whether it was started for several threads. */
bool rill__mpi_threads(void);
rill_status rill__mpi_sum(const void *mpi, const float *mine, float *all, uint64_t n);
/* counts and offsets of all ranks. */
rill_status rill__mpi_gather(const void *mpi, float *values, const int *counts, const int *offsets);

/* Sum of the squares of a row. */
static inline double rill__row_square(const rill_data_view *d, uint64_t row) {
    double square = 0;
    for (uint64_t e = d->row[row]; e < d->row[row + 1]; e++)
        square += (double)d->value[e] * d->value[e];
    return square;
}

#endif
