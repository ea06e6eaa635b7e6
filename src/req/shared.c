#include "req/shared.h"
#include "req/request.h"
#include "space/space.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Areas start here and are padded to this, so that no two share a line. */
enum { ALIGNMENT = 64 };
/* Bytes of an area from which on it is written past the caches: out of those of another processor,
 * where it would be the only copy, it is read no faster than out of memory. */
enum { LARGE = 1 << 20 };
/* Of each rank's areas, when a communicator is made. */
enum { FIRST_BYTES = 1 << 16 };

enum { FORM, FIRST, RANGE, COUNT, AT }; /* words */

/* Before the entries of an area. */
typedef struct area_head {
    _Alignas(ALIGNMENT) _Atomic uint32_t readers; /* who have yet to read it */
} area_head;

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

/* Of a part: indices and values, each with slack. False: more than memory has. */
static bool sizes_of(rill__shape shape, unsigned form, uint64_t n, size_t *indices, size_t *all) {
    size_t idx = 0, val, limit = SIZE_MAX / 4;
    if (form == RILL__SPARSE && !rill__size_mul(n, shape.index_bytes, &idx)) return false;
    if (!rill__size_mul(n, rill__type_size(shape.type), &val) || idx > limit || val > limit)
        return false;
    *indices = form == RILL__SPARSE ? aligned(idx + RILL__SLACK) : 0;
    *all = *indices + aligned(val + RILL__SLACK);
    return true;
}

/* Boxes for mail come first, where every segment of the host has room for them: all its ranks know
 * the sizes of all. */
static void open_mail(rill__shared *s, const rill__hosts *hosts, size_t boxes) {
    bool fits = boxes != 0;
    for (int i = 0; i < hosts->here; i++)
        fits &= s->bytes[i] >= boxes;
    if (!fits) {
        rill__mail_close(&s->mail);
        return;
    }
    rill__mail_open(&s->mail, hosts, s->segment);
    s->boxes = boxes;
    for (int i = 0; i < hosts->here; i++) {
        s->segment[i] += boxes;
        s->bytes[i] -= boxes;
    }
}

rill_status rill__shared_create(rill__shared *s, rill__link *link, const rill__hosts *hosts,
                                uint64_t bytes, uint64_t mail) {
    memset(s, 0, sizeof *s);
    s->link = link;
    if (!hosts->shares || hosts->most == 1 || !link->table->share) return RILL_OK;
    if (!bytes && (!mail || !link->has_mail)) return RILL_OK;
    bool shared = false;
    size_t here = (size_t)hosts->here;
    size_t boxes = rill__mail_reserve(&s->mail, link, hosts, mail);
    s->segment = rill__calloc(here, sizeof *s->segment);
    s->bytes = rill__calloc(here, sizeof *s->bytes);
    bool room = s->segment && s->bytes && (s->mail.pairs || !boxes);
    rill__share_bytes sizes = {boxes + rill__min_u64(bytes, FIRST_BYTES), boxes + bytes};
    RILL_TRY(link->table->share(link, hosts, sizes, room ? s->segment : NULL,
                                room ? s->bytes : NULL, &shared));
    if (!shared) {
        rill__mail_close(&s->mail);
        return RILL_OK;
    }
    open_mail(s, hosts, boxes);
    s->n = hosts->here;
    s->own = s->segment[hosts->place];
    s->most = s->bytes[hosts->place];
    s->has = link->table->grow ? (size_t)sizes.now - s->boxes : s->most;
    return RILL_OK;
}

void rill__shared_free(rill__shared *s) {
    if (s->segment && s->link->table->unshare) s->link->table->unshare(s->link);
    free(s->segment);
    free(s->bytes);
    rill__mail_close(&s->mail);
    memset(s, 0, sizeof *s);
}

/* ---- areas ----------------------------------------------------------------------------------- */

static area_head *head_at(char *segment, size_t at) { return (area_head *)(segment + at); }

/* What everybody has read is free again. */
static void free_areas(rill__shared *s) {
    while (s->used) {
        area_head *oldest = head_at(s->own, s->areas[s->oldest].at);
        if (atomic_load_explicit(&oldest->readers, memory_order_acquire)) break;
        s->oldest = (s->oldest + 1) % RILL__SHARED_AREAS;
        s->used--;
    }
}

/* Bytes of the segment that may be used, need at least; more are asked for than that, so that calls
 * that grow do not ask each time. Less: there are no more. */
static size_t grow(rill__shared *s, size_t need) {
    const rill__link *link = s->link;
    bool may = need > s->has && need <= s->most && link->table->grow &&
               (!s->denied || need < s->denied);
    if (!may) return s->has;
    size_t want = (size_t)rill__min_u64(need + need / 4, s->most);
    if (link->table->grow(s->link, s->boxes + want)) s->has = want;
    else if (link->table->grow(s->link, s->boxes + need)) s->has = need;
    else s->denied = need;
    return s->has;
}

