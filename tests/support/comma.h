/* A locale with a comma as decimal point, as a host program may have set one. */
#ifndef RILL_TESTS_COMMA_H
#define RILL_TESTS_COMMA_H

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int prints_comma(void) {
    char text[16];
    snprintf(text, sizeof text, "%g", 0.5);
    return strcmp(text, "0,5") == 0;
}

static inline int comma_on(const char *folder) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "es_ES.UTF-8"};
    for (int at = 0; at < 2; at++) {
        if (at) setenv("LOCPATH", folder, 1);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (setlocale(LC_ALL, names[i]) && prints_comma()) return 1;
    }
    setlocale(LC_ALL, "C");
    return 0;
}

/* For systems that have none. */
static inline void comma_make(const char *folder) {
    char command[512];
    snprintf(command, sizeof command,
             "localedef --no-archive -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", folder);
    if (system(command) != 0) return; /* comma_on finds out */
}

#endif
