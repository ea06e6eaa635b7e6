/* Failures: one rank passes something bad or something else than the others, or all pass the same
 * bad thing. No rank hangs, the right ranks get an error that says what is wrong, and the
 * communicator can be freed.
 *   --full     every combination   --only N a fault by number, --skip MASK of numbers */
#include "runs.h"

#include <sched.h>

/* What is wrong with a call. Up to LOCAL_END the caller itself can tell; the others are differences
 * between ranks. */
typedef enum fault {
    NULL_IN,
    NULL_OUT,
    NULL_OP,
    UNKNOWN_ALGORITHM,
    UNKNOWN_CODEC,
    UNKNOWN_PARTITION,
    VALUE_BITS,
    ROOT_TOO_LARGE,
    ROOT_NEGATIVE,
    OUT_DIM,
    OUT_TYPE,
    OP_TYPES,
    LOCAL_END,
    OTHER_DIM = LOCAL_END,
    OTHER_TYPE,
    OTHER_OP,
    OTHER_ALGORITHM,
    OTHER_COLLECTIVE,
    OTHER_ROOT,
    OTHER_OPTIONS,
    FAULTS
} fault;

static const struct {
    const char *name;
    rill_status status; /* of the rank that is at fault */
    const char *detail; /* what its message has in it */
} faults[FAULTS] = {
    [NULL_IN] = {"NULL stream", RILL_ERR_ARGUMENT, "NULL"},
    [NULL_OUT] = {"NULL output", RILL_ERR_ARGUMENT, "NULL"},
    [NULL_OP] = {"NULL op", RILL_ERR_ARGUMENT, "NULL"},
    [UNKNOWN_ALGORITHM] = {"unknown algorithm", RILL_ERR_UNKNOWN, "quantum_leap"},
    [UNKNOWN_CODEC] = {"unknown codec", RILL_ERR_UNKNOWN, "morse"},
    [UNKNOWN_PARTITION] = {"unknown partition", RILL_ERR_UNKNOWN, "foo"},
    [VALUE_BITS] = {"value_bits", RILL_ERR_ARGUMENT, "3"},
    [ROOT_TOO_LARGE] = {"root too large", RILL_ERR_ARGUMENT, "99"},
    [ROOT_NEGATIVE] = {"negative root", RILL_ERR_ARGUMENT, "-7"},
    [OUT_DIM] = {"dimension of the output", RILL_ERR_ARGUMENT, "101"},
    [OUT_TYPE] = {"type of the output", RILL_ERR_ARGUMENT, "f64"},
    [OP_TYPES] = {"op without the type", RILL_ERR_UNSUPPORTED, "only_f64"},
    [OTHER_DIM] = {"another dimension", RILL_ERR_MISMATCH, ""},
    [OTHER_TYPE] = {"another type", RILL_ERR_MISMATCH, ""},
    [OTHER_OP] = {"another op", RILL_ERR_MISMATCH, ""},
    [OTHER_ALGORITHM] = {"another algorithm", RILL_ERR_MISMATCH, ""},
    [OTHER_COLLECTIVE] = {"another collective", RILL_ERR_MISMATCH, ""},
    [OTHER_ROOT] = {"another root", RILL_ERR_MISMATCH, ""},
    [OTHER_OPTIONS] = {"other options", RILL_ERR_MISMATCH, ""},
};

static rill_op *only_f64;
static int option_turn; /* which option differs: another one in each case, alike on all ranks */

static int has_root(rill_collective c) { return c == RILL_REDUCE || c == RILL_BCAST; }
static int has_op(rill_collective c) { return c != RILL_ALLGATHER && c != RILL_BCAST; }
static int algorithms_of(rill_collective c) {
    int n = 0;
    while (case_algorithm(c, n))
        n++;
    return n;
}

static int applies(fault f, rill_collective c) {
    switch (f) {
    case NULL_OUT:
    case OUT_DIM:
    case OUT_TYPE: return c != RILL_BCAST;
    case NULL_OP:
    case OP_TYPES:
    case OTHER_OP: return has_op(c);
    case ROOT_TOO_LARGE:
    case ROOT_NEGATIVE:
    case OTHER_ROOT: return has_root(c);
    case OTHER_ALGORITHM: return algorithms_of(c) > 2;
    default: return 1;
    }
}

/* An option that decides how messages are written; a turn later another one. */
static void change_option(rill_options *o, int turn) {
    switch (turn % 6) {
    case 0: o->value_bits = 8; break;
    case 1: o->codec = "elias_fano"; break;
    case 2: o->expected_nnz = 90; break;
    case 3: o->partition = "uniform"; break;
    case 4: o->allow_bits = 4; break;
    default: o->value_scope = "all"; break;
    }
}

