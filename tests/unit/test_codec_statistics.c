/* Statistics of QSGD: no bias, the variance that rounding at random has, errors of different
 * senders, hops, steps and seeds that have nothing in common.
 * RILL_LONG=1: 10^8 samples instead of 4 * 10^6. */
#include "test_codec.h"

#include "codec/value_codec.h"

static void *with_slack(size_t bytes) {
    void *p = rill__aligned_alloc(bytes);
    assert_non_null(p);
    return p;
}

enum { LENGTH = 1 << 16 };

static long long samples(void) {
    const char *text = getenv("RILL_LONG");
    return text && *text == '1' ? 100000000 : 4000000;
}

/* Errors of one quantization, in units, and what their variances should be. */
static void errors_of(const rill__value_codec *codec, const float *x, rill__quant_key key,
                      rill__scale_mode mode, uint8_t *bytes, float *back, double *error,
                      double *variance) {
    size_t used;
    codec->encode(RILL_F32, x, LENGTH, &key, mode, bytes);
    assert_int_equal(codec->decode(RILL_F32, bytes, codec->bound(RILL_F32, LENGTH), LENGTH, back,
                                   &used),
                     RILL_OK);
    for (unsigned i = 0; i < LENGTH; i++) {
        float unit;
        memcpy(&unit, bytes + i / 1024 * 4, 4);
        double y = (double)x[i] / (double)unit, f = y - floor(y);
        error[i] = (double)back[i] / (double)unit - y;
        if (variance) variance[i] = f * (1.0 - f);
    }
}

static void statistics(void **state) {
    (void)state;
    float *x = with_slack(4 * LENGTH), *back = with_slack(4 * LENGTH);
    double *error = malloc(8 * LENGTH), *other = malloc(8 * LENGTH), *var = malloc(8 * LENGTH);
    uint8_t *bytes = with_slack(rill__value_qsgd8.bound(RILL_F32, LENGTH));
    assert_true(error && other && var);
    rng r = rng_make(5, 9);
    for (int c = 3; c < 6; c++)
        for (int mode = 0; mode < 2; mode++) {
            const rill__value_codec *codec = rill__value_codec_at(c);
            double sum = 0, expected = 0, square = 0, norm2 = 0, error2 = 0, n = 0;
            double cross[4] = {0};
            for (uint64_t step = 0; n < (double)samples(); step++) {
                for (unsigned i = 0; i < LENGTH && step % 8 == 0; i++)
                    x[i] = (float)(rng_normal(&r) * (i / 1024 + 1));
                rill__quant_key key = {123, step, 0, 0};
                errors_of(codec, x, key, (rill__scale_mode)mode, bytes, back, error, var);
                for (unsigned i = 0; i < LENGTH; i++) {
                    float unit;
                    memcpy(&unit, bytes + i / 1024 * 4, 4);
                    sum += error[i];
                    square += error[i] * error[i];
                    expected += var[i];
                    norm2 += (double)x[i] * (double)x[i];
                    error2 += error[i] * error[i] * (double)unit * (double)unit;
                }
                n += LENGTH;
                /* Another sender, hop, step or seed: errors have nothing in common. */
                const rill__quant_key others[4] = {{123, step, 1, 0},
                                                   {123, step, 0, 1},
                                                   {123, step + 1, 0, 0},
                                                   {124, step, 0, 0}};
                for (int o = 0; o < 4; o++) {
                    errors_of(codec, x, others[o], (rill__scale_mode)mode, bytes, back, other,
                              NULL);
                    for (unsigned i = 0; i < LENGTH; i++)
                        cross[o] += error[i] * other[i];
                }
            }
            double sigma = sqrt(expected), s = (1 << (codec->bits - 1)) - 1;
            print_message("%s, %s: bias %.2f sigma, variance %.4f of expected, error^2 %.4f of the "
                          "norm's, correlations %.2f %.2f %.2f %.2f sigma\n",
                          codec->name, mode ? "L2" : "max", sum / sigma, square / expected,
                          error2 / norm2, cross[0] / (expected / sqrt(n)),
                          cross[1] / (expected / sqrt(n)), cross[2] / (expected / sqrt(n)),
                          cross[3] / (expected / sqrt(n)));
            assert_true(fabs(sum) < 3.0 * sigma);
            assert_true(fabs(square / expected - 1.0) < 0.01);
            /* Lemma 3.1 of the QSGD paper, of which max scales are the better case. */
            assert_true(error2 <= norm2 * fmin(1024.0 / (s * s), sqrt(1024.0) / s));
            /* Products have variance var^2, which is at most expected / n on average times 1/4:
             * four sigma of the looser bound sqrt(expected / 4). */
            for (int o = 0; o < 4; o++)
                assert_true(fabs(cross[o]) < 4.0 * sqrt(expected / 4.0));
        }
    free(x);
    free(back);
    free(bytes);
    free(error);
    free(other);
    free(var);
}

/* A single value between two levels, in each position of a bucket: its mean is right. */
static void single_values(void **state) {
    (void)state;
    enum { N = 2048, STEPS = 1000 };
    float *x = with_slack(4 * N), *back = with_slack(4 * N);
    uint8_t *bytes = with_slack(rill__value_qsgd8.bound(RILL_F32, N));
    static const double fraction[] = {0.001, 0.25, 0.5, 0.9, -0.1, -0.3};
    for (int c = 3; c < 6; c++)
        for (int f = 0; f < 6; f++) {
            const rill__value_codec *codec = rill__value_codec_at(c);
            double s = (1 << (codec->bits - 1)) - 1, sum = 0;
            for (unsigned i = 0; i < N; i++)
                x[i] = (float)(i % 1024 ? fraction[f] / s : 1.0);
            for (uint64_t step = 0; step < STEPS; step++) {
                rill__quant_key key = {9, step, 2, 3};
                size_t used;
                codec->encode(RILL_F32, x, N, &key, RILL__SCALE_MAX, bytes);
                codec->decode(RILL_F32, bytes, codec->bound(RILL_F32, N), N, back, &used);
                for (unsigned i = 0; i < N; i++) {
                    if (i % 1024) sum += (double)back[i] * s;
                    else assert_true(fabs((double)back[i] - 1.0) < 1e-6);
                }
            }
            double n = STEPS * (N - 2.0), p = fabs(fraction[f]);
            double sigma = sqrt(p * (1 - p) / n);
            if (fabs(sum / n - fraction[f]) > 4 * sigma)
                fail_msg("%s: mean %.6f instead of %.6f", codec->name, sum / n, fraction[f]);
        }
    free(x);
    free(back);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics),
        cmocka_unit_test(single_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
