/* The link over UCX: workers and endpoints. See link/link_ucx_own.h. */
#include "link/link_ucx_own.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

/* Seconds that the last messages have, when a rank is gone that may hold them up. */
#define FLUSH_PATIENCE 0.1

/* Unless the user says otherwise. Bytes from which messages wait for their receiver: shorter ones
 * are copied twice, in the cache, which is faster than a call of the kernel (bench/link). Over TCP
 * each word to and fro costs more: FAR is for ranks that have no other on their host. Places of
 * a queue in shared memory, each of 8 KiB: where ranks are few, all stay in a core's cache. Bytes
 * of a place of the queue itself: what fits is written once, and short messages do (RILL__SHORT,
 * and what UCX writes before them). Bytes that one call of the kernel sends or receives over TCP:
 * with UCX's 64 KiB a rank wakes up, and takes a lock, four times as often. */
enum {
    LONG = 128 << 10,
    FAR = 2 << 20,
    LEAST_PLACES = 16,
    MOST_PLACES = 64,
    PLACES_OF_RANK = 4,
    PLACE = 1088,
    SEGMENT = 256 << 10
};

/* Nanoseconds between looks of the thread that goes on, then looks in vain before it sleeps until
 * something comes; milliseconds of that, should UCX not say so. */
enum { LEAST_NAP = 100000, MOST_NAP = 800000, VAIN_LOOKS = 8, SLEEP_MS = 100 };
/* The same while the rank is in rill: it has been there for as long as the last nap by then. */
enum { MOST_NAP_BESIDE = 12800000 };
/* Vain looks of a rank before it sleeps, some 0.2 ms; nanoseconds of that, should another thread
 * have taken in what came. */
enum { LOOKS_BEFORE_SLEEP = 20, RANK_SLEEP = 200000 };
/* Visits of a way between two looks by which the rank itself is known to be there. */
enum { ENOUGH_VISITS = 4 };

typedef rill__link_ucx own_link;

/* ---- what UCX says --------------------------------------------------------------------------- */

/* What UCX would tell on standard output: what a rank that is gone has left unfinished, and that no
 * transport has a setting of ours. A library writes nothing there. The stack of UCX's handlers is
 * the process's, and nobody else's lock. */
static pthread_mutex_t silence = PTHREAD_MUTEX_INITIALIZER;

