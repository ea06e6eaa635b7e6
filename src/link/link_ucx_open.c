/* The link over UCX: how ranks find each other, and part. See link/link_ucx.h. */
#include "link/link_ucx_own.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Seconds until ranks that do not connect are an error. */
#define CONNECT_PATIENCE 60.0
/* Seconds that the last messages have, when a rank is gone that may hold them up. */
#define FLUSH_PATIENCE 0.1

enum { MAGIC = 0x58554c52, VERSION = 1 };
/* Of a worker's address. Hosts with many devices have long ones, of some hundred bytes. */
enum { ADDRESS_ROOM = 4000 };

typedef rill__link_ucx own_link;

/* What ranks tell each other first. */
typedef struct intro {
    uint32_t magic, version;
    int32_t status; /* of what the rank has done alone */
    int32_t rank, ranks;
    uint64_t host[2];
    uint8_t key[RILL__JOB_KEY]; /* rank 0's becomes the job's */
    rill__watch_address watch;
    char address[ADDRESS_ROOM];
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

static rill_status start_ucx(own_link *own) {
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) return rill__ucx_error(status, "ucp_config_read");
    /* So that both sides know which messages wait for a word of the receiver (link_ucx.c). */
    status = ucp_config_modify(config, "RNDV_THRESH", RILL__UCX_LONG_TEXT);
    if (status != UCS_OK) {
        ucp_config_release(config);
        return rill__ucx_error(status, "ucp_config_modify");
    }
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_TAG,
        .request_size = sizeof(rill__ucx_request),
        .estimated_num_eps = (size_t)own->link.ranks,
        .name = "rill",
    };
    status = ucp_init(&params, config, &own->context);
    ucp_config_release(config);
    if (status != UCS_OK) return rill__ucx_error(status, "ucp_init");
    /* The engine's lock lets one thread in at a time. */
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    status = ucp_worker_create(own->context, &worker, &own->worker);
    return status == UCS_OK ? RILL_OK : rill__ucx_error(status, "ucp_worker_create");
}

static rill_status reserve(opening *o, int ranks) {
    own_link *own = o->own = rill__calloc(1, sizeof *own);
    size_t n = (size_t)ranks;
    o->all = rill__calloc(n + 1, sizeof *o->all);
    o->mine = o->all ? o->all + n : NULL;
    o->same_host = rill__calloc(n, sizeof *o->same_host);
    if (own) {
        own->link.values = rill__calloc(n * RILL__LINK_VALUES, sizeof *own->link.values);
        own->peers = rill__calloc(n, sizeof *own->peers);
        own->wires = rill__calloc(2 * n, sizeof *own->wires);
        own->lost = rill__calloc(2 * n, sizeof *own->lost);
        own->handles_errors = own->lost ? own->lost + n : NULL;
        own->first_lost = -1;
    }
    if (own && o->all && o->same_host && own->link.values && own->peers && own->wires && own->lost)
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
    link->most_at_once = INT_MAX;
    link->message_limit = UINT64_C(1) << 30;
    link->patience = 0.2;
    find_host(link->host);
}

/* What this rank can do without the others. */
static rill_status prepare(opening *o) {
    const rill_bootstrap *b = o->bootstrap;
    own_link *own = o->own;
    size_t bytes = 0;
    describe(&own->link, b);
    memcpy(o->mine->host, own->link.host, sizeof o->mine->host);
    if (getrandom(o->mine->key, sizeof o->mine->key, 0) != (ssize_t)sizeof o->mine->key)
        return rill__fail(RILL_ERR_IO, "no random key: %s", strerror(errno));
    RILL_TRY(rill__watch_create(b->rank, b->ranks, &own->watch, &o->mine->watch));
    RILL_TRY(start_ucx(own));
    ucp_address_t *address;
    ucs_status_t status = ucp_worker_get_address(own->worker, &address, &bytes);
    if (status != UCS_OK) return rill__ucx_error(status, "ucp_worker_get_address");
    if (bytes <= sizeof o->mine->address) memcpy(o->mine->address, address, bytes);
    ucp_worker_release_address(own->worker, address);
    if (bytes <= sizeof o->mine->address) return RILL_OK;
    return rill__fail(RILL_ERR_UNSUPPORTED,
                      "UCX's address of this rank has %zu bytes, more than %d: UCX_NET_DEVICES "
                      "names the devices to use",
                      bytes, ADDRESS_ROOM);
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
    memcpy(o->own->job, o->all[0].key, sizeof o->own->job);
    memcpy(&o->own->key, o->own->job, sizeof o->own->key);
    o->own->key &= RILL__UCX_KEY_MASK;
    return RILL_OK;
}

static void peer_failed(void *argument, ucp_ep_h peer, ucs_status_t status) {
    (void)argument, (void)peer, (void)status; /* the watch tells; requests end with errors */
}

