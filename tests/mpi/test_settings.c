/* Where settings come from: the options of a call, then MPI_Info, then rank 0's environment. */
#include "runs.h"

/* The algorithm that ran in an allreduce with these options; "" after a failure. */
static const char *ran(rill_comm *comm, const rill_options *o, rill_status *status) {
    static rill_stats stats;
    stats = (rill_stats)RILL_STATS_INIT;
    rill_stream *s = NULL;
    uint32_t idx = (uint32_t)check.rank;
    float one = 1;
    CHECK_OK(rill_stream_create(RILL_F32, 1000, &s));
    CHECK_OK(rill_stream_set_pairs(s, 1, &idx, &one));
    *status = rill_allreduce(comm, s, s, RILL_SUM, o);
    if (*status == RILL_OK) CHECK_OK(rill_comm_stats(comm, &stats));
    rill_stream_free(&s);
    return *status == RILL_OK ? stats.algorithm : "";
}

static void expect_algorithm(MPI_Comm mpi, MPI_Info info, const char *option, const char *want) {
    rill_config config = RILL_CONFIG_INIT;
    rill_options o = RILL_OPTIONS_INIT;
    rill_comm *comm = NULL;
    rill_status status;
    config.info = &info;
    o.algorithm = option;
    if (!CHECK_OK(rill_comm_create(mpi, &config, &comm))) return;
    CHECK_STRING(ran(comm, &o, &status), want);
    CHECK_OK(status);
    if (!option) CHECK_STRING(ran(comm, NULL, &status), want);
    CHECK_OK(rill_comm_free(&comm));
}

static void precedence(void) {
    MPI_Info info, own;
    MPI_Comm named;
    char back[64] = "";
    int flag = 0;
    MPI_Info_create(&info);
    MPI_Info_set(info, "rill_algorithm", "allgather");
    MPI_Info_create(&own);
    MPI_Info_set(own, "rill_algorithm", "split_allgather");
    MPI_Comm_dup(MPI_COMM_WORLD, &named);
    MPI_Comm_set_info(named, own);
    MPI_Info kept;
    MPI_Comm_get_info(named, &kept);
    MPI_Info_get(kept, "rill_algorithm", 63, back, &flag);
    MPI_Info_free(&kept);

    check_case("environment of rank 0");
    setenv("RILL_ALGORITHM", check.rank == 0 ? "ring" : "dsar", 1);
    expect_algorithm(MPI_COMM_WORLD, MPI_INFO_NULL, NULL, "ring");
    check_case("info over environment");
    expect_algorithm(MPI_COMM_WORLD, info, NULL, "allgather");
    check_case("option over info");
    expect_algorithm(MPI_COMM_WORLD, info, "recursive_double", "recursive_double");
    check_case("option over environment");
    expect_algorithm(MPI_COMM_WORLD, MPI_INFO_NULL, "recursive_double", "recursive_double");
    if (flag) { /* not every MPI keeps keys that it doesn't know */
        check_case("the communicator's own info");
        expect_algorithm(named, MPI_INFO_NULL, NULL, "split_allgather");
        check_case("info over the communicator's own");
        expect_algorithm(named, info, NULL, "allgather");
    }
    check_case("an environment of another rank");
    if (check.rank == 0) unsetenv("RILL_ALGORITHM");
    rill_comm *comm = NULL;
    rill_status status;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    const char *name = ran(comm, NULL, &status);
    CHECK_OK(status);
    check_same_on_all_ranks("the algorithm", hash_bytes(0, name, strlen(name)));
    CHECK_OK(rill_comm_free(&comm));
    unsetenv("RILL_ALGORITHM");
    MPI_Info_free(&info);
    MPI_Info_free(&own);
    MPI_Comm_free(&named);
}

/* A bad setting is an error, at creation or at the first call, that names it. */
static void bad_setting_says(const char *key, const char *value, const char *detail,
                             int from_environment) {
    char upper[64];
    size_t n = 0;
    for (; key[n] && n < 63; n++)
        upper[n] = key[n] >= 'a' && key[n] <= 'z' ? key[n] - 32 : key[n];
    upper[n] = 0;
    check_case("%s=%s from %s", key, value, from_environment ? "the environment" : "info");
    rill_config config = RILL_CONFIG_INIT;
    MPI_Info info = MPI_INFO_NULL;
    rill_comm *comm = NULL;
    if (from_environment) {
        if (check.rank == 0) setenv(upper, value, 1);
    } else {
        MPI_Info_create(&info);
        config.info = &info;
        MPI_Info_set(info, key, value);
    }
    rill_status status = rill_comm_create(MPI_COMM_WORLD, &config, &comm);
    if (status == RILL_OK) ran(comm, NULL, &status);
    CHECK_INT(status, <, 0);
    if (status < 0) CHECK_DETAIL(detail);
    if (comm) CHECK_OK(rill_comm_free(&comm));
    if (from_environment) unsetenv(upper);
    else MPI_Info_free(&info);
}

