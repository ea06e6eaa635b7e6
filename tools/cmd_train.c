/* rill train: linear models on sparse data, on one rank or many.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "table.h"
#include "tool.h"
#include "tool_output.h"
#include "train_run.h"

#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int failed(const char *doing) {
    tool_error("train: %s%s%s", doing ? doing : "", doing ? ": " : "", rill_last_error());
    return EXIT_FAILED;
}

enum { MANY_FEATURES = 1 << 26 };

/* Numbers of features may be wild, such as hashes, where few are used. */
static int failed_for_memory(const train_run *run, rill_status status) {
    rill_data_view view = RILL_DATA_VIEW_INIT;
    failed(NULL);
    bool known = status == RILL_ERR_MEMORY && rill_dataset_view(run->data, &view) == RILL_OK;
    if (known && view.dim >= MANY_FEATURES && !run->hash_bits)
        tool_error("train: the largest feature is %llu, and a model has weights for all up to it; "
                   "--hash 22 makes 4 million of them",
                   (unsigned long long)view.dim);
    return EXIT_FAILED;
}

/* The data are files; those for validation are one, in memory. */
static rill_status load(const train_run *run, const char *const *paths, int n, bool stream,
                        rill_dataset **out) {
    const train_config *config = run->config;
    rill_data_options options = config->data;
    rill_model_view init = RILL_MODEL_VIEW_INIT;
    if (run->init && !run->hash_bits && rill_model_look(run->init, &init) == RILL_OK)
        options.dim = init.features;
    options.base = run->base;
    options.stream = stream;
    if (n > 1 || stream) {
        options.hash_bits = run->hash_bits;
        options.hash_seed = config->options.seed;
        options.normalize = run->normalize;
        return world_load_files(run->world, paths, n, &options, out);
    }
    rill_status status = world_dataset_load(run->world, paths[0], &options, out);
    if (status != RILL_OK) return status;
    if (run->hash_bits) status = rill_dataset_hash(*out, run->hash_bits, config->options.seed);
    if (status == RILL_OK && run->normalize) status = rill_dataset_normalize(*out);
    return world_agree(run->world, status);
}

bool train_speaks(const train_run *run) { return tool_speaks() && !run->config->quiet; }

/* How the data of a model to start from were prepared, is how these are. */
static int follow_init(train_run *run) {
    const train_config *config = run->config;
    rill_model_about about = RILL_MODEL_ABOUT_INIT;
    run->hash_bits = config->hash_bits;
    run->normalize = config->normalize;
    run->base = config->data.base;
    if (!config->init) return EXIT_OK;
    if (world_agree(run->world, rill_model_load(config->init, &run->init)) != RILL_OK)
        return failed("--init");
    rill_model_get_about(run->init, &about);
    if (!*about.loss) return EXIT_OK;
    if (config->hash_bits && config->hash_bits != about.hash_bits)
        return tool_usage("train",
                          "--hash %d: the model of --init was trained with %d bits (0: none)",
                          config->hash_bits, about.hash_bits);
    if (about.hash_bits && about.hash_seed != config->options.seed)
        return tool_usage("train", "--seed %llu: the features of --init were hashed with %llu",
                          (unsigned long long)config->options.seed,
                          (unsigned long long)about.hash_seed);
    if (config->normalize && !about.normalize)
        return tool_usage("train", "--normalize: the model of --init was trained without");
    if (run->base >= 0 && about.base >= 0 && run->base != about.base)
        return tool_usage("train", "--base %d: indices of the data of --init start at %d",
                          run->base, about.base);
    if (about.base >= 0) run->base = about.base;
    run->hash_bits = about.hash_bits;
    run->normalize = about.normalize;
    run->rows = !strcmp(about.scale, "rows");
    return EXIT_OK;
}

