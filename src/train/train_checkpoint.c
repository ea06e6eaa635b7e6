/* Checkpoints: all that the next epochs depend on.
 *
 * Idea: weights and optimizer state are the same on all ranks, so rank 0 writes them, into a
 * neighbour of the file that takes its name when it is complete. A reducer's residuals differ
 * between ranks: its own file has the epoch in its name, is written first, and that of the epoch
 * before goes away last, so that whichever checkpoint is there has its reducer. Shuffles and random
 * rounding follow from seed and epoch.
 * Format, little-endian: magic, version, length of the settings, numbers, the settings as text,
 * labels, weights, state, and a hash of all of it.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/text.h"
#include "train/train_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 1, SETTINGS = RILL__SETTINGS };

typedef struct checkpoint_head {
    char magic[8];
    uint64_t version, ranks, features, columns, labels, has_state, settings;
    uint64_t epoch, step;
    double lr, scalars[RILL__SCALARS];
} checkpoint_head;

void rill__trainer_describe(const rill_trainer *t, char *text) {
    const rill_train_options *o = &t->options;
    rill__print(
        text, SETTINGS,
        "loss=%s solver=%s task=%s C=%.17g l2=%.17g l1=%.17g bias=%.17g class_weights=%s "
        "valid=%.17g seed=%llu optimizer=%s schedule=%s lr=%.17g decay=%.17g factor=%.17g "
        "step_epochs=%llu momentum=%.17g batch=%llu local_steps=%llu staleness=%d algorithm=%s "
        "codec=%s reducer=%s density=%.17g value_bits=%d coordinates=%llu rows=%llu",
        o->loss, o->solver, o->task ? o->task : "auto", o->C, o->l2, o->l1, o->bias,
        o->class_weights ? o->class_weights : "none", o->valid_fraction,
        (unsigned long long)o->seed, o->optimizer, o->schedule, o->lr, o->decay, o->step_factor,
        (unsigned long long)o->step_epochs, o->momentum, (unsigned long long)o->batch,
        (unsigned long long)o->local_steps, o->staleness, o->algorithm ? o->algorithm : "auto",
        o->codec ? o->codec : "auto", o->reducer ? o->reducer : "none", o->density, o->value_bits,
        (unsigned long long)o->coordinates, (unsigned long long)t->objective.total_rows);
    /* What came later is named where it is used, so that older checkpoints load. */
    size_t at = strlen(text);
    rill__print(text + at, SETTINGS - at, "%s%s%s%s", o->intercept ? " intercept=1" : "",
                o->scale && strcmp(o->scale, "none") ? " scale=" : "",
                o->scale && strcmp(o->scale, "none") ? o->scale : "",
                t->objective.softmax ? " multiclass=softmax" : "");
    at = strlen(text);
    if (!strcmp(o->loss, "huber"))
        rill__print(text + at, SETTINGS - at, " huber_delta=%.17g", t->objective.unit);
    at = strlen(text);
    if (o->window)
        rill__print(text + at, SETTINGS - at, " window=%llu", (unsigned long long)o->window);
    at = strlen(text);
    if (o->steps)
        rill__print(text + at, SETTINGS - at, " steps=%llu", (unsigned long long)o->steps);
    at = strlen(text);
    if (o->folds) rill__print(text + at, SETTINGS - at, " fold=%d/%d", o->fold, o->folds);
    at = strlen(text);
    rill__print(text + at, SETTINGS - at, "%s", t->objective.rows.weight ? " weights=1" : "");
}

/* Arrays of the optimizer. */
static unsigned states(const rill_trainer *t) { return !!t->weights.state + !!t->weights.dual; }

/* Which moment of a run a checkpoint is of: epochs done, and steps where one was ended early. */
typedef struct moment {
    uint64_t epoch, step;
} moment;

static moment now_of(const rill_trainer *t) {
    return (moment){t->job.epoch, t->job.share > 0 ? t->step : 0};
}

static void reducer_path(const char *path, moment m, char *name, size_t size) {
    int n = snprintf(name, size, "%s.reducer-%llu", path, (unsigned long long)m.epoch);
    if (m.step && n > 0 && (size_t)n < size)
        snprintf(name + n, size - (size_t)n, "-%llu", (unsigned long long)m.step);
}

typedef struct hashed {
    rill__output *out;
    XXH64_state_t *state;
} hashed;

static rill_status put(const hashed *h, const void *data, size_t bytes) {
    XXH64_update(h->state, data, bytes);
    return rill__output_write(h->out, data, bytes);
}

