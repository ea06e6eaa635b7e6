/* Messages: one self-describing header, then indices and values together.
 * docs/reference/format.md is the specification.
 *
 * The header has four layouts. In memory there is only the long one; on the wire, messages with
 * entries and bundles go with a short one where its 32-bit fields will do: with many ranks, headers
 * are a good part of the volume.
 *
 * A receiver trusts nothing: sizes, counts, ranges and order are checked before a byte is used. */
#ifndef RILL_REQ_MESSAGE_H
#define RILL_REQ_MESSAGE_H

#include "codec/wire.h"
#include "stream/part.h"

#include <stddef.h>
#include <string.h>

#define RILL__MAGIC UINT32_C(0x4c4c4952) /* "RILL" on a little-endian machine */
#define RILL__VERSION 2
/* The seal: what a header begins with, magic and version, as they lie in memory, and zeros. A link
 * that has a key of its job (link/link.h) has 40 bits of that in their place, so that messages of
 * strangers are known. */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define RILL__SEAL ((uint64_t)RILL__MAGIC << 32 | (uint64_t)RILL__VERSION << 24)
#define RILL__SEAL_MASK UINT64_C(0xffffffffff000000)
#else
#define RILL__SEAL ((uint64_t)RILL__VERSION << 32 | RILL__MAGIC)
#define RILL__SEAL_MASK UINT64_C(0xffffffffff)
#endif
#define RILL__LONG_BYTES 112
#define RILL__SHORT_BYTES 64
#define RILL__BARE_BYTES 48

typedef enum rill__layout {
    RILL__LAYOUT_LONG = 0,
    RILL__LAYOUT_SHORT = 1, /* ends with the statistics */
    RILL__LAYOUT_BARE = 2,  /* short, without them */
    RILL__LAYOUT_WORDS = 3  /* short, with two words of the algorithm in their place */
} rill__layout;

/* Messages of one call travel in lanes, which keep phases apart when any source is awaited. SHORT
 * is for messages of an exchange (rill__exchange_send) of at most RILL__SHORT bytes. */
enum {
    RILL__LANE_A = 0,
    RILL__LANE_B = 1,
    RILL__LANE_AGREE = 2,
    RILL__LANE_SHORT = 3,
    RILL__LANES = 4
};
enum { RILL__SHORT = 1024 };

typedef enum rill__message_form {
    RILL__M_SPARSE = 0,   /* count indices, count values */
    RILL__M_DENSE = 1,    /* range values */
    RILL__M_BUNDLE = 2,   /* count messages, one after the other, each padded to 8 bytes */
    RILL__M_AGREE = 3,    /* 64-bit words */
    RILL__M_FAILED = 4,   /* text of the error in status */
    RILL__M_INQUIRY = 5,  /* no payload: what the sender is waiting in */
    RILL__M_FAREWELL = 6, /* no payload: the sender frees the communicator; first tells the step */
    RILL__M_BLOCKS = 7,   /* block size, numbers of blocks, count values of those blocks */
    RILL__M_GONE = 8,     /* ranks that are gone, 32 bits each: the fate in the upper two */
    RILL__M_PING = 9      /* no payload: whether the receiver is there; first is 1 in the answer */
} rill__message_form;

typedef enum rill__flag {
    RILL__FLAG_VOID = 1 /* a value was not finite: the step of the reducer is void */
} rill__flag;
enum { RILL__FLAGS = 1 }; /* all of them */

/* What the two words at the end of a header are. */
typedef enum rill__tells {
    RILL__TELLS_NNZ = 0,  /* statistics for the planner */
    RILL__TELLS_WORDS = 1 /* what the algorithm tells with its entries */
} rill__tells;

typedef struct rill__header {
    uint32_t magic;
    uint8_t version;
    uint8_t layout; /* rill__layout: how it goes, or came, over the wire */
    uint8_t form;   /* rill__message_form */
    uint8_t type;   /* rill_type */
    uint8_t index_bytes;
    uint8_t index_codec;
    uint8_t value_codec;
    uint8_t collective;
    uint16_t algorithm; /* rill__algorithm_hash of its name; 0: not chosen yet */
    uint16_t memory;    /* hash of what the algorithm remembers of earlier calls; 0: nothing */
    uint32_t op;        /* hash of its name */
    int16_t status;     /* 0, or the sender's error */
    uint8_t flags;      /* rill__flag, of the ranks that this message speaks for */
    uint8_t tells;      /* rill__tells */
    int32_t origin;     /* rank that encoded it; FAILED: where the error arose */
    uint32_t arguments; /* hash of what else must be the same on all ranks: root, options */
    uint64_t seq;       /* number of the call on its communicator */
    uint64_t dim;
    uint64_t first, range;
    uint64_t count;
    uint64_t index_size; /* bytes after the header, padded to 8 */
    uint64_t value_size; /* bytes after the indices */
    union {
        struct {              /* of the ranks that this message speaks for: */
            uint64_t nnz_sum; /* their entries, */
            uint64_t nnz_max; /* and the most of one rank (rill__most_of) */
        };
        uint64_t word[2];
    };
    uint64_t fill; /* bits of what an absent entry stands for */
} rill__header;

/* The short layouts (header.c says what they leave out). */
typedef struct rill__short_header {
    uint32_t magic;
    uint8_t version, layout, form, type; /* to here as in the long layout */
    uint8_t index_codec, value_codec, collective, flags;
    uint16_t algorithm, memory;
    uint32_t op, arguments;
    uint32_t seq, dim, first, range, count, size;
    uint64_t word[2]; /* not in the bare one */
} rill__short_header;

/* nnz_max has three fields: entries, and above them two of 12 bits for what the planner asks of all
 * ranks (plan/learn.h). Of each the largest counts. */
