/* Agreement on a few words: status, nnz statistics, smallest and largest of a word, sums of others.
 * By recursive doubling (req/pattern.c): ceil(log2 P) small messages, two more where P folds. Used
 * before the first planned call, under RILL_CHECK, for balanced partitions, and before MPI's own
 * collective, which cannot carry a status. */
#include "req/request.h"

#include <string.h>

enum { ARGS = 2 }; /* words before the sums */

void rill__agree_start(rill__agree *a, uint64_t args, uint64_t *sums, uint64_t n) {
    *a = (rill__agree){.args_min = args, .args_max = args, .sums = sums, .n = n};
}

rill_status rill__agree_reserve(rill__task *task) {
    int rounds = 2;
    for (int reach = 1; reach < task->engine->size; reach *= 2)
        rounds++;
    RILL_TRY(rill__transfers_reserve(&task->sends, rounds));
    RILL_TRY(rill__transfers_reserve(&task->receives, rounds));
    /* The words, and in each round a message to send and one to receive, or a failure's text. */
    size_t bytes = sizeof(rill__header) +
                   rill__max_u64(sizeof task->error, ARGS * sizeof(uint64_t));
    return rill__parcels_reserve(task, 2 * rounds + 1, bytes);
}

static rill_status send(rill__task *task, rill__agree *a, int peer) {
    if (!a->words) {
        a->words = rill__parcel_take(task, (ARGS + a->n) * sizeof(uint64_t));
        if (!a->words) return RILL_ERR_MEMORY;
    }
    uint64_t *words = a->words->buffer.data;
    words[0] = a->args_min;
    words[1] = a->args_max;
    if (a->n) memcpy(words + ARGS, a->sums, a->n * sizeof *words);
    task->rounds++;
    return rill__send_words(task, peer, RILL__LANE_AGREE, words, ARGS + a->n);
}

static void merge(rill__task *task, rill__agree *a, const rill__message *m, bool replace) {
    if (m->header.form == RILL__M_FAILED) return;
    if (m->header.form != RILL__M_AGREE || m->header.count != ARGS + a->n) {
        rill__task_abort(task,
                         rill__fail(RILL_ERR_MISMATCH, "another rank agrees on other things"));
        return;
    }
    uint64_t words[ARGS];
    memcpy(words, m->payload, sizeof words);
    a->args_min = rill__min_u64(a->args_min, words[0]);
    a->args_max = rill__max_u64(a->args_max, words[1]);
    task->nnz_sum = m->header.nnz_sum + (replace ? 0 : task->nnz_sum);
    task->nnz_max = rill__most_of(task->nnz_max, m->header.nnz_max);
    for (uint64_t i = 0; i < a->n; i++) {
        uint64_t word;
        memcpy(&word, m->payload + (ARGS + i) * sizeof word, sizeof word);
        a->sums[i] = word + (replace ? 0 : a->sums[i]);
    }
}

rill_status rill__agree_step(rill__task *task, rill__agree *a) {
    rill__group group = rill__group_or_all(&a->group, task->engine->rank, task->engine->size);
    for (;;) {
        int peer;
        rill__round_kind kind = rill__doubling_round(group.me, group.n, a->stage, &peer);
        if (kind == RILL__ROUND_END) return RILL_OK;
        peer = rill__group_rank(&group, peer);
        bool sends = kind == RILL__ROUND_SEND || kind == RILL__ROUND_EXCHANGE ||
                     kind == RILL__ROUND_RESULT_SEND;
        bool receives = kind != RILL__ROUND_SEND && kind != RILL__ROUND_RESULT_SEND;
        if (sends && !a->sent) {
            RILL_TRY(send(task, a, peer));
            a->sent = true;
        }
        if (receives) {
            rill__message message;
            rill__parcel *parcel;
            rill_status status = rill__receive(task, peer, RILL__LANE_AGREE, &message, &parcel,
                                               NULL);
            if (status != RILL_OK) return status;
            merge(task, a, &message, kind == RILL__ROUND_RESULT_RECEIVE);
        }
        a->sent = false;
        a->stage++;
    }
}