/* Patterns that no shell has seen stand for files, too. */
static rill_status find_files(const train_config *config, glob_t *found) {
    for (int i = 0; i < config->file_count; i++) {
        char name[2 * 4096];
        size_t at = 0;
        struct stat about;
        bool plain = !stat(config->files[i], &about); /* a star may be part of a name */
        for (const char *p = config->files[i]; *p && at < sizeof name - 4; p++) {
            bool quoted = plain && strchr("*?[", *p);
            if (quoted) name[at++] = '[';
            name[at++] = *p;
            if (quoted) name[at++] = ']';
        }
        name[at] = '\0';
        if (glob(name, GLOB_NOCHECK | GLOB_NOESCAPE | (i ? GLOB_APPEND : 0), NULL, found))
            return rill_error_set(RILL_ERR_MEMORY, "out of memory: names of files");
    }
    return RILL_OK;
}

static rill_status load_files(train_run *run) {
    glob_t found = {0};
    rill_status status = world_agree(run->world, find_files(run->config, &found));
    run->files = (int)found.gl_pathc;
    if (status == RILL_OK)
        status = load(run, (const char *const *)found.gl_pathv, run->files,
                      run->config->data.stream, &run->data);
    globfree(&found);
    if (status == RILL_OK) rill_dataset_report(run->data, &run->data_report);
    if (status != RILL_OK || !run->init) return status;
    return world_check_base(run->data, run->config->file, run->base);
}

/* Another file has the numbers of the data's features. */
static rill_status load_valid(train_run *run) {
    const char *path = run->config->valid_file;
    run->base = run->data_report.base;
    rill_status status = load(run, &path, 1, false, &run->valid);
    return status == RILL_OK ? world_check_base(run->valid, path, run->base) : status;
}

rill_status train_open(const train_run *run, const rill_train_options *options,
                       rill_trainer **trainer, rill_train_look *look, uint64_t *most_epochs) {
    const train_config *config = run->config;
    rill_train_options watched = *options;
    watched.progress = train_progress_show;
    watched.context = run->progress;
    rill_status status = world_trainer_create(run->world, run->data, run->valid, &watched, trainer);
    if (status == RILL_OK && run->init) status = rill_trainer_start(*trainer, run->init);
    if (status != RILL_OK) return status;
    rill_trainer_look(*trainer, look);
    bool to_the_optimum = !strcmp(config->options.solver, "auto") && strcmp(look->solver, "sgd");
    *most_epochs = config->epochs ? config->epochs : to_the_optimum ? 100 : 10;
    return RILL_OK;
}

static void put_number(json_t *object, const char *key, double value) {
    json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

static void log_line(train_run *run, const rill_train_report *r) {
    if (!tool_records_wanted(&run->log)) return;
    const rill_train_options *o = &run->options;
    json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:s}", "file",
                             run->config->file, "loss_name", run->look.loss, "solver",
                             run->look.solver, "reducer", o->reducer ? o->reducer : "exact",
                             "ranks", run->world->size, "epoch", (json_int_t)r->epoch, "samples",
                             (json_int_t)r->samples, "steps", (json_int_t)r->steps, "sent_bytes",
                             (json_int_t)r->sent_bytes, "memory_bytes", (json_int_t)r->memory_bytes,
                             "algorithm", r->algorithm);
    const rill_data_report *data = &run->data_report;
    json_object_set_new(line, "rows", json_integer((json_int_t)data->rows));
    json_object_set_new(line, "entries", json_integer((json_int_t)data->entries));
    json_object_set_new(line, "file_bytes", json_integer((json_int_t)data->file_bytes));
    json_object_set_new(line, "data_bytes", json_integer((json_int_t)data->memory_bytes));
    json_object_set_new(line, "mapped_bytes", json_integer((json_int_t)data->mapped_bytes));
    json_object_set_new(line, "threads", json_integer(o->threads > 1 ? o->threads : 1));
    json_object_set_new(line, "task", json_string(run->look.task));
    json_object_set_new(line, "labels", json_integer(run->look.labels));
    json_object_set_new(line, "multiclass", json_string(run->look.multiclass));
    json_object_set_new(line, "scale", json_string(run->look.scale));
    json_object_set_new(line, "intercept", json_boolean(run->look.intercept));
    put_number(line, "C", o->C);
    put_number(line, "decay", o->decay);
    put_number(line, "load_seconds", data->seconds);
    put_number(line, "loss", r->loss);
    put_number(line, "objective", r->objective);
    put_number(line, "seconds", r->seconds);
    put_number(line, "comm_seconds", r->comm_seconds);
    put_number(line, "wait_seconds", r->wait_seconds);
    put_number(line, "eval_seconds", r->eval_seconds);
    put_number(line, "elapsed_seconds", world_clock() - run->began);
    put_number(line, "samples_per_s", (double)r->samples / r->seconds);
    put_number(line, "lr", r->lr);
    put_number(line, "valid_loss", r->valid_loss);
    put_number(line, "valid_accuracy", r->valid_accuracy);
    put_number(line, "valid_auc", r->valid_auc);
    json_object_set_new(line, "commit", json_string(tool_commit()));
    tool_records_put(&run->log, line, 0);
}