static rill_status write_all(const hashed *h, const rill_trainer *t) {
    char settings[SETTINGS] = "";
    rill__trainer_describe(t, settings);
    checkpoint_head head = {.magic = {'R', 'I', 'L', 'L', 'T', 'R', 'A', 'I'},
                            .version = VERSION,
                            .ranks = (uint64_t)t->team.ranks,
                            .features = t->objective.features,
                            .columns = (uint64_t)t->objective.columns,
                            .labels = (uint64_t)t->objective.labels,
                            .has_state = states(t),
                            .settings = SETTINGS,
                            .epoch = t->job.epoch,
                            .step = t->step,
                            .lr = t->job.lr};
    memcpy(head.scalars, t->scalars, sizeof head.scalars);
    head.scalars[RILL__SOLVER_KEPT] = t->job.kept;
    head.scalars[RILL__SOLVER_LAST] = t->job.last;
    head.scalars[RILL__SOLVER_WARM] = t->job.warm;
    head.scalars[RILL__EPOCH_SHARE] = t->job.share;
    RILL_TRY_DATA(put(h, &head, sizeof head));
    RILL_TRY_DATA(put(h, settings, sizeof settings));
    RILL_TRY_DATA(put(h, t->label, (size_t)t->objective.labels * sizeof *t->label));
    RILL_TRY_DATA(put(h, t->weights.w, (size_t)t->objective.n * sizeof(float)));
    if (t->weights.state)
        RILL_TRY_DATA(put(h, t->weights.state, (size_t)t->objective.n * sizeof(float)));
    if (t->weights.dual)
        RILL_TRY_DATA(put(h, t->weights.dual, (size_t)t->objective.n * sizeof(float)));
    uint64_t sum = XXH64_digest(h->state);
    return rill__output_write(h->out, &sum, sizeof sum);
}

static rill_status write_checkpoint(const rill_trainer *t, const char *path) {
    hashed h = {.state = XXH64_createState()};
    if (!h.state) return rill__data_memory("a checkpoint");
    XXH64_reset(h.state, 0);
    rill_status status = rill__output_open(path, &h.out);
    if (status == RILL_OK) {
        status = write_all(&h, t);
        rill_status closed = rill__output_close(h.out, status == RILL_OK);
        if (status == RILL_OK) status = closed;
    }
    XXH64_freeState(h.state);
    return status;
}

/* Of the checkpoint that is there. false: none. */
static bool moment_of(const char *path, moment *m) {
    checkpoint_head head = {.epoch = 0};
    rill__file file;
    if (rill__file_open_alone(path, &file) != RILL_OK) return false;
    bool read = file.size >= sizeof head &&
                rill__file_read(&file, 0, &head, sizeof head) == RILL_OK;
    rill__file_close(&file);
    *m = (moment){head.epoch, head.scalars[RILL__EPOCH_SHARE] > 0 ? head.step : 0};
    return read && !memcmp(head.magic, "RILLTRAI", 8);
}

/* The file of rank 0, and with a reducer the end of the other one: that of the checkpoint which is
 * not there. */
static rill_status save_alone(const rill_trainer *t, const char *path) {
    char name[4096];
    if (!t->options.reducer) return write_checkpoint(t, path);
    moment now = now_of(t), before;
    bool there = moment_of(path, &before);
    rill_status status = write_checkpoint(t, path);
    bool same = there && before.epoch == now.epoch && before.step == now.step;
    if (same || (status == RILL_OK && !there)) return status;
    reducer_path(path, status == RILL_OK ? before : now, name, sizeof name);
    unlink(name);
    return status;
}

/* What can be wrong before anything is written. */
static rill_status check_path(const rill_trainer *t, const char *path) {
    struct stat about;
    if (!path) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_save: path is NULL");
    if (t->options.reducer && !stat(path, &about) && !S_ISREG(about.st_mode))
        return rill__data_fail(RILL_ERR_IO,
                               "%s: is not a regular file, and with a reducer a checkpoint has a "
                               "second file beside it",
                               path);
    return RILL_OK;
}

rill_status rill_trainer_save(rill_trainer *t, const char *path) {
    if (!t) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_save: trainer is NULL");
    RILL_TRY_DATA(rill__data_agree(t->team.talk, check_path(t, path)));
    if (t->solver->complete)
        RILL_TRY_DATA(rill__data_agree(t->team.talk, t->solver->complete(&t->job)));
    if (t->options.reducer) {
        char name[4096];
        reducer_path(path, now_of(t), name, sizeof name);
        RILL_TRY_DATA(rill__data_agree(t->team.talk, t->solver->save(&t->job, name)));
    }
    return rill__data_agree(t->team.talk, t->team.rank == 0 ? save_alone(t, path) : RILL_OK);
}

/* ---- loading -------------------------------------------------------------------------------- */

static rill_status damaged(const char *path, const char *what) {
    return rill__data_fail(RILL_ERR_IO, "%s: %s", path, what);
}

