/* Bit-packed, Elias-Fano and Rice indices against the library's codecs, with messages that are
 * wrong. */
#include "test_cuda.h"

#include "codec/codec.h"

static uint64_t draw(uint64_t first, uint64_t range, double density, bool uneven, uint32_t *idx) {
    rng r = rng_make(9, range);
    uint64_t count = 0;
    for (uint64_t i = 0; i < range; i++) {
        double here = uneven && i / 1000 % 5 ? density / 50 : density;
        if (rng_unit(&r) < here) idx[count++] = (uint32_t)(first + i);
    }
    return count;
}

typedef struct codec_under_test {
    const rill__index_codec *host;
    int (*encode)(const uint32_t *, uint64_t, uint64_t, uint64_t, void *, uint64_t *, void *,
                  void *);
    int (*decode)(const void *, size_t, uint64_t, uint64_t, uint64_t, uint32_t *, uint32_t *,
                  void *, void *);
    size_t (*workspace)(uint64_t count, uint64_t range);
} codec_under_test;

static int bitpack_encode(const uint32_t *idx, uint64_t count, uint64_t first, uint64_t range,
                          void *out, uint64_t *bytes, void *work, void *stream) {
    (void)range;
    return cuda->bitpack(idx, count, first, out, bytes, work, stream);
}
static size_t bitpack_workspace(uint64_t count, uint64_t range) {
    (void)range;
    return cuda->bitpack_workspace(count);
}

static size_t rice_workspace(uint64_t count, uint64_t range) {
    (void)range;
    return cuda->rice_workspace(count);
}
static int rice_encode(const uint32_t *idx, uint64_t count, uint64_t first, uint64_t range,
                       void *out, uint64_t *bytes, void *work, void *stream) {
    (void)range;
    return cuda->rice(idx, count, first, out, bytes, work, stream);
}
/* The host finds the chunks, and may find that there are none. */
static int rice_decode(const void *in, size_t bytes, uint64_t count, uint64_t first, uint64_t range,
                       uint32_t *idx, uint32_t *wrong, void *work, void *stream) {
    const size_t chunks = (size_t)(count / rill__codec_rice.chunk + 2) * sizeof(uint64_t);
    uint8_t *code = calloc(1, bytes + RILL__SLACK);
    uint64_t *chunk = calloc(1, chunks);
    int error;
    cuda_download(code, in, bytes);
    if (rill__codec_rice.find_chunks(code, bytes, count, range, chunk) == RILL_OK) {
        uint64_t *d_chunk = cuda_upload(chunk, chunks);
        error = cuda->rice_decode(in, bytes, d_chunk, count, first, range, idx, wrong, work,
                                  stream);
        CUDA(cuda->stream_wait(stream));
        cuda_free(d_chunk);
    } else {
        error = cuda->fill(wrong, 1, sizeof *wrong, stream);
    }
    free(code);
    free(chunk);
    return error;
}

/* What the device says about a message that may be wrong; the host's word counts. */
static void hostile(const codec_under_test *c, const uint8_t *code, size_t bytes, uint64_t count,
                    uint64_t first, uint64_t range, uint32_t *d_idx, void *work) {
    rng r = rng_make(3, bytes);
    uint32_t *idx = malloc(count * 4 + RILL__SLACK), *d_wrong = cuda_new(4), wrong;
    for (int i = 0; i < 12; i++) {
        uint8_t *bent = calloc(1, bytes + RILL__SLACK);
        size_t used, kept = i < 9 ? bytes : rng_below(&r, bytes) + 1;
        memcpy(bent, code, kept);
        if (i < 9)
            bent[rng_below(&r, i < 5 ? bytes : 1 + bytes / 20)] ^= (uint8_t)(1u
                                                                             << rng_below(&r, 8));
        bool fine = c->host->decode(4, bent, kept, count, first, range, idx, &used) == RILL_OK &&
                    used == kept;
        void *d_bent = cuda_upload(bent, kept);
        CUDA(c->decode(d_bent, kept, count, first, range, d_idx, d_wrong, work, cuda_stream));
        cuda_download(&wrong, d_wrong, 4);
        uint32_t *got = malloc(count * 4 + 8);
        cuda_download(got, d_idx, count * 4);
        bool ascends = true; /* what is not called wrong can be used, whatever the message said */
        for (uint64_t j = 0; j < count; j++)
            ascends = ascends && got[j] - first < range && (!j || got[j] > got[j - 1]);
        if (fine)
            cuda_case(!wrong && memcmp(got, idx, count * 4) == 0,
                      "%s: a valid message is refused or misread", c->host->name);
        else cuda_case(wrong || ascends, "%s: a wrong message gives wrong indices", c->host->name);
        free(got);
        cuda_free(d_bent);
        free(bent);
    }
    cuda_free(d_wrong);
    free(idx);
}

