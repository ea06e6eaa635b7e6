#include "device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

const rill__cuda_table *cuda;
const char *cuda_path;
uint64_t (*emulate_control)(const char *what, uint64_t value, uint64_t more);

/* ---- counts --------------------------------------------------------------------------------- */

static atomic_uint passed, failed;
static char present[256] = "start";

void check_case(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(present, sizeof present, format, list);
    va_end(list);
    if (getenv("RILL_TEST_VERBOSE")) printf("%s\n", present);
}

bool check_that(bool ok, const char *file, int line, const char *text) {
    if (ok) passed++;
    else if (failed++ < 30) printf("FAILED in [%s]: %s:%d: %s\n", present, file, line, text);
    return ok;
}

bool check_status(rill_status status, const char *file, int line, const char *text) {
    if (status == RILL_OK) return check_that(true, file, line, text);
    char what[600];
    snprintf(what, sizeof what, "%s: %s: %s", text, rill_strerror(status), rill_last_error());
    return check_that(false, file, line, what);
}

int check_end(void) {
    printf("%u passed, %u failed\n", (unsigned)passed, (unsigned)failed);
    return failed != 0;
}

/* ---- ranks ---------------------------------------------------------------------------------- */

static pthread_barrier_t all;
void barrier(const rank *r) {
    (void)r;
    pthread_barrier_wait(&all);
}

typedef struct start {
    rank rank;
    void (*run)(rank *);
} start;

static void *enter(void *argument) {
    start *s = argument;
    CHECK(cuda->stream_create(&s->rank.stream) == 0);
    s->run(&s->rank);
    CHECK(cuda->stream_free(s->rank.stream) == 0);
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_free(&s->rank.comm[i]));
    return NULL;
}

void on_ranks(int size, void (*run)(rank *), const void *context) {
    rill_comm *comms[2][MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    start starts[MOST_RANKS];
    pthread_barrier_init(&all, NULL, (unsigned)size);
    for (int i = 0; i < 2; i++)
        CHECK_OK(rill_comm_create_local(size, NULL, comms[i]));
    for (int i = 0; i < size; i++) {
        starts[i] = (start){{i, size, {comms[0][i], comms[1][i]}, NULL, context}, run};
        pthread_create(&threads[i], NULL, enter, &starts[i]);
    }
    for (int i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&all);
}

/* ---- device memory -------------------------------------------------------------------------- */

void device_put(void *to, const void *from, size_t bytes) {
    CHECK(cuda->copy(to, from, bytes, NULL) == 0);
    CHECK(cuda->stream_wait(NULL) == 0);
}
void device_get(void *to, const void *from, size_t bytes) {
    CHECK(cuda->copy(to, from, bytes, NULL) == 0);
    CHECK(cuda->stream_wait(NULL) == 0);
}
void *device_new(const void *from, size_t bytes) {
    void *at = NULL;
    CHECK(cuda->allocate(bytes, &at) == 0);
    if (from) device_put(at, from, bytes);
    return at;
}
void device_free(void *at) { CHECK(cuda->release(at) == 0); }
void device_wait(void *stream) { CHECK(cuda->stream_wait(stream) == 0); }

/* ---- values --------------------------------------------------------------------------------- */

bool same_values(rill_type type, const void *a, const void *b, uint64_t n) {
    size_t size = value_size(type);
    for (uint64_t i = 0; i < n; i++) {
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0) continue;
        double x = value_load(type, a, i), y = value_load(type, b, i);
        if (isnan(x) && isnan(y)) continue;
        if (getenv("RILL_TEST_VERBOSE")) printf("at %llu: %g, %g\n", (unsigned long long)i, x, y);
        return false;
    }
    return true;
}

bool same_there(rill_type type, const void *host, const void *there, uint64_t n) {
    void *copy = malloc(n * value_size(type) + 1);
    device_get(copy, there, n * value_size(type));
    bool same = same_values(type, host, copy, n);
    free(copy);
    return same;
}

void *turned(rill_type type, const void *values, uint64_t dim, uint64_t n) {
    size_t size = value_size(type);
    char *copy = malloc(dim * size + 1);
    memcpy(copy, (const char *)values + n * size, (dim - n) * size);
    memcpy(copy + (dim - n) * size, values, n * size);
    return copy;
}

void *gradient_of(rill_type type, uint64_t dim, rng *random, bool sparse) {
    void *values = calloc(dim + 1, value_size(type));
    for (uint64_t i = 0; i < dim; i++) {
        double x = rng_unit(random) * 2 - 1;
        if (!sparse || rng_below(random, 40) == 0) value_store(type, values, i, x * x * x);
    }
    return values;
}

/* ---- main ----------------------------------------------------------------------------------- */

static bool load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n0 passed, 1 failed\n", dlerror());
        return false;
    }
    const rill__cuda_table *(*get)(void);
    *(void **)&get = dlsym(library, RILL__CUDA_SYMBOL);
    *(void **)&emulate_control = dlsym(library, "rill__emulate_control");
    cuda = get ? get() : NULL;
    if (cuda && cuda->version == RILL__CUDA_VERSION) return true;
    printf("%s has no table of this version\n0 passed, 1 failed\n", path);
    return false;
}

static const struct {
    const char *name;
    void (*run)(void);
} parts[] = {{"spaces", test_spaces},     {"selectors", test_selectors},
             {"reducers", test_reducers}, {"failures", test_failures},
             {"streams", test_streams},   {"held", test_held},
             {"devices", test_devices},   {"memory", test_memory},
             {"away", test_away}};

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2) {
        printf("usage: test_reducer_cuda LIBRARY [PART...]\n");
        return 2;
    }
    setenv("RILL_CUDA_LIBRARY", argv[1], 1);
    setenv("RILL_PROFILE", "none", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1); /* ranks that are threads share the queues */
    setenv("RILL_EMULATE_DEVICES", "2", 1);
    cuda_path = argv[1];
    if (!load(argv[1])) return 1;
    int count = 0, error = cuda->devices(&count);
    if (error || !count) {
        printf("skipped: there is no GPU (%s)\n0 passed, 0 failed\n", cuda->error_text(error));
        return 77;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool wanted = argc == 2;
        for (int j = 2; j < argc; j++)
            wanted = wanted || strcmp(argv[j], parts[i].name) == 0;
        if (!wanted) continue;
        parts[i].run();
        printf("%s: %u passed, %u failed so far\n", parts[i].name, (unsigned)passed,
               (unsigned)failed);
    }
    return check_end();
}
