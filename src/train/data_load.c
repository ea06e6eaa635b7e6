/* Loading a data set: each rank its part, then agreement on everything that must be the same.
 *
 * Idea: ranks parse without talking. Then they gather status, lines and rows of all: the lowest
 * rank that failed gives the message, and its line number is its own plus the lines of the ranks
 * before it, which did not fail and so know theirs. Base and dimension are agreed last.
 * Memory: 16 bytes per rank besides the rows. Cost: a handful of small collectives.
 */
#include "train/data_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DETAIL = 512 };

/* What a rank tells of its part. */
typedef struct part_facts {
    uint64_t failed, lines, rows, first, last; /* first, last: range of the text */
} part_facts;

/* The bad line's number over all ranks goes before the message of the rank that found it; checks
 * that the parts meet; gives this data set its place among the rows. */
static rill_status join_parts(rill_comm *comm, const char *path, const rill__parser *parser,
                              rill_status status, part_facts mine, rill_dataset *set) {
    int rank = rill_comm_rank(comm), size = rill_comm_size(comm);
    part_facts *all = malloc((size_t)size * sizeof *all);
    RILL_TRY_DATA(rill__data_agree(comm, all ? RILL_OK
                                             : rill__data_fail(RILL_ERR_MEMORY,
                                                               "out of memory: %d parts", size)));
    mine.failed = status != RILL_OK;
    rill_status told = rill_comm_gather_bytes(comm, &mine, sizeof mine, all);
    if (told != RILL_OK) {
        free(all);
        return told;
    }
    uint64_t lines = 0, rows = 0;
    bool failed = false, apart = false;
    for (int i = 0; i < size; i++) {
        if (i == rank) {
            set->first_row = rows;
            if (parser && parser->failed)
                rill__data_fail(status, "%s:%llu: %s", path,
                                (unsigned long long)(lines + mine.lines), parser->message);
        }
        lines += all[i].lines;
        rows += all[i].rows;
        failed |= all[i].failed != 0;
        apart |= i > 0 && all[i].first != all[i - 1].last;
    }
    free(all);
    set->total_rows = rows;
    if (failed) return rill__data_agree(comm, status);
    if (apart)
        return rill__data_fail(RILL_ERR_IO,
                               "%s: ranks decompress it differently (other library versions?)",
                               path);
    if (!rows)
        return rill__data_fail(RILL_ERR_IO, "%s: has no rows: %llu lines are empty or comments",
                               path, (unsigned long long)lines);
    return RILL_OK;
}

/* Indices from 0, of the width that the dimension asks for. */
static rill_status settle_indices(rill__rows *rows, uint64_t shift, uint64_t dim) {
    if (rows->wide && shift) {
        uint64_t *index = rows->index;
        for (uint64_t i = 0; i < rows->entries; i++)
            index[i] -= shift;
    } else if (shift) {
        uint32_t *index = rows->index;
        for (uint64_t i = 0; i < rows->entries; i++)
            index[i] -= (uint32_t)shift;
    }
    if (dim > RILL__NARROW_DIM) return rill__rows_widen(rows);
    rill__rows_narrow(rows);
    return RILL_OK;
}

static rill_status sum_report(rill_comm *comm, const rill__parser *parser, rill_dataset *set) {
    uint64_t sums[6] = {set->rows.entries};
    for (uint64_t i = 0; set->rows.qid && i < set->rows.rows; i++)
        sums[3] += set->rows.qid[i] != RILL_NO_QID;
    if (parser) {
        sums[1] = parser->lines;
        sums[2] = parser->blank_lines;
        sums[4] = parser->unsorted_rows;
        sums[5] = parser->duplicates;
    }
    RILL_TRY_DATA(rill__sum_u64(comm, sums, 6));
    rill_data_report *report = &set->report;
    report->rows = set->total_rows;
    report->entries = sums[0];
    report->lines = sums[1];
    report->blank_lines = sums[2];
    report->qids = sums[3];
    report->unsorted_rows = sums[4];
    report->duplicates = sums[5];
    return RILL_OK;
}

static rill_status load_text(rill_comm *comm, const rill__file *file, rill__format format,
                             const rill_data_options *options, rill_dataset *set) {
    rill__reader reader = {.file = file, .format = format, .buffer_bytes = options->read_bytes};
    rill__parser parser;
    reader.part = rill_comm_rank(comm);
    reader.parts = rill_comm_size(comm);
    rill_status status = rill__parser_init(&parser, options->base);
    if (status == RILL_OK) status = rill__reader_run(&reader, &parser);
    part_facts facts = {0, parser.lines, parser.rows.rows, reader.first, reader.last};
    status = join_parts(comm, file->path, &parser, status, facts, set);
    /* Largest index written, whether there is an entry at all, whether one is 0. */
    uint64_t most[3] = {parser.largest, parser.rows.entries > 0, parser.saw_zero};
    if (status == RILL_OK) status = rill__most_u64(comm, most, 3);
    if (status == RILL_OK) {
        int base = options->base >= 0 ? options->base : most[2] ? 0 : 1;
        set->report.base = base;
        set->dim = most[1] ? most[0] - (uint64_t)base + 1 : 0;
        if (set->dim < options->dim) set->dim = options->dim;
        if (!set->dim) set->dim = 1; /* labels alone */
        set->report.peak_bytes = reader.peak_bytes + rill__rows_bytes(&parser.rows);
        status = rill__rows_reserve(&parser.rows, 0, 0);
        if (status == RILL_OK) status = settle_indices(&parser.rows, (uint64_t)base, set->dim);
        status = rill__data_agree(comm, status);
    }
    if (status == RILL_OK) {
        rill__rows_trim(&parser.rows);
        set->rows = parser.rows;
        parser.rows = (rill__rows){0};
        status = sum_report(comm, &parser, set);
    }
    rill__parser_free(&parser);
    return status;
}

