/* The reader of a reducer's file on any bytes: it refuses them, or gives sections that have the
 * sizes it promised. With the lowest bit of the first byte set, checksums are made right first, so
 * that what lies behind them is reached too. */
#include "reduce/checkpoint.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) abort();                                                                 \
    } while (0)

typedef struct bytes {
    uint8_t *at;
    size_t size;
} bytes;

static rill_status read_bytes(void *context, uint64_t offset, void *to, size_t n) {
    const bytes *b = context;
    MUST(offset <= b->size && n <= b->size - offset); /* nothing is read that is not there */
    memcpy(to, b->at + offset, n);
    return RILL_OK;
}

static void repair(bytes *b) {
    rill__checkpoint c;
    memset(&c, 0, sizeof c);
    if (b->size < sizeof c.header) return;
    memcpy(&c.header, b->at, sizeof c.header);
    size_t table = c.header.ranks * sizeof(rill__checkpoint_section);
    if (!c.header.ranks || table > b->size - sizeof c.header) return;
    rill__checkpoint_section *sections = malloc(table);
    MUST(sections);
    memcpy(sections, b->at + sizeof c.header, table);
    MUST(rill__checkpoint_arrange(&c, sections) == RILL_OK);
    for (uint32_t i = 0; i < c.header.ranks && c.offsets[i + 1] <= b->size; i++) {
        const void *from[RILL__KEPT_PARTS];
        uint64_t at = c.offsets[i];
        for (int part = 0; part < RILL__KEPT_PARTS; part++) {
            from[part] = b->at + at;
            at += sections[i].bytes[part];
        }
        sections[i].checksum = rill__checkpoint_section_sum(&sections[i], from);
    }
    c.header.checksum = rill__checkpoint_table_sum(&c);
    memcpy(b->at, &c.header, sizeof c.header);
    memcpy(b->at + sizeof c.header, sections, table);
    rill__checkpoint_close(&c);
}

static void read_section(const rill__checkpoint_source *s, const rill__checkpoint *c,
                         uint32_t rank) {
    void *to[RILL__KEPT_PARTS] = {NULL};
    const void *from[RILL__KEPT_PARTS];
    const uint64_t *sizes = c->sections[rank].bytes;
    for (int part = 0; part < RILL__KEPT_PARTS; part++) {
        MUST(sizes[part] <= s->size);
        to[part] = malloc(sizes[part] + 1); /* exactly as much, for the sanitizer */
        MUST(to[part]);
        from[part] = to[part];
    }
    if (rill__checkpoint_read(s, c, rank, to) == RILL_OK)
        MUST(rill__checkpoint_section_sum(&c->sections[rank], from) == c->sections[rank].checksum);
    void *nowhere[RILL__KEPT_PARTS] = {NULL};
    rill__checkpoint_read(s, c, rank, nowhere);
    const rill__selector_state *states = to[RILL__KEPT_SELECTORS];
    for (uint64_t i = 0; i < sizes[RILL__KEPT_SELECTORS] / sizeof *states; i++)
        rill__selector_state_valid(&states[i], c->header.dim);
    for (int part = 0; part < RILL__KEPT_PARTS; part++)
        free(to[part]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    bytes b = {malloc(size), size - 1};
    MUST(b.at);
    memcpy(b.at, data + 1, b.size);
    if (data[0] & 1) repair(&b);
    rill__checkpoint_source s = {.read = read_bytes,
                                 .context = &b,
                                 .size = b.size,
                                 .path = "input",
                                 .at_once = 1 + data[0] / 2};
    rill__checkpoint c;
    if (rill__checkpoint_open(&s, &c) == RILL_OK) {
        MUST(c.offsets[c.header.ranks] == b.size);
        for (uint32_t i = 0; i < c.header.ranks; i++)
            read_section(&s, &c, i);
        rill__checkpoint_close(&c);
    }
    free(b.at);
    return 0;
}
