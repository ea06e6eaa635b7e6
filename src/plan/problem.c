/* What the estimates see of a call, and the ways to send it: index codec, value bits, partition. */
#include "coll/cost.h"
#include "plan/plan.h"

#include <math.h>

void rill__problem_code(rill__problem *p, const rill__index_codec *codec, int value_bits) {
    const rill__value_codec *values = rill__value_codec_for_bits(p->type, value_bits);
    double nnz = fmax(1, p->nnz);
    if (!values) values = &rill__value_raw;
    p->codec = codec;
    p->value_bits = value_bits;
    p->value_cost = values->bytes(p->type);
    double pair = rill__pairs_bytes(p, nnz, (double)p->dim) / nnz;
    double time = values->seconds(p->c, p->type) +
                  codec->seconds(p->c, p->index_bytes, fmin(1, nnz / (double)p->dim));
    p->transcode = time / pair;
}

rill__problem rill__plan_problem(const rill__planner *planner, const rill__settings *settings,
                                 rill_collective collective, int ranks, uint64_t dimension,
                                 rill_type type, const rill_op *op, const rill__observed *seen) {
    rill__problem p = {.collective = collective,
                       .ranks = ranks,
                       .hosts = planner->hosts,
                       .most_per_host = planner->most_per_host,
                       .shares = planner->shares,
                       .sums_bits = planner->sums_bits,
                       .mpi_sums = planner->mpi_sums,
                       .read_bytes = planner->read_bytes,
                       .dim = dimension,
                       .type = type,
                       .op = op,
                       .index_bytes = rill__index_bytes(dimension),
                       .index_cost = -1,
                       .skew = fmax(1, seen->skew),
                       .partition = settings->partition == RILL__BALANCED ? RILL__BALANCED
                                                                          : RILL__UNIFORM,
                       .block = settings->block,
                       .all_values = settings->all_values,
                       .c = &rill__plan_profile(planner, settings)->constants,
                       .device = settings->on_devices ? &planner->device : NULL};
    double dim = (double)p.dim;
    if (seen->known) {
        p.nnz = fmin((double)seen->nnz_sum / ranks, dim);
        p.nnz_max = fmin((double)seen->nnz_max, dim);
        p.result = rill__uniform_union(dim, p.nnz, ranks);
    }
    if (seen->result) p.result = (double)seen->result;
    else if (settings->expected_nnz) p.result = fmin((double)settings->expected_nnz, dim);
    p.space = rill__effective_space(&p);
    rill__problem_code(&p, settings->codec ? settings->codec : &rill__codec_raw,
                       settings->value_bits);
    return p;
}

typedef struct way {
    const rill__index_codec *codec;
    int value_bits;
    rill__partition partition;
} way;

/* Devices have the codes of pairs with narrow indices, and no wide values. Inputs above the switch
 * to dense go in another form, and sums that may be are the host's. */
static bool can_go_away(const rill__problem *p) {
    double limit = (double)rill__dense_switch(p->type, p->dim);
    return p->index_bytes == 4 && rill__type_size(p->type) <= 4 && p->index_cost < 0 && !p->block &&
           p->codec->code != RILL__INDEX_NONE && p->nnz * p->ranks <= limit;
}

static void consider(const rill__profile *profile, const rill__algorithm *a, way w,
                     const rill__problem *p, rill__problem *best, double *least) {
    rill__problem q = *p;
    q.partition = w.partition;
    rill__problem_code(&q, w.codec, w.value_bits);
    double time = rill__profile_time(profile, a, &q);
    if (time < *least) {
        *least = time;
        *best = q;
    }
    if (!q.device || !a->estimate_away || !can_go_away(&q)) return;
    q.away = true;
    time = rill__profile_time(profile, a, &q);
    if (time >= *least) return;
    *least = time;
    *best = q;
}

/* Coded indices must be worth it by a little, since raw ones need no decoding to be read. */
double rill__plan_way(const rill__planner *planner, const rill__settings *settings,
                      const rill__algorithm *a, rill__problem *p) {
    static const int bits[] = {0, 16, 8, 4, 2};
    rill__problem given = *p;
    given.away = false;
    const rill__profile *profile = rill__plan_profile(planner, settings);
    /* MPI's own sum knows no codec, and few entries are not worth one. */
    bool coded = !a->posts_mpi_collective && !a->takes_blocks && rill__worth_coding(p->nnz);
    bool lossy = !a->posts_mpi_collective && settings->allow_bits && !settings->value_bits;
    bool skewed = settings->partition == RILL__ANY_PARTITION && p->skew > 1.25;
    double least = INFINITY;
    for (int balanced = 0; balanced <= skewed; balanced++) {
        rill__partition partition = balanced ? RILL__BALANCED : given.partition;
        for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
            int value_bits = lossy ? bits[i] : settings->value_bits;
            if (lossy && bits[i] && bits[i] < settings->allow_bits) break;
            if (!rill__value_codec_for_bits(given.type, value_bits)) continue;
            if (settings->codec || !coded) {
                way w = {settings->codec ? settings->codec : &rill__codec_raw, value_bits,
                         partition};
                consider(profile, a, w, &given, p, &least);
            } else {
                const rill__index_codec *codec;
                for (int k = 0; (codec = rill__index_codec_at(k)); k++)
                    consider(profile, a, (way){codec, value_bits, partition}, &given, p, &least);
            }
            if (!lossy) break;
        }
    }
    return least;
}
