/* The communicator: engine, settings, planner, and requests kept for the next call. */
#ifndef RILL_CALL_COMM_H
#define RILL_CALL_COMM_H

#include "call/again.h"
#include "core/settings.h"
#include "link/clock.h"
#include "plan/plan.h"
#include "req/request.h"

_Static_assert(sizeof((rill__defaults){0}.hosts_of) == RILL__HOSTS_TEXT, "one length of the text");

struct rill_comm {
    rill__engine engine; /* first */
    rill__defaults defaults;
    rill__planner planner;
    rill__clock clock;
    uint64_t host_words[2]; /* of the names of all hosts */
    rill__network network;  /* between them, where it was measured */
    rill_stats last;        /* of the last blocking call, but for the time */
    uint64_t last_elapsed;
    rill__again again;
    rill_request *idle;   /* complete requests with their memory */
    int requests;         /* that the user holds */
    uint64_t reducers;    /* created so far */
    rill_stream *nothing; /* of another dimension than others bring: comm_bytes.c */
};

/* ---- options.c ---- */
/* Resolves the options of a call; an unknown name is an error that says so. */
rill_status rill__settings_resolve(const rill_comm *, rill_collective, const rill_options *,
                                   rill__settings *);
/* What was resolved, as options: two calls that mean the same have the same. */
rill_options rill__settings_options(const rill__settings *);

#endif
