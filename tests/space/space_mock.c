#include "space/space_mock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ARENA = 1 << 24, MOST_PENDING = 64, MOST_AREAS = 4096 };

/* Memory in use, by offset. */
typedef struct area {
    size_t first, bytes;
} area;

/* An operation that waits; copy_in keeps what it was given. */
typedef struct pending {
    rill__operation operation;
    void *kept;
} pending;

typedef struct mock {
    rill__space space;
    char *arena;
    area areas[MOST_AREAS];
    int n_areas;
    pending queue[MOST_PENDING];
    int n_pending;
    int open; /* depth of what may touch the pages */
    bool fails;
    mock_counts counts;
} mock;

static mock *mock_of(const rill__space *s) { return s->state; }

static void die(const char *what) {
    fprintf(stderr, "mock space: %s\n", what);
    abort();
}

static void protect(mock *m, int protection) {
    if (mprotect(m->arena, ARENA, protection)) die("mprotect fails");
}
static void open_pages(mock *m) {
    if (m->open++ == 0) protect(m, PROT_READ | PROT_WRITE);
}
static void close_pages(mock *m) {
    if (--m->open == 0) protect(m, PROT_NONE);
}

/* ---- memory ------------------------------------------------------------------------------- */

/* First fit; areas are in order. */
static void *allocate(const rill__memory *memory, size_t bytes) {
    mock *m = mock_of((const rill__space *)memory);
    size_t padded = (bytes + RILL__SLACK + 63) & ~(size_t)63, at = 0;
    int i = 0;
    if (m->fails) return NULL;
    for (; i < m->n_areas && at + padded > m->areas[i].first; i++)
        at = m->areas[i].first + m->areas[i].bytes;
    if (at + padded > ARENA || m->n_areas == MOST_AREAS) return NULL;
    memmove(&m->areas[i + 1], &m->areas[i], (size_t)(m->n_areas - i) * sizeof *m->areas);
    m->areas[i] = (area){at, padded};
    m->n_areas++;
    m->counts.allocations++;
    open_pages(m); /* what is not written must not be read: NaNs of any type */
    memset(m->arena + at, 0xff, padded);
    close_pages(m);
    return m->arena + at;
}

static rill_status wait_all(const rill__space *);

/* As a device's free does, it waits: an operation may still use the memory. */
static void release(const rill__memory *memory, void *data, size_t bytes) {
    mock *m = mock_of((const rill__space *)memory);
    size_t at = (size_t)((char *)data - m->arena);
    (void)bytes;
    if (!m->open) wait_all(&m->space);
    int i = 0;
    while (i < m->n_areas && m->areas[i].first != at)
        i++;
    if (i == m->n_areas) die("released what was not allocated");
    m->n_areas--;
    memmove(&m->areas[i], &m->areas[i + 1], (size_t)(m->n_areas - i) * sizeof *m->areas);
    m->counts.releases++;
}

/* Whether bytes at p are memory in use. */
static bool is_ours(const mock *m, const void *p, size_t bytes) {
    if ((const char *)p < m->arena || (const char *)p >= m->arena + ARENA) return false;
    size_t at = (size_t)((const char *)p - m->arena);
    for (int i = 0; i < m->n_areas; i++)
        if (at >= m->areas[i].first && at + bytes <= m->areas[i].first + m->areas[i].bytes)
            return true;
    return false;
}

/* ---- operations --------------------------------------------------------------------------- */

static void check_array(const mock *m, const void *p, size_t bytes) {
    if (bytes && !is_ours(m, p, bytes)) die("an operation has an array of another memory");
}

/* Arrays as long as they are known to be from the operation alone. */
static void check_arrays(const mock *m, const rill__operation *o) {
    size_t size = rill__type_size(o->type), n = o->n * size;
    switch (o->kind) {
    case RILL__DO_COPY:
    case RILL__DO_CLEAR: n = o->n; break;
    case RILL__DO_SHIFT:
        check_array(m, o->into, o->n * o->index_bytes);
        check_array(m, o->from, o->n * o->from_bytes);
        return;
    default: break;
    }
    check_array(m, o->into, o->into ? n : 0);
    check_array(m, o->from, o->from ? n : 0);
    size_t indices = o->block ? (o->pairs.n + o->block - 1) / o->block * 8
                              : o->pairs.n * o->index_bytes;
    check_array(m, o->pairs.idx, indices);
    check_array(m, o->pairs.val, o->pairs.n * size);
    check_array(m, o->mask.idx, o->mask.n * o->index_bytes);
    if (o->pairs.n) check_array(m, o->into, 1);
}

