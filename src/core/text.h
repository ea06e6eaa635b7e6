/* Numbers as text that files, settings and other ranks read: always with a point, whatever locale
 * the host program has set for itself. Threads do not disturb each other. */
#ifndef RILL_CORE_TEXT_H
#define RILL_CORE_TEXT_H

#include <stdarg.h>
#include <stddef.h>

/* strtod of the "C" locale. */
double rill__read_double(const char *text, char **end);
/* snprintf and vsnprintf of the "C" locale. */
int rill__print(char *to, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int rill__vprint(char *to, size_t size, const char *format, va_list)
    __attribute__((format(printf, 3, 0)));

#endif
