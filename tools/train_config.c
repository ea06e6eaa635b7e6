/* The options of rill train.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "train_config.h"
#include "parse.h"
#include "tool.h"
#include "tool_progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void cmd_train_help(FILE *out) {
    fputs(
        "usage: rill train FILE... [OPTION...]\n"
        "\n"
        "Trains a linear model on svmlight text (also gz, xz, zstd) or on what 'rill convert'\n"
        "makes of it; several files are as one. Minimises  C sum loss + l2/2 |w|^2 + l1 |w|_1,\n"
        "with an intercept that is not penalised. What is left open is chosen from the data and\n"
        "printed. It starts its ranks itself (1), unless a launcher has.\n"
        "\n"
        "What is trained:\n"
        "  --loss L            a name from 'rill info' (logistic; squared in regression)\n"
        "  --C X               of the objective; auto: chosen from the data: the default, unless\n"
        "                      --l2, --l1, or the solver scd or newton is given; then 1\n"
        "  --l2 X, --l1 X      of the objective (1, 0)\n"
        "  --huber-delta X     of the loss huber: where squares end; default: from the targets\n"
        "  --scale S           divide each feature by its largest magnitude (max), by its "
        "standard\n"
        "                      deviation (std), by nothing (none); or each row by its length\n"
        "                      (rows); auto: chosen with C; default: auto where C is chosen, else\n"
        "                      none\n"
        "  --bias X            instead of the intercept one more feature of that value in every\n"
        "                      row, penalised as others; --no-bias: neither\n"
        "  --class-weights W   balanced, or label:weight,...\n"
        "  --weights FILE      what rows count: a number a line\n"
        "  --init MODEL        start from the weights of a model\n"
        "  --multiclass M      more than two labels: softmax (default with the logistic loss) or\n"
        "                      ovr: each against the rest\n"
        "  --task T            classify, regress or auto (default): by loss and labels\n"
        "  --normalize         scale rows to norm 1\n"
        "  --hash BITS         hash features to 2^BITS\n"
        "  --base B            index of the first feature in text: 0 or 1; default: found\n"
        "  --valid V           file, or share of the rows to hold out, such as 0.2 or 20%\n"
        "  --cv K              train K times, each on all but one of K parts, and tell mean and\n"
        "                      deviation on that part; a model of all rows only with --model,\n"
        "                      --checkpoint or --log\n"
        "  --seed N            of order, split and rounding (1)\n"
        "\n"
        "How:\n"
        "  --ranks P           ranks to start (1)\n"
        "  --link L            what carries messages: mpi (ranks by mpirun), ucx (processes that\n"
        "                      rill starts), local (threads); default: mpi if it was built with "
        "it\n"
        "  --hostfile FILE     hosts to start them on, HOST slots=N a line: by ssh, or mpirun\n"
        "  --threads N         threads of each rank; the results do not depend on it (1)\n"
        "  --solver S          a name from 'rill info'; auto (default): sgd if one of its options\n"
        "                      is given, else newton, or hybrid for large data\n"
        "  --stream            keep the rows in temporary files, so that data may be larger than\n"
        "                      memory; FILE may be - or a pipe then, of one rank\n"
        "  --window N          shuffle rows within N neighbours (all; 65536 with --stream)\n"
        "  --epochs N          passes over the data; steps of newton (10; to the optimum where "
        "the\n"
        "                      solver is chosen)\n"
        "  --early-stop N      stop when the validation loss has not fallen for N epochs\n"
        "  --optimizer O       of sgd: adagrad (default), plain, momentum\n"
        "  --momentum X        its factor (0.9)\n"
        "  --lr X              learning rate; default: 0.5 with adagrad, else from the data\n"
        "  --schedule S        1/t (default), constant, step, bold-driver\n"
        "  --decay X           1/t: lr / (1 + X epochs); default: 0.25, or 0 where C is chosen\n"
        "                      and that does better on held-out rows\n"
        "  --step-factor X, --step-epochs N   step: times X every N epochs (0.5, 5)\n"
        "  --batch N|rows|auto of a rank in a step; rows: all / 250, to 100; auto: by the network\n"
        "  --coordinates N     scd: of a rank in a step (100)\n"
        "  --tolerance X       newton: stop at that share of the first gradient (0: never)\n"
        "\n"
        "What travels:\n"
        "  --dense             whole vectors, by MPI where it is there\n"
        "  --algorithm A       of the exact sum; a name from 'rill info'\n"
        "  --codec C           of indices; a name from 'rill info'\n"
        "  --reducer R         instead of the exact sum: a reducer from 'rill info', or topk\n"
        "  --density X         share of the gradient that a reducer sends (1%)\n"
        "  --value-bits B      0 (as they are), 16, 8, 4, 2\n"
        "  --async N           sums are applied N steps later, and travel meanwhile\n"
        "  --local-steps N     average the ranks' models every N steps\n"
        "\n"
        "What comes out:\n"
        "  --model FILE        the model, in LIBLINEAR's format\n"
        "  --calibrate         probabilities for losses that have none, from 5 more trainings\n"
        "  --checkpoint FILE   written after every epoch; --checkpoint-every N: every N\n"
        "  --resume            go on from the checkpoint\n"
        "  --log FILE          one JSON object per epoch and line\n"
        "  --profile           a barrier before each exchange, to tell waiting for slower ranks\n"
        "                      from communication\n"
        "  --progress S        seconds between two lines that tell how far an epoch, or the "
        "search\n"
        "                      for C, is (10; 0: none); a terminal has a bar instead\n"
        "  --quiet             print nothing\n"
        "  -h, --help          this text\n"
        "\n"
        "Example: rill train url.svm --ranks 4 --valid 20% --normalize --model url.model\n",
        out);
}

static int usage(const char *option, const char *value, const char *wanted) {
    return tool_usage("train", "--%s: '%s' is not %s", option, value, wanted);
}

static bool parse_real(const char *text, double *value) {
    char *end;
    if (!*text || strchr(" \t\n", *text)) return false;
    *value = strtod(text, &end);
    return !*end && isfinite(*value);
}

enum {
    OPT_C = 1000,
    OPT_L2,
    OPT_L1,
    OPT_BIAS,
    OPT_LR,
    OPT_DECAY,
    OPT_FACTOR,
    OPT_MOMENTUM,
    OPT_TOLERANCE,
    OPT_EPOCHS,
    OPT_BATCH,
    OPT_STEP_EPOCHS,
    OPT_COORDINATES,
    OPT_LOCAL,
    OPT_EVERY,
    OPT_SEED,
    OPT_LOSS,
    OPT_SOLVER,
    OPT_OPTIMIZER,
    OPT_SCHEDULE,
    OPT_TASK,
    OPT_WEIGHTS,
    OPT_REDUCER,
    OPT_ALGORITHM,
    OPT_CODEC,
    OPT_EARLY,
    OPT_STREAM,
    OPT_WINDOW,
    OPT_HUBER,
    OPT_ROW_WEIGHTS,
    OPT_INIT,
    OPT_CV,
    OPT_CALIBRATE,
    OPT_HASH,
    OPT_BASE,
    OPT_BITS,
    OPT_ASYNC,
    OPT_VALID,
    OPT_DENSITY,
    OPT_DENSE,
    OPT_NORMALIZE,
    OPT_MODEL,
    OPT_CHECKPOINT,
    OPT_RESUME,
    OPT_LOG,
    OPT_QUIET,
    OPT_THREADS,
    OPT_PROFILE,
    OPT_SCALE,
    OPT_MULTICLASS,
    OPT_NO_BIAS,
    OPT_PROGRESS
};

static const struct option options[] = {{"C", 1, NULL, OPT_C},
                                        {"l2", 1, NULL, OPT_L2},
                                        {"l1", 1, NULL, OPT_L1},
                                        {"bias", 1, NULL, OPT_BIAS},
                                        {"lr", 1, NULL, OPT_LR},
                                        {"decay", 1, NULL, OPT_DECAY},
                                        {"step-factor", 1, NULL, OPT_FACTOR},
                                        {"momentum", 1, NULL, OPT_MOMENTUM},
                                        {"tolerance", 1, NULL, OPT_TOLERANCE},
                                        {"epochs", 1, NULL, OPT_EPOCHS},
                                        {"batch", 1, NULL, OPT_BATCH},
                                        {"step-epochs", 1, NULL, OPT_STEP_EPOCHS},
                                        {"coordinates", 1, NULL, OPT_COORDINATES},
                                        {"local-steps", 1, NULL, OPT_LOCAL},
                                        {"checkpoint-every", 1, NULL, OPT_EVERY},
                                        {"seed", 1, NULL, OPT_SEED},
                                        {"loss", 1, NULL, OPT_LOSS},
                                        {"solver", 1, NULL, OPT_SOLVER},
                                        {"optimizer", 1, NULL, OPT_OPTIMIZER},
                                        {"schedule", 1, NULL, OPT_SCHEDULE},
                                        {"task", 1, NULL, OPT_TASK},
                                        {"class-weights", 1, NULL, OPT_WEIGHTS},
                                        {"reducer", 1, NULL, OPT_REDUCER},
                                        {"algorithm", 1, NULL, OPT_ALGORITHM},
                                        {"codec", 1, NULL, OPT_CODEC},
                                        WORLD_OPTIONS,
                                        {"early-stop", 1, NULL, OPT_EARLY},
                                        {"hash", 1, NULL, OPT_HASH},
                                        {"base", 1, NULL, OPT_BASE},
                                        {"value-bits", 1, NULL, OPT_BITS},
                                        {"async", 1, NULL, OPT_ASYNC},
                                        {"valid", 1, NULL, OPT_VALID},
                                        {"density", 1, NULL, OPT_DENSITY},
                                        {"dense", 0, NULL, OPT_DENSE},
                                        {"normalize", 0, NULL, OPT_NORMALIZE},
                                        {"model", 1, NULL, OPT_MODEL},
                                        {"checkpoint", 1, NULL, OPT_CHECKPOINT},
                                        {"resume", 0, NULL, OPT_RESUME},
                                        {"log", 1, NULL, OPT_LOG},
                                        {"quiet", 0, NULL, OPT_QUIET},
                                        {"progress", 1, NULL, OPT_PROGRESS},
                                        {"threads", 1, NULL, OPT_THREADS},
                                        {"profile", 0, NULL, OPT_PROFILE},
                                        {"scale", 1, NULL, OPT_SCALE},
                                        {"multiclass", 1, NULL, OPT_MULTICLASS},
                                        {"no-bias", 0, NULL, OPT_NO_BIAS},
                                        {"stream", 0, NULL, OPT_STREAM},
                                        {"window", 1, NULL, OPT_WINDOW},
                                        {"huber-delta", 1, NULL, OPT_HUBER},
                                        {"weights", 1, NULL, OPT_ROW_WEIGHTS},
                                        {"init", 1, NULL, OPT_INIT},
                                        {"cv", 1, NULL, OPT_CV},
                                        {"calibrate", 0, NULL, OPT_CALIBRATE},
                                        {"help", 0, NULL, 'h'},
                                        {0}};

static const char *name_of(int option) {
    for (const struct option *o = options; o->name; o++)
        if (o->val == option) return o->name;
    return "";
}

static double *real_option(train_config *c, int option) {
    rill_train_options *o = &c->options;
    switch (option) {
    case OPT_C: return &o->C;
    case OPT_L2: return &o->l2;
    case OPT_L1: return &o->l1;
    case OPT_BIAS: return &o->bias;
    case OPT_LR: return &o->lr;
    case OPT_DECAY: return &o->decay;
    case OPT_FACTOR: return &o->step_factor;
    case OPT_MOMENTUM: return &o->momentum;
    case OPT_TOLERANCE: return &o->tolerance;
    case OPT_HUBER: return &o->huber_delta;
    case OPT_PROGRESS: return &c->progress;
    default: return NULL;
    }
}

static uint64_t *count_option(train_config *c, int option) {
    rill_train_options *o = &c->options;
    switch (option) {
    case OPT_EPOCHS: return &c->epochs;
    case OPT_BATCH: return &o->batch;
    case OPT_STEP_EPOCHS: return &o->step_epochs;
    case OPT_COORDINATES: return &o->coordinates;
    case OPT_LOCAL: return &o->local_steps;
    case OPT_WINDOW: return &o->window;
    case OPT_EVERY: return &c->checkpoint_every;
    default: return NULL;
    }
}

static const char **text_option(train_config *c, int option) {
    rill_train_options *o = &c->options;
    switch (option) {
    case OPT_LOSS: return &o->loss;
    case OPT_SOLVER: return &o->solver;
    case OPT_OPTIMIZER: return &o->optimizer;
    case OPT_SCHEDULE: return &o->schedule;
    case OPT_TASK: return &o->task;
    case OPT_WEIGHTS: return &o->class_weights;
    case OPT_REDUCER: return &o->reducer;
    case OPT_ALGORITHM: return &o->algorithm;
    case OPT_CODEC: return &o->codec;
    case OPT_SCALE: return &o->scale;
    case OPT_MULTICLASS: return &o->multiclass;
    case OPT_ROW_WEIGHTS: return &c->weights;
    case OPT_INIT: return &c->init;
    case OPT_MODEL: return &c->model;
    case OPT_CHECKPOINT: return &c->checkpoint;
    case OPT_LOG: return &c->log;
    default: return NULL;
    }
}

/* A name that the library's table has: else the data would be read first. */
static int check_name(int option, const char *value, const char *(*at)(int, const char **)) {
    enum { MOST = 32 };
    const char *names[MOST + 1] = {NULL};
    for (int i = 0; i < MOST && (names[i] = at(i, NULL)); i++)
        if (!strcmp(names[i], value)) return EXIT_OK;
    return tool_unknown("train", name_of(option), value, names);
}

