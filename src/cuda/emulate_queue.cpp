#include "emulate_queue.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sched.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace emulate {
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, BAD_DEVICE = 101, BAD_HANDLE = 400, UNSAFE = 900 };
enum { MOST = 4, EVERY = -1 }; /* devices */

struct event {
    int device;
    std::shared_ptr<bool> done; /* of the last record; who waits, waits for one record */
};
struct item {
    std::function<int()> work;   /* what to do, once it may */
    std::function<bool()> ready; /* empty: at once */
    int touches;                 /* memory of a device, or of every one */
};
struct stream {
    int device;
    std::deque<item> items;
    bool captured;
};
struct device {
    stream legacy;
    char *arena;
    std::map<size_t, size_t> areas; /* offset, bytes */
    size_t used;                    /* bytes */
    bool active;                    /* has a context, which takes memory of a real one */
    int sticky;                     /* error of all that is asked of it from now on */
};

static std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> guard;
static device all[MOST];
static thread_local int current;
static thread_local bool adopted;
static std::vector<stream *> make_streams() {
    std::vector<stream *> list;
    for (int i = 0; i < MOST; i++) {
        all[i].legacy.device = i;
        list.push_back(&all[i].legacy);
    }
    return list;
}
static std::vector<stream *> streams = make_streams();
static bool switched(const char *name) {
    const char *text = getenv(name);
    return text && text[0] == '1';
}
static std::atomic<bool> late(switched("RILL_EMULATE_LATE"));
static std::atomic<uint64_t> allocations, fails_from, fails_until, live;
/* A thread captures: what may wait is forbidden to all threads but adopted ones. */
static bool captures;
static uint64_t forbidden;  /* calls */
static uint64_t waits_left; /* until a wait for an event is refused; 0: none is */

static stream *stream_at(void *at) { return at ? (stream *)at : &all[current].legacy; }

/* ---- devices ------------------------------------------------------------------------------ */

int devices() {
    const char *text = getenv("RILL_EMULATE_DEVICES");
    int n = text ? atoi(text) : 1;
    return n < 1 ? 1 : n > MOST ? (int)MOST : n;
}
int device_get() { return current; }
int device_set(int to) {
    guard g(lock);
    if (to < 0 || to >= devices()) return BAD_DEVICE;
    current = to;
    all[to].active = true;
    return OK;
}
int adopt(int to) {
    adopted = true;
    return device_set(to);
}
static bool spoils() {
    guard g(lock);
    if (!captures || adopted) return false;
    forbidden++;
    return true;
}

/* ---- memory ------------------------------------------------------------------------------- */

static const size_t ARENA = (size_t)1 << 30, PAGE = 4096;
static const bool protects = switched("RILL_EMULATE_PROTECT");
static std::map<const char *, size_t> page_locked;

static void protect(int which, int protection) {
    for (int i = 0; protects && i < MOST; i++) {
        const std::map<size_t, size_t> &areas = all[i].areas;
        size_t end = areas.empty() ? 0 : areas.rbegin()->first + areas.rbegin()->second;
        if (which != EVERY && which != i) continue;
        if (end && mprotect(all[i].arena, end, protection)) abort();
    }
}

/* Allocation n from now on fails, and so do those up to m. */
static bool refuses() {
    uint64_t n = ++allocations;
    return fails_from && n >= fails_from && n <= fails_until;
}

