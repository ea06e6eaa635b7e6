/* A device's constants: few and many entries coded, and few, many and more messages summed, by all
 * ranks at the same time, as in a step. */
#include "api/tune_device.h"
#include "codec/codec.h"
#include "plan/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL "rill_tune"
#define SHARE 0.25 /* seconds for one figure */
enum { FEW = 1024, MANY = 1 << 18, DIM = 1 << 24, LISTS = 8, RUNS = 15, LEAST_RUNS = 3 };
enum { COPIED = 4 << 20 }; /* bytes */

typedef struct bench {
    rill_comm *comm;
    const rill__space *space;
    rill__buffer idx, val, sum_idx, sum_val, bytes; /* in the space */
    rill__buffer message;                           /* page-locked */
    rill__coded_pairs list[LISTS];
    int lists;
    uint64_t n; /* entries of each */
    size_t index_bytes, all_bytes;
} bench;

/* ---- what is measured ----------------------------------------------------------------------- */

static rill_status copy_word(bench *b) {
    return b->space->copy_out(b->space, b->message.data, b->bytes.data, sizeof(uint64_t));
}
static rill_status copy_out(bench *b) {
    return b->space->copy_out(b->space, b->message.data, b->bytes.data, COPIED);
}
static rill_status copy_in(bench *b) {
    RILL_TRY(b->space->copy_in(b->space, b->bytes.data, b->message.data, COPIED));
    return b->space->wait(b->space);
}

static rill_status code(bench *b) {
    const rill__index_codec *codec = &rill__codec_bitpack;
    rill__encode_task task = {.codes = {.index = codec->code, .value = RILL__VALUE_RAW},
                              .type = RILL_F32,
                              .n = b->n,
                              .range = DIM,
                              .idx = b->idx.data,
                              .val = b->val.data,
                              .index_room = codec->bound(4, b->n, DIM),
                              .value_bytes = b->n * sizeof(float),
                              .out = b->message.data};
    RILL_TRY(b->space->codes->encode(b->space, &task));
    b->index_bytes = task.index_bytes;
    b->all_bytes = task.out_bytes;
    return RILL_OK;
}

/* The same message again and again. */
static rill_status sum(bench *b) {
    for (int i = 0; i < b->lists; i++)
        b->list[i] = (rill__coded_pairs){.codes = {.index = rill__codec_bitpack.code},
                                         .n = b->n,
                                         .range = DIM,
                                         .bytes = b->message.data,
                                         .index_bytes = b->index_bytes,
                                         .value_bytes = b->n * sizeof(float)};
    rill__sum_task task = {.type = RILL_F32, .dim = DIM, .n = b->lists, .list = b->list};
    RILL_TRY(b->space->codes->sum_begin(b->space, &task));
    RILL_TRY(b->space->codes->sum_end(b->space, &task, b->sum_idx.data, b->sum_val.data));
    return b->space->wait(b->space);
}

/* Median seconds; the first run, in which memory grows, does not count. */
static rill_status time_of(bench *b, rill_status (*run)(bench *), double *seconds) {
    double times[RUNS], begin = rill__comm_clock(b->comm);
    int n = 0;
    RILL_TRY(run(b));
    while (n < RUNS && (n < LEAST_RUNS || rill__comm_clock(b->comm) - begin < SHARE)) {
        double start = rill__comm_clock(b->comm);
        RILL_TRY(run(b));
        times[n++] = rill__comm_clock(b->comm) - start;
    }
    *seconds = rill__sample_median(times, n);
    return RILL_OK;
}

static rill_status time_entries(bench *b, uint64_t n, int lists, double *coded, double *summed) {
    b->n = n;
    b->lists = lists;
    RILL_TRY(time_of(b, code, coded));
    return time_of(b, sum, summed);
}

static double positive(double x) { return fmax(x, 1e-13); }

static rill_status measure(bench *b, rill__device_constants *d) {
    double few_coded, few, many_coded, many, more, unused, out, in;
    RILL_TRY(time_of(b, copy_word, &d->wait));
    RILL_TRY(time_of(b, copy_out, &out));
    RILL_TRY(time_of(b, copy_in, &in));
    d->out = positive((out - d->wait) / COPIED);
    d->in = positive((in - d->wait) / COPIED);
    RILL_TRY(time_entries(b, FEW, LISTS, &unused, &more));
    RILL_TRY(time_entries(b, FEW, 2, &few_coded, &few));
    RILL_TRY(time_entries(b, MANY, 2, &many_coded, &many));
    double bytes = (double)b->all_bytes, entries = MANY - FEW;
    d->list = positive((more - few) / (LISTS - 2));
    d->errand = positive(fmax(few_coded, few - 2 * d->list));
    d->code = positive((many_coded - few_coded - bytes * d->out) / entries);
    d->sum = positive(((many - few) / 2 - bytes * d->in) / entries);
    d->wait = positive(d->wait);
    return RILL_OK;
}