/* Whether rank 0, which has said why not, could write its log; asked on all ranks, so that all
 * stop. */
static bool log_is_good(train_run *run) {
    int bad = run->log.failed;
    if (run->config->log) world_bcast(run->world, &bad, sizeof bad, 0);
    run->log.failed = bad;
    return !bad;
}

static void print_epoch(train_run *run, const rill_train_report *r) {
    log_line(run, r);
    if (!tool_speaks() || run->config->quiet) return;
    printf("epoch %3llu  loss %.6f", (unsigned long long)r->epoch, r->loss);
    if (isfinite(r->objective)) printf("  objective %.6g", r->objective);
    if (isfinite(r->valid_loss)) printf("  valid loss %.6f", r->valid_loss);
    if (isfinite(r->valid_accuracy)) printf(" acc %.2f %%", 100 * r->valid_accuracy);
    if (isfinite(r->valid_auc)) printf(" auc %.4f", r->valid_auc);
    printf("  %.0f samples/s  comm %.1f %%  %.3f MB\n", (double)r->samples / r->seconds,
           100 * r->comm_seconds / r->seconds, (double)r->sent_bytes / 1e6);
    fflush(stdout);
}

/* Whether the validation loss has not improved for so many epochs, those before a resume included.
 */
static bool is_enough(const train_run *run) {
    uint64_t most = (uint64_t)run->config->early_stop;
    return most && rill_trainer_stale_epochs(run->trainer) >= most;
}

/* On any rank. */
static bool is_interrupted(const train_run *run) {
    return world_int(run->world, train_asked_to_stop(), WORLD_MAX);
}

static rill_status train_epochs(train_run *run) {
    const train_config *config = run->config;
    rill_train_report report = RILL_TRAIN_REPORT_INIT;
    rill_status status = RILL_OK;
    if (config->resume) {
        status = rill_trainer_load(run->trainer, config->checkpoint);
        if (status != RILL_OK) return status;
    }
    run->stopped = is_enough(run);
    while (status == RILL_OK && !run->stopped &&
           rill_trainer_epochs(run->trainer) < run->most_epochs) {
        train_progress_begin(run->progress, "epoch %llu",
                             (unsigned long long)rill_trainer_epochs(run->trainer) + 1);
        status = rill_trainer_epoch(run->trainer, &report);
        train_progress_hide(run->progress);
        if (status != RILL_OK) return status;
        run->within = report.stopped;
        run->total_seconds += report.seconds;
        run->total_comm += report.comm_seconds;
        run->total_bytes += report.sent_bytes;
        if (report.memory_bytes > run->model_bytes) run->model_bytes = report.memory_bytes;
        run->epochs += !report.stopped;
        if (!report.stopped) print_epoch(run, &report);
        if (!log_is_good(run)) return RILL_OK;
        run->stopped = is_enough(run) || report.converged;
        run->interrupted = report.stopped || (!run->stopped && is_interrupted(run));
        run->stopped |= run->interrupted;
        bool last = run->stopped || report.epoch >= run->most_epochs;
        if (config->checkpoint && (last || report.epoch % config->checkpoint_every == 0))
            status = rill_trainer_save(run->trainer, config->checkpoint);
    }
    return status;
}

