/* Reading, choosing and writing the entries of a profile; and what its points say about a call. */
#include "plan/profile.h"

#include "coll/cost.h"

#include "core/outfile.h"
#include "core/text.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_LINE "rill profile 1"
enum { LINE = 256 };

/* ---- what the points say --------------------------------------------------------------------- */

/* Logarithm of measured to model near a problem: the mean over the points of the algorithm, each
 * weighed by how close it is. Far from all of them it is their plain mean. */
static double correction(const rill__profile *profile, uint32_t algorithm, double dim, double nnz) {
    double weights = 0, sum = 0;
    double blur = profile->learned ? 0.02 : 0.1; /* calls come again where they were measured */
    float log_dim = (float)log2(dim), log_density = (float)log2(fmax(nnz, 1) / dim);
    for (int i = 0; i < profile->points; i++) {
        const rill__point *at = &profile->point[i];
        if (at->algorithm != algorithm) continue;
        double x = at->log_dim - log_dim, y = at->log_density - log_density;
        double near = 1 / (blur + x * x + y * y);
        weights += near * near;
        sum += near * near * (double)at->log_ratio;
    }
    return weights > 0 ? sum / weights : 0;
}

double rill__profile_time(const rill__profile *profile, const rill__algorithm *a,
                          const rill__problem *p) {
    double time = rill__estimate(a, p);
    if (!profile->points || p->away || p->collective != RILL_ALLREDUCE || p->dim == 0) return time;
    return time * exp(correction(profile, rill__name_hash(a->name), (double)p->dim, p->nnz));
}

rill__point rill__profile_point(const rill__algorithm *a, const rill__problem *p, double ratio) {
    double dim = (double)p->dim;
    return (rill__point){rill__name_hash(a->name), (float)log2(dim),
                         (float)log2(fmax(p->nnz, 1) / dim), (float)ratio};
}

bool rill__points_near(const rill__point *a, const rill__point *b) {
    return a->algorithm == b->algorithm && fabsf(a->log_dim - b->log_dim) < 0.5f &&
           fabsf(a->log_density - b->log_density) < 0.5f;
}

