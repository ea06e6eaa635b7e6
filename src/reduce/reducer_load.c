/* Loading a reducer.
 *
 * With as many ranks as saved it, each takes its own section, and the next step is bit by bit the
 * one that would have come. With another number P, rank i takes those of i, i + P, i + 2P, ...:
 * residuals, momenta and waiting micro-batches add up, and selection and the algorithm start
 * afresh. */
#include "reduce/reducer_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOAD "rill_reducer_load: "

typedef struct loading {
    const char *path;
    int fd;
    rill__checkpoint_source source;
    rill__checkpoint file;
    bool same_ranks;
    const rill__algorithm *algorithm;
    const char *method;
    bool has[RILL__KEPT_PARTS];
    rill__buffer part[RILL__KEPT_PARTS], scratch;
} loading;

/* ---- file --------------------------------------------------------------------------------- */

static rill_status read_at(void *context, uint64_t offset, void *to, size_t bytes) {
    const loading *l = context;
    for (size_t done = 0; done < bytes;) {
        size_t n = (size_t)rill__min_u64(bytes - done, l->source.at_once);
        ssize_t got = pread(l->fd, (char *)to + done, n, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return rill__file_error(LOAD, l->path, "read", errno);
        if (got == 0) return rill__fail(RILL_ERR_IO, LOAD "'%s' ends too early", l->path);
        done += (size_t)got;
    }
    return RILL_OK;
}

/* Each rank for itself, so that one that fails keeps no other waiting. O_NONBLOCK: a FIFO is
 * refused, and not waited for. */
static rill_status open_file(const rill_reducer *r, loading *l) {
    struct stat about;
    l->fd = open(l->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (l->fd < 0 || fstat(l->fd, &about)) return rill__file_error(LOAD, l->path, "opened", errno);
    if (!S_ISREG(about.st_mode))
        return rill__fail(RILL_ERR_IO, LOAD "'%s' is not a regular file", l->path);
    l->source = (rill__checkpoint_source){.read = read_at,
                                          .context = l,
                                          .size = (uint64_t)about.st_size,
                                          .path = l->path,
                                          .at_once = rill__file_at_once(r)};
    return RILL_OK;
}

/* ---- what the file says of the reducer ------------------------------------------------------ */

static const char *known_method(const char *name) {
    const char *known;
    for (int i = 0; (known = rill_selector_at(i, NULL)); i++)
        if (strcmp(known, name) == 0) return known;
    return NULL;
}

/* As rill__reducer_selectors makes them. */
static uint64_t selectors_of(const rill_reducer *r, const loading *l) {
    bool by_range = l->algorithm && l->algorithm->selects_by_range &&
                    strcmp(l->method, "topk") == 0;
    uint64_t ranks = (uint64_t)r->comm->engine.size;
    return by_range ? rill__min_u64(ranks, rill__max_u64(1, r->dim)) : 1;
}

/* Whether algorithm, method and sizes go together, where they are to be taken over. */
static rill_status resolve(const rill_reducer *r, loading *l) {
    const rill__checkpoint_header *h = &l->file.header;
    const rill__checkpoint_section *own = &l->file.sections[r->comm->engine.rank];
    bool sound = h->choice <= RILL__UNDECIDED &&
                 (h->collective == RILL_ALLREDUCE || h->collective == RILL_REDUCER) &&
                 (h->k > 0 || h->dim == 0);
    l->method = known_method(h->method);
    if (sound && h->algorithm[0]) {
        l->algorithm = rill__algorithm_named((rill_collective)h->collective, h->algorithm);
        sound = l->algorithm != NULL;
    }
    if (!sound || !l->method)
        return rill__fail(RILL_ERR_IO,
                          LOAD
                          "'%s' has algorithm '%s' and selection '%s', which do not exist here",
                          l->path, h->algorithm, h->method);
    size_t memory = l->algorithm && l->algorithm->memory_size
                        ? l->algorithm->memory_size((int)h->ranks)
                        : 0;
    if (l->algorithm && own->bytes[RILL__KEPT_MEMORY] != memory)
        return rill__fail(RILL_ERR_IO, LOAD "'%s' has %llu bytes of algorithm '%s' instead of %zu",
                          l->path, (unsigned long long)own->bytes[RILL__KEPT_MEMORY], h->algorithm,
                          memory);
    uint64_t selectors = own->bytes[RILL__KEPT_SELECTORS] / sizeof(rill__selector_state);
    if (selectors && selectors != selectors_of(r, l))
        return rill__fail(RILL_ERR_IO, LOAD "'%s' has %llu selectors instead of %llu", l->path,
                          (unsigned long long)selectors, (unsigned long long)selectors_of(r, l));
    return RILL_OK;
}

static rill_status inspect(const rill_reducer *r, loading *l) {
    RILL_TRY(rill__checkpoint_open(&l->source, &l->file));
    RILL_TRY(rill__file_compare(r, &l->file.header, l->path));
    const rill__checkpoint_header *h = &l->file.header;
    for (uint32_t i = 0; i < h->ranks; i++)
        if (r->dim && !l->file.sections[i].bytes[RILL__KEPT_MOMENTUM] != (r->options.momentum == 0))
            return rill__fail(RILL_ERR_IO, LOAD "'%s' has no momentum of rank %u, or one too many",
                              l->path, i);
    l->same_ranks = h->ranks == (uint32_t)r->comm->engine.size;
    return l->same_ranks ? resolve(r, l) : RILL_OK;
}

/* ---- sections ----------------------------------------------------------------------------- */

/* A part goes straight to its place the first time, and is added to it afterwards. */
static rill_status read_section(const rill_reducer *r, loading *l, uint32_t rank) {
    const uint64_t *bytes = l->file.sections[rank].bytes;
    size_t dense = r->dim * rill__type_size(r->type);
    void *to[RILL__KEPT_PARTS] = {NULL};
    char *spare = NULL;
    bool adds[RILL__KEPT_PARTS] = {false};
    for (int part = 0; part < RILL__KEPT_PARTS; part++) {
        bool wanted = part <= RILL__KEPT_PENDING || l->same_ranks;
        if (!bytes[part] || !wanted) continue;
        if (l->has[part]) {
            RILL_TRY(rill__buffer_reserve(&l->scratch, (RILL__KEPT_PENDING + 1) * dense));
            spare = l->scratch.data;
            adds[part] = true;
            to[part] = spare + (size_t)part * dense;
            continue;
        }
        RILL_TRY(rill__buffer_reserve(&l->part[part], bytes[part]));
        to[part] = l->part[part].data;
        l->has[part] = true;
    }
    RILL_TRY(rill__checkpoint_read(&l->source, &l->file, rank, to));
    for (int part = 0; part <= RILL__KEPT_PENDING; part++)
        if (adds[part])
            rill__dense_add(rill__host(), r->type, l->part[part].data, to[part], r->dim);
    return RILL_OK;
}

/* Vectors go where the reducer's lie, while a failure still leaves those as they were. */
static rill_status send_vectors(const rill_reducer *r, loading *l) {
    size_t dense = r->dim * rill__type_size(r->type);
    for (int part = 0; part <= RILL__KEPT_PENDING && !r->space->is_host; part++) {
        rill__buffer there = rill__space_buffer(r->space);
        if (!l->part[part].data) continue;
        RILL_TRY(rill__buffer_reserve(&there, dense));
        rill_status status = rill__space_copy(r->space, there.data, rill__host(),
                                              l->part[part].data, dense);
        rill__buffer_free(&l->part[part]);
        l->part[part] = there;
        RILL_TRY(status);
    }
    return RILL_OK;
}

/* Of another version of the library they say nothing to this one. */
static bool keeps_constants(const rill_reducer *r, const loading *l) {
    if (!l->same_ranks || !l->has[RILL__KEPT_MEMORY] || l->algorithm) return false;
    return l->file.sections[r->comm->engine.rank].bytes[RILL__KEPT_MEMORY] == sizeof(rill__profile);
}

static rill_status read_sections(const rill_reducer *r, loading *l) {
    uint32_t ranks = l->file.header.ranks, step = (uint32_t)r->comm->engine.size;
    for (uint32_t i = (uint32_t)r->comm->engine.rank; i < ranks; i += step)
        RILL_TRY(read_section(r, l, i));
    /* What no rank had is zero. */
    size_t dense = r->dim * rill__type_size(r->type);
    for (int part = RILL__KEPT_RESIDUAL; part <= RILL__KEPT_MOMENTUM; part++) {
        if (l->has[part] || (part == RILL__KEPT_MOMENTUM && r->options.momentum == 0)) continue;
        RILL_TRY(rill__buffer_reserve(&l->part[part], dense));
        memset(l->part[part].data, 0, dense);
    }
    RILL_TRY(send_vectors(r, l));
    if (keeps_constants(r, l) && !rill__profile_is_sound(l->part[RILL__KEPT_MEMORY].data))
        return rill__fail(RILL_ERR_IO, LOAD "'%s' has malformed constants of the planner", l->path);
    if (!l->has[RILL__KEPT_SELECTORS]) return RILL_OK;
    const rill__selector_state *states = l->part[RILL__KEPT_SELECTORS].data;
    for (uint64_t i = 0; i < selectors_of(r, l); i++)
        if (!rill__selector_state_valid(&states[i], r->dim))
            return rill__fail(RILL_ERR_IO, LOAD "'%s' has a malformed state of selector %llu",
                              l->path, (unsigned long long)i);
    return RILL_OK;
}

static rill_status load(const rill_reducer *r, loading *l) {
    RILL_TRY(rill__file_begin(r, LOAD, l->path));
    rill_status status = rill__file_agree(r, open_file(r, l));
    if (status == RILL_OK) status = rill__file_agree(r, inspect(r, l));
    if (status == RILL_OK) status = rill__file_agree(r, read_sections(r, l));
    if (l->fd >= 0) close(l->fd);
    return status;
}

/* ---- taking over -------------------------------------------------------------------------- */

/* What a reducer has beside its vectors, made anew in the places of the old. */
static rill_status adopt_state(rill_reducer *r, const loading *l) {
    const rill__checkpoint_header *h = &l->file.header;
    r->steps = h->steps;
    r->voided_total = rill__min_u64(h->options[RILL__CHECKPOINT_VOIDED], h->steps);
    r->feedback.seed = h->seed;
    if (l->same_ranks) {
        r->choice = (rill__choice)h->choice;
        r->collective = (rill_collective)h->collective;
        r->algorithm = l->algorithm;
        r->method = l->method;
        r->options.value_bits = h->value_bits;
    }
    RILL_TRY(rill__reducer_prepare(r)); /* the algorithm's memory is zero then */
    if (l->has[RILL__KEPT_MEMORY] && l->algorithm)
        memcpy(r->feedback.memory.data, l->part[RILL__KEPT_MEMORY].data, r->feedback.memory_size);
    if (keeps_constants(r, l))
        RILL_TRY(rill__reducer_keep_constants(r, l->part[RILL__KEPT_MEMORY].data));
    if (!l->has[RILL__KEPT_SELECTORS]) return RILL_OK;
    r->k = h->k;
    RILL_TRY(rill__reducer_selectors(r));
    const rill__selector_state *states = l->part[RILL__KEPT_SELECTORS].data;
    for (int i = 0; i < r->n_selectors; i++)
        rill__selector_restore(r->selectors[i], &states[i]);
    return RILL_OK;
}

void rill__reducer_hide_state(rill_reducer *r) {
    r->request = NULL;
    r->selectors = NULL;
    r->bounds = NULL;
    r->n_selectors = r->selectors_capacity = 0;
    r->states_before = NULL;
    r->feedback.memory = r->memory_before = (rill__buffer){.data = NULL};
}

void rill__reducer_free_state(rill_reducer *r) {
    rill__request_release(&r->request);
    rill__reducer_selectors_free(r);
    free(r->selectors);
    free(r->bounds);
    free(r->states_before);
    rill__buffer_free(&r->feedback.memory);
    rill__buffer_free(&r->memory_before);
}

static void exchange(rill__buffer *a, rill__buffer *b) {
    rill__buffer other = *a;
    *a = *b;
    *b = other;
}

static void adopt_vectors(rill_reducer *r, loading *l) {
    exchange(&r->residual, &l->part[RILL__KEPT_RESIDUAL]);
    r->residual_is_zero = !l->has[RILL__KEPT_RESIDUAL];
    if (r->options.momentum != 0) exchange(&r->momentum, &l->part[RILL__KEPT_MOMENTUM]);
    if (l->has[RILL__KEPT_PENDING]) exchange(&r->pending, &l->part[RILL__KEPT_PENDING]);
    else if (r->pending.data)
        rill__do_clear(r->space, r->pending.data, r->dim * rill__type_size(r->type));
    r->pending_used = l->has[RILL__KEPT_PENDING];
}

/* The old state is kept until all ranks have the new one: where one of them lacks memory, all stay
 * as they were. */
static rill_status adopt(rill_reducer *r, loading *l) {
    rill__engine *engine = &r->comm->engine;
    rill_reducer *old = rill__malloc(sizeof *old);
    rill_status status = old ? RILL_OK : rill__fail(RILL_ERR_MEMORY, LOAD "out of memory");
    if (old) {
        *old = *r;
        rill__reducer_hide_state(r);
        status = adopt_state(r, l); /* takes the lock by itself */
    }
    rill__lock(engine);
    status = rill__file_agree(r, status);
    rill__unlock(engine);
    if (status == RILL_OK) {
        rill__reducer_free_state(old);
        adopt_vectors(r, l);
    } else if (old) {
        rill__reducer_free_state(r);
        *r = *old;
    }
    free(old);
    return status;
}

rill_status rill_reducer_load(rill_reducer *r, const char *path) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, LOAD "reducer is NULL");
    rill__engine *engine = &r->comm->engine;
    loading l = {.path = path, .fd = -1};
    rill__lock(engine);
    rill_status status = load(r, &l);
    rill__unlock(engine);
    if (status == RILL_OK) status = adopt(r, &l);
    rill__checkpoint_close(&l.file);
    for (int part = 0; part < RILL__KEPT_PARTS; part++)
        rill__buffer_free(&l.part[part]);
    rill__buffer_free(&l.scratch);
    return status;
}