static void bad_setting(const char *key, const char *value, int from_environment) {
    bad_setting_says(key, value, value, from_environment);
}

/* Under RILL_CHECK=1 the ranks agree on the arguments first, which takes rounds; else headers show
 * a difference. */
static void check_setting(void) {
    uint64_t checked = 0; /* rounds of a call whose arguments are agreed on first */
    for (int way = 0; way < 4; way++) {
        check_case("check by %s", way == 0   ? "config"
                                  : way == 1 ? "info"
                                  : way == 2 ? "environment"
                                             : "environment, off by config");
        rill_config config = RILL_CONFIG_INIT;
        MPI_Info info = MPI_INFO_NULL;
        rill_options o = RILL_OPTIONS_INIT;
        rill_comm *comm = NULL;
        rill_status status;
        if (way == 0) config.check = 1;
        if (way == 3) config.check = 0;
        if (way == 1) {
            MPI_Info_create(&info);
            config.info = &info;
            MPI_Info_set(info, "rill_check", "1");
        }
        if (way >= 2 && check.rank == 0) setenv("RILL_CHECK", "1", 1);
        CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &comm));
        o.algorithm = "recursive_double";
        ran(comm, &o, &status);
        rill_stats stats = RILL_STATS_INIT;
        CHECK_OK(rill_comm_stats(comm, &stats));
        if (way == 0) checked = stats.rounds;
        else if (way < 3) CHECK_INT(stats.rounds, ==, checked);
        else if (check.size > 1) CHECK_INT(stats.rounds, <, checked);
        o.expected_nnz = check.rank == 0 ? 10 : 20;
        ran(comm, &o, &status);
        if (check.size > 1) CHECK_STATUS(status, RILL_ERR_MISMATCH);
        CHECK_OK(rill_comm_free(&comm));
        if (way == 1) MPI_Info_free(&info);
        unsetenv("RILL_CHECK");
    }
    /* Agreed arguments pass. */
    check_case("check, agreed");
    rill_config config = RILL_CONFIG_INIT;
    rill_comm *comm = NULL;
    config.check = 1;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &comm));
    for (int c = 0; c < RILL_COLLECTIVES; c++)
        for (int a = 0; case_algorithm((rill_collective)c, a); a++) {
            test_case k = run_random_case((rill_collective)c, check.seed, (uint64_t)a, 1000);
            k.algorithm = case_algorithm((rill_collective)c, a);
            if (run_is_unsupported(&k)) k.op = OP_SUM;
            case_announce(&k, a);
            test_run run = run_make(&k);
            if (check_all_ok(run_call(&run, comm, RUN_BLOCKING))) run_verify(&run);
            run_free(&run);
        }
    CHECK_OK(rill_comm_free(&comm));
}

