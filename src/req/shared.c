#include "req/shared.h"
#include "req/request.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* Areas start here and are padded to this, so that no two share a line. */
enum { ALIGNMENT = 64 };

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

#ifdef SMPI_H

rill_status rill__shared_create(rill__shared *s, MPI_Comm mpi, const rill__hosts *hosts,
                                uint64_t bytes) {
    (void)mpi, (void)hosts, (void)bytes;
    s->n = 0;
    return RILL_OK;
}
void rill__shared_free(rill__shared *s) { (void)s; }
static void synchronise(rill__shared *s) { (void)s; }

#else

/* MPI takes the memory from here, and whoever touches more than is left gets SIGBUS: containers have
 * as little as 64 MiB. */
static uint64_t affordable(uint64_t bytes, int ranks) {
    struct statvfs room;
    if (statvfs("/dev/shm", &room) != 0) return bytes;
    uint64_t share = (uint64_t)room.f_bavail * room.f_frsize / 4 / (unsigned)ranks;
    return rill__min_u64(bytes, share);
}

static bool open_window(rill__shared *s, int place, uint64_t bytes) {
    MPI_Info info;
    void *unaligned;
    s->segment = calloc((size_t)s->n, sizeof *s->segment);
    s->bytes = calloc((size_t)s->n, sizeof *s->bytes);
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");
    int code = MPI_Win_allocate_shared((MPI_Aint)bytes, 1, info, s->host, &unaligned, &s->win);
    MPI_Info_free(&info);
    int good = code == MPI_SUCCESS && s->segment && s->bytes, all = 0;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, s->host);
    if (!all) return false; /* a window that some have cannot be freed: it stays */
    MPI_Win_set_errhandler(s->win, MPI_ERRORS_RETURN);
    for (int i = 0; i < s->n; i++) {
        MPI_Aint size = 0;
        int unit;
        MPI_Win_shared_query(s->win, i, &size, &unit, &s->segment[i]);
        /* Open MPI's are not aligned. All ranks map pages, so that all skip the same. */
        size_t skip = -(uintptr_t)s->segment[i] & (ALIGNMENT - 1);
        s->segment[i] += skip;
        s->bytes[i] = (size_t)size > skip ? (size_t)size - skip : 0;
    }
    s->own = s->segment[place];
    s->own_size = s->bytes[place];
    return MPI_Win_lock_all(MPI_MODE_NOCHECK, s->win) == MPI_SUCCESS;
}

rill_status rill__shared_create(rill__shared *s, MPI_Comm mpi, const rill__hosts *hosts,
                                uint64_t bytes) {
    memset(s, 0, sizeof *s);
    if (!bytes || !hosts->shares || hosts->most == 1) return RILL_OK;
    int color = hosts->here > 1 ? hosts->mine : MPI_UNDEFINED;
    int code = MPI_Comm_split(mpi, color, hosts->place, &s->host);
    if (code != MPI_SUCCESS) return rill__mpi_error(code, "MPI_Comm_split");
    if (s->host == MPI_COMM_NULL) return RILL_OK;
    s->open = true;
    s->n = hosts->here;
    if (!open_window(s, hosts->place, affordable(bytes, s->n))) s->n = 0;
    return RILL_OK;
}

void rill__shared_free(rill__shared *s) {
    if (s->n) {
        MPI_Win_unlock_all(s->win);
        MPI_Win_free(&s->win);
    }
    if (s->open) MPI_Comm_free(&s->host);
    free(s->segment);
    free(s->bytes);
    memset(s, 0, sizeof *s);
}

static void synchronise(rill__shared *s) { MPI_Win_sync(s->win); }

#endif

/* ---- areas ------------------------------------------------------------------------------------------ */

static area_head *head_at(char *segment, size_t at) { return (area_head *)(segment + at); }

/* Room for bytes in a row; SIZE_MAX: none. */
static size_t take_area(rill__shared *s, size_t bytes) {
    while (s->used) { /* what everybody has read is free again */
        area_head *oldest = head_at(s->own, s->areas[s->oldest].at);
        if (atomic_load_explicit(&oldest->readers, memory_order_acquire)) break;
        s->oldest = (s->oldest + 1) % RILL__SHARED_AREAS;
        s->used--;
    }
    if (s->used == RILL__SHARED_AREAS || bytes > s->own_size) return SIZE_MAX;
    size_t at = 0, limit = s->own_size;
    if (s->used) {
        size_t start = s->areas[s->oldest].at;
        size_t end = s->areas[(s->oldest + s->used - 1) % RILL__SHARED_AREAS].end;
        at = end;
        if (end <= start) limit = start; /* it has gone round: free is what lies between */
        else if (bytes > limit - at) at = 0, limit = start;
    }
    if (bytes > limit - at) return SIZE_MAX;
    int last = (s->oldest + s->used++) % RILL__SHARED_AREAS;
    s->areas[last].at = at;
    s->areas[last].end = at + bytes;
    return at;
}

bool rill__shared_put(rill__shared *s, rill__shape shape, const rill__part *part, int readers,
                      uint64_t words[RILL__SHARED_WORDS]) {
    size_t indices, bytes;
    if (!s->n || part->form == RILL__BLOCKS ||
        !sizes_of(shape, part->form, part->n, &indices, &bytes))
        return false;
    size_t at = take_area(s, sizeof(area_head) + bytes);
    if (at == SIZE_MAX) return false;
    area_head *head = head_at(s->own, at);
    char *entries = (char *)(head + 1);
    if (part->n && indices) memcpy(entries, part->idx, part->n * shape.index_bytes);
    if (part->n) memcpy(entries + indices, part->val, part->n * rill__type_size(shape.type));
    atomic_store_explicit(&head->readers, (uint32_t)readers, memory_order_release);
    synchronise(s);
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
    synchronise(s);
    char *entries = (char *)(head_at(s->segment[place], words[AT]) + 1);
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
