/* Fibers and barriers of emulate.h. Fibers live on from launch to launch, as making one takes
 * longer than what most of them do. */
#include "emulate.h"

#include <cstdlib>
#include <setjmp.h>
#include <ucontext.h>
#include <vector>

namespace emulate {
enum { STACK = 64 << 10 };

struct block_state {
    unsigned index, live;
    barrier whole;
    std::vector<barrier> warps;
    char *memory;
};
struct fiber {
    jmp_buf where;
    ucontext_t start;
    char *stack;
    bool started, done;
    unsigned thread;
    block_state *block;
    const barrier *waits_at; /* until its generation is another */
    unsigned generation;
};

fiber *now;
place thread_index, block_index, block_size, grid_size;
static barrier grid_barrier;
static unsigned grid_live;
static jmp_buf scheduler;
static ucontext_t scheduler_context;
static body *current_body;
static const void *current_context;
static size_t arena_used;
static std::vector<fiber *> fibers;

unsigned lane() { return thread_index.x % WARP; }
size_t arena_place(size_t bytes) {
    size_t at = arena_used;
    arena_used += (bytes + 63) / 64 * 64;
    if (arena_used > ARENA) abort();
    return at;
}
void *arena() { return now->block->memory; }
void *arena_dynamic() { return now->block->memory + ARENA; }

static void yield() {
    if (_setjmp(now->where) == 0) _longjmp(scheduler, 1);
}

static void meet(barrier *b, unsigned slot, unsigned expected, uint64_t value) {
    if (slot < WARP) b->value[slot] = value;
    if (++b->arrived >= expected) {
        memcpy(b->seen, b->value, sizeof b->seen);
        b->arrived = 0;
        b->generation++;
        return;
    }
    now->waits_at = b;
    now->generation = b->generation;
    yield();
    now->waits_at = NULL;
}
void meet_warp(uint64_t value) {
    meet(&now->block->warps[thread_index.x / WARP], lane(), WARP, value);
}
const uint64_t *warp_seen() { return now->block->warps[thread_index.x / WARP].seen; }
void meet_block() { meet(&now->block->whole, WARP, now->block->live, 0); }
void meet_grid() { meet(&grid_barrier, WARP, grid_live, 0); }

static void enter() {
    for (;;) {
        current_body(current_context);
        now->done = true;
        now->block->live--;
        grid_live--;
        yield();
    }
}

static void resume(fiber *f) {
    now = f;
    thread_index.x = f->thread;
    block_index.x = f->block->index;
    if (_setjmp(scheduler)) return;
    if (f->started) _longjmp(f->where, 1);
    f->started = true;
    setcontext(&f->start);
}

static fiber *fiber_make() {
    fiber *f = new fiber();
    f->stack = (char *)malloc(STACK);
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = f->stack;
    f->start.uc_stack.ss_size = STACK;
    f->start.uc_link = &scheduler_context;
    makecontext(&f->start, enter, 0);
    return f;
}

static void prepare(block_state *b, unsigned index, unsigned threads, unsigned first_fiber) {
    b->index = index;
    b->live = threads;
    b->whole = barrier();
    b->warps.assign(threads / WARP, barrier());
    if (!b->memory) b->memory = (char *)aligned_alloc(64, 2 * ARENA);
    memset(b->memory, 0xA5, arena_used); /* shared memory starts with anything */
    while (fibers.size() < first_fiber + threads)
        fibers.push_back(fiber_make());
    for (unsigned t = 0; t < threads; t++) {
        fiber *f = fibers[first_fiber + t];
        f->thread = t;
        f->block = b;
        f->done = false;
        f->waits_at = NULL;
    }
}

int run(body *kernel, const void *context, unsigned grid, unsigned block, bool cooperative) {
    const char *order = getenv("RILL_EMULATE_ORDER");
    bool backwards = order && order[0] == '1';
    if (!grid || !block || block > 1024 || block % WARP) return 9; /* invalid configuration */
    current_body = kernel;
    current_context = context;
    block_size.x = block;
    grid_size.x = grid;
    grid_barrier = barrier();
    static std::vector<block_state> states;
    unsigned at_once = cooperative ? grid : 1, all = at_once * block;
    if (states.size() < at_once) states.resize(at_once);
    for (unsigned first = 0; first < grid; first += at_once) {
        grid_live = all;
        for (unsigned i = 0; i < at_once; i++)
            prepare(&states[i], backwards ? grid - 1 - (first + i) : first + i, block, i * block);
        for (unsigned left = all; left;) {
            left = 0;
            for (unsigned i = 0; i < all; i++) {
                fiber *f = fibers[backwards ? all - 1 - i : i];
                if (f->done) continue;
                left++;
                if (f->waits_at && f->waits_at->generation == f->generation) continue;
                resume(f);
            }
        }
    }
    return 0;
}
} // namespace emulate
