/* What the messages of a world consist of. Uses private headers of the library. */
#ifndef RILL_LAB_COUNTS_H
#define RILL_LAB_COUNTS_H

#include "req/message.h"

/* Bytes that were sent, by what they are. A bundle's messages count as messages of their own. */
typedef struct counts {
    uint64_t pairs;    /* indices and values; numbers and values of blocks; values of dense parts */
    uint64_t rounding; /* indices take a multiple of 8 bytes */
    uint64_t words;    /* agreements, and the arrays of dense sums */
    uint64_t headers;  /* of messages, */
    uint64_t bundling; /* of bundles, and what pads messages in them */
    uint64_t parts;    /* messages */
} counts;

static inline uint64_t counts_entries(const counts *c) { return c->pairs + c->rounding + c->words; }
static inline uint64_t counts_headers(const counts *c) { return c->headers + c->bundling; }

static inline void counts_add_part(counts *c, const rill__header *h, size_t bytes) {
    uint64_t payload = h->index_size + h->value_size, indices = h->index_size;
    c->parts++;
    c->headers += bytes - payload;
    if (h->form == RILL__M_AGREE) {
        c->words += payload;
        return;
    }
    /* Raw indices; those of other codecs have no size that could be known. */
    if (h->form == RILL__M_SPARSE && h->index_codec == 0) indices = h->count * h->index_bytes;
    c->pairs += indices + h->value_size;
    c->rounding += h->index_size - indices;
}

static inline void counts_add(counts *c, const char *at, size_t bytes) {
    rill__message m;
    if (rill__message_parse(at, bytes, RILL__SEAL, NULL, false, &m) != RILL_OK) return;
    if (m.header.form != RILL__M_BUNDLE) {
        counts_add_part(c, &m.header, bytes);
        return;
    }
    size_t inside = 0, whole, payload = m.header.value_size;
    c->bundling += bytes - payload;
    for (uint64_t i = 0; i < m.header.count && inside < payload; i++) {
        rill__header one;
        if (!rill__header_read(m.payload + inside, payload - inside, &one)) return;
        whole = rill__message_size(&one);
        counts_add_part(c, &one, whole);
        c->bundling += rill__message_padded(&one) - whole;
        inside += rill__message_padded(&one);
    }
}

/* What all of n ranks have sent. */
static inline counts counts_sum(const counts *c, int n) {
    counts all = {0};
    for (int i = 0; i < n; i++) {
        all.pairs += c[i].pairs;
        all.rounding += c[i].rounding;
        all.words += c[i].words;
        all.headers += c[i].headers;
        all.bundling += c[i].bundling;
        all.parts += c[i].parts;
    }
    return all;
}

#endif
