/* What the planner has learned on this machine: found, read and shown.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "plan_learned.h"

#include "table.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void find_folder(char *folder, size_t size) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    folder[0] = '\0';
    if (cache && *cache == '/') snprintf(folder, size, "%s/rill", cache);
    else if (home && *home == '/') snprintf(folder, size, "%s/.cache/rill", home);
}

/* Hosts in the name of a file: learned-LINK-HOSTS-[NETWORK-]MACHINE; 0: it is of another link, or
 * none of these. */
static int hosts_of(const char *name, const char *link) {
    char start[64];
    int n = snprintf(start, sizeof start, "learned-%s-", link);
    if (strncmp(name, start, (size_t)n) != 0) return 0;
    char *end;
    long hosts = strtol(name + n, &end, 10);
    const char *machine = strrchr(name, '-') + 1;
    return *end == '-' && strlen(machine) == 32 && hosts > 0 && hosts < 1 << 24 ? (int)hosts : 0;
}

bool learned_find(const char *link, int hosts, learned *l) {
    struct timespec newest = {0, 0};
    memset(l, 0, sizeof *l);
    find_folder(l->folder, sizeof l->folder);
    DIR *folder = *l->folder ? opendir(l->folder) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[sizeof l->path];
        struct stat about;
        int of = hosts_of(entry->d_name, link);
        if (!of || (hosts && of != hosts)) continue;
        snprintf(path, sizeof path, "%s/%s", l->folder, entry->d_name);
        if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) continue;
        bool newer = about.st_mtim.tv_sec > newest.tv_sec ||
                     (about.st_mtim.tv_sec == newest.tv_sec &&
                      about.st_mtim.tv_nsec > newest.tv_nsec);
        if (*l->path && !newer) continue;
        newest = about.st_mtim;
        snprintf(l->path, sizeof l->path, "%s", path);
    }
    if (folder) closedir(folder);
    return *l->path;
}

/* Which entry is nearer to so many ranks. */
static bool is_nearer(int ranks, int now, int before) {
    if (!ranks || !before) return true;
    double a = now > ranks ? (double)now / ranks : (double)ranks / now;
    double b = before > ranks ? (double)before / ranks : (double)ranks / before;
    return a < b;
}

static void read_line(const char *line, learned *l) {
    char name[LEARNED_NAME];
    double value;
    learned_point p;
    if (sscanf(line, "point %31s %lf %lf %lf", p.algorithm, &p.dim, &p.entries, &p.ratio) == 4) {
        if (l->points < LEARNED_POINTS) l->point[l->points++] = p;
    } else if (l->n < LEARNED_CONSTANTS && sscanf(line, "%31s %lf", name, &value) == 2) {
        memcpy(l->name[l->n], name, sizeof name);
        l->value[l->n++] = value;
    }
}

bool learned_read(int ranks, learned *l) {
    char line[512];
    FILE *file = fopen(l->path, "r");
    bool takes = false;
    while (file && fgets(line, sizeof line, file)) {
        int p, h;
        if (sscanf(line, "entry ranks %d hosts %d", &p, &h) == 2 && p > 0 && h > 0) {
            takes = is_nearer(ranks, p, l->ranks);
            if (!takes) continue;
            l->ranks = p;
            l->hosts = h;
            l->n = l->points = 0;
        } else if (strncmp(line, "end", 3) == 0) {
            takes = false;
        } else if (takes) {
            read_line(line, l);
        }
    }
    if (file) fclose(file);
    return l->n > 0;
}

static int by_kind(const void *one, const void *other) {
    const learned_point *a = one, *b = other;
    if (a->dim != b->dim) return a->dim < b->dim ? -1 : 1;
    if (a->entries != b->entries) return a->entries < b->entries ? -1 : 1;
    return strcmp(a->algorithm, b->algorithm);
}

void learned_print(learned *l) {
    table t = {.columns = 4,
               .head = {"calls of", "entries", "algorithm", "to the model"},
               .left = 0};
    printf("Learned on %d ranks, %d host%s: %s\n\n", l->ranks, l->hosts, l->hosts == 1 ? "" : "s",
           l->path);
    qsort(l->point, (size_t)l->points, sizeof *l->point, by_kind);
    for (int i = 0; i < l->points; i++) {
        const learned_point *p = &l->point[i];
        table_row *row = table_add(&t);
        if (!row) break;
        cell_count(row->cell[0], (uint64_t)p->dim);
        cell_count(row->cell[1], (uint64_t)p->entries);
        cell_text(row->cell[2], p->algorithm);
        cell_ratio(row->cell[3], p->ratio);
    }
    table_print(&t, stdout);
    table_free(&t);
    putchar('\n');
}

json_t *learned_json(const learned *l) {
    json_t *constants = json_object(), *calls = json_array();
    for (int i = 0; i < l->n; i++)
        json_object_set_new(constants, l->name[i], json_real(l->value[i]));
    for (int i = 0; i < l->points; i++) {
        const learned_point *p = &l->point[i];
        json_array_append_new(calls,
                              json_pack("{s:s, s:f, s:f, s:f}", "algorithm", p->algorithm, "dim",
                                        p->dim, "nnz", p->entries, "ratio", p->ratio));
    }
    return json_pack("{s:s, s:i, s:i, s:i, s:o, s:o}", "file", l->path, "ranks", l->ranks, "hosts",
                     l->hosts, "points", l->points, "calls", calls, "constants", constants);
}
