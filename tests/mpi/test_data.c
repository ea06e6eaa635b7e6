/* Data sets on several ranks: every line belongs to one rank, whatever the buffer, the compression
 * and the number of ranks; failures are the same on all; hashing, splits and orders. */
#include "../support/plain_train.h"
#include "check.h"

#include <math.h>
#include <sys/stat.h>

/* Of the transformations of load_made(600); change them only with the format of models. */
#define HASH_MARK 2967985452
#define SPLIT_MARK 51865

static char folder[64];

static const char *file_path(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Rank 0 writes, all wait. */
static const char *write_file(const char *name, const void *data, size_t bytes) {
    const char *path = file_path(name);
    if (check.rank == 0) {
        FILE *f = fopen(path, "wb");
        CHECK(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return path;
}

/* ---- what is loaded ------------------------------------------------------------------------- */

/* Row i of the made text: label i % 7 - 3, entries by i; lines of very different lengths. */
static uint64_t made_entries(uint64_t row) { return row % 11 == 10 ? 400 : row % 5; }
static uint64_t made_index(uint64_t row, uint64_t k) { return 1 + k * (1 + row % 13) + row % 3; }
static float made_value(uint64_t row, uint64_t k) { return (float)(row * 8 + k) / 8; }

static char *make_text(uint64_t rows, const char *newline, int last_newline, size_t *bytes) {
    char *text = malloc(rows * 64 + rows / 11 * 12000 + 4096), *p = text;
    for (uint64_t i = 0; i < rows; i++) {
        if (i % 17 == 3) p += sprintf(p, "# comment %d%s", (int)i, newline);
        if (i % 19 == 5) p += sprintf(p, "%s", newline);
        p += sprintf(p, "%d", (int)(i % 7) - 3);
        for (uint64_t k = 0; k < made_entries(i); k++)
            p += sprintf(p, " %llu:%.9g", (unsigned long long)made_index(i, k),
                         (double)made_value(i, k));
        if (i + 1 < rows || last_newline) p += sprintf(p, "%s", newline);
    }
    *bytes = (size_t)(p - text);
    return text;
}

static void check_made(rill_dataset *set, uint64_t rows) {
    rill_data_view v = RILL_DATA_VIEW_INIT;
    CHECK_OK(rill_dataset_view(set, &v));
    CHECK_INT(v.total_rows, ==, rows);
    uint64_t sum = v.rows, before = 0;
    MPI_Exscan(&sum, &before, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK_INT(sum, ==, rows);
    CHECK_INT(v.first_row, ==, check.rank ? before : 0);
    CHECK(v.index32 && !v.index64);
    for (uint64_t i = 0; i < v.rows; i++) {
        uint64_t row = v.first_row + i, n = v.row[i + 1] - v.row[i];
        if (!CHECK_INT(n, ==, made_entries(row))) return;
        CHECK_NUMBER(v.label[i], (double)(int)(row % 7) - 3);
        for (uint64_t k = 0; k < n; k++)
            if (v.index32[v.row[i] + k] != made_index(row, k) - 1 ||
                v.value[v.row[i] + k] != made_value(row, k)) {
                CHECK_INT(v.index32[v.row[i] + k], ==, made_index(row, k) - 1);
                CHECK_NUMBER(v.value[v.row[i] + k], made_value(row, k));
                return;
            }
    }
}

static void check_load(const char *path, uint64_t buffer, uint64_t rows, const char *format) {
    rill_data_options o = RILL_DATA_OPTIONS_INIT;
    rill_data_report r = RILL_DATA_REPORT_INIT;
    rill_dataset *set = NULL;
    o.read_bytes = buffer;
    if (!CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, path, &o, &set))) return;
    check_made(set, rows);
    CHECK_OK(rill_dataset_report(set, &r));
    CHECK_STRING(r.format, format);
    CHECK_INT(r.rows, ==, rows);
    CHECK_INT(r.base, ==, 1);
    CHECK(r.memory_bytes > 0 && r.peak_bytes >= r.memory_bytes && r.seconds >= 0);
    CHECK_OK(rill_dataset_free(&set));
    CHECK(set == NULL);
}

static void test_text(void) {
    static const uint64_t buffers[] = {0, 16, 100, 4096};
    static const uint64_t sizes[] = {1, 2, 3, 10, 250};
    for (int s = 0; s < 5; s++)
        for (int form = 0; form < 3; form++) {
            size_t bytes;
            char *text = make_text(sizes[s], form == 1 ? "\r\n" : "\n", form != 2, &bytes);
            const char *path = write_file("text", text, bytes);
            for (int b = 0; b < 4; b++) {
                check_case("text of %d rows, form %d, buffer %d", (int)sizes[s], form,
                           (int)buffers[b]);
                check_load(path, buffers[b], sizes[s], "text");
            }
            MPI_Barrier(MPI_COMM_WORLD);
            free(text);
        }
}

static void test_compressed(void) {
    static const struct {
        const char *command, *name, *format;
    } tools[] = {{"gzip", "text.gz", "gz"}, {"xz", "text.xz", "xz"}, {"zstd", "text.zst", "zstd"}};
    size_t bytes;
    char *text = make_text(1500, "\n", 1, &bytes);
    write_file("plain", text, bytes);
    free(text);
    for (int t = 0; t < 3; t++) {
        char command[400];
        int made = 0;
        check_case("%s", tools[t].format);
        if (check.rank == 0) { /* two members, as from cat a.gz b.gz */
            snprintf(command, sizeof command,
                     "cd '%s' && command -v %s >/dev/null && { head -c 30001 plain | %s -c; tail "
                     "-c +30002 plain | "
                     "%s -c; } > %s",
                     folder, tools[t].command, tools[t].command, tools[t].command, tools[t].name);
            made = system(command) == 0;
        }
        MPI_Bcast(&made, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (!made) {
            if (check.rank == 0) printf("skipped: there is no program %s\n", tools[t].command);
            continue;
        }
        rill_dataset *set = NULL;
        rill_status status = rill_dataset_load(MPI_COMM_WORLD, file_path(tools[t].name), NULL,
                                               &set);
        if (status == RILL_ERR_UNSUPPORTED) { /* built without the library */
            CHECK_DETAIL(tools[t].format);
            continue;
        }
        CHECK_OK(status);
        rill_dataset_free(&set);
        check_load(file_path(tools[t].name), 0, 1500, tools[t].format);
        check_load(file_path(tools[t].name), 200, 1500, tools[t].format);
        /* Cut short. */
        if (check.rank == 0) {
            snprintf(command, sizeof command, "cd '%s' && head -c -9 %s > cut", folder,
                     tools[t].name);
            CHECK(system(command) == 0);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK_STATUS(rill_dataset_load(MPI_COMM_WORLD, file_path("cut"), NULL, &set), RILL_ERR_IO);
        CHECK_DETAIL("cut");
        CHECK(set == NULL);
    }
}

static void test_binary(void) {
    static const uint64_t sizes[] = {1, 3, 250, 9000};
    for (int s = 0; s < 4; s++) {
        size_t bytes;
        char *text = make_text(sizes[s], "\n", 1, &bytes), in[128], out[128];
        snprintf(in, sizeof in, "%s", write_file("text", text, bytes));
        snprintf(out, sizeof out, "%s", file_path("binary"));
        free(text);
        check_case("binary of %d rows", (int)sizes[s]);
        rill_data_report r = RILL_DATA_REPORT_INIT;
        if (check.rank == 0) CHECK_OK(rill_data_convert(in, out, NULL, &r, NULL));
        MPI_Barrier(MPI_COMM_WORLD);
        check_load(out, 0, sizes[s], "binary");
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* ---- failures ------------------------------------------------------------------------------- */

/* The same status and text on all ranks, and the text has what is given. */
static void check_failure(const char *path, const rill_data_options *o, rill_status want,
                          const char *text) {
    rill_dataset *set = NULL;
    CHECK_STATUS(rill_dataset_load(MPI_COMM_WORLD, path, o, &set), want);
    CHECK(set == NULL);
    CHECK_DETAIL(text);
    char mine[512], first[512];
    snprintf(mine, sizeof mine, "%s", rill_last_error());
    memcpy(first, mine, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK_STRING(mine, first);
}

static void test_failures(void) {
    size_t bytes;
    char *text = make_text(300, "\n", 1, &bytes), want[64];
    for (int line = 1; line < 300; line += 37) { /* a bad line anywhere: its global number */
        check_case("a bad line %d", line);
        char *copy = malloc(bytes + 16), *p = copy;
        memcpy(copy, text, bytes);
        for (int i = 1; i < line; i++)
            p = (char *)memchr(p, '\n', bytes) + 1;
        *p = '?';
        snprintf(want, sizeof want, "bad:%d: token '?", line);
        check_failure(write_file("bad", copy, bytes), NULL, RILL_ERR_IO, want);
        MPI_Barrier(MPI_COMM_WORLD);
        free(copy);
    }
    free(text);
    check_case("failures");
    check_failure(file_path("nowhere"), NULL, RILL_ERR_IO, "nowhere");
    check_failure(write_file("empty", "", 0), NULL, RILL_ERR_IO, "is empty");
    check_failure(write_file("comments", "# x\n\n# y\n", 9), NULL, RILL_ERR_IO, "has no rows");
    check_failure("", NULL, RILL_ERR_ARGUMENT, "path");
    rill_data_options o = RILL_DATA_OPTIONS_INIT;
    o.base = 1;
    check_failure(write_file("zero", "1 1:1\n1 2:1\n1 0:1\n1 5:1\n", 24), &o, RILL_ERR_IO,
                  "zero:3:");
    o.base = 2;
    check_failure(file_path("zero"), &o, RILL_ERR_ARGUMENT, "base = 2");
    /* One rank's arguments alone. */
    o.base = check.rank == check.size - 1 ? 7 : 0;
    check_failure(file_path("zero"), &o, RILL_ERR_ARGUMENT, "base = 7");
    check_failure(write_file("torn", "RILLDATA and more that is none\n", 31), NULL, RILL_ERR_IO,
                  "torn");
}

static void test_base_and_width(void) {
    rill_data_view v = RILL_DATA_VIEW_INIT;
    rill_dataset *set = NULL;
    rill_data_options o = RILL_DATA_OPTIONS_INIT;
    check_case("base found by one rank");
    const char *path = write_file("base", "1 1:1\n1 2:1\n1 3:1\n1 9:1\n1 0:1\n", 30);
    CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, path, NULL, &set));
    CHECK_OK(rill_dataset_view(set, &v));
    CHECK_INT(v.dim, ==, 10);
    if (v.rows && v.first_row == 0) CHECK_INT(v.index32[0], ==, 1);
    rill_dataset_free(&set);
    check_case("base forced");
    path = write_file("base1", "1 1:1\n1 2:1\n1 3:1\n", 18);
    o.base = 0;
    o.dim = 50;
    CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, path, &o, &set));
    CHECK_OK(rill_dataset_view(set, &v));
    CHECK_INT(v.dim, ==, 50);
    if (v.rows && v.first_row == 0) CHECK_INT(v.index32[0], ==, 1);
    rill_dataset_free(&set);
    check_case("wide on one rank is wide on all");
    path = write_file("wide", "1 1:1\n1 2:1\n1 3:1\n1 5000000000:1\n", 33);
    CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, path, NULL, &set));
    CHECK_OK(rill_dataset_view(set, &v));
    CHECK_INT(v.dim, ==, 5000000000);
    CHECK(v.index64 && !v.index32);
    for (uint64_t i = 0; i < v.rows; i++)
        CHECK_INT(v.index64[v.row[i]], ==, v.first_row + i == 3 ? 4999999999 : v.first_row + i);
    uint64_t dropped = 0, sum = 0;
    CHECK_OK(rill_dataset_clip(set, 2, &dropped));
    MPI_Allreduce(&dropped, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK_INT(sum, ==, 2);
    CHECK_OK(rill_dataset_view(set, &v));
    CHECK(v.index32 && v.dim == 2);
    rill_dataset_free(&set);
}

/* ---- transformations ------------------------------------------------------------------------ */

static rill_dataset *load_made(uint64_t rows) {
    size_t bytes;
    char *text = make_text(rows, "\n", 1, &bytes);
    rill_dataset *set = NULL;
    CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, write_file("text", text, bytes), NULL, &set));
    free(text);
    return set;
}

