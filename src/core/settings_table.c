/* The rows: the names of all settings, in the order in which `rill info --settings` shows them. */
#include "core/settings.h"

#include <math.h>

/* ---- what is right ------------------------------------------------------------------------ */

static const char *listed(const char *const *names, int n, int i) {
    return i >= 0 && i < n ? names[i] : NULL;
}

#define LIST(function, ...)                                                                        \
    static const char *function(int i) {                                                           \
        static const char *const names[] = {__VA_ARGS__};                                          \
        return listed(names, (int)(sizeof names / sizeof *names), i);                              \
    }
LIST(partitions, "auto", "uniform", "balanced")
LIST(scopes, "auto", "all")
LIST(learns, "auto", "on", "off", "frozen", "predict")
LIST(nonfinites, "void", "zero", "pass")
LIST(isas, "scalar", "avx2", "avx512")

static const char *algorithms(int i) {
    if (i-- == 0) return "auto";
    for (int c = 0; c <= (int)RILL_REDUCER; c++) {
        const char *name;
        for (int k = 0; (name = rill_algorithm_at((rill_collective)c, k, NULL)); k++)
            if (i-- == 0) return name;
    }
    return NULL;
}

static const char *codecs(int i) { return i == 0 ? "auto" : rill_codec_at(i - 1, NULL); }

static const char *selections(int i) {
    return i == 0 ? "auto" : i == 1 ? "nonzero" : rill_selector_at(i - 2, NULL);
}

bool rill__setting_bits(double x) { return x == 0 || x == 16 || x == 8 || x == 4 || x == 2; }

/* NaN is none of these. */
static bool share(double x) { return x == 0 || (x > 0 && x <= 1); }
static bool below_one(double x) { return x >= 0 && x < 1; }
static bool not_negative(double x) { return x >= 0; }
static bool bounded(double x) { return x >= 0 && x < INFINITY; }
static bool flag(double x) { return x == 0 || x == 1; }
static bool rows(double x) { return x >= 0 && x <= 15; }
static bool device(double x) { return x >= -1; }
static bool message(double x) { return x >= 1024 && x <= 0x1p30; } /* a header must fit */
static bool mail(double x) { return x <= 65536; }

/* ---- rows --------------------------------------------------------------------------------- */

#define PLACE(type, field)                                                                         \
    { offsetof(type, field), offsetof(type, field) + sizeof(((type *)0)->field) }
#define OPTIONS(field) .options = PLACE(rill_options, field)
#define REDUCER(field) .reducer = PLACE(rill_reducer_options, field)
#define CONFIG(field) .config = PLACE(rill_config, field)
#define COMM(field, NAME)                                                                          \
    .environment = "RILL_" NAME, .info = "rill_" #field, .comm = PLACE(rill__defaults, field)

#define BITS .holds = rill__setting_bits, .otherwise = "is none of 0, 16, 8, 4, 2"
#define FLAG RILL__S_BOOL, .holds = flag, .otherwise = "is neither 0 nor 1"
#define UNKNOWN .otherwise = "is unknown"

