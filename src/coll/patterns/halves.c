#include "coll/patterns/halves.h"

int rill__halves_distance(int ranks) {
    int distance = ranks > 1;
    while (distance && distance * 2 < ranks)
        distance *= 2;
    return distance;
}

void rill__halves_start(const rill__run *run, rill__halves *h, const uint64_t *bounds) {
    *h = (rill__halves){bounds, rill__halves_distance(run->size), run->size, false};
}

static rill__section section_of(const rill__halves *h, int from, int to) {
    return (rill__section){from, to, h->bounds[from], h->bounds[to] - h->bounds[from]};
}

int rill__halves_sections(const rill__run *run, const rill__halves *h, int offset, int n,
                          rill__section out[2]) {
    int size = run->size, from = (run->rank + offset) % size;
    int over = from + n - size;
    out[0] = section_of(h, from, over > 0 ? size : from + n);
    out[1] = section_of(h, 0, over > 0 ? over : 0);
    return over > 0 ? 2 : 1;
}

int rill__halves_leaving(const rill__run *run, const rill__halves *h, rill__section out[2]) {
    return rill__halves_sections(run, h, h->distance, h->held - h->distance, out);
}

static rill_status bundle(rill__run *run, rill__parcel *const parcels[2], rill__parcel **out) {
    const void *start[2];
    for (int i = 0; i < 2; i++) {
        rill__message message;
        RILL_TRY(rill__own_message(parcels[i], &message));
        start[i] = rill__message_start(&message);
    }
    return rill__run_bundle(run, 2, start, out);
}

rill_status rill__halves_send(rill__run *run, rill__halves *h, int n,
                              rill__parcel *const parcels[2]) {
    rill__parcel *parcel = parcels[0];
    if (n == 2) RILL_TRY(bundle(run, parcels, &parcel));
    int to = (run->rank + h->distance) % run->size;
    RILL_TRY(rill__run_send_parcel(run, to, RILL__LANE_A, parcel));
    rill__run_round(run);
    h->sent = true;
    return RILL_OK;
}

/* The messages of the sections in what came. */
static rill_status open(rill__run *run, const rill__message *message, rill__halves_came *came) {
    bool bundled = message->header.form == RILL__M_BUNDLE;
    if (bundled != (came->n == 2))
        return rill__fail(RILL_ERR_MESSAGE, "malformed message: not a bundle of %d", came->n);
    came->message[0] = *message;
    size_t offset = 0;
    for (int i = 0; bundled && i < 2; i++)
        RILL_TRY(rill__run_unbundle(run, message, &offset, &came->message[i]));
    return RILL_OK;
}

rill_status rill__halves_receive(rill__run *run, rill__halves *h, rill__halves_came *came) {
    came->from = (run->rank - h->distance + run->size) % run->size;
    rill__received received;
    rill_status status = rill__run_receive(run, came->from, RILL__LANE_A, &received);
    if (status != RILL_OK) return status;
    came->n = rill__halves_sections(run, h, 0, h->held - h->distance, came->section);
    status = rill__received_nothing(&received) ? RILL_OK : open(run, &received.message, came);
    if (status != RILL_OK) rill__run_fail(run, status);
    if (status != RILL_OK || rill__received_nothing(&received)) came->n = 0;
    h->held = h->distance;
    h->distance /= 2;
    h->sent = false;
    return RILL_OK;
}
