/* Saving a reducer: one file for all ranks (reduce/checkpoint.h); and what loading it needs as
 * well.
 *
 * Both are collective, and all ranks give the same status: after each stage that can fail on one
 * rank alone they tell each other. A file is written under another name and renamed when it is
 * complete (core/outfile.h), so that a failure leaves the old one; a reducer takes over what was
 * loaded only when all ranks have all of it. */
#include "reduce/reducer_file.h"

#include "core/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define SAVE "rill_reducer_save: "
#define LOAD "rill_reducer_load: "

/* ---- all ranks alike ---------------------------------------------------------------------- */

rill_status rill__file_agree(const rill_reducer *r, rill_status status) {
    rill__engine *e = &r->comm->engine;
    struct {
        int32_t status;
        char text[252];
    } said = {status, ""};
    snprintf(said.text, sizeof said.text, "%s", status == RILL_OK ? "" : rill_last_error());
    double failed = status == RILL_OK ? -e->size : -e->rank; /* the first has the most */
    RILL_TRY(rill__link_most(e->link, &failed, 1));
    int first = (int)-failed;
    if (first == e->size) return RILL_OK;
    RILL_TRY(e->table->bcast(e->link, &said, sizeof said, first));
    rill__set_error(said.text);
    return (rill_status)said.status;
}

/* MPI's collectives, which the link's may be, must come in the same order on all ranks: requests
 * that may still post one do so first. */
static void settle(rill__engine *engine) {
    for (rill__task *q = engine->active; q;) {
        rill__task *next = q->next;
        if (q->may_post) {
            rill__engine_wait(q);
            next = engine->active; /* others may have ended as well */
        }
        q = next;
    }
}

rill_status rill__file_begin(const rill_reducer *r, const char *call, const char *path) {
    rill__engine *e = &r->comm->engine;
    rill_status status = RILL_OK;
    settle(e);
    if (!path) status = rill__fail(RILL_ERR_ARGUMENT, "%spath is NULL", call);
    else if (rill__reducer_is_busy(r))
        status = rill__fail(RILL_ERR_STATE, "%sa step is under way", call);
    RILL_TRY(rill__file_agree(r, status));
    uint64_t hash = XXH64(path, strlen(path), 0), first = hash;
    RILL_TRY(e->table->bcast(e->link, &first, sizeof first, 0));
    double differs = hash != first;
    RILL_TRY(rill__link_most(e->link, &differs, 1));
    if (differs > 0) return rill__fail(RILL_ERR_MISMATCH, "%spath differs between ranks", call);
    return RILL_OK;
}

rill_status rill__file_error(const char *call, const char *path, const char *what, int error) {
    return rill__fail(RILL_ERR_IO, "%s'%s' cannot be %s: %s", call, path, what, strerror(error));
}

size_t rill__file_at_once(const rill_reducer *r) {
    return (size_t)rill__min_u64(UINT64_C(1) << 30, r->comm->engine.split_limit);
}

/* ---- options ------------------------------------------------------------------------------ */

/* What must be the same in the reducer that a file is loaded into: slot i of the table of settings
 * is word i - 1 of the file, and the warm-up's densities come behind the last. */
enum { KEPT_OPTIONS = 17, WARMUP = KEPT_OPTIONS };
_Static_assert((int)WARMUP < (int)RILL__CHECKPOINT_VOIDED, "there is room for all options");

static uint64_t option_word(const rill_reducer_options *o, int i) {
    const rill__setting *row = rill__setting_in_slot(i + 1);
    return rill__setting_word(row->kind, (const char *)o + row->reducer.at);
}

static uint64_t warmup_word(const rill_reducer *r) {
    return r->warmup ? XXH64(r->warmup, (size_t)r->options.warmup_stages * sizeof *r->warmup, 0)
                     : 0;
}

static const char *asked(const char *name) { return name ? name : "auto"; }
static const char *asked_select(const rill_reducer *r) {
    return r->options.select ? r->options.select : "";
}

static void set_name(char to[RILL__CHECKPOINT_NAME], const char *name) {
    strncpy(to, name, RILL__CHECKPOINT_NAME - 1);
}

