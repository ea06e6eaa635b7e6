/* Reading the file of a reducer: every size is checked before it is used, every byte is under a
 * sum. */
#include "reduce/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define LOAD "rill_reducer_load: "

static const char magic[8] = {'R', 'I', 'L', 'L', 'R', 'E', 'D', '1'};

static bool add_to(uint64_t *sum, uint64_t more) {
    return !__builtin_add_overflow(*sum, more, sum);
}

uint64_t rill__checkpoint_table_sum(const rill__checkpoint *c) {
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    XXH64_update(&state, &c->header, offsetof(rill__checkpoint_header, checksum));
    XXH64_update(&state, c->sections, c->header.ranks * sizeof *c->sections);
    return XXH64_digest(&state);
}

uint64_t rill__checkpoint_section_sum(const rill__checkpoint_section *section,
                                      const void *const from[RILL__KEPT_PARTS]) {
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    for (int i = 0; i < RILL__KEPT_PARTS; i++)
        if (section->bytes[i]) XXH64_update(&state, from[i], section->bytes[i]);
    return XXH64_digest(&state);
}

/* ---- header and table --------------------------------------------------------------------- */

static bool ends(const char name[RILL__CHECKPOINT_NAME]) {
    return memchr(name, '\0', RILL__CHECKPOINT_NAME) != NULL;
}

static rill_status check_header(const rill__checkpoint_source *s,
                                const rill__checkpoint_header *h) {
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return rill__fail(RILL_ERR_IO, LOAD "'%s' is not the file of a reducer", s->path);
    if (h->version != RILL__CHECKPOINT_VERSION)
        return rill__fail(RILL_ERR_IO, LOAD "'%s' has version %u of the format, not %d", s->path,
                          h->version, RILL__CHECKPOINT_VERSION);
    if (!h->ranks || h->ranks > (s->size - sizeof *h) / sizeof(rill__checkpoint_section))
        return rill__fail(RILL_ERR_IO, LOAD "'%s' is too short for its %u ranks", s->path,
                          h->ranks);
    return RILL_OK;
}

/* After the sum was right: what a program that wrote it may still have got wrong. */
static rill_status check_contents(const rill__checkpoint_source *s, const rill__checkpoint *c) {
    const rill__checkpoint_header *h = &c->header;
    uint64_t dense = 0;
    bool sound = h->type <= RILL_BF16 && ends(h->algorithm) && ends(h->method) &&
                 ends(h->asked_algorithm) && ends(h->asked_select) && h->k <= h->dim &&
                 !__builtin_mul_overflow(h->dim, (uint64_t)rill__type_size((rill_type)h->type),
                                         &dense);
    for (uint32_t i = 0; sound && i < h->ranks; i++) {
        const uint64_t *bytes = c->sections[i].bytes;
        for (int part = RILL__KEPT_RESIDUAL; part <= RILL__KEPT_PENDING; part++)
            sound = sound && (!bytes[part] || bytes[part] == dense);
        sound = sound && bytes[RILL__KEPT_SELECTORS] % sizeof(rill__selector_state) == 0;
    }
    if (!sound) return rill__fail(RILL_ERR_IO, LOAD "'%s' has a malformed header", s->path);
    if (c->offsets[h->ranks] != s->size)
        return rill__fail(RILL_ERR_IO, LOAD "'%s' has %llu bytes instead of %llu", s->path,
                          (unsigned long long)s->size, (unsigned long long)c->offsets[h->ranks]);
    return RILL_OK;
}

rill_status rill__checkpoint_arrange(rill__checkpoint *c, rill__checkpoint_section *sections) {
    uint32_t ranks = c->header.ranks;
    c->sections = sections;
    c->offsets = rill__calloc((size_t)ranks + 1, sizeof *c->offsets);
    if (!c->offsets || !sections) {
        rill__checkpoint_close(c);
        return rill__fail(RILL_ERR_MEMORY, "out of memory for the sections of %u ranks", ranks);
    }
    uint64_t end = sizeof c->header + ranks * sizeof *sections;
    for (uint32_t i = 0; i < ranks; i++) {
        c->offsets[i] = end;
        for (int part = 0; part < RILL__KEPT_PARTS; part++)
            if (!add_to(&end, sections[i].bytes[part])) end = UINT64_MAX;
    }
    c->offsets[ranks] = end;
    return RILL_OK;
}

rill_status rill__checkpoint_open(const rill__checkpoint_source *s, rill__checkpoint *c) {
    memset(c, 0, sizeof *c);
    if (s->size < sizeof c->header)
        return rill__fail(RILL_ERR_IO, LOAD "'%s' has %llu bytes, and a header alone has %zu",
                          s->path, (unsigned long long)s->size, sizeof c->header);
    RILL_TRY(s->read(s->context, 0, &c->header, sizeof c->header));
    RILL_TRY(check_header(s, &c->header));
    size_t bytes = c->header.ranks * sizeof *c->sections;
    rill__checkpoint_section *sections = rill__malloc(bytes);
    if (sections) {
        rill_status status = s->read(s->context, sizeof c->header, sections, bytes);
        if (status != RILL_OK) {
            free(sections);
            return status;
        }
    }
    RILL_TRY(rill__checkpoint_arrange(c, sections));
    rill_status status = RILL_OK;
    if (rill__checkpoint_table_sum(c) != c->header.checksum)
        status = rill__fail(RILL_ERR_IO, LOAD "'%s' is damaged: the checksum of its header differs",
                            s->path);
    if (status == RILL_OK) status = check_contents(s, c);
    if (status != RILL_OK) rill__checkpoint_close(c);
    return status;
}

void rill__checkpoint_close(rill__checkpoint *c) {
    free(c->sections);
    free(c->offsets);
    c->sections = NULL;
    c->offsets = NULL;
}

/* ---- sections ----------------------------------------------------------------------------- */

rill_status rill__checkpoint_read(const rill__checkpoint_source *s, const rill__checkpoint *c,
                                  uint32_t rank, void *const to[RILL__KEPT_PARTS]) {
    unsigned char scratch[4096];
    uint64_t at = c->offsets[rank];
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    for (int part = 0; part < RILL__KEPT_PARTS; part++) {
        uint64_t size = c->sections[rank].bytes[part];
        for (uint64_t done = 0; done < size;) {
            char *into = to[part] ? (char *)to[part] + done : (char *)scratch;
            uint64_t most = to[part] ? s->at_once : sizeof scratch;
            uint64_t n = rill__min_u64(most, size - done);
            RILL_TRY(s->read(s->context, at, into, n));
            XXH64_update(&state, into, n);
            done += n;
            at += n;
        }
    }
    if (XXH64_digest(&state) == c->sections[rank].checksum) return RILL_OK;
    return rill__fail(RILL_ERR_IO, LOAD "'%s' is damaged: the checksum of rank %u's part differs",
                      s->path, rank);
}
