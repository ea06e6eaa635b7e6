/* The link over UCX: how ranks find each other, and part. See link/link_ucx.h. */
#include "link/link_ucx_own.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Seconds until ranks that do not connect are an error. */
#define CONNECT_PATIENCE 60.0
enum { MAGIC = 0x58554c52, VERSION = 6 };
/* Ranks up to which the calm way is connected at once. */
enum { CALM_AT_ONCE = 256 };

typedef rill__link_ucx own_link;

/* What ranks tell each other first. */
typedef struct intro {
    uint32_t magic, version;
    int32_t status; /* of what the rank has done alone */
    int32_t rank, ranks;
    uint64_t host[2];
    uint64_t shares_memory;     /* with others of its host: environments may differ */
    uint8_t key[RILL__JOB_KEY]; /* rank 0's becomes the job's */
    rill__watch_address watch;
    rill__ucx_address addresses[RILL__UCX_PACES];
} intro;

/* One that is being opened. */
typedef struct opening {
    const rill_bootstrap *bootstrap;
    own_link *own;
    intro *mine, *all;
    bool *same_host;
} opening;

/* ---- alone ----------------------------------------------------------------------------------- */

/* The same for processes that can share memory: of one start of one machine, and one view of its
 * network and of /dev/shm. Containers and emulated hosts differ in one of these. */
static void find_host(uint64_t host[2]) {
    static const char *const files[] = {"/proc/self/ns/net", "/proc/self/ns/ipc", "/dev/shm"};
    char text[512] = "";
    struct stat info;
    size_t n = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, text, 64);
        n = got > 0 ? (size_t)got : 0;
        close(fd);
    }
    gethostname(text + n, 256);
    n += strnlen(text + n, 256);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (stat(files[i], &info) == 0)
            n += (size_t)snprintf(text + n, sizeof text - n, " %llu:%llu",
                                  (unsigned long long)info.st_dev, (unsigned long long)info.st_ino);
    host[0] = XXH64(text, n, 0) | 1;
    host[1] = XXH64(text, n, 1);
}

static rill_status reserve(opening *o, int ranks) {
    own_link *own = o->own = rill__calloc(1, sizeof *own);
    size_t n = (size_t)ranks;
    o->all = rill__calloc(n + 1, sizeof *o->all);
    o->mine = o->all ? o->all + n : NULL;
    o->same_host = rill__calloc(n, sizeof *o->same_host);
    if (own) {
        own->link.values = rill__calloc(n * RILL__LINK_VALUES, sizeof *own->link.values);
        ucp_ep_h *peers = rill__calloc(n * RILL__UCX_PACES, sizeof *peers);
        for (int pace = 0; peers && pace < RILL__UCX_PACES; pace++)
            own->ways[pace].peers = peers + n * (size_t)pace;
        own->kept = rill__calloc(n, sizeof *own->kept);
        own->wires = rill__calloc(2 * n, sizeof *own->wires);
        own->broken = rill__calloc(n, sizeof *own->broken);
        own->lost = rill__calloc(3 * n, sizeof *own->lost);
        own->by_network = own->lost ? own->lost + n : NULL;
        own->given_up = own->lost ? own->lost + 2 * n : NULL;
        own->first_lost = -1;
    }
    if (own && o->all && o->same_host && own->link.values && own->ways[0].peers && own->kept &&
        own->wires && own->broken && own->lost)
        return RILL_OK;
    return rill__fail(RILL_ERR_MEMORY, "out of memory for %d ranks", ranks);
}

static void describe(rill__link *link, const rill_bootstrap *b) {
    link->table = &rill__ucx_table;
    link->rank = b->rank;
    link->ranks = b->ranks;
    link->threads = true;
    link->ordered_posts = true;
    link->copies_pages = true;
    link->has_mail = true;
    link->most_at_once = INT_MAX;
    link->message_limit = UINT64_C(1) << 30;
    link->patience = 0.2;
    find_host(link->host);
}

/* What this rank can do without the others. */
static rill_status prepare(opening *o) {
    const rill_bootstrap *b = o->bootstrap;
    own_link *own = o->own;
    describe(&own->link, b);
    memcpy(o->mine->host, own->link.host, sizeof o->mine->host);
    o->mine->shares_memory = own->shares_memory;
    if (getrandom(o->mine->key, sizeof o->mine->key, 0) != (ssize_t)sizeof o->mine->key)
        return rill__fail(RILL_ERR_IO, "no random key: %s", strerror(errno));
    RILL_TRY(rill__watch_create(b->rank, b->ranks, &own->watch, &o->mine->watch));
    return rill__ucx_start(own, o->mine->addresses);
}