static void bad_communicators(void) {
    check_case("bad arguments of rill_comm_*");
    rill_comm *comm = NULL;
    CHECK_STATUS(rill_comm_create(MPI_COMM_NULL, NULL, &comm), RILL_ERR_ARGUMENT);
    CHECK(comm == NULL);
    CHECK_STATUS(rill_comm_create(MPI_COMM_WORLD, NULL, NULL), RILL_ERR_ARGUMENT);
    CHECK_OK(rill_comm_free(&comm));
    CHECK_OK(rill_comm_free(NULL));
    rill_stats stats = RILL_STATS_INIT;
    CHECK_STATUS(rill_comm_stats(NULL, &stats), RILL_ERR_ARGUMENT);
    CHECK_STATUS(rill_allreduce(NULL, NULL, NULL, RILL_SUM, NULL), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("NULL");
    /* A newer caller's structs are longer: what is behind ours stays as it is. */
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    struct {
        rill_stats known;
        uint64_t guard;
    } longer = {RILL_STATS_INIT, UINT64_C(0x1234567890ABCDEF)};
    struct {
        rill_options known;
        const char *later;
    } options = {RILL_OPTIONS_INIT, "later"};
    longer.known.size = sizeof longer;
    options.known.size = sizeof options;
    options.known.algorithm = "ring";
    rill_status status;
    CHECK_STRING(ran(comm, &options.known, &status), "ring");
    CHECK_OK(status);
    CHECK_OK(rill_comm_stats(comm, &longer.known));
    CHECK(longer.guard == UINT64_C(0x1234567890ABCDEF));
    CHECK_STRING(longer.known.algorithm, "ring");
    CHECK_OK(rill_comm_stats(comm, &stats));
    CHECK_INT(longer.known.sent_bytes, ==, stats.sent_bytes);
    /* Without a size nothing of it could be seen. */
    rill_options unsized = {.algorithm = "ring"};
    ran(comm, &unsized, &status);
    CHECK_STATUS(status, RILL_ERR_ARGUMENT);
    CHECK_DETAIL("options.size 0: use RILL_OPTIONS_INIT");
    CHECK_OK(rill_comm_free(&comm));
}

static void flag_of_config(void) {
    check_case("check = 7 in rill_config");
    rill_config config = RILL_CONFIG_INIT;
    rill_comm *comm = NULL;
    config.check = 7;
    CHECK_STATUS(rill_comm_create(MPI_COMM_WORLD, &config, &comm), RILL_ERR_ARGUMENT);
    CHECK_DETAIL("setting check = 7 is neither 0 nor 1");
    CHECK(comm == NULL);
}

/* Each rank has its own; nobody waits for the one that has a wrong one. */
static void unknown_instruction_set(void) {
    int last = check.size - 1;
    check_case("RILL_ISA=foo on the last rank");
    rill_comm *comm = NULL;
    char was[32] = "";
    const char *before = getenv("RILL_ISA");
    if (before) snprintf(was, sizeof was, "%s", before);
    if (check.rank == last) setenv("RILL_ISA", "foo", 1);
    CHECK_STATUS(rill_comm_create(MPI_COMM_WORLD, NULL, &comm), RILL_ERR_UNKNOWN);
    CHECK_DETAIL(check.rank == last
                     ? "rill_comm_create: setting isa = 'foo' is none of scalar, avx2, avx512"
                     : "another rank failed");
    CHECK(comm == NULL);
    if (*was) setenv("RILL_ISA", was, 1);
    else unsetenv("RILL_ISA");
}

/* Without MPI_THREAD_MULTIPLE a progress thread is refused on all ranks, whatever asked for it. */
static void no_thread(void) {
    int level;
    MPI_Query_thread(&level);
    if (level == MPI_THREAD_MULTIPLE) return;
    for (int way = 0; way < 3; way++) {
        check_case("a progress thread, asked for by %s", way == 0   ? "config"
                                                         : way == 1 ? "info"
                                                                    : "the environment of rank 0");
        rill_config config = RILL_CONFIG_INIT;
        MPI_Info info = MPI_INFO_NULL;
        rill_comm *comm = NULL;
        if (way == 0) config.progress_thread = 1;
        if (way == 1) {
            MPI_Info_create(&info);
            config.info = &info;
            MPI_Info_set(info, "rill_progress_thread", "1");
        }
        if (way == 2 && check.rank == 0) setenv("RILL_PROGRESS_THREAD", "1", 1);
        CHECK_STATUS(rill_comm_create(MPI_COMM_WORLD, &config, &comm), RILL_ERR_UNSUPPORTED);
        CHECK_DETAIL("progress_thread");
        CHECK_DETAIL("MPI_THREAD_MULTIPLE");
        CHECK(comm == NULL);
        unsetenv("RILL_PROGRESS_THREAD");
        if (way == 1) MPI_Info_free(&info);
    }
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
#ifdef SMPI_H
    return check_skip("simulated ranks share one environment");
#endif
    precedence();
    for (int env = 0; env < 2; env++) {
        bad_setting("rill_algorithm", "quantum_leap", env);
        bad_setting("rill_codec", "morse", env);
        bad_setting("rill_partition", "foo", env);
        bad_setting("rill_value_bits", "3", env);
        bad_setting("rill_check", "perhaps", env);
        bad_setting_says("rill_check", "7", "setting check = 7 is neither 0 nor 1", env);
        bad_setting_says("rill_minority", "4294967296", "setting minority", env);
        bad_setting("rill_split_limit", "many", env);
        bad_setting("rill_shared_bytes", "some", env);
        bad_setting("rill_mail_bytes", "65537", env);
        bad_setting("rill_hosts_of", "3,0", env);
        bad_setting("rill_hosts_of", "cyclic:", env);
        bad_setting("rill_hosts_of", "2,", env);
        bad_setting("rill_progress_thread", "soon", env);
        bad_setting("rill_seed", "+5", env);
        bad_setting_says("rill_seed", " -5", "setting seed", env);
        /* Cut off, these would mean something else. */
        bad_setting_says("rill_block",
                         "000000000000000000000000000000000000000000000000000000000000000000000016",
                         "setting block is longer than 63 bytes", env);
        bad_setting_says("rill_hosts_of", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2",
                         "setting hosts_of is longer than 47 bytes", env);
    }
    flag_of_config();
    unknown_instruction_set();
    check_setting();
    no_thread();
    bad_communicators();
    return cases_finish(20);
}