/* Room for bytes in a row; SIZE_MAX: none. As low as can be: what was written to lately is in the
 * caches, and has its pages. */
static size_t take_area(rill__shared *s, size_t bytes) {
    free_areas(s);
    if (s->used == RILL__SHARED_AREAS || bytes > s->most) return SIZE_MAX;
    size_t at = 0, limit;
    if (s->used) {
        size_t start = s->areas[s->oldest].at;
        size_t end = s->areas[(s->oldest + s->used - 1) % RILL__SHARED_AREAS].end;
        bool round = end <= start; /* they have gone round: free is what lies between */
        if (round || bytes > start) at = end;
        limit = round || !at ? start : grow(s, end + bytes);
    } else {
        limit = grow(s, bytes);
    }
    if (at > limit || bytes > limit - at) return SIZE_MAX;
    int last = (s->oldest + s->used++) % RILL__SHARED_AREAS;
    s->areas[last].at = at;
    s->areas[last].end = at + bytes;
    return at;
}

/* Rounded up by an eighth at most: areas of calls that differ a little take each other's place. */
static size_t area_bytes(size_t bytes) {
    size_t unit = ALIGNMENT;
    while (unit * 8 < bytes)
        unit *= 2;
    return (bytes + unit - 1) & ~(unit - 1);
}

bool rill__shared_put(rill__shared *s, rill__shape shape, const rill__part *part, int readers,
                      uint64_t words[RILL__SHARED_WORDS]) {
    size_t indices, bytes;
    if (!s->n || part->form == RILL__BLOCKS ||
        !sizes_of(shape, part->form, part->n, &indices, &bytes))
        return false;
    size_t at = take_area(s, area_bytes(sizeof(area_head) + bytes));
    if (at == SIZE_MAX) return false;
    area_head *head = head_at(s->own, at);
    char *entries = (char *)(head + 1);
    size_t values = part->n * rill__type_size(shape.type);
    if (bytes < LARGE) {
        if (part->n && indices) memcpy(entries, part->idx, part->n * shape.index_bytes);
        if (part->n) memcpy(entries + indices, part->val, values);
    } else {
        if (indices) rill__copy_past(entries, part->idx, part->n * shape.index_bytes);
        rill__copy_past(entries + indices, part->val, values);
        rill__copied_past();
    }
    atomic_store_explicit(&head->readers, (uint32_t)readers, memory_order_release);
    words[FORM] = (uint64_t)part->form;
    words[FIRST] = part->first;
    words[RANGE] = part->range;
    words[COUNT] = part->n;
    words[AT] = at;
    return true;
}

rill_status rill__shared_get(rill__shared *s, int place, rill__shape shape, uint64_t dim,
                             const uint64_t words[RILL__SHARED_WORDS], rill__part *part) {
    size_t indices = 0, bytes = 0;
    bool dense = words[FORM] == RILL__DENSE;
    bool good = place < s->n && (dense || words[FORM] == RILL__SPARSE) && words[RANGE] <= dim &&
                words[FIRST] <= dim - words[RANGE] && words[COUNT] <= words[RANGE] &&
                (!dense || words[COUNT] == words[RANGE]) && words[AT] % ALIGNMENT == 0 &&
                sizes_of(shape, (unsigned)words[FORM], words[COUNT], &indices, &bytes) &&
                words[AT] <= s->bytes[place] && bytes <= s->bytes[place] - words[AT] &&
                sizeof(area_head) <= s->bytes[place] - words[AT] - bytes;
    if (!good)
        return rill__fail(RILL_ERR_MESSAGE,
                          "malformed message: a part does not fit into shared memory");
    area_head *head = head_at(s->segment[place], words[AT]);
    /* The message with the words came after the entries were written: this sees them all. */
    (void)atomic_load_explicit(&head->readers, memory_order_acquire);
    char *entries = (char *)(head + 1);
    part->form = dense ? RILL__DENSE : RILL__SPARSE;
    part->first = words[FIRST];
    part->range = words[RANGE];
    part->n = words[COUNT];
    part->idx = dense ? NULL : entries;
    part->val = entries + indices;
    part->block = 0;
    part->space = NULL;
    return RILL_OK;
}

void rill__shared_release(rill__shared *s, int place, const uint64_t words[RILL__SHARED_WORDS]) {
    area_head *head = head_at(s->segment[place], words[AT]);
    atomic_fetch_sub_explicit(&head->readers, 1, memory_order_release);
}