/* ---- together -------------------------------------------------------------------------------- */

static rill_status gather(const opening *o, const void *mine, size_t bytes, void *all) {
    const rill_bootstrap *b = o->bootstrap;
    int code = b->allgather(mine, bytes, all, b->context);
    if (code == 0) return RILL_OK;
    return rill__fail(RILL_ERR_IO, "the bootstrap's allgather returned %d", code);
}

/* The lowest status of all, as an error here. */
static rill_status first_failure(const opening *o) {
    for (int i = 0; i < o->bootstrap->ranks; i++) {
        rill_status status = (rill_status)o->all[i].status;
        if (status == RILL_OK) continue;
        if (i == o->bootstrap->rank) return status; /* with its own words */
        return rill__fail(status, "rank %d failed: %s", i, rill_strerror(status));
    }
    return RILL_OK;
}

static rill_status introduce(opening *o, rill_status status) {
    const rill_bootstrap *b = o->bootstrap;
    char detail[512];
    snprintf(detail, sizeof detail, "%s", status == RILL_OK ? "" : rill_last_error());
    o->mine->magic = MAGIC, o->mine->version = VERSION;
    o->mine->rank = b->rank, o->mine->ranks = b->ranks;
    o->mine->status = status;
    RILL_TRY(gather(o, o->mine, sizeof *o->mine, o->all));
    rill__set_error(detail);
    RILL_TRY(first_failure(o));
    for (int i = 0; i < b->ranks; i++) {
        const intro *one = &o->all[i];
        if (one->magic != MAGIC || one->version != VERSION)
            return rill__fail(RILL_ERR_MISMATCH,
                              "rank %d has another rill, or allgather mixes "
                              "bytes up",
                              i);
        if (one->rank != i || one->ranks != b->ranks)
            return rill__fail(RILL_ERR_MISMATCH,
                              "allgather brings rank %d of %d in the place of rank %d of %d",
                              (int)one->rank, (int)one->ranks, i, b->ranks);
        o->same_host[i] = memcmp(one->host, o->mine->host, sizeof one->host) == 0;
    }
    rill__ucx_set_key(o->own, o->all[0].key);
    return RILL_OK;
}

static rill_status connect_all(opening *o) {
    own_link *own = o->own;
    own->until = rill__tcp_clock() + CONNECT_PATIENCE;
    RILL_TRY(rill__watch_connect(own->watch, &o->all[0].watch, sizeof *o->all, own->job,
                                 o->same_host, own->until));
    for (int i = 0; i < own->link.ranks; i++) {
        own->by_network[i] = !o->same_host[i] || !own->shares_memory || !o->all[i].shares_memory;
        RILL_TRY(rill__ucx_connect(own, i, o->all[i].addresses));
    }
    RILL_TRY(rill__ucx_greet(own, RILL__UCX_FAST));
    if (own->link.ranks <= CALM_AT_ONCE) RILL_TRY(rill__ucx_greet(own, RILL__UCX_CALM));
    own->until = 0;
    return RILL_OK;
}

