/* The order of an instance's work and that of users' streams. */
#include "space/cuda.h"

static rill_status report(rill__cuda *c, int error, const char *what) {
    if (!error) return RILL_OK;
    return rill__fail(error == 2 ? RILL_ERR_MEMORY : RILL_ERR_IO, "CUDA: %s (%s, device %d)",
                      c->table->error_text(error), what, c->device);
}

static rill_status mark_create(const rill__space *s, void **mark) {
    rill__cuda *c = rill__cuda_of(s);
    int before = rill__cuda_enter(c), error = c->table->event_create(mark);
    rill__cuda_leave(c, before);
    return report(c, error, "an event");
}

static void mark_free(const rill__space *s, void *mark) {
    rill__cuda *c = rill__cuda_of(s);
    int before = rill__cuda_enter(c);
    if (mark) c->table->event_free(mark);
    rill__cuda_leave(c, before);
}

static rill_status record(const rill__space *s, void *mark, void *stream) {
    rill__cuda *c = rill__cuda_of(s);
    int before = rill__cuda_enter(c), error = c->table->event_record(mark, stream);
    rill__cuda_leave(c, before);
    return report(c, error, "the user's stream");
}

static rill_status reached(const rill__space *s, void *mark) {
    rill__cuda *c = rill__cuda_of(s);
    int done = 0, before = rill__cuda_enter(c), error = c->table->event_done(mark, &done);
    rill__cuda_leave(c, before);
    RILL_TRY(report(c, error, "work before the step"));
    return done ? RILL_OK : RILL_IN_PROGRESS;
}

static rill_status follow_mark(const rill__space *s, void *mark) {
    rill__cuda *c = rill__cuda_of(s);
    int before = rill__cuda_enter(c), error = c->table->stream_wait_event(c->stream, mark);
    rill__cuda_leave(c, before);
    return report(c, error, "the user's stream");
}

static rill_status follow(const rill__space *s, void *stream) {
    RILL_TRY(record(s, rill__cuda_of(s)->follows, stream));
    return follow_mark(s, rill__cuda_of(s)->follows);
}

static rill_status capturing(const rill__space *s, void *stream, bool *yes) {
    rill__cuda *c = rill__cuda_of(s);
    int answer = 0, before = rill__cuda_enter(c);
    int error = c->table->stream_capturing(stream, &answer);
    rill__cuda_leave(c, before);
    *yes = answer != 0;
    return report(c, error, "the user's stream");
}

static rill_status lead(const rill__space *s, void *stream) {
    rill__cuda *c = rill__cuda_of(s);
    int before = rill__cuda_enter(c), error = c->table->event_record(c->follows, c->stream);
    if (!error) error = c->table->stream_wait_event(stream, c->follows);
    rill__cuda_leave(c, before);
    return report(c, error, "the user's stream");
}

/* Else each operation would go back to device 0, where the thread has never been: CUDA then makes a
 * context there, of hundreds of megabytes. */
static void adopt(const rill__space *s) {
    rill__cuda *c = rill__cuda_of(s);
    c->table->device_set(c->device); /* operations try again, and tell */
}

const rill__space_order rill__cuda_order = {mark_create, mark_free, record, reached, follow,
                                            follow_mark, capturing, lead,   adopt};
