/* Many mixed collectives, some in flight together, results checked on a sample; memory stays flat.
 *   --calls N   (5,000 by default)   --check-every N   (16) */
#include "runs.h"

#define FLIGHT 8

static long resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    long total = 0, resident = 0;
    if (!f || fscanf(f, "%ld %ld", &total, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    uint64_t calls = check_number(argc, argv, "--calls", 5000);
    uint64_t every = check_number(argc, argv, "--check-every", 16);
    rill_comm *comm = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    /* Made once for each kind of call and reused: their own memory must not hide a leak. */
    enum { KINDS = 48 };
    test_run runs[KINDS];
    for (int i = 0; i < KINDS; i++) {
        rill_collective collective = (rill_collective)(i % 2 ? (i / 2) % RILL_COLLECTIVES
                                                             : RILL_ALLREDUCE);
        test_case c = run_random_case(collective, check.seed, (uint64_t)i, 4099);
        c.in_place = 0;
        case_announce(&c, i);
        runs[i] = run_make(&c);
        if (i % 3 == 2) CHECK_OK(run_call(&runs[i], comm, RUN_PERSISTENT));
    }
    rng r = rng_make(check.seed, 12345);
    long warm = 0;
    uint64_t done = 0, verified = 0, batch = 0;
    for (; done < calls; batch++) {
        /* A handful of different kinds, started in the same order on all ranks. */
        int flight = 1 + (int)rng_below(&r, FLIGHT), start = (int)rng_below(&r, KINDS);
        test_run *active[FLIGHT];
        int blocking[FLIGHT];
        for (int i = 0; i < flight; i++) {
            test_run *run = active[i] = &runs[(start + i * 5) % KINDS];
            if (i == 0) case_announce(&run->c, (long)done);
            blocking[i] = 0;
            /* A broadcast leaves its result in the input, which is the same data again. */
            if (run->request) {
                CHECK_OK(rill_start(run->request));
            } else {
                blocking[i] = rng_below(&r, 3) == 0;
                CHECK_OK(run_call(run, comm, blocking[i] ? RUN_BLOCKING : RUN_NONBLOCKING));
            }
            done++;
        }
        rill_request *requests[FLIGHT];
        for (int i = 0; i < flight; i++)
            requests[i] = blocking[i] ? NULL : active[i]->request;
        if (batch % 2) CHECK_OK(rill_waitall(flight, requests));
        else
            for (int i = flight - 1; i >= 0; i--)
                if (requests[i]) CHECK_OK(rill_wait(requests[i]));
        for (int i = 0; i < flight; i++) {
            if (batch % every == 0) run_verify(active[i]), verified++;
            if (active[i]->request && (active[i] - runs) % 3 != 2)
                CHECK_OK(rill_request_free(&active[i]->request));
        }
        if (check.failures > 0) break; /* ranks may have lost step */
        if (batch % 64 == 0 && warm == 0 && done >= calls / 4) warm = resident_bytes();
    }
    check_case("memory after %llu calls", (unsigned long long)done);
    long end = resident_bytes();
    /* Heaps settle: a leak of 16 bytes a call shows in a long run, of 1 KiB in a short one. */
    long slack = 1 << 20;
    if ((long)(done / 8) > slack) slack = (long)(done / 8);
#if defined(__SANITIZE_ADDRESS__) || defined(SMPI_H)
    slack += 256 << 20; /* the sanitizer's quarantine, the simulator's own memory */
#endif
    if (getenv("RILL_MEMCHECK")) slack += 256 << 20; /* what valgrind keeps of freed memory */
    long failed_somewhere = 0;
    if (warm) CHECK_INT(end - warm, <=, slack);
    MPI_Allreduce(&check.failures, &failed_somewhere, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    if (failed_somewhere == 0) {
        CHECK_INT(verified, >, 0);
        CHECK(warm > 0);
        for (int i = 0; i < KINDS; i++)
            run_free(&runs[i]);
        CHECK_OK(rill_comm_free(&comm));
    }
    if (check.rank == 0)
        printf("test_soak: %llu calls, %llu verified, resident %ld KiB warm, %ld KiB at the end\n",
               (unsigned long long)done, (unsigned long long)verified, warm / 1024, end / 1024);
    return cases_finish(2);
}