rill__checkpoint_header rill__file_describe(const rill_reducer *r) {
    rill__checkpoint_header h = {.magic = "RILLRED",
                                 .version = RILL__CHECKPOINT_VERSION,
                                 .ranks = (uint32_t)r->comm->engine.size,
                                 .dim = r->dim,
                                 .type = (uint32_t)r->type,
                                 .choice = (uint32_t)r->choice,
                                 .collective = (uint32_t)r->collective,
                                 .value_bits = r->options.value_bits,
                                 .steps = r->steps,
                                 .k = r->k,
                                 .seed = r->feedback.seed};
    h.magic[7] = '1';
    set_name(h.algorithm, r->algorithm ? r->algorithm->name : "");
    set_name(h.method, r->method);
    set_name(h.asked_algorithm, asked(r->options.algorithm));
    set_name(h.asked_select, asked_select(r));
    for (int i = 0; i < KEPT_OPTIONS; i++)
        h.options[i] = option_word(&r->options, i);
    h.options[WARMUP] = warmup_word(r);
    h.options[RILL__CHECKPOINT_VOIDED] = r->voided_total;
    return h;
}

static rill_status differs(const char *path, const char *name, const char *saved, const char *own) {
    return rill__fail(RILL_ERR_ARGUMENT, LOAD "'%s' was saved with %s '%s', the reducer has '%s'",
                      path, name, saved, own);
}

rill_status rill__file_compare(const rill_reducer *r, const rill__checkpoint_header *h,
                               const char *path) {
    rill__checkpoint_header own = rill__file_describe(r);
    if (h->dim != own.dim)
        return rill__fail(RILL_ERR_ARGUMENT, LOAD "'%s' has dimension %llu, the reducer %llu", path,
                          (unsigned long long)h->dim, (unsigned long long)own.dim);
    if (h->type != own.type)
        return differs(path, "type", rill_type_name((rill_type)h->type), rill_type_name(r->type));
    if (strcmp(h->asked_algorithm, own.asked_algorithm) != 0)
        return differs(path, "algorithm", h->asked_algorithm, own.asked_algorithm);
    if (strcmp(h->asked_select, own.asked_select) != 0)
        return differs(path, "select", h->asked_select, own.asked_select);
    for (int i = 0; i < KEPT_OPTIONS; i++) {
        const rill__setting *row = rill__setting_in_slot(i + 1);
        if (h->options[i] != own.options[i])
            return rill__fail(RILL_ERR_ARGUMENT,
                              LOAD "'%s' was saved with %s %.17g, the reducer has %.17g", path,
                              row->name, rill__setting_number(row->kind, h->options[i]),
                              rill__setting_number(row->kind, own.options[i]));
    }
    if (h->options[WARMUP] != own.options[WARMUP])
        return rill__fail(RILL_ERR_ARGUMENT, LOAD "'%s' was saved with another warmup", path);
    /* A reducer that sends all of the gradient sends it as it is, whatever was asked for. */
    bool whole = h->choice == RILL__SEND_ALL || own.choice == RILL__SEND_ALL;
    if (!whole && h->value_bits != own.value_bits)
        return rill__fail(RILL_ERR_ARGUMENT,
                          LOAD "'%s' was saved with value_bits %d, the reducer has %d", path,
                          h->value_bits, own.value_bits);
    return RILL_OK;
}

/* ---- save --------------------------------------------------------------------------------- */

typedef struct saving {
    rill__checkpoint file;
    const void *from[RILL__KEPT_PARTS];           /* of this rank */
    rill__buffer fetched[RILL__KEPT_PENDING + 1]; /* vectors that lie in another space */
    rill__selector_state *selectors;
    rill__outfile out;      /* of rank 0 */
    char partial[PATH_MAX]; /* what all write to; empty: rank 0 alone writes, to what is no regular
                               file */
} saving;