/* Endpoints to other hosts handle errors: it costs nothing there, and without it UCX would end the
 * process with the first of its peers. */
static rill_status connect_peers(opening *o) {
    own_link *own = o->own;
    for (int i = 0; i < own->link.ranks; i++) {
        ucp_ep_params_t params = {
            .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER,
            .address = (const ucp_address_t *)o->all[i].address,
            .err_mode = o->same_host[i] ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
            .err_handler = {.cb = peer_failed, .arg = NULL},
        };
        own->handles_errors[i] = !o->same_host[i];
        ucs_status_t status = ucp_ep_create(own->worker, &params, &own->peers[i]);
        if (status != UCS_OK)
            return rill__fail(RILL_ERR_PEER, "rank %d cannot reach rank %d: ucp_ep_create: %s",
                              own->link.rank, i, ucs_status_string(status));
    }
    return RILL_OK;
}

static rill_status connect_all(opening *o) {
    own_link *own = o->own;
    own->until = rill__tcp_clock() + CONNECT_PATIENCE;
    RILL_TRY(rill__watch_connect(own->watch, &o->all[0].watch, sizeof *o->all, own->job,
                                 o->same_host, own->until));
    RILL_TRY(connect_peers(o));
    /* A message each way on every connection: UCX makes them only then. */
    RILL_TRY(rill__link_most(&own->link, NULL, 0));
    own->until = 0;
    return RILL_OK;
}

/* Whatever has failed, the others wait in the last allgather. */
static rill_status agree(opening *o, rill_status status) {
    char detail[512];
    snprintf(detail, sizeof detail, "%s", status == RILL_OK ? "" : rill_last_error());
    o->mine->status = status;
    RILL_TRY(gather(o, o->mine, sizeof *o->mine, o->all));
    rill__set_error(detail);
    return first_failure(o);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What was sent is on its way, unless somebody who is gone holds it up. */
static void flush(own_link *own) {
    const ucp_request_param_t none = {.op_attr_mask = 0};
    ucs_status_ptr_t flushed = ucp_worker_flush_nbx(own->worker, &none);
    if (!flushed || UCS_PTR_IS_ERR(flushed)) return;
    double lost_since = 0;
    for (unsigned polls = 1; ucp_request_check_status(flushed) == UCS_INPROGRESS; polls++) {
        ucp_worker_progress(own->worker);
        if (polls % 64) continue;
        sched_yield();
        double now = rill__tcp_clock();
        if (rill__ucx_look(own) && lost_since == 0) lost_since = now;
        if (lost_since > 0 && now - lost_since > FLUSH_PATIENCE) break;
    }
    ucp_request_free(flushed);
}

/* Nobody takes its worker away while another still needs it; but nobody waits where a rank is gone,
 * since the others may never come here then. */
static void part(own_link *own) {
    flush(own);
    rill__watch_leave(own->watch);
    while (!rill__ucx_look(own) && !rill__watch_all_left(own->watch)) {
        ucp_worker_progress(own->worker);
        sched_yield();
    }
}

/* What a rank that is gone has left unfinished UCX would tell on standard output. A library writes
 * nothing there. The stack of UCX's handlers is the process's, and nobody else's lock. */
static pthread_mutex_t silence = PTHREAD_MUTEX_INITIALIZER;

static ucs_log_func_rc_t say_nothing(const char *file, unsigned line, const char *function,
                                     ucs_log_level_t level,
                                     const ucs_log_component_config_t *config, const char *message,
                                     va_list arguments) {
    (void)file, (void)line, (void)function, (void)config, (void)message, (void)arguments;
    return level > UCS_LOG_LEVEL_FATAL ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

static void destroy(own_link *own) {
    if (!own) return;
    pthread_mutex_lock(&silence);
    ucs_log_push_handler(say_nothing);
    if (own->worker) ucp_worker_destroy(own->worker); /* with its endpoints */
    if (own->context) ucp_cleanup(own->context);
    ucs_log_pop_handler();
    pthread_mutex_unlock(&silence);
    rill__watch_free(own->watch);
    free(own->link.values);
    free(own->peers);
    free(own->wires);
    free(own->lost);
    free(own);
}

rill_status rill__ucx_close(rill__link *link) {
    own_link *own = rill__ucx_of(link);
    rill__ucx_unshare(link);
    part(own);
    destroy(own);
    return RILL_OK;
}

rill_status rill__link_ucx_open(const rill_bootstrap *bootstrap, rill__link **out) {
    opening o = {.bootstrap = bootstrap};
    rill_status status = reserve(&o, bootstrap->ranks);
    bool together = o.all != NULL; /* else this rank has no room for what allgather brings */
    if (status == RILL_OK) status = prepare(&o);
    if (together) status = introduce(&o, status);
    if (together && status == RILL_OK) {
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
