/* Saving and loading where one rank fails: everybody's error, the old file and the old state stay.
 * And outputs that are no regular files. */
#include "../support/limits.h"
#include "check.h"

#include "../support/plain_train.h"

#include <dirent.h>

enum { DIM = 2003 };

static rill_comm *comm;
static char folder[200], path[256], other[256];

/* Every process has the folder's name from rank 0. */
static void make_folder(void) {
    if (check.rank == 0) {
        const char *where = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/rill-files-XXXXXX", where && *where ? where : "/tmp");
        CHECK(mkdtemp(folder) != NULL);
    }
    MPI_Bcast(folder, sizeof folder, MPI_BYTE, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
}

/* Files there are; with remove they go. All ranks see the same. */
static int entries(int remove_them) {
    int n = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    DIR *dir = check.rank == 0 ? opendir(folder) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char name[600];
        snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
        if (e->d_name[0] == '.') continue;
        n++;
        if (remove_them) unlink(name);
    }
    if (dir) closedir(dir);
    MPI_Bcast(&n, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return n;
}

static uint64_t hash_of(const void *bytes, size_t n) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_of_file(const char *name) {
    static char bytes[1 << 18];
    FILE *f = fopen(name, "rb");
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    return hash_of(bytes, n);
}

static uint64_t run_steps(rill_reducer *r, int first, int steps) {
    static float gradient[DIM], update[DIM];
    uint64_t hash = 0;
    for (int t = first; t < first + steps; t++) {
        rng g = rng_make(check.seed + (uint64_t)t, (uint64_t)check.rank);
        for (int i = 0; i < DIM; i++)
            gradient[i] = (float)(rng_unit(&g) - 0.5);
        CHECK_OK(rill_reducer_step(r, gradient, update));
        hash = hash * 31 + hash_of(update, sizeof update);
    }
    return hash * 31 + hash_of(rill_reducer_residual(r), sizeof update);
}

static rill_reducer *make_reducer(const char *algorithm) {
    rill_reducer_options o = RILL_REDUCER_OPTIONS_INIT;
    o.algorithm = algorithm;
    o.density = 0.05;
    rill_reducer *r = NULL;
    CHECK_OK(rill_reducer_create(comm, RILL_F32, DIM, &o, &r));
    return r;
}

static void failed_save_leaves_the_file(int who) {
    check_case("a save that fails on rank %d", who);
    rill_reducer *r = make_reducer("oktopk");
    run_steps(r, 0, 3);
    CHECK_OK(rill_reducer_save(r, path));
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t before = hash_of_file(path);
    run_steps(r, 3, 1);
    if (check.rank == who) limit_files(300); /* the header alone is larger */
    CHECK_STATUS(rill_reducer_save(r, path), RILL_ERR_IO);
    if (check.rank == who) limit_files(0);
    CHECK_DETAIL(path);
    CHECK_DETAIL("File too large");
    CHECK(hash_of_file(path) == before);
    CHECK_INT(entries(0), ==, 1);
    CHECK_OK(rill_reducer_load(r, path));
    CHECK_OK(rill_reducer_save(r, other));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(hash_of_file(other) == before); /* and it loads to the bit */
    CHECK_OK(rill_reducer_free(&r));
    entries(1);
}

static void failed_load_leaves_the_reducer(const char *algorithm, int who) {
    check_case("a load of %s that fails on rank %d", algorithm, who);
    rill_reducer *r = make_reducer(algorithm), *twin = make_reducer(algorithm);
    run_steps(r, 0, 3);
    CHECK_OK(rill_reducer_save(r, path));
    CHECK_OK(rill_reducer_load(twin, path));
    CHECK(run_steps(r, 3, 2) == run_steps(twin, 3, 2));
    if (check.rank == who) limit_opening(1);
    CHECK_STATUS(rill_reducer_load(r, path), RILL_ERR_IO);
    if (check.rank == who) limit_opening(0);
    CHECK_DETAIL(path);
    CHECK(run_steps(r, 5, 3) == run_steps(twin, 5, 3));
    CHECK_OK(rill_reducer_free(&r));
    CHECK_OK(rill_reducer_free(&twin));
    entries(1);
}

/* ---- no regular files ------------------------------------------------------------------------ */

static int is_kind(const char *name, mode_t kind) {
    struct stat about;
    return lstat(name, &about) == 0 && (about.st_mode & S_IFMT) == kind;
}

static void links_and_fifos(void) {
    check_case("a link and a FIFO");
    rill_reducer *r = make_reducer("oktopk");
    run_steps(r, 0, 3);
    CHECK_OK(rill_reducer_save(r, path));
    uint64_t whole = hash_of_file(path), through = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) CHECK(unlink(path) == 0 && symlink("file", other) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(rill_reducer_save(r, other));
    CHECK(is_kind(other, S_IFLNK) && is_kind(path, S_IFREG) && hash_of_file(path) == whole);
    CHECK_OK(rill_reducer_load(r, other));
    entries(1);
    int fd = -1;
    if (check.rank == 0) {
        CHECK(mkfifo(path, 0600) == 0);
        fd = open(path, O_RDONLY | O_NONBLOCK);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(rill_reducer_save(r, path)); /* a pipe has room for all of it */
    if (check.rank == 0) {
        static char bytes[1 << 18];
        size_t n = 0;
        for (ssize_t some; (some = read(fd, bytes + n, sizeof bytes - n)) > 0;)
            n += (size_t)some;
        close(fd);
        through = hash_of(bytes, n);
    }
    MPI_Bcast(&through, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    CHECK(is_kind(path, S_IFIFO) && through == whole);
    CHECK_STATUS(rill_reducer_load(r, path), RILL_ERR_IO); /* and does not wait */
    CHECK_DETAIL("is not a regular file");
    CHECK_INT(entries(1), ==, 1);
    CHECK_OK(rill_reducer_free(&r));
}

static void devices(void) {
    check_case("devices");
    int made = 1;
    if (check.rank == 0) made = make_device(path, 3) && make_device(other, 7);
    MPI_Bcast(&made, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!made && check.rank == 0) printf("skipped: no device can be made\n");
    rill_reducer *r = make_reducer("gtopk");
    run_steps(r, 0, 2);
    if (made) {
        CHECK_OK(rill_reducer_save(r, path));
        CHECK_STATUS(rill_reducer_save(r, other), RILL_ERR_IO);
        CHECK_DETAIL("No space left");
        CHECK(is_kind(path, S_IFCHR) && is_kind(other, S_IFCHR));
        CHECK_INT(entries(0), ==, 2);
    }
    CHECK_OK(rill_reducer_free(&r));
    entries(1);
}

/* ---- trainers -------------------------------------------------------------------------------- */

static rill_dataset *make_data(void) {
    rill_dataset *set = NULL;
    if (check.rank == 0) {
        FILE *f = fopen(other, "w");
        for (int i = 0; f && i < 200; i++)
            fprintf(f, "%d %d:1 %d:0.5\n", i % 2 ? 1 : -1, 1 + i % 7, 10 + i % 3);
        CHECK(f && fclose(f) == 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(rill_dataset_load(MPI_COMM_WORLD, other, NULL, &set));
    entries(1);
    return set;
}

/* Files of a checkpoint: itself, and its reducer. */
static void trainers(const char *reducer, int who, int files) {
    check_case("a trainer with reducer %s, rank %d fails", reducer ? reducer : "-", who);
    rill_dataset *set = make_data();
    rill_train_options o = RILL_TRAIN_OPTIONS_INIT;
    o.reducer = reducer;
    o.density = 0.5;
    rill_trainer *t = NULL;
    CHECK_OK(rill_trainer_create(MPI_COMM_WORLD, set, NULL, &o, &t));
    CHECK_OK(rill_trainer_epoch(t, NULL));
    CHECK_OK(rill_trainer_save(t, path));
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t before = hash_of_file(path);
    CHECK_OK(rill_trainer_epoch(t, NULL));
    if (who == 0 || reducer) { /* else only rank 0 writes */
        if (check.rank == who) limit_files(300);
        CHECK_STATUS(rill_trainer_save(t, path), RILL_ERR_IO);
        if (check.rank == who) limit_files(0);
        CHECK_DETAIL(path);
        CHECK_INT(entries(0), ==, files);
        CHECK(hash_of_file(path) == before);
    }
    CHECK_STATUS(rill_trainer_save(t, check.rank == who ? NULL : path), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_trainer_load(t, check.rank == who ? NULL : path), RILL_ERR_ARGUMENT);
    if (check.rank == who) limit_opening(1);
    CHECK_STATUS(rill_trainer_load(t, path), RILL_ERR_IO);
    if (check.rank == who) limit_opening(0);
    CHECK_INT(rill_trainer_epochs(t), ==, 2); /* as it was, on all */
    CHECK_OK(rill_trainer_load(t, path));
    CHECK_INT(rill_trainer_epochs(t), ==, 1);
    CHECK_OK(rill_trainer_free(&t));
    CHECK_OK(rill_dataset_free(&set));
    entries(1);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
#ifdef SMPI_H
    return check_skip("SimGrid's ranks share the limits of one process");
#endif
    make_folder();
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    for (int who = 0; who < check.size; who++) {
        failed_save_leaves_the_file(who);
        failed_load_leaves_the_reducer("oktopk", who);
        failed_load_leaves_the_reducer("s2", who);
        trainers(NULL, who, 1);
        trainers("gtopk", who, 2);
    }
    links_and_fifos();
    devices();
    CHECK_OK(rill_comm_free(&comm));
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) CHECK(rmdir(folder) == 0);
    return check_finish(7);
}