/* One call with (or without) the fault, blocking or not; the status where it ended. */
static rill_status attempt(rill_comm *comm, rill_collective c, const char *algorithm, int root,
                           fault f, int at_fault, int blocking) {
    rill_type type = at_fault && f == OTHER_TYPE ? RILL_F64 : RILL_F32;
    uint64_t dim = at_fault && f == OTHER_DIM ? 101 : 100;
    rill_stream *in = NULL, *out = NULL;
    CHECK_OK(rill_stream_create(type, dim, &in));
    CHECK_OK(rill_stream_create(at_fault && f == OUT_TYPE ? RILL_F64 : type,
                                at_fault && f == OUT_DIM ? 101 : dim, &out));
    uint32_t idx[2] = {(uint32_t)check.rank, (uint32_t)check.rank + 40};
    double val[2];
    for (uint64_t i = 0; i < 2; i++)
        value_store(type, val, i, 1);
    CHECK_OK(rill_stream_set_pairs(in, 2, idx, val));
    rill_options o = RILL_OPTIONS_INIT;
    const rill_op *op = RILL_SUM;
    rill_stream *use_in = in, *use_out = out;
    o.algorithm = algorithm;
    if (at_fault) switch (f) {
        case NULL_IN: use_in = NULL; break;
        case NULL_OUT: use_out = NULL; break;
        case NULL_OP: op = NULL; break;
        case UNKNOWN_ALGORITHM: o.algorithm = "quantum_leap"; break;
        case UNKNOWN_CODEC: o.codec = "morse"; break;
        case UNKNOWN_PARTITION: o.partition = "foo"; break;
        case VALUE_BITS: o.value_bits = 3; break;
        case ROOT_TOO_LARGE: root = 99; break;
        case ROOT_NEGATIVE: root = -7; break;
        case OP_TYPES: op = only_f64; break;
        case OTHER_OP: op = RILL_MAX; break;
        case OTHER_ROOT: root = (root + 1) % check.size; break;
        case OTHER_OPTIONS: change_option(&o, option_turn); break;
        case OTHER_COLLECTIVE: c = (rill_collective)((c + 1) % RILL_COLLECTIVES); break;
        default: break;
        }
    if (at_fault && f == OTHER_COLLECTIVE) o.algorithm = NULL;
    if (at_fault && f == OTHER_ALGORITHM) {
        int i = 1;
        while (strcmp(case_algorithm(c, i), algorithm) == 0)
            i++;
        o.algorithm = case_algorithm(c, i);
    }
    rill_request *q = NULL;
    rill_status status = RILL_OK;
    switch (c) {
    case RILL_ALLREDUCE:
        status = blocking ? rill_allreduce(comm, use_in, use_out, op, &o)
                          : rill_iallreduce(comm, use_in, use_out, op, &o, &q);
        break;
    case RILL_REDUCE:
        status = blocking ? rill_reduce(comm, use_in, use_out, op, root, &o)
                          : rill_ireduce(comm, use_in, use_out, op, root, &o, &q);
        break;
    case RILL_REDUCE_SCATTER:
        status = blocking ? rill_reduce_scatter(comm, use_in, use_out, op, NULL, NULL, &o)
                          : rill_ireduce_scatter(comm, use_in, use_out, op, NULL, NULL, &o, &q);
        break;
    case RILL_ALLGATHER:
        status = blocking ? rill_allgather(comm, use_in, use_out, &o)
                          : rill_iallgather(comm, use_in, use_out, &o, &q);
        break;
    case RILL_BCAST:
        status = blocking ? rill_bcast(comm, use_in, root, &o)
                          : rill_ibcast(comm, use_in, root, &o, &q);
        break;
    }
    if (!blocking && status == RILL_OK) status = rill_wait(q);
    if (status < 0) CHECK(rill_last_error()[0] != '\0');
    check_valid(in);
    check_valid(out);
    char detail[512];
    snprintf(detail, sizeof detail, "%s", rill_last_error());
    if (q) CHECK_OK(rill_request_free(&q));
    rill_stream_free(&in);
    rill_stream_free(&out);
    if (status < 0 && at_fault && f < LOCAL_END) {
        CHECK_STATUS(status, faults[f].status);
        check.checks++;
        if (!strstr(detail, faults[f].detail))
            check_failed(__FILE__, __LINE__, "the detail \"%s\" lacks \"%s\"", detail,
                         faults[f].detail);
    }
    return status;
}

/* Every rank's result depends on every other's input, so that all must learn of a failure. */
static int all_depend(rill_collective c) {
    return c == RILL_ALLREDUCE || c == RILL_REDUCE_SCATTER || c == RILL_ALLGATHER;
}

