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
    if (strncmp(line, "point ", 6) == 0) l->points++;
    else if (l->n < LEARNED_CONSTANTS && sscanf(line, "%31s %lf", name, &value) == 2) {
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

void learned_print(const learned *l) {
    table t = {.columns = 2, .head = {"constant", "learned"}, .left = 1};
    printf("Learned on %d ranks, %d host%s, from %d kinds of calls: %s\n\n", l->ranks, l->hosts,
           l->hosts == 1 ? "" : "s", l->points, l->path);
    for (int i = 0; i < l->n; i++) {
        table_row *row = table_add(&t);
        if (!row) break;
        cell_text(row->cell[0], l->name[i]);
        snprintf(row->cell[1], TABLE_CELL, "%.3g", l->value[i]);
    }
    table_print(&t, stdout);
    table_free(&t);
    putchar('\n');
}

json_t *learned_json(const learned *l) {
    json_t *constants = json_object();
    for (int i = 0; i < l->n; i++)
        json_object_set_new(constants, l->name[i], json_real(l->value[i]));
    return json_pack("{s:s, s:i, s:i, s:i, s:o}", "file", l->path, "ranks", l->ranks, "hosts",
                     l->hosts, "points", l->points, "constants", constants);
}
