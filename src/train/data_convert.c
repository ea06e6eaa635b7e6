/* From text to the binary form and back, in one pass.
 *
 * Indices go into chunks as they are written in the text, and the header says whether they start at
 * 0 or 1, which is known at the end of the text only. Text to text writes what was read in clean
 * form.
 * Memory: a read buffer, a chunk, and the rows of both. */
#include "train/data_binary.h"
#include "train/data_number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- text ----------------------------------------------------------------------------------- */

static rill_status text_room(rill__text *text, size_t more) {
    if (more <= text->room - text->size) return RILL_OK;
    size_t room = text->room + text->room / 2 + more;
    char *moved = realloc(text->data, room);
    if (!moved) return rill__data_fail(RILL_ERR_MEMORY, "out of memory: %zu bytes of text", room);
    text->data = moved;
    text->room = room;
    return RILL_OK;
}

rill_status rill__text_rows(rill__text *text, const rill__rows *rows, uint64_t first,
                            uint64_t count, uint64_t shift) {
    enum { ENTRY = RILL__NUMBER_ROOM + 24 };
    for (uint64_t i = first; i < first + count; i++) {
        RILL_TRY_DATA(text_room(text, (rows->start[i + 1] - rows->start[i] + 2) * ENTRY));
        char *p = text->data + text->size;
        /* Labels of two classes keep the plus that such files have. */
        if (rows->label[i] == 1) *p++ = '+';
        p += rill__double_print(rows->label[i], p);
        if (rows->qid && rows->qid[i] != RILL_NO_QID)
            p += sprintf(p, " qid:%lld", (long long)rows->qid[i]);
        for (uint64_t j = rows->start[i]; j < rows->start[i + 1]; j++) {
            *p++ = ' ';
            p += rill__uint_print(rill__rows_index(rows, j) + shift, p);
            *p++ = ':';
            p += rill__float_print(rows->value[j], p);
        }
        *p++ = '\n';
        text->size = (size_t)(p - text->data);
    }
    return RILL_OK;
}

/* ---- convert -------------------------------------------------------------------------------- */

typedef struct conversion {
    rill_convert_options options;
    const char *out_path;
    bool binary;
    uint64_t file_bytes, rows, entries;
    rill__writer writer; /* binary */
    rill__output *out;   /* text */
    rill__chunk chunk;
    rill__text text;
    uint64_t out_bytes, peak;
} conversion;

static rill_status tell(const conversion *c, uint64_t done) {
    if (c->options.progress && c->options.progress(c->options.context, done, c->file_bytes))
        return rill__data_fail(RILL_ERR_STATE, "stopped by the progress call");
    return RILL_OK;
}

static void note_peak(conversion *c, uint64_t other) {
    uint64_t now = c->chunk.room + c->chunk.key_room + c->text.room + other;
    if (now > c->peak) c->peak = now;
}

static rill_status put_chunks(conversion *c, rill__rows *rows, bool final) {
    note_peak(c, rill__rows_bytes(rows));
    return rill__writer_put(&c->writer, &c->chunk, rows, final);
}

static rill_status put_text(conversion *c, rill__rows *rows, uint64_t shift) {
    for (uint64_t i = 0; i < rows->rows; i++) {
        RILL_TRY_DATA(rill__text_rows(&c->text, rows, i, 1, shift));
        if (c->text.size < 1 << 20 && i + 1 < rows->rows) continue;
        RILL_TRY_DATA(rill__output_write(c->out, c->text.data, c->text.size));
        c->text.size = 0;
    }
    note_peak(c, rill__rows_bytes(rows));
    return RILL_OK;
}

static rill_status after_buffer(void *context, rill__parser *parser, uint64_t offset) {
    conversion *c = context;
    uint64_t rows = parser->rows.rows, entries = parser->rows.entries;
    if (c->binary) RILL_TRY_DATA(put_chunks(c, &parser->rows, false));
    else {
        RILL_TRY_DATA(put_text(c, &parser->rows, 0));
        rill__rows_drop(&parser->rows, parser->rows.rows);
    }
    c->rows += rows - parser->rows.rows;
    c->entries += entries - parser->rows.entries;
    return tell(c, offset);
}

static rill_status from_text(conversion *c, const rill__file *file, rill__format format,
                             rill_data_report *report) {
    rill__parser parser;
    rill__reader reader = {
        .file = file, .format = format, .parts = 1, .after = after_buffer, .context = c};
    RILL_TRY_DATA(rill__parser_init(&parser, c->options.base));
    rill_status status = rill__reader_run(&reader, &parser);
    c->rows += parser.rows.rows;
    c->entries += parser.rows.entries;
    if (status != RILL_OK && parser.failed)
        rill__data_fail(status, "%s:%llu: %s", file->path, (unsigned long long)parser.lines,
                        parser.message);
    else if (status == RILL_OK && !c->rows)
        status = rill__data_fail(RILL_ERR_IO, "%s: has no rows: %llu lines are empty or comments",
                                 file->path, (unsigned long long)parser.lines);
    report->base = c->options.base >= 0 ? c->options.base : !parser.saw_zero;
    if (status == RILL_OK && c->binary) status = put_chunks(c, &parser.rows, true);
    report->lines = parser.lines;
    report->blank_lines = parser.blank_lines;
    report->qids = parser.qids;
    report->unsorted_rows = parser.unsorted_rows;
    report->duplicates = parser.duplicates;
    c->peak += reader.peak_bytes;
    rill__parser_free(&parser);
    return status;
}