static int allocate_of(device &d, size_t bytes, void **at) {
    *at = NULL;
    d.active = true;
    if (spoils()) return UNSAFE;
    if (refuses()) return OUT_OF_MEMORY;
    if (!d.arena) {
        d.arena = (char *)mmap(NULL, ARENA, protects ? PROT_NONE : PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (d.arena == MAP_FAILED) abort();
    }
    size_t padded = (bytes + 512 + PAGE - 1) / PAGE * PAGE, from = 0;
    for (auto &a : d.areas) {
        if (from + padded <= a.first) break;
        from = a.first + a.second;
    }
    if (from + padded > ARENA) return OUT_OF_MEMORY;
    d.areas[from] = padded;
    d.used += padded;
    live++;
    if (protects && mprotect(d.arena + from, padded, PROT_READ | PROT_WRITE)) abort();
    memset(d.arena + from, 0xff, padded); /* what is not written must not be read */
    if (protects && mprotect(d.arena + from, padded, PROT_NONE)) abort();
    *at = d.arena + from;
    return OK;
}
int allocate(size_t bytes, void **at) {
    guard g(lock);
    return allocate_of(all[current], bytes, at);
}
int memory_used(size_t *bytes) {
    guard g(lock);
    *bytes = all[current].used;
    return OK;
}

/* EVERY: none. */
static int device_at(const void *p) {
    for (int i = 0; i < MOST; i++)
        if (all[i].arena && (const char *)p >= all[i].arena &&
            (const char *)p < all[i].arena + ARENA)
            return i;
    return EVERY;
}
static bool is_device(const void *p) { return device_at(p) != EVERY; }

static int forget(void *at) {
    int which = device_at(at);
    if (which == EVERY) return INVALID;
    device &d = all[which];
    auto area = d.areas.find((size_t)((char *)at - d.arena));
    if (area == d.areas.end()) return INVALID;
    d.used -= area->second;
    d.areas.erase(area);
    live--;
    return OK;
}

static bool run_some();

/* As CUDA's, it waits for all work: some may still use the memory. */
int release(void *at) {
    guard g(lock);
    if (!at) return OK;
    while (run_some())
        ;
    return forget(at);
}

int allocate_host(size_t bytes, void **at) {
    guard g(lock);
    *at = NULL;
    if (refuses()) return OUT_OF_MEMORY;
    *at = aligned_alloc(256, (bytes + 511) / 256 * 256);
    if (!*at) return OUT_OF_MEMORY;
    page_locked[(const char *)*at] = bytes;
    live++;
    return OK;
}
int release_host(void *at) {
    guard g(lock);
    if (!at) return OK;
    if (!page_locked.erase((const char *)at)) return INVALID;
    free(at);
    live--;
    return OK;
}
static bool is_page_locked(const void *p) {
    auto after = page_locked.upper_bound((const char *)p);
    if (after == page_locked.begin()) return false;
    --after;
    return (const char *)p <= after->first + after->second;
}
int device_of(const void *p, int *device) { return *device = device_at(p), 0; }
int range_of(const void *p, const void **start, size_t *bytes) {
    guard g(lock);
    int which = device_at(p);
    if (which == EVERY) return INVALID;
    device &d = all[which];
    auto after = d.areas.upper_bound((size_t)((const char *)p - d.arena));
    if (after == d.areas.begin()) return INVALID;
    --after;
    *start = d.arena + after->first;
    return *bytes = after->second, OK;
}

/* ---- streams ------------------------------------------------------------------------------ */

/* Runs the first piece of a stream's work, if it may. Lock held. */
static bool run_one(stream *s) {
    if (s->items.empty()) return false;
    if (s->items.front().ready && !s->items.front().ready()) return false;
    item now = s->items.front();
    s->items.pop_front();
    if (now.work) {
        protect(now.touches, PROT_READ | PROT_WRITE);
        int error = now.work();
        protect(now.touches, PROT_NONE);
        int &sticky = all[s->device].sticky;
        if (error && !sticky) sticky = error;
    }
    return true;
}
static bool run_some() {
    bool moved = false;
    for (size_t i = 0; i < streams.size(); i++)
        moved |= run_one(streams[i]);
    return moved;
}
static void pump() {
    if (late) return;
    while (run_some())
        ;
}

static int add(void *at, const item &what) {
    guard g(lock);
    stream *s = stream_at(at);
    if (s->captured) return INVALID;
    s->items.push_back(what);
    pump();
    return OK;
}
/* As CUDA's, a kernel needs a stream of the current device; and finds the memory of that alone. */
int enqueue(void *at, const std::function<int()> &work) {
    guard g(lock);
    if (stream_at(at)->device != current) return BAD_HANDLE;
    all[current].active = true;
    return add(at, item{work, nullptr, current});
}
static int enqueue_copy(void *at, const std::function<int()> &work) {
    return add(at, item{work, nullptr, EVERY});
}

int copy(void *to, const void *from, size_t bytes, void *at) {
    bool from_pages, to_pages;
    {
        guard g(lock);
        from_pages = !is_device(from) && !is_page_locked(from);
        to_pages = !is_device(to) && !is_page_locked(to);
    }
    if (from_pages) { /* staged at once: the caller may write to it again */
        std::vector<char> kept((const char *)from, (const char *)from + bytes);
        int error = enqueue_copy(at, [=] { return memcpy(to, kept.data(), bytes), OK; });
        if (error) return error;
    } else {
        int error = enqueue_copy(at, [=] { return memmove(to, from, bytes), OK; });
        if (error) return error;
    }
    return to_pages ? stream_wait(at) : OK;
}
int allocate_on(size_t bytes, void **out, void *on) {
    guard g(lock);
    return allocate_of(all[stream_at(on)->device], bytes, out);
}
int release_on(void *at, void *on) {
    return enqueue_copy(on, [=] { return forget(at); });
}
int fill(void *to, int byte, size_t bytes, void *at) {
    return enqueue(at, [=] { return memset(to, byte, bytes), OK; });
}

int stream_create(void **out) {
    guard g(lock);
    streams.push_back(new stream());
    streams.back()->device = current;
    all[current].active = true;
    *out = streams.back();
    return OK;
}
int stream_free(void *at) {
    stream_wait(at);
    guard g(lock);
    for (size_t i = MOST; i < streams.size(); i++)
        if (streams[i] == at) {
            streams.erase(streams.begin() + (long)i);
            delete (stream *)at;
            return OK;
        }
    return INVALID;
}
int stream_wait(void *at) {
    if (spoils()) return UNSAFE;
    for (;;) {
        {
            guard g(lock);
            if (stream_at(at)->items.empty()) return all[stream_at(at)->device].sticky;
            run_some();
        }
        sched_yield();
    }
}
int stream_capturing(void *at, int *out) {
    guard g(lock);
    return *out = stream_at(at)->captured, OK;
}

/* ---- events ------------------------------------------------------------------------------- */

int event_create(void **out) {
    event *e = new event();
    e->device = current;
    return *out = e, OK;
}
int event_free(void *at) { return delete (event *)at, OK; }
int event_record(void *at, void *on) {
    guard g(lock);
    if (stream_at(on)->device != ((event *)at)->device) return BAD_HANDLE;
    std::shared_ptr<bool> done = std::make_shared<bool>(false);
    ((event *)at)->done = done;
    return add(on, item{[=] { return *done = true, OK; }, nullptr, EVERY});
}
int event_done(void *at, int *done) {
    guard g(lock);
    event *e = (event *)at;
    if (spoils()) return UNSAFE;
    run_some();
    *done = !e->done || *e->done;
    return all[e->device].sticky;
}
int stream_wait_event(void *on, void *at) {
    guard g(lock);
    if (waits_left && !--waits_left) return INVALID;
    std::shared_ptr<bool> done = ((event *)at)->done;
    return add(on, item{nullptr, [=] { return !done || *done; }, EVERY});
}

/* ---- words of the host -------------------------------------------------------------------- */

/* A device goes on by itself when a word has been written. */
struct clockwork {
    std::atomic<bool> stop;
    std::thread thread;
    void start() {
        if (thread.joinable()) return;
        thread = std::thread([this] {
            while (!stop) {
                usleep(late ? 200 : 50);
                guard g(lock);
                if (late) run_some();
                else pump();
            }
        });
    }
    ~clockwork() {
        stop = true;
        if (thread.joinable()) thread.join();
    }
};
static clockwork ticking;

int stream_hold(const uint32_t *word, uint32_t number, void *on) {
    guard g(lock);
    if (!is_page_locked(word)) return INVALID;
    ticking.start();
    auto ready = [=] { return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - number) >= 0; };
    return add(on, item{nullptr, ready, EVERY});
}
} // namespace emulate

/* For tests: what the emulated device shall do, and what it has done. */
extern "C" __attribute__((visibility("default"))) uint64_t
rill__emulate_control(const char *what, uint64_t value, uint64_t more) {
    using namespace emulate;
    guard g(lock);
    if (!strcmp(what, "late")) late = value != 0;
    else if (!strcmp(what, "fail")) { /* allocations value to more, from 1, from now on */
        allocations = 0;
        fails_from = value;
        fails_until = more;
    } else if (!strcmp(what, "break")) all[more].sticky = (int)value; /* of device more */
    else if (!strcmp(what, "capture")) stream_at((void *)(uintptr_t)value)->captured = more != 0;
    else if (!strcmp(what, "allocations")) return allocations;
    else if (!strcmp(what, "live")) return live;
    else if (!strcmp(what, "captures")) {
        uint64_t was = forbidden;
        captures = value != 0;
        forbidden = 0;
        return was;
    } else if (!strcmp(what, "refuse")) waits_left = value; /* wait number value for an event */
    else if (!strcmp(what, "active")) { /* whether the device has a context; then more */
        uint64_t was = all[value].active;
        all[value].active = more != 0;
        return was;
    } else abort();
    return 0;
}