/* The words of two settings that differ. */
static rill_status differs(const char *path, const char *saved, const char *now) {
    while (*saved && *now) {
        size_t a = strcspn(saved, " "), b = strcspn(now, " ");
        if (a != b || strncmp(saved, now, a))
            return rill__data_fail(RILL_ERR_MISMATCH, "%s: was saved with %.*s, this run has %.*s",
                                   path, (int)a, saved, (int)b, now);
        saved += a + (saved[a] == ' ');
        now += b + (now[b] == ' ');
    }
    if (*saved || *now) /* one has a setting more */
        return rill__data_fail(RILL_ERR_MISMATCH, "%s: was saved with%s%s, this run with%s%s", path,
                               *saved ? " " : "out ", *saved ? saved : now, *now ? " " : "out ",
                               *now ? now : saved);
    return damaged(path, "was saved with other settings");
}

static rill_status check_head(const rill_trainer *t, const char *path, const uint8_t *data,
                              uint64_t bytes) {
    checkpoint_head head;
    if (bytes < sizeof head + SETTINGS + 8) return damaged(path, "is too short for a checkpoint");
    memcpy(&head, data, sizeof head);
    if (memcmp(head.magic, "RILLTRAI", 8)) return damaged(path, "is not a checkpoint of a trainer");
    if (head.version != VERSION || head.settings != SETTINGS)
        return damaged(path, "is a checkpoint of another version");
    uint64_t sum;
    memcpy(&sum, data + bytes - 8, 8);
    if (sum != XXH64(data, (size_t)bytes - 8, 0))
        return damaged(path, "is damaged: its hash is wrong");
    char settings[SETTINGS] = "", saved[SETTINGS];
    rill__trainer_describe(t, settings);
    memcpy(saved, data + sizeof head, SETTINGS);
    saved[SETTINGS - 1] = '\0';
    if (strcmp(saved, settings)) return differs(path, saved, settings);
    uint64_t expected = sizeof head + SETTINGS + (uint64_t)t->objective.labels * sizeof(double) +
                        t->objective.n * sizeof(float) * (1u + states(t)) + 8;
    if (head.features != t->objective.features || head.columns != (uint64_t)t->objective.columns ||
        head.labels != (uint64_t)t->objective.labels || head.has_state != states(t) ||
        bytes != expected ||
        memcmp(data + sizeof head + SETTINGS, t->label,
               (size_t)t->objective.labels * sizeof(double)))
        return damaged(path, "was saved with other data: dimension or labels differ");
    if (head.ranks != (uint64_t)t->team.ranks)
        return rill__data_fail(RILL_ERR_MISMATCH, "%s: was saved by %llu ranks, these are %d", path,
                               (unsigned long long)head.ranks, t->team.ranks);
    return RILL_OK;
}

static rill_status check(const rill_trainer *t, const char *path, const uint8_t *data,
                         uint64_t bytes) {
    RILL_TRY_DATA(check_head(t, path, data, bytes));
    checkpoint_head head;
    memcpy(&head, data, sizeof head);
    double best_at = head.scalars[RILL__VALID_BEST_AT], share = head.scalars[RILL__EPOCH_SHARE];
    if (!isfinite(head.lr) || head.lr < 0 || !(best_at >= 0 && best_at <= (double)head.epoch) ||
        !(share >= 0 && share < 1))
        return damaged(path, "is damaged: its numbers are not those of a trainer");
    return RILL_OK;
}

static void take_over(rill_trainer *t, const uint8_t *data) {
    checkpoint_head head;
    size_t size = (size_t)t->objective.n * sizeof(float);
    memcpy(&head, data, sizeof head);
    const uint8_t *at = data + sizeof head + SETTINGS +
                        (size_t)t->objective.labels * sizeof(double);
    memcpy(t->weights.w, at, size);
    if (t->weights.state) memcpy(t->weights.state, at + size, size);
    if (t->weights.dual) {
        memcpy(t->weights.dual, at + 2 * size, size);
        t->weights.path = (double)head.step;
    }
    if (t->backup) memcpy(t->backup, at, size);
    memcpy(t->scalars, head.scalars, sizeof t->scalars);
    t->job.kept = head.scalars[RILL__SOLVER_KEPT];
    t->job.last = head.scalars[RILL__SOLVER_LAST];
    t->job.warm = head.scalars[RILL__SOLVER_WARM];
    t->job.share = head.scalars[RILL__EPOCH_SHARE];
    t->job.epoch = head.epoch;
    t->step = head.step;
    t->job.lr = head.lr;
}

rill_status rill__trainer_restore(rill_trainer *t, const char *path, const uint8_t *data,
                                  uint64_t bytes) {
    RILL_TRY_DATA(check(t, path, data, bytes));
    take_over(t, data);
    return RILL_OK;
}

/* ---- what it was trained with --------------------------------------------------------------- */