static ucs_log_func_rc_t say_nothing(const char *file, unsigned line, const char *function,
                                     ucs_log_level_t level,
                                     const ucs_log_component_config_t *config, const char *message,
                                     va_list arguments) {
    (void)file, (void)line, (void)function, (void)config, (void)message, (void)arguments;
    return level > UCS_LOG_LEVEL_FATAL ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

static ucs_log_func_rc_t skip_settings(const char *file, unsigned line, const char *function,
                                       ucs_log_level_t level,
                                       const ucs_log_component_config_t *config,
                                       const char *message, va_list arguments) {
    (void)file, (void)line, (void)function, (void)config, (void)arguments;
    bool ours = level == UCS_LOG_LEVEL_WARN && strstr(message, "invalid configuration");
    return ours ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

static void filter(ucs_log_func_t handler) {
    pthread_mutex_lock(&silence);
    ucs_log_push_handler(handler);
}

static void filter_no_more(void) {
    ucs_log_pop_handler();
    pthread_mutex_unlock(&silence);
}

/* ---- settings of UCX ------------------------------------------------------------------------- */

/* What a user has set stays. Else both sides know which messages wait for a word of the receiver
 * (link_ucx.c). A value that only UCX understands is taken for ours. */
static ucs_status_t set_long(own_link *own, ucp_config_t *config) {
    const char *text = getenv("UCX_RNDV_THRESH");
    char value[32], *rest;
    own->long_from = own->alone_here ? FAR : LONG;
    if (!text || !*text) {
        snprintf(value, sizeof value, "%zu", own->long_from);
        return ucp_config_modify(config, "RNDV_THRESH", value);
    }
    if (strncasecmp(text, "inf", 3) == 0) own->long_from = SIZE_MAX;
    double number = strtod(text, &rest);
    if (rest == text || !(number >= 0 && number < 1e15)) return UCS_OK;
    static const char units[] = "bkmgt";
    const char *unit = *rest ? strchr(units, *rest | 0x20) : units;
    for (long i = unit ? unit - units : 0; i > 0; i--)
        number *= 1024;
    own->long_from = (size_t)number;
    return UCS_OK;
}

/* A receiver has no room for more than its own setting says, so it is the same on all ranks. A help
 * where there is such a setting, and no need. */
static void set_segment(const own_link *own, ucp_config_t *config) {
    char value[32];
    if (own->one_host || own->sets_segment) return;
    snprintf(value, sizeof value, "%d", SEGMENT);
    ucp_config_modify(config, "TCP_RX_SEG_SIZE", value);
}

/* Of queues in shared memory. A help where there is such a setting, and no need. */
static void set_queue(ucp_config_t *config, const char *name, int number) {
    static const char *const kinds[] = {"MM", "POSIX", "SYSV", "XPMEM"};
    char text[64], value[32];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(text, sizeof text, "UCX_%s_%s", kinds[i], name);
        if (getenv(text)) return;
    }
    snprintf(text, sizeof text, "MM_%s", name);
    snprintf(value, sizeof value, "%d", number);
    ucp_config_modify(config, text, value);
}

static ucs_status_t set_places(const own_link *own, ucp_config_t *config) {
    int places = LEAST_PLACES;
    while (places < MOST_PLACES && places < PLACES_OF_RANK * own->link.ranks)
        places *= 2;
    set_queue(config, "FIFO_SIZE", places);
    set_queue(config, "FIFO_ELEM_SIZE", PLACE);
    return UCS_OK;
}

static bool is_shared_memory(const char *name, size_t n) {
    static const char *const names[] = {"sm", "shm", "mm", "posix", "sysv", "xpmem", "cma", "knem"};
    if (n && *name == '\\') name++, n--;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && memcmp(name, names[i], n) == 0) return true;
    return false;
}

bool rill__ucx_shares_memory(void) {
    const char *all = getenv("UCX_TLS");
    if (!all || !*all || strcmp(all, "all") == 0) return true;
    bool excludes = *all == '^', sockets_only = false, shares = false;
    for (const char *at = all + excludes; *at;) {
        size_t length = strcspn(at, ",");
        sockets_only |= (length == 2 && memcmp(at, "sm", 2) == 0) ||
                        (length == 3 && memcmp(at, "shm", 3) == 0);
        shares |= is_shared_memory(at, length);
        at += length + (at[length] == ',');
    }
    return excludes ? !sockets_only : shares;
}

bool rill__ucx_sets_segment(void) { return getenv("UCX_TCP_RX_SEG_SIZE") != NULL; }

/* Where the kernel lets nobody read another process's memory (containers), UCX would write long
 * messages into it over a socket, which needs the writer's calls after its send has ended. The
 * other way falls back to queues in shared memory. */
static ucs_status_t set_scheme(const own_link *own, ucp_config_t *config) {
    if (!own->one_host || getenv("UCX_RNDV_SCHEME")) return UCS_OK;
    return ucp_config_modify(config, "RNDV_SCHEME", "get_zcopy");
}

/* The rank and the link's thread share a worker. UCX's own lock for that spins: where the thread
 * that holds it has lost its processor, the other burns its own in vain, and ranks are often more
 * than processors. A help where there is such a setting, and no need. */
static void set_lock(ucp_config_t *config) {
    if (!getenv("UCX_USE_MT_MUTEX")) ucp_config_modify(config, "USE_MT_MUTEX", "y");
}

/* The transports of UCX_TLS but shared memory; TCP where no other is left. */
static void calm_transports(const char *all, char *text, size_t room) {
    bool other = false;
    size_t n = 0;
    if (!all || !*all || strcmp(all, "all") == 0) all = "^sm";
    if (*all == '^') {
        snprintf(text, room, "%s%s", all, strcmp(all, "^sm") == 0 ? "" : ",sm");
        return;
    }
    for (const char *at = all; *at;) {
        size_t length = strcspn(at, ",");
        if (!is_shared_memory(at, length) && n + length + 2 < room) {
            n += (size_t)snprintf(text + n, room - n, "%.*s,", (int)length, at);
            other |= length && strncmp(at, "self", length) != 0;
        }
        at += length + (at[length] == ',');
    }
    snprintf(text + n, room - n, other ? "self" : "tcp,self");
}

