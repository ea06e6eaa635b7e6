#include "coll/patterns/bundle.h"

#include <string.h>

/* Of a message that was encoded or checked here: all of the header is there. */
static rill__header header_at(const void *start) {
    rill__header h;
    rill__header_read(start, RILL__LONG_BYTES, &h);
    return h;
}

rill_status rill__bundle(rill_request *r, int n, const void *const *start, rill__block **out) {
    rill__part nothing = rill__part_empty(0, 0);
    size_t bytes = 0;
    if (rill__task_failed(&r->task)) return rill__encode(&r->task, &nothing, out);
    for (int i = 0; i < n; i++) {
        rill__header h = header_at(start[i]);
        bytes += rill__message_padded(&h);
    }
    rill__block *block = rill__block_take(&r->task, sizeof(rill__header) + bytes);
    if (!block) {
        rill__task_fail(&r->task, RILL_ERR_MEMORY);
        return rill__encode(&r->task, &nothing, out);
    }
    rill__header bundle = rill__call_header(&r->task);
    bundle.form = RILL__M_BUNDLE;
    bundle.count = (uint64_t)n;
    bundle.value_size = bytes;
    bundle.nnz_sum = bundle.nnz_max = 0; /* the messages have them */
    bundle.layout = (uint8_t)rill__layout_for(&bundle, 0);
    block->bytes = rill__message_size(&bundle);
    char *at = (char *)block->buffer.data + rill__header_write(&bundle, block->buffer.data);
    for (int i = 0; i < n; i++) {
        rill__header h = header_at(start[i]);
        size_t whole = rill__message_size(&h), padded = rill__message_padded(&h);
        memcpy(at, start[i], whole);
        memset(at + whole, 0, padded - whole);
        at += padded;
    }
    *out = block;
    return RILL_OK;
}