const rill__setting rill__setting_table[] = {
    {"algorithm", "auto", "algorithm, where the call names none", RILL__S_NAME,
     COMM(algorithm, "ALGORITHM"), OPTIONS(algorithm), REDUCER(algorithm), .names = algorithms,
     UNKNOWN},
    {"codec", "auto", "codec of indices, where the call names none", RILL__S_NAME,
     COMM(codec, "CODEC"), OPTIONS(codec), REDUCER(codec), .names = codecs, UNKNOWN},
    {"value_bits", "0", "bits per value in messages: 0 (as they are), 16, 8, 4, 2", RILL__S_INT,
     COMM(value_bits, "VALUE_BITS"), OPTIONS(value_bits), REDUCER(value_bits),
     .initial = UINT64_MAX, BITS},
    {"expected_nnz", "0", "expected non-zeros of the result; 0: not known", RILL__S_SIZE,
     COMM(expected_nnz, "EXPECTED_NNZ"), OPTIONS(expected_nnz), REDUCER(expected_nnz)},
    {"partition", "auto", "partition of the split algorithms: auto, uniform, balanced",
     RILL__S_NAME, COMM(partition, "PARTITION"), OPTIONS(partition), REDUCER(partition),
     .names = partitions, UNKNOWN},
    {"value_scope", "auto", "messages that value_bits is for: auto, all", RILL__S_NAME,
     OPTIONS(value_scope), REDUCER(value_scope), .names = scopes, UNKNOWN},
    {"block", "0", "entries of a block, where entries come in whole blocks; 0: they do not",
     RILL__S_SIZE, COMM(block, "BLOCK"), OPTIONS(block), REDUCER(block), .slot = 12},
    {"allow_bits", "0", "fewest bits per value that the planner may choose: 0 (none), 16, 8, 4, 2",
     RILL__S_INT, COMM(allow_bits, "ALLOW_BITS"), OPTIONS(allow_bits), BITS},

    {"check", "0", "1: ranks agree on all arguments before each call", FLAG, COMM(check, "CHECK"),
     CONFIG(check)},
    {"progress_thread", "0", "1: a thread advances requests while the program computes", FLAG,
     COMM(progress_thread, "PROGRESS_THREAD"), CONFIG(progress_thread)},
    {"profile", "", "profile of this machine, as rill tune writes it; none: built-in constants",
     RILL__S_PATH, COMM(profile, "PROFILE")},
    {"learn", "off",
     "what the planner learns from blocking calls: off, predict (their times), auto (unless there "
     "is "
     "a profile), on, frozen",
     RILL__S_NAME, COMM(learn, "LEARN"), CONFIG(learn), .names = learns,
     .otherwise = "is none of auto, on, off, frozen, predict"},
    {"split_limit", "1073741824", "most bytes in one MPI message", RILL__S_SIZE,
     COMM(split_limit, "SPLIT_LIMIT"), CONFIG(split_limit), .initial = RILL__SPLIT_LIMIT,
     .holds = message, .otherwise = "is not from 1024 to 1073741824"},
    {"shared_bytes", "", "of each rank at most, in memory that ranks of a host share; 0: none",
     RILL__S_SIZE, COMM(shared_bytes, "SHARED_BYTES"), .initial = UINT64_MAX},
    {"mail_bytes", "",
     "longest message that two ranks of a host exchange through shared memory; 0: none",
     RILL__S_SIZE, COMM(mail_bytes, "MAIL_BYTES"), .initial = UINT64_MAX, .holds = mail,
     .otherwise = "is more than 65536"},
    {"read_bytes", "",
     "shortest dense sum for which ranks of one host read each other's memory; 0: never",
     RILL__S_SIZE, COMM(read_bytes, "READ_BYTES"), .initial = UINT64_MAX},
    {"hosts_of", "", "hosts to pretend: 4 ranks each, a list such as 3,1,2, or cyclic:HOSTS",
     RILL__S_TEXT, COMM(hosts_of, "HOSTS_OF")},
    {"timeout_s", "0", "seconds after which a rank that does not answer counts as gone; 0: never",
     RILL__S_INT, COMM(timeout_s, "TIMEOUT_S"), CONFIG(timeout_s)},
    {"minority", "0", "1: fewer than half of the ranks may go on after a failure", FLAG,
     COMM(minority, "MINORITY"), CONFIG(minority)},
    {"isa", "", "most that is used of the instruction set: scalar, avx2, avx512", RILL__S_NAME,
     .environment = "RILL_ISA", .names = isas, .otherwise = "is none of scalar, avx2, avx512",
     .own = true},
    {"cuda_library", "", "file of librill_cuda, where it is not beside librill", RILL__S_PATH,
     .environment = "RILL_CUDA_LIBRARY", .own = true},

    {"seed", "0", "of random rounding, random selection and hashes", RILL__S_SIZE,
     COMM(seed, "SEED"), REDUCER(seed), .slot = 10},
    {"select", "", "what a reducer sends: a selection, nonzero, auto", RILL__S_NAME,
     REDUCER(select), .names = selections, UNKNOWN},
    {"density", "0.01", "share of the entries to select, where k is 0", RILL__S_REAL,
     REDUCER(density), .slot = 1, .holds = share, .otherwise = "is not in (0, 1]"},
    {"k", "0", "entries to select; 0: by density", RILL__S_SIZE, REDUCER(k), .slot = 2},
    {"average", "1", "1: the update is the mean over the ranks; 0: the sum", FLAG, REDUCER(average),
     .slot = 3},
    {"feedback", "1", "1: what is not sent is kept for later steps; 0: it is dropped", FLAG,
     REDUCER(feedback), .slot = 4},
    {"momentum", "0", "momentum correction; 0: none", RILL__S_REAL, REDUCER(momentum), .slot = 5,
     .holds = below_one, .otherwise = "is not in [0, 1)"},
    {"masking", "1", "1: momentum forgets what was sent", FLAG, REDUCER(masking), .slot = 6},
    {"clip", "0", "largest L2 norm of a gradient, times the root of the ranks; 0: any",
     RILL__S_REAL, REDUCER(clip), .slot = 7, .holds = not_negative,
     .otherwise = "is negative or NaN"},
    {"warmup", "0.25, 0.0725, 0.015, 0.004", "densities of the stages of the warm-up",
     RILL__S_REALS, REDUCER(warmup)},
    {"warmup_stages", "4", "stages of the warm-up", RILL__S_INT, REDUCER(warmup_stages), .slot = 9},
    {"warmup_steps", "0", "steps of each stage; 0: no warm-up", RILL__S_SIZE, REDUCER(warmup_steps),
     .slot = 8},
    {"bucket", "512", "select bucket: entries of a bucket", RILL__S_SIZE, REDUCER(bucket),
     .slot = 11},
    {"threads", "1", "threads of the selection", RILL__S_INT, REDUCER(threads), .own = true},
    {"threshold_interval", "32", "steps between exact thresholds", RILL__S_SIZE,
     REDUCER(threshold_interval), .slot = 13, .zero = 32},
    {"repartition_interval", "64", "oktopk, spardl: steps between partitions", RILL__S_SIZE,
     REDUCER(repartition_interval), .slot = 14, .zero = 64},
    {"balance_trigger", "4", "oktopk: largest share over the mean that is evened out", RILL__S_REAL,
     REDUCER(balance_trigger), .slot = 15, .zero = 4, .holds = not_negative,
     .otherwise = "is negative or NaN"},
    {"lambda", "0.5", "s2: cells of the sketch per entry of the union", RILL__S_REAL,
     REDUCER(lambda), .slot = 16, .zero = 0.5, .holds = bounded,
     .otherwise = "is negative or not finite"},
    {"sketch_rows", "3", "s2: rows of the sketch, up to 15", RILL__S_INT, REDUCER(sketch_rows),
     .slot = 17, .zero = 3, .holds = rows, .otherwise = "is not in 0 to 15"},
    {"nonfinite", "void", "what a NaN or an infinity does: void, zero, pass", RILL__S_NAME,
     REDUCER(nonfinite), .names = nonfinites, .otherwise = "is none of void, zero, pass"},
    {"memory", "0", "where vectors lie: 0 in the host's memory, 1 in a CUDA device's", RILL__S_INT,
     REDUCER(memory), .holds = flag, .otherwise = "is neither 0 (host) nor 1 (CUDA)", .own = true},
    {"device", "-1", "number of the device; -1: the current one, or the host", RILL__S_INT,
     REDUCER(device), .holds = device, .otherwise = "is below -1", .own = true},
};

const rill__setting *rill__setting_row(int i) {
    return i >= 0 && i < (int)(sizeof rill__setting_table / sizeof *rill__setting_table)
               ? &rill__setting_table[i]
               : NULL;
}