enum { RILL__ENTRIES_BITS = 40 };
#define RILL__ENTRIES ((UINT64_C(1) << RILL__ENTRIES_BITS) - 1)
static inline uint64_t rill__most_of(uint64_t a, uint64_t b) {
    const uint64_t low = UINT64_C(0xfff) << RILL__ENTRIES_BITS, high = low << 12;
    uint64_t entries = rill__max_u64(a & RILL__ENTRIES, b & RILL__ENTRIES);
    if ((a | b) <= RILL__ENTRIES) return entries;
    return entries | rill__max_u64(a & low, b & low) | rill__max_u64(a & high, b & high);
}

/* What the receiver is waiting for; a difference is RILL_ERR_MISMATCH. */
typedef struct rill__expect {
    uint8_t collective;
    uint8_t type;
    uint16_t algorithm;
    uint16_t memory;
    uint32_t op;
    uint32_t arguments;
    uint64_t seq;
    uint64_t dim;
} rill__expect;

typedef struct rill__message {
    rill__header header;
    const char *payload; /* the bytes after the header: index_size + value_size */
} rill__message;

_Static_assert(offsetof(rill__header, layout) == 5, "the seal is what comes before");
static inline void rill__header_seal(rill__header *h, uint64_t seal) { memcpy(h, &seal, 5); }

/* Bytes of the header on the wire. */
static inline size_t rill__header_bytes(const rill__header *h) {
    static const uint8_t bytes[] = {RILL__LONG_BYTES, RILL__SHORT_BYTES, RILL__BARE_BYTES,
                                    RILL__SHORT_BYTES};
    return bytes[h->layout <= RILL__LAYOUT_WORDS ? h->layout : RILL__LAYOUT_LONG];
}
/* The shortest layout for a message with entries, or for a bundle. */
rill__layout rill__layout_for(const rill__header *, uint64_t entries);
/* Writes the header in its layout; returns its bytes. */
size_t rill__header_write(const rill__header *, void *out);
/* Reads a header in either layout and checks nothing but that it is there: false if it is cut off.
 */
bool rill__header_read(const void *bytes, size_t size, rill__header *);
/* Where the message begins on the wire. */
static inline const char *rill__message_start(const rill__message *m) {
    return m->payload - rill__header_bytes(&m->header);
}

uint32_t rill__name_hash(const char *);
uint16_t rill__algorithm_hash(const char *name); /* never 0; no two of a table share it */

/* Whether a header belongs to the expected call; RILL_ERR_MISMATCH says in what it differs. */
rill_status rill__message_check(const rill__header *, const rill__expect *);

/* Bytes of a whole message; 0 if the header's sizes overflow. */
size_t rill__message_size(const rill__header *);
static inline size_t rill__message_padded(const rill__header *h) {
    return rill__align8(rill__message_size(h));
}

/* How a part is written, and what goes with it. */
typedef struct rill__coding {
    const rill__index_codec *index;
    const rill__value_codec *value;
    rill__quant_key key; /* of the random rounding; lossy value codecs only */
    /* for rill__encode */
    bool forced;           /* index is for all messages: else small ones go raw */
    bool turns_dense;      /* pairs that are smaller in dense form go in that */
    bool packs_dense;      /* a dense sum goes as bits and values where that is smaller */
    bool shared;           /* another rank encodes the same, and answers for what coding loses */
    const uint64_t *words; /* two words of the algorithm's, for the header; NULL: statistics */
} rill__coding;
/* key.hop: the next of the task, so that no two messages share random numbers. */
#define RILL__NEXT_HOP UINT32_MAX

/* Most bytes that encoding the part may take, header included. */
size_t rill__message_bound(rill__shape, const rill__coding *, const rill__part *);
/* Writes header and payload to out, which has room for the bound and slack. Fields of *header that
 * describe the call (seal, collective, algorithm, op, seq, dim, status, statistics) are the
 * caller's; the others are set here. Returns the size. */
size_t rill__message_encode(rill__header *, rill__shape, const rill__coding *, const rill__part *,
                            void *out);

/* Checks the header of a message of size bytes (all there, or just its first part when partial) and
 * that it is the one expected. seal: what it must begin with; 0: this rank has written it, or has
 * checked that before. */
rill_status rill__message_parse(const void *bytes, size_t size, uint64_t seal, const rill__expect *,
                                bool partial, rill__message *);
/* Whether a message that is malformed does not even begin with the seal. */
bool rill__message_strange(const void *bytes, size_t size, uint64_t seal);
/* Whether a message of that form has entries. */
static inline bool rill__form_has_entries(unsigned form) {
    return form == RILL__M_SPARSE || form == RILL__M_DENSE || form == RILL__M_BLOCKS;
}
typedef enum rill__bits {
    RILL__BITS_NONE, /* it has none, or is better read as pairs */
    RILL__BITS_THERE,
    RILL__BITS_BROKEN /* RILL_ERR_MESSAGE, with a detail */
} rill__bits;
/* A sparse message of f32 as bits and values, where they lie. */
rill__bits rill__message_bits(const rill__message *, rill__part *);
/* Gives the entries of a SPARSE, DENSE or BLOCKS message. What is raw is borrowed from the message,
 * the rest decoded into room. The message must lie in memory with slack. */
rill_status rill__message_part(const rill__message *, void *room, rill__part *);
/* Room that rill__message_part needs; 0 when it borrows. */
size_t rill__message_room(const rill__message *);
/* The message at *offset of a bundle; advances it. Past the last: RILL_ERR_MESSAGE. */
rill_status rill__message_next(const rill__message *bundle, uint64_t seal, const rill__expect *,
                               size_t *offset, rill__message *);

#endif