/* Whatever has failed, the others wait in the last allgather. */
static rill_status agree(opening *o, rill_status status) {
    char detail[512];
    if (status == RILL_OK) status = rill__ucx_go_on(o->own);
    snprintf(detail, sizeof detail, "%s", status == RILL_OK ? "" : rill_last_error());
    o->mine->status = status;
    status = gather(o, o->mine, sizeof *o->mine, o->all);
    if (o->own->one_host) rill__ucx_end_thread(o->own);
    RILL_TRY(status);
    rill__set_error(detail);
    return first_failure(o);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Nobody takes its worker away while another still needs it; but nobody waits where a rank is gone,
 * since the others may never come here then. */
static void part(own_link *own) {
    for (int pace = 0; pace < RILL__UCX_PACES; pace++)
        rill__ucx_flush(own, (rill__ucx_pace)pace);
    rill__watch_leave(own->watch);
    while (!rill__ucx_look(own) && !rill__watch_all_left(own->watch)) {
        rill__ucx_progress_all(own);
        sched_yield();
    }
}

static void destroy(own_link *own) {
    if (!own) return;
    rill__ucx_end_thread(own);
    rill__ucx_stop(own);
    rill__watch_free(own->watch);
    free(own->link.values);
    free(own->ways[0].peers);
    free(own->wires);
    free(own->kept);
    free(own->broken);
    free(own->lost);
    free(own);
}

/* ---- shared memory --------------------------------------------------------------------------- */

rill_status rill__ucx_share(rill__link *link, const rill__hosts *hosts, rill__share_bytes bytes,
                            char **segment, size_t *sizes, bool *shared) {
    own_link *own = rill__ucx_of(link);
    uint64_t key[2];
    memcpy(key, own->job, sizeof key);
    return rill__segments_open(&own->segments, link, key, hosts, bytes, segment, sizes, shared);
}

bool rill__ucx_grow(rill__link *link, uint64_t bytes) {
    return rill__segments_grow(&rill__ucx_of(link)->segments, bytes);
}

void rill__ucx_unshare(rill__link *link) { rill__segments_close(&rill__ucx_of(link)->segments); }

rill_status rill__ucx_close(rill__link *link) {
    own_link *own = rill__ucx_of(link);
    rill__ucx_unshare(link);
    part(own);
    destroy(own);
    return RILL_OK;
}

/* Whether all have room for what allgather brings, and are on one host. This needs no memory but
 * the stack's. */
static rill_status enter(const opening *o, rill_status mine) {
    struct {
        int64_t status;
        uint64_t host[2];
        uint64_t can; /* bits: */
    } word = {.status = mine}, words[RILL__UCX_MOST_RANKS];
    enum { SHARES_MEMORY = 1, SETS_SEGMENT = 2 };
    bool one_host = true, all_share = true;
    if (rill__ucx_shares_memory()) word.can |= SHARES_MEMORY;
    if (rill__ucx_sets_segment()) word.can |= SETS_SEGMENT;
    int here = 0;
    char detail[512];
    snprintf(detail, sizeof detail, "%s", mine == RILL_OK ? "" : rill_last_error());
    find_host(word.host);
    RILL_TRY(gather(o, &word, sizeof word, words));
    rill__set_error(detail);
    if (mine != RILL_OK) return mine;
    for (int i = 0; i < o->bootstrap->ranks; i++) {
        rill_status status = words[i].status > 0 ? RILL_ERR_MISMATCH : (rill_status)words[i].status;
        if (status != RILL_OK)
            return rill__fail(status, "rank %d failed: %s", i, rill_strerror(status));
        here += memcmp(words[i].host, word.host, sizeof word.host) == 0;
        one_host = here == i + 1;
        all_share &= (words[i].can & SHARES_MEMORY) != 0;
        o->own->sets_segment |= (words[i].can & SETS_SEGMENT) != 0;
    }
    /* Sockets need a thread that goes on, wherever they lead. */
    o->own->shares_memory = (word.can & SHARES_MEMORY) != 0;
    o->own->one_host = one_host && all_share;
    o->own->alone_here = here == 1 && !one_host;
    return RILL_OK;
}

rill_status rill__link_ucx_open(const rill_bootstrap *bootstrap, rill__link **out) {
    opening o = {.bootstrap = bootstrap};
    rill_status status = enter(&o, reserve(&o, bootstrap->ranks));
    if (status == RILL_OK) status = introduce(&o, prepare(&o));
    if (status == RILL_OK) {
        status = connect_all(&o);
        status = agree(&o, status);
    }
    free(o.all);
    free(o.same_host);
    if (status != RILL_OK) {
        if (o.own && o.own->watch) rill__watch_leave(o.own->watch);
        destroy(o.own);
        return status;
    }
    *out = &o.own->link;
    return RILL_OK;
}

static int gather_together(const void *mine, size_t bytes, void *all, void *context) {
    rill__link *together = context;
    return together->table->allgather(together, mine, bytes, all);
}

rill_status rill__ucx_another(rill__link *link, rill__link *together, rill__link **out) {
    (void)link;
    rill_bootstrap bootstrap = RILL_BOOTSTRAP_INIT;
    bootstrap.rank = together->rank;
    bootstrap.ranks = together->ranks;
    bootstrap.allgather = gather_together;
    bootstrap.context = together;
    return rill__link_ucx_open(&bootstrap, out);
}
