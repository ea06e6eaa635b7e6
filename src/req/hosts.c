#include "req/hosts.h"
#include "req/request.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char cyclic[] = "cyclic:";

/* The number at *text, which goes on past it; 0: none. */
static int next_number(const char **text) {
    char *end;
    if (!isdigit((unsigned char)**text)) return 0;
    long n = strtol(*text, &end, 10);
    *text = end;
    return n > 0 && n <= 1000000 ? (int)n : 0;
}

rill_status rill__hosts_check(const char *pretended) {
    const char *at = pretended;
    bool deals = strncmp(at, cyclic, sizeof cyclic - 1) == 0;
    if (deals) at += sizeof cyclic - 1;
    bool good = next_number(&at) > 0;
    while (good && !deals && *at == ',') {
        at++;
        good = next_number(&at) > 0;
    }
    if (good && !*at) return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT,
                      "setting hosts_of = '%s' is neither ranks of a host (4), nor a list of them "
                      "(3,1,2), nor cyclic:HOSTS",
                      pretended);
}

/* first[i] = the lowest rank of the host that rank i pretends to be on. */
static void pretend(const char *text, int size, int *first) {
    if (strncmp(text, cyclic, sizeof cyclic - 1) == 0) {
        const char *at = text + sizeof cyclic - 1;
        int hosts = next_number(&at);
        for (int i = 0; i < size; i++)
            first[i] = i % hosts;
        return;
    }
    const char *at = text;
    for (int i = 0; i < size;) {
        int ranks = next_number(&at), lowest = i;
        at = *at ? at + 1 : text; /* the list from its start again */
        for (; i < size && i - lowest < ranks; i++)
            first[i] = lowest;
    }
}

/* first[i] = the lowest rank that shares memory with rank i. False: MPI does not tell. */
static bool find(MPI_Comm mpi, int rank, int size, int *first) {
    MPI_Comm host;
    int lowest = rank;
    for (int i = 0; i < size; i++)
        first[i] = 0;
    if (MPI_Comm_split_type(mpi, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host) != MPI_SUCCESS)
        return false;
    MPI_Bcast(&lowest, 1, MPI_INT, 0, host);
    MPI_Comm_free(&host);
    return MPI_Allgather(&lowest, 1, MPI_INT, first, 1, MPI_INT, mpi) == MPI_SUCCESS;
}

static void number(rill__hosts *h, int rank, int size, const int *first) {
    h->n = h->here = h->most = 0;
    for (int i = 0; i < size; i++) {
        if (first[i] == i) h->leader[h->n++] = i;
        h->host_of[i] = first[i] == i ? h->n - 1 : h->host_of[first[i]];
    }
    h->mine = h->host_of[rank];
    for (int i = 0; i < size; i++) {
        if (h->host_of[i] != h->mine) continue;
        if (i == rank) h->place = h->here;
        h->ranks[h->here++] = i;
    }
}

rill_status rill__hosts_reserve(rill__hosts *h, int ranks) {
    size_t size = (size_t)ranks;
    h->ranks = calloc(size * 5, sizeof *h->ranks);
    if (!h->ranks) return rill__fail(RILL_ERR_MEMORY, "out of memory for the table of hosts");
    h->leader = h->ranks + size;
    h->host_of = h->ranks + 2 * size;
    return RILL_OK;
}

rill_status rill__hosts_find(rill__hosts *h, MPI_Comm mpi, const char *pretended) {
    int rank, size;
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &size);
    int *first = h->ranks + 3 * (size_t)size, *real = h->ranks + 4 * (size_t)size;
    h->shares = find(mpi, rank, size, real);
    h->together = 0;
    for (int i = 0; i < size; i++)
        h->together += real[i] == real[rank];
    memcpy(first, real, (size_t)size * sizeof *first);
    if (*pretended) pretend(pretended, size, first);
    number(h, rank, size, first);
    int ranks[2] = {h->here, 0};
    for (int i = 0; i < size; i++) /* a host that is made of several has no memory in common */
        h->shares &= real[i] == real[first[i]];
    int code = MPI_Allreduce(&ranks[0], &ranks[1], 1, MPI_INT, MPI_MAX, mpi);
    h->most = ranks[1];
    return code == MPI_SUCCESS ? RILL_OK : rill__mpi_error(code, "MPI_Allreduce");
}

void rill__hosts_free(rill__hosts *h) {
    free(h->ranks);
    h->ranks = NULL;
}