/* The vectors, on the host. */
static rill_status fetch_vectors(const rill_reducer *r, const rill__checkpoint_section *mine,
                                 saving *s) {
    const rill__buffer *vectors[] = {[RILL__KEPT_RESIDUAL] = &r->residual,
                                     [RILL__KEPT_MOMENTUM] = &r->momentum,
                                     [RILL__KEPT_PENDING] = &r->pending};
    for (int part = 0; part <= RILL__KEPT_PENDING; part++) {
        size_t bytes = mine->bytes[part];
        s->from[part] = vectors[part]->data;
        if (r->space->is_host || !bytes) continue;
        RILL_TRY(rill__buffer_reserve(&s->fetched[part], bytes));
        RILL_TRY(
            rill__space_copy(rill__host(), s->fetched[part].data, r->space, s->from[part], bytes));
        s->from[part] = s->fetched[part].data;
    }
    return RILL_OK;
}

static rill_status gather_sections(const rill_reducer *r, saving *s) {
    const rill__engine *e = &r->comm->engine;
    size_t dense = r->dim * rill__type_size(r->type);
    rill__checkpoint_section mine = {
        .bytes = {r->residual_is_zero ? 0 : dense, r->options.momentum != 0 ? dense : 0,
                  r->pending_used ? dense : 0, (size_t)r->n_selectors * sizeof *s->selectors,
                  r->feedback.memory_size}};
    RILL_TRY(fetch_vectors(r, &mine, s));
    s->from[RILL__KEPT_SELECTORS] = s->selectors;
    s->from[RILL__KEPT_MEMORY] = r->feedback.memory.data;
    for (int i = 0; i < r->n_selectors; i++)
        s->selectors[i] = rill__selector_save(r->selectors[i]);
    mine.checksum = rill__checkpoint_section_sum(&mine, s->from);
    RILL_TRY(e->table->allgather(e->link, &mine, sizeof mine, s->file.sections));
    rill__checkpoint_section *sections = s->file.sections;
    free(s->file.offsets);
    RILL_TRY(rill__checkpoint_arrange(&s->file, sections));
    s->file.header.checksum = rill__checkpoint_table_sum(&s->file);
    return RILL_OK;
}

/* Memory, and what of it does not depend on other ranks. */
static rill_status prepare_saving(const rill_reducer *r, saving *s) {
    uint32_t ranks = (uint32_t)r->comm->engine.size;
    s->file.header = rill__file_describe(r);
    s->selectors = rill__calloc((size_t)r->n_selectors + 1, sizeof *s->selectors);
    if (!s->selectors) return rill__fail(RILL_ERR_MEMORY, "out of memory");
    return rill__checkpoint_arrange(&s->file,
                                    rill__calloc(ranks, sizeof(rill__checkpoint_section)));
}

/* 0, or the error. */
static int write_at(int fd, const void *data, uint64_t offset, uint64_t bytes, size_t at_once) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const char *)data + done, rill__min_u64(at_once, bytes - done),
                           (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : ENOSPC;
        done += (uint64_t)n;
    }
    return 0;
}

/* This rank's section, and of rank 0 what comes before. Each rank writes for itself and sees its
 * own errors: under MPI-IO a write to a full disk may be a success. */
static int write_own(const rill_reducer *r, const saving *s, int fd) {
    const rill__checkpoint *c = &s->file;
    uint32_t rank = (uint32_t)r->comm->engine.rank, ranks = c->header.ranks;
    size_t at_once = rill__file_at_once(r), head = sizeof c->header;
    uint64_t at = c->offsets[rank];
    int error = 0;
    if (rank == 0) error = write_at(fd, &c->header, 0, head, at_once);
    if (rank == 0 && !error)
        error = write_at(fd, c->sections, head, ranks * sizeof *c->sections, at_once);
    for (int part = 0; !error && part < RILL__KEPT_PARTS; part++) {
        error = write_at(fd, s->from[part], at, c->sections[rank].bytes[part], at_once);
        at += c->sections[rank].bytes[part];
    }
    return !error && fsync(fd) && errno != EINVAL ? errno : error;
}

