#include "core/text.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* The "C" locale is built into the C library: asking for it takes no memory, and freeing it
 * nothing. */
static locale_t enter(locale_t *before) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    *before = uselocale(plain); /* of this thread alone */
    return plain;
}

static void leave(locale_t plain, locale_t before) {
    uselocale(before);
    if (plain) freelocale(plain);
}

double rill__read_double(const char *text, char **end) {
    locale_t before, plain = enter(&before);
    double value = strtod(text, end);
    leave(plain, before);
    return value;
}

int rill__vprint(char *to, size_t size, const char *format, va_list args) {
    locale_t before, plain = enter(&before);
    int n = vsnprintf(to, size, format, args);
    leave(plain, before);
    return n;
}

int rill__print(char *to, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = rill__vprint(to, size, format, args);
    va_end(args);
    return n;
}
