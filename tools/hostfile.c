/* See hostfile.h.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "hostfile.h"
#include "parse.h"
#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SLOTS = 1 << 20 };

static bool add(hostfile *h, const char *name, int slots) {
    h->slots += slots;
    for (int i = 0; i < h->n; i++) {
        if (strcmp(h->host[i].name, name) != 0) continue;
        h->host[i].slots += slots;
        return true;
    }
    hostfile_host *more = realloc(h->host, ((size_t)h->n + 1) * sizeof *more);
    if (!more) return false;
    h->host = more;
    more[h->n] = (hostfile_host){strdup(name), slots};
    return more[h->n].name && ++h->n;
}

/* What is wrong with the line, or NULL. */
static const char *read_line(hostfile *h, char *line) {
    static const char blank[] = " \t\r\n";
    char *rest, *name, *word, *colon;
    line[strcspn(line, "#")] = '\0';
    if (!(name = strtok_r(line, blank, &rest))) return NULL;
    int slots = 1;
    /* Names with several colons are addresses of IPv6. */
    if ((colon = strchr(name, ':')) && !strchr(colon + 1, ':')) {
        *colon = '\0';
        if (!parse_int(colon + 1, 1, MOST_SLOTS, &slots)) return "a number follows the colon";
    }
    if (!*name || name[0] == '-') return "a line begins with the name of a host";
    while ((word = strtok_r(NULL, blank, &rest))) {
        if (!strncmp(word, "slots=", 6)) {
            if (!parse_int(word + 6, 1, MOST_SLOTS, &slots)) return "slots= takes a number";
        } else if (strncmp(word, "max_slots=", 10) != 0 && strncmp(word, "max-slots=", 10) != 0) {
            return "after the host there may be slots=N";
        }
    }
    return add(h, name, slots) ? NULL : "out of memory";
}

bool hostfile_read(const char *command, const char *path, hostfile *h) {
    *h = (hostfile){0};
    FILE *file = fopen(path, "r");
    if (!file) {
        tool_error("%s: %s: %s", command, path, strerror(errno));
        return false;
    }
    char line[1024];
    const char *wrong = NULL;
    int number = 0;
    while (!wrong && fgets(line, sizeof line, file)) {
        number++;
        if (strlen(line) == sizeof line - 1) wrong = "the line is too long";
        else wrong = read_line(h, line);
    }
    fclose(file);
    if (wrong) tool_error("%s: %s:%d: %s", command, path, number, wrong);
    else if (!h->n) tool_error("%s: %s: there is no host in it", command, path);
    if (!wrong && h->n) return true;
    hostfile_free(h);
    return false;
}

void hostfile_free(hostfile *h) {
    for (int i = 0; i < h->n; i++)
        free(h->host[i].name);
    free(h->host);
    *h = (hostfile){0};
}
