/* MPICH polls without ever giving up its core, so that more ranks than cores take turns by whole
 * time slices: milliseconds for each message. Preloaded (scripts/mpirun-test does), this yields
 * whenever a poll of its UCX transport found nothing, as Open MPI does by itself when
 * oversubscribed. */
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void *worker);

unsigned ucp_worker_progress(void *worker) {
    static unsigned (*progress)(void *);
    if (!progress) *(void **)&progress = dlsym(RTLD_NEXT, "ucp_worker_progress");
    unsigned found = progress(worker);
    if (!found) sched_yield();
    return found;
}