bool rill__profile_is_sound(const rill__profile *p) {
    bool sound = p->points >= 0 && p->points <= RILL__POINTS && p->crowding >= 1;
    for (int i = 0; sound && i < RILL__CONSTANTS; i++) {
        double value = *(const double *)((const char *)&p->constants +
                                         rill__constant_table[i].offset);
        sound = value > 0 && value < 1000;
    }
    for (int i = 0; sound && i < p->points; i++)
        sound = isfinite(p->point[i].log_dim) && isfinite(p->point[i].log_density) &&
                fabsf(p->point[i].log_ratio) < 10;
    return sound;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reader {
    FILE *file;
    const char *path;
    int line;
    char text[LINE];
} reader;

static rill_status wrong(const reader *r, const char *what) {
    return rill__fail(RILL_ERR_IO, "profile %s:%d: %s", r->path, r->line, what);
}

/* The next line that has something in it; false: the end. */
static bool next_line(reader *r) {
    while (fgets(r->text, sizeof r->text, r->file)) {
        r->line++;
        r->text[strcspn(r->text, "#\r\n")] = '\0';
        if (strspn(r->text, " \t") != strlen(r->text)) return true;
    }
    return false;
}

/* The next word of a line, with an end of its own; empty: there is none. */
static char *next_word(char **at) {
    char *word = *at + strspn(*at, " \t");
    *at = word + strcspn(word, " \t");
    if (**at) *(*at)++ = '\0';
    return word;
}

static bool next_number(char **at, double *value) {
    char *word = next_word(at), *end;
    *value = rill__read_double(word, &end);
    return *word && !*end;
}

/* A number behind its name. */
static bool next_named(char **at, const char *name, double *value) {
    return strcmp(next_word(at), name) == 0 && next_number(at, value);
}

static bool next_count(char **at, const char *name, int *count) {
    double value;
    if (!next_named(at, name, &value) || !(value >= 1 && value <= INT_MAX)) return false;
    *count = (int)value;
    return *count == value;
}

static bool at_end(char *at) { return !*next_word(&at); }

static int constant_named(const char *name) {
    int i = 0;
    while (i < RILL__CONSTANTS && strcmp(rill__constant_table[i].name, name) != 0)
        i++;
    return i;
}

static rill_status read_point(const reader *r, char *at, rill__profile *entry) {
    const char *name = next_word(&at);
    double dim, nnz, ratio;
    if (!next_number(&at, &dim) || !next_number(&at, &nnz) || !next_number(&at, &ratio) ||
        !at_end(at))
        return wrong(r, "a point has an algorithm, a dimension, entries and a ratio");
    if (!(dim >= 1 && dim < 1e19 && nnz >= 0 && nnz <= dim && ratio > 0.001 && ratio < 1000))
        return wrong(r, "a point lies outside of what can be measured");
    if (entry->points == RILL__POINTS) return wrong(r, "an entry has too many points");
    entry->point[entry->points++] = (rill__point){rill__name_hash(name), (float)log2(dim),
                                                  (float)log2(fmax(nnz, 1) / dim),
                                                  (float)log(ratio)};
    return RILL_OK;
}

static rill_status read_constant(const reader *r, const char *name, char *at, rill__profile *entry,
                                 unsigned *seen) {
    double value;
    if (!next_number(&at, &value) || !at_end(at))
        return wrong(r, "expected a constant and its value, a point, or end");
    int i = constant_named(name);
    if (i == RILL__CONSTANTS) return wrong(r, "there is no such constant");
    if (!(value > 0 && value < 1000)) return wrong(r, "a constant is not positive");
    *(double *)((char *)&entry->constants + rill__constant_table[i].offset) = value;
    *seen |= 1u << (unsigned)i;
    return RILL_OK;
}

/* The line "entry" has been read. */
static rill_status read_entry(reader *r, rill__profile *entry) {
    memset(entry, 0, sizeof *entry);
    char *at = r->text;
    unsigned seen = 0;
    if (strcmp(next_word(&at), "entry") != 0 || !next_count(&at, "ranks", &entry->ranks) ||
        !next_count(&at, "hosts", &entry->hosts) ||
        !next_named(&at, "crowding", &entry->crowding) || !at_end(at) ||
        entry->hosts > entry->ranks || !(entry->crowding >= 1 && entry->crowding < 1e6))
        return wrong(r, "expected entry ranks P hosts H crowding C");
    while (next_line(r)) {
        at = r->text;
        const char *word = next_word(&at);
        if (strcmp(word, "end") == 0)
            return seen == (1u << RILL__CONSTANTS) - 1
                       ? RILL_OK
                       : wrong(r, "the entry ends before all constants were given");
        if (strcmp(word, "learned") == 0 && at_end(at)) entry->learned = true;
        else
            RILL_TRY(strcmp(word, "point") == 0 ? read_point(r, at, entry)
                                                : read_constant(r, word, at, entry, &seen));
    }
    return wrong(r, "the file ends within an entry");
}

/* Calls take with each entry until it says stop. */
static rill_status read_all(const char *path, rill_status (*take)(void *, const rill__profile *),
                            void *context) {
    reader r = {.file = fopen(path, "r"), .path = path};
    if (!r.file) return rill__fail(RILL_ERR_IO, "profile %s: %s", path, strerror(errno));
    rill__profile *entry = rill__malloc(sizeof *entry);
    rill_status status = entry ? RILL_OK : rill__fail(RILL_ERR_MEMORY, "out of memory");
    errno = 0;
    if (status == RILL_OK && !next_line(&r) && ferror(r.file))
        status = rill__fail(RILL_ERR_IO, "profile %s: %s", path, strerror(errno ? errno : EIO));
    if (status == RILL_OK && strcmp(r.text, FIRST_LINE) != 0)
        status = wrong(&r, "this is not a profile (its first line is not \"" FIRST_LINE "\")");
    while (status == RILL_OK && next_line(&r)) {
        status = read_entry(&r, entry);
        if (status == RILL_OK) status = take(context, entry);
    }
    free(entry);
    fclose(r.file);
    return status;
}

/* ---- choosing -------------------------------------------------------------------------------- */

typedef struct search {
    int ranks, hosts;
    double distance;
    rill__profile *best;
} search;

static rill_status take_nearest(void *context, const rill__profile *entry) {
    search *s = context;
    if ((entry->hosts > 1) != (s->hosts > 1)) return RILL_OK;
    double distance = fabs(log2((double)entry->ranks / s->ranks)) +
                      fabs(log2((double)entry->hosts / s->hosts));
    if (distance >= s->distance) return RILL_OK;
    s->distance = distance;
    *s->best = *entry;
    return RILL_OK;
}

/* The constants for other ranks on the processors and in the memory of a host than there were. */
static void fit_seating(rill__profile *entry, const rill__seating *now) {
    double crowding = fmax(1, now->crowding), slower = crowding / entry->crowding;
    for (int i = 0; i < RILL__CONSTANTS; i++) {
        const rill__constant *row = &rill__constant_table[i];
        double *value = (double *)((char *)&entry->constants + row->offset);
        bool shared = row->computes ||
                      (now->hosts == 1 && row->offset != offsetof(rill__constants, doubt));
        if (shared) *value *= slower;
    }
    double together = (double)entry->ranks / entry->hosts;
    rill__constants_share(&entry->constants, now->hosts, together / entry->crowding,
                          now->together / crowding);
    entry->crowding = crowding;
}

rill_status rill__profile_read(const char *path, const rill__seating *seating,
                               rill__profile *profile) {
    search s = {seating->ranks, seating->hosts, INFINITY, profile};
    RILL_TRY(read_all(path, take_nearest, &s));
    if (isinf(s.distance))
        return rill__fail(RILL_ERR_UNSUPPORTED, "profile %s has no entry for %s", path,
                          seating->hosts > 1 ? "several hosts" : "one host");
    fit_seating(profile, seating);
    return RILL_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static const char *algorithm_of(uint32_t hash) {
    for (int i = 0; rill__algorithm_at(RILL_ALLREDUCE, i); i++)
        if (rill__name_hash(rill__algorithm_at(RILL_ALLREDUCE, i)->name) == hash)
            return rill__algorithm_at(RILL_ALLREDUCE, i)->name;
    return NULL; /* of another version: it says nothing to this one */
}

static void put(rill__outfile *out, const char *text) {
    rill__outfile_write(out, text, strlen(text));
}

static void write_entry(rill__outfile *out, const rill__profile *entry) {
    char line[2 * LINE];
    rill__print(line, sizeof line, "entry ranks %d hosts %d crowding %g\n", entry->ranks,
                entry->hosts, entry->crowding);
    put(out, line);
    if (entry->learned) put(out, "learned\n");
    for (int i = 0; i < RILL__CONSTANTS; i++) {
        const rill__constant *row = &rill__constant_table[i];
        double value = *(const double *)((const char *)&entry->constants + row->offset);
        rill__print(line, sizeof line, "%s %.4g\n", row->name, value);
        put(out, line);
    }
    for (int i = 0; i < entry->points; i++) {
        const rill__point *at = &entry->point[i];
        const char *name = algorithm_of(at->algorithm);
        double dim = round(exp2((double)at->log_dim));
        if (!name) continue;
        rill__print(line, sizeof line, "point %s %.0f %.0f %.4g\n", name, dim,
                    round(dim * exp2((double)at->log_density)), exp((double)at->log_ratio));
        put(out, line);
    }
    put(out, "end\n");
}

typedef struct copying {
    rill__outfile *out;
    const rill__profile *replacement;
} copying;

static rill_status copy_others(void *context, const rill__profile *entry) {
    const copying *c = context;
    if (entry->ranks != c->replacement->ranks || entry->hosts != c->replacement->hosts)
        write_entry(c->out, entry);
    return RILL_OK;
}

static rill_status make_folder_of(const char *path) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *at = folder + 1; *at; at++) {
        if (*at != '/') continue;
        *at = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            return rill__fail(RILL_ERR_IO, "%s: %s", folder, strerror(errno));
        *at = '/';
    }
    return RILL_OK;
}

