#include "link/reach.h"

#include <stdlib.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

/* What a rank tells: its process, where its word lies, and what it is. A process of another
 * namespace that has the same number has another word there, or none. */
enum { PROCESS, ADDRESS, WORD, GREETING, TOLD };
_Static_assert((int)TOLD <= (int)RILL__LINK_VALUES, "they fit");

bool rill__reach_read(const rill__reach *reach, int place, uint64_t from, void *to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        struct iovec here = {(char *)to + done, bytes - done};
        struct iovec there = {(char *)(uintptr_t)from + done, bytes - done};
        ssize_t n = process_vm_readv((pid_t)reach->process[place], &here, 1, &there, 1, 0);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

bool rill__reach_write(const rill__reach *reach, int place, uint64_t to, const void *from,
                       size_t bytes) {
    union {
        const void *from;
        void *to;
    } view = {.from = from}; /* it is only read */
    for (size_t done = 0; done < bytes;) {
        struct iovec here = {(char *)view.to + done, bytes - done};
        struct iovec there = {(char *)(uintptr_t)to + done, bytes - done};
        ssize_t n = process_vm_writev((pid_t)reach->process[place], &here, 1, &there, 1, 0);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* All write the same. */
static bool greet(const rill__reach *reach, int place, uint64_t to) {
    static const char hello = 1;
    return rill__reach_write(reach, place, to, &hello, sizeof hello);
}

static bool try_all(const rill__reach *reach, const rill__hosts *hosts, const uint64_t *told) {
    for (int i = 0; i < hosts->here; i++) {
        const uint64_t *theirs = &told[(size_t)TOLD * (size_t)hosts->ranks[i]];
        uint64_t word = 0;
        reach->process[i] = (int64_t)theirs[PROCESS];
        if (!rill__reach_read(reach, i, theirs[ADDRESS], &word, sizeof word) ||
            word != theirs[WORD] || !greet(reach, i, theirs[GREETING]))
            return false;
    }
    return true;
}

rill_status rill__reach_find(rill__reach *reach, rill__link *link, const rill__hosts *hosts,
                             bool *all) {
    uint64_t *told = (uint64_t *)(void *)link->values;
    *all = false;
    if (getrandom(&reach->word, sizeof reach->word, 0) != (ssize_t)sizeof reach->word)
        reach->word = (uint64_t)(uintptr_t)reach * 2 + 1;
    uint64_t mine[TOLD] = {(uint64_t)getpid(), (uint64_t)(uintptr_t)&reach->word, reach->word,
                           (uint64_t)(uintptr_t)&reach->greeting};
    RILL_TRY(link->table->allgather(link, mine, sizeof mine, told));
    reach->process = rill__calloc((size_t)hosts->here, sizeof *reach->process);
    *all = reach->process && try_all(reach, hosts, told);
    return RILL_OK;
}

void rill__reach_free(rill__reach *reach) {
    free(reach->process);
    reach->process = NULL;
}
