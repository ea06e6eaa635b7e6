#include "link/hosts.h"

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

/* first[i] = the lowest rank that shares memory with rank i; *known: the link tells of all ranks.
 */
static rill_status find(rill__link *link, int *first, bool *known) {
    uint64_t *ids = (uint64_t *)(void *)link->values; /* two of each rank */
    _Static_assert(RILL__LINK_VALUES >= 2, "they fit");
    RILL_TRY(link->table->allgather(link, link->host, sizeof link->host, ids));
    *known = true;
    for (int i = 0; i < link->ranks; i++) {
        const uint64_t *mine = &ids[2 * (size_t)i];
        *known &= mine[0] || mine[1];
        first[i] = 0;
        while (memcmp(&ids[2 * (size_t)first[i]], mine, sizeof link->host) != 0)
            first[i]++;
    }
    return RILL_OK;
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

static int fullest(const rill__hosts *h, int size, int *ranks_of) {
    int most = 0;
    memset(ranks_of, 0, (size_t)size * sizeof *ranks_of);
    for (int i = 0; i < size; i++) {
        int ranks = ++ranks_of[h->host_of[i]];
        if (ranks > most) most = ranks;
    }
    return most;
}

rill_status rill__hosts_reserve(rill__hosts *h, int ranks) {
    size_t size = (size_t)ranks;
    h->ranks = calloc(size * 5, sizeof *h->ranks);
    if (!h->ranks) return rill__fail(RILL_ERR_MEMORY, "out of memory for the table of hosts");
    h->leader = h->ranks + size;
    h->host_of = h->ranks + 2 * size;
    return RILL_OK;
}

rill_status rill__hosts_find(rill__hosts *h, rill__link *link, const char *pretended) {
    int rank = link->rank, size = link->ranks;
    int *first = h->ranks + 3 * (size_t)size, *real = h->ranks + 4 * (size_t)size;
    RILL_TRY(find(link, real, &h->shares));
    h->together = 0;
    for (int i = 0; i < size; i++)
        h->together += real[i] == real[rank];
    memcpy(first, real, (size_t)size * sizeof *first);
    if (*pretended) pretend(pretended, size, first);
    number(h, rank, size, first);
    for (int i = 0; i < size; i++) /* a host that is made of several has no memory in common */
        h->shares &= real[i] == real[first[i]];
    h->most = fullest(h, size, first);
    link->hosts = h->n;
    return RILL_OK;
}

/* The memory that the hosts of all shared is not shared here: hier sends messages instead. */
void rill__hosts_subset(rill__hosts *h, const rill__hosts *of, const int *ranks, int n, int rank) {
    int *first = h->host_of + (h->host_of - h->leader); /* after both, which may be longer */
    for (int i = 0; i < n; i++) {
        first[i] = 0;
        while (of->host_of[ranks[first[i]]] != of->host_of[ranks[i]])
            first[i]++;
    }
    number(h, rank, n, first);
    h->together = h->here < of->together ? h->here : of->together;
    h->shares = of->shares;
    h->most = fullest(h, n, first);
}

void rill__hosts_free(rill__hosts *h) {
    free(h->ranks);
    h->ranks = NULL;
}
