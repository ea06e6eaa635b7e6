/* The planner's profile: rill_tune writes one that later communicators use, a broken one is an
 * error on all ranks, and the ways to send that are chosen with the algorithm: partition by skew,
 * bits where allowed.
 *   --seconds N   of tuning (2) */
#include "cases.h"

#include <math.h>
#include <stddef.h>
#include <unistd.h>

enum { DIM = 1 << 16, NNZ = 4096 };

static char path[256];

static void fill(rill_stream *s, uint64_t range, int stride) {
    static uint32_t idx[NNZ];
    static float val[NNZ];
    for (int i = 0; i < NNZ; i++) {
        idx[i] = (uint32_t)((uint64_t)(i * stride + check.rank) % range);
        val[i] = 1;
    }
    CHECK_OK(rill_stream_set_pairs(s, NNZ, idx, val));
}

static rill_stats sum(rill_comm *comm, const rill_stream *in, rill_stream *out,
                      const rill_options *o) {
    rill_stats s = RILL_STATS_INIT;
    CHECK_OK(rill_allreduce(comm, in, out, RILL_SUM, o));
    CHECK_OK(rill_comm_stats(comm, &s));
    check_same_on_all_ranks("the algorithm", hash_bytes(1, s.algorithm, strlen(s.algorithm)));
    check_same_on_all_ranks("the partition", hash_bytes(1, s.partition, strlen(s.partition)));
    check_same_on_all_ranks("the bits", (uint64_t)s.value_bits);
    return s;
}

/* All entries in the first owner's range: the split is even only with balanced bounds. */
static void skew_is_seen(rill_comm *comm, rill_stream *in, rill_stream *out) {
    check_case("skewed supports");
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = "split_allgather";
    fill(in, DIM, 15);
    rill_stats s = sum(comm, in, out, &o);
    s = sum(comm, in, out, &o);
    CHECK_STRING(s.partition, "uniform");
    fill(in, DIM / (unsigned)check.size, 1);
    for (int i = 0; i < 3; i++)
        s = sum(comm, in, out, &o);
    if (check.size > 2) CHECK_STRING(s.partition, "balanced");
    o.partition = "uniform";
    s = sum(comm, in, out, &o);
    CHECK_STRING(s.partition, "uniform");
}

/* Exact unless it may be otherwise; where it may, what is chosen must pay. */
static void bits_where_allowed(rill_comm *comm, rill_stream *in, rill_stream *out) {
    check_case("allow_bits");
    rill_options o = RILL_OPTIONS_INIT;
    o.algorithm = "split_allgather";
    fill(in, DIM, 15);
    rill_stats s = sum(comm, in, out, &o);
    CHECK_INT(s.value_bits, ==, 0);
    for (int bits = 16; bits >= 2; bits /= 2) {
        o.allow_bits = bits;
        s = sum(comm, in, out, &o);
        CHECK(s.value_bits == 0 || s.value_bits >= bits);
        for (uint64_t i = 0; i < rill_stream_nnz(out) && !rill_stream_is_dense(out); i++)
            CHECK(isfinite(((const float *)rill_stream_values(out))[i]));
    }
    o.allow_bits = 3;
    CHECK_INT(rill_allreduce(comm, in, out, RILL_SUM, &o), ==, RILL_ERR_ARGUMENT);
}

static void tuned(uint64_t seconds) {
    check_case("rill_tune");
    rill_comm *comm = NULL;
    rill_tune_options o = RILL_TUNE_OPTIONS_INIT;
    rill_tune_report report = RILL_TUNE_REPORT_INIT;
    o.profile = path;
    o.seconds = (double)seconds;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    rill_status status = rill_tune(comm, &o, &report);
    if (check.size == 1) {
        CHECK_INT(status, ==, RILL_ERR_ARGUMENT);
        CHECK_OK(rill_comm_free(&comm));
        return;
    }
    CHECK_OK(status);
    CHECK(report.measured >= 6 && report.median_error >= 0 && report.latency_s > 0);
    CHECK_STRING(report.profile, path);
    check_same_on_all_ranks("the rate", (uint64_t)report.bits_per_second);
    CHECK_OK(rill_comm_free(&comm));

    check_case("a communicator with the profile");
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "rill_profile", path);
    rill_config config = RILL_CONFIG_INIT;
    config.info = &info;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &comm));
    rill_stream *in = NULL, *out = NULL;
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &in));
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &out));
    fill(in, DIM, 15);
    rill_stats s = sum(comm, in, out, NULL);
    rill_plan_query q = RILL_PLAN_QUERY_INIT;
    rill_plan_row rows[32];
    int n = 0;
    q.ranks = check.size;
#ifdef SMPI_H
    q.hosts = check.size; /* as in tests/smpi/cluster.xml */
#else
    q.hosts = 1;
#endif
    q.dim = DIM;
    q.nnz = NNZ;
    q.profile = path;
    CHECK_OK(rill_plan(&q, rows, 32, &n));
    for (int i = 0; i < n; i++)
        if (rows[i].chosen && !test_link_is_ucx()) { /* rill_plan is about ranks with MPI */
            CHECK_STRING(rows[i].algorithm, s.algorithm);
            CHECK(fabs(rows[i].seconds / s.predicted_s - 1) < 1e-6);
        }
    /* A program built with an older header has shorter structs; one that sets no size is told so.
     */
    q.size = offsetof(rill_plan_query, profile);
    q.profile = "/nowhere/profile";
    CHECK_OK(rill_plan(&q, rows, 32, &n));
    q.size = 0;
    CHECK_INT(rill_plan(&q, rows, 32, &n), ==, RILL_ERR_ARGUMENT);
    CHECK(strstr(rill_last_error(), "RILL_PLAN_QUERY_INIT") != NULL);
    report.size = 0;
    CHECK_INT(rill_tune(comm, &o, &report), ==, RILL_ERR_ARGUMENT);
    report.size = offsetof(rill_tune_report, profile);
    strcpy(report.profile, "untouched");
    o.seconds = 0.2;
    CHECK_OK(rill_tune(comm, &o, &report));
    CHECK_STRING(report.profile, "untouched");
    CHECK_OK(rill_comm_free(&comm));

    check_case("a broken profile");
    MPI_Barrier(MPI_COMM_WORLD);
    if (check.rank == 0) CHECK_INT(truncate(path, 200), ==, 0);
    CHECK_INT(rill_comm_create(MPI_COMM_WORLD, &config, &comm), ==, RILL_ERR_IO);
    CHECK(strstr(rill_last_error(), path) != NULL);
    MPI_Info_set(info, "rill_profile", "/nowhere/profile");
    CHECK_INT(rill_comm_create(MPI_COMM_WORLD, &config, &comm), ==, RILL_ERR_IO);
    MPI_Info_free(&info);
    CHECK_OK(rill_stream_free(&in));
    CHECK_OK(rill_stream_free(&out));
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    const char *folder = getenv("TMPDIR");
    long id = (long)getpid();
    MPI_Bcast(&id, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/rill-tune-%ld", folder ? folder : "/tmp", id);
    tuned(check_number(argc, argv, "--seconds", 2));
    rill_comm *comm = NULL;
    rill_stream *in = NULL, *out = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &in));
    CHECK_OK(rill_stream_create(RILL_F32, DIM, &out));
    skew_is_seen(comm, in, out);
    bits_where_allowed(comm, in, out);
    CHECK_OK(rill_stream_free(&in));
    CHECK_OK(rill_stream_free(&out));
    CHECK_OK(rill_comm_free(&comm));
    if (check.rank == 0) remove(path);
    return check_finish(3);
}
