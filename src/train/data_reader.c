/* The lines of one rank's part of a text file.
 *
 * Idea: a part is a range of bytes, and a line belongs to the part that it starts in. A rank begins
 * one byte before its range, drops everything up to the first newline, and stops with the line that
 * runs over the end of the range. A compressed file can't be entered in the middle, so every rank
 * decompresses from the start, drops what comes before its part, and stops at the end of it; the
 * part is the range of compressed bytes, which ends at the same place in the text on every rank
 * (the caller compares them).
 * Restriction: a line of at most 1 GiB; gz with trailing garbage is an error.
 * Memory: one buffer of buffer_bytes, or of the longest line; compressed: 1 MiB more.
 * Cost: plain S/P bytes read per rank; compressed S (r+1)/P bytes decompressed by rank r.
 */
#include "train/data_internal.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BUFFER = 4 << 20, MARGIN = 64, INPUT = 1 << 20, TAIL = 1 << 16 };
#define LONGEST_LINE (UINT64_C(1) << 30)

typedef struct scan {
    rill__reader *reader;
    /* the text at hand: [begin, begin + used) of the buffer, which starts at text offset
     * `offset` */
    char *buffer;
    size_t room, used;
    uint64_t offset;
    bool at_end;      /* no text comes after what is in the buffer */
    bool started;     /* the buffer starts with a line of ours */
    uint64_t in_next; /* file offset of the next byte to read */
    /* compressed */
    rill__inflater *inflater;
    uint8_t *input;
    const uint8_t *in;
    size_t in_bytes;
    uint64_t out_offset; /* text bytes produced */
    char before;         /* the byte before the part */
} scan;

static uint64_t part_start(const rill__reader *r, int part) {
    if (r->ranged) return part == r->part ? r->begin : r->end;
    /* size * part / parts without overflow */
    uint64_t parts = (uint64_t)r->parts, whole = r->file->size / parts,
             rest = r->file->size % parts;
    return whole * (uint64_t)part + rest * (uint64_t)part / parts;
}

/* Whether the file goes on behind the part. */
static bool has_next(const rill__reader *r) {
    return r->ranged ? r->end < r->file->size : r->part + 1 < r->parts;
}

static rill_status make_room(scan *s) {
    if (s->room - s->used >= s->room / 2) return RILL_OK;
    if (s->used >= LONGEST_LINE)
        return rill__data_fail(RILL_ERR_IO, "%s: a line is longer than 1 GiB",
                               s->reader->file->path);
    char *moved = realloc(s->buffer, 2 * s->room + MARGIN);
    if (!moved)
        return rill__data_fail(RILL_ERR_MEMORY, "out of memory: a read buffer of %zu bytes",
                               2 * s->room);
    s->buffer = moved;
    s->room *= 2;
    return RILL_OK;
}

static rill_status fill_plain(scan *s) {
    rill__reader *r = s->reader;
    uint64_t left = r->file->size - s->in_next, n = s->room - s->used;
    /* Past the end of the part only the rest of one line is wanted. */
    uint64_t owned = s->in_next < r->last ? r->last - s->in_next : 0;
    if (n > TAIL && n - TAIL > owned) n = owned + TAIL;
    if (n > left) n = left;
    RILL_TRY_DATA(rill__file_read(r->file, s->in_next, s->buffer + s->used, (size_t)n));
    s->used += (size_t)n;
    s->in_next += n;
    s->at_end = s->in_next == r->file->size;
    return RILL_OK;
}

/* More compressed bytes, but never across a border of the part. */
static rill_status fill_input(scan *s) {
    rill__reader *r = s->reader;
    uint64_t border[3] = {part_start(r, r->part), part_start(r, r->part + 1), r->file->size};
    uint64_t until = border[2];
    for (int i = 2; i >= 0; i--)
        if (s->in_next < border[i]) until = border[i];
    uint64_t n = until - s->in_next;
    if (n > INPUT) n = INPUT;
    RILL_TRY_DATA(rill__file_read(r->file, s->in_next, s->input, (size_t)n));
    s->in = s->input;
    s->in_bytes = (size_t)n;
    s->in_next += n;
    return RILL_OK;
}

/* Where the compressed input stands after all output was taken, as borders of the text. */
static void note_borders(scan *s) {
    rill__reader *r = s->reader;
    if (r->first == UINT64_MAX && s->in_next >= part_start(r, r->part)) {
        r->first = s->out_offset;
        if (r->first) { /* the byte before tells whether a line starts here */
            s->buffer[0] = s->before;
            s->used = 1;
            s->offset = r->first - 1;
        }
    }
    if (has_next(r) && r->last == UINT64_MAX && s->in_next >= part_start(r, r->part + 1) &&
        r->first != UINT64_MAX)
        r->last = s->out_offset;
}

