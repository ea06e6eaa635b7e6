/* A device's constants in a profile: lines "#+ device_NAME VALUE" before its first entry. To
 * versions of rill that do not know them they are comments; and names that this one does not know
 * are passed over, so that files can be read both ways. They hold for all entries: what a device
 * takes does not depend on how many ranks there are. */
#include "plan/profile.h"

#include "core/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MARK "#+ "
enum { LINE = 256 };

static double *constant_named(rill__device_constants *d, const char *name) {
    for (int i = 0; i < RILL__DEVICE_CONSTANTS; i++)
        if (strcmp(rill__device_table[i].name, name) == 0)
            return (double *)((char *)d + rill__device_table[i].offset);
    return NULL;
}

/* A line behind its mark. */
static rill_status read_line(const char *path, int number, char *text, rill__device_constants *d) {
    char *value = text + strcspn(text, " \t\r\n"), *end;
    if (*value) *value++ = '\0';
    double *to = constant_named(d, text);
    if (!to) return RILL_OK;
    value += strspn(value, " \t");
    double given = rill__read_double(value, &end);
    if (end == value || end[strspn(end, " \t\r\n")] || !(given > 0 && given < 1000))
        return rill__fail(RILL_ERR_IO, "profile %s:%d: a device's constant is not positive", path,
                          number);
    *to = given;
    return RILL_OK;
}

rill_status rill__profile_device(const char *path, rill__device_constants *d) {
    char text[LINE];
    rill_status status = RILL_OK;
    FILE *file = fopen(path, "r");
    if (!file) return rill__fail(RILL_ERR_IO, "profile %s: %s", path, strerror(errno));
    for (int number = 1; status == RILL_OK && fgets(text, sizeof text, file); number++)
        if (strncmp(text, MARK, strlen(MARK)) == 0)
            status = read_line(path, number, text + strlen(MARK), d);
    fclose(file);
    return status;
}

void rill__profile_write_device(rill__outfile *out, const rill__device_constants *d) {
    char line[LINE];
    for (int i = 0; i < RILL__DEVICE_CONSTANTS; i++) {
        const rill__constant *row = &rill__device_table[i];
        double value = *(const double *)((const char *)d + row->offset);
        if (!(value > 0)) continue;
        rill__print(line, sizeof line, MARK "%s %.4g\n", row->name, value);
        rill__outfile_write(out, line, strlen(line));
    }
}