static const char *sum_at(int i, const char **description) {
    return i ? rill_algorithm_at(RILL_ALLREDUCE, i - 1, description) : "auto";
}

static const char *codec_at(int i, const char **description) {
    return i ? rill_codec_at(i - 1, description) : "auto";
}

/* Names that stand in no table of the library's. */
static const struct {
    int option;
    const char *names[6];
} name_lists[] = {
    {OPT_SCALE, {"auto", "none", "max", "std", "rows", NULL}},
    {OPT_MULTICLASS, {"softmax", "ovr", NULL}},
    {OPT_TASK, {"auto", "classify", "regress", NULL}},
    {OPT_OPTIMIZER, {"plain", "momentum", "adagrad", NULL}},
    {OPT_SCHEDULE, {"constant", "1/t", "step", "bold-driver", NULL}},
    {OPT_REDUCER, {"oktopk", "gtopk", "spardl", "s2", "topk", NULL}},
};

static int check_list(int option, const char *value) {
    for (size_t i = 0; i < sizeof name_lists / sizeof *name_lists; i++) {
        if (name_lists[i].option != option) continue;
        for (const char *const *name = name_lists[i].names; *name; name++)
            if (!strcmp(*name, value)) return EXIT_OK;
        return tool_unknown("train", name_of(option), value, name_lists[i].names);
    }
    return EXIT_OK;
}