static ucs_status_t set_calm(ucp_config_t *config) {
    char text[512] = "";
    calm_transports(getenv("UCX_TLS"), text, sizeof text - sizeof ",tcp,self");
    return ucp_config_modify(config, "TLS", text);
}

/* ---- workers --------------------------------------------------------------------------------- */

static rill_status start_way(own_link *own, rill__ucx_pace pace) {
    rill__ucx_way *way = &own->ways[pace];
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) return rill__ucx_error(status, "ucp_config_read");
    /* The fast way needs no events where it has no thread to wake but while it is opened. */
    bool alone = own->one_host && pace == RILL__UCX_FAST;
    if (!alone) set_lock(config);
    set_segment(own, config);
    status = set_long(own, config);
    if (status == UCS_OK)
        status = pace == RILL__UCX_CALM ? set_calm(config) : set_places(own, config);
    if (status == UCS_OK && pace == RILL__UCX_FAST) status = set_scheme(own, config);
    if (status != UCS_OK) {
        ucp_config_release(config);
        return rill__ucx_error(status, "ucp_config_modify");
    }
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_TAG | (alone ? 0 : UCP_FEATURE_WAKEUP),
        .request_size = sizeof(rill__ucx_request),
        .estimated_num_eps = (size_t)own->link.ranks,
        .name = "rill",
    };
    status = ucp_init(&params, config, &way->context);
    ucp_config_release(config);
    if (status != UCS_OK) return rill__ucx_error(status, "ucp_init");
    /* The engine's lock lets one thread in at a time; beside it may be the link's own (go_on). */
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = alone ? UCS_THREAD_MODE_SERIALIZED
                                                             : UCS_THREAD_MODE_MULTI};
    filter(skip_settings);
    status = ucp_worker_create(way->context, &worker, &way->worker);
    filter_no_more();
    if (status != UCS_OK) return rill__ucx_error(status, "ucp_worker_create");
    if (alone || ucp_worker_get_efd(way->worker, &way->event) != UCS_OK) way->event = -1;
    return RILL_OK;
}

static rill_status write_address(const rill__ucx_way *way, size_t room, rill__ucx_address *out) {
    ucp_address_t *address;
    size_t bytes = 0;
    ucs_status_t status = ucp_worker_get_address(way->worker, &address, &bytes);
    if (status != UCS_OK) return rill__ucx_error(status, "ucp_worker_get_address");
    bool fits = bytes <= room;
    if (fits) memcpy(out->text, address, bytes);
    ucp_worker_release_address(way->worker, address);
    out->bytes = (uint32_t)bytes;
    if (fits) return RILL_OK;
    return rill__fail(RILL_ERR_UNSUPPORTED,
                      "UCX's address of this rank has %zu bytes, more than %zu: UCX_NET_DEVICES "
                      "names the devices to use",
                      bytes, room);
}

rill_status rill__ucx_start(own_link *own, rill__ucx_address addresses[RILL__UCX_PACES]) {
    for (int pace = 0; pace < RILL__UCX_PACES; pace++) {
        RILL_TRY(start_way(own, (rill__ucx_pace)pace));
        RILL_TRY(write_address(&own->ways[pace],
                               pace == RILL__UCX_CALM ? sizeof own->kept->address
                                                      : sizeof addresses->text,
                               &addresses[pace]));
    }
    return RILL_OK;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void peer_failed(void *argument, ucp_ep_h peer, ucs_status_t status) {
    (void)argument, (void)peer, (void)status; /* the watch tells; requests end with errors */
}

static ucs_status_t make_endpoint(ucp_worker_h worker, const char *address, bool handles_errors,
                                  ucp_ep_h *out) {
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)address,
        .err_mode = handles_errors ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
        .err_handler = {.cb = peer_failed, .arg = NULL},
    };
    return ucp_ep_create(worker, &params, out);
}

/* Fast endpoints to other hosts handle errors: it costs nothing there, and without it UCX would end
 * the process with the first of its peers. */