/* A figure over all rows that depends neither on the number of ranks nor on their order. */
static uint64_t sum_over_ranks(uint64_t mine) {
    uint64_t sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

static void test_transformations(void) {
    check_case("hash, normalize, split, shuffle");
    rill_dataset *set = load_made(600);
    rill_data_view v = RILL_DATA_VIEW_INIT;
    if (!set) return;
    CHECK_STATUS(rill_dataset_hash(set, 33, 1), RILL_ERR_ARGUMENT);
    CHECK_OK(rill_dataset_hash(set, 10, 42));
    CHECK_OK(rill_dataset_view(set, &v));
    CHECK_INT(v.dim, ==, 1024);
    uint64_t mark = 0;
    for (uint64_t i = 0; i < v.rows; i++)
        for (uint64_t j = v.row[i]; j < v.row[i + 1]; j++) {
            CHECK(v.index32[j] < 1024 && (j == v.row[i] || v.index32[j] > v.index32[j - 1]));
            mark += (v.first_row + i + 1) * v.index32[j];
        }
    /* Fixed, so that models outlive versions, and the same for any number of ranks. */
    CHECK_INT(sum_over_ranks(mark), ==, HASH_MARK);
    CHECK_OK(rill_dataset_normalize(set));
    for (uint64_t i = 0; i < v.rows; i++) {
        double sum = 0;
        for (uint64_t j = v.row[i]; j < v.row[i + 1]; j++)
            sum += (double)v.value[j] * v.value[j];
        CHECK(sum == 0 || fabs(sum - 1) < 1e-5);
    }
    uint64_t *train = malloc((v.rows + 1) * 8), *held = malloc((v.rows + 1) * 8), n = 0, m = 0,
             rows = 0;
    CHECK_OK(rill_dataset_split(set, 0.25, 3, train, &n, held, &m));
    CHECK_INT(n + m, ==, v.rows);
    for (uint64_t i = 0; i < m; i++) {
        CHECK(rill_row_is_held_out(v.first_row + held[i], 0.25, 3));
        rows += v.first_row + held[i];
    }
    CHECK_INT(sum_over_ranks(rows), ==, SPLIT_MARK);
    uint64_t total = sum_over_ranks(m);
    CHECK(total > 110 && total < 190);
    uint64_t *again = malloc((v.rows + 1) * 8), sum = 0, moved = 0;
    memcpy(again, train, n * 8);
    CHECK_OK(rill_dataset_shuffle(set, 1, 5, train, n));
    for (uint64_t i = 0; i < n; i++)
        sum += train[i] - again[i], moved += train[i] != again[i];
    CHECK_INT(sum, ==, 0);
    if (n > 20) CHECK(moved > n / 2);
    CHECK_OK(rill_dataset_shuffle(set, 1, 5, again, n));
    CHECK(!memcmp(train, again, n * 8));
    CHECK_OK(rill_dataset_split(set, 0, 3, train, &n, NULL, NULL));
    CHECK_INT(n, ==, v.rows);
    CHECK_STATUS(rill_dataset_split(set, 1.5, 3, train, &n, held, &m), RILL_ERR_ARGUMENT);
    free(train);
    free(held);
    free(again);
    rill_dataset_free(&set);
}

static void test_arrays(void) {
    uint64_t row[] = {0, 2, 2, 3};
    uint32_t index[] = {1, 5, 7};
    float value[] = {1, 2, 3};
    double label[] = {1, -1, 1};
    rill_data_view in = RILL_DATA_VIEW_INIT, out = RILL_DATA_VIEW_INIT;
    rill_dataset *set = NULL;
    check_case("from arrays");
    in.rows = check.rank % 2 ? 0 : 3;
    in.row = row;
    in.index32 = index;
    in.value = value;
    in.label = label;
    CHECK_OK(rill_dataset_create(MPI_COMM_WORLD, &in, &set));
    CHECK_OK(rill_dataset_view(set, &out));
    CHECK_INT(out.total_rows, ==, 3 * ((check.size + 1) / 2));
    CHECK_INT(out.first_row, ==, 3 * ((check.rank + 1) / 2));
    CHECK_INT(out.dim, ==, 8);
    CHECK_INT(out.rows, ==, in.rows);
    if (in.rows) CHECK(!memcmp(out.index32, index, sizeof index) && out.value[2] == 3);
    rill_dataset_free(&set);
    index[1] = 1; /* not ascending, on the even ranks */
    CHECK_STATUS(rill_dataset_create(MPI_COMM_WORLD, &in, &set), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("row 0");
}

/* The real sets, where they are. */
static void test_real(void) {
    static const struct {
        const char *name;
        uint64_t rows, dim, entries;
    } sets[] = {{"a9a", 32561, 123, 451592},
                {"rcv1-small.train", 1000, 47236, 77739},
                {"farm-ads", 4143, 54877, 817141}};
    const char *data = getenv("RILL_DATA");
    for (int i = 0; i < 3; i++) {
        char path[512];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s.svm.xz", data ? data : "../shared/data", sets[i].name);
        check_case("%s", path);
        if (stat(path, &info)) {
            if (check.rank == 0)
                printf("skipped: there is no %s (RILL_DATA names the folder)\n", path);
            continue;
        }
        rill_dataset *set = NULL;
        rill_status status = rill_dataset_load(MPI_COMM_WORLD, path, NULL, &set);
        if (status == RILL_ERR_UNSUPPORTED) continue;
        if (!CHECK_OK(status)) continue;
        rill_data_report r = RILL_DATA_REPORT_INIT;
        rill_data_view v = RILL_DATA_VIEW_INIT;
        CHECK_OK(rill_dataset_report(set, &r));
        CHECK_OK(rill_dataset_view(set, &v));
        CHECK_INT(r.rows, ==, sets[i].rows);
        CHECK_INT(r.entries, ==, sets[i].entries);
        CHECK(v.dim <= sets[i].dim);
        rill_dataset_free(&set);
    }
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    int id = (int)getpid();
    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(folder, sizeof folder, "/tmp/rill-test-data-%d", id);
    if (check.rank == 0) CHECK(mkdir(folder, 0700) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    test_text();
    test_compressed();
    test_binary();
    test_failures();
    test_base_and_width();
    test_transformations();
    test_arrays();
    test_real();
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) {
        char command[128];
        snprintf(command, sizeof command, "rm -rf '%s'", folder);
        CHECK(system(command) == 0);
    }
    return check_finish(20);
}