static int set_text(int option, const char *value, const char **text) {
    *text = value;
    if (option == OPT_LOSS) return check_name(option, value, rill_loss_at);
    if (option == OPT_SOLVER && strcmp(value, "auto"))
        return check_name(option, value, rill_solver_at);
    if (option == OPT_CODEC) return check_name(option, value, codec_at);
    if (option == OPT_ALGORITHM) return check_name(option, value, sum_at);
    return check_list(option, value);
}

static int set_rest(train_config *c, int option, const char *value) {
    int status;
    if (world_option("train", option, value, &c->where, &status)) return status;
    switch (option) {
    case OPT_SEED:
        if (!parse_count(value, &c->options.seed)) return usage("seed", value, "a number");
        break;
    case OPT_THREADS:
        if (!parse_int(value, 1, 256, &c->options.threads))
            return usage("threads", value, "a number of threads from 1 to 256");
        break;
    case OPT_EARLY:
        if (!parse_int(value, 1, 1000000, &c->early_stop))
            return usage("early-stop", value, "a number of epochs");
        break;
    case OPT_HASH:
        if (!parse_int(value, 1, 31, &c->hash_bits))
            return usage("hash", value, "a number of bits from 1 to 31");
        break;
    case OPT_BASE:
        if (!parse_int(value, 0, 1, &c->data.base)) return usage("base", value, "0 or 1");
        break;
    case OPT_BITS:
        if (!parse_bits(value, &c->options.value_bits))
            return usage("value-bits", value, PARSE_BITS);
        break;
    case OPT_ASYNC:
        if (!parse_int(value, 0, 64, &c->options.staleness))
            return usage("async", value, "a number of steps from 0 to 64");
        break;
    case OPT_VALID:
        if (parse_fraction(value, &c->options.valid_fraction) && c->options.valid_fraction == 1)
            return usage("valid", value, "a share that leaves rows to train on");
        if (parse_fraction(value, &c->options.valid_fraction)) break;
        if (strtod(value, NULL) > 0 && value[strspn(value, "0123456789.")] == '%')
            return usage("valid", value, "a share, such as 0.2 or 20%");
        c->valid_file = value;
        break;
    case OPT_DENSITY:
        if (!parse_fraction(value, &c->options.density) || !(c->options.density > 0))
            return usage("density", value, "a share above 0, such as 0.01 or 1%");
        c->density_given = true;
        break;
    case OPT_DENSE: c->options.algorithm = "dense"; break;
    case OPT_NORMALIZE: c->normalize = true; break;
    case OPT_RESUME: c->resume = true; break;
    case OPT_CV:
        if (!parse_int(value, 2, 1000, &c->folds))
            return usage("cv", value, "a number of parts from 2 to 1000");
        break;
    case OPT_STREAM: c->data.stream = 1; break;
    case OPT_CALIBRATE: c->calibrate = true; break;
    case OPT_QUIET: c->quiet = true; break;
    case OPT_PROFILE: c->options.profile = 1; break;
    case OPT_NO_BIAS: c->no_bias = true; break;
    case 'h': c->help = true; break;
    default: return EXIT_USAGE;
    }
    return EXIT_OK;
}

