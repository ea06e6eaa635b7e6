#include "link/fiber.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__) || defined(__ILP32__)
#define PORTABLE 1
#include <ucontext.h>
#endif

/* Sanitizers must know on which stack the program is. */
#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#elif __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TSAN
#include <sanitizer/tsan_interface.h>
#endif

struct rill__fiber {
    char *mapping; /* a page that may not be touched, then the stack */
    size_t guard, stack;
    void (*run)(void *);
    void *argument;
    bool ended;
#ifdef PORTABLE
    ucontext_t inside, outside;
#else
    void *inside, *outside; /* stack pointers of who does not run */
#endif
#ifdef ASAN
    void *fake_inside, *fake_outside;
    const void *outer_stack;
    size_t outer_size;
#endif
#ifdef TSAN
    void *tsan, *tsan_outside;
#endif
};

/* What a fresh fiber begins with. */
static _Thread_local rill__fiber *starting;

/* ---- the switch ------------------------------------------------------------------------------ */

#ifndef PORTABLE
/* swapcontext makes a system call for the signal mask, which none of ours changes: this saves what
 * a called function must keep, and takes a nanosecond instead of a microsecond. */
void rill__fiber_switch(void **from, void *to);
__asm__(".text\n"
        ".globl rill__fiber_switch\n"
        ".hidden rill__fiber_switch\n"
        ".type rill__fiber_switch, @function\n"
        "rill__fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size rill__fiber_switch, .-rill__fiber_switch\n");
#endif

static void enter(rill__fiber *fiber) {
#ifdef PORTABLE
    swapcontext(&fiber->outside, &fiber->inside);
#else
    rill__fiber_switch(&fiber->outside, fiber->inside);
#endif
}

static void leave(rill__fiber *fiber) {
#ifdef ASAN
    /* NULL: the stack will not be used again as it is. */
    __sanitizer_start_switch_fiber(fiber->ended ? NULL : &fiber->fake_inside, fiber->outer_stack,
                                   fiber->outer_size);
#endif
#ifdef TSAN
    __tsan_switch_to_fiber(fiber->tsan_outside, 0);
#endif
#ifdef PORTABLE
    swapcontext(&fiber->inside, &fiber->outside);
#else
    rill__fiber_switch(&fiber->inside, fiber->outside);
#endif
#ifdef ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_inside, &fiber->outer_stack, &fiber->outer_size);
#endif
}

static void begin(void) {
    rill__fiber *fiber = starting;
#ifdef ASAN
    __sanitizer_finish_switch_fiber(NULL, &fiber->outer_stack, &fiber->outer_size);
#endif
    fiber->run(fiber->argument);
    fiber->ended = true;
    leave(fiber);
    abort(); /* nobody resumes what has ended */
}

/* ---- life ------------------------------------------------------------------------------------ */

rill_status rill__fiber_create(size_t stack, rill__fiber **out) {
    rill__fiber *fiber = calloc(1, sizeof *fiber);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *out = NULL;
    if (fiber) {
        fiber->guard = page;
        fiber->stack = (stack + page - 1) / page * page;
        fiber->mapping = mmap(NULL, fiber->guard + fiber->stack, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (!fiber || fiber->mapping == MAP_FAILED) {
        free(fiber);
        return rill__fail(RILL_ERR_MEMORY, "out of memory for a stack of %zu bytes", stack);
    }
    mprotect(fiber->mapping, fiber->guard, PROT_NONE);
    fiber->ended = true;
#ifdef TSAN
    fiber->tsan = __tsan_create_fiber(0);
#endif
    *out = fiber;
    return RILL_OK;
}

void rill__fiber_free(rill__fiber *fiber) {
    if (!fiber) return;
#ifdef ASAN
    __asan_unpoison_memory_region(fiber->mapping + fiber->guard, fiber->stack);
#endif
#ifdef TSAN
    __tsan_destroy_fiber(fiber->tsan);
#endif
    munmap(fiber->mapping, fiber->guard + fiber->stack);
    free(fiber);
}

void rill__fiber_start(rill__fiber *fiber, void (*run)(void *), void *argument) {
    char *bottom = fiber->mapping + fiber->guard;
    fiber->run = run;
    fiber->argument = argument;
    fiber->ended = false;
#ifdef ASAN
    __asan_unpoison_memory_region(bottom, fiber->stack);
#endif
#ifdef PORTABLE
    getcontext(&fiber->inside);
    fiber->inside.uc_stack.ss_sp = bottom;
    fiber->inside.uc_stack.ss_size = fiber->stack;
    fiber->inside.uc_link = NULL;
    makecontext(&fiber->inside, begin, 0);
#else
    /* As the switch leaves a stack: control words, six registers, where to return to. A function
     * finds the stack 8 bytes past a multiple of 16. */
    void **top = (void **)(bottom + fiber->stack);
    *--top = NULL;
    *--top = (void *)begin;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    uint32_t *control = (uint32_t *)--top;
    __asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(control[0]), "=m"(*(uint16_t *)&control[1]));
    fiber->inside = top;
#endif
}

bool rill__fiber_resume(rill__fiber *fiber) {
    starting = fiber;
#ifdef ASAN
    __sanitizer_start_switch_fiber(&fiber->fake_outside, fiber->mapping + fiber->guard,
                                   fiber->stack);
#endif
#ifdef TSAN
    fiber->tsan_outside = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->tsan, 0);
#endif
    enter(fiber);
#ifdef ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_outside, NULL, NULL);
#endif
    return fiber->ended;
}

void rill__fiber_yield(rill__fiber *fiber) { leave(fiber); }
