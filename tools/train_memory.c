/* What rill train says of its data, and of its memory.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "table.h"
#include "tool.h"
#include "train_run.h"

#include <sys/resource.h>
#if defined(__GLIBC__) && !defined(RILL_TOOL_SMPI) /* SimGrid makes malloc a macro */
#include <malloc.h>
#endif

enum { LARGE_DATA = 1 << 24, LARGE_BLOCK = 1 << 20 }; /* bytes */

/* What the search for C has freed would stay beside the vectors of the training. Of small data it
 * may: memory that was used before is faster (launch.h). */
void train_give_memory_back(const train_run *run) {
#if defined(__GLIBC__) && !defined(RILL_TOOL_SMPI)
    const rill_data_report *r = &run->data_report;
    if (r->memory_bytes + r->mapped_bytes < LARGE_DATA) return;
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
    mallopt(M_TRIM_THRESHOLD, LARGE_BLOCK);
    malloc_trim(0);
#else
    (void)run;
#endif
}

void train_print_data(const train_run *run) {
    const train_config *config = run->config;
    rill_data_report r = run->data_report;
    rill_data_view view = RILL_DATA_VIEW_INIT;
    rill_dataset_view(run->data, &view);
    char memory[TABLE_CELL], mapped[TABLE_CELL];
    cell_bytes(memory, (double)r.memory_bytes);
    cell_bytes(mapped, (double)r.mapped_bytes);
    if (!tool_speaks() || config->quiet) return;
    if (run->files > 1) printf("%d files, from ", run->files);
    printf("%s: %llu rows, %llu features, %llu entries (%s), read in %.2f s; %s%s%s on rank 0\n",
           config->file, (unsigned long long)r.rows, (unsigned long long)view.dim,
           (unsigned long long)r.entries, r.format, r.seconds, memory,
           r.mapped_bytes ? " and mapped " : "", r.mapped_bytes ? mapped : "");
    if (r.qids)
        printf("%llu rows have a query ('qid'): those of one are held out together\n",
               (unsigned long long)r.qids);
}

void train_print_memory(const train_run *run) {
    struct rusage usage;
    const rill_data_report *r = &run->data_report;
    double data = (double)(r->memory_bytes + r->mapped_bytes) / 1e6;
    getrusage(RUSAGE_SELF, &usage);
    printf("memory of rank 0: at most %.1f MB resident; data %.1f MB, model and solver %.1f MB\n",
           (double)usage.ru_maxrss / 1e6 * 1024, data, (double)run->model_bytes / 1e6);
}