/* What only sgd does; naming it names the solver. */
static bool is_of_sgd(int option) {
    static const int all[] = {OPT_LR,       OPT_DECAY,       OPT_FACTOR, OPT_MOMENTUM,
                              OPT_BATCH,    OPT_STEP_EPOCHS, OPT_LOCAL,  OPT_OPTIMIZER,
                              OPT_SCHEDULE, OPT_REDUCER,     OPT_BITS,   OPT_ASYNC};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] == option) return true;
    return false;
}

/* What the number should have been; NULL: it is well. */
static const char *wanted_real(int option, double value) {
    switch (option) {
    case OPT_C: return value > 0 ? NULL : "auto or a number above 0";
    case OPT_FACTOR:
    case OPT_HUBER: return value > 0 ? NULL : "a number above 0";
    case OPT_MOMENTUM: return value >= 0 && value < 1 ? NULL : "a number from 0 to below 1";
    case OPT_BIAS: return NULL; /* below 0: none */
    default: return value >= 0 ? NULL : "a number of at least 0";
    }
}

static int set_option(void *context, int option, const char *value) {
    train_config *c = context;
    double *real = real_option(c, option);
    uint64_t *count = count_option(c, option);
    const char **text = text_option(c, option);
    if (option == OPT_DECAY) c->decay_given = true;
    if (option == OPT_EVERY) c->every_given = true;
    if (is_of_sgd(option)) c->sgd_meant = true;
    if (option == OPT_TASK && !strcmp(value, "auto")) return EXIT_OK;
    if (option == OPT_BATCH) {
        c->batch_by_network = !strcmp(value, "auto");
        c->options.batch = 0;
        if (c->batch_by_network || !strcmp(value, "rows")) return EXIT_OK;
    }
    if (option == OPT_C || option == OPT_L2 || option == OPT_L1) c->objective_given = true;
    if (option == OPT_C) c->choose_C = !strcmp(value, "auto");
    if (option == OPT_C && c->choose_C) return EXIT_OK;
    if (real && !parse_real(value, real)) return usage(name_of(option), value, "a number");
    const char *wanted = real ? wanted_real(option, *real) : NULL;
    if (count && (!parse_count(value, count) || !*count))
        wanted = option == OPT_BATCH ? "rows, auto or a number of at least 1"
                                     : "a number of at least 1";
    if (wanted) return usage(name_of(option), value, wanted);
    if (text) return set_text(option, value, text);
    return real || count ? EXIT_OK : set_rest(c, option, value);
}