rill_status rill__ucx_connect(own_link *own, int rank,
                              const rill__ucx_address addresses[RILL__UCX_PACES]) {
    const rill__ucx_address *calm = &addresses[RILL__UCX_CALM];
    rill__ucx_way *fast = &own->ways[RILL__UCX_FAST];
    if (calm->bytes > sizeof own->kept->address)
        return rill__fail(RILL_ERR_MESSAGE, "rank %d has an address that is too long", rank);
    memcpy(own->kept[rank].address, calm->text, calm->bytes);
    ucs_status_t status = make_endpoint(fast->worker, addresses[RILL__UCX_FAST].text,
                                        own->by_network[rank], &fast->peers[rank]);
    if (status == UCS_OK) return RILL_OK;
    return rill__fail(RILL_ERR_PEER, "rank %d cannot reach rank %d: ucp_ep_create: %s",
                      own->link.rank, rank, ucs_status_string(status));
}

ucp_ep_h rill__ucx_endpoint(own_link *own, rill__ucx_pace pace, int rank) {
    rill__ucx_way *way = &own->ways[pace];
    if (way->peers[rank] || pace == RILL__UCX_FAST || own->lost[rank]) return way->peers[rank];
    if (make_endpoint(way->worker, own->kept[rank].address, true, &way->peers[rank]) != UCS_OK)
        way->peers[rank] = NULL;
    return way->peers[rank];
}

void rill__ucx_disconnect(own_link *own, int rank) {
    static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                              .flags = UCP_EP_CLOSE_FLAG_FORCE};
    for (int pace = 0; pace < RILL__UCX_PACES; pace++) {
        ucp_ep_h *peer = &own->ways[pace].peers[rank];
        if (!*peer || (pace == RILL__UCX_FAST && !own->by_network[rank])) continue;
        ucs_status_ptr_t closing = ucp_ep_close_nbx(*peer, &force);
        if (closing && !UCS_PTR_IS_ERR(closing)) ucp_request_free(closing);
        *peer = NULL;
    }
}

/* ---- progress of its own ------------------------------------------------------------------- */

/* UCX moves on only in its calls. On one host nothing is left behind when a rank leaves rill, but
 * over a network connections come about by words of both sides, and sockets hold bytes back: others
 * would wait in rill for a rank that is not, but in the bootstrap's allgather or in the program.
 * So a thread goes on meanwhile: for as long as the link is there where ranks have several hosts,
 * else during the allgather and after a death. While messages come it naps between looks, and does
 * nothing while the rank itself is in rill and takes them: they would wait for each other's lock.
 * Then it sleeps until UCX says that something came. */

/* A way that is not the thread's. On one host the fast one has no lock, so it is the rank's alone
 * once a communicator was shrunk, be it with everybody there: those that come of it are calm. */
static bool is_left(const own_link *own, rill__ucx_pace pace) {
    return rill__ucx_rests(own, pace) || (pace == RILL__UCX_FAST && own->one_host && own->survived);
}

/* Adds what can be read when something comes. False: something has come, or nothing says so. */
static bool may_sleep(own_link *own, struct pollfd *polls, nfds_t *n) {
    for (int pace = 0; pace < RILL__UCX_PACES; pace++) {
        const rill__ucx_way *way = &own->ways[pace];
        if (is_left(own, (rill__ucx_pace)pace)) continue;
        if (way->event < 0 || ucp_worker_arm(way->worker) != UCS_OK) return false;
        polls[(*n)++] = (struct pollfd){.fd = way->event, .events = POLLIN};
    }
    return *n > 0;
}

/* A wait between hosts is long: a rank that looks on and on takes the processor from the kernel,
 * which brings the messages, and on emulated hosts from other ranks. What ranks of the same host
 * leave in shared memory would wake nobody. */
void rill__ucx_idle(rill__link *link, unsigned polls) {
    own_link *own = rill__ucx_of(link);
    struct pollfd ways[RILL__UCX_PACES];
    nfds_t n = 0;
    if (!own->alone_here || polls < LOOKS_BEFORE_SLEEP) {
        rill__link_yield(link, polls);
        return;
    }
    atomic_store(&own->sleeps, true);
    if (may_sleep(own, ways, &n)) ppoll(ways, n, &(struct timespec){.tv_nsec = RANK_SLEEP}, NULL);
    atomic_store(&own->sleeps, false);
}