/* Of the file as it is: what it does not say is 0. False: it cannot be read. */
static bool find_device(const char *path, rill__device_constants *device) {
    memset(device, 0, sizeof *device);
    return rill__profile_device(path, device) == RILL_OK;
}

static rill_status write_file(const char *path, const rill__profile *profile,
                              const rill__device_constants *device, bool keeps_others) {
    RILL_TRY(make_folder_of(path));
    struct stat about;
    rill__outfile out;
    int error = rill__outfile_open(strcmp(path, "-") != 0 ? path : "./-", &out);
    if (error) return rill__fail(RILL_ERR_IO, "profile %s: %s", path, strerror(error));
    put(&out, profile->learned ? FIRST_LINE "\n# Learned by calls"
                               : FIRST_LINE "\n# Written by rill tune");
    put(&out,
        ": seconds per message, byte, entry or call. docs/internals/cost.md explains them.\n");
    rill_status status = RILL_OK;
    copying c = {&out, profile};
    /* A device has no entries to keep, and a FIFO would be waited for. */
    bool is_file = stat(path, &about) == 0 && S_ISREG(about.st_mode) && out.partial;
    rill__device_constants before;
    if (!device && is_file && keeps_others && find_device(path, &before)) device = &before;
    if (device) rill__profile_write_device(&out, device);
    if (is_file && about.st_size > 0 && keeps_others) status = read_all(path, copy_others, &c);
    write_entry(&out, profile);
    error = rill__outfile_close(&out, status == RILL_OK);
    if (error) status = rill__fail(RILL_ERR_IO, "profile %s: %s", path, strerror(error));
    return status;
}

rill_status rill__profile_write(const char *path, const rill__profile *profile,
                                const rill__device_constants *device) {
    return write_file(path, profile, device, true);
}

rill_status rill__profile_replace(const char *path, const rill__profile *profile) {
    if (write_file(path, profile, NULL, true) == RILL_OK) return RILL_OK;
    return write_file(path, profile, NULL, false);
}

void rill__profile_path(char *path, size_t size) {
    const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    path[0] = '\0';
    if (folder && *folder) snprintf(path, size, "%s/rill/profile", folder);
    else if (home && *home) snprintf(path, size, "%s/.config/rill/profile", home);
}

rill_status rill__profile_find(const char *named, const rill__seating *seating,
                               rill__profile *profile, rill__device_constants *device,
                               bool *there) {
    char user[1024];
    const char *path = named;
    *there = false;
    rill__device_constants_default(device);
    if (!*named) {
        rill__profile_path(user, sizeof user);
        path = user;
        if (!*path || access(path, F_OK) != 0) return RILL_OK;
    }
    if (strcmp(path, "none") == 0) return RILL_OK;
    rill_status status = rill__profile_read(path, seating, profile);
    *there = status == RILL_OK;
    if (status != RILL_OK && status != RILL_ERR_UNSUPPORTED) return status;
    return rill__profile_device(path, device);
}
