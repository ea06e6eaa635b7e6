/* gz, xz and zstd behind one call, each by its own library where the build has it. Concatenated
 * members, streams and frames are read as one text, as their tools do. */
#include "train/data_internal.h"

#include <stdlib.h>
#include <string.h>
#ifdef RILL_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef RILL_HAVE_LZMA
#include <lzma.h>
#endif
#ifdef RILL_HAVE_ZSTD
#include <zstd.h>
#endif

/* Chunk of both sides; z_stream counts in unsigned int. */
enum { MOST = 1 << 30 };

struct rill__inflater {
    rill__format format;
    bool fresh; /* between members: no byte of the next one was read */
#ifdef RILL_HAVE_ZLIB
    z_stream gz;
#endif
#ifdef RILL_HAVE_LZMA
    lzma_stream xz;
#endif
#ifdef RILL_HAVE_ZSTD
    ZSTD_DStream *zstd;
#endif
};

static rill_status out_of_memory(void) {
    return rill__data_fail(RILL_ERR_MEMORY, "out of memory: a decompressor");
}

static rill_status start(rill__inflater *z) {
    switch (z->format) {
#ifdef RILL_HAVE_ZLIB
    case RILL__GZ: return inflateInit2(&z->gz, 15 + 16) == Z_OK ? RILL_OK : out_of_memory();
#endif
#ifdef RILL_HAVE_LZMA
    case RILL__XZ:
        return lzma_stream_decoder(&z->xz, UINT64_MAX, LZMA_CONCATENATED) == LZMA_OK
                   ? RILL_OK
                   : out_of_memory();
#endif
#ifdef RILL_HAVE_ZSTD
    case RILL__ZSTD: z->zstd = ZSTD_createDStream(); return z->zstd ? RILL_OK : out_of_memory();
#endif
    default:
        return rill__data_fail(RILL_ERR_UNSUPPORTED,
                               "this build of rill has no library to read %s files",
                               rill__format_name(z->format));
    }
}

rill_status rill__inflater_create(rill__format format, rill__inflater **result) {
    rill__inflater *z = calloc(1, sizeof *z);
    if (!z) return out_of_memory();
    z->format = format;
    z->fresh = true;
    rill_status status = start(z);
    if (status == RILL_OK) *result = z;
    else free(z);
    return status;
}

void rill__inflater_free(rill__inflater *z) {
    if (!z) return;
#ifdef RILL_HAVE_ZLIB
    if (z->format == RILL__GZ) inflateEnd(&z->gz);
#endif
#ifdef RILL_HAVE_LZMA
    if (z->format == RILL__XZ) lzma_end(&z->xz);
#endif
#ifdef RILL_HAVE_ZSTD
    if (z->format == RILL__ZSTD) ZSTD_freeDStream(z->zstd);
#endif
    free(z);
}

#ifdef RILL_HAVE_ZLIB
static rill_status step_gz(rill__inflater *z, const uint8_t **in, size_t *in_bytes, uint8_t **out,
                           size_t *out_bytes) {
    do {
        if (z->fresh && !*in_bytes) return RILL_OK;
        z->fresh = false;
        unsigned in_now = *in_bytes < MOST ? (unsigned)*in_bytes : MOST;
        unsigned out_now = *out_bytes < MOST ? (unsigned)*out_bytes : MOST;
        z->gz.next_in = (Bytef *)*in;
        z->gz.avail_in = in_now;
        z->gz.next_out = *out;
        z->gz.avail_out = out_now;
        int code = inflate(&z->gz, Z_NO_FLUSH);
        *in += in_now - z->gz.avail_in;
        *in_bytes -= in_now - z->gz.avail_in;
        *out += out_now - z->gz.avail_out;
        *out_bytes -= out_now - z->gz.avail_out;
        if (code == Z_STREAM_END) {
            z->fresh = true;
            if (inflateReset(&z->gz) != Z_OK) return out_of_memory();
        } else if (code == Z_BUF_ERROR) return RILL_OK; /* nothing more for now */
        else if (code == Z_MEM_ERROR) return out_of_memory();
        else if (code != Z_OK)
            return rill__data_fail(RILL_ERR_IO, "%s", z->gz.msg ? z->gz.msg : "not gz data");
    } while (*in_bytes && *out_bytes);
    return RILL_OK;
}
#endif

#ifdef RILL_HAVE_LZMA
static rill_status step_xz(rill__inflater *z, const uint8_t **in, size_t *in_bytes, uint8_t **out,
                           size_t *out_bytes, bool last, bool *ended) {
    z->xz.next_in = *in;
    z->xz.avail_in = *in_bytes;
    z->xz.next_out = *out;
    z->xz.avail_out = *out_bytes;
    lzma_ret code = lzma_code(&z->xz, last ? LZMA_FINISH : LZMA_RUN);
    *in = z->xz.next_in;
    *in_bytes = z->xz.avail_in;
    *out = z->xz.next_out;
    *out_bytes = z->xz.avail_out;
    *ended = code == LZMA_STREAM_END;
    switch (code) {
    case LZMA_OK:
    case LZMA_STREAM_END:
    case LZMA_BUF_ERROR: return RILL_OK; /* the caller sees what is left of the buffers */
    case LZMA_MEM_ERROR: return out_of_memory();
    case LZMA_FORMAT_ERROR: return rill__data_fail(RILL_ERR_IO, "not xz data");
    case LZMA_OPTIONS_ERROR: return rill__data_fail(RILL_ERR_IO, "xz options are not supported");
    default: return rill__data_fail(RILL_ERR_IO, "xz data are corrupt");
    }
}
#endif

#ifdef RILL_HAVE_ZSTD
static rill_status step_zstd(rill__inflater *z, const uint8_t **in, size_t *in_bytes, uint8_t **out,
                             size_t *out_bytes) {
    ZSTD_inBuffer source = {*in, *in_bytes, 0};
    ZSTD_outBuffer target = {*out, *out_bytes, 0};
    size_t hint = 0;
    do {
        size_t before = source.pos + target.pos;
        hint = ZSTD_decompressStream(z->zstd, &target, &source);
        if (ZSTD_isError(hint)) return rill__data_fail(RILL_ERR_IO, "%s", ZSTD_getErrorName(hint));
        if (source.pos + target.pos == before) break;
        z->fresh = hint == 0;
    } while (target.pos < target.size && (source.pos < source.size || !z->fresh));
    *in += source.pos;
    *in_bytes -= source.pos;
    *out += target.pos;
    *out_bytes -= target.pos;
    return RILL_OK;
}
#endif

rill_status rill__inflate(rill__inflater *z, const uint8_t **in, size_t *in_bytes, uint8_t **out,
                          size_t *out_bytes, bool last, bool *ended) {
    rill_status status = RILL_OK;
    (void)in, (void)in_bytes, (void)out, (void)out_bytes, (void)last;
    *ended = false;
    switch (z->format) {
#ifdef RILL_HAVE_ZLIB
    case RILL__GZ:
        status = step_gz(z, in, in_bytes, out, out_bytes);
        *ended = z->fresh;
        break;
#endif
#ifdef RILL_HAVE_LZMA
    case RILL__XZ: status = step_xz(z, in, in_bytes, out, out_bytes, last, ended); break;
#endif
#ifdef RILL_HAVE_ZSTD
    case RILL__ZSTD:
        status = step_zstd(z, in, in_bytes, out, out_bytes);
        *ended = z->fresh;
        break;
#endif
    default: status = rill__data_fail(RILL_ERR_UNSUPPORTED, "no decompressor"); break;
    }
    return status;
}
