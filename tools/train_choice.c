/* What is chosen from the data, and what is said of it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "tool.h"
#include "train_run.h"

#include <stdio.h>
#include <string.h>

rill_status train_choose(const train_run *run, rill_train_options *options, rill_C_choice *choice) {
    rill_train_options watched = *options;
    watched.progress = train_progress_show;
    watched.context = run->progress;
    train_progress_begin(run->progress, "C is chosen: trainings of rank 0");
    rill_status status = world_choose_C(run->world, run->data, &watched, choice);
    bool open = !strcmp(watched.scale, "auto") && run->init && !run->rows;
    if (status == RILL_OK && open && !strcmp(choice->scale, "rows")) {
        watched.scale = "none"; /* the weights to start from are of rows as they are */
        status = world_choose_C(run->world, run->data, &watched, choice);
    }
    train_progress_hide(run->progress);
    options->C = choice->C;
    options->decay = choice->decay;
    options->scale = choice->scale;
    options->steps = choice->steps;
    return status;
}

rill_status train_choose_C(train_run *run) {
    rill_C_choice choice = RILL_C_CHOICE_INIT;
    rill_status status = train_choose(run, &run->options, &choice);
    if (status != RILL_OK || !tool_speaks() || run->config->quiet) return status;
    if (!choice.tries && run->data_report.rows < 30) /* as the library has it */
        printf("C = 1: there are too few rows to choose it by\n");
    else if (!choice.tries) printf("C = 1: it was not chosen\n"); /* training says why */
    else {
        bool decay_tried = choice.tried_decay[choice.tries - 1] != choice.tried_decay[0];
        printf("C = %g, ", choice.C);
        if (choice.scale_loss[0] > 0) printf("scale %s, ", choice.scale);
        if (choice.steps) printf("%llu steps, ", (unsigned long long)choice.steps);
        if (decay_tried) printf("decay = %g, ", choice.decay);
        printf("chosen in %.2f s; loss on held-out rows:", choice.seconds);
        for (int i = 0; i < choice.tries; i++)
            printf(" %.5f (%g%s)", choice.loss[i], choice.tried[i],
                   decay_tried && i == choice.tries - 1 ? ", decay 0" : "");
        if (choice.scale_loss[1] > 0)
            printf("; by scale: none %.5f, max %.5f, std %.5f", choice.scale_loss[0],
                   choice.scale_loss[1], choice.scale_loss[2]);
        if (choice.rows_loss > 0)
            printf("; by scale: none %.5f, rows %.5f", choice.scale_loss[0], choice.rows_loss);
        printf("\n");
    }
    fflush(stdout);
    return status;
}

/* sgd where that was the default then. */
rill_status train_take_choices(train_run *run) {
    const train_config *config = run->config;
    rill_train_options saved = RILL_TRAIN_OPTIONS_INIT, *o = &run->options;
    rill_status status = rill_checkpoint_options(config->checkpoint, &saved);
    if (status != RILL_OK) return status;
    if (config->choose_C) {
        o->C = saved.C;
        if (o->decay < 0) o->decay = saved.decay;
        o->steps = saved.steps;
    }
    if (!strcmp(o->scale, "auto")) o->scale = saved.scale;
    if (!o->batch && o->local_steps == RILL_STEPS_AUTO) { /* as the network was then */
        o->batch = saved.batch;
        o->local_steps = saved.local_steps;
    }
    if (!o->multiclass) o->multiclass = saved.multiclass;
    if (config->bias_open) o->intercept = saved.intercept;
    if (!strcmp(o->solver, "auto") && !strcmp(saved.solver, "sgd")) o->solver = saved.solver;
    return RILL_OK;
}

void train_print_choice(const train_run *run) {
    const rill_train_look *look = &run->look;
    if (!tool_speaks() || run->config->quiet) return;
    printf("%s: ", look->task);
    if (look->labels) printf("%d labels, ", look->labels);
    printf("loss %s, ", look->loss);
    if (*look->multiclass) printf("%s, ", look->multiclass);
    printf("%s, scale %s, C = %g, solver %s",
           look->intercept   ? "intercept"
           : look->bias >= 0 ? "bias"
                             : "no bias",
           look->scale, run->options.C, look->solver);
    if (!strcmp(look->solver, "sgd") || !strcmp(look->solver, "ftrl"))
        printf(", batch %llu", (unsigned long long)look->batch);
    if (look->local_steps)
        printf(", averages every %llu steps", (unsigned long long)look->local_steps);
    printf("\n");
    bool open = !run->config->options.task && !run->config->options.loss, numbers = !look->labels;
    if (open && (numbers || look->labels > 10))
        printf("labels are taken %s; --task %s takes them %s\n",
               numbers ? "as numbers" : "for classes", numbers ? "classify" : "regress",
               numbers ? "for classes" : "as numbers");
    fflush(stdout);
}