static rill_status fill_compressed(scan *s) {
    rill__reader *r = s->reader;
    bool ended = false, mine = r->first != UINT64_MAX;
    size_t from = mine ? s->used : 0, free_bytes = s->room - from, left = free_bytes;
    uint8_t *out = (uint8_t *)s->buffer + from;
    bool last = s->in_next == r->file->size;
    rill_status status = rill__inflate(s->inflater, &s->in, &s->in_bytes, &out, &left, last,
                                       &ended);
    if (status != RILL_OK) {
        char why[256];
        snprintf(why, sizeof why, "%s", rill_last_error());
        return rill__data_fail(status, "%s: before byte %llu: %s", r->file->path,
                               (unsigned long long)s->in_next, why);
    }
    size_t got = free_bytes - left;
    s->out_offset += got;
    if (mine) s->used += got;
    else if (got) s->before = s->buffer[got - 1];
    if (s->in_bytes || !left) return RILL_OK; /* more is pending */
    note_borders(s);
    if (!last) return fill_input(s);
    if (!ended && !got)
        return rill__data_fail(RILL_ERR_IO, "%s: is truncated: the %s data end too early",
                               r->file->path, rill__format_name(r->format));
    s->at_end = ended;
    return RILL_OK;
}

static char *last_newline(char *text, size_t n) { return n ? memrchr(text, '\n', n) : NULL; }

/* Parses the lines at hand; *done when the part is complete. */
static rill_status take_lines(scan *s, rill__parser *parser, bool *done) {
    rill__reader *r = s->reader;
    *done = false;
    if (r->first == UINT64_MAX) { /* still before the part */
        *done = s->at_end;
        return RILL_OK;
    }
    size_t at = 0;
    if (!s->started) {
        if (r->first) {
            char *newline = memchr(s->buffer, '\n', s->used);
            at = newline ? (size_t)(newline - s->buffer) + 1 : s->used;
            s->started = newline != NULL;
        } else {
            if (s->used < 3 && !s->at_end) return RILL_OK;
            if (s->used >= 3 && !memcmp(s->buffer, "\xEF\xBB\xBF", 3)) at = 3;
            s->started = true;
        }
    }
    size_t end = at;
    if (s->offset + at >= r->last) *done = true; /* the next line is not ours */
    else if (s->started) {
        char *stop = NULL;
        if (r->last != UINT64_MAX && s->offset + s->used >= r->last) {
            size_t from = r->last - 1 > s->offset + at ? (size_t)(r->last - 1 - s->offset) : at;
            stop = memchr(s->buffer + from, '\n', s->used - from);
            *done = stop != NULL;
        } else stop = last_newline(s->buffer + at, s->used - at);
        if (stop) end = (size_t)(stop - s->buffer) + 1;
        if (s->at_end && !*done) {
            if (s->used > at && s->buffer[s->used - 1] != '\n') s->buffer[s->used++] = '\n';
            end = s->used;
        }
    }
    if (s->at_end) *done = true;
    if (end > at) {
        memset(s->buffer + s->used, 0, 16); /* the parser looks a few bytes ahead */
        RILL_TRY_DATA(rill__parse_lines(parser, s->buffer + at, s->buffer + end));
        if (r->after) RILL_TRY_DATA(r->after(r->context, parser, s->in_next));
    }
    memmove(s->buffer, s->buffer + end, s->used - end);
    s->used -= end;
    s->offset += end;
    return RILL_OK;
}

static rill_status run(scan *s, rill__parser *parser) {
    rill__reader *r = s->reader;
    bool plain = r->format == RILL__TEXT, done = false;
    if (plain) {
        r->first = part_start(r, r->part);
        r->last = has_next(r) ? part_start(r, r->part + 1) : UINT64_MAX;
        if (r->first == r->last || r->first >= r->file->size) return RILL_OK;
        s->in_next = s->offset = r->first ? r->first - 1 : 0;
    } else {
        RILL_TRY_DATA(rill__inflater_create(r->format, &s->inflater));
        s->input = malloc(INPUT);
        if (!s->input) return rill__data_fail(RILL_ERR_MEMORY, "out of memory: an input buffer");
        note_borders(s);
        RILL_TRY_DATA(fill_input(s));
    }
    while (!done) {
        RILL_TRY_DATA(make_room(s));
        RILL_TRY_DATA(plain ? fill_plain(s) : fill_compressed(s));
        RILL_TRY_DATA(take_lines(s, parser, &done));
    }
    return RILL_OK;
}

rill_status rill__reader_run(rill__reader *r, rill__parser *parser) {
    scan s = {.reader = r, .room = r->buffer_bytes ? r->buffer_bytes : DEFAULT_BUFFER};
    if (s.room < 16) s.room = 16;
    r->first = r->last = UINT64_MAX;
    s.buffer = malloc(s.room + MARGIN);
    rill_status status = s.buffer
                             ? run(&s, parser)
                             : rill__data_fail(RILL_ERR_MEMORY,
                                               "out of memory: a read buffer of %zu bytes", s.room);
    r->peak_bytes = s.room + (s.input ? INPUT : 0);
    rill__inflater_free(s.inflater);
    free(s.input);
    free(s.buffer);
    return status;
}
