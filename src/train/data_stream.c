/* Several files as one, and data that do not fit in memory.
 *
 * Idea: parts of files are read a buffer at a time, and what a buffer gives is appended to arrays.
 * These are in memory, or grow in files without a name which are mapped when they are complete.
 * Mapped they look as arrays do: so all that works on rows works on these, to the same bits, and
 * the kernel keeps of them what memory allows. Who reads them in order reads at the disk's speed;
 * so shuffles have windows (rill__dataset_shuffle), and the next window is asked for before it is
 * needed.
 * Restriction: indices below 2^32; hashed ones may be larger.
 * Memory: a read buffer and its rows; 1 MiB for each array. Disk: 8 bytes an entry, 16 a row, and
 * the bytes of a pipe while it is read. Cost: a pass to parse and write.
 */
#include "train/data_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* ---- rows into arrays ----------------------------------------------------------------------- */

typedef struct joined {
    rill_dataset *set;
    const rill_data_options *options;
    bool hashed; /* rows of a buffer have been */
    int base;    /* found so far: -1, 0 or 1 */
    bool saw_zero;
    uint64_t entries; /* as read: hashing makes fewer of them */
    uint64_t largest; /* index as written */
    bool any;         /* there is an entry */
    uint64_t lines, blank_lines, qids, unsorted_rows, duplicates;
    uint64_t peak;
} joined;

/* Indices are kept as if they started at 1, until base is known: 0 becomes the largest there is,
 * and all are put right in the end. */
static rill_status lower(const joined *j, rill__rows *rows) {
    for (uint64_t e = 0; e < rows->entries; e++) {
        uint64_t index = rill__rows_index(rows, e);
        if (index > UINT32_MAX)
            return rill__data_fail(RILL_ERR_UNSUPPORTED,
                                   "index %llu: several files and --stream take those below 2^32, "
                                   "unless features are hashed",
                                   (unsigned long long)index);
        rill__rows_set_index(rows, e, (index - (j->base != 0)) & UINT32_MAX);
    }
    rill__rows_narrow(rows);
    return RILL_OK;
}

/* Hashing needs to know where indices start. */
static rill_status hash(joined *j, rill__rows *rows, bool zero) {
    if (j->base < 0) j->base = zero ? 0 : 1;
    if (zero && j->base == 1)
        return rill__data_fail(RILL_ERR_IO, "index 0 comes late: say where indices start (base 0)");
    for (uint64_t e = 0; e < rows->entries; e++)
        rill__rows_set_index(rows, e, rill__rows_index(rows, e) - (uint64_t)j->base);
    rill_dataset part = {.rows = *rows};
    rill_status status = rill_dataset_hash(&part, j->options->hash_bits, j->options->hash_seed);
    *rows = part.rows;
    j->hashed = true;
    return status;
}

static rill_status append_files(joined *j, const rill__rows *rows) {
    rill__spool *s = j->set->spool;
    rill__rows *all = &j->set->rows;
    if (!all->rows && !all->entries)
        RILL_TRY_DATA(rill__spool_put(&s[RILL__SPOOL_START], &(uint64_t){0}, sizeof(uint64_t)));
    for (uint64_t i = 0; i < rows->rows; i++) {
        uint64_t end = all->entries + rows->start[i + 1];
        int64_t qid = rows->qid ? rows->qid[i] : RILL_NO_QID;
        RILL_TRY_DATA(rill__spool_put(&s[RILL__SPOOL_START], &end, sizeof end));
        RILL_TRY_DATA(rill__spool_put(&s[RILL__SPOOL_QID], &qid, sizeof qid));
    }
    RILL_TRY_DATA(
        rill__spool_put(&s[RILL__SPOOL_INDEX], rows->index, rows->entries * sizeof(uint32_t)));
    RILL_TRY_DATA(
        rill__spool_put(&s[RILL__SPOOL_VALUE], rows->value, rows->entries * sizeof(float)));
    RILL_TRY_DATA(rill__spool_put(&s[RILL__SPOOL_LABEL], rows->label, rows->rows * sizeof(double)));
    all->rows += rows->rows;
    all->entries += rows->entries;
    return RILL_OK;
}