/* Row by row through chunks of the input; indices come from 0 and go out as the file has them. */
static rill_status from_rows(conversion *c, const rill__binary *b, uint64_t *qids) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < b->header.chunks; i++) {
        rill__rows rows = {0};
        rill_status status = rill__binary_rows(b, at, b->chunk[i].rows, &rows);
        if (status == RILL_OK) status = put_text(c, &rows, b->header.base);
        for (uint64_t k = 0; rows.qid && k < rows.rows; k++)
            *qids += rows.qid[k] != RILL_NO_QID;
        rill__rows_free(&rows);
        RILL_TRY_DATA(status);
        at += b->chunk[i].rows;
        RILL_TRY_DATA(tell(c, b->chunk[i].offset));
    }
    c->rows = b->header.rows;
    c->entries = b->header.entries;
    return RILL_OK;
}

static rill_status from_binary(conversion *c, const rill__file *file, rill_data_report *report) {
    if (c->binary)
        return rill__data_fail(RILL_ERR_ARGUMENT, "%s: is in the binary form already", file->path);
    rill__binary b;
    void *map = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (map == MAP_FAILED)
        return rill__data_fail(RILL_ERR_IO, "%s: cannot be mapped: %s", file->path,
                               strerror(errno));
    rill_status status = rill__binary_open(&b, file->path, map, file->size);
    if (status == RILL_OK) status = from_rows(c, &b, &report->qids);
    if (status == RILL_OK) report->base = (int)b.header.base;
    munmap(map, file->size);
    return status;
}

static rill_status convert(conversion *c, const rill__file *file, rill__format format,
                           rill_data_report *report) {
    c->file_bytes = file->size;
    c->binary = c->options.binary < 0 ? format != RILL__BINARY : c->options.binary;
    if (c->binary) RILL_TRY_DATA(rill__writer_open(&c->writer, c->out_path));
    else RILL_TRY_DATA(rill__output_open(c->out_path, &c->out));
    rill_status status = format == RILL__BINARY ? from_binary(c, file, report)
                                                : from_text(c, file, format, report);
    bool failed = status != RILL_OK;
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    rill_status closed = RILL_OK;
    if (c->binary) closed = rill__writer_close(&c->writer, report->base, 0, failed, &c->out_bytes);
    else {
        c->out_bytes = rill__output_bytes(c->out);
        closed = rill__output_close(c->out, !failed);
    }
    rill__chunk_free(&c->chunk);
    free(c->text.data);
    return failed ? rill_error_set(status, detail) : closed;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static rill_status check_arguments(const char *in, const char *out,
                                   const rill_convert_options *given,
                                   rill_convert_options *options) {
    *options = (rill_convert_options)RILL_CONVERT_OPTIONS_INIT;
    if (!in || !*in || !out || !*out)
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_data_convert: %s is empty",
                               !in || !*in ? "in" : "out");
    if (!given) return RILL_OK;
    if (given->size > sizeof *options || given->size < sizeof(size_t))
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_data_convert: options.size = %zu",
                               given->size);
    memcpy(options, given, given->size);
    if (options->base < -1 || options->base > 1 || options->binary < -1 || options->binary > 1)
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "rill_data_convert: base = %d, binary = %d: each is -1, 0 or 1",
                               options->base, options->binary);
    return RILL_OK;
}

rill_status rill_data_convert(const char *in, const char *out, const rill_convert_options *given,
                              rill_data_report *report, uint64_t *out_bytes) {
    conversion c = {.out_path = out};
    rill_data_report facts = RILL_DATA_REPORT_INIT;
    rill__format format;
    rill__file file;
    double start = now();
    RILL_TRY_DATA(check_arguments(in, out, given, &c.options));
    if (report && (report->size < sizeof(size_t) || report->size > sizeof *report))
        return rill__data_fail(RILL_ERR_ARGUMENT, "rill_data_convert: report.size = %zu",
                               report->size);
    RILL_TRY_DATA(rill__file_open_alone(in, &file));
    rill_status status = rill__file_format(&file, &format);
    if (status == RILL_OK) status = convert(&c, &file, format, &facts);
    facts.file_bytes = file.size;
    rill__file_close(&file);
    RILL_TRY_DATA(status);
    facts.format = rill__format_name(format);
    facts.rows = c.rows;
    facts.entries = c.entries;
    facts.peak_bytes = c.peak;
    facts.seconds = now() - start;
    if (out_bytes) *out_bytes = c.out_bytes;
    if (report) {
        facts.size = report->size;
        memcpy(report, &facts, report->size);
    }
    return RILL_OK;
}
