/* Which ranks share a host, the same table on all ranks. Hosts are numbered by their lowest rank,
 * which leads them. */
#ifndef RILL_LINK_HOSTS_H
#define RILL_LINK_HOSTS_H

#include "link/link.h"

typedef struct rill__hosts {
    int n;           /* hosts */
    int most;        /* ranks of the fullest */
    int mine;        /* this rank's host */
    int here, place; /* ranks on it, and this one's place among them */
    int together;    /* ranks that share this one's memory: also where hosts are pretended */
    bool shares;     /* the ranks of each host share memory */
    int *ranks;      /* of this host, ascending */
    int *leader;     /* of each host, ascending */
    int *host_of;    /* of each rank */
} rill__hosts;

/* Text for tests, which makes several hosts of one: "4" consecutive ranks each; "3,1,2" as many, in
 * turn; "cyclic:3" ranks dealt to 3 hosts in turn. Empty: the hosts that there are. */
enum { RILL__HOSTS_TEXT = 48 };
rill_status rill__hosts_check(const char *pretended);
rill_status rill__hosts_reserve(rill__hosts *, int ranks); /* memory: local, before find */
/* Collective, with the same text on all ranks. */
rill_status rill__hosts_find(rill__hosts *, rill__link *, const char *pretended);
/* The same of some ranks of a communicator, ascending; local, after reserve. */
void rill__hosts_subset(rill__hosts *, const rill__hosts *of, const int *ranks, int n, int rank);
void rill__hosts_free(rill__hosts *);

#endif