static rill_status append_memory(joined *j, const rill__rows *rows) {
    rill__rows *all = &j->set->rows;
    RILL_TRY_DATA(rill__rows_reserve(all, rows->rows, rows->entries));
    memcpy((uint32_t *)all->index + all->entries, rows->index, rows->entries * sizeof(uint32_t));
    memcpy(all->value + all->entries, rows->value, rows->entries * sizeof(float));
    for (uint64_t i = 0; i < rows->rows; i++) {
        if (rows->qid) RILL_TRY_DATA(rill__rows_set_qid(all, rows->qid[i]));
        all->label[all->rows++] = rows->label[i];
        all->start[all->rows] = all->entries + rows->start[i + 1];
    }
    all->entries += rows->entries;
    return RILL_OK;
}

/* Rows of a buffer; their indices are as written. */
static rill_status append(joined *j, rill__rows *rows, bool zero) {
    for (uint64_t i = 0; i < rows->rows; i++) {
        uint64_t end = rows->start[i + 1];
        if (end == rows->start[i]) continue;
        uint64_t last = rill__rows_index(rows, end - 1);
        if (last > j->largest) j->largest = last;
        j->any = true;
    }
    j->saw_zero |= zero;
    j->entries += rows->entries;
    RILL_TRY_DATA(j->options->hash_bits ? hash(j, rows, zero) : lower(j, rows));
    rill_dataset part = {.rows = *rows};
    if (j->options->normalize) RILL_TRY_DATA(rill_dataset_normalize(&part));
    uint64_t bytes = rill__rows_bytes(rows);
    if (bytes > j->peak) j->peak = bytes;
    return j->options->stream ? append_files(j, rows) : append_memory(j, rows);
}

/* ---- files ---------------------------------------------------------------------------------- */

static rill_status after_buffer(void *context, rill__parser *parser, uint64_t offset) {
    joined *j = context;
    (void)offset;
    rill_status status = append(j, &parser->rows, parser->saw_zero);
    j->qids += parser->qids;
    parser->qids = 0;
    rill__rows_drop(&parser->rows, parser->rows.rows);
    parser->rows.wide = false; /* nothing is in it */
    return status;
}

/* Lines before a part, for messages. */
static uint64_t lines_before(const rill__file *file, rill__format format, uint64_t begin) {
    rill__parser parser;
    rill__reader reader = {
        .file = file, .format = format, .parts = 1, .ranged = true, .end = begin};
    uint64_t lines = 0;
    if (!begin || rill__parser_init(&parser, -1) != RILL_OK) return 0;
    if (rill__reader_run(&reader, &parser) == RILL_OK) lines = parser.lines;
    rill__parser_free(&parser);
    return lines;
}

static rill_status read_text(joined *j, const rill__file *file, rill__format format, uint64_t begin,
                             uint64_t end) {
    rill__parser parser;
    rill__reader reader = {.file = file,
                           .format = format,
                           .parts = 1,
                           .ranged = true,
                           .begin = begin,
                           .end = end,
                           .buffer_bytes = (size_t)j->options->read_bytes,
                           .after = after_buffer,
                           .context = j};
    RILL_TRY_DATA(rill__parser_init(&parser, j->options->base));
    rill_status status = rill__reader_run(&reader, &parser);
    if (status != RILL_OK && parser.failed)
        rill__data_fail(status, "%s:%llu: %s", file->path,
                        (unsigned long long)(lines_before(file, format, begin) + parser.lines),
                        parser.message);
    j->lines += parser.lines;
    j->blank_lines += parser.blank_lines;
    j->unsorted_rows += parser.unsorted_rows;
    j->duplicates += parser.duplicates;
    if (reader.peak_bytes > j->peak) j->peak = reader.peak_bytes;
    rill__parser_free(&parser);
    return status;
}

