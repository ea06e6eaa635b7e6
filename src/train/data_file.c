/* Bytes of a file at an offset, through MPI-IO for collective loading and through POSIX for one
 * process; what a file is; outputs (core/outfile.h) with a status and a count of bytes.
 *
 * Reads are independent, not collective: the ranges of the ranks are disjoint and contiguous, so
 * that aggregators could only add a copy and make the ranks wait for each other.
 */
#include "core/outfile.h"
#include "core/text.h"
#include "train/data_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

rill_status rill__data_fail(rill_status status, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    rill__vprint(text, sizeof text, format, args);
    va_end(args);
    return rill_error_set(status, text);
}

rill_status rill__data_memory(const char *what) {
    return rill__data_fail(RILL_ERR_MEMORY, "out of memory: %s", what);
}

/* ---- input ---------------------------------------------------------------------------------- */

rill_status rill__file_open_alone(const char *path, rill__file *file) {
    struct stat info;
    /* O_NONBLOCK: a FIFO is refused, and not waited for. */
    *file = (rill__file){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (file->fd < 0 || fstat(file->fd, &info)) {
        rill_status status = rill__data_fail(RILL_ERR_IO, "%s: cannot be opened: %s", path,
                                             strerror(errno));
        rill__file_close(file);
        return status;
    }
    if (!S_ISREG(info.st_mode)) {
        rill__file_close(file);
        return rill__data_fail(RILL_ERR_IO, "%s: is not a regular file", path);
    }
    file->size = (uint64_t)info.st_size;
    return RILL_OK;
}

rill_status rill__file_check(const char *path) {
    struct stat info;
    if (!strcmp(path, "-"))
        return rill__data_fail(RILL_ERR_IO, "-: data are not read from standard input, since ranks "
                                            "read a file from several places: save them first, "
                                            "or train with --stream");
    if (stat(path, &info) || S_ISREG(info.st_mode)) return RILL_OK; /* to open tells why not */
    if (S_ISDIR(info.st_mode))
        return rill__data_fail(RILL_ERR_IO,
                               "%s: is a folder: name a file in it, or put its files "
                               "together (cat %s/* > FILE)",
                               path, path);
    return rill__data_fail(RILL_ERR_IO,
                           "%s: is not a regular file, and ranks read one from several "
                           "places: save it first (cat %s > FILE), or train with --stream",
                           path, path);
}

rill_status rill__file_open(const void *mpi, const char *path, rill__file *file) {
    return mpi ? rill__mpi_file_open(mpi, path, file) : rill__file_open_alone(path, file);
}

void rill__file_close(rill__file *file) {
    if (file->is_mpi) rill__mpi_file_close(file);
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

rill_status rill__file_read(const rill__file *file, uint64_t offset, void *into, size_t n) {
    if (file->is_mpi) return n ? rill__mpi_file_read(file, offset, into, n) : RILL_OK;
    char *at = into;
    while (n) {
        ssize_t got = pread(file->fd, at, n, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return rill__data_fail(RILL_ERR_IO, "%s: cannot be read: %s", file->path,
                                   strerror(errno));
        if (!got)
            return rill__data_fail(RILL_ERR_IO, "%s: ends at byte %llu: changed while reading?",
                                   file->path, (unsigned long long)offset);
        at += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return RILL_OK;
}

static const struct {
    rill__format format;
    const char *name;
    size_t length;
    const char *magic;
} formats[] = {
    {RILL__TEXT, "text", 0, ""},
    {RILL__GZ, "gz", 2, "\x1f\x8b"},
    {RILL__XZ, "xz", 6,
     "\xfd"
     "7zXZ\0"},
    {RILL__ZSTD, "zstd", 4, "\x28\xb5\x2f\xfd"},
    {RILL__BINARY, "binary", 8, RILL__BINARY_MAGIC},
};

const char *rill__format_name(rill__format format) { return formats[format].name; }

rill_status rill__file_format(const rill__file *file, rill__format *format) {
    char head[8] = "";
    size_t n = file->size < sizeof head ? (size_t)file->size : sizeof head;
    *format = RILL__TEXT;
    if (!n) return rill__data_fail(RILL_ERR_IO, "%s: is empty", file->path);
    RILL_TRY_DATA(rill__file_read(file, 0, head, n));
    for (int i = 1; i < 5; i++)
        if (n >= formats[i].length && !memcmp(head, formats[i].magic, formats[i].length))
            *format = formats[i].format;
    return RILL_OK;
}

/* ---- output --------------------------------------------------------------------------------- */

struct rill__output {
    rill__outfile file;
    FILE *stream; /* of the file, or a scratch file */
    char *path;
    uint64_t bytes;
};

static rill_status output_failed(const rill__output *out, int why) {
    return rill__data_fail(RILL_ERR_IO, "%s: cannot be written: %s",
                           strcmp(out->path, "-") ? out->path : "standard output", strerror(why));
}

static rill__output *output_create(const char *path) {
    rill__output *out = calloc(1, sizeof *out);
    if (out) out->path = strdup(path);
    if (out && out->path) return out;
    free(out);
    rill__data_fail(RILL_ERR_MEMORY, "out of memory: an output file");
    return NULL;
}

static void output_free(rill__output *out) {
    free(out->path);
    free(out);
}

rill_status rill__output_open(const char *path, rill__output **result) {
    rill__output *out = output_create(path);
    if (!out) return RILL_ERR_MEMORY;
    int error = rill__outfile_open(path, &out->file);
    if (error) {
        rill_status status = output_failed(out, error);
        output_free(out);
        return status;
    }
    out->stream = out->file.stream;
    *result = out;
    return RILL_OK;
}

rill_status rill__output_scratch(const rill__output *beside, rill__output **result) {
    rill__output *out = output_create(beside->path);
    if (!out) return RILL_ERR_MEMORY;
    out->stream = rill__outfile_scratch(&beside->file);
    if (!out->stream) {
        rill_status status = output_failed(out, errno);
        output_free(out);
        return status;
    }
    *result = out;
    return RILL_OK;
}

rill_status rill__output_write(rill__output *out, const void *data, size_t n) {
    if (n && fwrite(data, 1, n, out->stream) != n) return output_failed(out, errno);
    out->bytes += n;
    return RILL_OK;
}

rill_status rill__output_rewrite(rill__output *out, uint64_t offset, const void *data, size_t n) {
    if (fseeko(out->stream, (off_t)offset, SEEK_SET) || fwrite(data, 1, n, out->stream) != n)
        return output_failed(out, errno);
    return RILL_OK;
}

rill_status rill__output_append(rill__output *out, rill__output *from) {
    char buffer[1 << 16];
    if (fseeko(from->stream, 0, SEEK_SET)) return output_failed(from, errno);
    for (uint64_t left = from->bytes; left;) {
        size_t n = left < sizeof buffer ? (size_t)left : sizeof buffer;
        if (fread(buffer, 1, n, from->stream) != n) return output_failed(from, errno);
        RILL_TRY_DATA(rill__output_write(out, buffer, n));
        left -= n;
    }
    return RILL_OK;
}

uint64_t rill__output_bytes(const rill__output *out) { return out->bytes; }

rill_status rill__output_close(rill__output *out, bool keep) {
    rill_status status = RILL_OK;
    if (!out) return status;
    if (out->file.stream) {
        int error = rill__outfile_close(&out->file, keep);
        if (error) status = output_failed(out, error);
    } else {
        fclose(out->stream); /* a scratch file: all that counts has been read */
    }
    output_free(out);
    return status;
}