/* Local: maps the file and takes the rows of this rank. */
static rill_status map_binary(const rill__file *file, int rank, int size,
                              const rill_data_options *options, rill_dataset *set) {
    rill__binary binary;
    /* Private, so that values can be scaled in place: only pages that are written become memory. */
    set->map_bytes = (size_t)file->size;
    set->map = mmap(NULL, set->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file->fd, 0);
    if (set->map == MAP_FAILED) {
        set->map = NULL;
        return rill__data_fail(RILL_ERR_IO, "%s: cannot be mapped: %s", file->path,
                               strerror(errno));
    }
    RILL_TRY_DATA(rill__binary_open(&binary, file->path, set->map, file->size));
    binary.from_file = true;
    uint64_t rows = binary.header.rows, ranks = (uint64_t)size, r = (uint64_t)rank;
    uint64_t first = rows / ranks * r + rows % ranks * r / ranks;
    uint64_t end = rows / ranks * (r + 1) + rows % ranks * (r + 1) / ranks;
    set->dim = binary.header.dim < options->dim ? options->dim : binary.header.dim;
    set->report.base = (int)binary.header.base;
    RILL_TRY_DATA(rill__binary_rows(&binary, first, end - first, &set->rows));
    RILL_TRY_DATA(settle_indices(&set->rows, 0, set->dim));
    set->first_row = first;
    set->total_rows = rows;
    set->report.peak_bytes = rill__rows_bytes(&set->rows);
    return RILL_OK;
}

static rill_status load_binary(rill_comm *comm, const char *path, const rill_data_options *options,
                               rill_dataset *set) {
    rill__file file;
    int rank = rill_comm_rank(comm), size = rill_comm_size(comm);
    rill_status status = rill__file_open_alone(path, &file);
    if (status == RILL_OK) status = map_binary(&file, rank, size, options, set);
    rill__file_close(&file);
    RILL_TRY_DATA(rill__data_agree(comm, status));
    return sum_report(comm, NULL, set);
}

static rill_status load(rill_comm *comm, const void *mpi, const char *path,
                        const rill_data_options *options, rill_dataset *set) {
    rill__file file = {.path = path, .fd = -1};
    rill__format format = RILL__TEXT;
    double start = rill__now();
    rill_status status = rill__data_agree(comm, rill__file_check(path));
    if (status == RILL_OK) status = rill__data_agree(comm, rill__file_open(mpi, path, &file));
    if (status == RILL_OK) {
        set->report.file_bytes = file.size;
        status = rill__data_agree(comm, rill__file_format(&file, &format));
    }
    if (status == RILL_OK && format != RILL__BINARY)
        status = load_text(comm, &file, format, options, set);
    rill__file_close(&file);
    if (status == RILL_OK && format == RILL__BINARY) status = load_binary(comm, path, options, set);
    RILL_TRY_DATA(status);
    set->report.format = rill__format_name(format);
    set->report.seconds = rill__now() - start;
    return rill__most_f64(comm, &set->report.seconds, 1);
}

static rill_status check_arguments(const char *path, const rill_data_options *given,
                                   rill_data_options *options) {
    *options = (rill_data_options)RILL_DATA_OPTIONS_INIT;
    if (!path || !*path)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_load: path is empty");
    if (!given) return RILL_OK;
    if (given->size > sizeof *options || given->size < sizeof(size_t))
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_load: options.size = %zu",
                               given->size);
    memcpy(options, given, given->size);
    if (options->stream || options->folder || options->hash_bits || options->normalize)
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "rill_dataset_load: %s is an option of rill_dataset_load_files_on",
                               options->stream      ? "stream"
                               : options->folder    ? "folder"
                               : options->hash_bits ? "hash_bits"
                                                    : "normalize");
    if (options->base < -1 || options->base > 1)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_load: base = %d is not 0, 1 or -1",
                               options->base);
    if (options->dim > RILL__INDEX_LIMIT)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_load: dim = %llu is over 2^63",
                               (unsigned long long)options->dim);
    if (options->read_bytes > UINT64_C(1) << 30)
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "rill_dataset_load: read_bytes = %llu is over 2^30",
                               (unsigned long long)options->read_bytes);
    return RILL_OK;
}

rill_status rill__dataset_load(rill_comm *comm, const void *mpi, const char *path,
                               const rill_data_options *given, rill_dataset **out) {
    rill_data_options options;
    if (out) *out = NULL;
    rill_dataset *set = calloc(1, sizeof *set);
    rill_status status = check_arguments(path, given, &options);
    if (!out) status = rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_load: out is NULL");
    else if (!set) status = rill__data_fail(RILL_ERR_MEMORY, "out of memory: a data set");
    status = rill__data_agree(comm, status);
    if (status == RILL_OK) {
        set->report = (rill_data_report)RILL_DATA_REPORT_INIT;
        status = load(comm, mpi, path, &options, set);
    }
    if (status == RILL_OK) *out = set;
    else rill_dataset_free(&set);
    return status;
}

rill_status rill_dataset_load_on(rill_comm *comm, const char *path, const rill_data_options *given,
                                 rill_dataset **out) {
    return rill__dataset_load(comm, NULL, path, given, out);
}