/* Indices as a text would have them. */
static rill_status write_indices(const rill__binary *b, rill__rows *rows) {
    if (!b->header.base) return RILL_OK;
    RILL_TRY_DATA(rill__rows_widen(rows)); /* the largest of 32 bits grows */
    for (uint64_t e = 0; e < rows->entries; e++)
        rill__rows_set_index(rows, e, rill__rows_index(rows, e) + b->header.base);
    return RILL_OK;
}

static rill_status read_chunks(joined *j, const rill__binary *b, uint64_t first, uint64_t last) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < b->header.chunks; at += b->chunk[i++].rows) {
        uint64_t from = first > at ? first : at, end = at + b->chunk[i].rows;
        uint64_t to = last < end ? last : end;
        rill__rows rows = {0};
        if (from >= to) continue;
        rill_status status = rill__binary_rows(b, from, to - from, &rows);
        float *value = malloc((size_t)rows.entries * sizeof *value + RILL_SLACK);
        if (status == RILL_OK && !value) status = rill__data_memory("a chunk");
        if (status == RILL_OK) { /* as a text would have it: own values, too */
            memcpy(value, rows.value, (size_t)rows.entries * sizeof *value);
            rows.value = value;
            rows.borrowed = false;
            value = NULL;
            status = write_indices(b, &rows);
            for (uint64_t k = 0; rows.qid && k < rows.rows; k++)
                j->qids += rows.qid[k] != RILL_NO_QID;
            /* The file says where indices start, whether the first one occurs or not. */
            if (status == RILL_OK) status = append(j, &rows, !b->header.base);
        }
        free(value);
        rill__rows_free(&rows);
        RILL_TRY_DATA(status);
    }
    return RILL_OK;
}

static rill_status read_binary(joined *j, const rill__file *file, uint64_t begin, uint64_t end) {
    rill__binary b;
    void *map = mmap(NULL, (size_t)file->size, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (map == MAP_FAILED)
        return rill__data_fail(RILL_ERR_IO, "%s: cannot be mapped: %s", file->path,
                               strerror(errno));
    rill_status status = rill__binary_open(&b, file->path, map, file->size);
    if (status == RILL_OK && j->options->base >= 0 && j->options->base != (int)b.header.base)
        status = rill__data_fail(RILL_ERR_IO, "%s: its indices start at %u, not at %d", file->path,
                                 b.header.base, j->options->base);
    b.from_file = true;
    if (status == RILL_OK) {
        unsigned __int128 rows = b.header.rows;
        status = read_chunks(j, &b, (uint64_t)(rows * begin / file->size),
                             (uint64_t)(rows * end / file->size));
    }
    munmap(map, (size_t)file->size);
    return status;
}

static bool is_pipe(const char *path) {
    struct stat about;
    return !strcmp(path, "-") ||
           (!stat(path, &about) && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode));
}

static rill_status open_one(const char *path, const rill_data_options *o, int ranks,
                            rill__file *file) {
    *file = (rill__file){.path = path, .fd = -1};
    if (!path || !*path) return rill__data_fail(RILL_ERR_ARGUMENT, "a name of a file is empty");
    if (!is_pipe(path)) {
        RILL_TRY_DATA(rill__file_check(path));
        return rill__file_open_alone(path, file);
    }
    if (ranks > 1)
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "%s: a pipe is read by one rank: these are %d. Save it first", path,
                               ranks);
    return rill__copy_pipe(path, o, file);
}