static bool same_file(const char *a, const char *b) {
    return a && b && !strcmp(a, b) && strcmp(a, "/dev/null");
}

enum { MOST_FILES = 4096 };

int train_config_read(int argc, char **argv, train_config *c) {
    static const char *words[MOST_FILES];
    int n = 0,
        status = tool_words("train", argc, argv, options, MOST_FILES, words, &n, set_option, c);
    if (status != EXIT_OK || c->help) return status;
    if (!n) return tool_usage("train", "which file?");
    c->file = words[0];
    c->files = words;
    c->file_count = n;
    if (c->data.stream && !c->options.window) c->options.window = 65536;
    rill_train_options *o = &c->options;
    if (!o->solver) o->solver = c->sgd_meant ? "sgd" : "auto";
    /* Named solvers but sgd and hybrid are for the optimum of a given objective. */
    bool exact = !strcmp(o->solver, "scd") || !strcmp(o->solver, "newton");
    c->choose_C |= !c->objective_given && !exact;
    if (c->choose_C && !c->decay_given) o->decay = -1; /* chosen with it */
    c->scale_open = !o->scale || !strcmp(o->scale, "auto");
    if (!o->scale) o->scale = c->choose_C ? "auto" : "none";
    if (!c->choose_C && !strcmp(o->scale, "auto"))
        return tool_usage("train", "--scale auto is chosen with C: it needs --C auto");
    if (c->no_bias && o->bias >= 0) return tool_usage("train", "--bias or --no-bias?");
    c->bias_open = !c->no_bias && o->bias < 0;
    o->intercept = c->bias_open;
    bool open = !o->reducer && !o->staleness && !o->algorithm && o->value_bits <= 0 &&
                !o->optimizer && !o->local_steps && !strcmp(o->solver, "sgd");
    if (c->batch_by_network && open) o->local_steps = RILL_STEPS_AUTO;
    if (o->huber_delta != 0 && (!o->loss || strcmp(o->loss, "huber")))
        return tool_usage("train", "--huber-delta needs --loss huber");
    bool holds_out = c->valid_file || o->valid_fraction > 0;
    if (c->folds && holds_out) return tool_usage("train", "--cv or --valid?");
    if (c->folds && c->resume)
        return tool_usage("train", "--cv is over before a checkpoint: leave it out to --resume");
    if (c->calibrate && !c->model)
        return tool_usage("train", "--calibrate needs --model FILE, where probabilities are kept");
    if (c->density_given && !o->reducer)
        return tool_usage("train", "--density needs --reducer: exact sums have no share");
    if (c->every_given && !c->checkpoint)
        return tool_usage("train", "--checkpoint-every needs --checkpoint FILE");
    bool same = same_file(c->model, c->checkpoint) || same_file(c->model, c->log);
    if (same || same_file(c->checkpoint, c->log))
        return tool_usage("train", "--model, --checkpoint and --log: two of them are one file");
    if (c->resume && !c->checkpoint) return tool_usage("train", "--resume needs --checkpoint FILE");
    if (c->early_stop && !holds_out) return tool_usage("train", "--early-stop needs --valid");
    return EXIT_OK;
}
