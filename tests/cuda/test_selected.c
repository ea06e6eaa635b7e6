#include "test_selected.h"

#include "select/select.h"

static void must(rill_status status) {
    if (status >= 0) return;
    printf("%s: %s\n", rill_strerror(status), rill_last_error());
    exit(1);
}

static void *fresh(const selection *s) { return malloc(s->n * value_size(s->type) + 64); }

void selection_begin(selection *s) {
    s->given = fresh(s);
    s->residual = fresh(s);
    data_fill(s->kind, s->type, s->n, 1, s->given);
    if (s->form == ADDED) {
        s->gradient = fresh(s);
        data_fill(s->kind, s->type, s->n, 2, s->gradient);
    }
    size_t bytes = s->n * value_size(s->type);
    s->device_given = cuda_upload(s->given, bytes);
    if (s->gradient) s->device_gradient = cuda_upload(s->gradient, bytes);
}

/* The selector clears a residual only together with a gradient: one of -0 changes nothing. */
static void *no_gradient(const selection *s) {
    void *zeros = fresh(s);
    for (uint64_t i = 0; i < s->n; i++)
        value_store(s->type, zeros, i, -0.0);
    return zeros;
}

void selection_host(selection *s, const rill_select_options *o, int calls) {
    size_t bytes = s->n * value_size(s->type);
    rill_selector *selector;
    must(rill_selector_create(s->type, s->n, o, &selector));
    must(rill_stream_create(s->type, s->n, &s->expected));
    selector->guards = s->guards;
    void *zeros = s->form == CLEARED ? no_gradient(s) : NULL;
    for (int i = 0; i < calls; i++) {
        memcpy(s->residual, s->given, bytes);
        if (s->form == DENSE) must(rill_select(selector, s->given, s->expected));
        else
            must(rill_select_residual(selector, zeros ? zeros : s->gradient, s->residual,
                                      s->expected));
    }
    free(zeros);
    must(rill_selector_free(&selector));
    for (uint64_t i = 0; i < s->n && s->form == ADDED; i++) {
        char sum[8];
        double x = value_load(s->type, s->given, i), y = value_load(s->type, s->gradient, i);
        value_store(s->type, sum, 0, s->type == RILL_F64 ? x + y : (double)((float)x + (float)y));
        s->nonfinite += !isfinite(value_load(s->type, sum, 0));
    }
}

rill__cuda_select selection_call(selection *s) {
    rill__cuda_select c = {.type = (int)s->type, .guards = s->guards, .n = s->n};
    if (s->form == DENSE) c.dense = s->device_given;
    else c.residual = s->device_given;
    c.gradient = s->device_gradient;
    c.idx = cuda_new(s->room * 4);
    c.val = cuda_new(s->room * value_size(s->type));
    c.room = s->room;
    c.found = cuda_new(sizeof *c.found);
    return c;
}

void selection_end(selection *s, rill__cuda_select *call, const char *format, ...) {
    char what[128], why[128] = "";
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    size_t size = value_size(s->type);
    rill__cuda_found found;
    cuda_download(&found, call->found, sizeof found);
    uint64_t count = rill_stream_nnz(s->expected), where = 0;
    if (found.count != count)
        snprintf(why, sizeof why, "%llu pairs, not %llu", (unsigned long long)found.count,
                 (unsigned long long)count);
    if (!*why && found.nonfinite != s->nonfinite)
        snprintf(why, sizeof why, "%llu values not finite, not %llu",
                 (unsigned long long)found.nonfinite, (unsigned long long)s->nonfinite);
    if (!*why) {
        uint32_t *idx = malloc(count * 4 + 8);
        void *val = malloc(count * size + 8), *dense = fresh(s);
        const uint32_t *expected = rill_stream_indices32(s->expected);
        cuda_download(idx, call->idx, count * 4);
        cuda_download(val, call->val, count * size);
        cuda_download(dense, s->device_given, s->n * size);
        for (uint64_t i = 0; i < count && !*why; i++)
            if (idx[i] != expected[i])
                snprintf(why, sizeof why, "index %llu is %u, not %u", (unsigned long long)i, idx[i],
                         expected[i]);
        if (!*why && !same_values(s->type, val, rill_stream_values(s->expected), count, &where))
            snprintf(why, sizeof why, "value %llu", (unsigned long long)where);
        if (!*why && !same_values(s->type, dense, s->form ? s->residual : s->given, s->n, &where))
            snprintf(why, sizeof why, "residual at %llu", (unsigned long long)where);
        free(idx);
        free(val);
        free(dense);
    }
    static const char *const forms[] = {"dense", "cleared", "added"};
    cuda_case(!*why, "%s of %s %s n %llu, %s%s: %s", what, rill_type_name(s->type),
              data_names[s->kind], (unsigned long long)s->n, forms[s->form],
              s->guards ? ", guarded" : "", why);
    must(rill_stream_free(&s->expected));
    free(s->given);
    free(s->gradient);
    free(s->residual);
    cuda_free(s->device_given);
    cuda_free(s->device_gradient);
    cuda_free(call->idx);
    cuda_free(call->val);
    cuda_free(call->found);
    cuda_free(call->workspace);
}