static void codec_case(const codec_under_test *c, uint64_t first, uint64_t range, double density,
                       bool uneven) {
    uint32_t *idx = malloc(range * 4 + RILL__SLACK), *got = malloc(range * 4);
    uint64_t count = draw(first, range, density, uneven, idx), bytes;
    size_t bound = c->host->bound(4, count, range), room = (bound + 7) / 8 * 8;
    uint8_t *code = calloc(1, room + RILL__SLACK), *out = malloc(room + 8);
    size_t size = count ? c->host->encode(4, idx, count, first, range, code) : 0;
    uint32_t *d_idx = cuda_upload(idx, count * 4), *d_wrong = cuda_new(4), wrong;
    void *d_out = cuda_new(room), *work = cuda_new(c->workspace(count, range));
    uint64_t *d_bytes = cuda_new(8);
    CUDA(c->encode(d_idx, count, first, range, d_out, d_bytes, work, cuda_stream));
    cuda_download(&bytes, d_bytes, 8);
    cuda_download(out, d_out, room);
    cuda_case(bytes == size && memcmp(out, code, size) == 0,
              "%s of %llu in %llu: %llu bytes, not %zu", c->host->name, (unsigned long long)count,
              (unsigned long long)range, (unsigned long long)bytes, size);
    if (count) {
        CUDA(cuda->fill(d_idx, 0xff, count * 4, cuda_stream));
        CUDA(c->decode(d_out, size, count, first, range, d_idx, d_wrong, work, cuda_stream));
        cuda_download(&wrong, d_wrong, 4);
        cuda_download(got, d_idx, count * 4);
        cuda_case(!wrong && memcmp(got, idx, count * 4) == 0, "%s back of %llu in %llu, wrong %u",
                  c->host->name, (unsigned long long)count, (unsigned long long)range, wrong);
        if (range < 5000) hostile(c, code, size, count, first, range, d_idx, work);
    }
    cuda_free(d_idx);
    cuda_free(d_wrong);
    cuda_free(d_out);
    cuda_free(work);
    cuda_free(d_bytes);
    free(idx);
    free(got);
    free(code);
    free(out);
}

void test_indices(void) {
    const codec_under_test codecs[] = {{&rill__codec_bitpack, bitpack_encode, cuda->bitunpack,
                                        bitpack_workspace},
                                       {&rill__codec_elias_fano, cuda->elias_fano,
                                        cuda->elias_fano_decode, cuda->elias_fano_workspace},
                                       {&rill__codec_rice, rice_encode, rice_decode,
                                        rice_workspace}};
    static const uint64_t ranges[] = {1,   2,    127,  128,  129,   255,
                                      257, 1000, 1024, 4000, 20000, 100003};
    static const double densities[] = {1, 0.5, 0.1, 0.01, 0.0005};
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
            for (size_t d = 0; d < sizeof densities / sizeof *densities; d++) {
                codec_case(&codecs[c], 0, ranges[i], densities[d], false);
                codec_case(&codecs[c], 4000000000u, ranges[i], densities[d], true);
            }
}