/* By the host's code, which finds the pages open. */
static void run_now(mock *m, const pending *p, rill__answer *answer) {
    const rill__space *host = rill__host();
    if (!p->kept) check_arrays(m, &p->operation);
    else check_array(m, p->operation.into, p->operation.n);
    open_pages(m);
    host->run(host, &p->operation, answer);
    close_pages(m);
    free(p->kept);
    m->counts.operations++;
}

static rill_status poll_one(const rill__space *s) {
    mock *m = mock_of(s);
    if (!m->n_pending) return RILL_OK;
    pending first = m->queue[0];
    m->n_pending--;
    memmove(m->queue, m->queue + 1, (size_t)m->n_pending * sizeof *m->queue);
    run_now(m, &first, NULL);
    m->counts.late++;
    return m->n_pending ? RILL_IN_PROGRESS : RILL_OK;
}

static rill_status wait_all(const rill__space *s) {
    while (poll_one(s) != RILL_OK)
        ;
    return RILL_OK;
}

static void enqueue(mock *m, const pending *p) {
    if (m->n_pending == MOST_PENDING) poll_one(&m->space);
    m->queue[m->n_pending++] = *p;
}

static void run(const rill__space *s, const rill__operation *o, rill__answer *answer) {
    mock *m = mock_of(s);
    pending p = {*o, NULL};
    if (!answer) {
        enqueue(m, &p);
        return;
    }
    wait_all(s);
    run_now(m, &p, answer);
}

static rill_status copy_in(const rill__space *s, void *to, const void *host, size_t bytes) {
    mock *m = mock_of(s);
    if (is_ours(m, host, 1)) die("copy_in from its own memory");
    void *kept = malloc(bytes + 1);
    if (!kept) return rill__fail(RILL_ERR_MEMORY, "out of memory");
    memcpy(kept, host, bytes);
    pending p = {{.kind = RILL__DO_COPY, .into = to, .from = kept, .n = bytes}, kept};
    enqueue(m, &p);
    m->counts.bytes_in += bytes;
    return RILL_OK;
}

static rill_status copy_out(const rill__space *s, void *host, const void *from, size_t bytes) {
    mock *m = mock_of(s);
    if (is_ours(m, host, 1)) die("copy_out to its own memory");
    wait_all(s);
    check_array(m, from, bytes);
    open_pages(m);
    memcpy(host, from, bytes);
    close_pages(m);
    m->counts.bytes_out += bytes;
    return RILL_OK;
}

static rill_status call(const rill__space *s, rill_status (*fn)(void *), void *context) {
    mock *m = mock_of(s);
    wait_all(s);
    open_pages(m);
    rill_status status = fn(context);
    close_pages(m);
    m->counts.calls++;
    return status;
}

/* ---- life cycle --------------------------------------------------------------------------- */

const rill__space *mock_create(void) {
    mock *m = calloc(1, sizeof *m);
    const rill__space *host = rill__host();
    if (!m) die("out of memory");
    m->arena = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->arena == MAP_FAILED) die("mmap fails");
    m->space = (rill__space){.memory = {allocate, release},
                             .name = "mock",
                             .kind = RILL_CUDA,
                             .device = 0,
                             .stream = host->stream,
                             .select = host->select,
                             .codec = host->codec,
                             .copy_in = copy_in,
                             .copy_out = copy_out,
                             .run = run,
                             .call = call,
                             .poll = poll_one,
                             .wait = wait_all,
                             .state = m};
    return &m->space;
}

void mock_free(const rill__space *s) {
    mock *m = mock_of(s);
    wait_all(s);
    if (m->n_areas) die("memory was not released");
    munmap(m->arena, ARENA);
    free(m);
}

mock_counts mock_counted(const rill__space *s) { return mock_of(s)->counts; }
void mock_fail_allocations(const rill__space *s, bool fail) { mock_of(s)->fails = fail; }
uint64_t mock_pending(const rill__space *s) { return (uint64_t)mock_of(s)->n_pending; }