static void print_end(const train_run *run, double objective, double loss) {
    if (!tool_speaks() || run->config->quiet) return;
    printf("done  objective %.9g  loss %.6f  %llu epochs%s, %.3f s of training (%.3f s of it in "
           "communication), %.3f MB sent\n",
           objective, loss, (unsigned long long)run->epochs, run->stopped ? " (stopped)" : "",
           run->total_seconds, run->total_comm, (double)run->total_bytes / 1e6);
    train_print_memory(run);
}

/* What was interrupted, and how to go on. */
static int print_interrupted(const train_run *run) {
    if (!tool_speaks()) return EXIT_FAILED;
    unsigned long long epoch = (unsigned long long)rill_trainer_epochs(run->trainer) + run->within;
    fprintf(stderr, "rill: train: interrupted %s epoch %llu; ", run->within ? "in" : "after",
            epoch);
    if (!run->config->checkpoint) fprintf(stderr, "there is no --checkpoint to go on from\n");
    else {
        fprintf(stderr, "go on with: rill");
        for (int i = 0; i < run->argc; i++)
            fprintf(stderr, " %s", run->argv[i]);
        fprintf(stderr, "%s\n", run->config->resume ? "" : " --resume");
    }
    return EXIT_FAILED;
}

/* Whether files that will be written can be: said before the first epoch, not after the last. Rank
 * 0 asks; what is not a regular file is left alone. */
static bool check_outputs(const train_run *run) {
    const train_config *config = run->config;
    const char *paths[] = {config->model, config->checkpoint, config->log};
    int good = 1;
    for (int i = 0; i < 3 && tool_speaks(); i++) {
        struct stat about;
        rill__outfile out;
        if (!paths[i] || !strcmp(paths[i], "-") ||
            (!stat(paths[i], &about) && !S_ISREG(about.st_mode)))
            continue;
        int error = rill__outfile_open(paths[i], &out);
        if (!error) error = rill__outfile_close(&out, false);
        if (!error) continue;
        tool_error("train: %s: cannot be written: %s", paths[i], strerror(error));
        good = 0;
    }
    world_bcast(run->world, &good, sizeof good, 0);
    return good;
}

static rill_status write_model(const train_run *run) {
    if (!run->config->model || (!tool_speaks() && !run->config->calibrate)) return RILL_OK;
    rill_model *model = NULL;
    rill_model_about about = RILL_MODEL_ABOUT_INIT;
    rill_status status = rill_trainer_model(run->trainer, &model);
    if (status == RILL_OK) status = rill_model_get_about(model, &about);
    about.hash_bits = run->hash_bits;
    about.hash_seed = run->hash_bits ? run->config->options.seed : 0;
    about.normalize = run->normalize;
    about.base = run->data_report.base;
    about.entries = run->data_report.entries;
    about.checksum = run->checksum;
    if (status == RILL_OK) status = rill_model_set_about(model, &about);
    if (run->config->calibrate && !run->interrupted) {
        status = world_agree(run->world, status);
        if (status == RILL_OK) status = train_calibrate(run, model);
    }
    if (status == RILL_OK && tool_speaks()) status = rill_model_save(model, run->config->model);
    rill_model_free(&model);
    return status;
}

