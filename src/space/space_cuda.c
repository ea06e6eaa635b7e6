/* Device memory: finds and loads librill_cuda, and makes instances of the space. */
#include "space/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 256, MOST_DEVICES = 64 }; /* bytes of answers */
enum { NO_DRIVER = 35 };                 /* cudaErrorInsufficientDriver, also where none is */

/* ---- failures ------------------------------------------------------------------------------- */

bool rill__cuda_check(rill__cuda *c, int error, const char *what) {
    if (error && c->failed == RILL_OK) {
        c->failed = error == 2 ? RILL_ERR_MEMORY : RILL_ERR_IO;
        snprintf(c->error, sizeof c->error, "CUDA: %s (%s, device %d)", c->table->error_text(error),
                 what, c->device);
    }
    return c->failed == RILL_OK;
}

rill_status rill__cuda_status(const rill__cuda *c) {
    return c->failed == RILL_OK ? RILL_OK : rill__fail(c->failed, "%s", c->error);
}

int rill__cuda_enter(const rill__cuda *c) {
    int before = c->device;
    c->table->device_get(&before);
    if (before != c->device) c->table->device_set(c->device);
    return before;
}

void rill__cuda_leave(const rill__cuda *c, int before) {
    if (before != c->device) c->table->device_set(before);
}

/* ---- the library ---------------------------------------------------------------------------- */

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static const rill__cuda_table *library; /* under the lock; loaded once, never unloaded */
static rill__cuda *shared[MOST_DEVICES];
static bool loaded[MOST_DEVICES]; /* all kernels: a first launch would wait for all streams */