/* This rank's range of all bytes. */
static rill_status read_files(joined *j, const rill__file *file, int n, int rank, int ranks) {
    unsigned __int128 total = 0;
    for (int i = 0; i < n; i++)
        total += file[i].size;
    uint64_t first = (uint64_t)(total * (unsigned)rank / (unsigned)ranks);
    uint64_t last = (uint64_t)(total * ((unsigned)rank + 1) / (unsigned)ranks), at = 0;
    for (int i = 0; i < n; at += file[i++].size) {
        rill__format format;
        uint64_t size = file[i].size, begin = first > at ? first - at : 0;
        uint64_t end = last > at ? last - at : 0;
        RILL_TRY_DATA(rill__file_format(&file[i], &format));
        if (begin > size) begin = size;
        if (end > size) end = size;
        j->set->report.file_bytes += size;
        j->set->report.format = n == 1 ? rill__format_name(format) : "files";
        if (begin < end)
            RILL_TRY_DATA(format == RILL__BINARY ? read_binary(j, &file[i], begin, end)
                                                 : read_text(j, &file[i], format, begin, end));
    }
    return RILL_OK;
}

/* ---- the data set --------------------------------------------------------------------------- */

static rill_status read_alone(joined *j, const char *const *paths, int n, rill_comm *comm) {
    int ranks = rill_comm_size(comm);
    char name[4096];
    if (!paths || n < 1) return rill__data_fail(RILL_ERR_ARGUMENT, "there are no files to load");
    rill__file *file = calloc((size_t)n, sizeof *file);
    rill_status status = file ? RILL_OK : rill__data_memory("files");
    for (int i = 0; file && i < n; i++)
        file[i].fd = -1;
    for (int i = 0; status == RILL_OK && i < n; i++)
        status = open_one(paths[i], j->options, ranks, &file[i]);
    for (int i = 0; status == RILL_OK && j->options->stream && i < RILL__SPOOLS; i++)
        status = rill__spool_open(&j->set->spool[i],
                                  rill__spool_folder(j->options, paths[0], name, sizeof name));
    if (status == RILL_OK) status = read_files(j, file, n, rill_comm_rank(comm), ranks);
    for (int i = 0; file && i < n; i++)
        rill__file_close(&file[i]);
    free(file);
    return status;
}

