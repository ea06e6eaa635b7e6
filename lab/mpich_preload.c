/* Preloaded by lab/cluster into the ranks of MPICH (4.0, over UCX), for two reasons.
 *
 * MPICH polls without ever giving up its core, so that more ranks than cores take turns by whole
 * time slices: here a poll that found nothing yields, as Open MPI's do when told to.
 *
 * Its MPI_Finalize closes the connections, which takes both sides, and then waits in a barrier of
 * the launcher without looking at the network: a rank that still closes waits for ever for one that
 * is already there (seen at 8 hosts in every second run). So connections are left to the end of the
 * process. That they are idle by then is ours to see to: all ranks meet, look at the network for a
 * while, in which what is still queued leaves, and meet again over connections that stand.
 *
 * Not linked with MPICH, since the launcher's shells get it too; the types are those of MPICH's
 * ABI.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>

enum { COMM_WORLD = 0x44000000, ANY_SOURCE = -2, ANY_TAG = -1 };
static const double SETTLE_SECONDS = 0.1;

unsigned ucp_worker_progress(void *worker);
void *ucp_disconnect_nb(void *endpoint);
int MPI_Finalize(void);

/* Also where the library was loaded for a module only, as Python does. */
static void *find(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? dlsym(handle, name) : NULL;
    if (!found) abort(); /* whoever called us has it */
    return found;
}

unsigned ucp_worker_progress(void *worker) {
    static unsigned (*progress)(void *);
    if (!progress) *(void **)&progress = find("libucp.so.0", "ucp_worker_progress");
    unsigned found = progress(worker);
    if (!found) sched_yield();
    return found;
}

void *ucp_disconnect_nb(void *endpoint) {
    (void)endpoint;
    return NULL; /* UCS_OK: done at once */
}

int MPI_Finalize(void) {
    int (*finalize)(void), (*barrier)(int), (*probe)(int, int, int, int *, void *), there;
    double (*clock)(void);
    *(void **)&finalize = find("libmpich.so.12", "PMPI_Finalize");
    *(void **)&barrier = find("libmpich.so.12", "PMPI_Barrier");
    *(void **)&probe = find("libmpich.so.12", "PMPI_Iprobe");
    *(void **)&clock = find("libmpich.so.12", "PMPI_Wtime");
    void *status_ignore = (void *)1;
    barrier(COMM_WORLD);
    for (double end = clock() + SETTLE_SECONDS; clock() < end;)
        probe(ANY_SOURCE, ANY_TAG, COMM_WORLD, &there, status_ignore);
    barrier(COMM_WORLD);
    return finalize();
}