/* ---- a rank's device ------------------------------------------------------------------------ */

static rill_status fill(bench *b, uint32_t *idx, float *val) {
    uint64_t seed = (uint64_t)b->comm->engine.rank + 1;
    uint64_t n = rill__sample_entries(seed, DIM, MANY + MANY / 8, MANY, idx, val);
    if (n < MANY) return rill__fail(RILL_ERR_STATE, CALL ": too few entries"); /* cannot be */
    RILL_TRY(b->space->copy_in(b->space, b->idx.data, idx, MANY * sizeof *idx));
    return b->space->copy_in(b->space, b->val.data, val, MANY * sizeof *val);
}

static rill_status reserve(bench *b) {
    rill__buffer *there[] = {&b->idx, &b->val, &b->sum_idx, &b->sum_val, &b->bytes};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        *there[i] = rill__space_buffer(b->space);
        RILL_TRY(rill__buffer_reserve_exact(there[i], COPIED));
    }
    b->message.memory = b->space->page_locked;
    RILL_TRY(rill__buffer_reserve_exact(&b->message, COPIED));
    memset(b->message.data, 0, COPIED);
    uint32_t *idx = rill__malloc((MANY + 1) * sizeof *idx);
    float *val = rill__malloc((MANY + 1) * sizeof *val);
    rill_status status = idx && val ? fill(b, idx, val)
                                    : rill__fail(RILL_ERR_MEMORY, CALL ": out of memory");
    free(idx);
    free(val);
    return status;
}

static void release(bench *b) {
    rill__buffer *all[] = {&b->idx, &b->val, &b->sum_idx, &b->sum_val, &b->bytes, &b->message};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        rill__buffer_free(all[i]);
    rill__space_close(b->space);
}

rill_status rill__tune_device(rill_comm *comm, rill__device_constants *d, bool *there) {
    bench b = {.comm = comm};
    double most[RILL__DEVICE_CONSTANTS + 1] = {0};
    char before[200] = "";
    strncpy(before, rill_last_error(), sizeof before - 1);
    rill_status status = rill__space_open(CALL, RILL_CUDA, -1, &b.space);
    rill_status together = rill__link_most(comm->engine.link, NULL, 0); /* all at once */
    if (together != RILL_OK) {
        if (status == RILL_OK) rill__space_close(b.space);
        return together;
    }
    if (status == RILL_OK) {
        status = reserve(&b);
        if (status == RILL_OK) status = measure(&b, d);
        release(&b);
    }
    *there = status == RILL_OK;
    for (int i = 0; i < RILL__DEVICE_CONSTANTS && *there; i++)
        most[i] = *(double *)((char *)d + rill__device_table[i].offset);
    most[RILL__DEVICE_CONSTANTS] = !*there;
    RILL_TRY(rill__link_most(comm->engine.link, most, RILL__DEVICE_CONSTANTS + 1));
    *there = most[RILL__DEVICE_CONSTANTS] == 0;
    for (int i = 0; i < RILL__DEVICE_CONSTANTS; i++)
        *(double *)((char *)d + rill__device_table[i].offset) = most[i];
    rill__set_error(before); /* that there is no device is none */
    return RILL_OK;
}

rill_status rill__tune_write(rill_comm *comm, const char *path, const rill__profile *profile,
                             const rill__device_constants *device) {
    struct {
        int32_t status;
        char error[400];
    } outcome = {0};
    if (comm->engine.rank == 0) {
        outcome.status = (int32_t)rill__profile_write(path, profile, device);
        if (outcome.status) snprintf(outcome.error, sizeof outcome.error, "%s", rill_last_error());
    }
    RILL_TRY(rill__comm_spread(comm, &outcome, sizeof outcome));
    return outcome.status ? rill__fail((rill_status)outcome.status, CALL ": %s", outcome.error)
                          : RILL_OK;
}
