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
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2 }; /* as CUDA numbers them */

struct event {
    std::shared_ptr<bool> done; /* of the last record; who waits, waits for one record */
};
struct item {
    std::function<int()> work;   /* what to do, once it may */
    std::function<bool()> ready; /* empty: at once */
};
struct stream {
    std::deque<item> items;
    bool captured;
};

static std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> guard;
static stream legacy;
static std::vector<stream *> streams(1, &legacy);
static int sticky;
static bool switched(const char *name) {
    const char *text = getenv(name);
    return text && text[0] == '1';
}
static std::atomic<bool> late(switched("RILL_EMULATE_LATE"));
static std::atomic<uint64_t> allocations, fails_from, fails_until, live;

static stream *stream_at(void *at) { return at ? (stream *)at : &legacy; }

/* ---- memory ------------------------------------------------------------------------------- */

static const size_t ARENA = (size_t)1 << 30, PAGE = 4096;
static char *arena;
static const bool protects = switched("RILL_EMULATE_PROTECT");
static std::map<size_t, size_t> areas; /* of device memory: offset, bytes */
static std::map<const char *, size_t> page_locked;

static void protect(int protection) {
    size_t end = areas.empty() ? 0 : areas.rbegin()->first + areas.rbegin()->second;
    if (protects && end && mprotect(arena, end, protection)) abort();
}

/* Allocation n from now on fails, and so do those up to m. */
static bool refuses() {
    uint64_t n = ++allocations;
    return fails_from && n >= fails_from && n <= fails_until;
}

int allocate(size_t bytes, void **at) {
    guard g(lock);
    *at = NULL;
    if (refuses()) return OUT_OF_MEMORY;
    if (!arena) {
        arena = (char *)mmap(NULL, ARENA, protects ? PROT_NONE : PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED) abort();
    }
    size_t padded = (bytes + 512 + PAGE - 1) / PAGE * PAGE, from = 0;
    for (auto &a : areas) {
        if (from + padded <= a.first) break;
        from = a.first + a.second;
    }
    if (from + padded > ARENA) return OUT_OF_MEMORY;
    areas[from] = padded;
    live++;
    if (protects && mprotect(arena + from, padded, PROT_READ | PROT_WRITE)) abort();
    memset(arena + from, 0xff, padded); /* what is not written must not be read */
    if (protects && mprotect(arena + from, padded, PROT_NONE)) abort();
    *at = arena + from;
    return OK;
}

static bool is_device(const void *p) {
    return arena && (const char *)p >= arena && (const char *)p < arena + ARENA;
}

static bool run_some();

/* As CUDA's, it waits for all work: some may still use the memory. */
int release(void *at) {
    guard g(lock);
    if (!at) return OK;
    while (run_some())
        ;
    if (!is_device(at) || !areas.count((size_t)((char *)at - arena))) return INVALID;
    areas.erase((size_t)((char *)at - arena));
    live--;
    return OK;
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
int device_of(const void *p, int *device) { return *device = is_device(p) ? 0 : -1, 0; }

/* ---- streams ------------------------------------------------------------------------------ */

/* Runs the first piece of a stream's work, if it may. Lock held. */
static bool run_one(stream *s) {
    if (s->items.empty()) return false;
    if (s->items.front().ready && !s->items.front().ready()) return false;
    item now = s->items.front();
    s->items.pop_front();
    if (now.work) {
        protect(PROT_READ | PROT_WRITE);
        int error = now.work();
        protect(PROT_NONE);
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
int enqueue(void *at, const std::function<int()> &work) { return add(at, item{work, nullptr}); }

int copy(void *to, const void *from, size_t bytes, void *at) {
    bool from_pages, to_pages;
    {
        guard g(lock);
        from_pages = !is_device(from) && !is_page_locked(from);
        to_pages = !is_device(to) && !is_page_locked(to);
    }
    if (from_pages) { /* staged at once: the caller may write to it again */
        std::vector<char> kept((const char *)from, (const char *)from + bytes);
        int error = enqueue(at, [=] { return memcpy(to, kept.data(), bytes), OK; });
        if (error) return error;
    } else {
        int error = enqueue(at, [=] { return memmove(to, from, bytes), OK; });
        if (error) return error;
    }
    return to_pages ? stream_wait(at) : OK;
}
int allocate_on(size_t bytes, void **out, void *) { return allocate(bytes, out); }
int release_on(void *at, void *on) {
    return enqueue(on, [=] {
        if (!is_device(at) || !areas.count((size_t)((char *)at - arena))) return (int)INVALID;
        areas.erase((size_t)((char *)at - arena));
        live--;
        return (int)OK;
    });
}
int fill(void *to, int byte, size_t bytes, void *at) {
    return enqueue(at, [=] { return memset(to, byte, bytes), OK; });
}

int stream_create(void **out) {
    guard g(lock);
    streams.push_back(new stream());
    *out = streams.back();
    return OK;
}
int stream_free(void *at) {
    stream_wait(at);
    guard g(lock);
    for (size_t i = 1; i < streams.size(); i++)
        if (streams[i] == at) {
            streams.erase(streams.begin() + (long)i);
            delete (stream *)at;
            return OK;
        }
    return INVALID;
}
int stream_wait(void *at) {
    for (;;) {
        {
            guard g(lock);
            if (stream_at(at)->items.empty()) return sticky;
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

int event_create(void **out) { return *out = new event(), OK; }
int event_free(void *at) { return delete (event *)at, OK; }
int event_record(void *at, void *on) {
    guard g(lock);
    std::shared_ptr<bool> done = std::make_shared<bool>(false);
    ((event *)at)->done = done;
    return add(on, item{[=] { return *done = true, OK; }, nullptr});
}
int event_done(void *at, int *done) {
    guard g(lock);
    event *e = (event *)at;
    run_some();
    *done = !e->done || *e->done;
    return sticky;
}
int stream_wait_event(void *on, void *at) {
    guard g(lock);
    std::shared_ptr<bool> done = ((event *)at)->done;
    return add(on, item{nullptr, [=] { return !done || *done; }});
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
    return add(on, item{nullptr, [=] {
                            return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - number) >= 0;
                        }});
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
    } else if (!strcmp(what, "break")) sticky = (int)value;
    else if (!strcmp(what, "capture")) stream_at((void *)(uintptr_t)value)->captured = more != 0;
    else if (!strcmp(what, "allocations")) return allocations;
    else if (!strcmp(what, "live")) return live;
    else abort();
    return 0;
}
