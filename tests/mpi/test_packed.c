/* Dense sums of owners go as a bitmap and the values that are there, where ranks are on several
 * hosts and the sum is between the switch and nearly full: the result has the same bits as with
 * sums that go whole, and fewer bytes leave. Sums of -0.0, NaNs, entries that cancel, ranges of
 * which some are full and some nearly empty, dimensions that end within a word. */
#include "cases.h"

#include <stdbool.h>

enum { MOST = 40000, CALLS = 3 };

static const char *const algorithms[] = {"split_allgather", "dsar", "recursive_halving", "hier"};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

static uint32_t idx[MOST], got[2][MOST];
static float val[MOST];

/* Per mille of the indices that a rank has, such that the sum of all has about so many. */
static unsigned share_of(unsigned all) {
    double each = 1;
    for (int i = 0; i < 60; i++) { /* (1 - each)^P = 1 - all */
        double none = 1;
        for (int p = 0; p < check.size; p++)
            none *= 1 - each;
        each *= 1 - none > all / 1000.0 ? 0.9 : 1.06;
    }
    /* Inputs stay below the switch: what goes as bits is added to 0, and -0.0 becomes 0.0. */
    return each < 0.43 ? (unsigned)(1000 * each) : 430;
}

static uint64_t make(uint64_t dim, unsigned all, bool uneven, int round) {
    static const float odd[] = {-0.0f, 1e-41f, -1e-41f, 3.25f, -3.25f, 1, -1, NAN};
    unsigned share = share_of(all);
    rng r = rng_make(check.seed + (uint64_t)round, (uint64_t)check.rank);
    uint64_t n = 0;
    for (uint64_t i = 0; i < dim; i++) {
        unsigned mine = !uneven ? share : i < dim / 3 ? 430 : i < dim / 2 ? 5 : share;
        uint64_t bits = rng_next(&r);
        if (bits % 1000 >= mine) continue;
        idx[n] = (uint32_t)i;
        val[n++] = odd[bits >> 20 & 7];
        if (i % 97 == 0) val[n - 1] = check.rank % 2 ? 2.0f : -2.0f; /* these cancel */
    }
    return n;
}

/* The bits of the result, and the bytes that all ranks have sent in the last call. */
static uint64_t serve(rill_comm *comm, uint64_t dim, uint64_t n, const rill_options *o,
                      uint32_t *bits) {
    rill_stream *in = NULL, *out = NULL;
    rill_stats stats = RILL_STATS_INIT;
    uint64_t all = 0;
    CHECK_OK(rill_stream_create(RILL_F32, dim, &in));
    CHECK_OK(rill_stream_create(RILL_F32, dim, &out));
    CHECK_OK(rill_stream_set_pairs(in, n, idx, val));
    for (int i = 0; i < CALLS; i++) /* from the second on it is known how large sums are */
        CHECK_OK(rill_allreduce(comm, in, out, RILL_SUM, o));
    CHECK_OK(rill_comm_stats(comm, &stats));
    CHECK_OK(rill_stream_get_dense(out, bits));
    MPI_Allreduce(&stats.sent_bytes, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    rill_stream_free(&in);
    rill_stream_free(&out);
    return all;
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    static const uint64_t dims[] = {MOST, 20011, 8192, 641};
    static const unsigned fills[] = {550, 700, 820};
    rill_comm *comm = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    /* Kernels for bits are there with AVX-512 alone. */
    bool packs = check_argument(argc, argv, "--hosts") && strcmp(rill_isa(), "avx512") == 0;
    int round = 0;
    for (int a = 0; a < ALGORITHMS; a++)
        for (int d = 0; d < 4; d++)
            for (int f = 0; f < 3; f++)
                for (int uneven = 0; uneven < 2; uneven++, round++) {
                    rill_options o = RILL_OPTIONS_INIT;
                    uint64_t n = make(dims[d], fills[f], uneven, round), sent[2];
                    check_case("%s, dimension %llu, %u of 1000%s", algorithms[a],
                               (unsigned long long)dims[d], fills[f], uneven ? ", uneven" : "");
                    o.algorithm = algorithms[a];
                    o.partition = "uniform";
                    sent[0] = serve(comm, dims[d], n, &o, got[0]);
                    o.codec = "raw"; /* for all messages: sums go whole */
                    sent[1] = serve(comm, dims[d], n, &o, got[1]);
                    CHECK(memcmp(got[0], got[1], dims[d] * sizeof(float)) == 0);
                    if (packs && check.size > 2 && dims[d] == MOST && !uneven && fills[f] < 600)
                        CHECK_INT(sent[0], <, sent[1] - sent[1] / 12);
                }
    CHECK_OK(rill_comm_free(&comm));
    return check_finish(96);
}