static int run_training(train_run *run) {
    const train_config *config = run->config;
    if (!check_outputs(run)) return EXIT_FAILED;
    int status = follow_init(run);
    if (status != EXIT_OK) return status;
    if (load_files(run) != RILL_OK) return failed(NULL);
    if (config->weights && world_load_weights(run->world, run->data, config->weights) != RILL_OK)
        return failed("--weights");
    if (config->valid_file && load_valid(run) != RILL_OK) return failed(NULL);
    train_print_data(run);
    train_signals();
    run->options = config->options;
    if (run->rows && config->scale_open) run->options.scale = "rows";
    if (config->folds) {
        if (train_cross_validate(run) != RILL_OK) return failed(NULL);
        if (!config->model && !config->checkpoint && !config->log) return EXIT_OK;
    }
    if (config->resume) {
        if (world_agree(run->world, train_take_choices(run)) != RILL_OK) return failed(NULL);
    } else if (config->choose_C) {
        rill_status chosen = train_choose_C(run);
        if (chosen != RILL_OK) return failed_for_memory(run, chosen);
    }
    train_give_memory_back(run);
    run->look = (rill_train_look)RILL_TRAIN_LOOK_INIT;
    rill_status opened = train_open(run, &run->options, &run->trainer, &run->look,
                                    &run->most_epochs);
    if (opened != RILL_OK) return failed_for_memory(run, opened);
    if (config->calibrate && !strcmp(run->look.task, "regress"))
        return tool_usage("train", "--calibrate: a regression has no probabilities");
    train_print_choice(run);
    if (config->model && rill_dataset_checksum(run->data, &run->checksum) != RILL_OK)
        return failed(NULL);
    world_u64(run->world, &run->checksum, 1, WORLD_SUM);
    run->log = (tool_records){.command = "train", .option = "log", .path = config->log};
    if (tool_speaks()) tool_records_open(&run->log, config->resume);
    if (!log_is_good(run)) return EXIT_FAILED;
    if (train_epochs(run) != RILL_OK) return failed(NULL);
    if (run->log.failed) return EXIT_FAILED;
    double objective, loss;
    if (rill_trainer_objective(run->trainer, &objective, &loss) != RILL_OK) return failed(NULL);
    print_end(run, objective, loss);
    int written = write_model(run) == RILL_OK;
    if (!written) failed(NULL);
    world_bcast(run->world, &written, sizeof written, 0);
    if (run->interrupted) return print_interrupted(run);
    return written ? EXIT_OK : EXIT_FAILED;
}

typedef struct context_of_run {
    const train_config *config;
    int argc;
    char **argv;
} context_of_run;

static int run_all(const tool_world *w, const void *context) {
    const context_of_run *c = context;
    train_progress progress = {.every = c->config->quiet ? 0 : c->config->progress};
    train_run run = {.world = w,
                     .config = c->config,
                     .argc = c->argc,
                     .argv = c->argv,
                     .progress = &progress,
                     .began = world_clock(),
                     .data_report = RILL_DATA_REPORT_INIT};
    int status = run_training(&run);
    rill_trainer_free(&run.trainer);
    rill_model_free(&run.init);
    rill_dataset_free(&run.data);
    rill_dataset_free(&run.valid);
    if (!tool_records_close(&run.log, status == EXIT_OK)) status = EXIT_FAILED;
    return status;
}

int cmd_train(int argc, char **argv) {
    train_config config = TRAIN_CONFIG_INIT;
    int status = train_config_read(argc, argv, &config);
    if (status != EXIT_OK) return status;
    if (config.help) {
        if (tool_speaks()) cmd_train_help(stdout);
        return EXIT_OK;
    }
    context_of_run context = {&config, argc, argv};
    return world_run(&(world_job){.command = "train",
                                  .options = &config.where,
                                  .ranks = 1,
                                  .argc = argc,
                                  .argv = argv,
                                  .tune_malloc = true,
                                  .gentle = true,
                                  .threads = TOOL_FUNNELED,
                                  .run = run_all,
                                  .context = &context});
}