/* The value of a word "name=value"; "" if there is none. */
static void value_of(const char *settings, const char *name, char *value, size_t size) {
    size_t length = strlen(name);
    *value = '\0';
    for (const char *at = settings; *at; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");
        if (word > length && !strncmp(at, name, length) && at[length] == '=') {
            snprintf(value, size, "%.*s", (int)(word - length - 1), at + length + 1);
            return;
        }
        at += word;
    }
}

static bool number_of(const char *settings, const char *name, double *number) {
    char value[64], *end;
    value_of(settings, name, value, sizeof value);
    *number = rill__read_double(value, &end);
    return end != value && !*end && isfinite(*number);
}

static const char *name_of(const char *settings, const char *name, const char *const *known) {
    char value[64];
    value_of(settings, name, value, sizeof value);
    for (; *known; known++)
        if (!strcmp(value, *known)) return *known;
    return NULL;
}

static bool read_settings(const char *settings, rill_train_options *o) {
    static const char *const solvers[] = {"sgd", "scd", "newton", "hybrid", "ftrl", NULL};
    static const char *const scales[] = {"max", "std", "rows", NULL};
    static const char *const multiclass[] = {"softmax", NULL};
    double intercept, steps, batch, local;
    const char *solver = name_of(settings, "solver", solvers);
    if (!solver || !number_of(settings, "C", &o->C) || !number_of(settings, "decay", &o->decay) ||
        !number_of(settings, "bias", &o->bias) || !number_of(settings, "batch", &batch) ||
        !number_of(settings, "local_steps", &local))
        return false;
    o->batch = (uint64_t)fmin(fmax(batch, 0), 1e18);
    o->local_steps = (uint64_t)fmin(fmax(local, 0), 1e18);
    o->solver = solver;
    o->scale = name_of(settings, "scale", scales);
    if (!o->scale) o->scale = "none";
    o->multiclass = name_of(settings, "multiclass", multiclass);
    if (!o->multiclass) o->multiclass = "ovr";
    o->intercept = number_of(settings, "intercept", &intercept) && intercept != 0;
    o->steps = number_of(settings, "steps", &steps) ? (uint64_t)steps : 0;
    return true;
}

rill_status rill_checkpoint_options(const char *path, rill_train_options *o) {
    if (!path || !o || o->size != sizeof *o)
        return rill__data_fail(RILL_ERR_ARGUMENT,
                               "rill_checkpoint_options: an argument is NULL, or "
                               "the options' size is wrong");
    rill__file file;
    checkpoint_head head = {.version = 0};
    char settings[SETTINGS] = "";
    RILL_TRY_DATA(rill__file_open_alone(path, &file));
    rill_status status = RILL_OK;
    if (file.size < sizeof head + SETTINGS) status = damaged(path, "is too short for a checkpoint");
    if (status == RILL_OK) status = rill__file_read(&file, 0, &head, sizeof head);
    if (status == RILL_OK) status = rill__file_read(&file, sizeof head, settings, SETTINGS);
    rill__file_close(&file);
    RILL_TRY_DATA(status);
    settings[SETTINGS - 1] = '\0';
    if (memcmp(head.magic, "RILLTRAI", 8)) return damaged(path, "is not a checkpoint of a trainer");
    if (head.version != VERSION || head.settings != SETTINGS)
        return damaged(path, "is a checkpoint of another version");
    return read_settings(settings, o) ? RILL_OK : damaged(path, "is damaged: its settings");
}

/* A checkpoint that this trainer can take over; *data is the caller's, also on failure. */
static rill_status read_checkpoint(const rill_trainer *t, const char *path, uint8_t **data) {
    rill__file file;
    if (!path) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_load: path is NULL");
    RILL_TRY_DATA(rill__file_open_alone(path, &file));
    uint64_t bytes = file.size;
    *data = malloc((size_t)bytes + 1);
    rill_status status = *data ? rill__file_read(&file, 0, *data, (size_t)bytes)
                               : rill__data_memory("a checkpoint");
    rill__file_close(&file);
    return status == RILL_OK ? check(t, path, *data, bytes) : status;
}

/* All ranks have all of it before the first takes anything over. */
rill_status rill_trainer_load(rill_trainer *t, const char *path) {
    if (!t) return rill__data_fail(RILL_ERR_ARGUMENT, "rill_trainer_load: trainer is NULL");
    uint8_t *data = NULL;
    rill_status status = rill__data_agree(t->team.talk, read_checkpoint(t, path, &data));
    if (status == RILL_OK && t->options.reducer) {
        char name[4096];
        checkpoint_head head;
        memcpy(&head, data, sizeof head);
        moment then = {head.epoch, head.scalars[RILL__EPOCH_SHARE] > 0 ? head.step : 0};
        reducer_path(path, then, name, sizeof name);
        status = rill__data_agree(t->team.talk, t->solver->load(&t->job, name));
    }
    if (status == RILL_OK) take_over(t, data);
    free(data);
    return status;
}
