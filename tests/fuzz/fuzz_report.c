/* rill report on any text in place of records: it refuses the text with a message, or writes a page
 * that is complete, and in which nothing of the input became markup. */
#include "../tools/report.h"
#include "../tools/tool.h"
#include "fuzz.h"

#include <stdio.h>

static int occurrences(const char *text, const char *what) {
    int n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* The texts of a page come from the input, and so may its dashes; only these parts are always ours.
 */
static void check_page(const char *page, size_t size) {
    MUST(size == strlen(page));
    MUST(!strncmp(page, "<!DOCTYPE html>", 15));
    MUST(size > 20 && !strcmp(page + size - 8, "</html>\n"));
    MUST(occurrences(page, "<script") == 1 && occurrences(page, "</script") == 1);
    MUST(occurrences(page, "<style") == 1 && occurrences(page, "<main>") == 1);
    MUST(!strstr(page, "<input-of-the-fuzzer"));
}

static bool make_page(const char *word) {
    report_data data;
    report_summary summary;
    bool good = report_read(&data, 1, &word);
    if (good) {
        MUST(report_cells(&data) && report_summarise(&data, &summary));
        MUST(report_write(&data, &summary, NULL, "-"));
        report_terminal(&data, &summary);
    }
    report_free(&data);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    static FILE *saved[3];
    if (!size) return 0;
    char *page = NULL, *message = NULL;
    size_t page_size = 0, message_size = 0;
    fflush(NULL);
    FILE *in = fmemopen((void *)(uintptr_t)input, size, "r");
    FILE *out = open_memstream(&page, &page_size), *err = open_memstream(&message, &message_size);
    MUST(in && out && err);
    saved[0] = stdin, saved[1] = stdout, saved[2] = stderr;
    stdin = in, stdout = out, stderr = err;
    bool good = make_page("-");
    stdin = saved[0], stdout = saved[1], stderr = saved[2];
    fclose(in);
    fclose(out);
    fclose(err);
    MUST(good ? !message_size : message_size > 6 && !page_size);
    /* The summary for the terminal follows the page. */
    char *end = good ? strstr(page, "</html>\n") : NULL;
    MUST(!good || end);
    if (good) {
        end[8] = '\0';
        check_page(page, (size_t)(end + 8 - page));
    }
    free(page);
    free(message);
    return 0;
}