/* Indices that were taken for ones from 1, and are from 0. */
static rill_status raise_indices(joined *j) {
    rill__rows *rows = &j->set->rows;
    rill__spool *s = &j->set->spool[RILL__SPOOL_INDEX];
    uint32_t *index = rows->index;
    if (j->options->stream) {
        void *map = mmap(NULL, (size_t)s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
        if (map == MAP_FAILED) return rill__data_memory("indices");
        index = map;
    }
    for (uint64_t e = 0; e < rows->entries; e++)
        index[e]++;
    if (j->options->stream) munmap(index, (size_t)s->bytes);
    return RILL_OK;
}

static rill_status complete(joined *j) {
    rill__rows *rows = &j->set->rows;
    if (!j->options->stream) {
        RILL_TRY_DATA(rill__rows_reserve(rows, 0, 0));
        rill__rows_trim(rows);
        return RILL_OK;
    }
    rill__spool *s = j->set->spool;
    if (!s[RILL__SPOOL_START].bytes)
        RILL_TRY_DATA(rill__spool_put(&s[RILL__SPOOL_START], &(uint64_t){0}, sizeof(uint64_t)));
    for (int i = 0; i < RILL__SPOOLS; i++)
        RILL_TRY_DATA(rill__spool_map(&s[i]));
    rows->mapped = rows->borrowed = true;
    rows->start = s[RILL__SPOOL_START].map;
    rows->index = s[RILL__SPOOL_INDEX].map;
    rows->value = s[RILL__SPOOL_VALUE].map;
    rows->label = s[RILL__SPOOL_LABEL].map;
    if (j->qids) rows->qid = s[RILL__SPOOL_QID].map;
    else rill__spool_close(&s[RILL__SPOOL_QID]);
    return RILL_OK;
}

/* All ranks: where indices start, the dimension, who has which rows. */
static rill_status agree_on_all(rill_comm *comm, joined *j) {
    rill_dataset *set = j->set;
    uint64_t most[3] = {j->largest, j->any, j->saw_zero};
    uint64_t sums[7] = {set->rows.rows,   j->entries,    j->lines, j->blank_lines,
                        j->unsorted_rows, j->duplicates, j->qids};
    RILL_TRY_DATA(rill__most_u64(comm, most, 3));
    RILL_TRY_DATA(rill__sum_before(comm, set->rows.rows, &set->first_row));
    RILL_TRY_DATA(rill__sum_u64(comm, sums, 7));
    int base = j->options->base >= 0 ? j->options->base : most[2] ? 0 : 1;
    rill_status status = RILL_OK;
    if (j->hashed && base != j->base)
        status = rill__data_fail(RILL_ERR_IO,
                                 "index 0 comes late: say where indices start (base 0)");
    else if (!j->options->hash_bits && base == 0 && j->base != 0) status = raise_indices(j);
    RILL_TRY_DATA(rill__data_agree(comm, status));
    set->report.base = base;
    set->dim = most[1] ? most[0] - (uint64_t)base + 1 : 1;
    if (set->dim < j->options->dim) set->dim = j->options->dim;
    if (j->options->hash_bits) set->dim = UINT64_C(1) << j->options->hash_bits;
    set->total_rows = set->report.rows = sums[0];
    set->report.entries = sums[1];
    set->report.lines = sums[2];
    set->report.blank_lines = sums[3];
    set->report.unsorted_rows = sums[4];
    set->report.duplicates = sums[5];
    set->report.qids = sums[6];
    set->report.peak_bytes = j->peak;
    if (!sums[0]) return rill__data_fail(RILL_ERR_IO, "the files have no rows");
    return RILL_OK;
}

static rill_status check_files(const rill_data_options *given, rill_data_options *o, bool out) {
    *o = (rill_data_options)RILL_DATA_OPTIONS_INIT;
    if (!out) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_load_files: out is NULL");
    if (given && (given->size < sizeof(size_t) || given->size > sizeof *o))
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_dataset_load_files: options.size = %zu",
                               given->size);
    if (given) memcpy(o, given, given->size);
    if (o->base < -1 || o->base > 1 || o->hash_bits < 0 || o->hash_bits > 32 ||
        o->read_bytes > UINT64_C(1) << 30 || o->dim > RILL__INDEX_LIMIT)
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "rill_dataset_load_files: base = %d, hash_bits = %d, read_bytes = "
                               "%llu or dim = %llu is out of range",
                               o->base, o->hash_bits, (unsigned long long)o->read_bytes,
                               (unsigned long long)o->dim);
    return RILL_OK;
}

rill_status rill_dataset_load_files_on(rill_comm *comm, const char *const *paths, int n,
                                       const rill_data_options *given, rill_dataset **out) {
    rill_data_options options;
    double start = rill__now();
    if (out) *out = NULL;
    rill_dataset *set = calloc(1, sizeof *set);
    joined j = {.set = set, .options = &options};
    rill_status status = check_files(given, &options, out != NULL);
    if (!set) status = rill__data_memory("a data set");
    if (status == RILL_OK) {
        set->report = (rill_data_report)RILL_DATA_REPORT_INIT;
        j.base = options.base;
        status = read_alone(&j, paths, n, comm);
    }
    status = rill__data_agree(comm, status);
    if (status == RILL_OK) status = rill__data_agree(comm, complete(&j));
    if (status == RILL_OK) status = agree_on_all(comm, &j);
    if (status == RILL_OK) {
        set->report.seconds = rill__now() - start;
        status = rill__most_f64(comm, &set->report.seconds, 1);
    }
    if (status == RILL_OK) *out = set;
    else rill_dataset_free(&set);
    return status;
}