static int write_together(const rill_reducer *r, const saving *s) {
    int fd = open(s->partial, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = write_own(r, s, fd);
    return close(fd) && !error ? errno : error;
}

/* One after the other through rank 0. Its error is known to it alone until the end. */
static int write_in_order(const rill_reducer *r, saving *s) {
    const rill__checkpoint *c = &s->file;
    const rill__engine *e = &r->comm->engine;
    char piece[1 << 14];
    if (e->rank == 0) {
        rill__outfile_write(&s->out, &c->header, sizeof c->header);
        rill__outfile_write(&s->out, c->sections, c->header.ranks * sizeof *c->sections);
    }
    for (int i = 0; i < e->size; i++)
        for (int part = 0; part < RILL__KEPT_PARTS; part++)
            for (uint64_t done = 0, bytes = c->sections[i].bytes[part]; done < bytes;) {
                size_t n = (size_t)rill__min_u64(sizeof piece, bytes - done);
                if (e->rank == i) memcpy(piece, (const char *)s->from[part] + done, n);
                if (e->table->bcast(e->link, piece, n, i) != RILL_OK) return EIO;
                if (e->rank == 0 && !s->out.error) rill__outfile_write(&s->out, piece, n);
                done += n;
            }
    return e->rank == 0 ? s->out.error : 0;
}

/* Rank 0 opens the file, and takes the room that it needs where the file system lets it. */
static rill_status create_file(const char *path, saving *s) {
    off_t size = (off_t)s->file.offsets[s->file.header.ranks];
    /* A library does not write to standard output unless it is told so: "-" is a name like others
     * here. */
    int error = rill__outfile_open(strcmp(path, "-") != 0 ? path : "./-", &s->out);
    if (!error && s->out.partial) {
        int fd = fileno(s->out.stream);
        if (strlen(s->out.partial) >= sizeof s->partial) error = ENAMETOOLONG;
        else strcpy(s->partial, s->out.partial);
#ifdef __linux__
        if (!error && fallocate(fd, 0, 0, size) && (errno == ENOSPC || errno == EDQUOT))
            error = errno;
#endif
        if (!error && ftruncate(fd, size)) error = errno;
    }
    return error ? rill__file_error(SAVE, path, "created", error) : RILL_OK;
}

static rill_status write_file(const rill_reducer *r, const char *path, saving *s) {
    const rill__engine *e = &r->comm->engine;
    bool first = e->rank == 0;
    rill_status status = rill__file_agree(r, first ? create_file(path, s) : RILL_OK);
    rill_status told = e->table->bcast(e->link, s->partial, sizeof s->partial, 0);
    if (told != RILL_OK) status = told;
    if (status == RILL_OK) {
        int error = *s->partial ? write_together(r, s) : write_in_order(r, s);
        status = rill__file_agree(r,
                                  error ? rill__file_error(SAVE, path, "written", error) : RILL_OK);
    }
    if (!first) return rill__file_agree(r, status);
    char detail[252];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    int error = rill__outfile_close(&s->out, status == RILL_OK);
    if (error) status = rill__file_error(SAVE, path, "written", error);
    else if (status != RILL_OK) rill__set_error(detail);
    return rill__file_agree(r, status);
}

static rill_status save(const rill_reducer *r, const char *path) {
    RILL_TRY(rill__file_begin(r, SAVE, path));
    saving s = {.selectors = NULL};
    rill_status status = rill__file_agree(r, prepare_saving(r, &s));
    if (status == RILL_OK) status = rill__file_agree(r, gather_sections(r, &s));
    if (status == RILL_OK) status = write_file(r, path, &s);
    rill__checkpoint_close(&s.file);
    for (int part = 0; part <= RILL__KEPT_PENDING; part++)
        rill__buffer_free(&s.fetched[part]);
    free(s.selectors);
    return status;
}

rill_status rill_reducer_save(const rill_reducer *r, const char *path) {
    if (!r) return rill__fail(RILL_ERR_ARGUMENT, SAVE "reducer is NULL");
    rill__engine *engine = &r->comm->engine;
    rill__lock(engine);
    rill_status status = save(r, path);
    rill__unlock(engine);
    return status;
}
