#include "parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A decimal number without sign or blanks; *end is set behind it. */
static bool digits(const char *text, uint64_t *value, char **end) {
    if (!isdigit((unsigned char)*text)) return false;
    errno = 0;
    *value = strtoull(text, end, 10);
    return errno == 0;
}

/* A floating number that starts with a digit or a point: neither "inf" nor " 1" nor "0x1". */
static bool real(const char *text, double *value, char **end) {
    if (!isdigit((unsigned char)*text) && *text != '.') return false;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) return false;
    errno = 0;
    *value = strtod(text, end);
    return *end != text && isfinite(*value);
}

bool parse_count(const char *text, uint64_t *value) {
    char *end;
    uint64_t base;
    if (!digits(text, &base, &end)) return false;
    if (*end == '\0') {
        *value = base;
        return true;
    }
    if (*end == '^') {
        uint64_t exponent, power = 1;
        if (!digits(end + 1, &exponent, &end) || *end) return false;
        for (uint64_t i = 0; i < exponent && power; i++)
            if (__builtin_mul_overflow(power, base, &power) || i > 64) return false;
        *value = power;
        return true;
    }
    static const char suffixes[] = "KMGT";
    const char *suffix = strchr(suffixes, toupper((unsigned char)*end));
    if (suffix && end[1] == '\0')
        return !__builtin_mul_overflow(base, 1ull << (10 * (suffix - suffixes + 1)), value);
    double number;
    if (!real(text, &number, &end) || *end || number != floor(number) || number >= 0x1p63)
        return false;
    *value = (uint64_t)number;
    return true;
}

bool parse_fraction(const char *text, double *value) {
    char *end;
    double number;
    if (!real(text, &number, &end)) return false;
    if (end[0] == '%' && end[1] == '\0') number /= 100;
    else if (*end) return false;
    if (!(number >= 0 && number <= 1)) return false;
    *value = number;
    return true;
}

bool parse_int(const char *text, int least, int most, int *value) {
    char *end;
    uint64_t number;
    if (!digits(text, &number, &end) || *end) return false;
    if (number > 0x7fffffff || (int)number < least || (int)number > most) return false;
    *value = (int)number;
    return true;
}

bool parse_bits(const char *text, int *value) {
    int bits;
    if (!parse_int(text, 0, 16, &bits)) return false;
    if (bits && bits != 16 && bits != 8 && bits != 4 && bits != 2) return false;
    *value = bits;
    return true;
}

bool list_split(const char *text, const char *separators, text_list *list) {
    bool blanks = strchr(separators, ' ') != NULL;
    size_t parts = 1, length = strlen(text);
    for (size_t i = 0; i < length; i++)
        parts += strchr(separators, text[i]) != NULL;
    char **item = malloc(parts * sizeof *item + length + 1);
    if (!item) return false;
    char *at = (char *)(item + parts);
    memcpy(at, text, length + 1);
    list->n = 0;
    list->item = item;
    for (;;) {
        size_t n = strcspn(at, separators);
        bool last = at[n] == '\0';
        at[n] = '\0';
        if (n || !blanks) item[list->n++] = at;
        if (last) return true;
        at += n + 1;
    }
}

void list_free(text_list *list) {
    free(list->item);
    list->item = NULL;
    list->n = 0;
}