/* Beside this library, or in lib/ beside the program's folder. */
static void *open_beside(const char *folder_of, const char *name) {
    char path[4096];
    const char *slash = strrchr(folder_of, '/');
    int folder = slash ? (int)(slash - folder_of) : 0;
    if (!slash) return NULL;
    int n = snprintf(path, sizeof path, "%.*s/%s", folder, folder_of, name);
    return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static rill_status open_library(const char *call, void **handle, char *name, size_t length) {
    const char *given = getenv("RILL_CUDA_LIBRARY");
    static const char usual[] = "librill_cuda.so";
    Dl_info here;
    snprintf(name, length, "%s", given && *given ? given : usual);
    *handle = NULL;
    if (given && *given) {
        *handle = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    } else {
        if (dladdr((const void *)&library_lock, &here) && here.dli_fname) {
            *handle = open_beside(here.dli_fname, usual);
            if (!*handle) *handle = open_beside(here.dli_fname, "../lib/librill_cuda.so");
        }
        if (!*handle) *handle = dlopen(usual, RTLD_NOW | RTLD_LOCAL);
    }
    if (*handle) return RILL_OK;
    const char *why = dlerror();
    return rill__fail(RILL_ERR_UNSUPPORTED,
                      "%s: memory is RILL_CUDA, and %s could not be loaded: %s%s", call, name,
                      why ? why : "no reason given",
                      given && *given ? ""
                                      : " (it is built where nvcc is; RILL_CUDA_LIBRARY names"
                                        " its file)");
}

static rill_status load(const char *call) {
    char name[512];
    void *handle;
    if (library) return RILL_OK;
    RILL_TRY(open_library(call, &handle, name, sizeof name));
    const rill__cuda_table *(*get)(void);
    union {
        void *data;
        const rill__cuda_table *(*code)(void);
    } symbol = {.data = dlsym(handle, RILL__CUDA_SYMBOL)};
    get = symbol.code;
    const rill__cuda_table *table = symbol.data ? get() : NULL;
    if (!table || table->version != RILL__CUDA_VERSION || table->size != sizeof *table) {
        rill_status status = rill__fail(RILL_ERR_UNSUPPORTED,
                                        "%s: %s has version %u of the kernels' table, not %u", call,
                                        name, table ? table->version : 0, RILL__CUDA_VERSION);
        dlclose(handle);
        return status;
    }
    library = table;
    return RILL_OK;
}

/* The library, and the number of the device that is meant. */
static rill_status find_device(const char *call, int *device) {
    RILL_TRY(load(call));
    int count = 0, error = library->devices(&count);
    if (error || !count)
        return rill__fail(RILL_ERR_UNSUPPORTED, "%s: there is no CUDA device: %s%s", call,
                          error ? library->error_text(error) : "none was found",
                          error == NO_DRIVER ? " (or there is none)" : "");
    if (*device == -1) {
        error = library->device_get(device);
        if (error) return rill__fail(RILL_ERR_IO, "%s: CUDA: %s", call, library->error_text(error));
    }
    if (*device < 0 || *device >= count || *device >= MOST_DEVICES)
        return rill__fail(RILL_ERR_ARGUMENT, "%s: device %d is not in 0 to %d", call, *device,
                          count - 1);
    return RILL_OK;
}

enum { LEAST_MAJOR = 8 };

/* What comes before has no code, and CUDA would say so at some later call. */
static rill_status check_capability(const char *call, int device) {
    rill__cuda_device d;
    if (library->emulated || loaded[device]) return RILL_OK;
    int error = library->device_info(device, &d);
    if (error) return rill__fail(RILL_ERR_IO, "%s: CUDA: %s", call, library->error_text(error));
    if (d.major >= LEAST_MAJOR) return RILL_OK;
    return rill__fail(RILL_ERR_UNSUPPORTED,
                      "%s: device %d (%s) has compute capability %d.%d: %d.0 or more is needed",
                      call, device, d.name, d.major, d.minor, (int)LEAST_MAJOR);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void *allocate(const rill__memory *memory, size_t bytes) {
    rill__cuda *c = rill__cuda_of((const rill__space *)memory);
    void *at = NULL;
    int before = rill__cuda_enter(c);
    int error = c->shared ? c->table->allocate(bytes + RILL__SLACK, &at)
                          : c->table->allocate_on(bytes + RILL__SLACK, &at, c->stream);
    if (error) at = NULL;
    rill__cuda_leave(c, before);
    return at;
}

static int free_device(rill__cuda *c, void *data) {
    return c->shared ? c->table->release(data) : c->table->release_on(data, c->stream);
}

/* Behind the work that may use it. */
static void release(const rill__memory *memory, void *data, size_t bytes) {
    rill__cuda *c = rill__cuda_of((const rill__space *)memory);
    (void)bytes;
    int before = rill__cuda_enter(c);
    rill__cuda_check(c, free_device(c, data), "release");
    rill__cuda_leave(c, before);
}

static rill__cuda *of_page_locked(const rill__memory *memory) {
    return (rill__cuda *)((uintptr_t)memory - offsetof(rill__cuda, page_locked));
}
static void *allocate_host(const rill__memory *memory, size_t bytes) {
    rill__cuda *c = of_page_locked(memory);
    void *at = NULL;
    int before = rill__cuda_enter(c);
    if (c->table->allocate_host(bytes + RILL__SLACK, &at)) at = NULL;
    rill__cuda_leave(c, before);
    return at;
}
void rill__cuda_retire(rill__cuda *c, void *data) {
    void **more = rill__realloc(c->retired, (size_t)(c->n_retired + 1) * sizeof *more);
    if (more) c->retired = more;
    if (more) c->retired[c->n_retired++] = data;
    else c->table->release_host(data);
}
static void release_host(const rill__memory *memory, void *data, size_t bytes) {
    rill__cuda *c = of_page_locked(memory);
    (void)bytes;
    int before = rill__cuda_enter(c);
    rill__cuda_retire(c, data);
    rill__cuda_leave(c, before);
}

/* What fails here is not sticky: the caller gives the memory back and goes on. */
static void *grow(rill__cuda *c, void **data, size_t *have, size_t bytes) {
    if (*data && *have >= bytes) return *data;
    if (*data) rill__cuda_check(c, free_device(c, *data), "release");
    *data = NULL;
    *have = 0;
    int error = c->shared ? c->table->allocate(bytes, data)
                          : c->table->allocate_on(bytes, data, c->stream);
    if (error) {
        *data = NULL;
        rill__fail(RILL_ERR_MEMORY, "out of memory on device %d: %zu bytes of workspace (CUDA: %s)",
                   c->device, bytes, c->table->error_text(error));
        return NULL;
    }
    *have = bytes;
    return *data;
}
void *rill__cuda_workspace(rill__cuda *c, size_t bytes) {
    return grow(c, &c->workspace, &c->workspace_bytes, bytes ? bytes : 1);
}
void *rill__cuda_aligned(rill__cuda *c, size_t bytes) {
    return grow(c, &c->aligned, &c->aligned_bytes, bytes ? bytes : 1);
}

void rill__cuda_see(rill__cuda *c, size_t bytes) {
    rill__cuda_check(c, c->table->copy(c->seen, c->words, bytes, c->stream), "copy");
    rill__cuda_check(c, c->table->stream_wait(c->stream), "wait");
}

/* ---- copies --------------------------------------------------------------------------------- */

enum { LANE = 4 << 20 }; /* bytes */

/* A lane that is free, with room for some bytes; NULL: there is no such memory. */
static rill__cuda_lane *free_lane(rill__cuda *c, size_t bytes) {
    rill__cuda_lane *lane = &c->lane[c->next_lane];
    c->next_lane ^= 1;
    size_t room = bytes < LANE / 16 ? LANE / 16 : LANE;
    if (!lane->event && c->table->event_create(&lane->event)) lane->event = NULL;
    if (!lane->event) return NULL;
    for (int done = !lane->used; !done;)
        if (!rill__cuda_check(c, c->table->event_done(lane->event, &done), "copy")) break;
    lane->used = false;
    if (lane->data && lane->bytes >= room) return lane;
    if (lane->data) rill__cuda_retire(c, lane->data);
    lane->data = NULL;
    lane->bytes = 0;
    if (c->table->allocate_host(room, &lane->data)) {
        lane->data = NULL;
        return NULL;
    }
    lane->bytes = room;
    return lane;
}

static void send(rill__cuda *c, char *to, const char *host, size_t bytes) {
    while (bytes && c->failed == RILL_OK) {
        rill__cuda_lane *lane = c->shared ? NULL : free_lane(c, bytes);
        if (!lane) { /* CUDA's own way for memory that is not page-locked */
            rill__cuda_check(c, c->table->copy(to, host, bytes, c->stream), "copy");
            rill__cuda_check(c, c->table->stream_wait(c->stream), "copy");
            return;
        }
        size_t n = rill__min_u64(bytes, lane->bytes);
        memcpy(lane->data, host, n);
        rill__cuda_check(c, c->table->copy(to, lane->data, n, c->stream), "copy");
        rill__cuda_check(c, c->table->event_record(lane->event, c->stream), "copy");
        lane->used = true;
        to += n;
        host += n;
        bytes -= n;
    }
}

static void lock(rill__cuda *c) {
    if (c->shared) pthread_mutex_lock(&c->lock);
}
static void unlock(rill__cuda *c) {
    if (c->shared) pthread_mutex_unlock(&c->lock);
}

static rill_status copy_in(const rill__space *s, void *to, const void *host, size_t bytes) {
    rill__cuda *c = rill__cuda_of(s);
    lock(c);
    int before = rill__cuda_enter(c);
    if (c->failed == RILL_OK) send(c, to, host, bytes);
    rill__cuda_leave(c, before);
    rill_status status = rill__cuda_status(c);
    unlock(c);
    return status;
}

static rill_status copy_out(const rill__space *s, void *host, const void *from, size_t bytes) {
    rill__cuda *c = rill__cuda_of(s);
    lock(c);
    int before = rill__cuda_enter(c);
    if (c->failed == RILL_OK)
        rill__cuda_check(c, c->table->copy(host, from, bytes, c->stream), "copy");
    if (c->failed == RILL_OK) rill__cuda_check(c, c->table->stream_wait(c->stream), "copy");
    rill__cuda_leave(c, before);
    rill_status status = rill__cuda_status(c);
    unlock(c);
    return status;
}

/* ---- operations ----------------------------------------------------------------------------- */

static rill_status wait_all(const rill__space *s) {
    rill__cuda *c = rill__cuda_of(s);
    lock(c);
    int before = rill__cuda_enter(c);
    if (c->failed == RILL_OK) rill__cuda_check(c, c->table->stream_wait(c->stream), "wait");
    rill__cuda_leave(c, before);
    rill_status status = rill__cuda_status(c);
    unlock(c);
    return status;
}

static rill_status poll(const rill__space *s) {
    rill__cuda *c = rill__cuda_of(s);
    int done = 0, before = rill__cuda_enter(c);
    if (c->failed == RILL_OK)
        rill__cuda_check(c, c->table->event_record(c->follows, c->stream), "poll");
    if (c->failed == RILL_OK) rill__cuda_check(c, c->table->event_done(c->follows, &done), "poll");
    rill__cuda_leave(c, before);
    RILL_TRY(rill__cuda_status(c));
    return done ? RILL_OK : RILL_IN_PROGRESS;
}

static void run(const rill__space *s, const rill__operation *o, rill__answer *answer) {
    rill__cuda *c = rill__cuda_of(s);
    lock(c);
    int before = rill__cuda_enter(c);
    if (c->failed == RILL_OK) rill__cuda_run(s, o, answer);
    if (c->shared && !answer && c->failed == RILL_OK)
        rill__cuda_check(c, c->table->stream_wait(c->stream), "wait");
    rill__cuda_leave(c, before);
    unlock(c);
}

static rill_status pick(const rill__space *s, const rill__pick *p, rill__picked *found) {
    rill__cuda *c = rill__cuda_of(s);
    *found = (rill__picked){0};
    RILL_TRY(rill__cuda_status(c));
    int before = rill__cuda_enter(c);
    rill_status status = rill__cuda_pick(s, p, found);
    rill__cuda_leave(c, before);
    return status == RILL_OK ? rill__cuda_status(c) : status;
}

/* ---- instances ------------------------------------------------------------------------------ */

static void destroy(rill__cuda *c) {
    const rill__cuda_table *t = c->table;
    int before = rill__cuda_enter(c);
    if (c->stream) t->stream_wait(c->stream);
    if (c->workspace) free_device(c, c->workspace);
    if (c->aligned) free_device(c, c->aligned);
    if (c->stream) t->stream_wait(c->stream);
    for (int i = 0; i < c->n_retired; i++)
        t->release_host(c->retired[i]);
    free(c->retired);
    if (c->words) t->release(c->words);
    if (c->seen) t->release_host(c->seen);
    for (int i = 0; i < 2; i++) {
        if (c->lane[i].data) t->release_host(c->lane[i].data);
        if (c->lane[i].event) t->event_free(c->lane[i].event);
    }
    if (c->follows) t->event_free(c->follows);
    if (c->stream) t->stream_free(c->stream);
    rill__cuda_leave(c, before);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static rill_status make(const char *call, int device, bool for_all, rill__cuda **out) {
    rill__cuda *c = rill__calloc(1, sizeof *c);
    if (!c || pthread_mutex_init(&c->lock, NULL)) {
        free(c);
        return rill__fail(RILL_ERR_MEMORY, "%s: out of memory", call);
    }
    const rill__cuda_table *t = c->table = library;
    c->device = device;
    c->shared = for_all;
    c->page_locked = (rill__memory){allocate_host, release_host, false};
    c->space = (rill__space){.memory = {allocate, release, true},
                             .name = "cuda",
                             .kind = RILL_CUDA,
                             .device = device,
                             .copy_in = copy_in,
                             .copy_out = copy_out,
                             .run = run,
                             .poll = poll,
                             .wait = wait_all,
                             .pick = for_all ? NULL : pick,
                             .order = for_all ? NULL : &rill__cuda_order,
                             .mail = for_all ? NULL : &rill__cuda_mail_ops,
                             .tensors = for_all ? NULL : &rill__cuda_tensors_ops,
                             .codes = for_all ? NULL : &rill__cuda_codes_ops,
                             .page_locked = for_all ? NULL : &c->page_locked,
                             .state = c};
    int before = rill__cuda_enter(c), error = 0;
    void *words = NULL, *seen = NULL;
    if (!loaded[device]) loaded[device] = t->load() == 0; /* else at their first launch */
    if (!for_all) error = t->stream_create(&c->stream);
    if (!error) error = t->event_create(&c->follows);
    if (!error) error = t->allocate(WORDS, &words);
    c->words = words;
    if (!error) error = t->allocate_host(WORDS, &seen);
    c->seen = seen;
    rill__cuda_leave(c, before);
    if (error) {
        rill_status status = rill__fail(error == 2 ? RILL_ERR_MEMORY : RILL_ERR_IO,
                                        "%s: CUDA: %s (device %d)", call, t->error_text(error),
                                        device);
        destroy(c);
        return status;
    }
    *out = c;
    return RILL_OK;
}

rill_status rill__cuda_find(const char *call, int device, const rill__space **out) {
    pthread_mutex_lock(&library_lock);
    rill_status status = find_device(call, &device);
    if (status == RILL_OK) status = check_capability(call, device);
    if (status == RILL_OK && !shared[device]) status = make(call, device, true, &shared[device]);
    if (status == RILL_OK) *out = &shared[device]->space;
    pthread_mutex_unlock(&library_lock);
    return status;
}

rill_status rill__cuda_open(const char *call, int device, const rill__space **out) {
    rill__cuda *c = NULL;
    pthread_mutex_lock(&library_lock);
    rill_status status = find_device(call, &device);
    if (status == RILL_OK) status = check_capability(call, device);
    if (status == RILL_OK) status = make(call, device, false, &c);
    if (status == RILL_OK) *out = &c->space;
    pthread_mutex_unlock(&library_lock);
    return status;
}

void rill__cuda_close(const rill__space *s) {
    rill__cuda *c = rill__cuda_of(s);
    if (!c->shared) destroy(c);
}

rill_status rill__cuda_await(const char *call, int device, void *stream) {
    const rill__space *space = NULL;
    RILL_TRY(rill__cuda_find(call, device, &space));
    const rill__cuda *c = rill__cuda_of(space);
    int before = rill__cuda_enter(c), error = c->table->stream_wait(stream);
    rill__cuda_leave(c, before);
    if (!error) return RILL_OK;
    return rill__fail(RILL_ERR_IO, "%s: CUDA: %s", call, c->table->error_text(error));
}

rill_status rill__cuda_describe(const char *call, int device, char *text, size_t size) {
    rill__cuda_device d;
    pthread_mutex_lock(&library_lock);
    rill_status status = find_device(call, &device);
    int error = status == RILL_OK ? library->device_info(device, &d) : 0;
    if (error) status = rill__fail(RILL_ERR_IO, "%s: CUDA: %s", call, library->error_text(error));
    pthread_mutex_unlock(&library_lock);
    if (status == RILL_OK)
        snprintf(text, size, "%s, compute capability %d.%d, %d multiprocessors, %.1f GiB", d.name,
                 d.major, d.minor, d.multiprocessors, (double)d.memory / 0x1p30);
    return status;
}
