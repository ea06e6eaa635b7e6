/* The command line of the tool: any words, one a line. The tool ends with one of its exit statuses;
 * with wrong usage it says so, and nothing else. What would start ranks, read or write files, or
 * need MPI, is wrapped (tests/CMakeLists.txt), and checks that what it is given makes sense. rill
 * plan is real. */
#include "../tools/report.h"
#include "../tools/tool.h"
#include "../tools/tool_mpi.h"
#include "../tools/train_config.h"
#include "fuzz.h"

#include <math.h>
#include <rill/train.h>
#include <setjmp.h>
#include <stdio.h>

int rill_tool_main(int argc, char **argv);
int __wrap_world_run(const world_job *);
bool __wrap_launch_tune_malloc(void);
void __wrap_tool_mpi_begin(tool_threads);
bool __wrap_report_read(report_data *, int words, const char *const *word);
int __real_train_config_read(int argc, char **argv, train_config *);
int __wrap_train_config_read(int argc, char **argv, train_config *);
rill_status __wrap_rill_data_generate(const char *, const rill_generate_options *,
                                      rill_generate_report *);
rill_status __wrap_rill_data_convert(const char *, const char *, const rill_convert_options *,
                                     rill_data_report *, uint64_t *);

static jmp_buf parsed; /* the words have been read, and the work would begin */

int __wrap_world_run(const world_job *job) {
    MUST(job->command && job->options && job->options->ranks >= 0 && job->ranks >= 1);
    MUST(job->run && job->argc >= 1);
    for (int i = 0; i < job->argc; i++)
        MUST(job->argv[i]);
    return EXIT_OK;
}

bool __wrap_launch_tune_malloc(void) { longjmp(parsed, 1); }

void __wrap_tool_mpi_begin(tool_threads threads) {
    (void)threads;
    longjmp(parsed, 1);
}

bool __wrap_report_read(report_data *data, int words, const char *const *word) {
    memset(data, 0, sizeof *data);
    MUST(words >= 1 && word[0] && word[words - 1]);
    tool_error("report: not in this test");
    return false;
}

int __wrap_train_config_read(int argc, char **argv, train_config *c) {
    int status = __real_train_config_read(argc, argv, c);
    if (status != EXIT_OK || c->help) return status;
    const rill_train_options *o = &c->options;
    MUST(c->file && c->where.ranks >= 0 && c->epochs >= 0 && c->checkpoint_every >= 1);
    MUST(isfinite(o->C) && isfinite(o->l2) && isfinite(o->l1) && isfinite(o->lr));
    MUST(isfinite(o->bias) && isfinite(o->decay) && isfinite(o->momentum));
    MUST(o->density >= 0 && o->density <= 1);
    MUST(o->valid_fraction >= 0 && o->valid_fraction <= 1);
    MUST(o->threads <= 256 && o->staleness >= 0 && o->staleness <= 64);
    MUST(c->hash_bits >= 0 && c->hash_bits < 32);
    return status;
}

rill_status __wrap_rill_data_generate(const char *path, const rill_generate_options *o,
                                      rill_generate_report *report) {
    MUST(path && o->shape && o->samples && report);
    return rill_error_set(RILL_ERR_IO, "not in this test");
}

rill_status __wrap_rill_data_convert(const char *in, const char *out, const rill_convert_options *o,
                                     rill_data_report *report, uint64_t *bytes) {
    MUST(in && out && o && report && bytes);
    return rill_error_set(RILL_ERR_IO, "not in this test");
}

/* Words of the input, each in memory of its own, behind "rill". Returns their number. */
static int split(const uint8_t *data, size_t size, int most, char **word) {
    int n = 0;
    word[n++] = strdup("rill");
    for (size_t at = 0; at < size && n < most; n++) {
        size_t length = 0;
        while (at + length < size && data[at + length] && data[at + length] != '\n')
            length++;
        MUST(word[n] = malloc(length + 1));
        memcpy(word[n], data + at, length);
        word[n][length] = '\0';
        at += length + 1;
    }
    word[n] = NULL;
    return n;
}

/* A word may name a file to read as a profile; one that never ends is the user's own doing. */
static bool endless(int n, char *const *word) {
    for (int i = 0; i < n; i++)
        if (strstr(word[i], "/dev") || strstr(word[i], "/proc")) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { MOST = 40 };
    char *word[MOST + 1], *argument[MOST + 1], *said = NULL, *message = NULL;
    size_t said_size = 0, message_size = 0;
    int n = split(data, size, MOST, word);
    memcpy(argument, word, sizeof word);
    fflush(NULL);
    FILE *out = open_memstream(&said, &said_size), *err = open_memstream(&message, &message_size);
    FILE *const saved_out = stdout, *const saved_err = stderr;
    MUST(out && err);
    stdout = out, stderr = err;
    volatile int status = EXIT_OK;
    if (!endless(n, word) && setjmp(parsed) == 0) status = rill_tool_main(n, argument);
    stdout = saved_out, stderr = saved_err;
    fclose(out);
    fclose(err);
    MUST(status >= EXIT_OK && status <= EXIT_USAGE);
    MUST(status != EXIT_USAGE || (message_size && !said_size));
    MUST(status != EXIT_FAILED || message_size);
    MUST(status != EXIT_OK || !message_size);
    for (int i = 0; i < n; i++)
        free(word[i]);
    free(said);
    free(message);
    return 0;
}
