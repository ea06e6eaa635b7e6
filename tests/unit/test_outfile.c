/* Outputs: complete or not there, links followed, devices and FIFOs written into, rights kept; and
 * what the library writes with them, against a limit on the size of files. */
#include "../support/limits.h"
#include "../support/unit.h"

#include "core/outfile.h"
#include "plan/profile.h"
#include "train/train_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static char folder[200], path[256], other[256];

static char *in(const char *name, char *text) {
    snprintf(text, 256, "%s/%s", folder, name);
    return text;
}

static int make_folder(void **state) {
    (void)state;
    const char *where = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/rill-out-XXXXXX", where ? where : "/tmp");
    return mkdtemp(folder) ? (in("file", path), in("other", other), 0) : 1;
}

static int entries(void) {
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static int remove_folder(void **state) {
    (void)state;
    char name[512];
    DIR *dir = opendir(folder);
    for (struct dirent *e; (e = readdir(dir));) {
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') unlink(name);
    }
    closedir(dir);
    return rmdir(folder);
}

static void put(const char *name, const char *text) {
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static void has(const char *name, const char *text) {
    char got[64] = "";
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    size_t n = fread(got, 1, sizeof got - 1, f);
    fclose(f);
    got[n] = '\0';
    assert_string_equal(got, text);
}

static int output(const char *name, const char *text, bool keep) {
    rill__outfile out;
    int error = rill__outfile_open(name, &out);
    if (error) return error;
    error = rill__outfile_write(&out, text, strlen(text));
    int closed = rill__outfile_close(&out, keep && !error);
    return error ? error : closed;
}

static void complete_or_not_there(void **state) {
    (void)state;
    assert_int_equal(output(path, "new", false), 0);
    assert_int_equal(entries(), 0);
    assert_int_equal(output(path, "old", true), 0);
    has(path, "old");
    assert_int_equal(output(path, "new", false), 0);
    has(path, "old");
    limit_files(1000);
    char *large = calloc(1, 100000);
    memset(large, 'x', 99999);
    assert_int_equal(output(path, large, true), EFBIG);
    free(large);
    limit_files(0);
    has(path, "old");
    assert_int_equal(entries(), 1);
    assert_int_equal(output("/no/such/folder/file", "x", true), ENOENT);
    assert_int_equal(output(folder, "x", true), EISDIR);
}

static void rights_stay(void **state) {
    (void)state;
    struct stat about;
    put(path, "old");
    assert_int_equal(chmod(path, 0604), 0);
    assert_int_equal(output(path, "new", true), 0);
    has(path, "new");
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0604);
    if (geteuid() == 0) return; /* may write everything */
    assert_int_equal(chmod(path, 0400), 0);
    assert_int_equal(output(path, "more", true), EACCES);
    has(path, "new");
    /* A folder that takes no new files: the one that is there is written into. */
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(chmod(folder, 0500), 0);
    assert_int_equal(output(path, "more", true), 0);
    assert_int_equal(output(other, "more", true), EACCES);
    assert_int_equal(chmod(folder, 0700), 0);
    has(path, "more");
}

static void links_are_followed(void **state) {
    (void)state;
    struct stat about;
    char link[256];
    put(path, "old");
    in("link", link);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(output(link, "new", true), 0);
    has(path, "new");
    assert_int_equal(symlink(link, other), 0); /* a link to a link */
    assert_int_equal(output(other, "newer", true), 0);
    has(path, "newer");
    unlink(path); /* and to nothing */
    assert_int_equal(output(other, "newest", true), 0);
    has(path, "newest");
    assert_true(!lstat(other, &about) && S_ISLNK(about.st_mode));
    assert_true(!lstat(link, &about) && S_ISLNK(about.st_mode));
    assert_int_equal(entries(), 3);
    unlink(link);
    assert_int_equal(symlink("link", link), 0);
    assert_int_equal(output(link, "x", true), ELOOP);
}

static void what_is_no_file_stays(void **state) {
    (void)state;
    struct stat about;
    char got[16] = "";
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_int_equal(output(path, "through", true), 0);
    assert_int_equal(read(fd, got, sizeof got), 7);
    close(fd);
    assert_true(!lstat(path, &about) && S_ISFIFO(about.st_mode));
    if (!make_device(other, 7)) return print_message("skipped: no device can be made\n");
    assert_int_equal(output(other, "x", true), ENOSPC);
    assert_true(!lstat(other, &about) && S_ISCHR(about.st_mode));
    unlink(other);
    assert_true(make_device(other, 3));
    assert_int_equal(output(other, "x", true), 0);
    assert_true(!lstat(other, &about) && S_ISCHR(about.st_mode));
    assert_int_equal(entries(), 2);
}

static void lines_lie_there_at_once(void **state) {
    (void)state;
    rill__outfile out;
    put(path, "old");
    assert_int_equal(rill__outfile_open(path, &out), 0);
    has(path, "old");
    assert_int_equal(rill__outfile_line(&out, "one"), 0);
    has(path, "one\n");
    assert_int_equal(rill__outfile_line(&out, "two"), 0);
    has(path, "one\ntwo\n");
    limit_files(12);
    assert_int_equal(rill__outfile_line(&out, "three and more"), EFBIG);
    has(path, "one\ntwo\n"); /* nothing of a line that does not fit */
    assert_int_equal(rill__outfile_line(&out, "4"), EFBIG);
    limit_files(0);
    assert_int_equal(rill__outfile_close(&out, true), EFBIG);
    assert_int_equal(rill__outfile_append(path, &out), 0);
    assert_int_equal(rill__outfile_line(&out, "three"), 0);
    assert_int_equal(rill__outfile_close(&out, true), 0);
    has(path, "one\ntwo\nthree\n");
    assert_int_equal(rill__outfile_append(other, &out), 0); /* that is not there */
    assert_int_equal(rill__outfile_close(&out, false), 0);
    assert_int_equal(entries(), 1);
}

/* The one that comes second waits, and gives up; what a killed one has left goes away. */
static void two_do_not_mix(void **state) {
    (void)state;
    rill__outfile out;
    char partial[300];
    snprintf(partial, sizeof partial, "%s.partial", path);
    put(partial, "left over");
    assert_int_equal(rill__outfile_open(path, &out), 0);
    assert_int_equal(output(path, "second", true), EBUSY);
    assert_int_equal(rill__outfile_write(&out, "first", 5), 0);
    assert_int_equal(rill__outfile_close(&out, true), 0);
    has(path, "first");
    assert_int_equal(entries(), 1);
    assert_int_equal(symlink("file", partial), 0); /* somebody's own */
    assert_int_equal(output(path, "x", true), ELOOP);
    has(path, "first");
}

/* ---- what is written with it ---------------------------------------------------------------- */

static rill_status save_model(const char *to) {
    rill_model *m = NULL;
    assert_ok(rill__model_create(3000, 1, 2, -1, &m));
    strcpy(m->solver_type, "L2R_LR");
    m->label[0] = 1;
    m->label[1] = -1;
    rill_status status = rill_model_save(m, to);
    rill_model_free(&m);
    return status;
}

static rill_status generate(const char *to, int binary) {
    rill_generate_options o = RILL_GENERATE_OPTIONS_INIT;
    o.shape = "url";
    o.samples = 100;
    o.binary = binary;
    return rill_data_generate(to, &o, NULL);
}
static rill_status generate_text(const char *to) { return generate(to, 0); }
static rill_status generate_binary(const char *to) { return generate(to, 1); }

static rill_status convert(const char *to) {
    char from[256];
    struct rlimit now;
    getrlimit(RLIMIT_FSIZE, &now);
    limit_files(0);
    assert_ok(generate(in("from", from), 0));
    setrlimit(RLIMIT_FSIZE, &now);
    rill_status status = rill_data_convert(from, to, NULL, NULL, NULL);
    unlink(from);
    return status;
}

static rill_status write_profile(const char *to) {
    static rill__profile p = {.ranks = 4, .hosts = 1, .crowding = 1, .points = 40};
    rill__constants_default(&p.constants, 1, 1, 1);
    for (int i = 0; i < p.points; i++)
        p.point[i] = (rill__point){rill__name_hash("ring"), 20, -7, 0.5f};
    return rill__profile_write(to, &p, NULL);
}

static void a_failure_leaves_the_old(void **state) {
    (void)state;
    rill_status (*const writers[])(const char *) = {save_model, generate_text, generate_binary,
                                                    convert, write_profile};
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        const char *old = i == 4 ? "rill profile 1\n" : "old";
        put(path, old);
        limit_files(1000);
        assert_fails(writers[i](path), RILL_ERR_IO, path);
        assert_non_null(strstr(rill_last_error(), strerror(EFBIG)));
        limit_files(0);
        has(path, old);
        assert_int_equal(entries(), 1);
        assert_ok(writers[i](path));
        assert_int_equal(entries(), 1);
    }
}

static void each_writes_into_a_device(void **state) {
    (void)state;
    rill_status (*const writers[])(const char *) = {save_model, generate_text, generate_binary,
                                                    convert, write_profile};
    struct stat about;
    if (!make_device(path, 3)) skip();
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        assert_ok(writers[i](path));
        assert_true(!lstat(path, &about) && S_ISCHR(about.st_mode));
        assert_int_equal(entries(), 1);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(complete_or_not_there),    CASE(rights_stay),
        CASE(links_are_followed),       CASE(what_is_no_file_stays),
        CASE(two_do_not_mix),           CASE(lines_lie_there_at_once),
        CASE(a_failure_leaves_the_old), CASE(each_writes_into_a_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