static void one_fault(rill_collective c, int a, fault f, int culprit, int root, int checked,
                      int blocking) {
    rill_config config = RILL_CONFIG_INIT;
    rill_comm *comm = NULL;
    const char *algorithm = case_algorithm(c, a);
    check_case("%s %s: %s on %s%d, root %d, check %d, %s", rill_collective_name(c), algorithm,
               faults[f].name, culprit < 0 ? "all, " : "rank ", culprit, root, checked,
               blocking ? "blocking" : "non-blocking");
    config.check = checked;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, &config, &comm));
    int at_fault = culprit < 0 || check.rank == culprit;
    option_turn += f == OTHER_OPTIONS;
    /* Ranks other than the root of a reduce may pass anything as output. */
    int harmless = (f == NULL_OUT || f == OUT_DIM || f == OUT_TYPE) && c == RILL_REDUCE &&
                   (culprit < 0 ? check.rank : culprit) != root;
    if (harmless && culprit < 0) at_fault = 0;
    rill_status status = attempt(comm, c, algorithm, root, f, at_fault, blocking);
    int failed = status < 0, failures = 0, over = 0;
    MPI_Request all;
    /* A rank whose part was over before the failure showed goes on: it frees the communicator, or
     * is in other calls of rill. (One that never calls rill again can't answer the others.) */
    int free_at_once = blocking == checked;
    if (free_at_once) CHECK_OK(rill_comm_free(&comm));
    MPI_Iallreduce(&failed, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &all);
    while (!over) {
        MPI_Test(&all, &over, MPI_STATUS_IGNORE);
        if (!free_at_once) CHECK_OK(rill_progress(comm));
        if (!over) sched_yield();
    }
    if (harmless && culprit >= 0) {
        CHECK_INT(failures, ==, 0);
    } else {
        CHECK_INT(failures, >, 0);
        if (at_fault && f < LOCAL_END) CHECK_INT(status, <, 0);
        if (all_depend(c) || checked) CHECK_INT(failures, ==, check.size);
        if (c == RILL_REDUCE && check.rank == root && f < LOCAL_END) CHECK_INT(status, <, 0);
        if (checked && f >= LOCAL_END) CHECK_INT(status, ==, RILL_ERR_MISMATCH);
    }
    if (comm) CHECK_OK(rill_comm_free(&comm));
}

/* Two calls of a kind end with an agreement, the third does not; a rank that sends in another way
 * would wait for one. */
static void test_late_difference(rill_collective c, const char *algorithm, int turn) {
    check_case("%s %s: other options in the third call", rill_collective_name(c), algorithm);
    rill_comm *comm = NULL;
    CHECK_OK(rill_comm_create(MPI_COMM_WORLD, NULL, &comm));
    option_turn = turn;
    for (int call = 0; call < 3; call++) {
        int at_fault = call == 2 && check.rank == check.size - 1;
        rill_status status = attempt(comm, c, algorithm, 0, OTHER_OPTIONS, at_fault, 1);
        if (call < 2) CHECK_OK(status);
        else CHECK_INT(status, <, 0);
    }
    CHECK_OK(rill_comm_free(&comm));
}

static void walk(int full, uint64_t only, uint64_t skipped) {
    rng r = rng_make(check.seed, 7);
    for (int c = 0; c < RILL_COLLECTIVES; c++)
        for (int a = 0; case_algorithm((rill_collective)c, a); a++)
            for (int f = 0; f < FAULTS; f++)
                for (int where = -1; where < 2; where++)
                    for (int checked = 0; checked < 2; checked++) {
                        int culprit = where < 0 ? -1 : where ? check.size - 1 : 0;
                        int root = rng_below(&r, 2) ? 0 : (int)rng_below(&r, (uint64_t)check.size);
                        int blocking = (int)rng_below(&r, 2);
                        uint64_t skip = rng_below(&r, (uint64_t)check.size);
                        if (!applies((fault)f, (rill_collective)c)) continue;
                        if (f >= LOCAL_END && (check.size == 1 || culprit < 0)) continue;
                        if (where == 1 && check.size == 1) continue;
                        /* Roots that differ show in no header. */
                        if (f == OTHER_ROOT && !checked) continue;
                        if (!full && check.size > 3 && skip > 1) continue;
                        if ((only != FAULTS && (int)only != f) || skipped >> f & 1) continue;
                        one_fault((rill_collective)c, a, (fault)f, culprit, root, checked,
                                  blocking);
                    }
}

int main(int argc, char **argv) {
    check_init(&argc, &argv);
    cases_init();
    CHECK_OK(rill_op_create("only_f64", user_op_fn, NULL, USER_NEUTRAL, RILL_TYPE_BIT(RILL_F64),
                            &only_f64));
    uint64_t only = check_number(argc, argv, "--only", FAULTS);
    walk(check_argument(argc, argv, "--full") != NULL, only, check_number(argc, argv, "--skip", 0));
    static const rill_collective both[] = {RILL_ALLREDUCE, RILL_REDUCE_SCATTER};
    for (int c = 0; c < 2 && check.size > 1; c++)
        for (int a = 0; case_algorithm(both[c], a); a++)
            test_late_difference(both[c], case_algorithm(both[c], a), a + c);
    rill_op_free(&only_f64);
    return cases_finish(only == FAULTS ? 50 : 1);
}