/* What has moved in a way; *visited: the rank is there. */
static unsigned look_after(own_link *own, rill__ucx_pace pace, unsigned *seen, bool *visited) {
    rill__ucx_way *way = &own->ways[pace];
    unsigned visits = atomic_load_explicit(&way->visits, memory_order_relaxed);
    bool here = visits - *seen >= ENOUGH_VISITS || atomic_load(&own->sleeps);
    *seen = visits;
    *visited |= here;
    return here || is_left(own, pace) ? 0 : ucp_worker_progress(way->worker);
}

static void *go_on(void *context) {
    own_link *own = context;
    struct pollfd polls[RILL__UCX_PACES + 1];
    unsigned seen[RILL__UCX_PACES] = {0};
    nfds_t n;
    long nap = LEAST_NAP;
    for (unsigned vain = 0; !atomic_load(&own->ended); vain++) {
        bool visited = false;
        unsigned moved = look_after(own, RILL__UCX_FAST, &seen[RILL__UCX_FAST], &visited);
        moved += look_after(own, RILL__UCX_CALM, &seen[RILL__UCX_CALM], &visited);
        if (moved || visited) vain = 0;
        long most = visited ? MOST_NAP_BESIDE : MOST_NAP;
        if (moved || nap > most) nap = LEAST_NAP;
        else nap = 2 * nap < most ? 2 * nap : most;
        n = 1;
        polls[0] = (struct pollfd){.fd = own->wakes, .events = POLLIN};
        if (vain < VAIN_LOOKS || own->wakes < 0 || !may_sleep(own, polls, &n)) {
            nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        } else if (poll(polls, n, SLEEP_MS) > 0) {
            vain = 0;
            nap = LEAST_NAP;
        }
    }
    return NULL;
}

rill_status rill__ucx_go_on(own_link *own) {
    if (own->has_thread) return RILL_OK;
    atomic_store(&own->ended, false);
    own->wakes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = pthread_create(&own->thread, NULL, go_on, own);
    own->has_thread = code == 0;
    if (code && own->wakes >= 0) close(own->wakes);
    return code == 0 ? RILL_OK : rill__fail(RILL_ERR_IO, "pthread_create: %s", strerror(code));
}

void rill__ucx_end_thread(own_link *own) {
    if (!own->has_thread) return;
    atomic_store(&own->ended, true);
    if (own->wakes >= 0) eventfd_write(own->wakes, 1);
    pthread_join(own->thread, NULL);
    if (own->wakes >= 0) close(own->wakes);
    own->has_thread = false;
}

/* ---- the end --------------------------------------------------------------------------------- */

void rill__ucx_flush(own_link *own, rill__ucx_pace pace) {
    const ucp_request_param_t none = {.op_attr_mask = 0};
    if (rill__ucx_rests(own, pace)) return;
    ucs_status_ptr_t flushed = ucp_worker_flush_nbx(own->ways[pace].worker, &none);
    if (!flushed || UCS_PTR_IS_ERR(flushed)) return;
    double lost_since = 0;
    for (unsigned polls = 1; ucp_request_check_status(flushed) == UCS_INPROGRESS; polls++) {
        rill__ucx_progress_all(own);
        if (polls % 64) continue;
        sched_yield();
        double now = rill__tcp_clock();
        if (rill__ucx_look(own) && lost_since == 0) lost_since = now;
        if (rill__ucx_rests(own, pace) || (lost_since > 0 && now - lost_since > FLUSH_PATIENCE))
            break;
    }
    ucp_request_free(flushed);
}

void rill__ucx_stop(own_link *own) {
    filter(say_nothing);
    for (int pace = 0; pace < RILL__UCX_PACES; pace++) {
        rill__ucx_way *way = &own->ways[pace];
        if (way->worker) ucp_worker_destroy(way->worker); /* with its endpoints */
        if (way->context) ucp_cleanup(way->context);
    }
    filter_no_more();
}
